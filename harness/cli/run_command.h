/* SPDX-License-Identifier: Apache-2.0
 *
 * run_command.h: the command line of `kvgauge run`, parsed.
 */
#ifndef KVG_HARNESS_RUN_COMMAND_H
#define KVG_HARNESS_RUN_COMMAND_H

#include "options.h"
#include "harness/execute/options.h"

/* Text points into argv. run.plugins points into `plan`, so a copy of the struct is wrong. */
struct kvg_run_command {
    struct kvg_plan_options plan;
    struct kvg_run_options run;
    const char *out, *resume;
    int dry_run, quiet;
    int plots; /* 1: --plots, 0: --no-plots, -1: neither; then plots are drawn unless --case or --quiet */
    const char **flags; /* --benchmark_*, NULL-terminated */
    const char *benchmark_out;
    int trust;         /* --trust */
    int timeout_given; /* 1 when --timeout is on the command line */
    char **recalled;   /* argv from a journal, which the text then points into; else NULL */
};

/* Parses a command line; usage errors end the process. With --resume and no option that chooses cases, the
 * command line in the journal of that run is parsed instead; --timeout, --plots, --no-plots, --quiet and
 * --dry-run are then those of this one. A journal may come from elsewhere: that it loads a plug-in, or writes
 * outside its own folder, is an error unless this command line has the same option, or --trust. 0, or -1 with the error; kvg_run_command_free is due in both
 * cases. */
int kvg_run_command_read(int argc, char **argv, struct kvg_run_command *command, struct kvg_error *error);
void kvg_run_command_free(struct kvg_run_command *command);

#endif
