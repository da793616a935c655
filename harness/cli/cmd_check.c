/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_check.c: `kvgauge check KERNEL`: is a kernel right? It runs the cases of plan/check_space.h in a worker,
 * within a budget, and prints the verdict, the failed rows, what was covered and what the kernel refuses.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "argv.h"
#include "commands.h"
#include "harness/device/ask_device.h"
#include "harness/execute/options.h"
#include "harness/machine/clock.h"
#include "harness/machine/paths.h"
#include "harness/machine/machine.h"
#include "harness/plan/check_space.h"
#include "harness/worker/worker.h"
#include "options.h"
#include "progress.h"
#include "repro.h"
#include "results/table.h"
#include "results/table_text.h"
#include "run_files.h"

#define USUAL_BUDGET 120.0 /* seconds */
enum { MOST_EXAMPLES = 6 };

struct command {
    struct kvg_plan_options plan;
    struct kvg_run_options run;
    const char *kernel, *out;
    double budget; /* seconds */
    int dry_run, quiet;
};

/* ---------------------------------------------------------------- the command line */

enum { KEY_BUDGET = 0x100, KEY_OUT, KEY_DRY_RUN, KEY_QUIET, KEY_TIMEOUT };

static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "Checking:", 1},
    {"budget", KEY_BUDGET, "TIME", 0,
     "Time that the check may take: seconds, or minutes as in 5m (default 2m). Cases that cover most come "
     "first. If the time ends before the cases, the pairs that are missing are named and the exit code is 3.",
     1},
    {"timeout", KEY_TIMEOUT, "SECONDS", 0, "Time that one case may take, in seconds (default 120).", 1},
    {NULL, 0, NULL, 0, "Output:", 2},
    {"out", KEY_OUT, "FILE.h5", 0, "Write a result file too, and its journal beside it, as run does.", 2},
    {"dry-run", KEY_DRY_RUN, NULL, 0, "Print the case strings that would run; run nothing.", 2},
    {"quiet", KEY_QUIET, NULL, 0, "Print no progress.", 2},
    {0}};

