/* SPDX-License-Identifier: Apache-2.0
 *
 * timing.h: times the calls of a case, with the clock of the device or CPU that runs its kernel.
 */
#ifndef KVG_HARNESS_TIMING_H
#define KVG_HARNESS_TIMING_H

#include "execution.h"
#include "harness/measure/measure.h"

#define KVG_TIMED_OUTPUT_DIFFERS "the output of a timed call differs from the verified one"

/* Takes the samples of m, fills the time columns and, if the run measures roofs, the roofs. Sets name, time
 * budget, flags and report of m. -1 with the verdict when a call failed. */
int kvg_calls_time(struct kvg_execution *x, struct kvg_measurement *m);
/* Times a call that has its own time column (prepare, quantize_q): the median of a few samples, in seconds.
 * NaN when a call failed. */
double kvg_calls_time_apart(struct kvg_execution *x, int (*call)(void *), void *context);
/* Wakes the OpenMP threads before a timed call. Sleeping threads take long to wake, and in an engine they
 * would be awake. */
void kvg_team_wake(int64_t threads);

#endif
