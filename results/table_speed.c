/* SPDX-License-Identifier: Apache-2.0
 *
 * table_speed.c: times and rates, compared with the roofs.
 *
 * Rows that memory limits show KV bytes per second and shares of the read roofs. Rows that arithmetic limits
 * (prefill, and append where the roofs of the machine say so) show flops per second. Where several kernels or
 * scales were timed for one line, the fastest is shown, with its case id. Rows of a GPU also show its clock
 * and power.
 *
 * The width of the terminal decides which columns there are: `lay_out` adds them in the order of their
 * importance.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "group.h"
#include "table_parts.h"

#define MAX_SHAPES 4 /* shapes printed without --all: those with the most rows */

/* Widths of the columns; 0 for a column that is left out. Context, time, rate and share are always there. */
struct columns {
    int dtype, path, kernel, read, times, clock, power, id;
};

/* ---------------------------------------------------------------- speed */

static int key_of_timed(const struct kvg_row *row, char *text, size_t size)
{
    if (!kvg_has_context(row) || (row->status != KVG_PASSED && row->status != KVG_SUSPECT) ||
        !isfinite(row->time_median))
        return 0;
    /* shape | context | dtype, path | fastest first */
    char shape[KVG_SHAPE_MAX];
    kvg_shape_key(row, shape, sizeof(shape));
    snprintf(text, size, "%s|%012lld|%d%.16s %.12s|%020.12f", shape, (long long)row->context,
             kvg_rank_dtype(row->kv_cache_dtype), row->kv_cache_dtype, row->path, row->time_median);
    return 1;
}

static int is_store(const struct kvg_row *row)
{
    return strcmp(row->phase, "store") == 0;
}

static int is_hot(const struct kvg_row *row)
{
    return strcmp(row->cache_state, "hot") == 0;
}

/* The highest value of each roof over the rows of a shape, and the lowest gather roof. NaN if unknown. */
struct shape_roofs {
    double read, gather_least, gather_most, cache, copy, flop, bf16, fp8;
};

static struct shape_roofs highest_roofs(const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    struct shape_roofs r = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    for (int64_t p = begin; p < end; p++) {
        const struct kvg_row *row = picks->picks[p].row;
        r.read = fmax(r.read, row->read_roof);
        r.gather_least = fmin(r.gather_least, row->gather_roof);
        r.gather_most = fmax(r.gather_most, row->gather_roof);
        r.cache = fmax(r.cache, row->cache_roof);
        r.copy = fmax(r.copy, row->copy_roof);
        r.flop = fmax(r.flop, row->flop_roof);
        r.bf16 = fmax(r.bf16, row->matrix_bf16_roof);
        r.fp8 = fmax(r.fp8, row->matrix_fp8_roof);
    }
    return r;
}

static void print_roofs(struct kvg_table *t, const struct kvg_row *row, const struct shape_roofs *r)
{
    char c[3][KVG_CELL];
    if (kvg_bound_by_arithmetic(row) && isfinite(r->bf16))
        kvg_table_say(t, "roofs: matrix products, bf16 %s TFLOP/s, FP8 %s TFLOP/s",
                      kvg_cell_digits(r->bf16 / 1e12, 3, c[0]), kvg_cell_digits(r->fp8 / 1e12, 3, c[1]));
    else if (kvg_bound_by_arithmetic(row))
        kvg_table_say(t, "roof: FP32 FMA %s GFLOP/s", kvg_cell_digits(r->flop / 1e9, 3, c[0]));
    else if (is_hot(row))
        kvg_table_say(t, "roofs: cache %s GB/s, memory read %s GB/s",
                      kvg_cell_digits(r->cache / 1e9, 3, c[0]), kvg_cell_digits(r->read / 1e9, 3, c[1]));
    else if (is_store(row))
        kvg_table_say(t, "roof: copy %s GB/s (bytes read plus bytes written)",
                      kvg_cell_digits(r->copy / 1e9, 3, c[0]));
    else if (isfinite(r->gather_least))
        kvg_table_say(t, "roofs: read %s GB/s; gather (reads exactly these pages) %s to %s GB/s",
                      kvg_cell_digits(r->read / 1e9, 3, c[0]),
                      kvg_cell_digits(r->gather_least / 1e9, 3, c[1]),
                      kvg_cell_digits(r->gather_most / 1e9, 3, c[2]));
    else
        kvg_table_say(t, "roof: read %s GB/s", kvg_cell_digits(r->read / 1e9, 3, c[0]));
}

