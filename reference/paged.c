/* SPDX-License-Identifier: Apache-2.0
 *
 * paged.c: quantises rows and stores them in the slots of the slot mapping. It works on one row of one head
 * at a time, through the row codecs, because the harness fills whole caches with it.
 */
#include "paged.h"
#include "clones.h"

#include <string.h>

/* Elements of a row that are converted at once: a buffer of 2 KiB on the stack. */
enum { PIECE = 512 };
/* For fewer elements than this, starting threads costs more than it saves. */
enum { PARALLEL_FROM = 1 << 18 };

int64_t kvg_ref_kv_index(const struct kvg_ref_kv *kv, int64_t seq, int64_t token, int64_t head)
{
    int64_t block = seq, slot = token;
    if (kv->block_table) {
        block = kv->block_table[seq * kv->block_table_stride + token / kv->block_size];
        slot = token % kv->block_size;
    }
    return block * kv->stride_block + slot * kv->stride_slot + head * kv->stride_head;
}

float kvg_ref_scaled(enum kvg_ref_rule rule, float value, float scale)
{
    return rule == KVG_REF_DIVIDE ? value / scale : value * (1.0f / scale);
}

static int is_fp8(enum kvg_ref_format format)
{
    return kvg_ref_format_get_info(format)->bytes == 1;
}

KVG_REF_CLONES
static void divide_row(float *values, int64_t count, float scale)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = values[i] / scale;
}

KVG_REF_CLONES
static void multiply_row(float *values, int64_t count, float factor)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = values[i] * factor;
}

/* Converts count elements. The scale is used for an 8-bit destination only. */
static void convert_row(enum kvg_ref_rule rule, float scale, enum kvg_ref_format from, const void *source,
                        int64_t source_index, enum kvg_ref_format to, void *destination,
                        int64_t destination_index, int64_t count)
{
    float row[PIECE];
    for (int64_t i = 0; i < count; i += PIECE) {
        int64_t n = count - i < PIECE ? count - i : PIECE;
        kvg_ref_load_row(from, source, source_index + i, n, row);
        if (is_fp8(to) && rule == KVG_REF_DIVIDE)
            divide_row(row, n, scale);
        else if (is_fp8(to))
            multiply_row(row, n, 1.0f / scale);
        kvg_ref_store_row(to, destination, destination_index + i, n, row);
    }
}

/* Between equal formats the bits are copied, NaN payloads included. */
static void copy_row(enum kvg_ref_format format, const void *source, int64_t source_index, void *destination,
                     int64_t destination_index, int64_t count)
{
    int64_t bytes = kvg_ref_format_get_info(format)->bytes;
    memcpy((char *)destination + destination_index * bytes, (const char *)source + source_index * bytes,
           (size_t)(count * bytes));
}

void kvg_ref_paged_store(const struct kvg_ref_kv *cache, void *cache_data, enum kvg_ref_format source_format,
                         const void *source, int64_t source_stride_token, int64_t source_stride_head,
                         const int64_t *slot_mapping, int64_t tokens, int64_t heads, int64_t head_dim)
{
    int copy = source_format == cache->format && !is_fp8(cache->format);
#pragma omp parallel for schedule(static) if (tokens * heads * head_dim >= PARALLEL_FROM)
    for (int64_t t = 0; t < tokens; t++) {
        if (slot_mapping[t] < 0)
            continue;
        int64_t block = slot_mapping[t] / cache->block_size, slot = slot_mapping[t] % cache->block_size;
        for (int64_t h = 0; h < heads; h++) {
            int64_t from = t * source_stride_token + h * source_stride_head;
            int64_t to = block * cache->stride_block + slot * cache->stride_slot + h * cache->stride_head;
            float scale = cache->scale ? cache->scale[h * cache->scale_stride] : 1.0f;
            if (copy)
                copy_row(source_format, source, from, cache_data, to, head_dim);
            else
                convert_row(KVG_REF_DIVIDE, scale, source_format, source, from, cache->format, cache_data, to,
                            head_dim);
        }
    }
}

void kvg_ref_quantize_q(enum kvg_ref_format code_format, enum kvg_ref_rule rule,
                        enum kvg_ref_format source_format, const void *source, int64_t tokens,
                        int64_t q_heads, int64_t kv_heads, int64_t head_dim, const float *scale,
                        int64_t scale_stride, uint8_t *codes)
{
    int64_t group = q_heads / kv_heads;
#pragma omp parallel for schedule(static) if (tokens * q_heads * head_dim >= PARALLEL_FROM)
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t h = 0; h < q_heads; h++) {
            int64_t at = (t * q_heads + h) * head_dim;
            convert_row(rule, scale ? scale[h / group * scale_stride] : 1.0f, source_format, source, at,
                        code_format, codes, at, head_dim);
        }
}
