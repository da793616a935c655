/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_rows.c: the arithmetic that the exact, the emulating and the bounding reference share.
 *
 *   logits   Summed in double. In FP32 a logit of 50 is off by up to 2e-6, and its weight by the same
 *            relative error.
 *   weights  Rounded to FP32 and multiplied with V in FP32. At most KVG_BLOCK_TOKENS of these products are
 *            summed in FP32 before the sum is added to a double.
 *   spread   The error bound of a logit. Summed in FP32 and then enlarged by what FP32 can have lost.
 *
 * A block of K is transposed, so that the lanes of a vector are keys (see attention_tiles.h).
 */
#include "attention_rows.h"
#include "clones.h"
#include "exp2.h"

#include <math.h>

typedef float float4 __attribute__((vector_size(16)));

/* ---------------------------------------------------------------- operands */

static void scale_row(float *row, int64_t count, float scale)
{
    for (int64_t d = 0; d < count; d++)
        row[d] = row[d] * scale;
}

KVG_REF_CLONES
static void widen_row(const float *restrict in, int64_t count, double *restrict out)
{
    for (int64_t d = 0; d < count; d++)
        out[d] = in[d];
}

/* The element where each of `count` keys or values begins, found page by page. */
static void find_rows(const struct kvg_ref_kv *kv, const struct kvg_group *g, int64_t first, int64_t count,
                      int64_t *index)
{
    for (int64_t t = 0; t < count;) {
        int64_t at = kvg_ref_kv_index(kv, g->seq, first + t, g->kv_head);
        int64_t run = kv->block_table ? kv->block_size - (first + t) % kv->block_size : count;
        for (; run > 0 && t < count; run--, t++, at += kv->stride_slot)
            index[t] = at;
    }
}

/* Prefetches a row. */
static inline void prefetch_row(const struct kvg_ref_kv *kv, int64_t index, int64_t bytes_each,
                                int64_t head_dim)
{
    enum { LINE = 64 }; /* bytes */
    const char *row = (const char *)kv->data + index * bytes_each;
    for (int64_t at = 0; at < head_dim * bytes_each; at += LINE)
        __builtin_prefetch(row + at);
    __builtin_prefetch(row + head_dim * bytes_each - 1); /* the row may begin within a line */
}

/* Loads `count` keys or values, at most a block, scaled and rounded as asked, `dim` floats apart. The rows of
 * a paged cache are scattered in memory, so the rows of the next block are prefetched meanwhile. */
static void load_kv(const struct kvg_rows *rows, const struct kvg_ref_kv *kv, const struct kvg_group *g,
                    int64_t first, int64_t count, int scaled_first, enum kvg_ref_format operand, float *out)
{
    const int64_t head_dim = rows->a->head_dim, bytes = kvg_ref_format_get_info(kv->format)->bytes;
    const int64_t left = g->last - (first + count) + 1, next = left < count ? left : count;
    int64_t index[KVG_BLOCK_TOKENS], next_index[KVG_BLOCK_TOKENS];
    find_rows(kv, g, first, count, index);
    find_rows(kv, g, first + count, next, next_index);
    for (int64_t t = 0; t < count; t++, out += rows->dim) {
        if (t < next)
            prefetch_row(kv, next_index[t], bytes, head_dim);
        kvg_ref_load_row(kv->format, kv->data, index[t], head_dim, out);
        if (scaled_first && kv->scale)
            scale_row(out, head_dim, kv->scale[g->kv_head * kv->scale_stride]);
        kvg_ref_round_row(operand, out, head_dim);
    }
}

void kvg_load_q(const struct kvg_rows *rows, const struct kvg_group *g, struct kvg_scratch *s)
{
    const struct kvg_ref_attention *a = rows->a;
    for (int64_t r = 0; r < g->rows; r++) {
        kvg_ref_load_row(a->q_format, a->q, rows->plans[g->row + r].q_index, a->head_dim, s->row);
        kvg_ref_round_row(rows->operands.q, s->row, a->head_dim);
        widen_row(s->row, a->head_dim, s->q + r * rows->dim);
    }
}

/* Transposes a block, four keys by four dimensions at a time. */
KVG_REF_CLONES
static void turn_block(const float *restrict codes, int64_t dim, float *restrict k)
{
    for (int64_t t = 0; t < KVG_BLOCK_TOKENS; t += 4)
        for (int64_t d = 0; d < dim; d += 4) {
            float4 in[4], pair[4];
            for (int i = 0; i < 4; i++)
                in[i] = *(const float4 *)(codes + (t + i) * dim + d);
            for (int i = 0; i < 2; i++) {
                pair[i] = __builtin_shufflevector(in[2 * i], in[2 * i + 1], 0, 4, 1, 5);
                pair[i + 2] = __builtin_shufflevector(in[2 * i], in[2 * i + 1], 2, 6, 3, 7);
            }
            for (int i = 0; i < 2; i++) {
                float4 *out = (float4 *)(k + (d + 2 * i) * KVG_BLOCK_TOKENS + t);
                out[0] = __builtin_shufflevector(pair[2 * i], pair[2 * i + 1], 0, 1, 4, 5);
                out[KVG_BLOCK_TOKENS / 4] = __builtin_shufflevector(pair[2 * i], pair[2 * i + 1], 2, 3, 6, 7);
            }
        }
}

