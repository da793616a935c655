/* SPDX-License-Identifier: Apache-2.0
 *
 * figures_speed.c: throughput, memory and the roofline.
 *
 * Each kernel has a line, as in the table; where several scales were timed for one point, the fastest is drawn.
 * Path fp8 leaves quantising Q to its caller: it has a second line, with that time. Memory is drawn for plain
 * attention only (kvg_is_plain).
 */
#include <math.h>
#include <string.h>
#include "results/compare.h"
#include "figures.h"

#define MAX_FIGURES 12 /* shapes drawn, in the order of their keys */

/* ---------------------------------------------------------------- throughput */

static int key_of_throughput(const struct kvg_row *row, char *text, size_t size)
{
    if (!kvg_has_context(row) || row->status != KVG_PASSED || !isfinite(row->time_median) ||
        row->time_median <= 0.0)
        return 0;
    /* shape | dtype, path | kernel | context | fastest first */
    char shape[KVG_SHAPE_MAX];
    kvg_shape_key(row, shape, sizeof(shape));
    snprintf(text, size, "%s|%d%.16s %.12s|%.48s|%012lld|%020.12f", shape,
             kvg_rank_dtype(row->kv_cache_dtype), row->kv_cache_dtype, row->path, row->kernel,
             (long long)row->context, row->time_median);
    return 1;
}

/* One point: context, rate, and the rates at the third and the first quartile of the time, in 1e9/s. `more`
 * seconds are added to each time. */
static void put_throughput(FILE *out, const struct kvg_row *row, double more)
{
    double amount =
        kvg_bound_by_arithmetic(row) ? (double)row->flops : row->kv_bytes_per_second * row->time_median;
    double slow = isfinite(row->time_q3) ? row->time_q3 : row->time_median;
    double fast = isfinite(row->time_q1) ? row->time_q1 : row->time_median;
    fprintf(out, "%lld\t%.6g\t%.6g\t%.6g\n", (long long)row->context,
            amount / (row->time_median + more) / 1e9, amount / (slow + more) / 1e9,
            amount / (fast + more) / 1e9);
}

/* The rows that a roof is averaged over. The gather roofs of bf16 and FP8 differ on a device: bf16 has twice
 * the bytes, so that the fixed cost of a launch matters less. */
enum roof_of { OF_ALL, OF_BF16, OF_FP8 };

static double mean_of(const struct kvg_picks *picks, int64_t begin, int64_t end, int64_t context,
                      size_t offset, enum roof_of which)
{
    double sum = 0.0;
    int64_t n = 0;
    for (int64_t i = begin; i < end; i++) {
        const struct kvg_row *row = picks->picks[i].row;
        const double *value = (const double *)(const void *)((const char *)row + offset);
        enum roof_of of = strcmp(row->kv_cache_dtype, "auto") == 0 ? OF_BF16 : OF_FP8;
        if (row->context == context && isfinite(*value) && (which == OF_ALL || which == of)) {
            sum += *value;
            n++;
        }
    }
    return n ? sum / (double)n : NAN;
}

/* The block of the roofs. They are measured next to each row and differ a little: one mean per context. */
static void put_roofs(FILE *out, const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    static const struct {
        size_t offset;
        enum roof_of which;
    } roofs[] = {
        {offsetof(struct kvg_row, read_roof), OF_ALL},   {offsetof(struct kvg_row, gather_roof), OF_BF16},
        {offsetof(struct kvg_row, gather_roof), OF_FP8}, {offsetof(struct kvg_row, cache_roof), OF_ALL},
        {offsetof(struct kvg_row, flop_roof), OF_ALL},   {offsetof(struct kvg_row, copy_roof), OF_ALL}};
    fputs("# roofs: context, read GB/s, gather GB/s of bf16 and of FP8, cache GB/s, arithmetic GFLOP/s, copy "
          "GB/s\n",
          out);
    for (int64_t context = 0, next;; context = next) {
        next = INT64_MAX;
        for (int64_t i = begin; i < end; i++)
            if (picks->picks[i].row->context > context && picks->picks[i].row->context < next)
                next = picks->picks[i].row->context;
        if (next == INT64_MAX)
            break;
        fprintf(out, "%lld", (long long)next);
        for (size_t c = 0; c < sizeof(roofs) / sizeof(roofs[0]); c++)
            fprintf(out, "\t%.6g", mean_of(picks, begin, end, next, roofs[c].offset, roofs[c].which) / 1e9);
        fputc('\n', out);
    }
}

/* Appends "_WORD" to the name of a figure; nothing for an empty word. */
static void add_to_name(struct figure *f, const char *word)
{
    const size_t used = strlen(f->name);
    if (word[0])
        snprintf(f->name + used, sizeof(f->name) - used, "_%.16s", word);
}

