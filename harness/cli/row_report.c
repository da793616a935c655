/* SPDX-License-Identifier: Apache-2.0
 *
 * row_report.c: see row_report.h. Names are those of the columns of a result file.
 */
#include "row_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "results/failure.h"
#include "results/table.h"

/* 0.00123 s -> "1.23 ms". */
static void with_prefix(double x, const char *unit, char *text, size_t size)
{
    static const struct {
        double factor;
        const char *prefix;
    } prefixes[] = {{1e12, "T"}, {1e9, "G"},  {1e6, "M"},  {1e3, "k"},
                    {1, ""},     {1e-3, "m"}, {1e-6, "u"}, {1e-9, "n"}};
    size_t n = sizeof prefixes / sizeof prefixes[0], i = 0;
    while (i + 1 < n && fabs(x) < prefixes[i].factor)
        i++;
    if (x == 0)
        snprintf(text, size, "0 %s", unit);
    else
        snprintf(text, size, "%.4g %s%s", x / prefixes[i].factor, prefixes[i].prefix, unit);
}

static void float_text(const struct kvg_column *column, double x, char *text, size_t size)
{
    if (strcmp(column->units, "percent") == 0)
        snprintf(text, size, "%.1f %%", x);
    else if (strcmp(column->units, "s") == 0)
        with_prefix(x, "s", text, size);
    else if (strcmp(column->units, "B/s") == 0)
        with_prefix(x, "B/s", text, size);
    else if (strcmp(column->units, "1/s") == 0)
        with_prefix(x, strstr(column->name, "flop") ? "FLOP/s" : "/s", text, size);
    else
        snprintf(text, size, strcmp(column->units, "B") == 0 ? "%.5g B" : "%.5g", x);
}

/* "" when the column holds no value. */
static void value_text(const struct kvg_row *row, const struct kvg_column *column, char *text, size_t size)
{
    const char *at = (const char *)row + column->offset;
    text[0] = '\0';
    if (column->type == KVG_COLUMN_STRING) {
        const char *value;
        memcpy(&value, at, sizeof value);
        snprintf(text, size, "%s", value);
    } else if (column->type == KVG_COLUMN_INT) {
        int64_t value;
        memcpy(&value, at, sizeof value);
        if (value != -1)
            snprintf(text, size, "%lld%s", (long long)value, strcmp(column->units, "B") == 0 ? " B" : "");
    } else {
        double value;
        memcpy(&value, at, sizeof value);
        if (!isnan(value))
            float_text(column, value, text, size);
    }
}

/* 1 for a column that the head of the report shows. */
static int is_told_already(const char *name)
{
    static const char *const told[] = {"status",    "reason",    "case_string", "attempt",
                                       "suspected", "suspicion", "evidence"};
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++)
        if (strcmp(name, told[i]) == 0)
            return 1;
    return 0;
}

/* 1 when the report has a line for the column; then `text` has its value. */
static int has_line(const struct kvg_row *row, const struct kvg_column *column, char *text, size_t size)
{
    value_text(row, column, text, size);
    return text[0] && !is_told_already(column->name);
}

/* Length of the longest name that has a line. */
static int name_width(const struct kvg_row *row)
{
    char text[2048];
    int width = 0;
    for (int64_t i = 0; i < kvg_columns_count; i++) {
        const int length = (int)strlen(kvg_columns[i].name);
        if (length > width && has_line(row, &kvg_columns[i], text, sizeof text))
            width = length;
    }
    return width;
}

void kvg_row_print_report(FILE *out, const struct kvg_row *row)
{
    char text[2048];
    const int width = name_width(row);
    const struct kvg_failure_style style = {.colour = kvg_wants_colour(out, -1),
                                            .unicode = kvg_failure_unicode()};
    fprintf(out, "%s%s%s\n%s\n\n", kvg_status_name((enum kvg_status)row->status), row->reason[0] ? ": " : "",
            row->reason, row->case_string);
    if (row->evidence[0] || row->suspicion[0]) {
        kvg_failure_print(out, row, &style);
        fputc('\n', out);
    }
    for (int64_t i = 0; i < kvg_columns_count; i++) {
        const struct kvg_column *column = &kvg_columns[i];
        if (!has_line(row, column, text, sizeof text))
            continue;
        if (column->type == KVG_COLUMN_STRING)
            fprintf(out, "  %-*s %s\n", width, column->name, text);
        else
            fprintf(out, "  %-*s %-17s %s\n", width, column->name, text, column->long_name);
    }
}
