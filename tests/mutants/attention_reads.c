/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_reads.c: what a query row reads: its scales, the length of the sequence, Q, K and V through the
 * block table; and which heads and keys belong to it.
 */
#include <math.h>

#include "attention_row.h"

/* Reads bytes whose values are not used. */
static void touch(const void *from, int64_t bytes)
{
    const volatile unsigned char *at = from;
    for (int64_t i = 0; i < bytes; i++)
        (void)at[i];
}

/* ---------------------------------------------------------------- scales */

/* The scales that the first call saw: the first of this shape, or the first of all. */
static const float *remembered_scales(const struct row *r, int by_shape)
{
    static struct memory {
        uint64_t key;
        float scale[3][MUTANT_MAX_DIM];
    } memory[REMEMBERED];
    const struct kvg_scales *s = &r->a->scales;
    const uint64_t key = by_shape ? mutant_shape(r->a) | 1 : 1;
    const struct kvg_scale *tensor[3] = {&s->q, &s->k, &s->v};
    int at = 0;
    while (at < REMEMBERED - 1 && memory[at].key != 0 && memory[at].key != key)
        at++;
    for (int t = 0; t < 3 && memory[at].key == 0; t++)
        for (int64_t g = 0; g < r->p->kv_heads; g++)
            memory[at].scale[t][g] = tensor[t]->data ? tensor[t]->data[g * tensor[t]->stride_head] : 1.0f;
    memory[at].key = key;
    return memory[at].scale[0];
}

/* Scale of tensor 0 (Q), 1 (K) or 2 (V) for the row's head. */
float row_scale(const struct row *r, int tensor)
{
    const struct mutant *m = r->m;
    const struct kvg_scales *s = &r->a->scales;
    const struct kvg_scale *const all[3] = {&s->q, &s->k, &s->v};
    const struct kvg_scale *scale = all[tensor];
    int64_t g = r->g;
    if (!scale->data)
        return FAULT(scale_in_auto) && tensor == 1 ? 0.0625f : 1.0f;
    if (FAULT(k_v_scales_swapped) && tensor > 0)
        scale = all[3 - tensor];
    if (FAULT(q_scale_is_k_scale) && tensor == 0)
        scale = &s->k;
    if (FAULT(scale_of_head_0))
        g = 0;
    if (FAULT(scale_of_next_head))
        g = (g + 1) % r->p->kv_heads;
    if (FAULT(scale_by_query_head))
        g = r->head % r->p->kv_heads;
    if (FAULT(scale_of_first_call) || FAULT(scale_of_same_shape))
        return remembered_scales(r, FAULT(scale_of_same_shape))[tensor * MUTANT_MAX_DIM + g];
    if ((FAULT(k_scale_missing) && tensor == 1) || (FAULT(v_scale_missing) && tensor == 2) ||
        (FAULT(q_scale_missing) && tensor == 0) || (FAULT(scales_missing_per_head) && scale->stride_head) ||
        (FAULT(scales_missing_hnd) && r->p->layout == KVG_HND) ||
        (FAULT(v_scale_missing_prefill) && tensor == 2 && r->p->phase == KVG_PHASE_PREFILL) ||
        (FAULT(v_scale_missing_with_lse) && tensor == 2 && r->a->lse) ||
        (FAULT(v_scale_missing_without_lse) && tensor == 2 && !r->a->lse) ||
        (FAULT(k_scale_missing_windowed) && tensor == 1 && r->p->window > 0))
        return 1.0f;
    if (FAULT(scales_read_in_eights) && tensor == 1)
        touch(s->k.data, 8 * sizeof(float));
    const float value = scale->data[g * scale->stride_head];
    if (FAULT(k_scale_inverted) && tensor == 1)
        return 1.0f / value;
    if ((FAULT(k_scale_twice) && tensor == 1) || (FAULT(v_scale_twice) && tensor == 2))
        return value * value;
    if (FAULT(scale_floor))
        return fmaxf(value, 1.0f / 512.0f);
    if (FAULT(v_scale_bf16) && tensor == 2)
        return kvg_bf16_decode(kvg_bf16_encode(value));
    if (FAULT(k_scale_power_of_two) && tensor == 1)
        return exp2f(floorf(log2f(value)));
    return value;
}

