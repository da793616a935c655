/* SPDX-License-Identifier: Apache-2.0
 *
 * figures_quality.c: the error that the format causes, against context and by layer.
 *
 * Rows that differ only in layer, kernel or page layout are one point: their geometric mean. Predictions (no
 * kernel ran) have lines of their own. The figures against context show plain attention (kvg_is_plain): a
 * window or a short context would bend their lines.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "figures.h"

#define MAX_CELLS 512

static void line_name(const struct kvg_row *row, char *text, size_t size)
{
    char calibration[64];
    kvg_calibration_label(row, calibration, sizeof(calibration));
    char *comma = strchr(calibration, ',');
    if (comma) /* "dataset, minmax" becomes "dataset/minmax", because a word has no blanks */
        memmove(comma, comma + 1, strlen(comma)), *comma = '/';
    snprintf(text, size, "%.20s/%.40s%s%.32s", row->scheme, calibration, row->prediction == 1 ? "/" : "",
             row->prediction == 1 ? row->accumulate : "");
}

static double positive(double value)
{
    return isfinite(value) && value > 0.0 ? value : NAN;
}

/* ---------------------------------------------------------------- error against context */

static int key_of_error(const struct kvg_row *row, char *text, size_t size)
{
    if (!kvg_has_context(row) || row->status != KVG_PASSED ||
        (!isfinite(row->quant_rel_l2) && !isfinite(row->kernel_rel_l2)))
        return 0;
    /* figure | scheme, calibration and predicted accumulator | dtype | context */
    snprintf(text, size, "%d%.20s %.12s %d%.64s|%d %d%.16s %d%.24s %09lld|%d%.16s|%012lld",
             kvg_rank_phase(row->phase), row->phase, row->path, !kvg_is_captured(row), row->input,
             strcmp(row->scheme, "per_tensor") != 0, kvg_rank_calibration(row->calibration), row->calibration,
             kvg_rank_observer(row->observer), row->observer, kvg_rank_accumulate(row),
             kvg_rank_dtype(row->kv_cache_dtype), row->kv_cache_dtype, (long long)row->context);
    return 1;
}

/* One line: a point per context, geometric means in percent. */
static void put_line(FILE *out, const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    for (int64_t at = begin, next; at < end; at = next) {
        next = kvg_group_end(picks, at, 0);
        double quant[MAX_CELLS], kernel[MAX_CELLS];
        int64_t n = 0;
        for (int64_t p = at; p < next && n < MAX_CELLS; p++, n++) {
            quant[n] = positive(picks->picks[p].row->quant_rel_l2);
            kernel[n] = positive(picks->picks[p].row->kernel_rel_l2);
        }
        fprintf(out, "%lld\t%.6g\t%.6g\n", (long long)picks->picks[at].row->context,
                100.0 * kvg_geometric_mean(quant, n), 100.0 * kvg_geometric_mean(kernel, n));
    }
}

/* First row of one dtype and line; *stop is behind its last row, and equal to the first if there is none. */
static int64_t find_line(const struct kvg_picks *picks, int64_t begin, int64_t end, const char *dtype,
                         const char *line, int64_t *stop)
{
    for (int64_t at = begin, next; at < end; at = next) {
        next = kvg_group_end(picks, at, kvg_key_prefix(picks->picks[at].key, 3));
        char name[96];
        line_name(picks->picks[at].row, name, sizeof(name));
        if (strcmp(picks->picks[at].row->kv_cache_dtype, dtype) == 0 && (!line || strcmp(name, line) == 0)) {
            *stop = next;
            return at;
        }
    }
    *stop = begin;
    return begin;
}

static void put_block(FILE *out, const struct kvg_picks *picks, int64_t begin, int64_t end, const char *dtype,
                      const char *line)
{
    int64_t stop, start = find_line(picks, begin, end, dtype, line, &stop);
    fprintf(out, "# %s %s: context, quantisation error, kernel error (relative L2, percent)\n", dtype,
            line ? line : "");
    if (start == stop)
        fputs("NaN\tNaN\tNaN\n", out);
    put_line(out, picks, start, stop);
    fputs("\n\n", out);
}

