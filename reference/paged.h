/* SPDX-License-Identifier: Apache-2.0
 *
 * paged.h: the paged cache of the reference: where a token lives, how it is quantised on the way in, and
 * the view through which attention reads it.
 */
#ifndef KVG_REFERENCE_PAGED_H
#define KVG_REFERENCE_PAGED_H

#include <stdint.h>
#include "formats.h"

#ifdef __cplusplus
extern "C" {
#endif

/* K or V of a batch as attention reads it. With block_table NULL the tensor is contiguous per sequence:
 * token t of sequence b is "block" b, slot t. So one reader serves the paged FP8 cache and the plain
 * unquantised tensor alike. Element (b, t, h, d) sits at index
 *   block * stride_block + slot * stride_slot + h * stride_head + d,  all 64-bit, in elements. */
struct kvg_ref_kv {
    enum kvg_ref_format format;
    const void *data;
    int64_t stride_block, stride_slot, stride_head;
    int64_t block_size;         /* unused when block_table is NULL */
    const int32_t *block_table; /* [batch, block_table_stride] or NULL */
    int64_t block_table_stride;
    const float *scale;   /* value = code * scale[h * scale_stride]; NULL = 1 */
    int64_t scale_stride; /* 0 or 1 */
};

int64_t kvg_ref_kv_index(const struct kvg_ref_kv *kv, int64_t seq, int64_t token, int64_t head);

/* How a value becomes a code: by true division (K and V), or by the product with the reciprocal (Q). */
enum kvg_ref_rule { KVG_REF_DIVIDE = 0, KVG_REF_RECIPROCAL = 1 };

/* One element of quantisation; for BF16 and F16 `scale` is ignored. */
float kvg_ref_scaled(enum kvg_ref_rule rule, float value, float scale);

/* Quantise and scatter, the expectation of kvg_kernel.store bit by bit. source is
 * [tokens, heads, head_dim] with strides in elements; slot_mapping[i] < 0 stores nothing. `cache` has the
 * format, strides, block_size and data of the destination (block_table unused). Slots must be distinct: large
 * calls are shared out over the OpenMP threads of the process. */
void kvg_ref_paged_store(const struct kvg_ref_kv *cache, void *cache_data, enum kvg_ref_format source_format,
                         const void *source, int64_t source_stride_token, int64_t source_stride_head,
                         const int64_t *slot_mapping, int64_t tokens, int64_t heads, int64_t head_dim);

/* Quantise Q: codes[i] for [tokens, q_heads, head_dim] contiguous; scale index is h / group * scale_stride.
 */
void kvg_ref_quantize_q(enum kvg_ref_format code_format, enum kvg_ref_rule rule,
                        enum kvg_ref_format source_format, const void *source, int64_t tokens,
                        int64_t q_heads, int64_t kv_heads, int64_t head_dim, const float *scale,
                        int64_t scale_stride, uint8_t *codes);

#ifdef __cplusplus
}
#endif

#endif
