/* SPDX-License-Identifier: Apache-2.0
 *
 * export.c: rows as CSV (RFC 4180), JSON and Markdown.
 *
 * Floats are written with the fewest of 15 to 17 digits that give back the same bits. `status` is the name of
 * the verdict, because people, spreadsheets and shell scripts read exports.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "encode.h"
#include "file.h"

#define NUMBER_MAX 32

static void format_float(double value, char text[NUMBER_MAX])
{
    if (isinf(value)) {
        snprintf(text, NUMBER_MAX, "%s", value > 0 ? "inf" : "-inf");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, NUMBER_MAX, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

/* Text of one cell. A number is written into `number`; a missing float is "". */
static const char *cell(const struct kvg_row *row, const struct kvg_column *column, char number[NUMBER_MAX])
{
    const void *field = (const char *)row + column->offset;
    if (column->offset == offsetof(struct kvg_row, status))
        return kvg_status_name((enum kvg_status)row->status);
    if (column->type == KVG_COLUMN_STRING)
        return *(char *const *)field;
    if (column->type == KVG_COLUMN_INT)
        snprintf(number, NUMBER_MAX, "%lld", (long long)*(const int64_t *)field);
    else if (isnan(*(const double *)field))
        number[0] = '\0';
    else
        format_float(*(const double *)field, number);
    return number;
}

/* ---------------------------------------------------------------- CSV */

static void put_csv_field(FILE *out, const char *text, const char *before)
{
    int quote = strpbrk(text, ",\"\r\n") != NULL || *text == ' ' || (*text && text[strlen(text) - 1] == ' ');
    if (quote)
        putc('"', out);
    fputs(before, out);
    for (; *text; text++) {
        if (*text == '"')
            putc('"', out);
        putc(*text, out);
    }
    if (quote)
        putc('"', out);
}

static void export_csv(FILE *out, const struct kvg_results *results, const struct kvg_column *const *columns,
                       int64_t n, int safe)
{
    char number[NUMBER_MAX];
    for (int64_t c = 0; c < n; c++)
        fprintf(out, "%s%s", c ? "," : "", columns[c]->name);
    fputs("\r\n", out);
    for (int64_t r = 0; r < results->count; r++) {
        for (int64_t c = 0; c < n; c++) {
            if (c)
                putc(',', out);
            const char *text = cell(&results->rows[r], columns[c], number);
            const int formula =
                safe && columns[c]->type == KVG_COLUMN_STRING && *text && strchr("=+-@", *text);
            put_csv_field(out, text, formula ? "'" : "");
        }
        fputs("\r\n", out);
    }
}

/* ---------------------------------------------------------------- Markdown */

static void put_markdown_cell(FILE *out, const char *text)
{
    for (; *text; text++)
        if (*text == '\n' || *text == '\r')
            putc(' ', out);
        else if (*text == '|' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else
            putc(*text, out);
}

static void export_markdown(FILE *out, const struct kvg_results *results,
                            const struct kvg_column *const *columns, int64_t n)
{
    char number[NUMBER_MAX];
    for (int64_t c = 0; c < n; c++) {
        const char *units = columns[c]->units;
        fprintf(out, "| %s", columns[c]->name);
        if (*units && strcmp(units, "1") != 0)
            fprintf(out, " (%s)", units);
        putc(' ', out);
    }
    fputs("|\n", out);
    for (int64_t c = 0; c < n; c++)
        fputs(columns[c]->type == KVG_COLUMN_STRING ? "|---" : "|---:", out);
    fputs("|\n", out);
    for (int64_t r = 0; r < results->count; r++) {
        for (int64_t c = 0; c < n; c++) {
            const double *value =
                (const double *)(const void *)((const char *)&results->rows[r] + columns[c]->offset);
            fputs("| ", out);
            if (columns[c]->type == KVG_COLUMN_FLOAT && isfinite(*value))
                fprintf(out, "%.5g", *value); /* short, for reading; csv and json have every digit */
            else
                put_markdown_cell(out, cell(&results->rows[r], columns[c], number));
            putc(' ', out);
        }
        fputs("|\n", out);
    }
}

/* ---------------------------------------------------------------- JSON */

static json_t *json_cell(const struct kvg_row *row, const struct kvg_column *column)
{
    const void *field = (const char *)row + column->offset;
    if (column->offset == offsetof(struct kvg_row, status))
        return json_string(kvg_status_name((enum kvg_status)row->status));
    if (column->type == KVG_COLUMN_STRING)
        return json_string(*(char *const *)field);
    if (column->type == KVG_COLUMN_INT)
        return json_integer(*(const int64_t *)field);
    return isnan(*(const double *)field) ? json_null() : kvg_json_number(*(const double *)field);
}

static json_t *json_samples(const struct kvg_row *row)
{
    json_t *array = json_array();
    for (int64_t i = 0; array && i < row->n_samples_kept; i++) {
        float value = row->time_samples[i];
        if (json_array_append_new(array, isnan(value) ? json_null() : kvg_json_number((double)value))) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

/* One JSON document with one row per line, which suits diff and pagers. */
static int export_json(FILE *out, const struct kvg_results *results, const struct kvg_column *const *columns,
                       int64_t n, int with_samples)
{
    const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(17);
    json_t *run = kvg_json_facts(&results->run), *machine = kvg_json_facts(&results->machine);
    int failed = !run || !machine;
    if (!failed) {
        fputs("{\"run\":", out);
        failed = json_dumpf(run, out, flags);
        fputs(",\n\"machine\":", out);
        failed |= json_dumpf(machine, out, flags);
        fputs(",\n\"rows\":[", out);
    }
    for (int64_t r = 0; !failed && r < results->count; r++) {
        const struct kvg_row *row = &results->rows[r];
        json_t *object = json_object();
        for (int64_t c = 0; !failed && c < n; c++)
            failed = json_object_set_new(object, columns[c]->name, json_cell(row, columns[c]));
        if (!failed && with_samples && row->n_samples_kept > 0)
            failed = json_object_set_new(object, "time_samples", json_samples(row));
        fputs(r ? ",\n" : "\n", out);
        if (!failed)
            failed = json_dumpf(object, out, flags);
        json_decref(object);
    }
    fputs("]}\n", out);
    json_decref(run);
    json_decref(machine);
    return failed;
}

/* ---------------------------------------------------------------- any format */

int kvg_results_export(FILE *out, const struct kvg_results *results, enum kvg_export format,
                       const struct kvg_column *const *columns, int64_t n_columns, struct kvg_error *error)
{
    const struct kvg_column **all = NULL;
    int with_samples = columns == NULL;
    if (!columns) {
        all = calloc((size_t)kvg_columns_count, sizeof(*all));
        if (!all)
            return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
        for (int64_t c = 0; c < kvg_columns_count; c++)
            all[c] = &kvg_columns[c];
        columns = all;
        n_columns = kvg_columns_count;
    }
    int failed = 0;
    if (format == KVG_EXPORT_CSV || format == KVG_EXPORT_CSV_SAFE)
        export_csv(out, results, columns, n_columns, format == KVG_EXPORT_CSV_SAFE);
    else if (format == KVG_EXPORT_MARKDOWN)
        export_markdown(out, results, columns, n_columns);
    else
        failed = export_json(out, results, columns, n_columns, with_samples);
    free(all);
    errno = 0;
    if (fflush(out) || ferror(out))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "cannot write the export: %s",
                        strerror(errno ? errno : EIO));
    return failed ? kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory") : 0;
}
