/* SPDX-License-Identifier: Apache-2.0
 *
 * run_command.h: what `kvgauge run` was asked to do.
 */
#ifndef KVG_HARNESS_RUN_COMMAND_H
#define KVG_HARNESS_RUN_COMMAND_H

#include "options.h"
#include "harness/execute/options.h"

/* Text points into argv. run.plugins points into `plan`, so the struct is not to be copied. */
struct kvg_run_command {
    struct kvg_plan_options plan;
    struct kvg_run_options run;
    const char *out, *resume;
    int dry_run, quiet, plots; /* plots: 1 yes, 0 no, -1 as usual: with a suite, not with --case */
    const char **flags;        /* --benchmark_*, NULL-terminated */
    const char *benchmark_out;
    int timeout_given; /* --timeout stands on the command line */
    char **recalled;   /* argv out of a journal, into which the text points then; else NULL */
};

/* Parses a command line; usage errors end the process. With --resume and no word about cases it becomes the
 * command line recorded in that run's journal, with the options of this one that may differ (timeout, plots,
 * quiet). -1 with the error; kvg_run_command_free is due either way. */
int kvg_run_command_read(int argc, char **argv, struct kvg_run_command *command, struct kvg_error *error);
void kvg_run_command_free(struct kvg_run_command *command);

#endif