static void print_shape(struct kvg_table *t, const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    const struct kvg_row *row = picks->picks[begin].row;
    const struct shape_roofs roofs = highest_roofs(picks, begin, end);
    char shape[256], tokens[48] = "";
    kvg_shape_words(row, shape, sizeof(shape));
    if (strcmp(row->phase, "append") == 0)
        snprintf(tokens, sizeof(tokens), " of %lld tokens", (long long)row->q_len);
    kvg_table_say(t, "%s%s, %s cache, %s", row->phase, tokens, row->cache_state, shape);
    print_roofs(t, row, &roofs);
}

/* The two shares of roofs that a row shows. A hot row is compared with the cache roof, because it can be
 * faster than the memory. A store reads and writes, so it is compared with the copy roof, which is its
 * roofline. */
static void shares(const struct kvg_row *row, double out[2])
{
    if (kvg_bound_by_arithmetic(row)) {
        out[0] = row->pct_flop_roof;
        out[1] = row->pct_roofline;
    } else if (is_store(row) && !is_hot(row)) {
        out[0] = row->pct_roofline;
        out[1] = NAN;
    } else {
        out[0] = is_hot(row) ? 100.0 * row->kv_bytes_per_second / row->cache_roof : row->pct_gather_roof;
        out[1] = row->pct_read_roof;
    }
}

/* Samples that scatter this much depend on the machine more than on the kernel. On a quiet machine the ratio
 * is a few percent. */
#define NOISY 0.25 /* (third - first quartile) / median */
static int noisy(const struct kvg_row *row)
{
    return (row->time_q3 - row->time_q1) / row->time_median > NOISY;
}

enum { KERNEL_LEAST = 14, KERNEL_USUAL = 22 };

/* Adds columns while there is room: first what tells lines apart, then what the numbers of a GPU depend on,
 * then the second share. The remaining room goes to the names of the kernels. */
static struct columns lay_out(const struct kvg_table *t, const struct kvg_picks *picks, int64_t begin,
                              int64_t end)
{
    struct columns c = {.dtype = kvg_dtype_width(t->results)};
    int longest = KERNEL_USUAL, clock = 0, power = 0, read = 0;
    for (int64_t p = begin; p < end; p++) {
        const struct kvg_row *row = picks->picks[p].row;
        double share[2];
        int length = (int)strlen(row->kernel) + 1;
        longest = length > longest ? length : longest;
        clock |= isfinite(row->sm_clock);
        power |= isfinite(row->power);
        shares(row, share);
        read |= isfinite(share[1]);
    }
    const struct {
        int *column, width, wanted;
    } extras[] = {{&c.kernel, KERNEL_LEAST, 1}, {&c.times, 7, 1},     {&c.path, 8, 1},   {&c.id, 9, 1},
                  {&c.clock, 6, clock},         {&c.power, 5, power}, {&c.read, 7, read}};
    int left = t->width - (2 + 7 + 2 + c.dtype + 9 + 8 + 9 + 1);
    for (size_t i = 0; i < sizeof(extras) / sizeof(extras[0]); i++)
        if (extras[i].wanted) {
            if (left < extras[i].width)
                break;
            *extras[i].column = extras[i].width;
            left -= extras[i].width;
        }
    if (c.kernel)
        c.kernel += left < longest - c.kernel ? left : longest - c.kernel;
    return c;
}