static int error_figure(struct plotter *p, const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    const struct kvg_row *row = picks->picks[begin].row;
    struct words dtypes = {.n = 0}, lines = {.n = 0};
    struct figure f = {0};
    int has_auto = 0;
    for (int64_t i = begin; i < end; i++) {
        const struct kvg_row *r = picks->picks[i].row;
        char name[96];
        if (strcmp(r->kv_cache_dtype, "auto") == 0) {
            has_auto = 1;
            continue;
        }
        line_name(r, name, sizeof(name));
        words_add(&lines, name, WORDS_MAX);
    }
    static const char *const order[] = {"fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz"};
    for (size_t d = 0; d < 3; d++) /* the panels always have this order */
        for (int64_t i = begin; i < end; i++)
            if (strcmp(picks->picks[i].row->kv_cache_dtype, order[d]) == 0)
                words_add(&dtypes, order[d], WORDS_MAX);
    if (dtypes.n == 0 || lines.n == 0)
        return 0;
    snprintf(f.name, sizeof(f.name), "error_%.64s_%.20s_%.12s", row->input, row->phase, row->path);
    snprintf(f.title, sizeof(f.title), "Error against context: %.20s, path %.12s, input %.64s", row->phase,
             row->path, row->input);
    snprintf(f.detail, sizeof(f.detail), "relative L2 in percent%s",
             kvg_is_captured(row) ? ", geometric mean over the layers" : "");
    if (figure_begin(p, &f))
        return -1;
    for (int d = 0; d < dtypes.n; d++) {
        figure_add_word(f.extra[0], sizeof(f.extra[0]), dtypes.text[d]);
        for (int l = 0; l < lines.n; l++)
            put_block(f.data, picks, begin, end, dtypes.text[d], lines.text[l]);
    }
    for (int l = 0; l < lines.n; l++)
        figure_add_word(f.series, sizeof(f.series), lines.text[l]);
    if (has_auto)
        put_block(f.data, picks, begin, end, "auto", NULL);
    snprintf(f.extra[1], sizeof(f.extra[1]), "%d", has_auto);
    return figure_end(p, &f, "error.gp");
}

int draw_error(struct plotter *p)
{
    struct kvg_picks picks;
    int failed = kvg_pick_plain(p->results, key_of_error, &picks);
    int64_t drawn = 0, single = 0, before = p->figures;
    if (failed)
        return kvg_fail(p->error, KVG_EXIT_TROUBLE, "out of memory");
    for (int64_t begin = 0, end; !failed && begin < picks.count; begin = end) {
        end = kvg_group_end(&picks, begin, kvg_key_prefix(picks.picks[begin].key, 1));
        if (strcmp(picks.picks[begin].row->phase, "store") == 0)
            continue;
        if (count_contexts(&picks, begin, end) > 1)
            failed = error_figure(p, &picks, begin, end);
        else
            single++;
        drawn = p->figures - before;
    }
    kvg_picks_free(&picks);
    char why[120];
    snprintf(why, sizeof(why), "%lld group%s of rows with a single context", (long long)single,
             single == 1 ? "" : "s");
    if (!failed && single)
        figure_left_out(p, "error", why);
    else if (!failed && !drawn)
        figure_left_out(p, "error", "no passed row with an FP8 dtype");
    return failed;
}

/* ---------------------------------------------------------------- heat map */

static int key_of_heat(const struct kvg_row *row, char *text, size_t size)
{
    if (!kvg_has_context(row) || row->status != KVG_PASSED || !kvg_is_captured(row) ||
        !isfinite(row->quant_rel_l2) || strcmp(row->kv_cache_dtype, "auto") == 0)
        return 0;
    /* figure | line | dtype | layer */
    snprintf(text, size, "%d%.20s %.12s %.64s|%d %d%.16s %d%.24s|%d%.16s|%012lld", kvg_rank_phase(row->phase),
             row->phase, row->path, row->input, strcmp(row->scheme, "per_tensor") != 0,
             kvg_rank_calibration(row->calibration), row->calibration, kvg_rank_observer(row->observer),
             row->observer, kvg_rank_dtype(row->kv_cache_dtype), row->kv_cache_dtype, (long long)row->layer);
    return 1;
}

