/* SPDX-License-Identifier: Apache-2.0
 *
 * measure.h: time a call, and the roofs it is held against.
 *
 * Google Benchmark drives the repetitions (bench_shim.cc is the one C++ file of the project); every sample is
 * kept. Cold: the caches are evicted outside the timed region before each sample. Hot: they are not.
 */
#ifndef KVG_HARNESS_MEASURE_H
#define KVG_HARNESS_MEASURE_H

#include <stdint.h>
#include "prepare.h"
#include "run.h"

/* One timed thing. `call` returns 0 or KVG_E*. `evict` (may be NULL) runs before each sample, untimed. */
struct kvg_measurement {
    const char *name; /* the case string: benchmark name and NVTX range */
    int (*call)(void *context);
    void (*evict)(void *context);
    void *context;
    double min_time;
    int64_t min_samples, max_samples;
};
/* samples[max_samples] seconds; *n taken. -1 with the error when a call failed. */
int kvg_measure(const struct kvg_measurement *m, double *samples, int64_t *n, struct kvg_error *error);

struct kvg_summary {
    double median, min, q1, q3, mad;
};
void kvg_summarise(const double *samples, int64_t n, struct kvg_summary *out); /* GSL */

/* Roofs of this machine with `threads` threads; NaN where it cannot be measured. Each takes about 50 ms. */
struct kvg_roofs {
    double read, copy, cache; /* B/s; copy counts bytes read plus written */
    double flops;             /* FP32 FMA, 1/s */
};
void kvg_measure_roofs(int64_t threads, struct kvg_roofs *out);
/* Best of a few plain kernels that read exactly the K and V slots the case owns, B/s; cold. */
double kvg_measure_gather_roof(const struct kvg_prepared *p, int64_t threads);

#endif