/* Seconds in "90", "90s" or "2m"; NAN if it is none. */
static double duration(const char *text)
{
    char *end;
    const double x = strtod(text, &end);
    const double unit = strcmp(end, "m") == 0 ? 60 : strcmp(end, "s") == 0 || !*end ? 1 : NAN;
    return end == text || !(x > 0) || !isfinite(x) ? NAN : x * unit;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct command *c = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &c->plan;
        return 0;
    case KEY_BUDGET:
        c->budget = duration(arg);
        if (isnan(c->budget))
            argp_error(state, "--budget %s: a time above 0, as in 90 or 2m, would be right", arg);
        return 0;
    case KEY_TIMEOUT:
        c->run.timeout = duration(arg);
        if (isnan(c->run.timeout))
            argp_error(state, "--timeout %s: a number of seconds above 0 would be right", arg);
        return 0;
    case KEY_OUT:
        c->out = arg;
        return 0;
    case KEY_DRY_RUN:
        c->dry_run = 1;
        return 0;
    case KEY_QUIET:
        c->quiet = 1;
        return 0;
    case ARGP_KEY_ARG:
        if (c->kernel)
            argp_error(state, "%s: one kernel a check; %s is given already", arg, c->kernel);
        c->kernel = arg;
        return 0;
    case ARGP_KEY_END:
        if (!c->kernel)
            argp_error(state, "the name of a kernel is missing, as in kvgauge check cpu/dequant_scalar");
        if (c->plan.request.suite || c->plan.request.case_string || c->plan.request.filter ||
            c->plan.request.axis[KVG_AXIS_KERNEL])
            argp_error(state,
                       "check chooses its own cases: --suite, --case, --filter and --kernel are for run");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp kvg_check_argp = {
    options,
    parse,
    "KERNEL",
    "Check a kernel on small cases: every value of each axis and every pair of values that it takes.\v"
    "An axis option restricts that axis: --path fp8, --head-dim 64,128. Nothing is timed. Exit code: 0 all "
    "passed and all pairs are covered; 2 incorrect; 3 other trouble, nothing ran, or the budget ended first; "
    "4 "
    "usage error; 130 interrupted.",
    kvg_plan_children,
    NULL,
    NULL};

/* ---------------------------------------------------------------- running */

struct check {
    const struct command *command;
    struct kvg_check_space space;
    struct kvg_results results; /* rows in the order of space.cases */
    struct kvg_run_files files; /* of --out */
    int interrupted;
    double seconds;
};

static int keep_row(struct check *c, struct kvg_row *row, struct kvg_error *error)
{
    struct kvg_row *rows = realloc(c->results.rows, (size_t)(c->results.count + 1) * sizeof *rows);
    char *repro = kvg_repro_make(&c->space.cases[c->results.count], &c->command->run, row);
    if (rows)
        c->results.rows = rows;
    if (!rows || !repro || kvg_row_set_string(&row->repro, repro)) {
        free(repro);
        kvg_row_free(row);
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
    }
    free(repro);
    row->attempt = 1;
    c->results.rows[c->results.count++] = *row;
    return c->files.journal ? kvg_journal_write(c->files.journal, row, error) : 0;
}

static int run_cases(struct check *c, struct kvg_worker *worker, struct kvg_error *error)
{
    struct kvg_progress progress;
    const double start = kvg_now();
    int failed = 0;
    kvg_progress_begin(&progress, stderr, c->space.count, (double)c->space.count, c->command->quiet);
    while (c->results.count < c->space.count && !failed && kvg_now() - start < c->command->budget) {
        const struct kvg_case *now = &c->space.cases[c->results.count];
        char text[KVG_CASE_STRING_MAX];
        struct kvg_row row;
        kvg_case_format(now, text);
        kvg_progress_show_case(&progress, text + strcspn(text, " "));
        if (kvg_row_init(&row)) {
            failed = kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
            break;
        }
        failed = kvg_worker_run(worker, now, &row, error);
        if (failed)
            kvg_row_free(&row);
        else
            failed = keep_row(c, &row, error);
        if (!failed)
            kvg_progress_end_case(&progress, 1,
                                  c->results.rows[c->results.count - 1].status != KVG_PASSED &&
                                      c->results.rows[c->results.count - 1].status != KVG_SKIPPED);
    }
    kvg_progress_end(&progress);
    c->interrupted = failed == 1;
    c->seconds = kvg_now() - start;
    return failed < 0 ? -1 : 0;
}

static int open_files(struct check *c, int argc, char **argv, struct kvg_error *error)
{
    struct kvg_facts run = {0}, machine = {0};
    int failed = 0;
    if (!c->command->out)
        return 0;
    if (kvg_run_files_name(&c->files, c->command->out, "check", error))
        return -1;
    if (kvg_run_facts_add(&run, argc, argv, "check", 0) || kvg_machine_facts(&machine) ||
        kvg_device_facts(&machine))
        failed = kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
    if (!failed)
        failed = kvg_run_files_create(&c->files, &run, &machine, (INT64_C(1) << 20) + c->space.count * 8192,
                                      error);
    kvg_facts_free(&run);
    kvg_facts_free(&machine);
    return failed;
}

/* ---------------------------------------------------------------- the report */

struct counts {
    int64_t passed, skipped, incorrect, other; /* other: crashed, timed out, mistrusted, ... */
    int64_t missing;                           /* pairs that no case that ran holds */
};

/* 1 if a combination whose case ran has the pair. */
static int was_run(const struct check *c, int a, int u, int b, int v)
{
    const int64_t ran = c->results.count < c->space.n_pairs ? c->results.count : c->space.n_pairs;
    return kvg_cover_holds(&c->space.cover, ran, a, u, b, v);
}

static void count_missing(const struct check *c, struct counts *n)
{
    const struct kvg_check_space *s = &c->space;
    if (c->results.count >= s->n_pairs)
        return;
    for (int a = 0; a < s->n; a++)
        for (int b = a + 1; b < s->n; b++)
            for (int u = 0; u < s->axes[a].values.count; u++)
                for (int v = 0; v < s->axes[b].values.count; v++)
                    n->missing +=
                        kvg_cover_pair(&s->cover, a, u, b, v) == KVG_PAIR_COVERED && !was_run(c, a, u, b, v);
}

static struct counts count_rows(const struct check *c)
{
    struct counts n = {0};
    for (int64_t i = 0; i < c->results.count; i++) {
        const int64_t status = c->results.rows[i].status;
        n.passed += status == KVG_PASSED;
        n.skipped += status == KVG_SKIPPED;
        n.incorrect += status == KVG_INCORRECT;
        n.other += status != KVG_PASSED && status != KVG_SKIPPED && status != KVG_INCORRECT;
    }
    count_missing(c, &n);
    return n;
}

/* Text from column 2 on, broken at the width. */
static void say(int width, const char *text)
{
    fputs("  ", stdout);
    kvg_text_wrap(stdout, text, 2, width);
    putchar('\n');
}

static void print_verdict(const struct check *c, const struct counts *n, int width)
{
    const int64_t ran = c->results.count - n->skipped,
                  pairs = kvg_cover_count(&c->space.cover, KVG_PAIR_COVERED);
    const char *kernel = c->command->kernel;
    const int colour = kvg_wants_colour(stdout, -1), bad = n->incorrect + n->other > 0;
    char text[600];
    if (ran == 0)
        snprintf(text, sizeof text, "%s: nothing ran.", kernel);
    else if (bad)
        snprintf(text, sizeof text, "%s: %lld of %lld cases did not pass: %lld incorrect, %lld other.",
                 kernel, (long long)(n->incorrect + n->other), (long long)ran, (long long)n->incorrect,
                 (long long)n->other);
    else if (n->missing || c->results.count < c->space.count)
        snprintf(
            text, sizeof text,
            "%s: the check is not complete: %lld of %lld cases ran, and %lld of %lld pairs of values are "
            "missing. What ran passed.",
            kernel, (long long)ran, (long long)c->space.count, (long long)n->missing, (long long)pairs);
    else
        snprintf(text, sizeof text,
                 "%s: all %lld cases passed. They hold all %lld pairs of values that the kernel takes.",
                 kernel, (long long)ran, (long long)pairs);
    fputs(!colour ? "" : bad ? "\033[1;31m" : ran == 0 || n->missing ? "\033[1;33m" : "\033[1;32m", stdout);
    kvg_text_wrap(stdout, text, 0, width);
    fputs(colour ? "\033[0m\n" : "\n", stdout);
    snprintf(text, sizeof text, "%.0f s, kvgauge %s, commit %.12s%s", c->seconds, kvg_version(),
             kvg_git_sha(), kvg_git_dirty() ? " with changes" : "");
    say(width, text);
}

static void print_covered(const struct check *c, int width)
{
    const struct kvg_check_space *s = &c->space;
    puts("\nCovered, each value of a line with each value of every other line where the two go together:");
    for (int i = 0; i < s->n; i++) {
        printf("  %-15s", kvg_axis_get_info(s->axes[i].axis)->name);
        char text[512] = "";
        for (int64_t v = 0; v < s->axes[i].values.count; v++) {
            const size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "%s%s", used ? " " : "", s->axes[i].values.text[v]);
        }
        kvg_text_wrap(stdout, text, 17, width);
        putchar('\n');
    }
    if (s->count > s->n_pairs) {
        char text[200];
        snprintf(
            text, sizeof text,
            "and %lld lengths beside the tile and the split that the kernel declares, with and without a "
            "window.",
            (long long)(s->count - s->n_pairs));
        say(width, text);
    }
}

