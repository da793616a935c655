/* SPDX-License-Identifier: Apache-2.0
 *
 * table_columns.c: chosen columns, numbers aligned to the right and text to the left.
 */
#include <stdlib.h>
#include <string.h>
#include "table.h"
#include "table_text.h"

static const char *cell(const struct kvg_row *row, const struct kvg_column *column, char number[KVG_CELL])
{
    const void *field = (const char *)row + column->offset;
    if (column->offset == offsetof(struct kvg_row, status))
        return kvg_status_name((enum kvg_status)row->status);
    if (column->type == KVG_COLUMN_STRING)
        return *(char *const *)field;
    if (column->type == KVG_COLUMN_FLOAT)
        return kvg_cell_digits(*(const double *)field, 5, number);
    snprintf(number, KVG_CELL, "%lld", (long long)*(const int64_t *)field);
    return number;
}

static void put(FILE *out, const char *text, int width, int left, int last)
{
    int pad = width - kvg_text_width(text);
    if (!left)
        fprintf(out, "%*s", pad > 0 ? pad : 0, "");
    for (; *text; text++)
        fputc(*text == '\n' || *text == '\t' ? ' ' : *text, out);
    if (left && !last)
        fprintf(out, "%*s", pad > 0 ? pad : 0, "");
    fputs(last ? "\n" : "  ", out);
}

int kvg_table_print_columns(FILE *out, const struct kvg_results *results,
                            const struct kvg_column *const *columns, int64_t n_columns)
{
    char number[KVG_CELL];
    int *widths = calloc((size_t)n_columns + 1, sizeof(*widths));
    if (!widths)
        return -1;
    for (int64_t c = 0; c < n_columns; c++) {
        widths[c] = kvg_text_width(columns[c]->name);
        for (int64_t r = 0; r < results->count; r++) {
            int width = kvg_text_width(cell(&results->rows[r], columns[c], number));
            widths[c] = width > widths[c] ? width : widths[c];
        }
    }
    for (int64_t r = -1; r < results->count; r++) {
        for (int64_t c = 0; c < n_columns; c++) {
            int left = columns[c]->type == KVG_COLUMN_STRING ||
                       columns[c]->offset == offsetof(struct kvg_row, status);
            put(out, r < 0 ? columns[c]->name : cell(&results->rows[r], columns[c], number), widths[c], left,
                c + 1 == n_columns);
        }
    }
    free(widths);
    return ferror(out) ? -1 : 0;
}
