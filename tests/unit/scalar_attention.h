/* SPDX-License-Identifier: Apache-2.0
 *
 * scalar_attention.h: a plain attention kernel for the tests of the verification, written independently of
 * reference/ and kernels/. It is FP32 scalar code that does exactly what a struct kvg_arithmetic declares.
 * The order of its sums can be chosen, and on request it has one fault.
 */
#ifndef KVG_TESTS_SCALAR_ATTENTION_H
#define KVG_TESTS_SCALAR_ATTENTION_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "harness/prepare/prepared.h"
#include "kernels/kernel.h"
#include "prepared_values.h"

/* ---------------------------------------------------------------- the kernel */

enum fault {
    FAULT_NONE,
    FAULT_ZERO,
    FAULT_NEGATED,
    FAULT_HEAD0_SCALES,
    FAULT_V_SCALE_MISSING,
    FAULT_V_SCALE_TWICE,
    FAULT_K_SCALE_MISSING,
    FAULT_K_SCALE_TWICE,
    FAULT_Q_SCALE_MISSING,
    FAULT_SOFTMAX_SCALE,
    FAULT_WINDOW_ONE_MORE,
    FAULT_WINDOW_ONE_LESS,
    FAULT_LAST_KEY_MISSED,
    FAULT_PAGE_TAIL_READ,
    FAULT_CAUSAL_TOP_LEFT,
    FAULT_HEADS_SWAPPED,
    FAULT_HEAD_MODULO,
    FAULT_GAIN,
    FAULT_OFFSET,
    FAULT_ACCUMULATOR_13,
    FAULT_NAN,
    FAULT_LSE_LOG2,
    FAULT_LSE_TRANSPOSED,
    FAULT_LSE_SCALE_MISSING,
    FAULT_EMPTY_SPLIT_NAN,
    FAULT_EMPTY_NOT_WRITTEN,
    FAULT_E5M2_AS_E4M3,
    FAULT_RESCALE_FORGOTTEN,
    FAULT_SOFT_CAP_MISSING,
    FAULT_SPLIT_DROPPED,
    FAULT_P_NOT_OFFSET,
    FAULT_COUNT
};

/* A fault in some keys: key t >= from with t / size % cycle == class counts 1 + excess times, in P V alone or
 * in the row sum too. cycle 0: no such keys. */
struct scalar_wrong_keys {
    int64_t from, size, cycle, class;
    float excess;
    int in_row_sum;
};

struct scalar_kernel {
    struct kvg_arithmetic declared;
    enum fault fault;
    int narrow;       /* Hopper's FP8 accumulation in both products, PV flushed to FP32 after each tile */
    int half;         /* HALF_QK, HALF_PV or both: FP16 accumulators (declare_half); for FP8 caches */
    int lanes;        /* number of partial sums of a dot product; 1 = one serial chain */
    int sum_per_tile; /* 1: each tile is summed separately, and its sum is then added */
    double exp_error; /* largest relative error, random, of each exponential; within the declared one */
    struct scalar_wrong_keys wrong;
};

static inline enum kvg_ref_format scalar_format(enum kvg_dtype dtype)
{
    return kvg_ref_format_of(dtype);
}

/* q.k in `lanes` chains, which are then added one after the other. */
static inline float scalar_dot(const float *a, const float *b, int64_t n, int lanes)
{
    float lane[16] = {0}, sum = 0.0f;
    for (int64_t i = 0; i < n; i++)
        lane[i % lanes] += a[i] * b[i];
    for (int i = 0; i < lanes; i++)
        sum += lane[i];
    return sum;
}

/* An exponential with a random relative error of at most exp_error. */
static inline float scalar_exp2(const struct scalar_kernel *k, float x, uint64_t salt)
{
    struct rng r = {salt ^ (uint64_t)(int64_t)(x * 4096.0f)};
    if (x == 0.0f)
        return 1.0f;
    return exp2f(x) * (float)(1.0 + k->exp_error * (2.0 * rng_unit(&r) - 1.0));
}

/* Hopper's FP8 accumulation: 32 products and the accumulator aligned to the largest exponent, 13 fraction
 * bits kept, the rest cut off; the result cut to 13 fraction bits. A zero has no exponent, a subnormal e4m3
 * that of the smallest normal. */
static inline float truncated(double x, int exponent)
{
    return (float)ldexp(trunc(ldexp(x, 13 - exponent)), exponent - 13);
}