/* The lengths that the first call of this shape saw in this buffer. */
const int32_t *remembered_lengths(const struct kvg_attention_args *a)
{
    static struct memory {
        uint64_t key;
        int32_t lengths[64];
    } memory[REMEMBERED];
    const uint64_t key = (mutant_shape(a) ^ (uint64_t)(uintptr_t)a->seq_lens) | 1;
    int at = 0;
    while (at < REMEMBERED - 1 && memory[at].key != 0 && memory[at].key != key)
        at++;
    for (int64_t b = 0; b < a->problem->batch && b < 64 && memory[at].key == 0; b++)
        memory[at].lengths[b] = a->seq_lens[b];
    memory[at].key = key;
    return memory[at].lengths;
}

float row_softmax_scale(const struct row *r)
{
    const struct mutant *m = r->m;
    if (FAULT(softmax_scale_missing))
        return 1.0f;
    if (FAULT(softmax_scale_from_shape))
        return 1.0f / sqrtf((float)r->p->head_dim);
    return FAULT(softmax_scale_of_128) ? 0.0883883476f : r->a->softmax_scale;
}

/* ---------------------------------------------------------------- the cache */

/* Value of a code of tensor 1 (K) or 2 (V). */
float row_decoded(const struct mutant *m, enum kvg_dtype dtype, uint8_t code, int tensor)
{
    if (FAULT(nan_read_as_480) && dtype == KVG_E4M3 && (code & 0x7f) == 0x7f)
        return code & 0x80 ? -480.0f : 480.0f;
    if (FAULT(negative_nan_read_as_480) && dtype == KVG_E4M3 && code == 0xff)
        return -480.0f;
    if (FAULT(decode_sign_of_v_lost) && tensor == 2)
        code &= 0x7f;
    if (FAULT(e5m2_as_e4m3) && dtype == KVG_E5M2)
        dtype = KVG_E4M3;
    else if (FAULT(e4m3_as_e5m2) && dtype == KVG_E4M3)
        dtype = KVG_E5M2;
    if (FAULT(fnuz_as_fn) && dtype == KVG_E4M3FNUZ)
        dtype = KVG_E4M3;
    if (FAULT(largest_code_is_nan) && dtype == KVG_E4M3 && (code & 0x7f) == 0x7e)
        return NAN;
    if (FAULT(largest_code_is_480) && dtype == KVG_E4M3 && (code & 0x7f) == 0x7e)
        return code & 0x80 ? -480.0f : 480.0f;
    if (FAULT(negative_zero_is_nan) && code == 0x80)
        return NAN;
    if ((FAULT(decode_flushes_subnormals) || (FAULT(decode_flushes_subnormals_of_k) && tensor == 1) ||
         (FAULT(decode_flushes_subnormals_of_v) && tensor == 2)) &&
        (code & 0x7f) < (dtype == KVG_E5M2 ? 4 : 8))
        return 0.0f;
    if (FAULT(decode_top_exponent_is_nan) && dtype == KVG_E4M3 && (code & 0x7f) >= 0x78)
        return NAN;
    return dtype == KVG_E4M3   ? kvg_fp8_e4m3_decode(code)
           : dtype == KVG_E5M2 ? kvg_fp8_e5m2_decode(code)
                               : kvg_fp8_e4m3fnuz_decode(code);
}

