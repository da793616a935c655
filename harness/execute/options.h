/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h: how the cases of a run are executed. All cases of a run have the same options.
 */
#ifndef KVG_HARNESS_RUN_OPTIONS_H
#define KVG_HARNESS_RUN_OPTIONS_H

#include <stdint.h>

struct kvg_run_options {
    double min_time;     /* total time of the samples of a case, in seconds; default 0.2 */
    int64_t min_samples; /* least number of samples of a case; default 15 */
    int64_t max_samples; /* greatest number of samples of a case; default KVG_MAX_SAMPLES */
    int64_t verify_rows; /* greatest number of output rows to verify; 0 = the default; only tests set it */
    int64_t repeats;   /* number of repeated calls that must give the same bits; 0 = up to 300 within 0.3 s */
    int verify_only;   /* 1: verify and do not time, whatever the cases say */
    int profile;       /* 1: run the kernel once inside an NVTX range; neither verify nor time */
    double timeout;    /* seconds that a case may take; default 120 */
    const char *dump;  /* folder or FILE.h5 for the tensors of failed rows; NULL = no dumps */
    int measure_roofs; /* 1 (default): measure roofs next to each timed case; tests set 0 */
    int graph;         /* 1: record timed calls on a device once and replay them; no effect on a CPU */
    /* constants of random_tokens; default 200, 200, 100 */
    float random_tokens_q, random_tokens_k, random_tokens_v;
    const char *const *plugins;         /* shared objects to load, NULL-terminated; NULL = none */
    const char *const *benchmark_flags; /* --benchmark_* flags passed on, NULL-terminated; NULL = none */
};

void kvg_run_options_default(struct kvg_run_options *options);

#endif
