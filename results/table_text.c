/* SPDX-License-Identifier: Apache-2.0
 *
 * table_text.c: headings, paragraphs and cells of the table.
 */
#include "table_text.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

/* ---------------------------------------------------------------- words and numbers */

/* Bytes that continue a UTF-8 character take no column. */
static int width_of(const char *text, size_t length)
{
    int width = 0;
    for (size_t i = 0; i < length; i++)
        width += ((unsigned char)text[i] & 0xc0) != 0x80;
    return width;
}

int kvg_text_width(const char *text)
{
    return width_of(text, strlen(text));
}

const char *kvg_cell_fixed(double value, int decimals, char text[KVG_CELL])
{
    if (isnan(value))
        snprintf(text, KVG_CELL, "-");
    else if (isinf(value) || fabs(value) >= 1e9)
        snprintf(text, KVG_CELL, "%.3g", value);
    else
        snprintf(text, KVG_CELL, "%.*f", decimals, value);
    return text;
}

const char *kvg_cell_digits(double value, int digits, char text[KVG_CELL])
{
    if (!isfinite(value) || value == 0.0)
        return kvg_cell_fixed(value, 0, text);
    int before = (int)floor(log10(fabs(value))) + 1;
    if (before < -3 || before > 9) {
        snprintf(text, KVG_CELL, "%.*e", digits - 1, value);
        return text;
    }
    return kvg_cell_fixed(value, before < digits ? digits - before : 0, text);
}

const char *kvg_cell_time(double seconds, char text[KVG_CELL])
{
    static const struct {
        double unit;
        const char *name;
    } units[] = {{1.0, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
    if (!isfinite(seconds) || seconds <= 0.0)
        return kvg_cell_fixed(seconds, 0, text);
    int u = 0;
    while (u < 3 && seconds < units[u].unit * 0.9995)
        u++;
    char number[KVG_CELL];
    kvg_cell_digits(seconds / units[u].unit, 3, number);
    snprintf(text, KVG_CELL, "%.18s %s", number, units[u].name);
    return text;
}

void kvg_put_cell(FILE *out, int width, const char *text)
{
    const int room = width < 0 ? -width : width, pad = room - kvg_text_width(text);
    if (width == 0)
        return;
    if (width > 0)
        fprintf(out, "%*s", pad > 0 ? pad : 1, "");
    fputs(text, out);
    if (width < 0)
        fprintf(out, "%*s", pad > 0 ? pad : 1, "");
}

const char *kvg_fit_name(const char *name, int width, char text[64])
{
    int length = (int)strlen(name);
    if (length <= width)
        snprintf(text, 64, "%s", name);
    else
        snprintf(text, 64, "%.*s..%s", width / 2 - 1, name, name + length - (width - width / 2 - 1));
    return text;
}

int kvg_dtype_width(const struct kvg_results *results)
{
    for (int64_t i = 0; i < results->count; i++)
        if (strlen(results->rows[i].kv_cache_dtype) > 8)
            return 13;
    return 9;
}

const char *kvg_cell_case(const struct kvg_row *row, char text[KVG_CELL])
{
    snprintf(text, KVG_CELL, "%.8s", row->case_id);
    return text;
}

/* ---------------------------------------------------------------- headings and paragraphs */

void kvg_table_heading(struct kvg_table *t, const char *title)
{
    t->section++;
    fprintf(t->out, "\n%s%d. ", t->colour ? "\033[1m" : "", t->section);
    kvg_text_wrap(t->out, title, 3, t->width);
    fprintf(t->out, "%s\n", t->colour ? "\033[0m" : "");
}

void kvg_text_wrap(FILE *out, const char *text, int indent, int width)
{
    int column = indent;
    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        const size_t length = strcspn(text, " ");
        const int word = width_of(text, length);
        if (column > indent && column + 1 + word > width) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        }
        fprintf(out, "%s%.*s", column > indent ? " " : "", (int)length, text);
        column += (column > indent) + word;
        text += length;
    }
}

void kvg_table_say(struct kvg_table *t, const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fputs("  ", t->out);
    kvg_text_wrap(t->out, text, 2, t->width < KVG_USUAL_WIDTH ? t->width : KVG_USUAL_WIDTH);
    fputc('\n', t->out);
}

void kvg_table_say_left_out(struct kvg_table *t, const struct kvg_picks *picks)
{
    if (picks->left_out > 0)
        kvg_table_say(
            t,
            "%lld row%s left out: a window, a soft cap, another mask or softmax scale, or fewer than "
            "%d keys.",
            (long long)picks->left_out, picks->left_out == 1 ? " is" : "s are", KVG_PLAIN_CONTEXT);
}

void kvg_table_trace(struct kvg_table *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(t->out, "  rows: kvgauge show %s --all --filter '", t->path);
    vfprintf(t->out, format, arguments);
    fputs("'\n", t->out);
    va_end(arguments);
}
