/* SPDX-License-Identifier: Apache-2.0
 *
 * table_quality.c: the error that the format and its scales cause.
 *
 * The quantisation error does not depend on the kernel, because it compares the reference with itself. So
 * rows that differ only in kernel or page layout are averaged. The mean is geometric, because errors spread
 * over decades. The command under each part lists the rows. Only rows of the longest context are used; the
 * plots show the others.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "group.h"
#include "table_parts.h"

#define MAX_LAYERS 64
#define MAX_LINES 64
/* Lines within this factor count as equally good. A scale that clips nothing still decides how each value is
 * rounded. That alone changes the error, which a case averages over a few dozen query tokens, by 10 to 20 %
 * in either direction. Only a larger difference says something about the calibration. */
#define CLOSE 1.25
#define FAILS 1.5 /* scale 1.0 fails if its error is more than this many times that of calibrated scales */

/* One line of the table: a dtype, scheme and calibration, with its error in each layer. */
struct line {
    const struct kvg_row *row; /* names the line */
    double error[MAX_LAYERS];  /* geometric mean over the rows of a layer; NaN without rows */
    double mean;               /* geometric mean over the layers */
};

struct block {
    const struct kvg_row *row; /* names phase, path and input */
    int64_t context;
    int64_t layers[MAX_LAYERS];
    int n_layers;
    struct line lines[MAX_LINES];
    int n_lines;
    int64_t rows;
    double k_clipped, v_clipped; /* largest share over the rows with scale 1.0; NaN if unknown */
};

static int key_of_real(const struct kvg_row *row, char *text, size_t size)
{
    if (!kvg_has_context(row) || row->status != KVG_PASSED || !kvg_is_captured(row) ||
        !isfinite(row->quant_rel_l2) || strcmp(row->kv_cache_dtype, "auto") == 0)
        return 0;
    /* block | line | layer */
    snprintf(text, size, "%d%.20s %.12s %.64s|%d%.16s %d %d%.16s %d%.24s|%012lld", kvg_rank_phase(row->phase),
             row->phase, row->path, row->input, kvg_rank_dtype(row->kv_cache_dtype), row->kv_cache_dtype,
             strcmp(row->scheme, "per_tensor") != 0, kvg_rank_calibration(row->calibration), row->calibration,
             kvg_rank_observer(row->observer), row->observer, (long long)row->layer);
    return 1;
}

static int layer_index(struct block *b, int64_t layer)
{
    int i = 0;
    while (i < b->n_layers && b->layers[i] < layer)
        i++;
    if (i < b->n_layers && b->layers[i] == layer)
        return i;
    return -1;
}

static void collect_layers(struct block *b, const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    for (int64_t p = begin; p < end; p++) {
        int64_t layer = picks->picks[p].row->layer;
        if (picks->picks[p].row->context != b->context || layer_index(b, layer) >= 0 ||
            b->n_layers == MAX_LAYERS)
            continue;
        int at = b->n_layers++;
        for (; at > 0 && b->layers[at - 1] > layer; at--)
            b->layers[at] = b->layers[at - 1];
        b->layers[at] = layer;
    }
}

static void note_clipping(struct block *b, const struct kvg_row *row)
{
    if (strcmp(row->calibration, "none") != 0)
        return;
    b->k_clipped = fmax(b->k_clipped, row->k_saturated);
    b->v_clipped = fmax(b->v_clipped, row->v_saturated);
}

/* Takes the rows of one line; the errors of a layer are averaged. */
static void fill_line(struct block *b, struct line *line, const struct kvg_picks *picks, int64_t begin,
                      int64_t end)
{
    double sum[MAX_LAYERS] = {0};
    int64_t n[MAX_LAYERS] = {0};
    line->row = picks->picks[begin].row;
    for (int64_t p = begin; p < end; p++) {
        const struct kvg_row *row = picks->picks[p].row;
        int layer = row->context == b->context ? layer_index(b, row->layer) : -1;
        if (layer < 0)
            continue;
        sum[layer] += log(row->quant_rel_l2);
        n[layer]++;
        b->rows++;
        note_clipping(b, row);
    }
    for (int i = 0; i < b->n_layers; i++)
        line->error[i] = n[i] ? exp(sum[i] / (double)n[i]) : NAN;
    line->mean = kvg_geometric_mean(line->error, b->n_layers);
}

