/* SPDX-License-Identifier: Apache-2.0
 *
 * store.c: the driver of the CPU store and of the quantisation of Q. It finds the slot of each token,
 * converts one row per token and head, and spreads the tokens over the threads. Where the heads lie side by
 * side and share one scale, it converts one row per token.
 */
#include "store.h"

#include <string.h>

/* With fewer elements, waking threads costs more than the work. */
enum { PARALLEL_FROM = 1 << 16 };

static void copy_bf16(const void *source, int64_t count, float scale, void *destination)
{
    (void)scale;
    memcpy(destination, source, (size_t)count * 2);
}

static kvg_convert_row pick(const struct kvg_store_ops *ops, enum kvg_dtype from, enum kvg_dtype to,
                            enum kvg_scale_rule rule)
{
    return from == KVG_BF16 && to == KVG_BF16 ? copy_bf16 : ops->convert(from, to, rule);
}

int kvg_store_supports(const struct kvg_store_ops *ops, const struct kvg_problem *p, char *why, size_t size)
{
    if (p->phase != KVG_PHASE_STORE)
        return kvg_cpu_no(why, size, "the kernel stores only");
    if (!kvg_cpu_has(ops->isa, why, size))
        return 0;
    if (!pick(ops, p->q_dtype, p->kv_dtype, KVG_DIVIDE)) {
        return kvg_cpu_no(why, size, "no conversion from %s to a cache of %s", kvg_dtype_name(p->q_dtype),
                          kvg_dtype_name(p->kv_dtype));
    }
    if (p->kv_heads < 1 || p->head_dim < 1 || p->block_size < 1 || p->threads < 1)
        return kvg_cpu_no(why, size, "kv_heads, head_dim, block_size and threads must be at least 1");
    return 1;
}

/* K or V of a store. */
struct side {
    const char *source;
    int64_t stride_token, stride_head; /* of the source */
    const struct kvg_pages *cache;
    const float *scale;
};

static void store_token(const struct kvg_problem *p, const struct side *side, kvg_convert_row convert,
                        int64_t scale_stride, int64_t token, int64_t slot)
{
    const int64_t from_bytes = kvg_dtype_bytes(p->q_dtype), to_bytes = kvg_dtype_bytes(p->kv_dtype);
    const struct kvg_pages *cache = side->cache;
    const char *from = side->source + token * side->stride_token * from_bytes;
    char *to =
        (char *)cache->data +
        (slot / p->block_size * cache->stride_block + slot % p->block_size * cache->stride_slot) * to_bytes;

    if (side->stride_head == p->head_dim && cache->stride_head == p->head_dim &&
        (scale_stride == 0 || !side->scale)) {
        convert(from, p->kv_heads * p->head_dim, side->scale ? side->scale[0] : 1.0f, to);
        return;
    }
    for (int64_t h = 0; h < p->kv_heads; h++) {
        convert(from + h * side->stride_head * from_bytes, p->head_dim,
                side->scale ? side->scale[h * scale_stride] : 1.0f, to + h * cache->stride_head * to_bytes);
    }
}

int kvg_store_run(const struct kvg_store_ops *ops, const struct kvg_store_args *a)
{
    const struct kvg_problem *p = a->problem;
    const kvg_convert_row convert = pick(ops, p->q_dtype, p->kv_dtype, KVG_DIVIDE);
    const struct side k = {a->k, a->k_stride_token, a->k_stride_head, &a->k_cache, a->scales.k.data};
    const struct side v = {a->v, a->v_stride_token, a->v_stride_head, &a->v_cache, a->scales.v.data};
    const int64_t slots = a->num_blocks * p->block_size;

    if (!convert)
        return KVG_EUNSUPPORTED;
    for (int64_t i = 0; i < a->tokens; i++)
        if (a->slot_mapping[i] >= slots)
            return KVG_EINVAL; /* before anything is written */
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(p->threads) if (p->threads > 1 && a->tokens * p->kv_heads * p->head_dim >= PARALLEL_FROM)
    for (int64_t i = 0; i < a->tokens; i++) {
        if (a->slot_mapping[i] >= 0) {
            store_token(p, &k, convert, a->scales.k.stride_head, i, a->slot_mapping[i]);
            store_token(p, &v, convert, a->scales.v.stride_head, i, a->slot_mapping[i]);
        }
    }
    return KVG_OK;
}

int kvg_quantize_q_run(const struct kvg_store_ops *ops, const struct kvg_quantize_q_args *a)
{
    const struct kvg_problem *p = a->problem;
    const kvg_convert_row convert = ops->convert(KVG_BF16, KVG_E4M3, KVG_RECIPROCAL);
    const int64_t group = p->q_heads / p->kv_heads, dim = p->head_dim;
    const struct kvg_scale *scale = &a->scales.q;
    const int whole =
        a->q_stride_head == dim && a->q8_stride_head == dim && (scale->stride_head == 0 || !scale->data);

#pragma omp parallel for schedule(static)                                                                    \
    num_threads(p->threads) if (p->threads > 1 && p->total_q * p->q_heads * dim >= PARALLEL_FROM)
    for (int64_t i = 0; i < p->total_q; i++) {
        const uint16_t *from = (const uint16_t *)a->q + i * a->q_stride_token;
        uint8_t *to = (uint8_t *)a->q8 + i * a->q8_stride_token;

        if (whole) {
            convert(from, p->q_heads * dim, scale->data ? scale->data[0] : 1.0f, to);
            continue;
        }
        for (int64_t h = 0; h < p->q_heads; h++) {
            convert(from + h * a->q_stride_head, dim,
                    scale->data ? scale->data[h / group * scale->stride_head] : 1.0f,
                    to + h * a->q8_stride_head);
        }
    }
    return KVG_OK;
}
