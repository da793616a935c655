/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_check.c: `kvgauge check KERNEL`: is a kernel right? It runs the cases of plan/check_space.h in a
 * worker, within a budget, and prints the verdict, the failed rows, what was covered and what the kernel
 * refuses.
 */
#include <math.h>
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
#include "signals.h"

#define USUAL_BUDGET 120.0 /* seconds */
#define USUAL_TIMEOUT                                                                                        \
    20.0 /* seconds; a case takes milliseconds, so a kernel that hangs does not use up the budget */
enum { MOST_EXAMPLES = 6, MOST_FAILED_ROWS = 8, MOST_REASONS = 6 };

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
    {"timeout", KEY_TIMEOUT, "SECONDS", 0, "Time that one case may take, in seconds (default 20).", 1},
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
    struct kvg_run_options again = c->command->run; /* the shorter time limit of a check changes no row */
    if (again.timeout == USUAL_TIMEOUT) {
        struct kvg_run_options usual;
        kvg_run_options_default(&usual);
        again.timeout = usual.timeout;
    }
    char *repro = kvg_repro_make(&c->space.cases[c->results.count], &again, row);
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
    if (kvg_run_facts_add(&run, "check", argc, argv, "check", c->space.cases[0].seed) ||
        kvg_machine_facts(&machine) || kvg_device_facts(&machine))
        failed = kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
    if (!failed)
        failed = kvg_run_files_try(&c->files, (INT64_C(1) << 20) + c->space.count * 8192, error) ||
                 kvg_run_files_create(&c->files, &run, &machine, error);
    kvg_facts_free(&run);
    kvg_facts_free(&machine);
    return failed;
}

/* ---------------------------------------------------------------- the report */

struct counts {
    int64_t of[KVG_STATUS_COUNT]; /* rows of each status */
    int64_t ran, failed;          /* not skipped; neither passed nor skipped */
    int64_t missing;              /* pairs that no case that ran holds */
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
    for (int64_t i = 0; i < c->results.count; i++)
        n.of[c->results.rows[i].status]++;
    n.ran = c->results.count - n.of[KVG_SKIPPED];
    n.failed = n.ran - n.of[KVG_PASSED];
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

/* "3 incorrect, 1 crashed" */
static void list_failures(const struct counts *n, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int status = 0; status < KVG_STATUS_COUNT; status++)
        if (n->of[status] && status != KVG_PASSED && status != KVG_SKIPPED && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%lld %s", used ? ", " : "",
                                     (long long)n->of[status], kvg_status_name((enum kvg_status)status));
}

/* What kept cases from running, as a sentence with a leading blank; "" if all ran. */
static void describe_gap(const struct check *c, const struct counts *n, char *text, size_t size)
{
    const int64_t left = c->space.count - c->results.count;
    text[0] = '\0';
    if (left == 0)
        return;
    snprintf(text, size,
             " The check is not complete: %lld of %lld cases and %lld of %lld pairs of values did not run%s.",
             (long long)left, (long long)c->space.count, (long long)n->missing,
             (long long)kvg_cover_count(&c->space.cover, KVG_PAIR_COVERED),
             c->interrupted ? "" : ", because the budget ended");
}

static void print_verdict(const struct check *c, const struct counts *n, int width)
{
    const char *kernel = c->command->kernel;
    const int colour = kvg_wants_colour(stdout, -1), whole = c->results.count == c->space.count;
    char text[600], failures[200], gap[300];
    list_failures(n, failures, sizeof failures);
    describe_gap(c, n, gap, sizeof gap);
    if (n->ran == 0)
        snprintf(text, sizeof text, "%s: nothing ran.%s", kernel, gap);
    else if (n->failed)
        snprintf(text, sizeof text, "%s: %lld of %lld cases did not pass: %s.%s", kernel,
                 (long long)n->failed, (long long)n->ran, failures, gap);
    else if (!whole)
        snprintf(text, sizeof text, "%s: all %lld cases that ran passed.%s", kernel, (long long)n->ran, gap);
    else
        snprintf(text, sizeof text,
                 "%s: all %lld cases passed. They hold all %lld pairs of values that the kernel takes.",
                 kernel, (long long)n->ran, (long long)kvg_cover_count(&c->space.cover, KVG_PAIR_COVERED));
    fputs(!colour                 ? ""
          : n->failed             ? "\033[1;31m"
          : n->ran == 0 || !whole ? "\033[1;33m"
                                  : "\033[1;32m",
          stdout);
    kvg_text_wrap(stdout, text, 0, width);
    fputs(colour ? "\033[0m\n" : "\n", stdout);
    snprintf(text, sizeof text, "%.0f s, kvgauge %s, commit %.12s%s", c->seconds, kvg_version(),
             kvg_git_sha(), kvg_git_dirty() ? " with changes" : "");
    say(width, text);
}

