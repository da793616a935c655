/* SPDX-License-Identifier: Apache-2.0
 *
 * exp2.h: the exponential and the hyperbolic tangent of the softmax, as coefficients and as scalar code.
 *
 * 2^x = 2^n * 2^r with n = x rounded to an integer and r = x - n, exactly, in [-1/2, 1/2]. 2^r is a minimax
 * polynomial of degree 6 (Remez exchange in double precision, then rounded to FP32). Its relative error is
 * 1.9e-9 with real coefficients. The rest of the error is FP32 rounding:
 *   last step of Horner's rule   2^-24 for the result, at most 2^-24 * 0.35 / 0.71 for its product p * r
 *   the step before              a quarter of that, and so on
 *   rounding of the coefficients less than 2^-25 * 0.5
 * Together this is below 2^-24 * 2.2. The exhaustive test measures 2^-24 * 1.9 with separate product and sum,
 * and less with FMA. KVG_EXP2_REL_ERROR is 2^-24 * 2.25. Below 2^-126 the result is 0; x must not exceed 127.
 */
#ifndef KVG_KERNELS_CPU_EXP2_H
#define KVG_KERNELS_CPU_EXP2_H

#include "../fp8.h"

#define KVG_EXP2_REL_ERROR 0x1.2p-23

#define KVG_EXP2_C0 1.0f
#define KVG_EXP2_C1 0x1.62e430p-1f
#define KVG_EXP2_C2 0x1.ebfbdap-3f
#define KVG_EXP2_C3 0x1.c6aed4p-5f
#define KVG_EXP2_C4 0x1.3b2dbcp-7f
#define KVG_EXP2_C5 0x1.5f456ap-10f
#define KVG_EXP2_C6 0x1.41d334p-13f

#define KVG_LOG2E 1.4426950408889634
#define KVG_LN2 0.6931471805599453

/* tanh(x) = x + x^3 * T(x^2) below 5/8, T of degree 4 (Remez, 7e-9); 1 - 2 / (e^(2x) + 1) above. */
#define KVG_TANH_SMALL 0.625f
#define KVG_TANH_C0 -0.33333295583724976f
#define KVG_TANH_C1 0.13331668078899384f
#define KVG_TANH_C2 -0.05374888703227043f
#define KVG_TANH_C3 0.020646698772907257f
#define KVG_TANH_C4 -0.0056947679258883f
#define KVG_TANH_LARGE 10.0f /* tanh rounds to 1 from 9.02 on */

static inline float kvg_exp2(float x)
{
    const float magic = 0x1.8p23f; /* adding it rounds to an integer, ties to even */
    float n, r, p;

    x = x < -127.0f ? -127.0f : x; /* a NaN stays */
    n = (x + magic) - magic;
    r = x - n;
    p = KVG_EXP2_C6;
    p = p * r + KVG_EXP2_C5;
    p = p * r + KVG_EXP2_C4;
    p = p * r + KVG_EXP2_C3;
    p = p * r + KVG_EXP2_C2;
    p = p * r + KVG_EXP2_C1;
    p = p * r + KVG_EXP2_C0;
    if (x != x)
        return x;
    return p * kvg_f32_from_bits((uint32_t)((int)n + 127) << 23); /* n = -127: a factor of 0 */
}

static inline float kvg_tanh(float x)
{
    const float a = x < 0.0f ? -x : x;
    float y;

    if (a < KVG_TANH_SMALL) {
        const float z = x * x;
        y = (((KVG_TANH_C4 * z + KVG_TANH_C3) * z + KVG_TANH_C2) * z + KVG_TANH_C1) * z + KVG_TANH_C0;
        return x + x * (z * y);
    }
    y = a > KVG_TANH_LARGE ? KVG_TANH_LARGE : a;
    y = 1.0f - 2.0f / (kvg_exp2(y * (float)(2.0 * KVG_LOG2E)) + 1.0f);
    return x < 0.0f ? -y : y;
}

#endif
