/* SPDX-License-Identifier: Apache-2.0
 *
 * table_speed.c: times and rates, compared with the roofs.
 *
 * Rows that memory limits show KV bytes per second and shares of the read roofs. Rows that arithmetic limits
 * (prefill, and append where the roofs of the machine say so) show flops per second. Each kernel has a line, the
 * fastest first; where several scales were timed for one line, the fastest is shown, with its case id. Path fp8
 * leaves quantising Q to its caller: the line also shows the sum of both times, and comparisons use the sum.
 * Rows of a GPU also show its clock and power.
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
    int dtype, path, kernel, read, times, whole, clock, power, id;
    int sums; /* 1: the column of times shows whole times, because there is no room for the column `whole` */
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
             kvg_rank_dtype(row->kv_cache_dtype), row->kv_cache_dtype, row->path, kvg_whole_time(row));
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
    const struct kvg_fact *cpus = kvg_facts_find(&t->results->machine, "cpus_allowed");
    if (!kvg_on_device(row) && cpus && !cpus->text && (double)row->threads > cpus->number)
        kvg_table_say(t, "! %lld threads on %g CPU%s: they wait for each other, and the times say little.",
                      (long long)row->threads, cpus->number, cpus->number == 1 ? "" : "s");
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

enum { KERNEL_LEAST = 14, KERNEL_USUAL = 22 };

/* Adds columns while there is room: first what tells lines apart, then what the numbers of a GPU depend on,
 * then the second share. The remaining room goes to the names of the kernels. */
static struct columns lay_out(const struct kvg_table *t, const struct kvg_picks *picks, int64_t begin,
                              int64_t end)
{
    struct columns c = {.dtype = kvg_dtype_width(t->results)};
    int longest = KERNEL_USUAL, clock = 0, power = 0, read = 0, whole = 0;
    for (int64_t p = begin; p < end; p++) {
        const struct kvg_row *row = picks->picks[p].row;
        double share[2];
        int length = (int)strlen(row->kernel) + 1;
        longest = length > longest ? length : longest;
        clock |= isfinite(row->sm_clock);
        power |= isfinite(row->power);
        shares(row, share);
        read |= isfinite(share[1]);
        whole |= kvg_whole_time(row) > row->time_median;
    }
    const struct {
        int *column, width, wanted;
    } extras[] = {{&c.kernel, KERNEL_LEAST, 1}, {&c.times, 7, 1},  {&c.path, 8, 1},
                  {&c.whole, 9, whole},         {&c.id, 9, 1},     {&c.clock, 6, clock},
                  {&c.power, 5, power},         {&c.read, 7, read}};
    int left = t->width - (2 + 7 + 2 + c.dtype + 9 + 8 + 9 + 1);
    for (size_t i = 0; i < sizeof(extras) / sizeof(extras[0]); i++)
        if (extras[i].wanted) {
            if (left < extras[i].width)
                break;
            *extras[i].column = extras[i].width;
            left -= extras[i].width;
        }
    c.sums = whole && !c.whole;
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
    fprintf(t->out, "%9s", c->sums ? "time + Q" : "time");
    fprintf(t->out, "%*s", c->whole, c->whole ? "with Q" : "");
    fprintf(t->out, "%8s%9s", math ? "GFLOP/s" : is_store(row) ? "GB/s" : "KV GB/s", share);
    fprintf(t->out, "%*s%*s%*s%*s", c->read, c->read ? (math ? "% roof" : "% read") : "", c->clock,
            c->clock ? "MHz" : "", c->power, c->power ? "W" : "", c->times, c->times ? "x auto" : "");
    fputs(c->id ? "  case\n" : "\n", t->out);
}

static void print_speed_line(struct kvg_table *t, const struct columns *columns, const struct kvg_row *row,
                             double times_auto)
{
    char c[KVG_CELL], kernel[64];
    int trusted = row->status == KVG_PASSED;
    double rate = kvg_bound_by_arithmetic(row) ? row->flops_per_second : row->kv_bytes_per_second, share[2];
    shares(row, share);
    fprintf(t->out, "  %7lld  %-*s", (long long)row->context, columns->dtype, row->kv_cache_dtype);
    kvg_put_cell(t->out, -columns->path, row->path);
    if (columns->kernel)
        kvg_put_cell(t->out, -columns->kernel, kvg_fit_name(row->kernel, columns->kernel - 1, kernel));
    kvg_put_cell(t->out, 9, kvg_cell_time(columns->sums ? kvg_whole_time(row) : row->time_median, c));
    kvg_put_cell(t->out, columns->whole,
                 kvg_cell_time(kvg_whole_time(row) > row->time_median ? kvg_whole_time(row) : NAN, c));
    kvg_put_cell(t->out, 8, kvg_cell_digits(trusted ? rate / 1e9 : NAN, 3, c));
    kvg_put_cell(t->out, 9, kvg_cell_fixed(trusted ? share[0] : NAN, 0, c));
    kvg_put_cell(t->out, columns->read, kvg_cell_fixed(trusted ? share[1] : NAN, 0, c));
    kvg_put_cell(t->out, columns->clock, kvg_cell_fixed(row->sm_clock / 1e6, 0, c));
    kvg_put_cell(t->out, columns->power, kvg_cell_fixed(row->power, 0, c));
    kvg_put_cell(t->out, columns->times, kvg_cell_fixed(times_auto, 2, c));
    fputs(!trusted ? "?" : kvg_is_noisy(row) ? "~" : columns->id ? " " : "", t->out);
    fprintf(t->out, "%s%s\n", columns->id ? " " : "", columns->id ? kvg_cell_case(row, c) : "");
}