struct suspicion {
    const char *what;
    int64_t rows;
};

static int by_rows(const void *a, const void *b)
{
    const struct suspicion *x = a, *y = b;
    return x->rows != y->rows ? (x->rows < y->rows ? 1 : -1) : strcmp(x->what, y->what);
}

/* What the failed rows are suspected of, the most frequent first. */
static void print_suspicions(const struct check *c, int width)
{
    struct suspicion found[32] = {0};
    size_t n = 0;
    char text[500] = "Suspected:";
    for (int64_t i = 0; i < c->results.count; i++) {
        const char *what = c->results.rows[i].suspected;
        size_t k = 0;
        while (k < n && strcmp(found[k].what, what) != 0)
            k++;
        if (!what[0] || k == sizeof found / sizeof found[0])
            continue;
        if (k == n)
            found[n++] = (struct suspicion){what, 0};
        found[k].rows++;
    }
    qsort(found, n, sizeof found[0], by_rows);
    for (size_t k = 0; k < n && k < MOST_REASONS; k++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s %s in %lld row%s", k ? "," : "", found[k].what,
                 (long long)found[k].rows, found[k].rows == 1 ? "" : "s");
    }
    if (n)
        say(width, text);
}

static void print_covered(const struct check *c, int width)
{
    const struct kvg_check_space *s = &c->space;
    const int whole = c->results.count == s->count;
    char heading[200];
    snprintf(heading, sizeof heading,
             "%s: each value of a line with each value of every other line, where the two go together",
             whole ? "Covered" : "Covered by the whole check");
    putchar('\n');
    kvg_text_wrap(stdout, heading, 0, width);
    putchar('\n');
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
    const int64_t sizes = s->count - s->n_pairs - s->n_lengths;
    char text[200];
    if (s->n_lengths > 0) {
        snprintf(
            text, sizeof text,
            "and %lld lengths beside the tile and the split that the kernel declares, with and without a "
            "window.",
            (long long)s->n_lengths);
        say(width, text);
    }
    if (sizes > 0) {
        snprintf(text, sizeof text,
                 "and %lld case%s of sizes beyond 8 and 16 bits: keys, sequences, heads, tokens of a store.",
                 (long long)sizes, sizes == 1 ? "" : "s");
        say(width, text);
    }
}

/* "soft_cap 2, 30; mask full; path fp8 with head_dim 64" of the refusals with the sentence of refusal
 * `first`. A long list is cut. */
static void list_refused(const struct kvg_check_space *s, int64_t first, char *text, size_t size)
{
    const struct kvg_check_refusal *last = NULL;
    int64_t left = 0;
    text[0] = '\0';
    for (int64_t i = first; i < s->n_refusals; i++) {
        const struct kvg_check_refusal *r = &s->refusals[i];
        const size_t used = strlen(text);
        if (r->by_kernel != s->refusals[first].by_kernel || strcmp(r->why, s->refusals[first].why) != 0)
            continue;
        if (used + 4 * (size_t)KVG_CHECK_WORD > size) {
            left++;
            continue;
        }
        const char *name = kvg_axis_get_info(r->axis[0])->name;
        if (last && last->n == 2 && r->n == 2 && last->axis[0] == r->axis[0] && last->axis[1] == r->axis[1] &&
            strcmp(last->value[0], r->value[0]) == 0)
            snprintf(text + used, size - used, ", %s", r->value[1]);
        else if (r->n == 2)
            snprintf(text + used, size - used, "%s%s %s with %s %s", used ? "; " : "", name, r->value[0],
                     kvg_axis_get_info(r->axis[1])->name, r->value[1]);
        else if (last && last->n == 1 && last->axis[0] == r->axis[0])
            snprintf(text + used, size - used, ", %s", r->value[0]);
        else
            snprintf(text + used, size - used, "%s%s %s", used ? "; " : "", name, r->value[0]);
        last = r;
    }
    const size_t used = strlen(text);
    if (left)
        snprintf(text + used, size - used, "; and %lld more", (long long)left);
}

