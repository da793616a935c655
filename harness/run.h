/* SPDX-License-Identifier: Apache-2.0
 *
 * run.h: run cases in a worker process and keep what they say.
 *
 * The parent never touches a device and never calls a kernel. It sends case strings down a pipe to one worker
 * and reads rows (JSON lines) back; a worker that crashes, hangs or is killed costs one row and is replaced.
 */
#ifndef KVG_HARNESS_RUN_H
#define KVG_HARNESS_RUN_H

#include <stdint.h>
#include "case.h"
#include "../results/journal.h"

/* How cases are run; part of every worker's command. */
struct kvg_run_options {
    double min_time;        /* seconds of timed samples per case, default 0.2 */
    int64_t min_samples;    /* default 15 */
    int64_t max_samples;    /* default KVG_MAX_SAMPLES */
    int64_t verify_rows;    /* rows_limit of kvg_expect, 0 = default */
    int verify_only;        /* no timing whatever the cases say */
    int profile;            /* run the kernel once inside an NVTX range, no timing, no verification */
    double timeout;         /* seconds a case may take, default 120 */
    int measure_roofs;      /* 1: measure roofs next to each timed case */
    float random_tokens_q, random_tokens_k, random_tokens_v; /* constants, default 200, 200, 100 */
    const char *const *plugins; /* shared objects to load, NULL-terminated or NULL */
    const char *const *benchmark_flags; /* --benchmark_* flags passed through, NULL-terminated or NULL */
};
void kvg_run_options_default(struct kvg_run_options *options);

/* Run one case in this process (what the worker does): always fills row, whatever happens short of a crash. */
void kvg_execute(const struct kvg_case *c, const struct kvg_run_options *options, struct kvg_row *row);

/* Parent side. */
struct kvg_worker;
struct kvg_worker *kvg_worker_start(const struct kvg_run_options *options, struct kvg_error *error);
/* Runs one case; the row says timeout, crashed or out_of_memory where the worker did not come back.
 * Returns 0, 1 if interrupted by SIGINT/SIGTERM, or -1 with the error (worker cannot be started). */
int kvg_worker_run(struct kvg_worker *worker, const struct kvg_case *c, struct kvg_row *row,
                   struct kvg_error *error);
void kvg_worker_stop(struct kvg_worker *worker);

#endif
