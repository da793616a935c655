/* SPDX-License-Identifier: Apache-2.0
 *
 * softmax_avx2.h: the softmax of one row of a tile with AVX2. Part of attention_avx2.c, which includes it
 * once.
 */
#include "attention_ops.h"
#include "exp2.h"

#include <immintrin.h>
#include <math.h>

ALWAYS_INLINE __m256 exp2_8(__m256 x)
{
    x = _mm256_max_ps(_mm256_set1_ps(-127.0f), x); /* MAXPS gives x where x is NaN */
    const __m256 n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                 r = _mm256_sub_ps(x, n);
    const __m256i power =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    __m256 p = _mm256_set1_ps(KVG_EXP2_C6);

    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(KVG_EXP2_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(KVG_EXP2_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(KVG_EXP2_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(KVG_EXP2_C2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(KVG_EXP2_C1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(KVG_EXP2_C0));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(power));
}

ALWAYS_INLINE __m256 tanh_8(__m256 x)
{
    const __m256 sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0f)), a = _mm256_xor_ps(x, sign),
                 z = _mm256_mul_ps(x, x);
    const __m256 two = _mm256_set1_ps(2.0f), one = _mm256_set1_ps(1.0f);
    const __m256 large = _mm256_min_ps(_mm256_set1_ps(KVG_TANH_LARGE), a); /* NaN stays */
    const __m256 e = exp2_8(_mm256_mul_ps(large, _mm256_set1_ps((float)(2.0 * KVG_LOG2E))));
    const __m256 high = _mm256_or_ps(_mm256_sub_ps(one, _mm256_div_ps(two, _mm256_add_ps(e, one))), sign);
    __m256 y = _mm256_set1_ps(KVG_TANH_C4);

    y = _mm256_fmadd_ps(y, z, _mm256_set1_ps(KVG_TANH_C3));
    y = _mm256_fmadd_ps(y, z, _mm256_set1_ps(KVG_TANH_C2));
    y = _mm256_fmadd_ps(y, z, _mm256_set1_ps(KVG_TANH_C1));
    y = _mm256_fmadd_ps(y, z, _mm256_set1_ps(KVG_TANH_C0));
    y = _mm256_fmadd_ps(x, _mm256_mul_ps(z, y), x);
    return _mm256_blendv_ps(high, y, _mm256_cmp_ps(a, _mm256_set1_ps(KVG_TANH_SMALL), _CMP_LT_OQ));
}

/* p >= 0 rounded to e4m3, still as FP32. p <= 2^8 (1 + a few ulp), so nothing saturates. */
ALWAYS_INLINE __m256 round_e4m3(__m256 p)
{
    const __m256i bits = _mm256_castps_si256(p);
    const __m256i even = _mm256_and_si256(_mm256_srli_epi32(bits, 20), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(even, _mm256_set1_epi32(0x7ffff)));
    const __m256 normal = _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32((int)0xfff00000)));
    const __m256 magic = _mm256_set1_ps(KVG_FP8_E4M3.subnormal_magic);
    const __m256 small = _mm256_sub_ps(_mm256_add_ps(p, magic), magic);

    return _mm256_blendv_ps(normal, small,
                            _mm256_cmp_ps(p, _mm256_set1_ps(KVG_FP8_E4M3.min_normal), _CMP_LT_OQ));
}

ALWAYS_INLINE float largest(__m256 v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

ALWAYS_INLINE float total(__m256 v)
{
    __m128 m = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    m = _mm_add_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_add_ss(m, _mm_movehdup_ps(m)));
}

static void exp2_all(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i += 8)
        _mm256_storeu_ps(x + i, exp2_8(_mm256_loadu_ps(x + i)));
}

static float softmax(const struct kvg_softmax *how, float *s, int64_t lo, int64_t hi,
                     struct kvg_row_state *state, void *p_row)
{
    const float before = state->max;
    const __m256 scale = _mm256_set1_ps(how->scale), cap = _mm256_set1_ps(how->cap_log2);
    const __m256 lift = _mm256_set1_ps(how->p_factor);
    float *p = p_row, max, factor;
    __m256 top = _mm256_set1_ps(before), shift, sum = _mm256_setzero_ps();

    for (int64_t j = 0; j < KVG_TILE; j += 8) {
        __m256 t = _mm256_mul_ps(_mm256_load_ps(s + j), scale);
        if (how->cap_log2 > 0.0f)
            t = _mm256_mul_ps(tanh_8(t), cap);
        _mm256_store_ps(s + j, t);
    }
    for (int64_t j = 0; j < lo; j++)
        s[j] = -INFINITY;
    for (int64_t j = hi; j < KVG_TILE; j++)
        s[j] = -INFINITY;
    for (int64_t j = 0; j < KVG_TILE; j += 8)
        top = _mm256_max_ps(_mm256_load_ps(s + j), top); /* MAXPS gives `top` where s is NaN */
    max = largest(top);
    shift = _mm256_set1_ps(max - how->offset);
    for (int64_t j = 0; j < KVG_TILE; j += 8) {
        const __m256 e = exp2_8(_mm256_sub_ps(_mm256_load_ps(s + j), shift));
        sum = _mm256_add_ps(sum, e);
        _mm256_store_ps(p + j, _mm256_mul_ps(how->p_e4m3 ? round_e4m3(e) : e, lift));
    }
    factor = before == max ? 1.0f : before == -INFINITY ? 0.0f : kvg_exp2(before - max);
    state->max = max;
    state->sum = state->sum * factor + total(sum);
    return factor;
}
