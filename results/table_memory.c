/* SPDX-License-Identifier: Apache-2.0
 *
 * table_memory.c: the memory that the cache takes, and the errors of the kernels compared with their bounds.
 *
 * The memory is shown for plain attention (kvg_is_plain); where there is none, for each window and mask apart. The
 * errors are shown for every row.
 */
#include <math.h>
#include <string.h>
#include "group.h"
#include "table_parts.h"

#define MAX_SHAPES 4 /* shapes printed without --all */

/* ---------------------------------------------------------------- memory */

static int key_of_memory(const struct kvg_row *row, char *text, size_t size)
{
    if (!kvg_has_context(row) || row->status == KVG_SKIPPED || row->status == KVG_INVALID ||
        !isfinite(row->bytes_per_token) || row->batch < 1)
        return 0;
    /* shape | dtype and scheme | longest context first, single sequence first */
    snprintf(text, size, "%06lld %06lld %08lld|%d%.16s %d%.16s %lld %.24s|%020lld %06lld",
             (long long)row->kv_heads, (long long)row->head_dim, (long long)row->block_size,
             kvg_rank_dtype(row->kv_cache_dtype), row->kv_cache_dtype, strcmp(row->scheme, "per_tensor") != 0,
             row->scheme, (long long)(row->window > 0 ? row->window : 0),
             kvg_value_unless(row->mask, "causal"), (long long)(INT64_MAX - row->context),
             (long long)row->batch);
    return 1;
}

/* A narrow terminal has no room for the bytes of scales and the share of page tails. */
static int shows_details(const struct kvg_table *t)
{
    return t->width >= 2 + 12 + 8 + 2 + kvg_dtype_width(t->results) + 11 + 8 + 8 + 12 + 9 + 8 + 10;
}

/* What a row sees less or more than plain attention: "window 1024, mask chunked:8192". Empty where nothing. */
static const char *sight(const struct kvg_row *row, char *text, size_t size)
{
    const char *mask = kvg_value_unless(row->mask, "causal");
    char window[40] = "";
    if (row->window > 0)
        snprintf(window, sizeof window, "  window %lld", (long long)row->window);
    snprintf(text, size, "%s%s%.24s", window, mask[0] ? "  mask " : "", mask);
    return text;
}

static void print_memory_line(struct kvg_table *t, const struct kvg_row *row)
{
    char c[5][KVG_CELL], shape[48], seen[80];
    double total = (double)row->kv_cache_bytes + (double)row->waste_bytes;
    snprintf(shape, sizeof(shape), "%lld x %lld, %lld", (long long)row->kv_heads, (long long)row->head_dim,
             (long long)row->block_size);
    fprintf(t->out, "  %-12s%8lld  %-*s%-11s", shape, (long long)row->context, kvg_dtype_width(t->results),
            row->kv_cache_dtype, row->scheme);
    kvg_put_cell(t->out, 8, kvg_cell_digits(row->bytes_per_token, 5, c[0]));
    kvg_put_cell(t->out, 8, kvg_cell_fixed(row->bytes_vs_bf16, 3, c[1]));
    kvg_put_cell(t->out, shows_details(t) ? 12 : 11, kvg_cell_fixed(row->tokens_per_gib, 0, c[2]));
    if (shows_details(t)) {
        fprintf(t->out, " %8lld", (long long)row->scale_bytes);
        kvg_put_cell(t->out, 8,
                     kvg_cell_fixed(total > 0 ? 100.0 * (double)row->waste_bytes / total : NAN, 1, c[3]));
    }
    fprintf(t->out, "%s%s%s\n", shows_details(t) ? "  " : " ", kvg_cell_case(row, c[4]),
            sight(row, seen, sizeof seen));
}

int kvg_table_memory(struct kvg_table *t)
{
    struct kvg_picks picks;
    double ratio_min = NAN, ratio_max = NAN;
    int64_t shapes = 0, left_out = 0;
    if (kvg_pick_plain(t->results, key_of_memory, &picks))
        return -1;
    if (picks.count > 0) {
        kvg_table_heading(t, "Memory of one layer's K and V, at the longest context measured");
        fprintf(t->out, "  %-12s%8s  %-*s%-11s%8s%8s%*s%s%s\n", "heads, page", "context",
                kvg_dtype_width(t->results), "dtype", "scheme", "B/token", "vs bf16",
                shows_details(t) ? 12 : 11, "tokens/GiB", shows_details(t) ? " scales B tails %  " : " ",
                "case");
    }
    for (int64_t begin = 0, end; begin < picks.count; begin = end) {
        end = kvg_group_end(&picks, begin, kvg_key_prefix(picks.picks[begin].key, 1));
        shapes++;
        for (int64_t at = begin, next; at < end; at = next) {
            next = kvg_group_end(&picks, at, kvg_key_prefix(picks.picks[at].key, 2));
            const struct kvg_row *row = picks.picks[at].row;
            if (t->all || shapes <= MAX_SHAPES)
                print_memory_line(t, row);
            else
                left_out++;
            if (strcmp(row->kv_cache_dtype, "auto") != 0) {
                ratio_min = fmin(ratio_min, row->bytes_vs_bf16);
                ratio_max = fmax(ratio_max, row->bytes_vs_bf16);
            }
        }
    }
    if (left_out)
        kvg_table_say(t, "--all shows %lld more line%s of %lld other shape%s.", (long long)left_out,
                      left_out == 1 ? "" : "s", (long long)(shapes - MAX_SHAPES),
                      shapes == MAX_SHAPES + 1 ? "" : "s");
    if (picks.count > 0)
        kvg_table_say(t, "heads, page: KV heads x head_dim, tokens per page%s.",
                      shows_details(t)
                          ? "; scales B: bytes of scales; tails %: share of the slots that are allocated and "
                            "not used"
                          : "");
    kvg_table_say_left_out(t, &picks);
    char c[2][KVG_CELL], ratio[64];
    snprintf(ratio, sizeof(ratio), "%s to %s", kvg_cell_fixed(ratio_min, 3, c[0]),
             kvg_cell_fixed(ratio_max, 3, c[1]));
    if (isfinite(ratio_min))
        kvg_table_say(
            t,
            "FP8 takes %s times the bytes per token of bf16, including scales, page tails and block table.",
            strcmp(c[0], c[1]) == 0 ? c[0] : ratio);
    kvg_picks_free(&picks);
    return 0;
}

