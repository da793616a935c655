/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_shim.h: Google Benchmark, seen from C.
 *
 * A sample is one repetition of one iteration with manual time: the library runs, counts and reports them,
 * and its own JSON reporter writes them, so that its tools/compare.py finds every sample and can do its U
 * test.
 */
#ifndef KVG_HARNESS_BENCH_SHIM_H
#define KVG_HARNESS_BENCH_SHIM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kvg_bench {
    const char *name;                /* name in the report, nothing appended */
    int64_t samples;                 /* how many */
    double (*sample)(void *context); /* takes one: seconds, or < 0 when it failed (ends the run) */
    void (*before)(void *context);   /* untimed, before each sample; may be NULL */
    void (*after)(void *context);    /* untimed, after each sample; may be NULL */
    void *context;
};

/* flags: NULL-terminated, checked by kvg_benchmark_flags, or NULL. Only the first call of a process hands
 * them to the library, which keeps them for good. seconds[samples] receives the samples and *n how many there
 * are. report, unless NULL, receives the JSON (malloc'ed). 0, or -1 when a sample failed or the library
 * threw. */
int kvg_bench_run(const struct kvg_bench *bench, const char *const *flags, double *seconds, int64_t *n,
                  char **report);

#ifdef __cplusplus
}
#endif
#endif