enum { NO_EXPONENT = -200 };
static inline int exponent_of(double x, int least)
{
    const int e = x == 0.0 ? NO_EXPONENT : ilogb(x);
    return x != 0.0 && e < least ? least : e;
}

static inline float accumulate_13(float acc, const float *p, const float *v, int64_t stride, int64_t count)
{
    int largest = exponent_of((double)acc, NO_EXPONENT);
    double sum;
    for (int64_t j = 0; j < count; j++) {
        const double x = (double)p[j], y = (double)v[j * stride];
        const int e = x * y == 0.0 ? NO_EXPONENT : exponent_of(x, -6) + exponent_of(y, -6);
        largest = e > largest ? e : largest;
    }
    sum = (double)truncated((double)acc, largest);
    for (int64_t j = 0; j < count; j++)
        sum += (double)truncated((double)p[j] * (double)v[j * stride], largest);
    return truncated(sum, exponent_of(sum, NO_EXPONENT));
}

/* FP16 accumulation. The operands are first multiplied by powers of two, so that sums do not overflow. Each
 * fused multiply-add rounds to the nearest number of 11 bits, with a step of at least 2^-24. */
enum { HALF_QK = 1, HALF_PV = 2 };
#define HALF_MOST 65504.0
#define HALF_TOP 224.0        /* no code times 2^-8 is larger */
#define HALF_SMALLEST 0x1p-14 /* smallest normal number of FP16 */

/* Rounds to 11 bits, ties to even: 1.5 * 2^42 times the power of two of x is added and subtracted again. */
static inline double rounded_half(double x)
{
    double power;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0x7ff0000000000000u;
    memcpy(&power, &bits, sizeof power);
    const double magic = (power > HALF_SMALLEST ? power : HALF_SMALLEST) * 0x1.8p42;
    return (x + magic) - magic;
}

/* A row of Q is multiplied by a power of two, so that its largest element is below this limit and at least
 * half of it. */
static inline double half_q_limit(int64_t head_dim)
{
    int exponent;
    frexp(HALF_MOST / (HALF_TOP * (double)head_dim), &exponent);
    return ldexp(0.5, exponent);
}

/* The factor of P, besides its own offset. With it the sum of `flush` products with the largest value is
 * below HALF_MOST. */
static inline double half_p_factor(int64_t flush)
{
    int exponent;
    frexp(HALF_MOST / (HALF_TOP * (double)flush), &exponent);
    return ldexp(0.5, exponent);
}

/* Declares FP16 accumulators of `which`, PV flushed after `flush` keys. */
static inline void declare_half(struct scalar_kernel *k, int which, int64_t flush, int64_t head_dim)
{
    struct kvg_arithmetic *a = &k->declared;
    k->half = which;
    a->accumulator_rounding = KVG_ROUND_NEAREST;
    a->k_scaled_before_qk = a->v_scaled_before_pv = 0;
    if (which & HALF_QK) {
        a->qk_accumulator_bits = 11;
        a->qk_smallest_normal = HALF_SMALLEST * 0x1p8 / (0.5 * half_q_limit(head_dim));
    }
    if (which & HALF_PV) {
        a->pv_accumulator_bits = 11;
        a->pv_flush_interval = flush;
        a->pv_smallest_normal = HALF_SMALLEST * 0x1p8 / half_p_factor(flush);
    }
}

static inline float half_dot(const float *q, const float *codes, int64_t n, int lanes)
{
    double lane[16] = {0}, sum = 0.0, largest = 0.0;
    int exponent = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)q[i]));
    frexp(largest, &exponent); /* largest < 2^exponent */
    const double factor = largest > 0.0 ? ldexp(half_q_limit(n), -exponent) : 1.0;
    for (int64_t i = 0; i < n; i++)
        lane[i % lanes] = rounded_half(lane[i % lanes] + (double)q[i] * factor * ((double)codes[i] * 0x1p-8));
    for (int i = 0; i < lanes; i++)
        sum = rounded_half(sum + lane[i]);
    return (float)(sum / factor * 0x1p8);
}