/* One line: a block of data, and its name. */
static void put_line(struct figure *f, const struct kvg_picks *picks, int64_t begin, int64_t end,
                     const char *name, int math, int with_q)
{
    figure_add_word(f->series, sizeof(f->series), name);
    fprintf(f->data, "# %s: context, %s (median, slow and fast quartile)\n", name,
            math ? "GFLOP/s" : "KV GB/s");
    for (int64_t point = begin, after; point < end; point = after) {
        after = kvg_group_end(picks, point, kvg_key_prefix(picks->picks[point].key, 4));
        const struct kvg_row *row = picks->picks[point].row;
        put_throughput(f->data, row, with_q ? kvg_whole_time(row) - row->time_median : 0.0);
    }
    fputs("\n\n", f->data);
}

/* The lines of one dtype and path: one for each kernel, DTYPE/PATH or, with several kernels,
 * DTYPE/PATH@NUMBER@KERNEL; the same with +q where quantising Q takes time of its own. */
static void put_kernels(struct figure *f, const struct kvg_picks *picks, int64_t begin, int64_t end, int math)
{
    int several = strcmp(picks->picks[begin].row->kernel, picks->picks[end - 1].row->kernel) != 0, number = 0;
    for (int64_t at = begin, next; at < end; at = next, number++) {
        const struct kvg_row *row = picks->picks[at].row;
        char name[128], kernel[80] = "";
        int sums = 0;
        next = kvg_group_end(picks, at, kvg_key_prefix(picks->picks[at].key, 3));
        for (int64_t i = at; i < next; i++)
            sums |= kvg_whole_time(picks->picks[i].row) > picks->picks[i].row->time_median;
        if (several)
            snprintf(kernel, sizeof(kernel), "@%d@%.64s", number, row->kernel);
        for (int with_q = 0; with_q <= sums; with_q++) {
            snprintf(name, sizeof(name), "%.16s/%.12s%s%s", row->kv_cache_dtype, row->path,
                     with_q ? "+q" : "", kernel);
            put_line(f, picks, at, next, name, math, with_q);
        }
    }
}

static int throughput_figure(struct plotter *p, const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    const struct kvg_row *row = picks->picks[begin].row;
    struct figure f = {0};
    char tokens[32] = "", unit[32] = "_gpu", lengths[24];
    int hot = strcmp(row->cache_state, "hot") == 0, math = kvg_bound_by_arithmetic(row);
    int append = strcmp(row->phase, "append") == 0, store = strcmp(row->phase, "store") == 0;
    if (append)
        snprintf(tokens, sizeof(tokens), "%lld", (long long)row->q_len);
    if (!kvg_on_device(row))
        snprintf(unit, sizeof(unit), "_t%lld", (long long)row->threads);
    snprintf(f.name, sizeof(f.name), "throughput_%.20s%s_%.8s_b%lld_h%lldx%lld_d%lld_p%lld_%.8s%s",
             row->phase, tokens, row->cache_state, (long long)row->batch, (long long)row->q_heads,
             (long long)row->kv_heads, (long long)row->head_dim, (long long)row->block_size, row->layout,
             unit);
    kvg_lengths_word(row, lengths, sizeof(lengths));
    add_to_name(&f, kvg_value_unless(lengths, "uniform"));
    add_to_name(&f, row->shared_pages > 0 ? "shared" : "");
    add_to_name(&f, row->window > 0 ? "window" : "");
    add_to_name(&f, row->soft_cap > 0 ? "cap" : "");
    add_to_name(&f, kvg_value_unless(row->views, "dense"));
    add_to_name(&f, kvg_value_unless(row->mask, "causal"));
    add_to_name(&f, kvg_value_unless(row->sinks, "off"));
    snprintf(f.title, sizeof(f.title), "Throughput against context: %.20s%s%s%s, %.8s cache", row->phase,
             append ? " of " : "", tokens, append ? " tokens" : "", row->cache_state);
    kvg_shape_words(row, f.detail, sizeof(f.detail));
    snprintf(f.extra[0], sizeof(f.extra[0]), "%s",
             math    ? kvg_on_device(row) ? "matrix" : "flops"
             : hot   ? "hot"
             : store ? "store"
                     : "cold");
    if (figure_begin(p, &f))
        return -1;
    for (int64_t at = begin, next; at < end; at = next) {
        next = kvg_group_end(picks, at, kvg_key_prefix(picks->picks[at].key, 2));
        put_kernels(&f, picks, at, next, math);
    }
    put_roofs(f.data, picks, begin, end);
    return figure_end(p, &f, "throughput.gp");
}

