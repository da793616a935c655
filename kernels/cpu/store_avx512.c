/* SPDX-License-Identifier: Apache-2.0
 *
 * store_avx512.c: converts rows 64 elements per step. The encoder is that of fp8.h, with masks for its
 * branches. e4m3fnuz and the last elements of a row are converted one by one.
 */
#include "store_rows.h"

#include <immintrin.h>

enum { STEP = 64 };

static inline __m512 load16(enum kvg_dtype from, const void *source, int64_t i)
{
    if (from == KVG_F32)
        return _mm512_loadu_ps((const float *)source + i);
    const __m256i half = _mm256_loadu_si256((const __m256i *)((const uint16_t *)source + i));
    return from == KVG_F16 ? _mm512_cvtph_ps(half)
                           : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Sixteen codes. */
static inline __m128i encode16(const struct kvg_fp8_format *f, __m512 x)
{
    const int shift = 23 - f->mantissa_bits;
    const __m512i bits = _mm512_castps_si512(x);
    const __m512 a = _mm512_min_ps(_mm512_abs_ps(x), _mm512_set1_ps(f->max));
    const __m512i b = _mm512_castps_si512(a), magic = _mm512_castps_si512(_mm512_set1_ps(f->subnormal_magic));
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(b, shift), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(b, _mm512_add_epi32(even, _mm512_set1_epi32((1 << (shift - 1)) - 1)));
    const __m512i normal = _mm512_sub_epi32(_mm512_srli_epi32(up, shift),
                                            _mm512_set1_epi32((127 - f->bias) << f->mantissa_bits));
    const __mmask16 is_small = _mm512_cmp_ps_mask(a, _mm512_set1_ps(f->min_normal), _CMP_LT_OQ);
    const __m512i sum = _mm512_castps_si512(_mm512_add_ps(a, _mm512_castsi512_ps(magic)));
    const __m512i code = _mm512_mask_sub_epi32(normal, is_small, sum, magic);
    /* code | (bits >> 24 & 0x80) */
    const __m512i all =
        _mm512_ternarylogic_epi32(code, _mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80), 0xf8);

    return _mm512_cvtepi32_epi8(
        _mm512_mask_mov_epi32(all, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7f)));
}

static inline __m256i bf16_16(__m512 x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up =
        _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff))), 16);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);

    return _mm512_cvtepi32_epi16(
        _mm512_mask_or_epi32(up, is_nan, _mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40)));
}

static inline void convert_row(enum kvg_dtype from, enum kvg_dtype to, enum kvg_scale_rule rule,
                               const void *source, int64_t count, float scale, void *destination)
{
    const float reciprocal = 1.0f / scale;
    const __m512 by = _mm512_set1_ps(rule == KVG_DIVIDE ? scale : reciprocal);
    int64_t i = 0;

    for (; to != KVG_E4M3FNUZ && i + STEP <= count; i += STEP) {
        __m512i codes = _mm512_setzero_si512();

        for (int j = 0; j < 4; j++) {
            __m512 x = load16(from, source, i + 16 * j);
            if (to == KVG_BF16) {
                _mm256_storeu_si256((__m256i *)((uint16_t *)destination + i + 16 * j), bf16_16(x));
                continue;
            }
            x = rule == KVG_DIVIDE ? _mm512_div_ps(x, by) : _mm512_mul_ps(x, by);
            const __m128i c = encode16(to == KVG_E4M3 ? &KVG_FP8_E4M3 : &KVG_FP8_E5M2, x);
            codes = j == 0   ? _mm512_castsi128_si512(c)
                    : j == 1 ? _mm512_inserti32x4(codes, c, 1)
                    : j == 2 ? _mm512_inserti32x4(codes, c, 2)
                             : _mm512_inserti32x4(codes, c, 3);
        }
        if (to != KVG_BF16)
            _mm512_storeu_si512((uint8_t *)destination + i, codes);
    }
    convert_scalar(from, to, rule, source, i, count, scale, reciprocal, destination);
}

const struct kvg_store_ops kvg_store_avx512 = {.isa = KVG_ISA_AVX512, .convert = convert};
