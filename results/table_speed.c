/* SPDX-License-Identifier: Apache-2.0
 *
 * table_speed.c: time against the roofs, memory, and the kernels' correctness.
 *
 * Decode and store are bound by memory, so they show KV bytes per second and shares of the read roofs; append
 * and prefill are bound by arithmetic and show flops. Where several kernels or scales were timed for one
 * line, the fastest is shown, with its case id.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "table_parts.h"

#define MAX_SHAPES 4 /* shapes printed unless --all */
#define KERNEL_WIDTH 22

/* Names longer than their column lose their middle: both ends tell kernels apart. */
static const char *fit(const char *name, size_t width, char text[64])
{
    size_t length = strlen(name);
    if (length <= width)
        snprintf(text, 64, "%s", name);
    else
        snprintf(text, 64, "%.*s..%s", (int)(width / 2 - 1), name, name + length - (width - width / 2 - 1));
    return text;
}

/* The column is as wide as the dtypes of the file need. */
static int dtype_width(const struct kvg_table *t)
{
    for (int64_t i = 0; i < t->results->count; i++)
        if (strlen(t->results->rows[i].kv_cache_dtype) > 8)
            return 13;
    return 9;
}

/* ---------------------------------------------------------------- speed */

static int key_of_timed(const struct kvg_row *row, char *text, size_t size)
{
    if (!kvg_has_context(row) || (row->status != KVG_PASSED && row->status != KVG_SUSPECT) ||
        !isfinite(row->time_median))
        return 0;
    /* the shape | context, dtype, path | fastest first */
    snprintf(text, size,
             "%d%.20s %.8s %06lld %06lld %06lld %06lld %08lld %.8s %.8s %04lld %.8g %lld|%012lld|%d%.16s "
             "%.12s|%020.12f",
             kvg_rank_phase(row->phase), row->phase, row->cache_state, (long long)row->batch,
             (long long)row->q_heads, (long long)row->kv_heads, (long long)row->head_dim,
             (long long)row->block_size, row->layout, row->lengths, (long long)row->threads, row->soft_cap,
             (long long)row->window, (long long)row->context, kvg_rank_dtype(row->kv_cache_dtype),
             row->kv_cache_dtype, row->path, row->time_median);
    return 1;
}

static int by_arithmetic(const struct kvg_row *row)
{
    return strcmp(row->phase, "prefill") == 0 || strcmp(row->phase, "append") == 0;
}

static void print_shape(struct kvg_table *t, const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    const struct kvg_row *row = picks->picks[begin].row;
    double least = NAN, most = NAN, read = NAN, flop = NAN, cache = NAN;
    for (int64_t p = begin; p < end; p++) {
        const struct kvg_row *r = picks->picks[p].row;
        least = fmin(least, r->gather_roof);
        most = fmax(most, r->gather_roof);
        read = fmax(read, r->read_roof);
        flop = fmax(flop, r->flop_roof);
        cache = fmax(cache, r->cache_roof);
    }
    char c[4][KVG_CELL], extra[96] = "";
    if (row->window > 0)
        snprintf(extra, sizeof(extra), ", window %lld", (long long)row->window);
    if (row->soft_cap > 0)
        snprintf(extra + strlen(extra), sizeof(extra) - strlen(extra), ", soft cap %g", row->soft_cap);
    if (row->batch > 1)
        snprintf(extra + strlen(extra), sizeof(extra) - strlen(extra), ", %s lengths", row->lengths);
    kvg_table_say(
        t, "%s, %s cache, batch %lld, %lld/%lld heads, head_dim %lld, pages of %lld %s, %lld thread%s%s",
        row->phase, row->cache_state, (long long)row->batch, (long long)row->q_heads,
        (long long)row->kv_heads, (long long)row->head_dim, (long long)row->block_size, row->layout,
        (long long)row->threads, row->threads == 1 ? "" : "s", extra);
    if (by_arithmetic(row))
        kvg_table_say(t, "roof: %s GFLOP/s", kvg_cell_digits(flop / 1e9, 3, c[0]));
    else if (strcmp(row->cache_state, "hot") == 0)
        kvg_table_say(t, "roofs: cache %s GB/s, memory read %s GB/s", kvg_cell_digits(cache / 1e9, 3, c[0]),
                      kvg_cell_digits(read / 1e9, 3, c[1]));
    else if (isfinite(least))
        kvg_table_say(t, "roofs: read %s GB/s; gather, which reads exactly these pages, %s to %s GB/s",
                      kvg_cell_digits(read / 1e9, 3, c[0]), kvg_cell_digits(least / 1e9, 3, c[1]),
                      kvg_cell_digits(most / 1e9, 3, c[2]));
    else
        kvg_table_say(t, "roof: read %s GB/s", kvg_cell_digits(read / 1e9, 3, c[0]));
}

