/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c: the frame of the table: the verdict, the order of the parts, the list of all rows, and the time
 * spent.
 */
#include "table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "group.h"
#include "table_parts.h"

/* The width is limited to this range. */
enum { LEAST_WIDTH = 64, MOST_WIDTH = 240 };

/* ---------------------------------------------------------------- verdict */

static double fact_number(const struct kvg_facts *facts, const char *name)
{
    const struct kvg_fact *fact = kvg_facts_find(facts, name);
    return fact && !fact->text ? fact->number : NAN;
}

static const char *fact_text(const struct kvg_facts *facts, const char *name)
{
    const struct kvg_fact *fact = kvg_facts_find(facts, name);
    return fact && fact->text ? fact->text : NULL;
}

/* "3 incorrect, 1 crashed", for the verdicts whose bit in `wanted` is set. */
static void list_counts(const int64_t counts[KVG_STATUS_COUNT + 1], unsigned wanted, char *text, size_t size)
{
    text[0] = '\0';
    for (int s = 0; s <= KVG_STATUS_COUNT; s++) {
        size_t used = strlen(text);
        if (counts[s] > 0 && (wanted >> s & 1u))
            snprintf(text + used, size - used, "%s%lld %s", used ? ", " : "", (long long)counts[s],
                     kvg_status_name((enum kvg_status)s));
    }
}

static void print_verdict(struct kvg_table *t, int64_t superseded)
{
    int64_t counts[KVG_STATUS_COUNT + 1] = {0}, n = t->results->count;
    for (int64_t i = 0; i < n; i++) {
        int64_t status = t->results->rows[i].status;
        counts[status >= 0 && status < KVG_STATUS_COUNT ? status : KVG_STATUS_COUNT]++;
    }
    int64_t skipped = counts[KVG_SKIPPED], passed = counts[KVG_PASSED], bad = n - skipped - passed;
    const char *on = !t->colour ? "" : bad ? "\033[1;31m" : passed ? "\033[1;32m" : "\033[1;33m";
    char list[256];
    list_counts(counts, ~(1u << KVG_PASSED | 1u << KVG_SKIPPED), list, sizeof(list));
    fputs(on, t->out);
    if (bad)
        fprintf(t->out, "%lld of %lld rows did not pass: %s.", (long long)bad, (long long)(n - skipped),
                list);
    else if (passed == 1)
        fputs("The one row that ran passed.", t->out);
    else if (passed)
        fprintf(t->out, "All %lld rows that ran passed.", (long long)passed);
    else
        fputs("Nothing ran.", t->out);
    fputs(*on ? "\033[0m" : "", t->out);
    if (bad)
        fprintf(t->out, " %lld passed.", (long long)passed);
    if (skipped)
        fprintf(t->out, " %lld skipped.", (long long)skipped);
    if (superseded)
        fprintf(t->out, " %lld earlier attempt%s not counted.", (long long)superseded,
                superseded == 1 ? " is" : "s are");
    fputc('\n', t->out);
    const struct kvg_fact *argv = kvg_facts_find(&t->results->run, "argv");
    if (fact_number(&t->results->run, "complete") != 0.0)
        return;
    if (argv && argv->text &&
        (strncmp(argv->text, "kvgauge check", 13) == 0 || /* as older files have it */
         strncmp(argv->text, "[\"kvgauge\",\"check\"", 18) == 0))
        kvg_table_say(t, "The check did not end: some planned cases have no row.");
    else
        kvg_table_say(t, "The run was interrupted: some planned cases have no row. Continue it with "
                         "kvgauge run --resume.");
}

/* The GPUs that rows ran on, each once. */
static void print_devices(struct kvg_table *t)
{
    char seen[512] = "|", mark[160];
    for (int64_t i = 0; i < t->results->count; i++) {
        const struct kvg_row *row = &t->results->rows[i];
        snprintf(mark, sizeof(mark), "%.150s|", row->device);
        if (!kvg_on_device(row) || strstr(seen, mark) || strlen(seen) + strlen(mark) >= sizeof(seen))
            continue;
        strcat(seen, mark);
        kvg_table_say(t, "%s", row->device);
    }
}

