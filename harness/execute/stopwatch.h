/* SPDX-License-Identifier: Apache-2.0
 *
 * stopwatch.h: where the time of a case goes.
 *
 * One clock runs from the begin of a case to its end, and at every moment its time is on the account of one
 * activity: so the accounts add up to the whole, and what no one thought of shows in one of them.
 */
#ifndef KVG_HARNESS_STOPWATCH_H
#define KVG_HARNESS_STOPWATCH_H

#include "results/row.h"

enum kvg_activity {
    KVG_PREPARING,    /* inputs, scales, caches, buffers */
    KVG_VERIFYING,    /* expectation, untimed calls, comparisons, further runs, changed inputs */
    KVG_QUANTISATION, /* the reference on unquantised tensors: it tells what the format costs, and judges
                         nobody */
    KVG_TIMING,       /* timed calls with what lies between them, and roofs */
    KVG_ACTIVITIES
};

struct kvg_stopwatch {
    enum kvg_activity now;
    double since;                   /* kvg_now() when it began */
    double seconds[KVG_ACTIVITIES]; /* of what has ended; NaN: never begun */
};

void kvg_stopwatch_start(struct kvg_stopwatch *w, enum kvg_activity first);
/* From now on the time is that of `next`. Returns what it was before, to turn back to. */
enum kvg_activity kvg_stopwatch_turn(struct kvg_stopwatch *w, enum kvg_activity next);
/* Turns the accounts so far into the columns seconds_... of a row. The watch runs on. */
void kvg_stopwatch_tell(struct kvg_stopwatch *w, struct kvg_row *row);

#endif
