/* SPDX-License-Identifier: Apache-2.0
 *
 * failure.c: the report on a failed row, at most 100 columns wide.
 */
#include "failure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "evidence.h"
#include "table_text.h"

enum { WIDTH = 100, INDENT = 14 };

int kvg_failure_unicode(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    const char *term = getenv("TERM");
    if (term && strcmp(term, "dumb") == 0)
        return 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return strcasestr(value, "UTF-8") || strcasestr(value, "UTF8");
    }
    return 0;
}

/* ---------------------------------------------------------------- pieces */

static void label(FILE *out, const char *text)
{
    fprintf(out, "    %-10s", text);
}

/* Words after a label, broken at the width. */
static void paragraph(FILE *out, const char *name, const char *text)
{
    label(out, name);
    kvg_text_wrap(out, text, INDENT, WIDTH);
    fputc('\n', out);
}

static const char *number(double x, char text[24])
{
    snprintf(text, 24, "%.5g", x);
    return isnan(x) ? "-" : text;
}

static const char *place_number(int64_t x, char text[24])
{
    snprintf(text, 24, "%lld", (long long)x);
    return x < 0 ? "-" : text;
}

/* A failed check of single elements, rows or groups: its worst error, and where that is. */
static void print_worst_place(FILE *out, const struct kvg_evidence_check *c)
{
    char text[4][24];
    fprintf(out, "%s", isnan(c->got) ? "NaN" : number(c->got, text[0]));
    if (!isnan(c->reference))
        fprintf(out, ", reference %s", number(c->reference, text[1]));
    if (!isnan(c->allowed))
        fprintf(out, " +- %s", number(c->allowed, text[2]));
    fprintf(out, "\n%*s%-9s ", INDENT, "", "");
    if (isfinite(c->ratio))
        fprintf(out, "%s times the allowed error, ", number(c->ratio, text[3]));
    fprintf(out, "at sequence %s query %s head %s dim %s\n", place_number(c->at.sequence, text[0]),
            place_number(c->at.query, text[1]), place_number(c->at.head, text[2]),
            place_number(c->at.dim, text[3]));
}

/* A failed check of the share that a class of keys has in the output. */
static void print_worst_class(FILE *out, const struct kvg_evidence_check *c)
{
    char text[3][24];
    fprintf(out, "keys of %s\n%*s%-9s off by %s of their share, allowed %s", c->where, INDENT, "", "",
            number(c->got, text[0]), number(c->allowed, text[1]));
    if (isfinite(c->ratio))
        fprintf(out, " (%s times)", number(c->ratio, text[2]));
    fputc('\n', out);
}

static void print_checks(FILE *out, const struct kvg_evidence *e)
{
    for (int i = 0; i < e->n_checks; i++) {
        const struct kvg_evidence_check *c = &e->checks[i];
        label(out, i == 0 ? "failed" : "");
        fprintf(out, "%-9s %lld of %lld, worst: ", c->name, (long long)c->failed, (long long)c->of);
        if (c->where[0])
            print_worst_class(out, c);
        else
            print_worst_place(out, c);
    }
}

static void print_worst(FILE *out, const struct kvg_evidence *e, int codes)
{
    char text[8][24];
    if (e->n_worst == 0)
        return;
    label(out, codes ? "some" : "worst");
    fprintf(out, "%8s %6s %5s %5s %12s %12s %11s %9s\n", "sequence", codes ? "token" : "query", "head", "dim",
            "output", "reference", "allowed", "times");
    for (int i = 0; i < e->n_worst; i++) {
        const struct kvg_evidence_element *w = &e->worst[i];
        label(out, "");
        fprintf(out, "%8s %6s %5s %5s %12s %12s %11s %9s\n", place_number(w->at.sequence, text[0]),
                place_number(w->at.query, text[1]), place_number(w->at.head, text[2]),
                place_number(w->at.dim, text[3]), isnan(w->got) ? "NaN" : number(w->got, text[4]),
                number(w->reference, text[5]), number(w->allowed, text[6]), number(w->ratio, text[7]));
    }
}