static void print_origin(struct kvg_table *t)
{
    const struct kvg_facts *run = &t->results->run, *machine = &t->results->machine;
    const char *generator = fact_text(run, "generator"), *sha = fact_text(run, "git_sha");
    const char *when = fact_text(run, "created_utc"), *suite = fact_text(run, "suite");
    const char *cpu = fact_text(machine, "cpu"), *isa = fact_text(machine, "isa");
    char line[512] = "";
    if (cpu)
        snprintf(line, sizeof(line), "%s%s%s%s", cpu, isa ? " (" : "", isa ? isa : "", isa ? ")" : "");
    double cpus = fact_number(machine, "cpus_allowed");
    if (cpus > 0)
        snprintf(line + strlen(line), sizeof(line) - strlen(line), ", %g CPU%s", cpus, cpus == 1 ? "" : "s");
    if (*line)
        kvg_table_say(t, "%s", line);
    print_devices(t);
    snprintf(line, sizeof(line), "%s%s%s%s", suite ? "suite " : "", suite ? suite : "",
             suite && when ? ", " : "", when ? when : "");
    if (generator)
        snprintf(line + strlen(line), sizeof(line) - strlen(line), "%s%s", *line ? ", " : "", generator);
    if (sha)
        snprintf(line + strlen(line), sizeof(line) - strlen(line), ", commit %s%s", sha,
                 fact_number(run, "git_dirty") > 0 ? " with changes" : "");
    if (*line)
        kvg_table_say(t, "%s", line);
}

/* ---------------------------------------------------------------- every row */

static void print_all(struct kvg_table *t)
{
    const int wide = t->width >= 2 + 8 + 2 + 13 + 3 * 10 + 9 + 11 + 10 + 8;
    kvg_table_heading(t, "Every row");
    fprintf(t->out, "  %-8s  %-13s %9s %9s%s %10s %9s %7s\n", "case", "status", "quant_err", "kernel_err",
            wide ? "     bound   gain-1" : "", "time", "KV GB/s", "gather%");
    for (int64_t i = 0; i < t->results->count; i++) {
        const struct kvg_row *row = &t->results->rows[i];
        char c[KVG_CELL];
        double low = row->gain_min - 1.0, high = row->gain_max - 1.0;
        fprintf(t->out, "  %-8s  %-13s", kvg_cell_case(row, c),
                kvg_status_name((enum kvg_status)row->status));
        kvg_put_cell(t->out, 10, kvg_cell_digits(row->quant_rel_l2, 3, c));
        kvg_put_cell(t->out, 10, kvg_cell_digits(row->kernel_rel_l2, 3, c));
        kvg_put_cell(t->out, wide ? 10 : 0, kvg_cell_digits(row->bound_ratio_max, 3, c));
        kvg_put_cell(t->out, wide ? 9 : 0, kvg_cell_fixed(fabs(low) > fabs(high) ? low : high, 4, c));
        kvg_put_cell(t->out, 11, kvg_cell_time(row->time_median, c));
        kvg_put_cell(t->out, 10, kvg_cell_digits(row->kv_bytes_per_second / 1e9, 3, c));
        kvg_put_cell(t->out, 8, kvg_cell_fixed(row->pct_gather_roof, 0, c));
        fputc('\n', t->out);
        fprintf(t->out, "    %s\n", row->case_string);
    }
}

/* ---------------------------------------------------------------- time spent */

/* Where the time of the run went, in one line. Prints nothing if no row has these times. */
static void print_effort(struct kvg_table *t)
{
    static const char *const activity[] = {"preparing", "verifying", "quantisation error", "timing"};
    enum { ACTIVITIES = sizeof activity / sizeof activity[0] };
    double seconds[ACTIVITIES] = {0};
    int64_t rows = 0;
    int first = 1;
    for (int64_t i = 0; i < t->results->count; i++) {
        const struct kvg_row *row = &t->results->rows[i];
        const double spent[ACTIVITIES] = {row->seconds_prepare, row->seconds_verify, row->seconds_quantise,
                                          row->seconds_timing};
        int any = 0;
        for (int a = 0; a < ACTIVITIES; a++)
            if (isfinite(spent[a])) {
                seconds[a] += spent[a];
                any = 1;
            }
        rows += any;
    }
    if (rows == 0)
        return;
    char line[400];
    snprintf(line, sizeof(line), "Time spent on %lld row%s: ", (long long)rows, rows == 1 ? "" : "s");
    for (int a = 0; a < ACTIVITIES; a++) {
        char text[KVG_CELL];
        const size_t used = strlen(line);
        if (seconds[a] > 0) {
            snprintf(line + used, sizeof(line) - used, "%s%s %s", first ? "" : ", ",
                     kvg_cell_time(seconds[a], text), activity[a]);
            first = 0;
        }
    }
    fputc('\n', t->out);
    kvg_text_wrap(t->out, line, 0, t->width);
    fputc('\n', t->out);
}

