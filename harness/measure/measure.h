/* SPDX-License-Identifier: Apache-2.0
 *
 * measure.h: time a call, and the roofs it is held against.
 *
 * Google Benchmark drives the repetitions (bench_shim.cc is the one C++ file of the project); every sample is
 * kept. Cold: the caches are evicted outside the timed region before each sample. Hot: they are not.
 */
#ifndef KVG_HARNESS_MEASURE_H
#define KVG_HARNESS_MEASURE_H

#include <stddef.h>
#include <stdint.h>

#include "results/error.h"

/* A clock that is not the host's: `start` before the calls of a sample, `stop` behind them waits for their
 * end. Both give 0 or -1. */
struct kvg_clock {
    char name[64];
    double floor; /* s: what it measures around nothing */
    int (*start)(void *context, int hold);
    int (*stop)(void *context, double *seconds);
    void *context;
};

/* What a measurement tells besides its samples. */
struct kvg_measured {
    int64_t calls; /* all of them, warm-up included */
    int64_t batch; /* calls a sample */
    double launch; /* s: median time until a call returned on the host; NaN without a clock of its own */
};

/* One timed thing. `call` returns 0 or KVG_E*. `evict` (may be NULL) runs before each sample, untimed.
 *
 * A sample is one call between two readings of CLOCK_MONOTONIC_RAW, or of `clock`. Where `batch` allows it
 * (the cache is hot) and one call is shorter than KVG_TRUSTED_FLOORS times the cost of reading the clock, a
 * sample is as many calls as it takes to be longer, divided by their number.
 *
 * Number of samples: at least min_samples; then until their sum reaches min_time, or there are max_samples,
 * or the wall time of all (evictions included) would pass KVG_WALL_PER_MIN_TIME times min_time. The number is
 * settled by warm-up calls, which are not samples; where the samples turn out shorter than foreseen they are
 * dropped and taken anew, more of them. */
struct kvg_measurement {
    const char *name; /* the case string: benchmark name and NVTX range */
    int (*call)(void *context);
    void (*evict)(void *context);
    void *context;
    double min_time;
    int64_t min_samples, max_samples;
    int (*after)(void *context);   /* NULL, or runs after each sample, untimed; not 0 ends the measurement:
                                      the error then says "the check after a timed call failed" */
    int batch;                     /* 1: short calls may be batched */
    const struct kvg_clock *clock; /* NULL: CLOCK_MONOTONIC_RAW */
    int hold;                      /* handed to clock->start */
    struct kvg_measured *measured; /* NULL, or receives the rest */
    const char *const *flags;      /* --benchmark_* flags, NULL-terminated, or NULL */
    char **report;                 /* NULL, or receives Google Benchmark's JSON (malloc'ed) */
};
#define KVG_TRUSTED_FLOORS 100.0  /* a sample this many clock readings long is off by 1 % at most */
#define KVG_WALL_PER_MIN_TIME 3.0 /* see above */

/* samples[max_samples] seconds; *n taken. -1 with the error when a call failed. */
int kvg_measure_calls(const struct kvg_measurement *m, double *samples, int64_t *n, struct kvg_error *error);
/* The same, and how the samples were taken ("CLOCK_MONOTONIC_RAW, one call a sample, ..."). */
int kvg_measure_calls_described(const struct kvg_measurement *m, double *samples, int64_t *n, char *method,
                                size_t size, struct kvg_error *error);

/* What reading the clock twice costs, in seconds: the median of a thousand tries. */
double kvg_timer_floor(void);

struct kvg_summary {
    double median, min, q1, q3, mad;
};
void kvg_summary_make(const double *samples, int64_t n, struct kvg_summary *out); /* GSL */

#endif
