/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h: the command-line options that choose cases, shared by the subcommands (argp).
 *
 * A subcommand takes kvg_plan_children as the children of its own struct argp and hands the one child a
 * struct kvg_plan_options:
 *
 *     static error_t parse(int key, char *arg, struct argp_state *state)
 *     {
 *         struct my_options *o = state->input;
 *         switch (key) {
 *         case ARGP_KEY_INIT:
 *             state->child_inputs[0] = &o->plan;
 *             return 0;
 *         ...
 *     }
 *     static const struct argp argp = {options, parse, NULL, doc, kvg_plan_children, NULL, NULL};
 *     kvg_options_parse(&argp, argc, argv, &o);
 *     ...
 *     if (kvg_plan_options_make_plan(&o.plan, &plan, &error))
 *         return kvg_error_report(&error);
 *
 * Keys of kvg_plan_argp are KVG_OPTION_FIRST and up; a subcommand uses letters and keys below it.
 */
#ifndef KVG_HARNESS_OPTIONS_H
#define KVG_HARNESS_OPTIONS_H

#include <argp.h>
#include "harness/plan/plan.h"

#define KVG_MAX_PLUGINS 16
#define KVG_OPTION_FIRST 0x1000

struct kvg_plan_options {
    /* As given; text points into argv. kvg_plan_options_make_plan takes suite "quick" where neither --suite,
     * --case nor an axis is given. With an axis and without --suite the plan is the product of the given
     * axes. */
    struct kvg_plan_request request;
    const char *file; /* --file: where the id of --case is looked up; NULL = in the suite */
    const char
        *plugins[KVG_MAX_PLUGINS + 1]; /* --plugin FILE.so, NULL-terminated (as kvg_run_options wants) */
    int64_t n_plugins;
    int64_t n_filters; /* of --filter */
    double
        plugin_seconds; /* to load a plug-in, and to answer a question about a kernel; 0 = the usual limit */
    int plugins_here;   /* 1: the kernels of plug-ins will be called in this process */
};

/* --suite, --filter, --case, --file, --plugin, and one option for each axis (--kv-cache-dtype; --kv_cache_dtype works
 * too). Initialises its struct kvg_plan_options itself. An argument that is no option is an error. */
extern const struct argp kvg_plan_argp;
/* kvg_plan_argp alone, under the header "Which cases:". */
extern const struct argp_child kvg_plan_children[];

/* argp_parse with two differences: the error for an unknown long option names the nearest known one, and
 * every usage error ends the process with KVG_EXIT_USAGE. Options may follow arguments. */
void kvg_options_parse(const struct argp *argp, int argc, char **argv, void *input);

/* Loads the plug-ins and makes the plan. 0 (kvg_plan_free is due), or -1 with the error. */
int kvg_plan_options_make_plan(const struct kvg_plan_options *options, struct kvg_plan *plan,
                               struct kvg_error *error);

/* Loads the plug-ins alone (harness/plan/plugins.h). 0, or -1 with the error. */
int kvg_plan_options_load_plugins(const struct kvg_plan_options *options, struct kvg_error *error);
/* Prints the case strings on stdout, one a line. */
void kvg_plan_print_cases(const struct kvg_plan *plan);

/* Prints "kvgauge: TEXT" on stderr and returns the error's exit code. */
int kvg_error_report(const struct kvg_error *error);

#endif