/* Refused values, those with the same sentence together. */
static void print_refused(const struct check *c, int width)
{
    const struct kvg_check_space *s = &c->space;
    int heading = 0;
    for (int i = 0; i < s->n; i++)
        for (int64_t v = 0; v < s->axes[i].refused.count; v++) {
            const char *why = s->axes[i].why.text[v];
            char text[700] = "";
            if (v > 0 && strcmp(why, s->axes[i].why.text[v - 1]) == 0)
                continue;
            if (!heading++)
                puts("\nNot covered, because the kernel refuses it or no case has it:");
            snprintf(text, sizeof text, "%s", kvg_axis_get_info(s->axes[i].axis)->name);
            for (int64_t w = v; w < s->axes[i].refused.count && strcmp(why, s->axes[i].why.text[w]) == 0;
                 w++) {
                const size_t used = strlen(text);
                snprintf(text + used, sizeof text - used, "%s%s", w == v ? " " : ", ",
                         s->axes[i].refused.text[w]);
            }
            const size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, ": %s", why);
            say(width, text);
        }
}

static void print_missing(const struct check *c, const struct counts *n, int width)
{
    const struct kvg_check_space *s = &c->space;
    int64_t told = 0;
    char text[1200];
    if (n->missing == 0)
        return;
    snprintf(text, sizeof text, "Pairs that did not run:");
    for (int a = 0; a < s->n; a++)
        for (int b = a + 1; b < s->n; b++)
            for (int u = 0; u < s->axes[a].values.count; u++)
                for (int v = 0; v < s->axes[b].values.count && told < MOST_EXAMPLES; v++) {
                    if (kvg_cover_pair(&s->cover, a, u, b, v) != KVG_PAIR_COVERED || was_run(c, a, u, b, v))
                        continue;
                    const size_t used = strlen(text);
                    snprintf(text + used, sizeof text - used, "%s %s=%s with %s=%s", told++ ? "," : "",
                             kvg_axis_get_info(s->axes[a].axis)->name, s->axes[a].values.text[u],
                             kvg_axis_get_info(s->axes[b].axis)->name, s->axes[b].values.text[v]);
                }
    const size_t used = strlen(text);
    if (n->missing > told)
        snprintf(text + used, sizeof text - used, ", and %lld more.", (long long)(n->missing - told));
    if (c->results.count > 0 && c->seconds > 0) {
        const double needed = c->seconds / (double)c->results.count * (double)c->space.count;
        const size_t end = strlen(text);
        snprintf(text + end, sizeof text - end, " --budget %.0f would probably do.",
                 10 * ceil(needed * 0.12));
    }
    putchar('\n');
    say(width, text);
}

