/* SPDX-License-Identifier: Apache-2.0
 *
 * run_command.c: the command line of `kvgauge run`, and the recorded one that --resume repeats.
 */
#include "run_command.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benchmark_flags.h"
#include "harness/execute/options.h"
#include "run_files.h"

enum {
    KEY_OUT = 0x100,
    KEY_RESUME,
    KEY_PROFILE,
    KEY_DRY_RUN,
    KEY_VERIFY_ONLY,
    KEY_TIMEOUT,
    KEY_MIN_TIME,
    KEY_REPEATS,
    KEY_GRAPH,
    KEY_DUMP,
    KEY_PLOTS,
    KEY_NO_PLOTS,
    KEY_CONSTANTS,
    KEY_QUIET
};

static const struct argp_option options[] = {
    {"out", KEY_OUT, "FILE.h5", 0,
     "where the rows go (default results/runs/UTC-SUITE.h5); the journal lies beside it", 0},
    {"resume", KEY_RESUME, "FILE", 0,
     "go on with an earlier run: cases without a row, and those that timed out, crashed or ran out of "
     "memory. Alone "
     "it repeats that run's options; with a suite or axes those cases are added",
     0},
    {"dry-run", KEY_DRY_RUN, NULL, 0, "print what would run, and run nothing", 0},
    {"verify-only", KEY_VERIFY_ONLY, NULL, 0, "verify, and time nothing", 0},
    {"profile", KEY_PROFILE, NULL, 0,
     "run each kernel once, in this process and inside an NVTX range, neither timed nor verified: for ncu, "
     "nsys, perf",
     0},
    {"timeout", KEY_TIMEOUT, "SECONDS", 0, "what a case may take (default 120)", 0},
    {"min-time", KEY_MIN_TIME, "SECONDS", 0, "of samples a timed case (default 0.2)", 0},
    {"repeats", KEY_REPEATS, "N", 0,
     "calls on the same inputs that must give the same bits, for the first two cases of each kernel, phase, "
     "path "
     "and dtype (default: as many of 300 as fit into 0.3 s)",
     0},
    {"cuda-graph", KEY_GRAPH, NULL, 0,
     "time kernels of a GPU as replays of a recorded call (a CUDA graph); others as ever", 0},
    {"dump", KEY_DUMP, "FOLDER", 0,
     "write inputs, output and reference of each row that a check fails to FOLDER/CASE_ID.h5; for a single "
     "case "
     "FILE.h5 will do",
     0},
    {"plots", KEY_PLOTS, NULL, 0, "draw plots in any case", 0},
    {"no-plots", KEY_NO_PLOTS, NULL, 0, "draw none", 0},
    {"random-tokens-constants", KEY_CONSTANTS, "Q,K,V", 0,
     "of the calibration random_tokens: scale = absmax / constant (default 200,200,100)", 0},
    {"quiet", KEY_QUIET, NULL, 0, "no progress and no table", 0},
    {"benchmark_FLAG", 0, NULL, OPTION_DOC | OPTION_NO_USAGE,
     "--benchmark_out=FILE.json, _min_time, _repetitions, _min_warmup_time, _time_unit, _context: as Google "
     "Benchmark has them",
     0},
    {0}};

static double positive(const char *option, const char *arg, struct argp_state *state)
{
    char *end;
    double x = strtod(arg, &end);
    if (end == arg || *end || !(x > 0) || !isfinite(x))
        argp_error(state, "%s %s: a number of seconds above 0 would be right", option, arg);
    return x;
}

static int64_t count(const char *option, const char *arg, struct argp_state *state)
{
    char *end;
    errno = 0;
    const long long n = strtoll(arg, &end, 10);
    if (end == arg || *end || errno || n < 1)
        argp_error(state, "%s %s: a whole number from 1 would be right", option, arg);
    return n;
}