/* Cells of one dtype: layer, line, error in percent; NaN without a row. */
static void put_cells(FILE *out, const struct kvg_picks *picks, int64_t begin, int64_t end, int64_t context,
                      const char *dtype, const struct words *lines, const struct words *layers)
{
    fprintf(
        out,
        "# %s: layer (column), scheme and calibration (line), quantisation error (relative L2, percent)\n",
        dtype);
    for (int l = 0; l < lines->n; l++) {
        for (int y = 0; y < layers->n; y++) {
            double values[MAX_CELLS];
            int64_t n = 0;
            for (int64_t i = begin; i < end && n < MAX_CELLS; i++) {
                const struct kvg_row *row = picks->picks[i].row;
                char name[96], layer[24];
                line_name(row, name, sizeof(name));
                snprintf(layer, sizeof(layer), "%lld", (long long)row->layer);
                if (row->context == context && strcmp(row->kv_cache_dtype, dtype) == 0 &&
                    strcmp(name, lines->text[l]) == 0 && strcmp(layer, layers->text[y]) == 0)
                    values[n++] = row->quant_rel_l2;
            }
            fprintf(out, "%d\t%d\t%.6g\n", y, l, 100.0 * kvg_geometric_mean(values, n));
        }
    }
    fputs("\n\n", out);
}

static int by_number(const void *a, const void *b)
{
    return atoi(a) - atoi(b);
}

static int heat_figure(struct plotter *p, const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    const struct kvg_row *row = picks->picks[begin].row;
    struct words dtypes = {.n = 0}, lines = {.n = 0}, layers = {.n = 0};
    struct figure f = {0};
    int64_t context = 0;
    for (int64_t i = begin; i < end; i++)
        context = picks->picks[i].row->context > context ? picks->picks[i].row->context : context;
    for (int64_t i = begin; i < end; i++) {
        const struct kvg_row *r = picks->picks[i].row;
        char name[96], layer[24];
        if (r->context != context)
            continue;
        line_name(r, name, sizeof(name));
        snprintf(layer, sizeof(layer), "%lld", (long long)r->layer);
        words_add(&lines, name, WORDS_MAX);
        words_add(&layers, layer, WORDS_MAX);
        words_add(&dtypes, r->kv_cache_dtype, WORDS_MAX);
    }
    if (dtypes.n * lines.n * layers.n < 2) /* a single number needs no map */
        return 0;
    qsort(layers.text, (size_t)layers.n, sizeof(layers.text[0]), by_number);
    snprintf(f.name, sizeof(f.name), "heatmap_%.64s_%.20s_%.12s", row->input, row->phase, row->path);
    snprintf(f.title, sizeof(f.title), "Quantisation error by layer: %.64s, %.20s, path %.12s, context %lld",
             row->input, row->phase, row->path, (long long)context);
    snprintf(f.detail, sizeof(f.detail),
             "relative L2 in percent, against the reference on unquantised tensors");
    if (figure_begin(p, &f))
        return -1;
    for (int d = 0; d < dtypes.n; d++) {
        figure_add_word(f.extra[0], sizeof(f.extra[0]), dtypes.text[d]);
        put_cells(f.data, picks, begin, end, context, dtypes.text[d], &lines, &layers);
    }
    for (int l = 0; l < lines.n; l++)
        figure_add_word(f.series, sizeof(f.series), lines.text[l]);
    for (int y = 0; y < layers.n; y++)
        figure_add_word(f.extra[1], sizeof(f.extra[1]), layers.text[y]);
    return figure_end(p, &f, "heatmap.gp");
}

int draw_heatmap(struct plotter *p)
{
    struct kvg_picks picks;
    int64_t single = 0;
    int failed = kvg_pick_rows(p->results, key_of_heat, &picks);
    if (failed)
        return kvg_fail(p->error, KVG_EXIT_TROUBLE, "out of memory");
    if (picks.count == 0)
        figure_left_out(p, "heatmap", "no passed row with a captured input and an FP8 dtype");
    for (int64_t begin = 0, end; !failed && begin < picks.count; begin = end) {
        end = kvg_group_end(&picks, begin, kvg_key_prefix(picks.picks[begin].key, 1));
        int64_t before = p->figures;
        failed = heat_figure(p, &picks, begin, end);
        single += p->figures == before;
    }
    char why[120];
    snprintf(why, sizeof(why), "%lld group%s of rows with a single cell", (long long)single,
             single == 1 ? "" : "s");
    if (!failed && single)
        figure_left_out(p, "heatmap", why);
    kvg_picks_free(&picks);
    return failed;
}