/* Picks the rows that have a key, as kvg_pick_rows or kvg_pick_plain does. */
typedef int pick_rows(const struct kvg_results *results,
                      int (*key)(const struct kvg_row *row, char *text, size_t size), struct kvg_picks *out);

/* Draws every group with at least two contexts; if there is none, the largest group. */
static int draw_groups(struct plotter *p, const char *figure, pick_rows *pick,
                       int (*key)(const struct kvg_row *row, char *text, size_t size),
                       int (*one)(struct plotter *p, const struct kvg_picks *picks, int64_t begin,
                                  int64_t end),
                       const char *nothing)
{
    struct kvg_picks picks;
    int64_t drawn = 0, left = 0, best = 0, best_begin = 0, best_end = 0;
    int failed = 0;
    if (pick(p->results, key, &picks))
        return kvg_fail(p->error, KVG_EXIT_TROUBLE, "out of memory");
    for (int64_t begin = 0, end; !failed && begin < picks.count; begin = end) {
        end = kvg_group_end(&picks, begin, kvg_key_prefix(picks.picks[begin].key, 1));
        if (end - begin > best) {
            best = end - begin;
            best_begin = begin;
            best_end = end;
        }
        if (count_contexts(&picks, begin, end) < 2 || drawn >= MAX_FIGURES) {
            left++;
            continue;
        }
        failed = one(p, &picks, begin, end);
        drawn++;
    }
    if (!failed && drawn == 0 && best > 0) {
        failed = one(p, &picks, best_begin, best_end);
        left--;
    }
    char why[160];
    snprintf(why, sizeof(why),
             "%lld more shape%s with a single context, or beyond the first %d; --filter selects rows",
             (long long)left, left == 1 ? "" : "s", MAX_FIGURES);
    if (!failed && picks.count == 0)
        figure_left_out(p, figure, nothing);
    else if (!failed && left > 0)
        figure_left_out(p, figure, why);
    kvg_picks_free(&picks);
    return failed;
}

int draw_throughput(struct plotter *p)
{
    return draw_groups(p, "throughput", kvg_pick_rows, key_of_throughput, throughput_figure,
                       "no passed row was timed");
}

/* ---------------------------------------------------------------- footprint */

static int key_of_footprint(const struct kvg_row *row, char *text, size_t size)
{
    if (!kvg_has_context(row) || row->status == KVG_SKIPPED || row->status == KVG_INVALID ||
        !isfinite(row->bytes_per_token) || row->kv_cache_bytes < 0 || row->batch != 1)
        return 0;
    /* shape | dtype | context | per_tensor first */
    snprintf(text, size, "%06lld %06lld %08lld|%d%.16s|%012lld|%d", (long long)row->kv_heads,
             (long long)row->head_dim, (long long)row->block_size, kvg_rank_dtype(row->kv_cache_dtype),
             row->kv_cache_dtype, (long long)row->context, strcmp(row->scheme, "per_tensor") != 0);
    return 1;
}

static double known(int64_t bytes)
{
    return bytes > 0 ? (double)bytes : 0.0; /* -1 is missing */
}

static int footprint_figure(struct plotter *p, const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    const struct kvg_row *row = picks->picks[begin].row;
    struct figure f = {0};
    snprintf(f.name, sizeof(f.name), "footprint_h%lld_d%lld_p%lld", (long long)row->kv_heads,
             (long long)row->head_dim, (long long)row->block_size);
    snprintf(f.title, sizeof(f.title), "Memory of one layer's K and V against context");
    snprintf(f.detail, sizeof(f.detail),
             "one sequence, %lld KV heads, head_dim %lld, pages of %lld; scales, page tails and block table "
             "included",
             (long long)row->kv_heads, (long long)row->head_dim, (long long)row->block_size);
    if (figure_begin(p, &f))
        return -1;
    for (int64_t at = begin, next; at < end; at = next) {
        next = kvg_group_end(picks, at, kvg_key_prefix(picks->picks[at].key, 2));
        figure_add_word(f.series, sizeof(f.series), picks->picks[at].row->kv_cache_dtype);
        fprintf(f.data, "# %s: context, MiB, bytes per token, tokens per GiB\n",
                picks->picks[at].row->kv_cache_dtype);
        for (int64_t point = at, after; point < next; point = after) {
            after = kvg_group_end(picks, point, kvg_key_prefix(picks->picks[point].key, 3));
            const struct kvg_row *r = picks->picks[point].row;
            double bytes = known(r->kv_cache_bytes) + known(r->waste_bytes) + known(r->scale_bytes) +
                           known(r->block_table_bytes);
            fprintf(f.data, "%lld\t%.8g\t%.8g\t%.8g\n", (long long)r->context, bytes / 0x1p20,
                    r->bytes_per_token, r->tokens_per_gib);
        }
        fputs("\n\n", f.data);
    }
    return figure_end(p, &f, "footprint.gp");
}

