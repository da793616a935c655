/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_shim.h: a C interface to Google Benchmark.
 *
 * A sample is one repetition of one iteration with manual time. The library runs, counts and reports the
 * samples, and its own JSON reporter writes them. So the library's tools/compare.py finds every sample and
 * can do its U test.
 */
#ifndef KVG_HARNESS_BENCH_SHIM_H
#define KVG_HARNESS_BENCH_SHIM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kvg_bench {
    const char *name;                /* name in the report, with nothing appended */
    int64_t samples;                 /* number of samples to take */
    double (*sample)(void *context); /* takes a sample: its seconds, or < 0 for a failure (ends the run) */
    void (*before)(void *context);   /* untimed, before each sample; may be NULL */
    void (*after)(void *context);    /* untimed, after each sample; may be NULL */
    void *context;                   /* passed to the three functions */
};

/* Takes the samples. 0, or -1 when a sample failed or the library threw an exception.
 *   flags    NULL-terminated and checked by kvg_benchmark_flags, or NULL. The library reads them once in a
 *            process: only the flags of the first call count
 *   seconds  [samples], receives the samples
 *   n        receives the number of samples
 *   report   NULL, or receives the JSON (malloc'ed) */
int kvg_bench_run(const struct kvg_bench *bench, const char *const *flags, double *seconds, int64_t *n,
                  char **report);

#ifdef __cplusplus
}
#endif
#endif
