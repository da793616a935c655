/* SPDX-License-Identifier: Apache-2.0
 *
 * softmax_avx512.h: the softmax of one row of a tile on 16 lanes of FP32, and its parts: exponential,
 * hyperbolic tangent, rounding to e4m3. Included once by each kernel on AVX-512 (F and DQ).
 */
#include "attention_ops.h"
#include "exp2.h"

#include <immintrin.h>
#include <math.h>

enum { VECTOR = 16 };

/* Below 2^-126 the result is 0: VSCALEFPS takes 70 ns where it makes a subnormal. */
ALWAYS_INLINE __m512 exp2_16(__m512 x)
{
    const __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ); /* a NaN stays */
    const __m512 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 n = _mm512_sub_ps(x, r);
    __m512 p = _mm512_set1_ps(KVG_EXP2_C6);

    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(KVG_EXP2_C5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(KVG_EXP2_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(KVG_EXP2_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(KVG_EXP2_C2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(KVG_EXP2_C1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(KVG_EXP2_C0));
    return _mm512_maskz_scalef_ps(normal, p, n);
}

ALWAYS_INLINE __m512 tanh_16(__m512 x)
{
    const __m512 sign = _mm512_and_ps(x, _mm512_set1_ps(-0.0f)), a = _mm512_abs_ps(x),
                 z = _mm512_mul_ps(x, x);
    const __m512 two = _mm512_set1_ps(2.0f), one = _mm512_set1_ps(1.0f);
    const __m512 large = _mm512_min_ps(_mm512_set1_ps(KVG_TANH_LARGE), a); /* NaN stays */
    const __m512 e = exp2_16(_mm512_mul_ps(large, _mm512_set1_ps((float)(2.0 * KVG_LOG2E))));
    const __m512 high = _mm512_or_ps(_mm512_sub_ps(one, _mm512_div_ps(two, _mm512_add_ps(e, one))), sign);
    __m512 y = _mm512_set1_ps(KVG_TANH_C4);

    y = _mm512_fmadd_ps(y, z, _mm512_set1_ps(KVG_TANH_C3));
    y = _mm512_fmadd_ps(y, z, _mm512_set1_ps(KVG_TANH_C2));
    y = _mm512_fmadd_ps(y, z, _mm512_set1_ps(KVG_TANH_C1));
    y = _mm512_fmadd_ps(y, z, _mm512_set1_ps(KVG_TANH_C0));
    y = _mm512_fmadd_ps(x, _mm512_mul_ps(z, y), x);
    return _mm512_mask_mov_ps(high, _mm512_cmp_ps_mask(a, _mm512_set1_ps(KVG_TANH_SMALL), _CMP_LT_OQ), y);
}

/* p >= 0 rounded to e4m3, still as FP32. p <= 2^8 (1 + a few ulp), so nothing saturates. */
ALWAYS_INLINE __m512 round_e4m3(__m512 p)
{
    const __m512i bits = _mm512_castps_si512(p);
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, 20), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(even, _mm512_set1_epi32(0x7ffff)));
    const __m512 normal = _mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32((int)0xfff00000)));
    const __m512 magic = _mm512_set1_ps(KVG_FP8_E4M3.subnormal_magic);
    const __mmask16 small = _mm512_cmp_ps_mask(p, _mm512_set1_ps(KVG_FP8_E4M3.min_normal), _CMP_LT_OQ);

    return _mm512_mask_sub_ps(normal, small, _mm512_add_ps(p, magic), magic);
}

/* Logits of a row of a tile to P: scales and caps s[0 .. KVG_TILE), masks all keys but lo <= j < hi, updates
 * the state. P is rounded to e4m3 where `how` says so and left in p[]; the kernel multiplies it by p_factor
 * and stores it. Returns the factor for what was accumulated before. */
ALWAYS_INLINE float softmax_row(const struct kvg_softmax *how, const float *s, int64_t lo, int64_t hi,
                                struct kvg_row_state *state, __m512 p[KVG_TILE / VECTOR])
{
    const float before = state->max;
    const __m512 scale = _mm512_set1_ps(how->scale), cap = _mm512_set1_ps(how->cap_log2);
    const uint64_t seen = (~(uint64_t)0 >> (64 - hi)) & (~(uint64_t)0 << lo);
    __m512 top = _mm512_set1_ps(before), shift, sum = _mm512_setzero_ps();
    float max, factor;

    for (int i = 0; i < KVG_TILE / VECTOR; i++) {
        p[i] = _mm512_mul_ps(_mm512_load_ps(s + VECTOR * i), scale);
        if (how->cap_log2 > 0.0f)
            p[i] = _mm512_mul_ps(tanh_16(p[i]), cap);
        p[i] = _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), (__mmask16)(seen >> (VECTOR * i)), p[i]);
        top = _mm512_max_ps(p[i], top); /* VMAXPS gives `top` where p is NaN */
    }
    max = _mm512_reduce_max_ps(top);
    shift = _mm512_set1_ps(max - how->offset);
    for (int i = 0; i < KVG_TILE / VECTOR; i++) {
        p[i] = exp2_16(_mm512_sub_ps(p[i], shift));
        sum = _mm512_add_ps(sum, p[i]);
        p[i] = how->p_e4m3 ? round_e4m3(p[i]) : p[i];
    }
    factor = before == max ? 1.0f : before == -INFINITY ? 0.0f : kvg_exp2(before - max);
    state->max = max;
    state->sum = state->sum * factor + _mm512_reduce_add_ps(sum);
    return factor;
}

static void exp2_all(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i += VECTOR)
        _mm512_storeu_ps(x + i, exp2_16(_mm512_loadu_ps(x + i)));
}