static void fill_block(struct block *b, const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    memset(b, 0, sizeof(*b));
    b->row = picks->picks[begin].row;
    b->k_clipped = b->v_clipped = NAN;
    for (int64_t p = begin; p < end; p++)
        if (picks->picks[p].row->context > b->context)
            b->context = picks->picks[p].row->context;
    collect_layers(b, picks, begin, end);
    for (int64_t at = begin, next; at < end && b->n_lines < MAX_LINES; at = next) {
        next = kvg_group_end(picks, at, kvg_key_prefix(picks->picks[at].key, 2));
        struct line *line = &b->lines[b->n_lines];
        fill_line(b, line, picks, at, next);
        b->n_lines += isfinite(line->mean); /* a line may have no row at this context */
    }
}

static void print_block(struct kvg_table *t, const struct block *b)
{
    int wide = 12, shown, unoffered = 0;
    char label[64], cell[KVG_CELL];
    for (int i = 0; i < b->n_lines; i++) {
        kvg_calibration_label(b->lines[i].row, label, sizeof(label));
        wide = (int)strlen(label) > wide ? (int)strlen(label) : wide;
    }
    shown = (t->width - 2 - 13 - 11 - wide - 10 - 2) / 8;
    shown = shown < 1 ? 1 : b->n_layers < shown ? b->n_layers : shown;
    kvg_table_say(t, "%s, path %s, input %s, context %lld; relative L2 error in percent", b->row->phase,
                  b->row->path, b->row->input, (long long)b->context);
    fprintf(t->out, "  %-13s%-11s%-*s", "dtype", "scheme", wide, "calibration");
    for (int i = 0; i < shown; i++) /* the first, the last, and evenly spaced layers between */
        fprintf(t->out, " layer%2lld",
                (long long)b->layers[shown > 1 ? i * (b->n_layers - 1) / (shown - 1) : 0]);
    fprintf(t->out, "%10s\n", "mean");
    for (int l = 0; l < b->n_lines; l++) {
        const struct line *line = &b->lines[l];
        kvg_calibration_label(line->row, label, sizeof(label));
        fprintf(t->out, "  %-13s%-11s%-*s", line->row->kv_cache_dtype, line->row->scheme, wide, label);
        for (int i = 0; i < shown; i++) {
            int layer = shown > 1 ? i * (b->n_layers - 1) / (shown - 1) : 0;
            kvg_put_cell(t->out, 8, kvg_cell_digits(100.0 * line->error[layer], 3, cell));
        }
        int starred = line->row->offered_by_vllm == 0;
        unoffered |= starred;
        fprintf(t->out, "%10s%s\n", kvg_cell_digits(100.0 * line->mean, 3, cell), starred ? " *" : "");
    }
    fprintf(t->out, "  mean: geometric mean over %d layer%s, from %lld row%s.%s\n", b->n_layers,
            b->n_layers == 1 ? "" : "s", (long long)b->rows, b->rows == 1 ? "" : "s",
            unoffered ? " *: not offered by vLLM." : "");
}

static const struct line *find_line(const struct block *b, const char *dtype, const char *scheme,
                                    const struct kvg_row *like)
{
    for (int i = 0; i < b->n_lines; i++) {
        const struct kvg_row *row = b->lines[i].row;
        if (strcmp(row->kv_cache_dtype, dtype) == 0 && strcmp(row->scheme, scheme) == 0 &&
            strcmp(row->calibration, like->calibration) == 0 && strcmp(row->observer, like->observer) == 0)
            return &b->lines[i];
    }
    return NULL;
}

/* Says whether the calibrations of one dtype and scheme differ. The lines of such a group are neighbours. */
static void say_calibrations(struct kvg_table *t, const struct block *b)
{
    double widest = 1.0;
    int groups = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int begin = 0, end; begin < b->n_lines; begin = end) {
            const struct line *best = &b->lines[begin], *worst = best;
            const struct kvg_row *row = best->row;
            for (end = begin;
                 end < b->n_lines && strcmp(b->lines[end].row->kv_cache_dtype, row->kv_cache_dtype) == 0 &&
                 strcmp(b->lines[end].row->scheme, row->scheme) == 0;
                 end++) {
                best = b->lines[end].mean < best->mean ? &b->lines[end] : best;
                worst = b->lines[end].mean > worst->mean ? &b->lines[end] : worst;
            }
            double ratio = worst->mean / best->mean;
            if (pass == 0) {
                widest = fmax(widest, ratio);
                groups += end - begin > 1;
            } else if (ratio >= CLOSE) {
                char c[3][KVG_CELL], good[64], bad[64];
                kvg_calibration_label(best->row, good, sizeof(good));
                kvg_calibration_label(worst->row, bad, sizeof(bad));
                kvg_table_say(t,
                              "%s %s: %s has the smallest error (%s %%), %s the largest (%s %%, %s times as "
                              "large).",
                              row->kv_cache_dtype, row->scheme, good,
                              kvg_cell_digits(100 * best->mean, 3, c[0]), bad,
                              kvg_cell_digits(100 * worst->mean, 3, c[1]), kvg_cell_digits(ratio, 3, c[2]));
            }
        }
        if (groups == 0)
            return;
        if (pass == 0 && widest < CLOSE) {
            kvg_table_say(
                t,
                "The calibrations of a dtype and scheme differ by at most %.1f %%: while values stay in "
                "range, the scale hardly matters.",
                100.0 * (widest - 1.0));
            return;
        }
    }
}