/* The two shares of roofs that matter to a row. A hot row is held against the cache: it beats the memory. */
static void shares(const struct kvg_row *row, double out[2])
{
    int hot = strcmp(row->cache_state, "hot") == 0;
    if (by_arithmetic(row)) {
        out[0] = row->pct_flop_roof;
        out[1] = row->pct_roofline;
    } else {
        out[0] = hot ? 100.0 * row->kv_bytes_per_second / row->cache_roof : row->pct_gather_roof;
        out[1] = row->pct_read_roof;
    }
}

/* Samples that scatter say more about the machine than about the kernel. Quiet runs have a few percent. */
#define NOISY 0.25 /* (third - first quartile) / median */
static int noisy(const struct kvg_row *row)
{
    return (row->time_q3 - row->time_q1) / row->time_median > NOISY;
}

static void print_speed_line(struct kvg_table *t, const struct kvg_row *row, double times_auto)
{
    char c[6][KVG_CELL], kernel[64];
    int trusted = row->status == KVG_PASSED;
    double rate = by_arithmetic(row) ? row->flops_per_second : row->kv_bytes_per_second, share[2];
    shares(row, share);
    fprintf(t->out, "  %7lld  %-*s%-8s%-*s%9s%8s%9s%7s%7s%s %s\n", (long long)row->context, dtype_width(t),
            row->kv_cache_dtype, row->path, KERNEL_WIDTH, fit(row->kernel, KERNEL_WIDTH, kernel),
            kvg_cell_time(row->time_median, c[0]), kvg_cell_digits(trusted ? rate / 1e9 : NAN, 3, c[1]),
            kvg_cell_fixed(trusted ? share[0] : NAN, 0, c[2]),
            kvg_cell_fixed(trusted ? share[1] : NAN, 0, c[3]), kvg_cell_fixed(times_auto, 2, c[4]),
            !trusted     ? "?"
            : noisy(row) ? "~"
                         : " ",
            kvg_cell_case(row, c[5]));
}

/* From where on is the dtype faster than auto, and by how much at the longest context? */
struct gain {
    char name[48];
    int64_t faster_from; /* smallest context from which it stays faster; -1 never */
    int64_t longest;
    double times; /* at the longest */
};

static void note_gain(struct gain gains[8], int *n, const struct kvg_row *row, double times)
{
    char name[48];
    snprintf(name, sizeof(name), "%.16s on path %.12s", row->kv_cache_dtype, row->path);
    int i = 0;
    while (i < *n && strcmp(gains[i].name, name) != 0)
        i++;
    if (i == 8 || !isfinite(times))
        return;
    if (i == *n) {
        memset(&gains[i], 0, sizeof(gains[i]));
        snprintf(gains[i].name, sizeof(gains[i].name), "%s", name);
        gains[i].faster_from = -1;
        ++*n;
    }
    if (times <= 1.0)
        gains[i].faster_from = -1;
    else if (gains[i].faster_from < 0)
        gains[i].faster_from = row->context;
    gains[i].longest = row->context;
    gains[i].times = times;
}

static void say_gains(struct kvg_table *t, const struct gain *gains, int n)
{
    char c[KVG_CELL];
    for (int i = 0; i < n; i++) {
        kvg_cell_fixed(gains[i].times, 2, c);
        if (gains[i].faster_from < 0)
            kvg_table_say(t, "%s is not faster than auto (bf16): %s times as fast at %lld.", gains[i].name, c,
                          (long long)gains[i].longest);
        else
            kvg_table_say(t, "%s is faster than auto (bf16) from %lld on: %s times as fast at %lld.",
                          gains[i].name, (long long)gains[i].faster_from, c, (long long)gains[i].longest);
    }
}