int draw_footprint(struct plotter *p)
{
    return draw_groups(p, "footprint", kvg_pick_plain, key_of_footprint, footprint_figure,
                       "no row has its memory");
}

/* ---------------------------------------------------------------- roofline */

/* 1 if a logarithmic axis can show the value: between 1 and 1e24 per second. */
static int is_rate(double value)
{
    return value >= 1.0 && value <= 1e24;
}

static int key_of_roofline(const struct kvg_row *row, char *text, size_t size)
{
    if (row->status != KVG_PASSED || strcmp(row->cache_state, "hot") == 0 || row->flops <= 0 ||
        row->bytes_moved <= 0 || !is_rate(row->flops_per_second) || !is_rate(row->read_roof) ||
        !is_rate(row->flop_roof))
        return 0;
    /* figure | phase, dtype, path */
    snprintf(text, size, "%.40s %04lld|%d%.20s %d%.16s %.12s", kvg_on_device(row) ? row->device : "",
             (long long)(kvg_on_device(row) ? 0 : row->threads), kvg_rank_phase(row->phase), row->phase,
             kvg_rank_dtype(row->kv_cache_dtype), row->kv_cache_dtype, row->path);
    return 1;
}

static int roofline_figure(struct plotter *p, const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    const struct kvg_row *row = picks->picks[begin].row;
    struct figure f = {0};
    double read = NAN, gather = NAN, flops = NAN, bf16 = NAN, fp8 = NAN;
    char place[80];
    int device = kvg_on_device(row);
    kvg_place_words(row, place, sizeof(place));
    snprintf(f.name, sizeof(f.name), "roofline_gpu");
    if (!device)
        snprintf(f.name, sizeof(f.name), "roofline_t%lld", (long long)row->threads);
    snprintf(f.title, sizeof(f.title), "Roofline of this machine, cold cache");
    snprintf(f.detail, sizeof(f.detail), "%s; roofs measured in the same run, highest value of each", place);
    if (figure_begin(p, &f))
        return -1;
    for (int64_t at = begin, next; at < end; at = next) {
        char name[80];
        next = kvg_group_end(picks, at, 0);
        row = picks->picks[at].row;
        snprintf(name, sizeof(name), "%.20s/%.16s/%.12s", row->phase, row->kv_cache_dtype, row->path);
        figure_add_word(f.series, sizeof(f.series), name);
        fprintf(f.data, "# %s: flops per byte, GFLOP/s, context\n", name);
        for (int64_t i = at; i < next; i++) {
            row = picks->picks[i].row;
            fprintf(f.data, "%.6g\t%.6g\t%lld\n", (double)row->flops / (double)row->bytes_moved,
                    row->flops_per_second / 1e9, (long long)row->context);
            read = fmax(read, row->read_roof);
            gather = fmax(gather, is_rate(row->gather_roof) ? row->gather_roof : NAN);
            flops = fmax(flops, row->flop_roof);
            bf16 = fmax(bf16, is_rate(row->matrix_bf16_roof) ? row->matrix_bf16_roof : NAN);
            fp8 = fmax(fp8, is_rate(row->matrix_fp8_roof) ? row->matrix_fp8_roof : NAN);
        }
        fputs("\n\n", f.data);
    }
    snprintf(f.extra[0], sizeof(f.extra[0]), "%.6g", read / 1e9);
    snprintf(f.extra[1], sizeof(f.extra[1]), "%.6g", isfinite(gather) ? gather / 1e9 : 0.0);
    if (device && isfinite(bf16) && isfinite(fp8))
        snprintf(f.extra[2], sizeof(f.extra[2]), "%.6g %.6g", fp8 / 1e9, bf16 / 1e9);
    else
        snprintf(f.extra[2], sizeof(f.extra[2]), "%.6g", flops / 1e9);
    return figure_end(p, &f, "roofline.gp");
}

int draw_roofline(struct plotter *p)
{
    struct kvg_picks picks;
    int failed = 0;
    if (kvg_pick_rows(p->results, key_of_roofline, &picks))
        return kvg_fail(p->error, KVG_EXIT_TROUBLE, "out of memory");
    if (picks.count == 0)
        figure_left_out(p, "roofline", "no passed cold row with flops, bytes and both roofs");
    for (int64_t begin = 0, end; !failed && begin < picks.count; begin = end) {
        end = kvg_group_end(&picks, begin, kvg_key_prefix(picks.picks[begin].key, 1));
        failed = roofline_figure(p, &picks, begin, end);
    }
    kvg_picks_free(&picks);
    return failed;
}
