/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_rows.c: the arithmetic that exact, emulating and bounding reference share.
 *
 * Logits are summed in double: a logit of 50 in FP32 is off by up to 2e-6, and that goes straight into its
 * weight. Weights are rounded to FP32 and multiplied with V in FP32; at most KVG_BLOCK_TOKENS of these
 * products are added in FP32 before the sum joins a double. The order of every sum is written out below in
 * lanes of vector types, which the compiler maps to whatever registers there are without changing it.
 */
#include "attention_rows.h"
#include "clones.h"
#include "exp2.h"

#include <math.h>

typedef double double4 __attribute__((vector_size(32)));
typedef float float8 __attribute__((vector_size(32)));

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

/* One key or value, scaled and rounded as asked. */
static void load_kv(const struct kvg_ref_kv *kv, const struct kvg_group *g, int64_t token, int64_t head_dim,
                    int scaled_first, enum kvg_ref_format operand, float *out)
{
    kvg_ref_load_row(kv->format, kv->data, kvg_ref_kv_index(kv, g->seq, token, g->kv_head), head_dim, out);
    if (scaled_first && kv->scale)
        scale_row(out, head_dim, kv->scale[g->kv_head * kv->scale_stride]);
    kvg_ref_round_row(operand, out, head_dim);
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

static void load_k(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t count,
                   struct kvg_scratch *s)
{
    for (int64_t t = 0; t < count; t++) {
        load_kv(&rows->a->k, g, first + t, rows->a->head_dim, rows->operands.k_scaled_first, rows->operands.k,
                s->row);
        widen_row(s->row, rows->a->head_dim, s->k + t * rows->dim);
    }
}

void kvg_load_v(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t count,
                struct kvg_scratch *s)
{
    for (int64_t t = 0; t < count; t++)
        load_kv(&rows->a->v, g, first + t, rows->a->head_dim, rows->operands.v_scaled_first, rows->operands.v,
                s->v + t * rows->dim);
}

/* ---------------------------------------------------------------- logits */

/* q . k of n rows with one key: eight lanes, then a tree. */
static inline __attribute__((always_inline)) void dots(const double *q, int n, const double *k, int64_t dim,
                                                       double *out, int64_t stride)
{
    double4 low[4] = {{0}}, high[4] = {{0}};
    for (int64_t d = 0; d < dim; d += 8) {
        double4 k_low = *(const double4 *)(k + d), k_high = *(const double4 *)(k + d + 4);
        for (int r = 0; r < n; r++) {
            low[r] += *(const double4 *)(q + r * dim + d) * k_low;
            high[r] += *(const double4 *)(q + r * dim + d + 4) * k_high;
        }
    }
    for (int r = 0; r < n; r++) {
        double4 sum = low[r] + high[r];
        out[r * stride] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
}

KVG_REF_CLONES
static void dots_of_block(const double *q, int64_t rows, const double *k, int64_t count, int64_t dim,
                          double *out, int64_t stride)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
        for (int64_t t = 0; t < count; t++)
            dots(q + r * dim, 4, k + t * dim, dim, out + r * stride + t, stride);
    for (; r < rows; r++)
        for (int64_t t = 0; t < count; t++)
            dots(q + r * dim, 1, k + t * dim, dim, out + r * stride + t, stride);
}

/* The same with absolute values: sum_d |q_d k_d|. */
KVG_REF_CLONES
static void absolute_dots(const double *q, int64_t rows, const double *k, int64_t count, int64_t dim,
                          double *out, int64_t stride)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t t = 0; t < count; t++) {
            double lane[8] = {0};
            for (int64_t d = 0; d < dim; d += 8)
                for (int l = 0; l < 8; l++)
                    lane[l] += fabs(q[r * dim + d + l] * k[t * dim + d + l]);
            out[r * stride + t] =
                ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
        }
}

/* |x|' of struct kvg_ref_floors. */
KVG_REF_CLONES
static void aligned_row(double *x, int64_t count, double floor)
{
    for (int64_t d = 0; d < count; d++) {
        const double size = fabs(x[d]);
        x[d] = size > 0 && size < floor ? floor : size; /* NaN stays */
    }
}

/* The floor of K in units of what is loaded here. */
static double k_floor(const struct kvg_rows *rows, const struct kvg_group *g,
                      const struct kvg_ref_floors *floors)
{
    const struct kvg_ref_kv *k = &rows->a->k;
    if (!floors->k_scaled || rows->operands.k_scaled_first || !k->scale)
        return floors->k;
    return floors->k / fabs((double)k->scale[g->kv_head * k->scale_stride]);
}