/* The strides of a cache, or those that a mutant takes instead. */
static struct kvg_pages strides_of(const struct row *r, int tensor)
{
    const struct mutant *m = r->m;
    const struct kvg_problem *p = r->p;
    struct kvg_pages pages = tensor == 1 ? r->a->k_cache : r->a->v_cache;
    const int64_t row = p->kv_heads * p->head_dim, nhd = p->layout == KVG_NHD;
    if (tensor == 2 && FAULT(v_strides_of_k)) {
        pages = r->a->k_cache;
        pages.data = r->a->v_cache.data;
    }
    if (tensor == 2 && FAULT(v_page_stride_of_k))
        pages.stride_block = r->a->k_cache.stride_block;
    if (tensor == 2 && FAULT(v_cache_behind_k))
        pages.data = (char *)r->a->k_cache.data +
                     r->a->num_blocks * r->a->k_cache.stride_block * (p->kv_dtype == KVG_BF16 ? 2 : 1);
    if (FAULT(page_stride_from_shape))
        pages.stride_block = p->block_size * row;
    if (FAULT(slot_stride_from_shape))
        pages.stride_slot = nhd ? row : p->head_dim;
    if (FAULT(head_stride_from_shape))
        pages.stride_head = nhd ? p->head_dim : p->block_size * p->head_dim;
    if (FAULT(rounds_cache_to_32_bytes))
        pages.data = (void *)((uintptr_t)pages.data & ~(uintptr_t)31);
    return pages;
}

int64_t row_common_pages(const struct row *r)
{
    const struct kvg_attention_args *a = r->a;
    const int64_t whole = least(r->n, a->seq_lens[0]) / r->p->block_size;
    const int32_t *own = a->block_table + r->b * a->block_table_stride;
    int64_t common = 0;
    while (r->b > 0 && common < whole && own[common] == a->block_table[common])
        common++;
    return common;
}

static int64_t power_of_two_from(int64_t x)
{
    int64_t power = 1;
    while (power < x)
        power *= 2;
    return power;
}

/* Index of dim 0 of a token in the cache. */
static int64_t place(const struct row *r, const struct kvg_pages *pages, int64_t token)
{
    const struct mutant *m = r->m;
    const struct kvg_problem *p = r->p;
    int64_t b = r->b, table_stride = r->a->block_table_stride, size = p->block_size;
    int64_t block_stride = pages->stride_block, slot_stride = pages->stride_slot,
            head_stride = pages->stride_head;
    if (FAULT(table_of_next_sequence))
        b = (b + 1) % p->batch;
    if (FAULT(batch_above_31))
        b %= 32;
    if (FAULT(table_stride_from_length))
        table_stride = (p->max_seq_len + size - 1) / size;
    if (FAULT(block_size_16))
        size = 16;
    if (FAULT(head_dim_256_page_16) && p->head_dim == 256 && size == 16)
        size = 8;
    if (FAULT(page_by_shift))
        size = power_of_two_from(size);
    if (FAULT(block_size_in_eights))
        size = (size + 7) / 8 * 8;
    const int64_t slot = FAULT(slot_by_mask) ? token & (size - 1) : token % size;
    if (FAULT(hnd_read_as_nhd)) {
        slot_stride = p->kv_heads * p->head_dim;
        head_stride = p->head_dim;
    }
    int64_t block = r->a->block_table[b * table_stride + token / size];
    if (FAULT(shared_pages_rounded_up) && token / size == row_common_pages(r) && token / size > 0)
        block = r->a->block_table[token / size];
    if (FAULT(table_prefetched))
        touch(&r->a->block_table[b * table_stride + token / size + 1], sizeof(int32_t));
    if (FAULT(first_page_always_0) && token / size == 0)
        block = r->b;
    if (FAULT(page_number_16_bits))
        block = (uint16_t)block;
    int64_t at = block * block_stride;
    if (FAULT(page_offset_32_bits))
        at = (int64_t)(uint32_t)((uint32_t)block * (uint32_t)block_stride);
    if (FAULT(page_offset_31_bits))
        at = (int64_t)(int32_t)((uint32_t)block * (uint32_t)block_stride);
    if (FAULT(page_offset_24_bits))
        at = (int64_t)((float)block * (float)block_stride + (float)(slot * slot_stride)) - slot * slot_stride;
    if (FAULT(page_offset_16_bits))
        at = (int64_t)(uint16_t)at;
    return at + slot * slot_stride + r->g * head_stride;
}

