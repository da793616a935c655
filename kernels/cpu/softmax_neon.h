/* SPDX-License-Identifier: Apache-2.0
 *
 * softmax_neon.h: the softmax of one row of a tile with NEON. Part of attention_neon.c, which includes it
 * once. FMAX and FMIN give NaN where an operand is NaN; FMAXNM gives the other operand.
 */
#include "attention_ops.h"
#include "exp2.h"

#include <arm_neon.h>
#include <math.h>

ALWAYS_INLINE float32x4_t exp2_4(float32x4_t x)
{
    x = vmaxq_f32(x, vdupq_n_f32(-127.0f)); /* a NaN stays */
    const float32x4_t n = vrndnq_f32(x), r = vsubq_f32(x, n);
    const int32x4_t power = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
    float32x4_t p = vdupq_n_f32(KVG_EXP2_C6);

    p = vfmaq_f32(vdupq_n_f32(KVG_EXP2_C5), p, r);
    p = vfmaq_f32(vdupq_n_f32(KVG_EXP2_C4), p, r);
    p = vfmaq_f32(vdupq_n_f32(KVG_EXP2_C3), p, r);
    p = vfmaq_f32(vdupq_n_f32(KVG_EXP2_C2), p, r);
    p = vfmaq_f32(vdupq_n_f32(KVG_EXP2_C1), p, r);
    p = vfmaq_f32(vdupq_n_f32(KVG_EXP2_C0), p, r);
    return vmulq_f32(p, vreinterpretq_f32_s32(power)); /* n = -127: a factor of 0 */
}

ALWAYS_INLINE float32x4_t tanh_4(float32x4_t x)
{
    const uint32x4_t sign_bit = vdupq_n_u32(0x80000000u);
    const float32x4_t a = vabsq_f32(x), z = vmulq_f32(x, x), one = vdupq_n_f32(1.0f);
    const float32x4_t large = vminq_f32(a, vdupq_n_f32(KVG_TANH_LARGE)); /* a NaN stays */
    const float32x4_t e = exp2_4(vmulq_n_f32(large, (float)(2.0 * KVG_LOG2E)));
    const float32x4_t high = vsubq_f32(one, vdivq_f32(vdupq_n_f32(2.0f), vaddq_f32(e, one)));
    float32x4_t y = vdupq_n_f32(KVG_TANH_C4);

    y = vfmaq_f32(vdupq_n_f32(KVG_TANH_C3), y, z);
    y = vfmaq_f32(vdupq_n_f32(KVG_TANH_C2), y, z);
    y = vfmaq_f32(vdupq_n_f32(KVG_TANH_C1), y, z);
    y = vfmaq_f32(vdupq_n_f32(KVG_TANH_C0), y, z);
    y = vfmaq_f32(x, x, vmulq_f32(z, y));
    return vbslq_f32(vcltq_f32(a, vdupq_n_f32(KVG_TANH_SMALL)), y, vbslq_f32(sign_bit, x, high));
}

/* p >= 0 rounded to e4m3, still as FP32. p <= 2^8 (1 + a few ulp), so nothing saturates. */
ALWAYS_INLINE float32x4_t round_e4m3(float32x4_t p)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(p);
    const uint32x4_t even = vandq_u32(vshrq_n_u32(bits, 20), vdupq_n_u32(1));
    const uint32x4_t up = vaddq_u32(bits, vaddq_u32(even, vdupq_n_u32(0x7ffff)));
    const float32x4_t normal = vreinterpretq_f32_u32(vandq_u32(up, vdupq_n_u32(0xfff00000u)));
    const float32x4_t magic = vdupq_n_f32(KVG_FP8_E4M3.subnormal_magic);
    const float32x4_t small = vsubq_f32(vaddq_f32(p, magic), magic);

    return vbslq_f32(vcltq_f32(p, vdupq_n_f32(KVG_FP8_E4M3.min_normal)), small, normal);
}

static void exp2_all(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i += 4)
        vst1q_f32(x + i, exp2_4(vld1q_f32(x + i)));
}

static float softmax(const struct kvg_softmax *how, float *s, int64_t lo, int64_t hi,
                     struct kvg_row_state *state, void *p_row)
{
    const float before = state->max;
    float *p = p_row, max, factor;
    float32x4_t top = vdupq_n_f32(before), shift, sum = vdupq_n_f32(0.0f);

    for (int64_t j = 0; j < KVG_TILE; j += 4) {
        const float32x4_t t = vmulq_n_f32(vld1q_f32(s + j), how->scale);
        vst1q_f32(s + j, how->cap_log2 > 0.0f ? vmulq_n_f32(tanh_4(t), how->cap_log2) : t);
    }
    for (int64_t j = 0; j < lo; j++)
        s[j] = -INFINITY;
    for (int64_t j = hi; j < KVG_TILE; j++)
        s[j] = -INFINITY;
    for (int64_t j = 0; j < KVG_TILE; j += 4)
        top = vmaxnmq_f32(vld1q_f32(s + j), top); /* leaves out a NaN; the sum below gets it */
    max = vmaxnmvq_f32(top);
    shift = vdupq_n_f32(max - how->offset);
    for (int64_t j = 0; j < KVG_TILE; j += 4) {
        const float32x4_t e = exp2_4(vsubq_f32(vld1q_f32(s + j), shift));
        sum = vaddq_f32(sum, e);
        vst1q_f32(p + j, vmulq_n_f32(how->p_e4m3 ? round_e4m3(e) : e, how->p_factor));
    }
    factor = before == max ? 1.0f : before == -INFINITY ? 0.0f : kvg_exp2(before - max);
    state->max = max;
    state->sum = state->sum * factor + vaddvq_f32(sum);
    return factor;
}
