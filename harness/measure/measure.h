/* SPDX-License-Identifier: Apache-2.0
 *
 * measure.h: measures how long one call takes.
 *
 * Google Benchmark runs the repetitions, through bench_shim.cc, and every sample is kept. Cold cases evict
 * the caches before each sample, outside the timed region. Hot cases do not.
 */
#ifndef KVG_HARNESS_MEASURE_H
#define KVG_HARNESS_MEASURE_H

#include <stddef.h>
#include <stdint.h>

#include "results/error.h"

/* The clock of a device. `start` is called before the calls of a sample. `stop` is called after them and
 * waits for their end. Both return 0 or -1. */
struct kvg_clock {
    char name[64];
    double floor; /* seconds between start and stop with no call in between */
    int (*start)(void *context, int hold);
    int (*stop)(void *context, double *seconds);
    void *context;
};

/* Results of a measurement besides its samples. */
struct kvg_measured {
    int64_t calls; /* number of calls, warm-up included */
    int64_t batch; /* number of calls of a sample */
    double launch; /* median seconds until a call returned on the host; NaN without a struct kvg_clock */
    /* CPU seconds of a call, all threads of the process together: median and quartiles. NaN with a struct
     * kvg_clock. The clock is read outside the time of the sample; reading it costs some 100 ns, which the CPU
     * time contains. */
    double cpu_median, cpu_q1, cpu_q3;
};

/* What is timed, and how.
 *
 * A sample is the time of one call between two readings of CLOCK_MONOTONIC_RAW, or of `clock`. If `batch` is
 * set (hot cases) and a call is shorter than KVG_TRUSTED_FLOORS times the cost of the clock, a sample is the
 * mean of several calls, which together take twice that long.
 *
 * There are at least min_samples samples. More are taken until their sum reaches min_time, their number
 * reaches max_samples, or the wall time, with evictions, reaches KVG_WALL_PER_MIN_TIME times min_time. The
 * number follows from the times of warm-up calls, which are not samples. If the samples are shorter than
 * expected, they are dropped, and a larger number is taken. */
struct kvg_measurement {
    const char *name;                 /* the case string; name in Google Benchmark's report */
    int (*call)(void *context);       /* the timed call: 0 or KVG_E* */
    void (*evict)(void *context);     /* NULL, or runs before each sample, untimed */
    void *context;                    /* passed to call, evict and after */
    double min_time;                  /* seconds */
    int64_t min_samples, max_samples; /* 1 <= min_samples <= max_samples */
    int (*after)(void *context);      /* NULL, or runs after each sample, untimed; not 0 ends the measurement
                                      with the error "the check after a timed call failed" */
    int batch;                        /* 1: a sample may be several calls */
    const struct kvg_clock *clock;    /* NULL: CLOCK_MONOTONIC_RAW */
    int hold;                         /* passed to clock->start */
    struct kvg_measured *measured;    /* NULL, or receives the other results */
    const char *const *flags;         /* --benchmark_* flags, NULL-terminated, or NULL */
    char **report;                    /* NULL, or receives Google Benchmark's JSON (malloc'ed) */
};
#define KVG_TRUSTED_FLOORS 100.0  /* in a sample this much longer than the floor, the floor is at most 1 % */
#define KVG_WALL_PER_MIN_TIME 3.0 /* see above */

/* Fills samples[max_samples], in seconds, and *n, the number of samples. 0, or -1 with the error when a call,
 * the clock or a check failed. */
int kvg_measure_calls(const struct kvg_measurement *m, double *samples, int64_t *n, struct kvg_error *error);
/* The same. `method` receives how the samples were taken:
 * "CLOCK_MONOTONIC_RAW (cost of reading it: 25 ns), 1 call per sample". */
int kvg_measure_calls_described(const struct kvg_measurement *m, double *samples, int64_t *n, char *method,
                                size_t size, struct kvg_error *error);

/* Seconds between two readings of CLOCK_MONOTONIC_RAW, one after the other: the median of 1000 tries. */
double kvg_timer_floor(void);

/* Statistics of samples, by GSL. q1 and q3 are quartiles, mad is the median absolute deviation. */
struct kvg_summary {
    double median, min, q1, q3, mad;
};
/* All NaN without samples or memory. */
void kvg_summary_make(const double *samples, int64_t n, struct kvg_summary *out);

#endif
