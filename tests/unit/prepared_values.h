/* SPDX-License-Identifier: Apache-2.0
 *
 * prepared_values.h: puts values that no input distribution has into Q, the cache and the scales of a
 * prepared case; and the random numbers that they are made of.
 */
#ifndef KVG_TESTS_PREPARED_VALUES_H
#define KVG_TESTS_PREPARED_VALUES_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "harness/prepare/prepared.h"

/* ---------------------------------------------------------------- random numbers (splitmix64) */

struct rng {
    uint64_t state;
};

static inline uint64_t rng_bits(struct rng *r)
{
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline double rng_unit(struct rng *r) /* uniform in (0, 1) */
{
    return ((double)(rng_bits(r) >> 11) + 0.5) * 0x1p-53;
}

static inline int64_t rng_below(struct rng *r, int64_t n)
{
    return (int64_t)(rng_bits(r) % (uint64_t)n);
}

/* Nearly normal: a sum of four uniform numbers, variance 1, within +-3.47. Fast enough for millions. */
static inline double rng_normal(struct rng *r)
{
    const uint64_t bits = rng_bits(r);
    const int64_t sum =
        (int64_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
    return (double)(2 * sum - 4 * 0xffff) * (1.7320508075688772 / (2.0 * 65536.0));
}

static inline double rng_log_uniform(struct rng *r, double low, double high)
{
    return low * pow(high / low, rng_unit(r));
}

/* ---------------------------------------------------------------- values */

enum k_pattern {
    K_NORMAL,
    K_OUTLIER,
    K_CHANNEL_OUTLIER,
    K_NEEDLE,
    K_SINK,
    K_VOCABULARY,
    K_RISING,
    K_PATTERNS
};
enum v_pattern { V_NORMAL, V_NONNEG, V_SHIFT, V_OUTLIER, V_TREND, V_PATTERNS };
enum scale_rule { SCALE_ABSMAX_448, SCALE_ABSMAX_200, SCALE_POWER_OF_TWO, SCALE_ONE, SCALE_RULES };

struct values {
    double q, k, v; /* magnitudes */
    enum k_pattern k_pattern;
    enum v_pattern v_pattern;
    enum scale_rule rule;
};

static inline float k_value(struct rng *r, const struct values *w, const uint16_t *q, int64_t t, int64_t n,
                            int64_t d, int64_t head_dim)
{
    const double x = rng_normal(r);
    if (w->k_pattern == K_OUTLIER && rng_unit(r) < 0.001)
        return (float)(w->k * (x + 10.0 * rng_normal(r)));
    if (w->k_pattern == K_CHANNEL_OUTLIER && d % 29 == 3)
        return (float)(w->k * 20.0 * x);
    /* A key that matches a query: its logit is about 8 standard deviations above the rest. */
    if ((w->k_pattern == K_NEEDLE && t == n / 3) || (w->k_pattern == K_SINK && t == 0))
        return (float)(w->k * 8.0 / sqrt((double)head_dim) * (double)kvg_ref_bf16_decode(q[d]) / w->q);
    /* Logits that rise to the end, so that the running max keeps moving. */
    if (w->k_pattern == K_RISING)
        return (float)(w->k * (0.3 * x + 6.0 * (double)t / (double)n / sqrt((double)head_dim) *
                                             (double)kvg_ref_bf16_decode(q[d]) / w->q));
    return (float)(w->k * x);
}

static inline float v_value(struct rng *r, const struct values *w, int64_t t, int64_t n)
{
    const double x = rng_normal(r);
    switch (w->v_pattern) {
    case V_NONNEG:
        return (float)(w->v * fabs(x));
    case V_SHIFT:
        return (float)(w->v * (1.0 + x));
    case V_OUTLIER:
        return (float)(w->v * (rng_unit(r) < 0.001 ? x + 10.0 * rng_normal(r) : x));
    case V_TREND: /* positive first, negative later: partial sums are far above the result */
        return (float)(w->v * (cos(3.141592653589793 * (double)t / (double)n) + 0.1 * x));
    default:
        return (float)(w->v * x);
    }
}

static inline void set_scales(const struct kvg_prepared *p, const uint16_t *data, int64_t tokens,
                              int64_t heads, enum scale_rule rule, double largest, float *scale)
{
    const int64_t d = p->c.head_dim, groups = p->scale_stride ? p->c.kv_heads : 1;
    for (int64_t g = 0; g < groups; g++) {
        double most = 1e-30;
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t h = 0; h < heads; h++)
                for (int64_t i = 0; i < d && (groups == 1 || h / (heads / groups) == g); i++)
                    most = fmax(most, fabs((double)kvg_ref_bf16_decode(data[(t * heads + h) * d + i])));
        const double s = most / (rule == SCALE_ABSMAX_200 ? 200.0 : largest);
        scale[g] = rule == SCALE_ONE            ? 1.0f
                   : rule == SCALE_POWER_OF_TWO ? (float)exp2(ceil(log2(s)))
                                                : (float)s;
    }
}

static inline void fill_cache_from(struct kvg_prepared *p, struct kvg_pages *pages, const float *scale,
                                   const uint16_t *source)
{
    const struct kvg_ref_kv view = {.format = kvg_ref_format_of(p->problem.kv_dtype),
                                    .data = pages->data,
                                    .stride_block = pages->stride_block,
                                    .stride_slot = pages->stride_slot,
                                    .stride_head = pages->stride_head,
                                    .block_size = p->c.block_size,
                                    .scale = scale,
                                    .scale_stride = p->scale_stride};
    kvg_poison_cache(p->problem.kv_dtype, pages->data, p->cache_elements);
    kvg_ref_paged_store(&view, pages->data, KVG_REF_BF16, source, p->c.kv_heads * p->c.head_dim,
                        p->c.head_dim, p->slot_mapping, p->store_tokens, p->c.kv_heads, p->c.head_dim);
}

/* K (tensor 1) and V (tensor 2) of each KV head have their own factor, so that scales differ between heads. Q
 * is divided by the factor of K, so that the logits do not change. */
static inline double head_factor(int64_t tensor, int64_t kv_head)
{
    struct rng r = {(uint64_t)(tensor * 1000 + kv_head)};
    rng_bits(&r);
    return exp2(4.0 * rng_unit(&r) - 2.0);
}

/* Puts other values, scales and caches into a prepared case. */
static inline void give_values(struct kvg_prepared *p, const struct values *all_heads, uint64_t seed)
{
    struct rng r = {seed};
    const int64_t d = p->c.head_dim, kv = p->c.kv_heads, heads = p->c.q_heads;
    for (int64_t i = 0; i < p->total_q * heads * d; i++)
        p->q[i] = kvg_ref_bf16_encode(
            (float)(all_heads->q / head_factor(1, i / d % heads / (heads / kv)) * rng_normal(&r)));
    for (int64_t b = 0; b < p->c.batch; b++) {
        const int64_t n = p->seq_lens[b], vocabulary = 5;
        for (int64_t t = 0; t < n; t++)
            for (int64_t g = 0; g < kv; g++) {
                struct values here = *all_heads;
                const struct values *w = &here;
                here.q /= head_factor(1, g);
                here.k *= head_factor(1, g);
                here.v *= head_factor(2, g);
                for (int64_t i = 0; i < d; i++) {
                    const int64_t at = ((p->cu_kv_lens[b] + t) * kv + g) * d + i;
                    const uint16_t *q = p->q + (p->cu_q_lens[b] * heads + g * (heads / kv)) * d;
                    p->k[at] = kvg_ref_bf16_encode(k_value(&r, w, q, t, n, i, d));
                    p->v[at] = kvg_ref_bf16_encode(v_value(&r, w, t, n));
                    if (w->k_pattern == K_VOCABULARY && t >= vocabulary) { /* repeats the same few keys */
                        const int64_t same = at - (t - (t * 7) % vocabulary) * kv * d;
                        p->k[at] = p->k[same];
                        p->v[at] = p->v[same];
                    }
                }
            }
    }
    if (p->problem.kv_dtype != KVG_BF16) {
        const double largest = kvg_ref_format_get_info(kvg_ref_format_of(p->problem.kv_dtype))->max;
        set_scales(p, p->k, p->total_kv, kv, all_heads->rule, largest, p->k_scale);
        set_scales(p, p->v, p->total_kv, kv, all_heads->rule, largest, p->v_scale);
    }
    if (p->q8) {
        set_scales(p, p->q, p->total_q, heads, all_heads->rule, 448.0, p->q_scale);
        kvg_ref_quantize_q(KVG_REF_E4M3, KVG_REF_RECIPROCAL, KVG_REF_BF16, p->q, p->total_q, heads, kv, d,
                           p->q_scale, p->scale_stride, p->q8);
    }
    fill_cache_from(p, &p->k_pages, p->k_scale, p->k);
    fill_cache_from(p, &p->v_pages, p->v_scale, p->v);
}

#endif