/* What the lines of a shape add up to. */
struct summary {
    struct kvg_gains gains;
    int suspect, noisy, lines;
    int several; /* 1: some dtype and path has lines of several kernels */
    int sums;    /* 1: some line has a time with quantising Q */
};

/* 1 if an earlier row of the group is of the same kernel. The rows of a group are in the order of their times. */
static int kernel_seen(const struct kvg_picks *picks, int64_t begin, int64_t at)
{
    for (int64_t i = begin; i < at; i++)
        if (strcmp(picks->picks[i].row->kernel, picks->picks[at].row->kernel) == 0)
            return 1;
    return 0;
}

/* The lines of one dtype and path at one context, of which the first is the fastest. `bf16` is the fastest
 * passed row of dtype auto at this context, or NULL. */
static int print_kernels(struct kvg_table *t, const struct kvg_picks *picks, int64_t begin, int64_t end,
                         const struct columns *columns, const struct kvg_row *bf16, struct summary *sum)
{
    int kernels = 0, noted = 0;
    for (int64_t at = begin; at < end; at++) {
        const struct kvg_row *row = picks->picks[at].row;
        const int passed = row->status == KVG_PASSED;
        if (kernel_seen(picks, begin, at))
            continue;
        print_speed_line(t, columns, row, passed && bf16 ? kvg_whole_time(bf16) / kvg_whole_time(row) : NAN);
        kernels++;
        sum->lines++;
        sum->suspect |= !passed;
        sum->noisy += kvg_is_noisy(row);
        sum->sums |= kvg_whole_time(row) > row->time_median;
        if (passed && bf16 && !noted++ && strcmp(row->kv_cache_dtype, "auto") != 0 &&
            kvg_gains_note(&sum->gains, bf16, row))
            return -1;
    }
    sum->several |= kernels > 1;
    return 0;
}

/* dtype auto comes first, and its fastest row before the others. */
static const struct kvg_row *fastest_bf16(const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    for (int64_t at = begin; at < end; at++) {
        const struct kvg_row *row = picks->picks[at].row;
        if (strcmp(row->kv_cache_dtype, "auto") == 0 && row->status == KVG_PASSED)
            return row;
    }
    return NULL;
}

static void say_notes(struct kvg_table *t, const struct kvg_picks *picks, int64_t begin, int64_t end,
                      const struct columns *columns, const struct summary *sum)
{
    kvg_gains_say(t, &sum->gains);
    if (sum->several)
        kvg_table_say(
            t, "Several kernels: x auto and the sentences compare with the fastest kernel of auto, and "
               "the sentences name the fastest of each dtype and path.");
    if (sum->sums)
        kvg_table_say(t,
                      "%s: the time with that to quantise Q, which path fp8 leaves to its caller. x auto "
                      "and comparisons count it; the rate and the shares of roofs do not.",
                      columns->sums ? "time + Q" : "with Q");
    if (sum->noisy) {
        kvg_table_say(
            t,
            "~: noisy (%d of %d lines): the quartiles are more than %.0f %% of the median apart. Measure "
            "on a quiet machine before you compare.",
            sum->noisy, sum->lines, 100 * KVG_NOISY);
        kvg_advise_figure(t, picks, begin, end);
    }
    if (sum->suspect)
        kvg_table_say(t, "?: faster than the roof allows. The time is shown, but no throughput.");
}

static int print_speed(struct kvg_table *t, const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    const struct kvg_row *row = picks->picks[begin].row;
    const struct columns columns = lay_out(t, picks, begin, end);
    struct summary sum = {.lines = 0};
    print_shape(t, picks, begin, end);
    print_head(t, &columns, row);
    for (int64_t at = begin, context_end; at < end; at = context_end) {
        context_end = kvg_group_end(picks, at, kvg_key_prefix(picks->picks[at].key, 2));
        const struct kvg_row *bf16 = fastest_bf16(picks, at, context_end);
        for (int64_t line = at, next; line < context_end; line = next) {
            next = kvg_group_end(picks, line, kvg_key_prefix(picks->picks[line].key, 3));
            if (print_kernels(t, picks, line, next, &columns, bf16, &sum))
                return -1;
        }
    }
    say_notes(t, picks, begin, end, &columns, &sum);
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
    return 0;
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
    int failed = 0;
    if (kvg_pick_rows(t->results, key_of_timed, &picks))
        return -1;
    if (picks.count > 0)
        kvg_table_heading(t, "Speed: median time of one call");
    for (int64_t begin = 0, end; !failed && begin < picks.count; begin = end) {
        end = kvg_group_end(&picks, begin, kvg_key_prefix(picks.picks[begin].key, 1));
        if (!t->all && larger_shapes(&picks, begin, end - begin) >= MAX_SHAPES) {
            rows_left_out += end - begin;
            left_out++;
            continue;
        }
        if (printed++)
            fputc('\n', t->out);
        failed = print_speed(t, &picks, begin, end);
    }
    if (left_out)
        kvg_table_say(t, "--all shows %lld more shape%s (%lld rows).", (long long)left_out,
                      left_out == 1 ? "" : "s", (long long)rows_left_out);
    kvg_picks_free(&picks);
    return failed;
}
