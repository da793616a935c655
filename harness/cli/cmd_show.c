/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_show.c: `kvgauge show`: prints a result file or a journal as a table for people, or as CSV, JSON,
 * Markdown or HDF5 for programs. Rows that failed do not change its exit code.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "results/disk.h"
#include "results/file.h"
#include "results/table.h"
#include "argv.h"
#include "commands.h"
#include "harness/case/words.h"
#include "file_options.h"
#include "options.h"

enum { KEY_COLUMNS = 'c', KEY_FORMAT = 'f', KEY_ALL = 'a', KEY_OUT = 'o', KEY_CSV_SAFE = 0x100 };
enum format { FORMAT_TABLE, FORMAT_CSV, FORMAT_JSON, FORMAT_MARKDOWN, FORMAT_HDF5 };
static const char *const format_names[] = {"table", "csv", "json", "markdown", "hdf5"};

struct show_options {
    struct kvg_file_options file;
    const char *columns, *out;
    enum format format;
    int all, csv_safe;
};

static const struct argp_option options[] = {
    {"format", KEY_FORMAT, "FORMAT", 0,
     "table, csv, json, markdown or hdf5 (default table); hdf5 needs --out.", 0},
    {"columns", KEY_COLUMNS, "A,B,C", 0,
     "Only these columns, one row a line; results/SCHEMA.md lists the names.", 0},
    {"all", KEY_ALL, NULL, 0, "List every row after the sections of the table.", 0},
    {"csv-safe", KEY_CSV_SAFE, NULL, 0,
     "With --format csv: a text that begins with = + - @ gets a leading apostrophe, so that a spreadsheet "
     "does "
     "not take it for a formula.",
     0},
    {"out", KEY_OUT, "FILE", 0,
     "Write to FILE instead of to standard output. An existing file of the same kind is replaced in one "
     "step; the file that is read, a journal, and a file of another kind are not.",
     0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct show_options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->file;
        return 0;
    case KEY_FORMAT:
        for (size_t i = 0; i < sizeof(format_names) / sizeof(format_names[0]); i++) {
            if (strcmp(arg, format_names[i]) == 0) {
                o->format = (enum format)i;
                return 0;
            }
        }
        argp_error(state, "--format %s: not one of table, csv, json, markdown, hdf5", arg);
        return 0;
    case KEY_COLUMNS:
        o->columns = arg;
        return 0;
    case KEY_ALL:
        o->all = 1;
        return 0;
    case KEY_CSV_SAFE:
        o->csv_safe = 1;
        return 0;
    case KEY_OUT:
        o->out = arg;
        return 0;
    case ARGP_KEY_SUCCESS:
        if (o->format == FORMAT_HDF5 && !o->out)
            argp_error(state, "--format hdf5 needs --out FILE");
        if (o->format == FORMAT_HDF5 && o->columns)
            argp_error(state, "--format hdf5 writes whole files; --columns does not go with it");
        if (o->csv_safe && o->format != FORMAT_CSV)
            argp_error(state, "--csv-safe belongs to --format csv");
        if (o->all && (o->columns || o->format != FORMAT_TABLE))
            argp_error(state,
                       "--all belongs to the table; with --columns or another format every row is listed");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&kvg_file_argp, 0, NULL, 0}, {0}};
const struct argp kvg_show_argp = {
    options,
    parse,
    "FILE",
    "Print a result file (run.h5) or a journal (run.jsonl) as a table, CSV, JSON or Markdown.\v"
    "--format hdf5 --out run.h5 makes a result file from a journal. The exit code says whether FILE could be "
    "shown, not whether its rows passed.",
    children,
    NULL,
    NULL};

/* ------------------------------------------------------------------------------------------ columns */

static int unknown_column(const char *name, struct kvg_error *error)
{
    if (strcmp(name, "time_samples") == 0)
        return kvg_fail(
            error, KVG_EXIT_USAGE,
            "--columns time_samples: 256 numbers a row fit no column; they are in the HDF5 file, and in "
            "--format json without --columns");
    const char **names = calloc((size_t)kvg_columns_count, sizeof(*names));
    char hint[128] = "";
    for (int64_t i = 0; names && i < kvg_columns_count; i++)
        names[i] = kvg_columns[i].name;
    if (names)
        kvg_word_hint(name, names, kvg_columns_count, hint, sizeof(hint));
    free(names);
    return kvg_fail(error, KVG_EXIT_USAGE, "--columns: no column '%.60s'%s (results/SCHEMA.md lists them)",
                    name, hint);
}

