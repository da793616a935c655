/* SPDX-License-Identifier: Apache-2.0
 *
 * store.c: stores K and V of new tokens in the paged cache, and quantises Q to e4m3, element by element.
 */
#include <math.h>
#include <string.h>

#include "mutant.h"

static float largest_of(enum kvg_dtype dtype)
{
    return dtype == KVG_E5M2 ? 57344.0f : dtype == KVG_E4M3FNUZ ? 240.0f : 448.0f;
}

static uint8_t encode(enum kvg_dtype dtype, float x)
{
    return dtype == KVG_E5M2       ? kvg_fp8_e5m2_encode(x)
           : dtype == KVG_E4M3FNUZ ? kvg_fp8_e4m3fnuz_encode(x)
                                   : kvg_fp8_e4m3_encode(x);
}

static float decode(enum kvg_dtype dtype, uint8_t code)
{
    return dtype == KVG_E5M2       ? kvg_fp8_e5m2_decode(code)
           : dtype == KVG_E4M3FNUZ ? kvg_fp8_e4m3fnuz_decode(code)
                                   : kvg_fp8_e4m3_decode(code);
}

/* Rounded to FP16, to nearest even. */
static float through_f16(float x)
{
    int e;
    if (!isfinite(x) || x == 0.0f)
        return x;
    if (fabsf(x) >= 65520.0f)
        return copysignf(INFINITY, x);
    frexpf(x, &e);
    const float step = ldexpf(1.0f, (e < -13 ? -13 : e) - 11); /* of the last bit */
    return rintf(x / step) * step;
}

/* Rounded to 23 bits, to nearest even. */
static float without_last_bit(float x)
{
    const uint32_t bits = kvg_f32_bits(x);
    return isfinite(x) ? kvg_f32_from_bits((bits + (bits >> 1 & 1u)) & ~1u) : x;
}

static int has_largest_code(enum kvg_dtype dtype, uint8_t code)
{
    return decode(dtype, code & 0x7f) == largest_of(dtype);
}

/* The code of a magnitude that is rounded by adding half of the distance to the next code, then cut off. */
static uint8_t with_half_added(enum kvg_dtype dtype, uint8_t code, float x)
{
    uint8_t lower = code & 0x7f;
    if (decode(dtype, lower) > fabsf(x))
        lower--;
    if (!isfinite(x) || has_largest_code(dtype, lower))
        return code;
    const float next = decode(dtype, (uint8_t)(lower + 1)), half = (next - decode(dtype, lower)) / 2.0f;
    if (fabsf(x) + half >= next)
        lower++;
    return (uint8_t)(lower | (signbit(x) && (lower || dtype != KVG_E4M3FNUZ) ? 0x80 : 0));
}

/* The code of a value divided by its scale. */
static uint8_t quantised(const struct mutant *m, enum kvg_dtype dtype, float value, float scale, int is_v)
{
    float x = FAULT(store_reciprocal) ? value * (1.0f / scale) : value / scale;
    const float largest = largest_of(dtype);
    if (FAULT(store_scale_missing))
        x = value;
    if (FAULT(store_writes_e4m3))
        dtype = KVG_E4M3;
    if (FAULT(store_rounds_twice))
        x = kvg_bf16_decode(kvg_bf16_encode(x));
    if (FAULT(store_through_f16))
        x = through_f16(x);
    if (FAULT(store_loses_last_bit))
        x = without_last_bit(x);
    if (FAULT(store_quotient_one_bit_high) && isfinite(x))
        x = nextafterf(x, copysignf(INFINITY, x));
    if (FAULT(store_overflows_to_nan) && fabsf(x) > largest)
        x = NAN;
    if (FAULT(store_saturates_at_240))
        x = fminf(fmaxf(x, -240.0f), 240.0f);
    if (FAULT(store_percentile))
        x = fminf(fmaxf(x, -0.875f * largest), 0.875f * largest);
    if (FAULT(store_nan_becomes_zero) && isnan(x))
        x = 0.0f;
    if (FAULT(store_infinity_becomes_nan) && isinf(x))
        x = NAN;
    uint8_t code = encode(dtype, x);
    if (FAULT(store_largest_code_missing) && has_largest_code(dtype, code))
        code--;
    const float back = decode(dtype, code);
    if (FAULT(store_truncates) && fabsf(back) > fabsf(x))
        code--;
    if (FAULT(store_adds_half))
        code = with_half_added(dtype, code, x);
    if (FAULT(store_ties_away) && fabsf(back) < fabsf(x) && (code & 0x7f) < 0x7d &&
        fabsf(decode(dtype, (uint8_t)(code + 1))) - fabsf(x) == fabsf(x) - fabsf(back))
        code++;
    if ((FAULT(store_flushes_subnormals) || (FAULT(store_flushes_subnormals_of_v) && is_v) ||
         (FAULT(store_flushes_subnormals_of_k) && !is_v)) &&
        (code & 0x7f) < (dtype == KVG_E5M2 ? 4 : 8))
        code &= 0x80;
    if (FAULT(store_loses_negative_zero) && code == 0x80)
        code = 0;
    return code;
}

