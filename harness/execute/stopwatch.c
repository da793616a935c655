/* SPDX-License-Identifier: Apache-2.0
 *
 * stopwatch.c: divides the time of a case among activities.
 */
#include "stopwatch.h"

#include <math.h>

#include "harness/machine/clock.h"

void kvg_stopwatch_start(struct kvg_stopwatch *w, enum kvg_activity first)
{
    for (int i = 0; i < KVG_ACTIVITIES; i++)
        w->seconds[i] = NAN;
    w->seconds[first] = 0;
    w->now = first;
    w->since = kvg_now();
}

enum kvg_activity kvg_stopwatch_turn(struct kvg_stopwatch *w, enum kvg_activity next)
{
    const enum kvg_activity before = w->now;
    const double now = kvg_now();
    w->seconds[before] += now - w->since;
    if (isnan(w->seconds[next]))
        w->seconds[next] = 0;
    w->now = next;
    w->since = now;
    return before;
}

void kvg_stopwatch_tell(struct kvg_stopwatch *w, struct kvg_row *row)
{
    kvg_stopwatch_turn(w, w->now);
    row->seconds_prepare = w->seconds[KVG_PREPARING];
    row->seconds_verify = w->seconds[KVG_VERIFYING];
    row->seconds_quantise = w->seconds[KVG_QUANTISATION];
    row->seconds_timing = w->seconds[KVG_TIMING];
}
