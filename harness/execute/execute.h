/* SPDX-License-Identifier: Apache-2.0
 *
 * execute.h: executes cases in this process. Used by worker processes.
 */
#ifndef KVG_HARNESS_EXECUTE_H
#define KVG_HARNESS_EXECUTE_H

#include "harness/case/case.h"
#include "options.h"
#include "results/row.h"
#include "session.h"

/* How the execution of a case ended. */
enum kvg_ended {
    KVG_ENDED_ROW,     /* the row has the whole result */
    KVG_ENDED_PROFILED /* the kernel ran once for a profiler; the row has status skipped and says so */
};

/* Executes one case. Fills the row in every case, unless the process crashes. `report`, unless NULL, receives
 * Google Benchmark's JSON of the timed calls (malloc'ed; NULL where nothing was timed). */
enum kvg_ended kvg_execute_in(struct kvg_session *session, const struct kvg_case *c,
                              const struct kvg_run_options *options, struct kvg_row *row, char **report);

#endif