/* "A has 0.96 times the error of B", given the ratios of lines that differ in nothing else. */
static void say_ratio(struct kvg_table *t, const char *a, const char *b, const double *ratios, int n)
{
    if (n == 0)
        return;
    double ratio = kvg_geometric_mean(ratios, n);
    char c[KVG_CELL], meaning[64] = "";
    if (fabs(ratio - 1.0) < 0.005)
        snprintf(meaning, sizeof(meaning), " (equal within 0.5 %%)");
    else if (fabs(ratio - 1.0) < 0.5)
        snprintf(meaning, sizeof(meaning), " (%.*f %% %s)", fabs(ratio - 1.0) < 0.1 ? 1 : 0,
                 100.0 * fabs(ratio - 1.0), ratio < 1.0 ? "less" : "more");
    kvg_table_say(t, "%s has %s times the error of %s%s, geometric mean of %d pair%s of lines.", a,
                  kvg_cell_digits(ratio, 3, c), b, meaning, n, n == 1 ? "" : "s");
}

static void say_schemes_and_formats(struct kvg_table *t, const struct block *b)
{
    double heads[MAX_LINES], formats[MAX_LINES];
    int n_heads = 0, n_formats = 0;
    for (int i = 0; i < b->n_lines; i++) {
        const struct kvg_row *row = b->lines[i].row;
        const struct line *other;
        if (strcmp(row->scheme, "per_head") == 0 &&
            (other = find_line(b, row->kv_cache_dtype, "per_tensor", row)))
            heads[n_heads++] = b->lines[i].mean / other->mean;
        if (strcmp(row->kv_cache_dtype, "fp8_e5m2") == 0 &&
            (other = find_line(b, "fp8_e4m3", row->scheme, row)))
            formats[n_formats++] = b->lines[i].mean / other->mean;
    }
    say_ratio(t, "per_head", "per_tensor", heads, n_heads);
    say_ratio(t, "fp8_e5m2", "fp8_e4m3", formats, n_formats);
}

static void say_clipping(struct kvg_table *t, const struct block *b)
{
    if (isnan(b->k_clipped) && isnan(b->v_clipped))
        return;
    double k = isnan(b->k_clipped) ? 0.0 : b->k_clipped, v = isnan(b->v_clipped) ? 0.0 : b->v_clipped;
    char c[2][KVG_CELL];
    if (k <= 0.0 && v <= 0.0)
        kvg_table_say(t, "Scale 1.0 (calibration none) clips no value of K or V.");
    else
        kvg_table_say(t, "Scale 1.0 (calibration none) clips up to %s %% of the values of K and %s %% of V.",
                      kvg_cell_digits(100 * k, 2, c[0]), kvg_cell_digits(100 * v, 2, c[1]));
}

/* Compares the same lines on both paths: the difference is the error of quantising Q. */
static void say_paths(struct kvg_table *t, const struct block *fp8, const struct block *dequant)
{
    double ratios[MAX_LINES];
    int n = 0;
    for (int i = 0; i < fp8->n_lines; i++) {
        const struct kvg_row *row = fp8->lines[i].row;
        const struct line *other = find_line(dequant, row->kv_cache_dtype, row->scheme, row);
        if (other)
            ratios[n++] = fp8->lines[i].mean / other->mean;
    }
    say_ratio(t, "Path fp8, which also quantises Q,", "path dequant", ratios, n);
}

static int same_task(const struct block *a, const struct block *b)
{
    return strcmp(a->row->phase, b->row->phase) == 0 && strcmp(a->row->input, b->row->input) == 0 &&
           a->context == b->context;
}