/* Adds the sums of `count` keys to acc[head_dim]. They are FP16 sums between two flushes. */
static inline void half_values(const struct kvg_arithmetic *a, const float *p, const float *codes,
                               int64_t dim, int64_t count, float *acc)
{
    const double factor =
        ldexp(half_p_factor(a->pv_flush_interval), a->p_format == KVG_E4M3 ? -a->p_offset_log2 : 0);
    for (int64_t from = 0; from < count; from += a->pv_flush_interval)
        for (int64_t i = 0; i < dim; i++) {
            double sum = 0.0;
            for (int64_t j = from; j < count && j < from + a->pv_flush_interval; j++)
                sum = rounded_half(sum + (double)p[j] * factor * ((double)codes[j * dim + i] * 0x1p-8));
            acc[i] += (float)(sum / factor * 0x1p8);
        }
}

struct scalar_row {
    const struct kvg_prepared *p;
    const struct scalar_kernel *k;
    int64_t seq, head, kv_head, first, last;
    const float *q;
    float factor, soft_cap;
    float *keys, *vals, *logits, *weights; /* scratch: [tile_max * head_dim] and [tile_max] */
};

static inline int64_t scalar_index(const struct scalar_row *r, const struct kvg_pages *pages, int64_t token)
{
    const struct kvg_prepared *p = r->p;
    const int64_t page = p->block_table[r->seq * p->block_table_stride + token / p->c.block_size];
    return page * pages->stride_block + token % p->c.block_size * pages->stride_slot +
           r->kv_head * pages->stride_head;
}

static inline void scalar_load(const struct scalar_row *r, const struct kvg_pages *pages, int64_t token,
                               float scale, enum kvg_dtype operand, int scaled_first, float *to)
{
    const struct kvg_prepared *p = r->p;
    enum kvg_ref_format format = scalar_format(p->problem.kv_dtype);
    if (r->k->fault == FAULT_E5M2_AS_E4M3 && format == KVG_REF_E5M2)
        format = KVG_REF_E4M3;
    const int64_t n = p->c.head_dim;
    kvg_ref_load_row(format, pages->data, scalar_index(r, pages, token), n, to);
    if (r->k->fault == FAULT_E5M2_AS_E4M3)
        for (int64_t d = 0; d < n; d++)
            to[d] = isnan(to[d]) ? 0.0f : to[d]; /* a fault: replacing NaN by 0 hides its cause */
    if (scaled_first)
        for (int64_t d = 0; d < n; d++)
            to[d] *= scale;
    if (operand == KVG_BF16)
        for (int64_t d = 0; d < n; d++)
            to[d] = kvg_ref_bf16_decode(kvg_ref_bf16_encode(to[d]));
    else if (operand != KVG_F32)
        for (int64_t d = 0; d < n && scaled_first; d++)
            to[d] = kvg_ref_round(scalar_format(operand), to[d]);
}

/* The scales that the kernel uses. */
static inline float scalar_scale(const struct scalar_row *r, const float *scale)
{
    return scale[(r->k->fault == FAULT_HEAD0_SCALES ? 0 : r->kv_head) * r->p->scale_stride];
}

/* Softmax state of one split. */
struct scalar_state {
    float max, sum;
    float acc[256];
    int updates;
};

static inline float scalar_excess(const struct scalar_wrong_keys *wrong, int64_t t)
{
    return wrong->cycle > 0 && t >= wrong->from && t / wrong->size % wrong->cycle == wrong->class
               ? 1.0f + wrong->excess
               : 1.0f;
}

static inline int scalar_offset(const struct kvg_arithmetic *a)
{
    return a->p_format == KVG_E4M3 || a->p_format == KVG_F16 ? a->p_offset_log2 : 0;
}