struct tensor {
    const uint16_t *source;
    int64_t stride_token, stride_head;
    const struct kvg_pages *pages;
    const float *scale;
};

static float scale_of(const struct mutant *m, const struct kvg_store_args *a, const struct tensor *t,
                      int64_t h, float absmax)
{
    if (!t->scale)
        return 1.0f;
    if (FAULT(store_own_scale))
        return absmax > 0.0f ? absmax / 448.0f : 1.0f;
    if (FAULT(store_zero_scale) && h == a->problem->kv_heads - 1)
        return 0.0f;
    return t->scale[h * a->scales.k.stride_head];
}

static void store_row(const struct mutant *m, const struct kvg_store_args *a, const struct tensor *t,
                      int64_t token, int64_t slot, int64_t h, float *absmax)
{
    const struct kvg_problem *p = a->problem;
    int64_t size = FAULT(store_block_size_16) ? 16 : p->block_size;
    while (FAULT(store_page_by_shift) && (size & (size - 1)))
        size += size & -size;
    const int64_t in_page = FAULT(store_slot_by_mask) ? slot & (size - 1) : slot % size;
    int64_t block_stride = t->pages->stride_block, slot_stride = t->pages->stride_slot,
            head_stride = t->pages->stride_head, dims = p->head_dim;
    int64_t source_token = t->stride_token, source_head = t->stride_head;
    if (FAULT(store_page_stride_from_shape))
        block_stride = size * p->kv_heads * dims;
    if (FAULT(store_slot_stride_from_shape))
        slot_stride = p->layout == KVG_NHD ? p->kv_heads * dims : dims;
    if (FAULT(store_head_stride_from_shape))
        head_stride = p->layout == KVG_NHD ? dims : size * dims;
    if (FAULT(store_source_token_stride))
        source_token = p->kv_heads * dims;
    if (FAULT(store_source_head_stride))
        source_head = dims;
    if (FAULT(store_hnd_as_nhd)) {
        slot_stride = p->kv_heads * p->head_dim;
        head_stride = p->head_dim;
    }
    if (FAULT(store_odd_dims_missing) && dims > 64)
        dims = dims / 64 * 64;
    int64_t at = slot / size * block_stride;
    if (FAULT(store_offset_32_bits))
        at = (int64_t)(uint32_t)at;
    at += in_page * slot_stride + h * head_stride;
    const uint16_t *from = t->source + token * source_token + h * source_head;
    for (int64_t d = 0; d < dims; d++) {
        const float value = kvg_bf16_decode(from[d]);
        *absmax = fmaxf(*absmax, fabsf(value));
        if (p->kv_dtype == KVG_BF16)
            ((uint16_t *)t->pages->data)[at + d] =
                FAULT(store_auto_as_fp8) ? kvg_bf16_encode(kvg_fp8_e4m3_decode(kvg_fp8_e4m3_encode(value)))
                                         : from[d];
        else
            ((uint8_t *)t->pages->data)[at + d] =
                quantised(m, p->kv_dtype, value, scale_of(m, a, t, h, *absmax), t->pages == &a->v_cache);
    }
}

