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
#include "harness/case/case.h"
#include "results/journal.h"

/* How cases are run; part of every worker's command. */
struct kvg_run_options {
    double min_time;     /* seconds of timed samples per case, default 0.2 */
    int64_t min_samples; /* default 15 */
    int64_t max_samples; /* default KVG_MAX_SAMPLES */
    int64_t verify_rows; /* rows_limit of kvg_expectation_make, 0 = default */
    int64_t repeats;     /* calls whose outputs must have the same bits, of cases that are asked again; 0 = as
                            many     of 300 as fit into 0.3 s */
    int verify_only;     /* no timing whatever the cases say */
    int profile;         /* run the kernel once inside an NVTX range, no timing, no verification */
    double timeout;      /* seconds a case may take, default 120 */
    const char *dump;    /* NULL, or where the tensors of rows that fail go: a folder or FILE.h5 */
    int measure_roofs;   /* 1: measure roofs next to each timed case */
    int graph;           /* 1: timed calls on a device are recorded once and replayed; nothing on a CPU */
    float random_tokens_q, random_tokens_k, random_tokens_v; /* constants, default 200, 200, 100 */
    const char *const *plugins;         /* shared objects to load, NULL-terminated or NULL */
    const char *const *benchmark_flags; /* --benchmark_* flags passed through, NULL-terminated or NULL */
};
void kvg_run_options_default(struct kvg_run_options *options);

/* Run one case in this process (what the worker does): always fills row, whatever happens short of a crash.
 */
void kvg_execute(const struct kvg_case *c, const struct kvg_run_options *options, struct kvg_row *row);

/* What a process that runs many cases keeps between them: buffers to evict with, the last roofs. */
struct kvg_session;
struct kvg_session *kvg_session_new(void); /* NULL on out of memory */
void kvg_session_free(struct kvg_session *session);
/* As kvg_execute. report, unless NULL, receives Google Benchmark's JSON of the timed calls (malloc'ed; NULL
 * where nothing was timed). */
void kvg_execute_in(struct kvg_session *session, const struct kvg_case *c,
                    const struct kvg_run_options *options, struct kvg_row *row, char **report);
/* 1 once a kernel has written where it must not: this process is no place for another case. */
int kvg_session_tainted(const struct kvg_session *session);

/* Is told which kind of run begins (enum kvg_run_kind of diagnose.h), where a crash in it would mean
 * something. */
void kvg_session_announce(struct kvg_session *session, void (*tell)(void *context, int run), void *context);

/* Parent side. */
struct kvg_worker;
/* Blocks SIGINT, SIGTERM and SIGHUP in this thread until kvg_worker_stop. Other threads of the program must
 * have them blocked already. */
struct kvg_worker *kvg_worker_start(const struct kvg_run_options *options, struct kvg_error *error);
/* Runs one case; the row (initialised by kvg_row_init) says timeout, crashed or out_of_memory where the
 * worker did not come back. Returns 0, 1 if interrupted by SIGINT/SIGTERM, or -1 with the error (worker
 * cannot be started). */
int kvg_worker_run(struct kvg_worker *worker, const struct kvg_case *c, struct kvg_row *row,
                   struct kvg_error *error);
/* Google Benchmark's JSON of the last case (owned by the worker, valid until the next); NULL where nothing
 * was timed or the flags name no --benchmark_out. */
const char *kvg_worker_report(const struct kvg_worker *worker);
void kvg_worker_stop(struct kvg_worker *worker);

/* Child side: the worker is this same program, started as `PROGRAM KVG_WORKER_COMMAND`, and a program that
 * calls kvg_worker_start answers that argument by `return kvg_worker_main()`. It speaks over file descriptor
 * KVG_WORKER_FD (a socket); its stdout and stderr go to the parent, which keeps the last line. */
#define KVG_WORKER_COMMAND "--worker"
#define KVG_WORKER_FD 3
int kvg_worker_main(void);
/* 1 if the program was started as a worker. */
int kvg_is_worker(int argc, char **argv);

/* The options as one line of JSON (malloc'ed, NULL on out of memory), and back. What
 * kvg_run_options_from_json allocates, plug-in names and flags, is freed by kvg_run_options_free. */
char *kvg_run_options_to_json(const struct kvg_run_options *options);
int kvg_run_options_from_json(const char *line, struct kvg_run_options *options, struct kvg_error *error);
void kvg_run_options_free(struct kvg_run_options *options);

/* Now, as ISO 8601 with a Z: "2026-11-29T17:20:05Z". */
#define KVG_UTC_MAX 32
void kvg_utc_now(char text[KVG_UTC_MAX]);

#endif
