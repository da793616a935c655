/* SPDX-License-Identifier: Apache-2.0
 *
 * execute.h: run cases in this process. This is the contract of the room; a worker process is its user.
 */
#ifndef KVG_HARNESS_EXECUTE_H
#define KVG_HARNESS_EXECUTE_H

#include "harness/case/case.h"
#include "options.h"
#include "results/row.h"

/* What a process that runs many cases keeps from one to the next (session.h). */
struct kvg_session;
struct kvg_session *kvg_session_new(void); /* NULL on out of memory */
void kvg_session_free(struct kvg_session *session);
/* 1 once a kernel wrote outside its buffers, or its device failed: this process must run no further case. */
int kvg_session_tainted(const struct kvg_session *session);
/* `tell` is called at the beginning of a run (enum kvg_run_kind of diagnose/failure.h) in which a crash has a
 * meaning of its own, and at its end with KVG_RUN_FIRST. */
void kvg_session_announce(struct kvg_session *session, void (*tell)(void *context, int run), void *context);

/* How the execution of a case ended. */
enum kvg_ended {
    KVG_ENDED_ROW,     /* the row says everything */
    KVG_ENDED_PROFILED /* the kernel ran once for a profiler; the row is skipped and says so */
};

/* Runs one case. Always fills the row, short of a crash of the process. `report`, unless NULL, receives Google
 * Benchmark's JSON of the timed calls (malloc'ed; NULL where nothing was timed). */
enum kvg_ended kvg_execute_in(struct kvg_session *session, const struct kvg_case *c,
                              const struct kvg_run_options *options, struct kvg_row *row, char **report);

#endif
