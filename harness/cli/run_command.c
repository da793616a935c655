/* SPDX-License-Identifier: Apache-2.0
 *
 * run_command.c: parses the command line of `kvgauge run`, and the one in a journal that --resume repeats.
 */
#include "run_command.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "argv.h"
#include "benchmark_flags.h"
#include "commands.h"
#include "harness/execute/options.h"
#include "results/disk.h"
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
    KEY_QUIET,
    KEY_TRUST
};

static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "Measuring:", 1},
    {"verify-only", KEY_VERIFY_ONLY, NULL, 0, "Verify every case and time none.", 1},
    {"min-time", KEY_MIN_TIME, "SECONDS", 0,
     "Total time of the samples of a timed case, in seconds (default 0.2). There are at least 15 samples and "
     "at "
     "most 256.",
     1},
    {"timeout", KEY_TIMEOUT, "SECONDS", 0,
     "Time that one case may take, in seconds (default 120). A case that takes longer is stopped; its status "
     "is timeout.",
     1},
    {"repeats", KEY_REPEATS, "N", 0,
     "Number of calls on the same inputs whose outputs must have the same bits, for the first two cases of "
     "each kernel, phase, path and dtype (default: as many of 300 as fit into 0.3 s; 50 of a store).",
     1},
    {"cuda-graph", KEY_GRAPH, NULL, 0,
     "Time CUDA kernels as replays of a recorded call (a CUDA graph): the launch cost on the host does not "
     "count. CPU kernels are timed as without it.",
     1},
    {"random-tokens-constants", KEY_CONSTANTS, "Q,K,V", 0,
     "Constants of calibration random_tokens: scale = absmax / constant (default 200,200,100).", 1},
    {"profile", KEY_PROFILE, NULL, 0,
     "Run each kernel once, in this process and inside an NVTX range, for a profiler (ncu, nsys, perf). "
     "Nothing is verified or timed, and no file is written. The range is named by the case, with ':' for "
     "'/', "
     "and holds only what the kernel launches.",
     1},
    {NULL, 0, NULL, 0, "Output:", 2},
    {"out", KEY_OUT, "FILE.h5", 0,
     "Result file (default results/runs/UTC-SUITE.h5). The journal FILE.jsonl is written beside it: one line "
     "a "
     "row, synced to disk before the next case starts.",
     2},
    {"resume", KEY_RESUME, "FILE", 0,
     "Continue an earlier run: run the cases that have no row, and again those that timed out, crashed or "
     "ran "
     "out of memory. Without --suite, --case, --filter or an axis, the options of that run apply; with one "
     "of "
     "them, its cases are added to the file.",
     2},
    {"trust", KEY_TRUST, NULL, 0,
     "With --resume: load the plug-ins and write the files that the journal names. Without it, a plug-in, "
     "and "
     "a --dump or --benchmark_out outside the journal's folder, must be given again.",
     2},
    {"dry-run", KEY_DRY_RUN, NULL, 0, "Print the case strings that would run; run nothing, write no file.",
     2},
    {"dump", KEY_DUMP, "FOLDER", 0,
     "Write inputs, output and reference of each row that fails a check to FOLDER/CASE_ID.h5. For a single "
     "case "
     "FILE.h5 is right too. A worker that crashes writes none.",
     2},
    {"plots", KEY_PLOTS, NULL, 0, "Draw plots also for --case and with --quiet.", 2},
    {"no-plots", KEY_NO_PLOTS, NULL, 0, "Draw no plots.", 2},
    {"quiet", KEY_QUIET, NULL, 0,
     "Print no progress, no table and no file names, and draw no plots. Failures are still reported on "
     "standard "
     "error.",
     2},
    {NULL, 0, NULL, 0, "Flags of Google Benchmark, with '=':", 3},
    {"--benchmark_out=FILE.json", 0, NULL, OPTION_DOC | OPTION_NO_USAGE,
     "Write its report of all timed cases, for its compare.py.", 3},
    {"--benchmark_min_time=SECONDS", 0, NULL, OPTION_DOC | OPTION_NO_USAGE, "The same as --min-time.", 3},
    {"--benchmark_repetitions=N", 0, NULL, OPTION_DOC | OPTION_NO_USAGE,
     "Take exactly N samples of a timed case, from 1 to 256.", 3},
    {"--benchmark_min_warmup_time=SECONDS", 0, NULL, OPTION_DOC | OPTION_NO_USAGE,
     "Time of the calls before the samples, in seconds (default 0).", 3},
    {"--benchmark_time_unit=UNIT", 0, NULL, OPTION_DOC | OPTION_NO_USAGE,
     "Unit of the times in its report: ns, us, ms or s (default ns).", 3},
    {"--benchmark_context=KEY=VALUE", 0, NULL, OPTION_DOC | OPTION_NO_USAGE,
     "Add a pair to the context of its report.", 3},
    {"--benchmark_report_aggregates_only=BOOL", 0, NULL, OPTION_DOC | OPTION_NO_USAGE,
     "Leave the samples out of its report and keep their statistics (default false).", 3},
    {0}};

