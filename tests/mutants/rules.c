/* SPDX-License-Identifier: Apache-2.0
 *
 * rules.c: published acceptance rules, computed on our cases. rules.h states them.
 */
#include "rules.h"
#include "harness/prepare/prepared.h"

#include <math.h>
#include <stdlib.h>

const char *const rule_names[RULES] = {"vLLM", "FlashInfer", "FA3", "fi-bench", "benchdnn"};

static int64_t rows_of(const struct kvg_prepared *p)
{
    return p->total_q * p->problem.q_heads;
}

/* All rows in the order of the output. */
static struct kvg_ref_row *all_rows(const struct kvg_prepared *p)
{
    struct kvg_ref_row *rows = malloc((size_t)(rows_of(p) + 1) * sizeof *rows);
    int64_t n = 0;
    for (int64_t b = 0; rows && b < p->problem.batch; b++)
        for (int64_t i = 0; i < p->cu_q_lens[b + 1] - p->cu_q_lens[b]; i++)
            for (int64_t h = 0; h < p->problem.q_heads; h++)
                rows[n++] = (struct kvg_ref_row){(int32_t)b, (int32_t)i, (int32_t)h};
    return rows;
}

/* ---------------------------------------------------------------- FlashAttention-3's baseline */

static void load_row(const struct kvg_ref_kv *kv, int64_t b, int64_t t, int64_t h, int64_t dim, float *to)
{
    const float scale = kv->scale ? kv->scale[h * kv->scale_stride] : 1.0f;
    kvg_ref_load_row(kv->format, kv->data, kvg_ref_kv_index(kv, b, t, h), dim, to);
    for (int64_t d = 0; d < dim; d++)
        to[d] *= scale;
}

/* One row of the baseline: P is normalised, cast, and then multiplied with V. weight: room for all keys. */
static void baseline_row(const struct kvg_ref_attention *a, const struct kvg_ref_row *at,
                         enum kvg_ref_format p_format, float *weight, float *out)
{
    const int64_t dim = a->head_dim, b = at->seq, g = at->q_head / (a->q_heads / a->kv_heads);
    const int64_t q_len = a->cu_q_lens[b + 1] - a->cu_q_lens[b], token = a->cu_q_lens[b] + at->q_index;
    float q[512], row[512], max = -INFINITY, sum = 0.0f;
    int64_t first, last;
    kvg_ref_load_row(a->q_format, a->q, token * a->q_stride_token + at->q_head * a->q_stride_head, dim, q);
    kvg_ref_visible(&a->mask, b, a->seq_lens[b], q_len, at->q_index, &first, &last);
    const float scale = (float)a->softmax_scale * (a->q_scale ? a->q_scale[g * a->q_scale_stride] : 1.0f);
    for (int64_t d = 0; d < dim; d++)
        out[d] = 0.0f;
    for (int64_t t = first; t <= last; t++) {
        float s = 0.0f;
        load_row(&a->k, b, t, g, dim, row);
        for (int64_t d = 0; d < dim; d++)
            s += q[d] * row[d];
        s *= scale;
        weight[t - first] = a->soft_cap > 0.0 ? (float)a->soft_cap * tanhf(s / (float)a->soft_cap) : s;
        max = fmaxf(max, weight[t - first]);
    }
    max = a->sinks ? fmaxf(max, a->sinks[at->q_head]) : max;
    sum = a->sinks ? expf(a->sinks[at->q_head] - max) : 0.0f;
    for (int64_t t = first; t <= last; t++)
        sum += weight[t - first] = expf(weight[t - first] - max);
    for (int64_t t = first; t <= last; t++) {
        const float p = kvg_ref_round(p_format, weight[t - first] / sum);
        load_row(&a->v, b, t, g, dim, row);
        for (int64_t d = 0; d < dim && p != 0.0f; d++)
            out[d] += p * row[d];
    }
    for (int64_t d = 0; d < dim; d++)
        out[d] = kvg_ref_round(KVG_REF_BF16, out[d]);
}

static int make_baseline(const struct kvg_prepared *p, const struct kvg_ref_attention *a,
                         const struct kvg_ref_row *rows, float *out)
{
    float *weight = malloc((size_t)(p->problem.max_seq_len + 1) * sizeof *weight);
    if (!weight)
        return -1;
    for (int64_t i = 0; i < rows_of(p); i++)
        baseline_row(a, &rows[i], p->q8 ? KVG_REF_E4M3 : KVG_REF_BF16, weight, out + i * p->problem.head_dim);
    free(weight);
    return 0;
}

int rule_references_make(const struct kvg_prepared *p, struct rule_references *r)
{
    *r = (struct rule_references){0};
    if (p->problem.phase == KVG_PHASE_STORE)
        return 0;
    const int64_t n = rows_of(p) * p->problem.head_dim;
    const struct kvg_ref_bound_model model = {0};
    struct kvg_ref_attention a;
    struct kvg_ref_row *rows = all_rows(p);
    r->dequantised = calloc((size_t)n + 1, sizeof *r->dequantised);
    r->unquantised = calloc((size_t)n + 1, sizeof *r->unquantised);
    r->baseline = calloc((size_t)n + 1, sizeof *r->baseline);
    r->abs_pv = calloc((size_t)n + 1, sizeof *r->abs_pv);
    int failed = !rows || !r->dequantised || !r->unquantised || !r->baseline || !r->abs_pv;
    if (!failed) {
        const struct kvg_ref_terms terms = {.abs_pv = r->abs_pv};
        kvg_prepared_dequantised(p, &a);
        failed = kvg_ref_attention_bound(&a, &model, rows, rows_of(p), r->dequantised, NULL, &terms) != 0 ||
                 make_baseline(p, &a, rows, r->baseline) != 0;
        kvg_prepared_unquantised(p, &a);
        failed = failed || kvg_ref_attention_f32(&a, rows, rows_of(p), r->unquantised, NULL) != 0;
    }
    free(rows);
    return failed ? -1 : 0;
}