static inline void scalar_tile(const struct scalar_row *r, int64_t from, int64_t to, struct scalar_state *s)
{
    const struct scalar_kernel *k = r->k;
    const struct kvg_arithmetic *a = &k->declared;
    const int64_t d = r->p->c.head_dim;
    const float log2e = 1.44269504f;
    float max = s->max, tile_sum = 0.0f, tile_acc[256] = {0};
    float k_scale = scalar_scale(r, r->p->k_scale), v_scale = scalar_scale(r, r->p->v_scale);
    const int offset = scalar_offset(a);
    if (k->fault == FAULT_K_SCALE_MISSING)
        k_scale = 1.0f;
    if (k->fault == FAULT_K_SCALE_TWICE && a->k_scaled_before_qk)
        k_scale *= k_scale;
    if (k->fault == FAULT_V_SCALE_MISSING)
        v_scale = 1.0f;
    for (int64_t t = from; t <= to; t++) {
        scalar_load(r, &r->p->k_pages, t, k_scale, a->qk_operand, a->k_scaled_before_qk, r->keys);
        scalar_load(r, &r->p->v_pages, t, v_scale, a->pv_operand, a->v_scaled_before_pv,
                    r->vals + (t - from) * d);
        float logit = scalar_dot(r->q, r->keys, d, k->lanes);
        if (k->narrow) {
            logit = 0.0f;
            for (int64_t i = 0; i < d; i += 32)
                logit = accumulate_13(logit, r->q + i, r->keys + i, 1, 32);
        }
        if (k->half & HALF_QK)
            logit = half_dot(r->q, r->keys, d, k->lanes);
        logit *= r->factor;
        if (r->soft_cap > 0.0f && k->fault != FAULT_SOFT_CAP_MISSING)
            logit = r->soft_cap * tanhf(logit / r->soft_cap);
        r->logits[t - from] = logit;
        max = logit > max || isnan(logit) ? logit : max;
    }
    float alpha = s->max == -INFINITY ? 0.0f : scalar_exp2(k, (s->max - max) * log2e, 1);
    if (k->fault == FAULT_RESCALE_FORGOTTEN && alpha != 1.0f && s->updates++ == 1)
        alpha = 1.0f; /* the second time that the maximum rises */
    s->max = max;
    s->sum *= alpha;
    for (int64_t i = 0; i < d; i++)
        s->acc[i] *= alpha;
    for (int64_t t = from; t <= to; t++) {
        const float w = scalar_exp2(
            k, (r->logits[t - from] - max) * log2e + (k->fault == FAULT_P_NOT_OFFSET ? 0.0f : (float)offset),
            (uint64_t)t);
        const float rounded = kvg_ref_round(scalar_format(a->p_format), w);
        const float excess = scalar_excess(&k->wrong, t);
        r->weights[t - from] = rounded * excess;
        *(k->sum_per_tile ? &tile_sum : &s->sum) +=
            (a->row_sum_of_rounded_p ? rounded : w) * (k->wrong.in_row_sum ? excess : 1.0f);
        if (k->fault == FAULT_ACCUMULATOR_13 || k->narrow || (k->half & HALF_PV))
            continue;
        float *acc = k->sum_per_tile ? tile_acc : s->acc;
        for (int64_t i = 0; i < d; i++)
            acc[i] += r->weights[t - from] * r->vals[(t - from) * d + i];
    }
    float *chain = k->narrow ? tile_acc : s->acc; /* cleared for each tile, or one chain over all */
    if (k->fault == FAULT_ACCUMULATOR_13 || k->narrow)
        for (int64_t t = from; t <= to; t += 32)
            for (int64_t i = 0; i < d; i++)
                chain[i] = accumulate_13(chain[i], r->weights + (t - from), r->vals + (t - from) * d + i, d,
                                         to - t + 1 < 32 ? to - t + 1 : 32);
    if (k->half & HALF_PV)
        half_values(a, r->weights, r->vals, d, to - from + 1, tile_acc);
    s->sum += tile_sum;
    for (int64_t i = 0; i < d; i++)
        s->acc[i] += tile_acc[i];
}

/* Adds keys [begin, end) of one split, as far as the row sees them. */
static inline void scalar_split(const struct scalar_row *r, int64_t begin, int64_t end,
                                struct scalar_state *s)
{
    const struct kvg_arithmetic *a = &r->k->declared;
    const int64_t tile = a->tile > 0 ? a->tile : end - begin, tiles = (end - begin + tile - 1) / tile;
    memset(s, 0, sizeof *s);
    s->max = -INFINITY;
    if (a->sink_in_maximum && r->p->sinks && r->first >= begin && r->first < end) {
        s->max = r->p->sinks[r->head];
        s->sum = exp2f((float)(r->k->fault == FAULT_P_NOT_OFFSET ? 0 : scalar_offset(a)));
    }
    for (int64_t n = 0; n < tiles; n++) {
        const int64_t at = begin + (a->tile_last_first ? tiles - 1 - n : n) * tile;
        int64_t from = at, to = (at + tile < end ? at + tile : end) - 1;
        from = from > r->first ? from : r->first;
        to = to < r->last ? to : r->last;
        if (from <= to)
            scalar_tile(r, from, to, s);
    }
}

