/* SPDX-License-Identifier: Apache-2.0
 *
 * paged.h: the paged cache of the reference: the address of a token, how a token is quantised when it is
 * stored, and the view through which attention reads the cache.
 */
#ifndef KVG_REFERENCE_PAGED_H
#define KVG_REFERENCE_PAGED_H

#include <stdint.h>
#include "formats.h"

#ifdef __cplusplus
extern "C" {
#endif

/* K or V of a batch, as attention reads it. Element (sequence b, token t, head h, dimension d) is at index
 *
 *   block * stride_block + slot * stride_slot + h * stride_head + d   (64-bit, in elements)
 *
 *   with a block table:  block = block_table[b * block_table_stride + t / block_size], slot = t % block_size
 *   without (NULL):      block = b, slot = t
 *
 * The second form describes a plain tensor, contiguous per sequence. So one reader serves both the paged FP8
 * cache and the unquantised tensor. All pointers belong to the caller. */
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

/* Index of dimension 0. */
int64_t kvg_ref_kv_index(const struct kvg_ref_kv *kv, int64_t seq, int64_t token, int64_t head);

/* How a value is scaled before it is encoded: divided by the scale (K and V), or multiplied by the reciprocal
 * of the scale (Q). The two may differ in the last bit. */
enum kvg_ref_rule { KVG_REF_DIVIDE = 0, KVG_REF_RECIPROCAL = 1 };

/* `value` scaled by the rule, in FP32. */
float kvg_ref_scaled(enum kvg_ref_rule rule, float value, float scale);

/* Quantises tokens and stores each in the slot that slot_mapping names: the expected result, to the bit, of a
 * kernel's store (kvg_kernel.store in kvgauge's kernels/kernel.h).
 *
 *   cache         format, strides, block_size and scale of the destination; block_table and data are not used
 *   cache_data    the destination
 *   source        [tokens, heads, head_dim] in source_format, strides in elements
 *   slot_mapping  [tokens], slot = block * block_size + slot of the block; a negative entry stores nothing
 *
 * The scale applies to FP8 only. Between equal formats of 16 or 32 bits the bits are copied. Slots must be
 * distinct, because large calls are split over the OpenMP threads of the process. */
void kvg_ref_paged_store(const struct kvg_ref_kv *cache, void *cache_data, enum kvg_ref_format source_format,
                         const void *source, int64_t source_stride_token, int64_t source_stride_head,
                         const int64_t *slot_mapping, int64_t tokens, int64_t heads, int64_t head_dim);

/* Quantises Q. source and codes are contiguous [tokens, q_heads, head_dim]. Query head h takes the scale
 * scale[h / (q_heads / kv_heads) * scale_stride]; NULL = 1. */
void kvg_ref_quantize_q(enum kvg_ref_format code_format, enum kvg_ref_rule rule,
                        enum kvg_ref_format source_format, const void *source, int64_t tokens,
                        int64_t q_heads, int64_t kv_heads, int64_t head_dim, const float *scale,
                        int64_t scale_stride, uint8_t *codes);

#ifdef __cplusplus
}
#endif

#endif