void row_load(const struct row *r, int tensor, int64_t token, float *to)
{
    const struct mutant *m = r->m;
    const struct kvg_pages strides = strides_of(r, tensor), *const pages = &strides;
    if (FAULT(v_one_slot_off) && tensor == 2 && (token ^ 1) < r->n)
        token ^= 1;
    const int64_t at = place(r, pages, token);
    const float *table = r->table[tensor];
    if (FAULT(cache_read_in_lines) && tensor == 2)
        touch((const char *)pages->data + at * (r->p->kv_dtype == KVG_BF16 ? 2 : 1),
              r->p->head_dim * (r->p->kv_dtype == KVG_BF16 ? 2 : 1) + 64);
    const int64_t flip = FAULT(v_dims_permuted) && tensor == 2 ? 1 : 0;
    if (r->p->kv_dtype == KVG_BF16)
        for (int64_t d = 0; d < r->p->head_dim; d++)
            to[d] = kvg_bf16_decode(((const uint16_t *)pages->data)[at + (d ^ flip)]);
    else
        for (int64_t d = 0; d < r->p->head_dim; d++)
            to[d] = table[((const uint8_t *)pages->data)[at + (d ^ flip)]];
    for (int64_t d = 0; d < r->p->head_dim && FAULT(nan_value_is_zero) && tensor == 2; d++)
        to[d] = isnan(to[d]) ? 0.0f : to[d];
}

/* ---------------------------------------------------------------- the row */

/* Mask chunked: the first key of the query's chunk. `own` is the query's own position. */
static int64_t chunk_start(const struct row *r, int64_t own)
{
    const struct mutant *m = r->m;
    const int64_t chunk = r->p->chunk;
    if (FAULT(chunk_ignored) || own < 0)
        return 0;
    if (FAULT(chunk_as_window))
        return most(0, own - chunk + 1);
    if (FAULT(chunk_from_first_query)) {
        const int64_t origin = most(r->n - r->q_len, 0);
        return own < origin ? 0 : origin + (own - origin) / chunk * chunk;
    }
    if (FAULT(chunk_of_last_row))
        own = r->n - 1;
    if (FAULT(chunk_boundary_late) && own % chunk == 0 && own > 0)
        own--;
    return own / chunk * chunk;
}

/* Mask prefix: keys that every query of the sequence sees. */
static int64_t prefix_keys(const struct row *r)
{
    const struct mutant *m = r->m;
    int64_t prefix = r->a->prefix_lens[FAULT(prefix_of_first_sequence) ? 0 : r->b];
    if (FAULT(prefix_ignored))
        prefix = 0;
    if (FAULT(prefix_one_more) && prefix > 0)
        prefix++;
    if (FAULT(prefix_one_less) && prefix > 0)
        prefix--;
    return least(prefix, r->n);
}