static void report(const struct check *c, const struct counts *n)
{
    const struct kvg_table_options table = {.path = "FILE", .all = 0, .colour = -1};
    const int width = kvg_table_width(stdout, 0);
    print_verdict(c, n, width);
    if (n->incorrect + n->other + n->skipped > 0)
        kvg_table_print_problems(stdout, &c->results, &table);
    print_missing(c, n, width);
    print_covered(c, width);
    print_refused(c, width);
    fflush(stdout);
}

static int exit_code(const struct check *c, const struct counts *n)
{
    if (c->interrupted)
        return KVG_EXIT_INTERRUPTED;
    if (n->incorrect)
        return KVG_EXIT_INCORRECT;
    return n->other || n->missing || c->results.count < c->space.count || n->passed == 0 ? KVG_EXIT_TROUBLE
                                                                                         : KVG_EXIT_OK;
}

/* ---------------------------------------------------------------- the command */

/* Signals stop the worker loop; they are held until the files are written. */
static void hold_signals(sigset_t *old)
{
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGHUP);
    sigprocmask(SIG_BLOCK, &ours, old);
}

static int run_check(struct check *c, int argc, char **argv)
{
    struct kvg_results in_file = {0};
    struct kvg_error error;
    sigset_t old;
    hold_signals(&old);
    struct kvg_worker *worker = kvg_worker_start(&c->command->run, &error);
    int failed = !worker || open_files(c, argc, argv, &error) || run_cases(c, worker, &error);
    kvg_worker_stop(worker);
    if (!failed && c->files.journal)
        failed = kvg_run_files_finish(&c->files, !c->interrupted && c->results.count == c->space.count,
                                      &in_file, &error);
    else if (failed)
        kvg_run_files_abandon(&c->files);
    sigprocmask(SIG_SETMASK, &old, NULL);
    kvg_results_free(&in_file);
    const int code = failed ? kvg_error_report(&error) : KVG_EXIT_OK;
    if (failed && c->results.count == 0)
        return code;
    const struct counts n = count_rows(c);
    report(c, &n);
    if (!failed && c->command->out)
        printf("\nresults  %s\njournal  %s\n", c->files.h5, c->files.journal_path);
    return failed ? code : exit_code(c, &n);
}

/* Nothing to run: says why. */
static int say_nothing(const struct check *c)
{
    fprintf(stderr, "kvgauge: %s takes no case of a check:\n", c->command->kernel);
    for (int i = 0; i < c->space.n; i++)
        for (int64_t v = 0; v < c->space.axes[i].refused.count; v++)
            if (c->space.axes[i].values.count == 0)
                fprintf(stderr, "  %s %s: %s\n", kvg_axis_get_info(c->space.axes[i].axis)->name,
                        c->space.axes[i].refused.text[v], c->space.axes[i].why.text[v]);
    return KVG_EXIT_TROUBLE;
}

static int print_cases(const struct check *c)
{
    for (int64_t i = 0; i < c->space.count; i++) {
        char text[KVG_CASE_STRING_MAX];
        kvg_case_format(&c->space.cases[i], text);
        puts(text);
    }
    fprintf(stderr, "%lld cases would run\n", (long long)c->space.count);
    return KVG_EXIT_OK;
}

int kvg_cmd_check(int argc, char **argv)
{
    struct command command = {.budget = USUAL_BUDGET};
    struct kvg_error error;
    kvg_run_options_default(&command.run);
    kvg_options_parse(&kvg_check_argp, argc, argv, &command);
    command.run.plugins = command.plan.n_plugins ? command.plan.plugins : NULL;
    command.run.verify_only = 1;
    struct check check = {.command = &command};
    if (kvg_plan_options_load_plugins(&command.plan, &error) ||
        kvg_check_space_make(command.kernel, &command.plan.request, &check.space, &error))
        return kvg_error_report(&error);
    const int code = check.space.count == 0 ? say_nothing(&check)
                     : command.dry_run      ? print_cases(&check)
                                            : run_check(&check, argc, argv);
    for (int64_t i = 0; i < check.results.count; i++)
        kvg_row_free(&check.results.rows[i]);
    free(check.results.rows);
    kvg_check_space_free(&check.space);
    return code;
}