static void print_head(struct kvg_table *t, const struct columns *c, const struct kvg_row *row)
{
    int math = kvg_bound_by_arithmetic(row);
    const char *share = math ? (kvg_on_device(row) ? "% matrix" : "% FMA") : "% gather";
    if (!math && is_hot(row))
        share = "% cache";
    else if (!math && is_store(row))
        share = "% copy";
    fprintf(t->out, "  %7s  %-*s", "context", c->dtype, "dtype");
    fprintf(t->out, "%-*s%-*s", c->path, c->path ? "path" : "", c->kernel, c->kernel ? "kernel" : "");
    fprintf(t->out, "%9s%8s%9s", "time", math ? "GFLOP/s" : is_store(row) ? "GB/s" : "KV GB/s", share);
    fprintf(t->out, "%*s%*s%*s%*s", c->read, c->read ? (math ? "% roof" : "% read") : "", c->clock,
            c->clock ? "MHz" : "", c->power, c->power ? "W" : "", c->times, c->times ? "x auto" : "");
    fputs(c->id ? "  case\n" : "\n", t->out);
}

/* A cell of a column that may be left out. */
static void put_cell(FILE *out, int width, const char *text)
{
    if (width)
        fprintf(out, "%*s", width, text);
}

static void print_speed_line(struct kvg_table *t, const struct columns *columns, const struct kvg_row *row,
                             double times_auto)
{
    char c[KVG_CELL], kernel[64];
    int trusted = row->status == KVG_PASSED;
    double rate = kvg_bound_by_arithmetic(row) ? row->flops_per_second : row->kv_bytes_per_second, share[2];
    shares(row, share);
    fprintf(t->out, "  %7lld  %-*s", (long long)row->context, columns->dtype, row->kv_cache_dtype);
    put_cell(t->out, -columns->path, row->path);
    if (columns->kernel)
        put_cell(t->out, -columns->kernel, kvg_fit_name(row->kernel, columns->kernel - 1, kernel));
    put_cell(t->out, 9, kvg_cell_time(row->time_median, c));
    put_cell(t->out, 8, kvg_cell_digits(trusted ? rate / 1e9 : NAN, 3, c));
    put_cell(t->out, 9, kvg_cell_fixed(trusted ? share[0] : NAN, 0, c));
    put_cell(t->out, columns->read, kvg_cell_fixed(trusted ? share[1] : NAN, 0, c));
    put_cell(t->out, columns->clock, kvg_cell_fixed(row->sm_clock / 1e6, 0, c));
    put_cell(t->out, columns->power, kvg_cell_fixed(row->power, 0, c));
    put_cell(t->out, columns->times, kvg_cell_fixed(times_auto, 2, c));
    fputs(!trusted ? "?" : noisy(row) ? "~" : columns->id ? " " : "", t->out);
    fprintf(t->out, "%s%s\n", columns->id ? " " : "", columns->id ? kvg_cell_case(row, c) : "");
}

/* From which context on a dtype is faster than auto, and by which factor at the longest context. */
struct gain {
    char name[48];
    int64_t faster_from; /* smallest context from which on it is always faster; -1 for none */
    int64_t longest;
    double times; /* at the longest */
};

static void note_gain(struct gain gains[8], int *n, const struct kvg_row *row, double times)
{
    char name[48];
    if (is_store(row))
        snprintf(name, sizeof(name), "%.16s", row->kv_cache_dtype);
    else
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
    if (times < 1.005) /* printed as 1.00 or less */
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
            kvg_table_say(t, "%s is not faster than auto (bf16) at context %lld: %s times as fast.",
                          gains[i].name, (long long)gains[i].longest, c);
        else
            kvg_table_say(t, "%s is faster than auto (bf16) from context %lld on, %s times at %lld.",
                          gains[i].name, (long long)gains[i].faster_from, c, (long long)gains[i].longest);
    }
}

