/* SPDX-License-Identifier: Apache-2.0
 *
 * exp2.h: the few transcendental functions of attention, made of +, -, * and / only. The functions of libm
 * may differ between machines in the last bit. These do not, and a compiler can vectorise them.
 */
#ifndef KVG_REFERENCE_EXP2_H
#define KVG_REFERENCE_EXP2_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define KVG_LOG2E 1.4426950408889634074
#define KVG_LN2 0.69314718055994530942

/* max(x, least); NaN stays NaN. The choice is made on the bits. If a compiler sees a choice between a
 * variable and a constant, it computes the result for the constant in advance and branches, which prevents
 * vectorisation. */
static inline __attribute__((always_inline)) double kvg_at_least(double x, double least)
{
    const uint64_t below = 0 - (uint64_t)(x < least);
    uint64_t bits, least_bits;
    memcpy(&bits, &x, sizeof bits);
    memcpy(&least_bits, &least, sizeof least_bits);
    bits = (bits & ~below) | (least_bits & below);
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2^x for x <= 1023. Below -1022 the result is 2^-1022, which is negligible in every sum where it is used.
 * NaN stays NaN.
 *
 *   x = n + f    n an integer, |f| <= 1/2
 *   2^f = e^y    y = f ln 2, |y| <= 0.3466, by the Taylor series up to y^13
 *   error        truncation below 0.3466^14 / 14! = 5e-18, rounding about 2e-16; both relative */
static inline __attribute__((always_inline)) double kvg_exp2(double x)
{
    const double shift = 0x1.8p52; /* adding it rounds to an integer, which is then in the low bits */
    x = kvg_at_least(x, -1022);
    double shifted = x + shift;
    double y = (x - (shifted - shift)) * KVG_LN2;
    uint64_t n;
    memcpy(&n, &shifted, sizeof n);
    n = (n + 1023) << 52;
    double power;
    memcpy(&power, &n, sizeof power);
    double e = 1.0 / 6227020800;
    e = e * y + 1.0 / 479001600;
    e = e * y + 1.0 / 39916800;
    e = e * y + 1.0 / 3628800;
    e = e * y + 1.0 / 362880;
    e = e * y + 1.0 / 40320;
    e = e * y + 1.0 / 5040;
    e = e * y + 1.0 / 720;
    e = e * y + 1.0 / 120;
    e = e * y + 1.0 / 24;
    e = e * y + 1.0 / 6;
    e = e * y + 0.5;
    e = e * y + 1.0;
    return (e * y + 1.0) * power;
}

/* log2 x for normal x > 0. Zero gives -infinity; infinity and NaN stay.
 *
 *   x = 2^n m            m in [sqrt 1/2, sqrt 2)
 *   ln m = 2 artanh z    z = (m - 1) / (m + 1), |z| <= 0.1716, by the series up to z^23
 *   error                truncation 2 z^25 / 25 < 6e-21 */
static inline double kvg_log2(double x)
{
    if (!(x > 0) || isinf(x))
        return x == 0 ? -INFINITY : x;
    uint64_t bits, one = 1023ull << 52;
    memcpy(&bits, &x, sizeof bits);
    int64_t n = (int64_t)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffull) | one;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m = m / 2;
        n++;
    }
    double z = (m - 1) / (m + 1), z2 = z * z, sum = 1.0 / 23;
    for (int k = 21; k >= 1; k -= 2)
        sum = sum * z2 + 1.0 / k;
    return (double)n + 2 * z * sum * KVG_LOG2E;
}

/* tanh x with an absolute error of about 1e-16: a soft cap needs an absolute, not a relative bound. */
static inline __attribute__((always_inline)) double kvg_tanh(double x)
{
    double a = fabs(x) > 25 ? 25 : fabs(x); /* tanh 25 = 1 in double */
    double t = 1 - 2 / (kvg_exp2(2 * KVG_LOG2E * a) + 1);
    t = a < 1e-3 ? a - a * a * a / 3 : t; /* for small x: exact zero and no cancellation */
    return isnan(x) ? x : copysign(t, x);
}

/* e^x - 1 for x >= 0. The relative error is at most about 1e-14. x > 700 gives e^700 - 1, which is finite. */
static inline __attribute__((always_inline)) double kvg_expm1(double x)
{
    double clipped = x > 700 ? 700 : x;
    double series = x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7))))));
    double plain = kvg_exp2(clipped * KVG_LOG2E) - 1;
    return x < 0.02 ? series : plain;
}

#endif