/* One output row: splits, merge, division. */
static inline void scalar_row(const struct scalar_row *r, uint16_t *out, float *lse)
{
    const struct kvg_arithmetic *a = &r->k->declared;
    const int64_t d = r->p->c.head_dim, n = r->p->seq_lens[r->seq];
    const int64_t origin = a->split_from_window ? r->first : 0;
    const int64_t end = r->last + 1 > n ? r->last + 1 : n;
    const int64_t size = a->split_tokens > 0 ? a->split_tokens : end - origin;
    const float offset = r->k->fault != FAULT_P_NOT_OFFSET ? (float)scalar_offset(a) : 0.0f;
    float max = -INFINITY, sum = 0.0f, acc[256] = {0};
    int taken = 0;
    for (int64_t begin = origin; begin < end; begin += size) {
        struct scalar_state s;
        scalar_split(r, begin, begin + size < end ? begin + size : end, &s);
        if (s.sum == 0.0f && r->k->fault != FAULT_EMPTY_SPLIT_NAN)
            continue; /* nothing visible in this split */
        if (r->k->fault == FAULT_SPLIT_DROPPED && taken++ == 1)
            continue;
        const float part = s.max + (logf(s.sum) - offset * 0.693147181f); /* lse of the split */
        const float best = part > max ? part : max;
        const float old = r->k->fault == FAULT_EMPTY_SPLIT_NAN || max > -INFINITY ? expf(max - best) : 0.0f;
        const float now = expf(part - best);
        sum = sum * old + now;
        for (int64_t i = 0; i < d; i++)
            acc[i] = acc[i] * old + s.acc[i] / s.sum * now;
        max = best;
    }
    if (r->p->sinks && !a->sink_in_maximum) {
        const float best = fmaxf(r->p->sinks[r->head], max), old = expf(max - best);
        sum = sum * old + expf(r->p->sinks[r->head] - best);
        for (int64_t i = 0; i < d; i++)
            acc[i] *= old;
        max = best;
    }
    const float v_scale = a->v_scaled_before_pv                  ? 1.0f
                          : r->k->fault == FAULT_V_SCALE_MISSING ? 1.0f
                                                                 : scalar_scale(r, r->p->v_scale);
    for (int64_t i = 0; i < d; i++) {
        float o = acc[i] / sum * v_scale;
        if (r->k->fault == FAULT_V_SCALE_TWICE)
            o *= v_scale;
        if (r->k->fault == FAULT_GAIN)
            o *= 0.99f;
        out[i] = kvg_ref_bf16_encode(o);
    }
    *lse = max + logf(sum);
}

