/* SPDX-License-Identifier: Apache-2.0
 *
 * naive.c: a kernel as a plug-in, as short as possible. Attention on path dequant in FP32, one row at a time.
 * Each logit is computed twice: first for the maximum, then for the sum.
 *
 *   make
 *   kvgauge run --plugin ./naive.so --kernel example/naive
 */
#include <math.h>
#include <stdio.h>
#include "fp8.h"
#include "kernel.h"

static int supports(const struct kvg_problem *p, char *why, size_t size)
{
    if (p->path == KVG_PATH_DEQUANT && (p->kv_dtype == KVG_BF16 || p->kv_dtype == KVG_E4M3) &&
        p->soft_cap == 0.0f)
        return 1;
    snprintf(why, size, "the example takes path dequant, a bf16 or e4m3 cache and no soft cap");
    return 0;
}

static void arithmetic(const struct kvg_problem *p, int64_t seq_len, struct kvg_arithmetic *out)
{
    (void)p;
    *out = (struct kvg_arithmetic){.qk_operand = KVG_F32,
                                   .qk_accumulator_bits = 24,
                                   .exp2_rel_error = 0x1p-22,
                                   .p_format = KVG_F32,
                                   .pv_operand = KVG_F32,
                                   .pv_accumulator_bits = 24, /* FP32: accumulator_rounding does not matter */
                                   .tile = seq_len > 0 ? seq_len : 1,
                                   .deterministic = 1,
                                   .same_bits_under = KVG_MOVE_PAGES | KVG_MOVE_HEADS | KVG_MOVE_SEQUENCES |
                                                      KVG_MOVE_WORK | KVG_MOVE_COMPANY | KVG_MOVE_CHUNKS};
}

/* Element d of key t, sequence b, KV head h. */
static float cached(const struct kvg_attention_args *a, const struct kvg_pages *pages, int64_t b, int64_t t,
                    int64_t h, int64_t d)
{
    const int64_t size = a->problem->block_size, block = a->block_table[b * a->block_table_stride + t / size];
    const int64_t i =
        block * pages->stride_block + t % size * pages->stride_slot + h * pages->stride_head + d;
    return a->problem->kv_dtype == KVG_BF16 ? kvg_bf16_decode(((const uint16_t *)pages->data)[i])
                                            : kvg_fp8_e4m3_decode(((const uint8_t *)pages->data)[i]);
}

static void attend_row(const struct kvg_attention_args *a, int64_t b, int64_t i, int64_t head)
{
    const struct kvg_problem *p = a->problem;
    const int64_t row = a->cu_q_lens[b] + i, q_len = a->cu_q_lens[b + 1] - a->cu_q_lens[b];
    const int64_t h = head / (p->q_heads / p->kv_heads), s = h * a->scales.k.stride_head;
    const int64_t end = p->mask == KVG_MASK_FULL ? a->seq_lens[b] : a->seq_lens[b] - q_len + i + 1;
    const int64_t first = p->window > 0 && end > p->window ? end - p->window : 0;
    const uint16_t *q = (const uint16_t *)a->q + row * a->q_stride_token + head * a->q_stride_head;
    uint16_t *out = (uint16_t *)a->out + row * a->out_stride_token + head * a->out_stride_head;
    const float scale = a->softmax_scale * (a->scales.k.data ? a->scales.k.data[s] : 1.0f);
    float max = -INFINITY, sum = 0.0f, acc[p->head_dim];

    for (int64_t d = 0; d < p->head_dim; d++)
        acc[d] = 0.0f;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t t = first; t < end; t++) {
            float dot = 0.0f, w;
            for (int64_t d = 0; d < p->head_dim; d++)
                dot += kvg_bf16_decode(q[d]) * cached(a, &a->k_cache, b, t, h, d);
            if (pass == 0) {
                max = fmaxf(max, dot * scale);
                continue;
            }
            sum += w = expf(dot * scale - max);
            for (int64_t d = 0; d < p->head_dim; d++)
                acc[d] += w * cached(a, &a->v_cache, b, t, h, d);
        }
    for (int64_t d = 0; d < p->head_dim; d++)
        out[d] = kvg_bf16_encode(end > first ? acc[d] * (a->scales.v.data ? a->scales.v.data[s] : 1.0f) / sum
                                             : 0.0f);
    if (a->lse)
        a->lse[row * a->lse_stride_token + head] = end > first ? max + logf(sum) : -INFINITY;
}

static int attention(const struct kvg_attention_args *a)
{
    for (int64_t b = 0; b < a->problem->batch; b++)
        for (int64_t i = 0; i < a->cu_q_lens[b + 1] - a->cu_q_lens[b]; i++)
            for (int64_t head = 0; head < a->problem->q_heads; head++)
                attend_row(a, b, i, head);
    return KVG_OK;
}

static const struct kvg_kernel naive = {.abi_version = KVG_KERNEL_ABI_VERSION,
                                        .struct_size = sizeof(struct kvg_kernel),
                                        .name = "example/naive",
                                        .summary = "the example plug-in: one row at a time",
                                        .device = KVG_DEVICE_CPU,
                                        .supports = supports,
                                        .arithmetic = arithmetic,
                                        .attention = attention,
                                        /* every key is found through the block table */
                                        .features = KVG_FEATURE_SHARED_PAGES | KVG_FEATURE_SMALL_PAGES};

const struct kvg_kernel *const *kvg_plugin_kernels(int64_t *count);
const struct kvg_kernel *const *kvg_plugin_kernels(int64_t *count)
{
    static const struct kvg_kernel *const list[] = {&naive};
    *count = 1;
    return list;
}
