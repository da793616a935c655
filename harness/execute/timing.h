/* SPDX-License-Identifier: Apache-2.0
 *
 * timing.h: time calls of a case, on the clock of where its kernel runs.
 */
#ifndef KVG_HARNESS_TIMING_H
#define KVG_HARNESS_TIMING_H

#include "execution.h"
#include "harness/measure/measure.h"

#define KVG_TIMED_OUTPUT_DIFFERS "the output of a timed call differs from the verified one"

/* Takes the samples of m and fills the time columns and, if wanted, the roofs. Time budget, flags and report
 * of m are filled in here. -1 with the verdict when a call failed. */
int kvg_calls_time(struct kvg_execution *x, struct kvg_measurement *m);
/* Median of a few samples of a call that is timed apart, in seconds; NaN when it failed. */
double kvg_calls_time_apart(struct kvg_execution *x, int (*call)(void *), void *context);
/* Wakes the OpenMP team before a timed call. A sleeping team takes long to wake; in an engine it would be
 * awake. */
void kvg_team_wake(int64_t threads);

#endif