/* sum_d |q_d|' |k_d|'. The block of K is spent; Q is taken apart in the scratch row and stays. */
static void aligned_dots(const struct kvg_rows *rows, const struct kvg_group *g, int64_t low, int64_t high,
                         int64_t count, const struct kvg_ref_floors *floors, struct kvg_scratch *s,
                         double *out, int64_t stride)
{
    const int64_t dim = rows->dim;
    aligned_row(s->k, count * dim, k_floor(rows, g, floors));
    for (int64_t r = low; r < high; r++) {
        double *q = s->q + r * dim;
        for (int64_t d = 0; d < dim; d++)
            s->row[d] = (float)q[d]; /* Q came from FP32 */
        aligned_row(q, dim, floors->q);
        absolute_dots(q, 1, s->k, count, dim, out + (r - low) * stride, stride);
        widen_row(s->row, dim, q);
    }
}

/* Dot products to logits in units of log2. */
KVG_REF_CLONES
static void finish_logits(double *t, int64_t count, double scale, double cap)
{
    if (cap > 0)
        for (int64_t i = 0; i < count; i++)
            t[i] = cap * kvg_tanh(t[i] * scale / cap) * KVG_LOG2E;
    else
        for (int64_t i = 0; i < count; i++)
            t[i] = t[i] * scale * KVG_LOG2E;
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

static void logits(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t last,
                   const struct kvg_ref_bound_model *spread, struct kvg_scratch *s)
{
    for (int64_t token = first, end; token <= last; token = end + 1) {
        int64_t low, high;
        end = kvg_block_end(token, last);
        kvg_rows_that_see(rows, g, token, end, &low, &high);
        if (high == 0)
            continue;
        int64_t count = end - token + 1, at = low * s->span + (token - first);
        load_k(rows, g, token, count, s);
        dots_of_block(s->q + low * rows->dim, high - low, s->k, count, rows->dim, s->logit + at, s->span);
        if (spread && (spread->floors.q > 0 || spread->floors.k > 0))
            aligned_dots(rows, g, low, high, count, &spread->floors, s, s->spread + at, s->span);
        else if (spread)
            absolute_dots(s->q + low * rows->dim, high - low, s->k, count, rows->dim, s->spread + at,
                          s->span);
    }
    for (int64_t r = 0; r < g->rows; r++) {
        const struct kvg_row_plan *row = &rows->plans[g->row + r];
        int64_t from, to;
        kvg_row_span(row, first, last, &from, &to);
        if (to >= from)
            finish_logits(s->logit + r * s->span + (from - first), to - from + 1, row->scale,
                          rows->a->soft_cap);
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
    logits(rows, g, first, last, model, s);
    for (int64_t r = 0; r < g->rows; r++) {
        const struct kvg_row_plan *row = &rows->plans[g->row + r];
        double factor = model->logit_rel * fabs(row->scale), *spread = s->spread + r * s->span;
        int64_t from, to;
        kvg_row_span(row, first, last, &from, &to);
        for (int64_t i = from; i <= to; i++)
            spread[i - first] = factor * spread[i - first] + model->logit_abs;
    }
}

/* ---------------------------------------------------------------- weights and values */

KVG_REF_CLONES
static void powers(const double *restrict t, int64_t count, double minus, float *restrict p)
{
    for (int64_t i = 0; i < count; i++)
        p[i] = (float)kvg_exp2(t[i] - minus);
}

void kvg_weights(struct kvg_scratch *s, int64_t r, int64_t from, int64_t to, int64_t first, int offset,
                 double *max)
{
    const double *t = s->logit + r * s->span + (from - first);
    double m = *max;
    for (int64_t i = 0; i <= to - from; i++)
        m = t[i] > m ? t[i] : m;
    *max = m;
    /* With nothing but minus infinity (or NaN) seen so far there is no maximum to subtract. */
    powers(t, to - from + 1, (m == -INFINITY ? 0 : m) - offset, s->p + r * s->span + (from - first));
}

/* sum[d] += sum_t p[t] v[t][d]: FP32 over the block, in the order of the keys, then double. */
static inline __attribute__((always_inline)) void add_tile(const float *p, const float *v, int64_t count,
                                                           int64_t dim, int vectors, double *sum)
{
    float8 acc[4] = {{0}};
    for (int64_t t = 0; t < count; t++)
        for (int i = 0; i < vectors; i++)
            acc[i] += p[t] * *(const float8 *)(v + t * dim + 8 * i);
    for (int i = 0; i < vectors; i++)
        for (int l = 0; l < 8; l++)
            sum[8 * i + l] += (double)acc[i][l];
}

KVG_REF_CLONES
static void add_block(const float *p, const float *v, int64_t count, int64_t dim, double *sum)
{
    int64_t d = 0;
    for (; d + 32 <= dim; d += 32)
        add_tile(p, v + d, count, dim, 4, sum + d);
    for (; d < dim; d += 16)
        add_tile(p, v + d, count, dim, 2, sum + d);
}

void kvg_add_pv(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t last,
                struct kvg_scratch *s, double *sum, int64_t stride)
{
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
                add_block(s->p + r * s->span + (from - first), s->v + (from - token) * rows->dim,
                          to - from + 1, rows->dim, sum + r * stride);
        }
    }
}