/* ---------------------------------------------------------------- the rules */

static int close_enough(double got, double want, double atol, double rtol)
{
    return fabs(got - want) <= atol + rtol * fabs(want); /* false for NaN */
}

/* ((d + .3) - .3) - d in bf16: the rounding error of bf16 itself near 0.3. */
static double bf16_slack(float d)
{
    const float r = kvg_ref_round(KVG_REF_BF16, d), up = kvg_ref_round(KVG_REF_BF16, r + 0.3f);
    return fabs((double)kvg_ref_round(KVG_REF_BF16, kvg_ref_round(KVG_REF_BF16, up - 0.3f) - r));
}

static int breaks_flash_attention(const struct kvg_prepared *p, const struct rule_references *r,
                                  const uint16_t *out)
{
    const int64_t n = rows_of(p) * p->problem.head_dim;
    double max = 0.0, mean = 0.0, base_max = 0.0, base_mean = 0.0, slack = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double got = (double)kvg_ref_bf16_decode(out[i]), want = (double)r->dequantised[i];
        if (!isfinite(got))
            return 1;
        const double base = fabs((double)r->baseline[i] - want);
        max = fmax(max, fabs(got - want));
        mean += fabs(got - want);
        base_max = fmax(base_max, base);
        base_mean += base;
        slack = fmax(slack, bf16_slack(r->dequantised[i]));
    }
    if (p->problem.phase == KVG_PHASE_PREFILL)
        return max > (p->problem.soft_cap > 0.0f ? 3.0 : 2.0) * base_max + 2.0 * slack;
    return max > 4.0 * base_max + 1e-5 || mean > 3.0 * base_mean;
}

unsigned rules_broken(const struct kvg_prepared *p, const struct rule_references *r, const uint16_t *out,
                      const float *lse)
{
    const int64_t dim = p->problem.head_dim, heads = p->problem.q_heads;
    const double eps = 0x1p-7;
    unsigned broken = breaks_flash_attention(p, r, out) ? 1u << RULE_FLASH_ATTENTION_3 : 0u;
    for (int64_t b = 0; b < p->problem.batch; b++)
        for (int64_t i = p->cu_q_lens[b] * heads * dim; i < p->cu_q_lens[b + 1] * heads * dim; i++) {
            const double got = (double)kvg_ref_bf16_decode(out[i]), d = (double)r->dequantised[i];
            const double error = fabs(got - d), relative = error / fabs(d);
            if (!close_enough(got, (double)r->unquantised[i], 0.15, 0.15))
                broken |= 1u << RULE_VLLM;
            if (!close_enough(got, d, 0.01, 0.2))
                broken |= 1u << RULE_FLASHINFER;
            if (!isfinite(got) || (error > 0.01 && relative > 0.01) || !isfinite((double)lse[i / dim]))
                broken |= 1u << RULE_FLASHINFER_BENCH;
            if (error != 0.0 && !(relative <= 8.0 * (1.0 + (double)p->seq_lens[b]) * eps) &&
                !(error <= eps * r->abs_pv[i]))
                broken |= 1u << RULE_BENCHDNN;
        }
    return broken;
}

static int breaks_cache_rule(const struct kvg_prepared *p, const struct kvg_pages *pages, const void *cache,
                             const uint16_t *source, const float *scale)
{
    const int64_t dim = p->problem.head_dim, heads = p->problem.kv_heads;
    const enum kvg_ref_format format = kvg_ref_format_of(p->problem.kv_dtype);
    for (int64_t i = 0; i < p->store_tokens; i++) {
        const int64_t slot = p->slot_mapping[i], size = p->problem.block_size;
        for (int64_t h = 0; h < heads && slot >= 0; h++)
            for (int64_t d = 0; d < dim; d++) {
                const int64_t at = slot / size * pages->stride_block + slot % size * pages->stride_slot +
                                   h * pages->stride_head + d;
                const double got =
                    (double)kvg_ref_load(format, cache, at) * (double)scale[h * p->scale_stride];
                if (!close_enough(got, (double)kvg_ref_bf16_decode(source[(i * heads + h) * dim + d]), 1e-3,
                                  0.1))
                    return 1;
            }
    }
    return 0;
}

unsigned rules_broken_by_store(const struct kvg_prepared *p, const void *k_cache, const void *v_cache)
{
    return breaks_cache_rule(p, &p->k_pages, k_cache, p->k, p->k_scale) ||
                   breaks_cache_rule(p, &p->v_pages, v_cache, p->v, p->v_scale)
               ? 1u << RULE_VLLM
               : 0u;
}