/* ---------------------------------------------------------------- correctness */

static int key_of_checked(const struct kvg_row *row, char *text, size_t size)
{
    if (row->n_checked <= 0 || row->prediction == 1) /* table_predict.c shows predictions */
        return 0;
    snprintf(text, size, "%d%.20s %.12s %.64s|", kvg_rank_phase(row->phase), row->phase, row->path,
             row->kernel);
    return 1;
}

struct record {
    int64_t cases, passed;
    double bound, probability, zero, gain_min, gain_max;
    const struct kvg_row *worst; /* the row with the largest bound ratio, or the last that did not pass */
};

enum { GAIN = 17 };
/* A narrow terminal has no room for the gains: the names of the kernels matter more. */
static int shows_gain(const struct kvg_table *t)
{
    return t->width >= 98;
}

/* Width of the column of kernels: as wide as the longest name, and no wider than the terminal allows. */
static int kernel_width(const struct kvg_table *t, const struct kvg_picks *picks)
{
    enum { OTHERS = 2 + 8 + 8 + 6 + 7 + 7 + 7 + 6 + 10, LEAST = 15 };
    int width = 22;
    for (int64_t i = 0; i < picks->count; i++) {
        const int length = (int)strlen(picks->picks[i].row->kernel) + 1;
        width = length > width ? length : width;
    }
    const int used = OTHERS + (shows_gain(t) ? GAIN : 0);
    const int room = t->width - used < LEAST ? LEAST : t->width - used;
    return width < room ? width : room;
}

static void note_row(struct record *r, const struct kvg_row *row)
{
    r->cases++;
    r->passed += row->status == KVG_PASSED;
    int worse = isnan(r->bound) || row->bound_ratio_max > r->bound;
    if (!r->worst || (isfinite(row->bound_ratio_max) ? worse : row->status != KVG_PASSED))
        r->worst = row;
    r->bound = fmax(r->bound, row->bound_ratio_max);
    r->probability = fmax(r->probability, row->prob_ratio_max);
    r->zero = fmin(r->zero, row->zero_ratio);
    r->gain_min = fmin(r->gain_min, row->gain_min);
    r->gain_max = fmax(r->gain_max, row->gain_max);
}

int kvg_table_correctness(struct kvg_table *t)
{
    struct kvg_picks picks;
    if (kvg_pick_rows(t->results, key_of_checked, &picks))
        return -1;
    const int wide = kernel_width(t, &picks);
    if (picks.count > 0) {
        kvg_table_heading(
            t, "Correctness of the kernels: largest ratio of error to bound (above 1 is incorrect)");
        fprintf(t->out, "  %-8s%-8s%-*s%6s%7s%7s%7s%*s%6s  %s\n", "phase", "path", wide, "kernel", "cases",
                "passed", "bound", "prob.", shows_gain(t) ? -GAIN : 0, shows_gain(t) ? "  gain" : "", "zero",
                "worst");
    }
    for (int64_t begin = 0, end; begin < picks.count; begin = end) {
        struct record r = {.bound = NAN, .probability = NAN, .zero = NAN, .gain_min = NAN, .gain_max = NAN};
        char c[6][KVG_CELL], gain[64] = "-", kernel[64];
        end = kvg_group_end(&picks, begin, 0);
        for (int64_t p = begin; p < end; p++)
            note_row(&r, picks.picks[p].row);
        const struct kvg_row *row = picks.picks[begin].row;
        if (isfinite(r.gain_min))
            snprintf(gain, sizeof(gain), "%s..%s", kvg_cell_fixed(r.gain_min, 4, c[0]),
                     kvg_cell_fixed(r.gain_max, 4, c[1]));
        fprintf(t->out, "  %-8s%-8s%-*s%6lld%7lld", row->phase, row->path, wide,
                kvg_fit_name(row->kernel, wide - 1, kernel), (long long)r.cases, (long long)r.passed);
        kvg_put_cell(t->out, 7, kvg_cell_digits(r.bound, 3, c[2]));
        kvg_put_cell(t->out, 7, kvg_cell_digits(r.probability, 3, c[3]));
        if (shows_gain(t))
            fprintf(t->out, "  %-15s", gain);
        kvg_put_cell(t->out, 6, kvg_cell_digits(r.zero, 3, c[4]));
        fprintf(t->out, "  %s\n", kvg_cell_case(r.worst, c[5]));
    }
    if (picks.count > 0) {
        kvg_table_say(
            t,
            "bound: worst-case bound; prob.: probabilistic bound; %szero: smallest ratio that an all-zero "
            "output would get (it must be well above 1); worst: case with the largest ratio.",
            shows_gain(t) ? "gain: factor between the output and the emulating reference (1 is right); "
                          : "");
        kvg_table_bits(t);
        kvg_table_say(t, "To list one kernel, put kernel=NAME into the filter; to list one row, its case.");
        kvg_table_trace(t, "kernel=");
    }
    kvg_picks_free(&picks);
    return 0;
}