/* Finds the visible keys of the row. */
void row_find_keys(struct row *r)
{
    const struct mutant *m = r->m;
    if (FAULT(lengths_read_in_eights))
        touch(&r->a->seq_lens[r->b], 8 * sizeof(int32_t));
    const struct kvg_problem *p = r->p;
    const int64_t size = p->block_size;
    int64_t window = p->window;
    r->end = p->mask != KVG_MASK_FULL || FAULT(full_mask_ignored) ? r->n - r->q_len + r->i + 1 : r->n;
    if (FAULT(causal_top_left))
        r->end = least(r->i + 1 + (r->q_len == 1 ? r->n - 1 : 0), r->n);
    if ((FAULT(causal_missing_in_append) && p->phase == KVG_PHASE_APPEND) || FAULT(causal_of_last_row))
        r->end = r->n;
    if (FAULT(shared_pages_unmasked))
        r->end = most(r->end, row_common_pages(r) * size);
    if (FAULT(causal_one_ahead))
        r->end = least(r->end + 1, r->n);
    if (FAULT(window_one_more) || (FAULT(window_off_by_one_later_rows) && r->i > 0))
        window += window > 0;
    if (FAULT(window_one_less))
        window -= window > 1;
    if ((FAULT(window_first_row_only) && r->i > 0) || (FAULT(window_ignored_in_hnd) && p->layout == KVG_HND))
        window = 0;
    r->first = window > 0 ? most(0, r->end - window) : 0;
    if (p->mask == KVG_MASK_CHUNKED)
        r->first = most(r->first, chunk_start(r, r->end - 1));
    if (p->mask == KVG_MASK_PREFIX)
        r->end = most(r->end, prefix_keys(r));
    if (FAULT(shared_pages_of_first_only))
        r->first = most(r->first, row_common_pages(r) * size);
    if (FAULT(window_page_skipped) && r->first > 0)
        r->first = least((r->first / size + 1) * size, r->end - 1);
    if (FAULT(window_whole_tiles))
        r->first = r->first / MUTANT_TILE * MUTANT_TILE;
    if (FAULT(first_key_missed) && r->end - r->first > 1)
        r->first++;
    if (FAULT(last_key_missed) && r->end - r->first > 1)
        r->end--;
    if ((FAULT(length_tile_plus_1) && r->end == r->n && r->n > MUTANT_TILE && r->n % MUTANT_TILE == 1) ||
        (FAULT(length_page_plus_1) && r->end == r->n && r->n > size && r->n % size == 1))
        r->end--;
    if (FAULT(context_below_a_page) && r->n < size)
        r->end = r->first;
    if ((FAULT(tail_when_page_full) && r->n % size == 0 && r->end == r->n && r->n > 0) ||
        (FAULT(tail_when_page_not_full) && r->n % size != 0 && r->end == r->n))
        r->end++;
}

void row_find_heads(struct row *r)
{
    const struct mutant *m = r->m;
    const struct kvg_problem *p = r->p;
    int64_t group = p->q_heads / p->kv_heads, rounded = 1;
    r->g = r->head / group;
    while (rounded < group)
        rounded *= 2;
    if (FAULT(group_rounded_up))
        r->g = r->head / rounded;
    if (FAULT(head_modulo))
        r->g = r->head % p->kv_heads;
    if (FAULT(group_of_one) && group == 1)
        r->g = 0;
    if (FAULT(kv_heads_above_8))
        r->g %= 8;
}

int64_t row_token(const struct row *r)
{
    const struct mutant *m = r->m;
    if (FAULT(row_of_sequence_in_decode) && r->p->phase == KVG_PHASE_DECODE)
        return r->b;
    if (FAULT(rows_of_equal_length) && r->p->phase != KVG_PHASE_DECODE)
        return r->b * r->p->max_q_len + r->i;
    return r->a->cu_q_lens[r->b] + r->i;
}

void row_load_query(struct row *r)
{
    const struct mutant *m = r->m;
    const struct kvg_attention_args *a = r->a;
    int64_t token = row_token(r), head = r->head;
    if (FAULT(last_head_repeats) && head == r->p->q_heads - 1 && head > 0)
        head--;
    if (FAULT(heads_swapped) && (head ^ 1) < r->p->q_heads)
        head ^= 1;
    if (FAULT(later_sequences_wrong))
        token = most(0, least(r->i, a->cu_q_lens[1] - 1));
    const int64_t dim = r->p->head_dim,
                  stride_token = FAULT(q_token_stride_from_shape) ? r->p->q_heads * dim : a->q_stride_token,
                  stride_head = FAULT(q_head_stride_from_shape) ? dim : a->q_stride_head;
    const int64_t at = token * stride_token + head * stride_head;
    const char *data = a->q;
    if (FAULT(query_read_before))
        touch(data + at * (r->p->path == KVG_PATH_FP8 ? 1 : 2) - 16, 16);
    if (FAULT(rounds_q_to_32_bytes))
        data -= (uintptr_t)data % 32;
    for (int64_t d = 0; d < r->p->head_dim; d++)
        r->q[d] = r->p->path == KVG_PATH_FP8
                      ? kvg_fp8_e4m3_decode(((const uint8_t *)data)[at + d])
                      : kvg_bf16_decode(((const uint16_t *)(const void *)data)[at + d]);
}