int kvg_table_real_quality(struct kvg_table *t)
{
    struct kvg_picks picks;
    struct block *blocks = calloc(2, sizeof(*blocks)), *now = blocks, *before = blocks ? &blocks[1] : NULL;
    if (!blocks || kvg_pick_rows(t->results, key_of_real, &picks)) {
        free(blocks);
        return -1;
    }
    if (picks.count > 0)
        kvg_table_heading(t, "Quantisation error on real tensors, by calibration");
    for (int64_t begin = 0, end; begin < picks.count; begin = end) {
        end = kvg_group_end(&picks, begin, kvg_key_prefix(picks.picks[begin].key, 1));
        fill_block(now, &picks, begin, end);
        if (begin > 0)
            fputc('\n', t->out);
        print_block(t, now);
        say_calibrations(t, now);
        say_schemes_and_formats(t, now);
        say_clipping(t, now);
        if (begin > 0 && same_task(now, before) && strcmp(now->row->path, "fp8") == 0)
            say_paths(t, now, before);
        kvg_table_trace(t, "phase=%s path=%s kv_cache_dtype=fp8.* input=%s .*context=%lld ", now->row->phase,
                        now->row->path, now->row->input, (long long)now->context);
        struct block *swap = now;
        now = before;
        before = swap;
    }
    kvg_picks_free(&picks);
    free(blocks);
    return 0;
}

/* ---------------------------------------------------------------- synthetic input */

static int key_of_synthetic(const struct kvg_row *row, char *text, size_t size)
{
    if (!kvg_has_context(row) || row->status != KVG_PASSED || kvg_is_captured(row) ||
        !isfinite(row->quant_rel_l2) || strcmp(row->kv_cache_dtype, "auto") == 0)
        return 0;
    snprintf(text, size, "%d%.20s %.12s %d%.16s %d|%.64s|%d", kvg_rank_phase(row->phase), row->phase,
             row->path, kvg_rank_dtype(row->kv_cache_dtype), row->kv_cache_dtype,
             strcmp(row->scheme, "per_tensor") != 0, row->input, kvg_rank_calibration(row->calibration));
    return 1;
}

/* The error of one input with scale 1.0 and with calibrated scales. */
struct effect {
    const char *input;
    double error[3]; /* none, random_tokens, dataset; geometric means over rows */
    double k_clipped, v_clipped, k_flushed, v_flushed; /* largest shares with scale 1.0 */
};

static void fill_effect(struct effect *e, const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    double sum[3] = {0};
    int64_t n[3] = {0};
    e->input = picks->picks[begin].row->input;
    e->k_clipped = e->v_clipped = e->k_flushed = e->v_flushed = NAN;
    for (int64_t p = begin; p < end; p++) {
        const struct kvg_row *row = picks->picks[p].row;
        int c = kvg_rank_calibration(row->calibration);
        if (c > 2)
            continue;
        sum[c] += log(row->quant_rel_l2);
        n[c]++;
        if (c != 0)
            continue;
        e->k_clipped = fmax(e->k_clipped, row->k_saturated);
        e->v_clipped = fmax(e->v_clipped, row->v_saturated);
        e->k_flushed = fmax(e->k_flushed, row->k_flushed);
        e->v_flushed = fmax(e->v_flushed, row->v_flushed);
    }
    for (int c = 0; c < 3; c++)
        e->error[c] = n[c] ? exp(sum[c] / (double)n[c]) : NAN;
}

static double times_worse(const struct effect *e)
{
    return e->error[0] / fmin(e->error[1], e->error[2]); /* fmin ignores a NaN */
}

/* A larger error alone does not show that scale 1.0 fails: where one key has all the weight (needle), the
 * error is that of a single row of V, and depends on chance. Values must be lost too. A few clipped values
 * are enough, because they are the largest; of values flushed to zero it takes many. */
static int loses_values(const struct effect *e)
{
    return fmax(e->k_clipped, e->v_clipped) > 1e-5 || fmax(e->k_flushed, e->v_flushed) > 1e-2;
}