/* |x|' (struct kvg_ref_floors). */
KVG_REF_CLONES
static void sizes_of(const float *restrict x, int64_t count, float floor, float *restrict size)
{
    for (int64_t i = 0; i < count; i++) {
        const float s = fabsf(x[i]);
        size[i] = s > 0 && s < floor ? floor : s; /* NaN stays */
    }
}

/* |q|'. Q holds FP32 values, so the conversion is exact. */
KVG_REF_CLONES
static void sizes_of_q(const double *restrict q, int64_t count, float floor, float *restrict size)
{
    for (int64_t i = 0; i < count; i++) {
        const float s = (float)fabs(q[i]);
        size[i] = s > 0 && s < floor ? floor : s;
    }
}

/* Loads keys first .. first + count - 1 to the first columns of the block. Other columns are not used. */
static void load_k(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t count,
                   struct kvg_scratch *s)
{
    load_kv(rows, &rows->a->k, g, first, count, rows->operands.k_scaled_first, rows->operands.k, s->codes);
    turn_block(s->codes, rows->dim, s->k);
}

void kvg_load_v(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t count,
                struct kvg_scratch *s)
{
    load_kv(rows, &rows->a->v, g, first, count, rows->operands.v_scaled_first, rows->operands.v, s->v);
}

/* ---------------------------------------------------------------- logits */

/* The floor of K in the units of the loaded values. */
static float k_floor(const struct kvg_rows *rows, const struct kvg_group *g,
                     const struct kvg_ref_floors *floors)
{
    const struct kvg_ref_kv *k = &rows->a->k;
    if (!floors->k_scaled || rows->operands.k_scaled_first || !k->scale)
        return (float)floors->k;
    return (float)(floors->k / fabs((double)k->scale[g->kv_head * k->scale_stride]));
}

/* Turns dot products into logits, in units of log2. */
KVG_REF_CLONES
static void finish_logits(const double *restrict dots, int64_t count, double scale, double cap,
                          double *restrict t)
{
    if (cap > 0)
        for (int64_t i = 0; i < count; i++)
            t[i] = cap * kvg_tanh(dots[i] * scale / cap) * KVG_LOG2E;
    else
        for (int64_t i = 0; i < count; i++)
            t[i] = dots[i] * scale * KVG_LOG2E;
}

KVG_REF_CLONES
static void finish_spread(const float *restrict dots, int64_t count, double factor, double plus,
                          double *restrict spread)
{
    for (int64_t i = 0; i < count; i++)
        spread[i] = factor * (double)dots[i] + plus;
}

/* Applies the soft cap to the spread. When x moves by delta, cap * tanh(x / cap) moves by less, and by next
 * to nothing where it saturates. The largest move is towards zero:
 *
 *   cap T (1 - y^2) / (1 - y T)   with y = |logit| / cap, T = tanh(delta / cap)
 *
 * `plus` is added after the cap. A y that is rounded to 1 is replaced by the next number below. */
KVG_REF_CLONES
static void cap_spread(const double *restrict t, int64_t count, double cap, double plus,
                       double *restrict spread)
{
    const double below_1 = 1 - 0x1p-53;
    for (int64_t i = 0; i < count; i++) {
        double y = fabs(t[i]) / (cap * KVG_LOG2E);
        y = y < below_1 ? y : below_1;
        const double moved = kvg_tanh((spread[i] - plus) / cap);
        spread[i] = cap * moved * (1 - y * y) / (1 - y * moved) + plus;
    }
}

void kvg_rows_that_see(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t last,
                       int64_t *low, int64_t *high)
{
    *low = g->rows, *high = 0;
    for (int64_t r = 0; r < g->rows; r++) {
        int64_t from, to;
        kvg_row_span(&rows->plans[g->row + r], first, last, &from, &to);
        if (to < from)
            continue;
        *low = r < *low ? r : *low;
        *high = r + 1;
    }
}