static double seconds(const char *option, const char *arg, int zero_is_right, struct argp_state *state)
{
    char *end;
    double x = strtod(arg, &end);
    if (end == arg || *end || !(x > 0 || (zero_is_right && x == 0)) || !isfinite(x))
        argp_error(state, "%s %s: a number of seconds %s would be right", option, arg,
                   zero_is_right ? "from 0" : "above 0");
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
        c->run.timeout = seconds("--timeout", arg, 0, state);
        c->timeout_given = 1;
        return 0;
    case KEY_MIN_TIME:
        c->run.min_time = seconds("--min-time", arg, 1, state);
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
    case KEY_TRUST:
        c->trust = 1;
        return 0;
    case KEY_QUIET:
        c->quiet = 1;
        return 0;
    case ARGP_KEY_END:
        if (c->out && c->resume)
            argp_error(state, "--resume writes to the file it names; --out does not go with it");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp kvg_run_argp = {
    options,
    parse,
    NULL,
    "Measure cases and write a result file (HDF5), a table and plots.\v"
    "Ctrl-C stops the run and keeps every finished row; --resume continues it. Exit code: the highest that a "
    "row asks for (0 passed, 2 incorrect, 3 other trouble), 3 if nothing ran, 4 for a usage error, 130 if "
    "interrupted.",
    kvg_plan_children,
    NULL,
    NULL};

/* ---- the command line ---- */

/* Parses a command line. The flags of Google Benchmark are taken out before argp sees them. */
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
        if (strncmp(argv[i], "--benchmark_", 12) == 0)
            c->flags[flags++] = argv[i];
        else
            rest[n++] = argv[i];
    kvg_options_parse(&kvg_run_argp, n, rest, c);
    free(rest);
    c->run.plugins = c->plan.n_plugins ? c->plan.plugins : NULL;
    c->run.benchmark_flags = flags ? c->flags : NULL;
    return kvg_benchmark_flags(c->run.benchmark_flags, &c->run, &c->benchmark_out, error);
}

/* 1 when an option chooses cases. */
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

static int is_given(const char *const *given, const char *name)
{
    for (; *given; given++)
        if (strcmp(*given, name) == 0)
            return 1;
    return 0;
}

static int may_write(const char *option, const char *path, const char *given, const char *journal,
                     struct kvg_error *error)
{
    if (!path || (given && strcmp(path, given) == 0) || kvg_same_folder(path, journal))
        return 0;
    return kvg_fail(error, KVG_EXIT_USAGE,
                    "%s: writes to %s %s, outside its own folder; to allow it, give that option again, or "
                    "--trust",
                    journal, option, path);
}

/* The journal may come from elsewhere. It may not load code or write elsewhere, unless the command line says
 * so. */
static int check_recorded(const struct kvg_run_command *command, const struct kvg_run_command *recorded,
                          const char *journal, struct kvg_error *error)
{
    if (command->trust)
        return 0;
    for (int64_t i = 0; i < recorded->plan.n_plugins; i++)
        if (!is_given(command->plan.plugins, recorded->plan.plugins[i]))
            return kvg_fail(error, KVG_EXIT_USAGE,
                            "%s: loads the plug-in %s; to allow it, give --plugin again, or --trust", journal,
                            recorded->plan.plugins[i]);
    return may_write("--dump", recorded->run.dump, command->run.dump, journal, error) ||
                   may_write("--benchmark_out", recorded->benchmark_out, command->benchmark_out, journal,
                             error)
               ? -1
               : 0;
}

/* --resume alone: the command line that the journal holds. */
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
    char **argv = fact && fact->text ? kvg_argv_from_text(fact->text, &argc) : NULL;
    kvg_results_free(&header);
    if (!argv || argc < 2) {
        kvg_argv_free(argv);
        return kvg_fail(error, KVG_EXIT_USAGE, "%s: the journal holds no command line; give --suite or axes",
                        files.journal_path);
    }
    if (strcmp(argv[1], "run") != 0) {
        const int code = kvg_fail(error, KVG_EXIT_USAGE,
                                  "%s: it is of kvgauge %s, which cannot be continued; run that again",
                                  files.journal_path, argv[1]);
        kvg_argv_free(argv);
        return code;
    }
    /* "kvgauge run ...": the options follow the second word */
    int failed = parse_command(argc - 1, argv + 1, &recorded, error);
    if (!failed)
        failed = check_recorded(command, &recorded, files.journal_path, error);
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
    if (parse_command(argc, argv, command, error) ||
        (command->resume && !names_cases(argc, argv, command) && recall(command, error)))
        return -1;
    command->plan.plugin_seconds = command->run.timeout;
    command->plan.plugins_here = command->run.profile;
    return 0;
}