static void print_speed(struct kvg_table *t, const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    const struct kvg_row *row = picks->picks[begin].row;
    int math = by_arithmetic(row), n_gains = 0, suspect = 0, scattered = 0, lines = 0;
    struct gain gains[8];
    print_shape(t, picks, begin, end);
    fprintf(t->out, "  %7s  %-*s%-8s%-*s%9s%8s%9s%7s%7s  %s\n", "context", dtype_width(t), "dtype", "path",
            KERNEL_WIDTH, "kernel", "time", math ? "GFLOP/s" : "KV GB/s",
            math                              ? "% FMA"
            : strcmp(row->cache_state, "hot") ? "% gather"
                                              : "% cache",
            math ? "% roofl" : "% read", "x auto", "case");
    for (int64_t at = begin, context_end; at < end; at = context_end) {
        context_end = kvg_group_end(picks, at, kvg_key_prefix(picks->picks[at].key, 2));
        double reference = NAN; /* auto sorts first, its fastest row first */
        if (strcmp(picks->picks[at].row->kv_cache_dtype, "auto") == 0 &&
            picks->picks[at].row->status == KVG_PASSED)
            reference = picks->picks[at].row->time_median;
        for (int64_t line = at, next; line < context_end; line = next) {
            next = kvg_group_end(picks, line, kvg_key_prefix(picks->picks[line].key, 3));
            row = picks->picks[line].row;
            double times = row->status == KVG_PASSED ? reference / row->time_median : NAN;
            print_speed_line(t, row, times);
            suspect |= row->status == KVG_SUSPECT;
            scattered += noisy(row);
            lines++;
            if (row->status == KVG_PASSED && strcmp(row->kv_cache_dtype, "auto") != 0)
                note_gain(gains, &n_gains, row, times);
        }
    }
    say_gains(t, gains, n_gains);
    if (scattered)
        kvg_table_say(
            t, "~ noisy (%d of %d): the samples scatter; measure on a quiet machine before you compare.",
            scattered, lines);
    if (suspect)
        kvg_table_say(t, "? faster than the roof allows: the time stands, no throughput is claimed.");
    row = picks->picks[begin].row;
    char cap[32] = "";
    if (row->lengths[0] && strcmp(row->lengths, "uniform") != 0)
        snprintf(cap, sizeof(cap), ".*lengths=%.16s", row->lengths);
    kvg_table_trace(t,
                    "phase=%s .*batch=%lld .*heads=%lld/%lld .*block_size=%lld layout=%s%s .*cache_state=%s",
                    row->phase, (long long)row->batch, (long long)row->q_heads, (long long)row->kv_heads,
                    (long long)row->block_size, row->layout, cap, row->cache_state);
}

int kvg_table_speed(struct kvg_table *t)
{
    struct kvg_picks picks;
    int64_t shapes = 0, left_out = 0;
    if (kvg_pick_rows(t->results, key_of_timed, &picks))
        return -1;
    if (picks.count > 0)
        kvg_table_heading(t, "Speed: median time of one call");
    for (int64_t begin = 0, end; begin < picks.count; begin = end) {
        end = kvg_group_end(&picks, begin, kvg_key_prefix(picks.picks[begin].key, 1));
        if (!t->all && shapes >= MAX_SHAPES) {
            left_out += end - begin;
            shapes++;
            continue;
        }
        if (shapes++)
            fputc('\n', t->out);
        print_speed(t, &picks, begin, end);
    }
    if (left_out)
        kvg_table_say(t, "%lld more shapes were timed (%lld rows): --all.", (long long)(shapes - MAX_SHAPES),
                      (long long)left_out);
    kvg_picks_free(&picks);
    return 0;
}

/* ---------------------------------------------------------------- memory */

static int key_of_memory(const struct kvg_row *row, char *text, size_t size)
{
    if (!kvg_has_context(row) || row->status == KVG_SKIPPED || row->status == KVG_INVALID ||
        !isfinite(row->bytes_per_token) || row->batch < 1)
        return 0;
    /* shape | dtype and scheme | longest context first, single sequence first */
    snprintf(text, size, "%06lld %06lld %08lld|%d%.16s %d%.16s|%020lld %06lld", (long long)row->kv_heads,
             (long long)row->head_dim, (long long)row->block_size, kvg_rank_dtype(row->kv_cache_dtype),
             row->kv_cache_dtype, strcmp(row->scheme, "per_tensor") != 0, row->scheme,
             (long long)(INT64_MAX - row->context), (long long)row->batch);
    return 1;
}