static void print_speed(struct kvg_table *t, const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    const struct kvg_row *row = picks->picks[begin].row;
    const struct columns columns = lay_out(t, picks, begin, end);
    int n_gains = 0, suspect = 0, scattered = 0, lines = 0;
    struct gain gains[8];
    print_shape(t, picks, begin, end);
    print_head(t, &columns, row);
    for (int64_t at = begin, context_end; at < end; at = context_end) {
        context_end = kvg_group_end(picks, at, kvg_key_prefix(picks->picks[at].key, 2));
        double reference = NAN; /* auto comes first, and its fastest row before the others */
        if (strcmp(picks->picks[at].row->kv_cache_dtype, "auto") == 0 &&
            picks->picks[at].row->status == KVG_PASSED)
            reference = picks->picks[at].row->time_median;
        for (int64_t line = at, next; line < context_end; line = next) {
            next = kvg_group_end(picks, line, kvg_key_prefix(picks->picks[line].key, 3));
            row = picks->picks[line].row;
            double times = row->status == KVG_PASSED ? reference / row->time_median : NAN;
            print_speed_line(t, &columns, row, times);
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
            t,
            "~: noisy (%d of %d lines): the quartiles are more than %.0f %% of the median apart. Measure "
            "on a quiet machine before you compare.",
            scattered, lines, 100 * NOISY);
    if (suspect)
        kvg_table_say(t, "?: faster than the roof allows. The time is shown, but no throughput.");
    row = picks->picks[begin].row;
    char lengths[32] = "", views[32] = "";
    if (kvg_value_unless(row->views, "dense")[0])
        snprintf(views, sizeof(views), " views=%.16s", row->views);
    if (kvg_value_unless(row->lengths, "uniform")[0])
        snprintf(lengths, sizeof(lengths), ".*lengths=%.16s", row->lengths);
    for (char *p = lengths + 2; *p; p++) /* the signs of a list mean something else in a regular expression */
        *p = *p == '+' || *p == '*' ? '.' : *p;
    kvg_table_trace(
        t, "phase=%s .*batch=%lld .*heads=%lld/%lld .*block_size=%lld layout=%s%s%s .*cache_state=%s",
        row->phase, (long long)row->batch, (long long)row->q_heads, (long long)row->kv_heads,
        (long long)row->block_size, row->layout, views, lengths, row->cache_state);
}

/* Number of shapes with more rows than the one that starts at `at`, or with as many rows and before it. */
static int64_t larger_shapes(const struct kvg_picks *picks, int64_t at, int64_t rows)
{
    int64_t larger = 0;
    for (int64_t begin = 0, end; begin < picks->count; begin = end) {
        end = kvg_group_end(picks, begin, kvg_key_prefix(picks->picks[begin].key, 1));
        larger += end - begin > rows || (end - begin == rows && begin < at);
    }
    return larger;
}

int kvg_table_speed(struct kvg_table *t)
{
    struct kvg_picks picks;
    int64_t printed = 0, left_out = 0, rows_left_out = 0;
    if (kvg_pick_rows(t->results, key_of_timed, &picks))
        return -1;
    if (picks.count > 0)
        kvg_table_heading(t, "Speed: median time of one call");
    for (int64_t begin = 0, end; begin < picks.count; begin = end) {
        end = kvg_group_end(&picks, begin, kvg_key_prefix(picks.picks[begin].key, 1));
        if (!t->all && larger_shapes(&picks, begin, end - begin) >= MAX_SHAPES) {
            rows_left_out += end - begin;
            left_out++;
            continue;
        }
        if (printed++)
            fputc('\n', t->out);
        print_speed(t, &picks, begin, end);
    }
    if (left_out)
        kvg_table_say(t, "--all shows %lld more shape%s (%lld rows).", (long long)left_out,
                      left_out == 1 ? "" : "s", (long long)rows_left_out);
    kvg_picks_free(&picks);
    return 0;
}
