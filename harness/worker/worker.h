/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.h: cases in a process of their own.
 *
 * The parent never touches a device and never calls a kernel. It sends case strings down a pipe to one worker
 * and reads rows (JSON lines) back. A worker that crashes, hangs or is killed costs one row, and is replaced.
 */
#ifndef KVG_HARNESS_WORKER_H
#define KVG_HARNESS_WORKER_H

#include <stdint.h>

#include "harness/case/case.h"
#include "harness/execute/options.h"
#include "results/error.h"
#include "results/facts.h"
#include "results/row.h"

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
/* Adds the roofs of the CPU with `threads` threads to facts (kvg_session_add_roofs), measured in the worker
 * process. NaN unless `measure`, and where the worker does not answer (a later case then says why). 0, or -1
 * with the error. */
int kvg_worker_add_roofs(struct kvg_worker *worker, int64_t threads, int measure, struct kvg_facts *facts,
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
/* Exit code of a worker whose socket a kernel has closed. */
#define KVG_WORKER_CUT_OFF 87
int kvg_worker_main(void);
/* 1 if the program was started as a worker. */
int kvg_is_worker(int argc, char **argv);

/* The options as one line of JSON (malloc'ed, NULL on out of memory), and back. What
 * kvg_run_options_from_json allocates, plug-in names and flags, is freed by kvg_run_options_free. */
char *kvg_run_options_to_json(const struct kvg_run_options *options);
int kvg_run_options_from_json(const char *line, struct kvg_run_options *options, struct kvg_error *error);
void kvg_run_options_free(struct kvg_run_options *options);

#endif