static void print_memory_line(struct kvg_table *t, const struct kvg_row *row)
{
    char c[5][KVG_CELL], shape[48];
    double total = (double)row->kv_cache_bytes + (double)row->waste_bytes;
    snprintf(shape, sizeof(shape), "%lld x %lld, %lld", (long long)row->kv_heads, (long long)row->head_dim,
             (long long)row->block_size);
    fprintf(t->out, "  %-12s%8lld  %-*s%-11s%8s%8s%12s%9lld%8s  %s\n", shape, (long long)row->context,
            dtype_width(t), row->kv_cache_dtype, row->scheme, kvg_cell_digits(row->bytes_per_token, 5, c[0]),
            kvg_cell_fixed(row->bytes_vs_bf16, 3, c[1]), kvg_cell_fixed(row->tokens_per_gib, 0, c[2]),
            (long long)row->scale_bytes,
            kvg_cell_fixed(total > 0 ? 100.0 * (double)row->waste_bytes / total : NAN, 1, c[3]),
            kvg_cell_case(row, c[4]));
}

int kvg_table_memory(struct kvg_table *t)
{
    struct kvg_picks picks;
    double ratio_min = NAN, ratio_max = NAN;
    int64_t shapes = 0, left_out = 0;
    if (kvg_pick_rows(t->results, key_of_memory, &picks))
        return -1;
    if (picks.count > 0) {
        kvg_table_heading(t, "Memory of one layer's K and V, at the longest context measured");
        fprintf(t->out, "  %-12s%8s  %-*s%-11s%8s%8s%12s%9s%8s  %s\n", "heads, page", "context",
                dtype_width(t), "dtype", "scheme", "B/token", "vs bf16", "tokens/GiB", "scales B", "tails %",
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
        kvg_table_say(t, "%lld more lines of %lld other shapes: --all.", (long long)left_out,
                      (long long)(shapes - MAX_SHAPES));
    char c[2][KVG_CELL], ratio[64];
    snprintf(ratio, sizeof(ratio), "%s to %s", kvg_cell_fixed(ratio_min, 3, c[0]),
             kvg_cell_fixed(ratio_max, 3, c[1]));
    if (isfinite(ratio_min))
        kvg_table_say(
            t,
            "FP8 takes %s times the bytes of bf16 for a token, scales, page tails and block table included.",
            strcmp(c[0], c[1]) == 0 ? c[0] : ratio);
    kvg_picks_free(&picks);
    return 0;
}

/* ---------------------------------------------------------------- correctness */

static int key_of_checked(const struct kvg_row *row, char *text, size_t size)
{
    if (row->n_checked <= 0 || row->prediction == 1) /* table_predict.c shows those */
        return 0;
    snprintf(text, size, "%d%.20s %.12s %.64s|", kvg_rank_phase(row->phase), row->phase, row->path,
             row->kernel);
    return 1;
}

struct record {
    int64_t cases, passed;
    double bound, probability, zero, gain_min, gain_max;
    const struct kvg_row *worst; /* largest bound ratio, or the last that did not pass */
};

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
    if (picks.count > 0) {
        kvg_table_heading(t,
                          "Correctness of the kernels: largest error over its bound (above 1 is incorrect)");
        fprintf(t->out, "  %-8s%-8s%-22s%6s%7s%7s%7s  %-15s%6s  %s\n", "phase", "path", "kernel", "cases",
                "passed", "bound", "prob.", "gain", "zero", "worst");
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
        fprintf(t->out, "  %-8s%-8s%-22s%6lld%7lld%7s%7s  %-15s%6s  %s\n", row->phase, row->path,
                fit(row->kernel, 21, kernel), (long long)r.cases, (long long)r.passed,
                kvg_cell_digits(r.bound, 3, c[2]), kvg_cell_digits(r.probability, 3, c[3]), gain,
                kvg_cell_digits(r.zero, 3, c[4]), kvg_cell_case(r.worst, c[5]));
    }
    if (picks.count > 0) {
        kvg_table_say(t,
                      "bound: worst case; prob.: probabilistic; gain: against the emulating reference, 1 is "
                      "right; zero: "
                      "what an all-zero output would have got at least; worst: case with the largest ratio.");
        kvg_table_say(t, "One kernel's rows: kernel=NAME instead of kernel= below; one row: its case.");
        kvg_table_trace(t, "kernel=");
    }
    kvg_picks_free(&picks);
    return 0;
}