/* ---------------------------------------------------------------- the map */

static void print_cell(FILE *out, char level, const struct kvg_failure_style *style)
{
    static const char *const blocks[] = {"\u00b7", "\u2581", "\u2582", "\u2583", "\u2584",
                                         "\u2585", "\u2586", "\u2587", "\u2588", "\u2588"};
    const int bad = level != '-' && level != '0';
    if (style->colour && bad)
        fputs(level >= '4' ? "\033[31m" : "\033[33m", out);
    if (level == '-')
        fputc(' ', out);
    else if (level >= '0' && level <= '9' && style->unicode)
        fputs(blocks[level - '0'], out);
    else
        fputc(level == '0' ? '.' : level, out);
    if (style->colour && bad)
        fputs("\033[0m", out);
}

static int has_errors(const struct kvg_evidence_heat *heat)
{
    for (int i = 0; i < heat->down; i++)
        if (strpbrk(heat->cell[i], "123456789N"))
            return 1;
    return 0;
}

static void print_heat(FILE *out, const struct kvg_evidence_heat *heat, int codes,
                       const struct kvg_failure_style *style)
{
    const char *fine = style->unicode ? "\u00b7" : ".", *low = style->unicode ? "\u2581" : "1",
               *high = style->unicode ? "\u2588" : "9";
    if (!has_errors(heat))
        return;
    label(out, "where");
    fprintf(out, "map of %lld heads (down) and %s (across)\n", (long long)heat->heads, heat->across_words);
    label(out, "");
    if (codes)
        fprintf(out, "%s right, %s to %s share of wrong codes, blank not checked\n", fine, low, high);
    else
        fprintf(out,
                "%s within its bound, %s to %s from 1 to 256 times its bound, N NaN, blank not checked\n",
                fine, low, high);
    for (int i = 0; i < heat->down; i++) {
        const int64_t first = heat->heads * i / heat->down, last = heat->heads * (i + 1) / heat->down - 1;
        char name[48];
        if (last > first)
            snprintf(name, sizeof name, "%lld-%lld", (long long)first, (long long)last);
        else
            snprintf(name, sizeof name, "%lld", (long long)first);
        label(out, "");
        fprintf(out, "%7s  ", name);
        for (int j = 0; j < heat->across; j++)
            print_cell(out, heat->cell[i][j], style);
        fputc('\n', out);
    }
}

/* ---------------------------------------------------------------- the whole */

int kvg_failure_checks(const struct kvg_row *row, char *text, size_t size)
{
    struct kvg_evidence *e = malloc(sizeof *e);
    size_t used = 0;
    text[0] = '\0';
    if (e && kvg_evidence_from_text(row->evidence, e) == 0)
        for (int i = 0; i < e->n_checks && used < size; i++)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", e->checks[i].name);
    free(e);
    return used > 0;
}

void kvg_failure_print(FILE *out, const struct kvg_row *row, const struct kvg_failure_style *style)
{
    struct kvg_evidence *e = malloc(sizeof *e);
    if (e && kvg_evidence_from_text(row->evidence, e) == 0) {
        if (e->run[0])
            paragraph(out, "run", e->run);
        print_checks(out, e);
        print_worst(out, e, strcmp(row->phase, "store") == 0);
        if (e->dump[0]) {
            label(out, "dump");
            fprintf(out, "%s\n", e->dump);
        }
        print_heat(out, &e->heat, strcmp(row->phase, "store") == 0, style);
    }
    if (row->suspected[0]) {
        char text[1200];
        snprintf(text, sizeof text, "%s%s%s: %s", style->colour ? "\033[1m" : "", row->suspected,
                 style->colour ? "\033[0m" : "", row->suspicion);
        paragraph(out, "suspected", text);
    } else if (row->suspicion[0]) {
        paragraph(out, "suspected", row->suspicion);
    }
    free(e);
}