/* Logits of the block that begins at `token`; with a model their spread too. Key `first` is column 0. */
static void logits_of_block(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first,
                            int64_t token, int64_t end, const struct kvg_ref_bound_model *model,
                            struct kvg_scratch *s)
{
    const struct kvg_tiles *tiles = kvg_tiles_of(0);
    const int64_t dim = rows->dim;
    /* Covers the roundings of a sum of dim products in FP32, of its operands, floors and factor. */
    const double lost = 1 + (double)(dim + 8) * 0x1p-24;
    double dots[KVG_ROWS_MAX * KVG_BLOCK_TOKENS] __attribute__((aligned(64)));
    float sizes[KVG_ROWS_MAX * KVG_BLOCK_TOKENS] __attribute__((aligned(64)));
    int64_t low, high;
    kvg_rows_that_see(rows, g, token, end, &low, &high);
    if (high == 0)
        return;
    load_k(rows, g, token, end - token + 1, s);
    tiles->dots(s->q + low * dim, high - low, s->k, dim, dots);
    if (model)
        sizes_of(s->k, dim * KVG_BLOCK_TOKENS, k_floor(rows, g, &model->floors), s->k_size);
    if (model)
        tiles->dots_f32(s->q_size + low * dim, high - low, s->k_size, dim, sizes);
    for (int64_t r = low; r < high; r++) {
        const struct kvg_row_plan *row = &rows->plans[g->row + r];
        int64_t from, to;
        kvg_row_span(row, token, end, &from, &to);
        if (to < from)
            continue;
        const int64_t in = (r - low) * KVG_BLOCK_TOKENS + (from - token), out = r * s->span + (from - first);
        finish_logits(dots + in, to - from + 1, row->scale, rows->a->soft_cap, s->logit + out);
        if (model)
            finish_spread(sizes + in, to - from + 1, model->logit_rel * fabs(row->scale) * lost,
                          model->logit_abs, s->spread + out);
        if (model && rows->a->soft_cap > 0)
            cap_spread(s->logit + out, to - from + 1, rows->a->soft_cap, model->logit_abs, s->spread + out);
    }
}

static void logits(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t last,
                   const struct kvg_ref_bound_model *model, struct kvg_scratch *s)
{
    for (int64_t token = first, end; token <= last; token = end + 1) {
        end = kvg_block_end(token, last);
        logits_of_block(rows, g, first, token, end, model, s);
    }
}

void kvg_logits(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t last,
                struct kvg_scratch *s)
{
    logits(rows, g, first, last, NULL, s);
}

void kvg_logits_and_spread(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first,
                           int64_t last, const struct kvg_ref_bound_model *model, struct kvg_scratch *s)
{
    sizes_of_q(s->q, g->rows * rows->dim, (float)model->floors.q, s->q_size);
    logits(rows, g, first, last, model, s);
}

/* ---------------------------------------------------------------- weights and values */

KVG_REF_CLONES
static void powers(const double *restrict t, int64_t count, double minus, float *restrict p)
{
    for (int64_t i = 0; i < count; i++)
        p[i] = (float)kvg_exp2(t[i] - minus);
}

/* The largest of `count` numbers and `max`. NaN is passed over. */
KVG_REF_CLONES
static double largest_of(const double *t, int64_t count, double max)
{
    double lane[16];
    int64_t i = 0;
    for (int l = 0; l < 16; l++)
        lane[l] = max;
    for (; i + 16 <= count; i += 16)
        for (int l = 0; l < 16; l++)
            lane[l] = t[i + l] > lane[l] ? t[i + l] : lane[l];
    for (int l = 0; l < 16; l++)
        max = lane[l] > max ? lane[l] : max;
    for (; i < count; i++)
        max = t[i] > max ? t[i] : max;
    return max;
}

void kvg_weights(struct kvg_scratch *s, int64_t r, int64_t from, int64_t to, int64_t first, int offset,
                 double *max)
{
    const double *t = s->logit + r * s->span + (from - first);
    const double m = *max = largest_of(t, to - from + 1, *max);
    /* If all logits so far are minus infinity or NaN, there is no maximum to subtract. */
    powers(t, to - from + 1, (m == -INFINITY ? 0 : m) - offset, s->p + r * s->span + (from - first));
}

void kvg_add_pv(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t last,
                struct kvg_scratch *s, double *sum, int64_t stride)
{
    const struct kvg_tiles *tiles = kvg_tiles_of(0);
    for (int64_t token = first, end; token <= last; token = end + 1) {
        int64_t low, high;
        end = kvg_block_end(token, last);
        kvg_rows_that_see(rows, g, token, end, &low, &high);
        if (high > 0)
            kvg_load_v(rows, g, token, end - token + 1, s);
        for (int64_t r = low; r < high; r++) {
            int64_t from, to;
            kvg_row_span(&rows->plans[g->row + r], token, end, &from, &to);
            if (to >= from)
                tiles->add_pv(s->p + r * s->span + (from - first), s->v + (from - token) * rows->dim,
                              to - from + 1, rows->dim, sum + r * stride);
        }
    }
}