static void store_tensor(const struct mutant *m, const struct kvg_store_args *a, const struct tensor *t)
{
    const struct kvg_problem *p = a->problem;
    const int64_t bytes = p->kv_dtype == KVG_BF16 ? 2 : 1;
    int64_t stored = 0;
    float absmax = 0.0f;
    for (int64_t i = 0; i < a->tokens; i++)
        stored += a->slot_mapping[i] >= 0;
    for (int64_t i = 0, n = 0; i < a->tokens; i++) {
        int64_t slot = a->slot_mapping[i];
        if (slot < 0 && FAULT(store_padding_to_slot_0))
            slot = 0;
        if (slot < 0 && FAULT(store_padding_to_last_slot))
            slot = a->num_blocks * p->block_size - 1;
        if (FAULT(store_slots_read_ahead))
            (void)((const volatile int64_t *)a->slot_mapping)[i + 1];
        if (slot < -1 && FAULT(store_slot_is_minus_one))
            slot = 0;
        if (slot < 0 && FAULT(store_stops_at_padding))
            break;
        if (slot < 0)
            continue;
        if (FAULT(store_slots_consecutive) && i > 0 && a->slot_mapping[i - 1] >= 0 &&
            (a->slot_mapping[i - 1] + 1) % p->block_size != 0)
            slot = a->slot_mapping[i - 1] + 1;
        if (++n == stored && FAULT(store_last_token_missing))
            continue;
        if (FAULT(store_race) && n == stored / 2 && mutant_chance() % 50 == 0)
            continue;
        for (int64_t h = 0; h < p->kv_heads; h++)
            store_row(m, a, t, i, slot, h, &absmax);
        if (FAULT(store_fills_page) && (i + 1 == a->tokens || a->slot_mapping[i + 1] != slot + 1) &&
            (slot + 1) % p->block_size != 0)
            memset((char *)t->pages->data + bytes * (slot / p->block_size * t->pages->stride_block +
                                                     (slot % p->block_size + 1) * t->pages->stride_slot),
                   0, (size_t)(bytes * p->head_dim));
    }
    if (FAULT(store_writes_past_cache))
        ((uint8_t *)t->pages->data)[bytes * a->num_blocks * t->pages->stride_block] = 0;
}

int mutant_store(const struct mutant *m, const struct kvg_store_args *a)
{
    struct tensor k = {a->k, a->k_stride_token, a->k_stride_head, &a->k_cache, a->scales.k.data};
    struct tensor v = {a->v, a->v_stride_token, a->v_stride_head, &a->v_cache, a->scales.v.data};
    if (FAULT(store_k_v_swapped)) {
        k.pages = &a->v_cache;
        v.pages = &a->k_cache;
    }
    struct kvg_pages v_as_k = a->k_cache;
    v_as_k.data = a->v_cache.data;
    if (FAULT(store_v_strides_of_k))
        v.pages = &v_as_k;
    if (FAULT(store_v_source_strides_of_k)) {
        v.stride_token = k.stride_token;
        v.stride_head = k.stride_head;
    }
    store_tensor(m, a, &k);
    store_tensor(m, a, &v);
    return KVG_OK;
}

static uint8_t quantised_q(const struct mutant *m, float value, float scale)
{
    float x = FAULT(quantize_division) ? value / scale : value * (1.0f / scale);
    if (FAULT(quantize_through_f16))
        x = through_f16(x);
    if (FAULT(quantize_through_bf16))
        x = kvg_bf16_decode(kvg_bf16_encode(x));
    if (FAULT(quantize_loses_last_bit))
        x = without_last_bit(x);
    uint8_t code = kvg_fp8_e4m3_encode(x);
    if (FAULT(quantize_ties_away))
        code = with_half_added(KVG_E4M3, code, x);
    if (FAULT(quantize_largest_code_missing) && has_largest_code(KVG_E4M3, code))
        code--;
    if (FAULT(quantize_flushes_subnormals) && (code & 0x7f) < 8)
        code &= 0x80;
    if (FAULT(quantize_loses_negative_zero) && code == 0x80)
        code = 0;
    return code;
}

int mutant_quantize_q(const struct mutant *m, const struct kvg_quantize_q_args *a)
{
    const struct kvg_problem *p = a->problem;
    const int64_t group = p->q_heads / p->kv_heads;
    for (int64_t i = 0; i < p->total_q; i++)
        for (int64_t h = 0; h < p->q_heads; h++) {
            const int64_t g = FAULT(quantize_scale_of_head_0) ? 0 : h / group;
            const float scale =
                FAULT(quantize_scale_missing) ? 1.0f : a->scales.q.data[g * a->scales.q.stride_head];
            const int64_t dense = (i * p->q_heads + h) * p->head_dim;
            const uint16_t *from =
                (const uint16_t *)a->q +
                (FAULT(quantize_q_strides_from_shape) ? dense : i * a->q_stride_token + h * a->q_stride_head);
            uint8_t *to = (uint8_t *)a->q8 + (FAULT(quantize_q8_strides_from_shape)
                                                  ? dense
                                                  : i * a->q8_stride_token + h * a->q8_stride_head);
            for (int64_t d = 0; d < p->head_dim; d++) {
                const float x = kvg_bf16_decode(from[d]);
                if (FAULT(quantize_reads_ahead))
                    (void)((const volatile uint16_t *)from)[d + 32];
                if (FAULT(q_wraps_beyond_448) && fabsf(x * (1.0f / scale)) > 448.0f) {
                    to[d] = 0x7f;
                    continue;
                }
                to[d] = quantised_q(m, x, scale);
            }
        }
    return KVG_OK;
}