/* Refused values and pairs, those with the same sentence together. */
static void print_refused(const struct check *c, int by_kernel, const char *heading, int width)
{
    const struct kvg_check_space *s = &c->space;
    int lines = 0;
    for (int64_t i = 0; i < s->n_refusals; i++) {
        int told = s->refusals[i].by_kernel != by_kernel;
        char list[900], text[1300];
        for (int64_t j = 0; j < i && !told; j++)
            told =
                s->refusals[j].by_kernel == by_kernel && strcmp(s->refusals[j].why, s->refusals[i].why) == 0;
        if (told)
            continue;
        if (!lines++)
            printf("\n%s\n", heading);
        list_refused(s, i, list, sizeof list);
        snprintf(text, sizeof text, "%s: %s", list, s->refusals[i].why);
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
    const struct kvg_table_options table = {.path = "FILE", .most = MOST_FAILED_ROWS, .colour = -1};
    const int width = kvg_table_width(stdout, 0);
    print_verdict(c, n, width);
    print_suspicions(c, width);
    if (n->failed + n->of[KVG_SKIPPED] > 0)
        kvg_table_print_problems(stdout, &c->results, &table);
    if (n->failed > MOST_FAILED_ROWS && !c->command->out)
        say(width, "--out FILE.h5 keeps all rows, and kvgauge show FILE.h5 lists them.");
    print_missing(c, n, width);
    print_covered(c, width);
    print_refused(c, 1, "Not covered, because the kernel refuses it:", width);
    print_refused(c, 0, "Not covered, because no case has it:", width);
    fflush(stdout);
}

/* The highest that applies, as in `run`. */
static int exit_code(const struct check *c, const struct counts *n)
{
    int code =
        n->missing || c->results.count < c->space.count || n->ran == 0 ? KVG_EXIT_TROUBLE : KVG_EXIT_OK;
    if (c->interrupted)
        return KVG_EXIT_INTERRUPTED;
    for (int status = 0; status < KVG_STATUS_COUNT; status++) {
        const int asked = n->of[status] ? kvg_status_exit_code((enum kvg_status)status) : KVG_EXIT_OK;
        code = asked > code ? asked : code;
    }
    return code;
}

/* ---------------------------------------------------------------- the command */

static int run_check(struct check *c, int argc, char **argv)
{
    struct kvg_results in_file = {0};
    struct kvg_error error;
    sigset_t old;
    kvg_signals_hold(&old);
    struct kvg_worker *worker = kvg_worker_start(&c->command->run, &error);
    int failed = !worker || open_files(c, argc, argv, &error) || run_cases(c, worker, &error);
    kvg_worker_stop(worker);
    if (!failed && c->files.journal)
        failed = kvg_run_files_finish(&c->files, !c->interrupted && c->results.count == c->space.count,
                                      &in_file, &error);
    else if (failed)
        kvg_run_files_abandon(&c->files);
    kvg_signals_release(&old);
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

/* Nothing to run: says why, in the kernel's words if it has any. */
static int say_nothing(const struct check *c)
{
    const struct kvg_check_space *s = &c->space;
    int by_kernel = 0, told = 0;
    for (int64_t i = 0; i < s->n_refusals; i++)
        by_kernel |= s->refusals[i].by_kernel;
    fprintf(stderr, "kvgauge: %s takes no case of a check:\n", c->command->kernel);
    for (int64_t i = 0; i < s->n_refusals && told < MOST_REASONS; i++) {
        int known = s->refusals[i].by_kernel != by_kernel;
        for (int64_t j = 0; j < i && !known; j++)
            known = strcmp(s->refusals[j].why, s->refusals[i].why) == 0;
        if (!known)
            fprintf(stderr, "  %s\n", s->refusals[i].why);
        told += !known;
    }
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
    command.run.timeout = USUAL_TIMEOUT;
    kvg_options_parse(&kvg_check_argp, argc, argv, &command);
    command.run.plugins = command.plan.n_plugins ? command.plan.plugins : NULL;
    command.run.verify_only = 1;
    command.plan.plugin_seconds = command.run.timeout;
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