/* ---------------------------------------------------------------- the whole */

static int key_of_case(const struct kvg_row *row, char *text, size_t size)
{
    snprintf(text, size, "%s|%020lld", row->case_id, (long long)row->attempt);
    return 1;
}

/* The rows without attempts that a later attempt at the same case replaces. The rows are borrowed. */
static int latest_attempts(const struct kvg_results *results, struct kvg_results *view)
{
    struct kvg_picks picks;
    *view = *results;
    view->rows = calloc((size_t)(results->count ? results->count : 1), sizeof(*view->rows));
    char *superseded = calloc((size_t)(results->count ? results->count : 1), 1);
    if (!view->rows || !superseded || kvg_pick_rows(results, key_of_case, &picks)) {
        free(view->rows);
        free(superseded);
        return -1;
    }
    for (int64_t i = 0; i + 1 < picks.count; i++) {
        const struct kvg_row *row = picks.picks[i].row, *next = picks.picks[i + 1].row;
        if (row->case_id[0] && strcmp(row->case_id, next->case_id) == 0 && row->attempt < next->attempt)
            superseded[row - results->rows] = 1;
    }
    view->count = 0;
    for (int64_t i = 0; i < results->count; i++)
        if (!superseded[i])
            view->rows[view->count++] = results->rows[i];
    free(superseded);
    kvg_picks_free(&picks);
    return 0;
}

int kvg_wants_colour(FILE *out, int asked)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if (asked >= 0)
        return asked;
    return (!no || !*no) && term && strcmp(term, "dumb") != 0 && isatty(fileno(out));
}

int kvg_table_width(FILE *out, int asked)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    int file = fileno(out), width = asked;
    if (width <= 0 && columns)
        width = atoi(columns);
    if (width <= 0 && file >= 0 && isatty(file) && ioctl(file, TIOCGWINSZ, &size) == 0)
        width = size.ws_col;
    if (width <= 0)
        width = KVG_USUAL_WIDTH;
    return width < LEAST_WIDTH ? LEAST_WIDTH : width > MOST_WIDTH ? MOST_WIDTH : width;
}

static struct kvg_table table_of(FILE *out, const struct kvg_results *results,
                                 const struct kvg_table_options *options)
{
    return (struct kvg_table){.out = out,
                              .results = results,
                              .path = options->path ? options->path : "FILE",
                              .all = options->all,
                              .most = options->most,
                              .width = kvg_table_width(out, options->width),
                              .colour = kvg_wants_colour(out, options->colour)};
}

int kvg_table_print_problems(FILE *out, const struct kvg_results *results,
                             const struct kvg_table_options *options)
{
    struct kvg_table t = table_of(out, results, options);
    return kvg_table_problems(&t) || ferror(out) ? -1 : 0;
}

int kvg_table_print(FILE *out, const struct kvg_results *results, const struct kvg_table_options *options)
{
    struct kvg_results view;
    if (latest_attempts(results, &view))
        return -1;
    struct kvg_table t = table_of(out, &view, options);
    print_verdict(&t, results->count - view.count);
    print_origin(&t);
    int failed = kvg_table_real_quality(&t) || kvg_table_synthetic_quality(&t) || kvg_table_speed(&t) ||
                 kvg_table_memory(&t) || kvg_table_correctness(&t) || kvg_table_predictions(&t) ||
                 kvg_table_problems(&t);
    if (!failed && t.all && view.count > 0)
        print_all(&t);
    if (!failed)
        print_effort(&t);
    free(view.rows);
    return failed || ferror(out) ? -1 : 0;
}
