/* SPDX-License-Identifier: Apache-2.0
 *
 * stopwatch.h: divides the time of a case among activities.
 *
 * One clock runs from the beginning of a case to its end, and at every moment exactly one activity is timed.
 * So the times of the activities add up to the time of the case, and no time is lost between them.
 */
#ifndef KVG_HARNESS_STOPWATCH_H
#define KVG_HARNESS_STOPWATCH_H

#include "results/row.h"

enum kvg_activity {
    KVG_PREPARING,    /* inputs, scales, caches, buffers */
    KVG_VERIFYING,    /* expectation, untimed calls, comparisons, further runs, changed inputs */
    KVG_QUANTISATION, /* the reference on unquantised tensors, for the quantisation error */
    KVG_TIMING,       /* timed calls with evictions and checks between them, and roofs */
    KVG_ACTIVITIES
};

struct kvg_stopwatch {
    enum kvg_activity now;
    double since;                   /* kvg_now() when `now` began */
    double seconds[KVG_ACTIVITIES]; /* without the running activity since `since`; NaN: never begun */
};

void kvg_stopwatch_start(struct kvg_stopwatch *w, enum kvg_activity first);
/* Ends the running activity and begins `next`. Returns the ended one, so that the caller can turn back. */
enum kvg_activity kvg_stopwatch_turn(struct kvg_stopwatch *w, enum kvg_activity next);
/* Fills the columns seconds_... of a row. The watch continues to run. */
void kvg_stopwatch_tell(struct kvg_stopwatch *w, struct kvg_row *row);

#endif