static void constants(const char *arg, struct kvg_run_options *run, struct argp_state *state)
{
    char rest;
    if (sscanf(arg, "%f,%f,%f%c", &run->random_tokens_q, &run->random_tokens_k, &run->random_tokens_v,
               &rest) != 3 ||
        !(run->random_tokens_q > 0) || !(run->random_tokens_k > 0) || !(run->random_tokens_v > 0) ||
        !isfinite(run->random_tokens_q + run->random_tokens_k + run->random_tokens_v))
        argp_error(state,
                   "--random-tokens-constants %s: three numbers above 0, as in 200,200,100, would be right",
                   arg);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct kvg_run_command *c = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &c->plan;
        return 0;
    case KEY_OUT:
        c->out = arg;
        return 0;
    case KEY_RESUME:
        c->resume = arg;
        return 0;
    case KEY_DRY_RUN:
        c->dry_run = 1;
        return 0;
    case KEY_VERIFY_ONLY:
        c->run.verify_only = 1;
        return 0;
    case KEY_PROFILE:
        c->run.profile = 1;
        return 0;
    case KEY_TIMEOUT:
        c->run.timeout = positive("--timeout", arg, state);
        c->timeout_given = 1;
        return 0;
    case KEY_MIN_TIME:
        c->run.min_time = positive("--min-time", arg, state);
        return 0;
    case KEY_REPEATS:
        c->run.repeats = count("--repeats", arg, state);
        return 0;
    case KEY_GRAPH:
        c->run.graph = 1;
        return 0;
    case KEY_DUMP:
        c->run.dump = arg;
        return 0;
    case KEY_PLOTS:
    case KEY_NO_PLOTS:
        c->plots = key == KEY_PLOTS;
        return 0;
    case KEY_CONSTANTS:
        constants(arg, &c->run, state);
        return 0;
    case KEY_QUIET:
        c->quiet = 1;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not an option; a suite is --suite %s", arg, arg);
        return 0;
    case ARGP_KEY_END:
        if (c->out && c->resume)
            argp_error(state, "--resume goes on in the file it names; --out does not go with it");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&kvg_plan_argp, 0, "Which cases:", 1}, {0}};
static const struct argp argp = {
    options,
    parse,
    NULL,
    "Measure cases: an HDF5 file, a table and plots.\v"
    "Ctrl-C stops the run and keeps what it has; --resume goes on. Exit code: the "
    "highest that a row asks for (0 fine, 2 incorrect, 3 trouble), 3 if nothing ran, "
    "4 usage, 130 interrupted.",
    children,
    NULL,
    NULL};

/* ---- the command line ---- */

/* Parses a command line; --benchmark_* is Google Benchmark's and is taken out before argp sees it. */
static int parse_command(int argc, char **argv, struct kvg_run_command *c, struct kvg_error *error)
{
    char **rest = calloc((size_t)argc + 1, sizeof *rest);
    int n = 0, flags = 0;
    memset(c, 0, sizeof *c);
    c->plots = -1;
    kvg_run_options_default(&c->run);
    c->flags = calloc((size_t)argc + 1, sizeof *c->flags);
    if (!rest || !c->flags) {
        free(rest);
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
    }
    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], "--benchmark_", 12) == 0 && strcmp(argv[i], "--benchmark_FLAG") != 0)
            c->flags[flags++] = argv[i];
        else
            rest[n++] = argv[i];
    kvg_options_parse(&argp, n, rest, c);
    free(rest);
    c->run.plugins = c->plan.n_plugins ? c->plan.plugins : NULL;
    c->run.benchmark_flags = flags ? c->flags : NULL;
    return kvg_benchmark_flags(c->run.benchmark_flags, &c->run, &c->benchmark_out, error);
}

/* Does the command line say which cases? */
static int names_cases(int argc, char **argv, const struct kvg_run_command *c)
{
    const struct kvg_plan_request *r = &c->plan.request;
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--su", 4) == 0)
            return 1;
    for (int a = 0; a < KVG_AXIS_COUNT; a++)
        if (r->axis[a])
            return 1;
    return r->case_string || r->filter;
}

/* --resume without cases: those of the recorded command line. */
static int recall(struct kvg_run_command *command, struct kvg_error *error)
{
    struct kvg_run_files files = {0};
    struct kvg_results header = {0};
    struct kvg_run_command recorded;
    int argc = 0;
    if (kvg_run_files_name(&files, command->resume, "", error) ||
        kvg_journal_read(files.journal_path, &header, error))
        return -1;
    const struct kvg_fact *fact = kvg_facts_find(&header.run, "argv");
    char **argv = fact && fact->text ? kvg_argv_unquote(fact->text, &argc) : NULL;
    kvg_results_free(&header);
    if (!argv || argc < 2) {
        kvg_argv_free(argv);
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "%s: does not say which cases it wanted; --suite or axes would help",
                        files.journal_path);
    }
    /* "kvgauge run ...": the options start behind the second word */
    int failed = parse_command(argc - 1, argv + 1, &recorded, error);
    recorded.recalled = argv;
    recorded.resume = command->resume;
    recorded.out = NULL;
    recorded.dry_run = command->dry_run;
    recorded.quiet = command->quiet;
    recorded.plots = command->plots >= 0 ? command->plots : recorded.plots;
    if (command->timeout_given)
        recorded.run.timeout = command->run.timeout;
    free(command->flags);
    *command = recorded;
    if (command->run.plugins)
        command->run.plugins = command->plan.plugins; /* it pointed into `recorded` */
    return failed;
}

void kvg_run_command_free(struct kvg_run_command *command)
{
    free(command->flags);
    kvg_argv_free(command->recalled);
}

int kvg_run_command_read(int argc, char **argv, struct kvg_run_command *command, struct kvg_error *error)
{
    if (parse_command(argc, argv, command, error))
        return -1;
    return command->resume && !names_cases(argc, argv, command) ? recall(command, error) : 0;
}