static void print_effects(struct kvg_table *t, const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    const struct kvg_row *row = picks->picks[begin].row;
    char names[512] = "", regex[400] = "";
    int inputs = 0, failing = 0;
    /* Widths: name of the input, errors of three calibrations, four shares. */
    static const int usual[8] = {20, 10, 15, 10, 11, 8, 10, 8}, tight[8] = {16, 7, 14, 8, 8, 8, 9, 8};
    const int *w = t->width < 2 + 20 + 10 + 15 + 10 + 11 + 8 + 10 + 8 ? tight : usual;
    kvg_table_say(t, "%s, path %s, %s %s; quantisation error and shares of values, in percent", row->phase,
                  row->path, row->kv_cache_dtype, row->scheme);
    fprintf(t->out, "  %-*s%*s%*s%*s\n", w[0], "", w[1] + w[2], "error by calibration", w[3] + w[4] + w[5],
            "clipped by 1.0", w[6] + w[7], "flushed by 1.0");
    fprintf(t->out, "  %-*s%*s%*s%*s%*s%*s%*s%*s\n", w[0], "input", w[1], "none", w[2], "random_tokens", w[3],
            "dataset", w[4], "K", w[5], "V", w[6], "K", w[7], "V");
    for (int64_t at = begin, next; at < end; at = next) {
        struct effect e;
        char c[KVG_CELL];
        next = kvg_group_end(picks, at, kvg_key_prefix(picks->picks[at].key, 2));
        fill_effect(&e, picks, at, next);
        snprintf(regex + strlen(regex), sizeof(regex) - strlen(regex), "%s%s", *regex ? "|" : "", e.input);
        const double values[7] = {e.error[0],  e.error[1],  e.error[2], e.k_clipped,
                                  e.v_clipped, e.k_flushed, e.v_flushed};
        fputs("  ", t->out);
        kvg_put_cell(t->out, -w[0], e.input);
        for (int i = 0; i < 7; i++)
            kvg_put_cell(t->out, w[1 + i], kvg_cell_digits(100 * values[i], i < 3 ? 3 : 2, c));
        fputc('\n', t->out);
        inputs += isfinite(times_worse(&e));
        if (times_worse(&e) > FAILS && loses_values(&e)) {
            size_t used = strlen(names);
            snprintf(names + used, sizeof(names) - used, "%s%s %s times", failing++ ? ", " : "", e.input,
                     kvg_cell_digits(times_worse(&e), 3, c));
        }
    }
    if (failing)
        kvg_table_say(
            t,
            "Scale 1.0 loses values on %d of %d inputs that can be compared. Its error is larger than with "
            "calibrated scales: %s.",
            failing, inputs, names);
    else if (inputs)
        kvg_table_say(t,
                      "Scale 1.0 loses values on none of the %d input%s that can be compared, or its error "
                      "is below %.1f "
                      "times that of calibrated scales.",
                      inputs, inputs == 1 ? "" : "s", FAILS);
    kvg_table_trace(t, "phase=%s path=%s kv_cache_dtype=%s scheme=%s .*input=(%s) ", row->phase, row->path,
                    row->kv_cache_dtype, row->scheme, regex);
}

/* Number of inputs of a block that were measured both with scale 1.0 and with a calibrated scale. A run with one
 * calibration has none, and shows its errors all the same. */
static int comparable_inputs(const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    int n = 0;
    for (int64_t at = begin, next; at < end; at = next) {
        struct effect e;
        next = kvg_group_end(picks, at, kvg_key_prefix(picks->picks[at].key, 2));
        fill_effect(&e, picks, at, next);
        n += isfinite(times_worse(&e));
    }
    return n;
}

int kvg_table_synthetic_quality(struct kvg_table *t)
{
    struct kvg_picks picks;
    if (kvg_pick_plain(t->results, key_of_synthetic, &picks))
        return -1;
    int most = 0, printed = 0, left_out = 0;
    for (int64_t begin = 0, end; begin < picks.count; begin = end) {
        end = kvg_group_end(&picks, begin, kvg_key_prefix(picks.picks[begin].key, 1));
        int n = comparable_inputs(&picks, begin, end);
        most = n > most ? n : most;
    }
    for (int64_t begin = 0, end; begin < picks.count; begin = end) {
        end = kvg_group_end(&picks, begin, kvg_key_prefix(picks.picks[begin].key, 1));
        int n = comparable_inputs(&picks, begin, end);
        if (n == 0 && most > 0)
            continue;
        if (!t->all && (printed || n < most)) { /* the block with the most inputs is enough */
            left_out++;
            continue;
        }
        if (!printed++)
            kvg_table_heading(t, most > 0 ? "Effect of scale 1.0 on synthetic inputs"
                                          : "Quantisation error on synthetic inputs");
        print_effects(t, &picks, begin, end);
    }
    if (left_out)
        kvg_table_say(t, "--all shows %d more combination%s of phase, path, dtype and scheme.", left_out,
                      left_out == 1 ? "" : "s");
    if (printed)
        kvg_table_say_left_out(t, &picks);
    kvg_picks_free(&picks);
    return 0;
}