/* The columns that a comma list names, as a malloc'ed array; NULL with the error. */
static const struct kvg_column **choose_columns(const char *list, int64_t *n, struct kvg_error *error)
{
    size_t most = strlen(list) / 2 + 1;
    const struct kvg_column **columns = calloc(most, sizeof(*columns));
    char *copy = strdup(list), *save = NULL;
    int failed = !columns || !copy ? kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory") : 0;
    *n = 0;
    for (char *name = failed ? NULL : strtok_r(copy, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        name += strspn(name, " ");
        name[strcspn(name, " ")] = '\0';
        const struct kvg_column *column = kvg_column_find(name);
        if (!column) {
            failed = unknown_column(name, error);
            break;
        }
        columns[(*n)++] = column;
    }
    if (!failed && *n == 0)
        failed = kvg_fail(error, KVG_EXIT_USAGE, "--columns: no column named");
    free(copy);
    if (failed) {
        free(columns);
        return NULL;
    }
    return columns;
}

/* ------------------------------------------------------------------------------------------ output */

static int print_to(FILE *out, const struct show_options *o, const struct kvg_results *results,
                    const struct kvg_column *const *columns, int64_t n, struct kvg_error *error)
{
    if (o->format == FORMAT_CSV)
        return kvg_results_export(out, results, o->csv_safe ? KVG_EXPORT_CSV_SAFE : KVG_EXPORT_CSV, columns,
                                  n, error);
    if (o->format == FORMAT_JSON)
        return kvg_results_export(out, results, KVG_EXPORT_JSON, columns, n, error);
    if (o->format == FORMAT_MARKDOWN)
        return kvg_results_export(out, results, KVG_EXPORT_MARKDOWN, columns, n, error);
    char *quoted = kvg_argv_quote_word(o->file.file);
    const struct kvg_table_options table = {
        .path = quoted ? quoted : o->file.file, .all = o->all, .colour = -1};
    int failed =
        columns ? kvg_table_print_columns(out, results, columns, n) : kvg_table_print(out, results, &table);
    free(quoted);
    if (failed || fflush(out))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "cannot write the table: %s", strerror(errno ? errno : EIO));
    return 0;
}

/* Writes beside the target and renames, so that a failure leaves an existing file as it is. */
static int print_to_file(const struct show_options *o, const struct kvg_results *results,
                         const struct kvg_column *const *columns, int64_t n, struct kvg_error *error)
{
    char temporary[PATH_MAX];
    if (snprintf(temporary, sizeof(temporary), "%s.%ld.tmp", o->out, (long)getpid()) >=
        (int)sizeof(temporary))
        return kvg_fail(error, KVG_EXIT_USAGE, "--out %.200s...: name too long", o->out);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot create it: %s", temporary, strerror(errno));
    int failed = print_to(out, o, results, columns, n, error);
    if (!failed && fsync(fd))
        failed = kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot write: %s", o->out, strerror(errno));
    if (fclose(out) && !failed)
        failed = kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot write: %s", o->out, strerror(errno));
    if (!failed && rename(temporary, o->out))
        failed = kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot rename the finished file to it: %s", o->out,
                          strerror(errno));
    if (failed)
        unlink(temporary);
    return failed;
}

static int show(const struct show_options *o, struct kvg_error *error)
{
    struct kvg_results results;
    const struct kvg_column **columns = NULL;
    int64_t n = 0;
    if (o->out && kvg_check_output(o->out, o->file.file, o->format == FORMAT_HDF5, error))
        return -1;
    if (o->columns && !(columns = choose_columns(o->columns, &n, error)))
        return -1;
    if (kvg_file_options_read(&o->file, &results, error)) {
        free(columns);
        return -1;
    }
    int failed = 0;
    if (o->format == FORMAT_TABLE || o->format == FORMAT_MARKDOWN)
        failed = kvg_results_make_printable(&results, error);
    if (failed) {
        kvg_results_free(&results);
        free(columns);
        return -1;
    }
    if (o->format == FORMAT_HDF5)
        failed = kvg_file_write(o->out, &results, error);
    else if (o->out)
        failed = print_to_file(o, &results, columns, n, error);
    else
        failed = print_to(stdout, o, &results, columns, n, error) &&
                 !ferror(stdout); /* main reports a failed stdout */
    kvg_results_free(&results);
    free(columns);
    return failed;
}

int kvg_cmd_show(int argc, char **argv)
{
    struct show_options o = {0};
    struct kvg_error error = {0};
    kvg_options_parse(&kvg_show_argp, argc, argv, &o);
    return show(&o, &error) ? kvg_error_report(&error) : KVG_EXIT_OK;
}