/* The whole case. lse may not be NULL. */
static inline void scalar_attention(const struct kvg_prepared *p, const struct scalar_kernel *k,
                                    uint16_t *out, float *lse)
{
    const int64_t d = p->c.head_dim, heads = p->c.q_heads, group = heads / p->c.kv_heads;
    int64_t longest = 1;
    for (int64_t b = 0; b < p->c.batch; b++)
        longest = p->seq_lens[b] > longest ? p->seq_lens[b] : longest;
    longest = k->declared.tile > 0 && k->declared.tile < longest ? k->declared.tile : longest;
    float *scratch = malloc((size_t)((longest + 2) * d + 2 * longest) * sizeof *scratch);
    if (!scratch)
        abort();
    struct scalar_row r = {.p = p, .k = k, .keys = scratch, .vals = scratch + d};
    r.logits = r.vals + (longest + 1) * d;
    r.weights = r.logits + longest;
    r.soft_cap = p->problem.soft_cap;
    for (int64_t b = 0; b < p->c.batch; b++)
        for (int64_t i = 0; i < p->cu_q_lens[b + 1] - p->cu_q_lens[b]; i++)
            for (int64_t h = 0; h < heads; h++) {
                const int64_t row = (p->cu_q_lens[b] + i) * heads + h, n = p->seq_lens[b];
                const int64_t q_len = p->cu_q_lens[b + 1] - p->cu_q_lens[b];
                float q[256];
                r.seq = b;
                r.head = h;
                r.kv_head = k->fault == FAULT_HEAD_MODULO ? h % p->c.kv_heads : h / group;
                r.last = p->problem.mask == KVG_MASK_FULL    ? n - 1
                         : k->fault == FAULT_CAUSAL_TOP_LEFT ? (i < n ? i : n - 1)
                                                             : n - q_len + i;
                int64_t window = p->problem.window;
                if (window > 0)
                    window += (k->fault == FAULT_WINDOW_ONE_MORE) - (k->fault == FAULT_WINDOW_ONE_LESS);
                r.first = window > 0 && r.last - window + 1 > 0 ? r.last - window + 1 : 0;
                if (p->problem.mask == KVG_MASK_CHUNKED)
                    while (r.first / p->problem.chunk < r.last / p->problem.chunk)
                        r.first++;
                if (p->problem.mask == KVG_MASK_PREFIX)
                    while (r.last + 1 < n && r.last + 1 < p->prefix_lens[b])
                        r.last++;
                if (k->fault == FAULT_LAST_KEY_MISSED)
                    r.last--;
                if (k->fault == FAULT_PAGE_TAIL_READ && r.last % p->c.block_size != p->c.block_size - 1)
                    r.last++;
                if (r.last < r.first) {
                    if (k->fault == FAULT_EMPTY_NOT_WRITTEN)
                        continue;
                    memset(out + row * d, 0, (size_t)d * sizeof *out);
                    lse[row] = p->sinks ? p->sinks[h] : -INFINITY;
                    continue;
                }
                const int64_t q_row = k->fault == FAULT_HEADS_SWAPPED ? row ^ 1 : row;
                for (int64_t j = 0; j < d; j++)
                    q[j] = kvg_ref_round(scalar_format(k->declared.qk_operand),
                                         p->q8 ? kvg_ref_load(KVG_REF_E4M3, p->q8, q_row * d + j)
                                               : kvg_ref_bf16_decode(p->q[q_row * d + j]));
                r.q = q;
                const float k_scale = scalar_scale(&r, p->k_scale);
                r.factor = p->softmax_scale;
                if (p->q8 && k->fault != FAULT_Q_SCALE_MISSING)
                    r.factor *= scalar_scale(&r, p->q_scale);
                if (!k->declared.k_scaled_before_qk && k->fault != FAULT_K_SCALE_MISSING)
                    r.factor *= k_scale;
                if (!k->declared.k_scaled_before_qk && k->fault == FAULT_K_SCALE_TWICE)
                    r.factor *= k_scale;
                if (k->fault == FAULT_SOFTMAX_SCALE)
                    r.factor *= 1.05f;
                scalar_row(&r, out + row * d, &lse[row]);
            }
    free(scratch);
}

/* Faults of the finished output. */
static inline void spoil(const struct kvg_prepared *p, enum fault fault, uint16_t *out, float *lse)
{
    const int64_t rows = p->total_q * p->c.q_heads, elements = rows * p->c.head_dim;
    switch (fault) {
    case FAULT_ZERO:
        memset(out, 0, (size_t)elements * sizeof *out);
        break;
    case FAULT_NEGATED:
        for (int64_t i = 0; i < elements; i++)
            out[i] ^= 0x8000u;
        break;
    case FAULT_NAN:
        out[elements / 2] = 0x7fc0u;
        break;
    case FAULT_LSE_LOG2:
        for (int64_t i = 0; i < rows; i++)
            lse[i] *= 1.44269504f;
        break;
    case FAULT_LSE_SCALE_MISSING: /* the offset 2^8 is not removed */
        for (int64_t i = 0; i < rows; i++)
            lse[i] += 8.0f * 0.693147181f;
        break;
    case FAULT_LSE_TRANSPOSED: {
        float *copy = malloc((size_t)rows * sizeof *copy);
        if (!copy)
            abort();
        memcpy(copy, lse, (size_t)rows * sizeof *copy);
        for (int64_t t = 0; t < p->total_q; t++)
            for (int64_t h = 0; h < p->c.q_heads; h++)
                lse[h * p->total_q + t] = copy[t * p->c.q_heads + h];
        free(copy);
        break;
    }
    case FAULT_OFFSET: /* 1 % of the largest output is added to every element */
    {
        float most = 0.0f;
        for (int64_t i = 0; i < elements; i++)
            most = fmaxf(most, fabsf(kvg_ref_bf16_decode(out[i])));
        for (int64_t i = 0; i < elements; i++)
            out[i] = kvg_ref_bf16_encode(kvg_ref_bf16_decode(out[i]) + 0.01f * most);
        break;
    }
    default:
        break;
    }
}

#endif
