/* SPDX-License-Identifier: Apache-2.0
 *
 * exp2.h: the few transcendental functions of attention, from +, -, *, / alone. libm's differ from machine to
 * machine in the last bit; these do not, and a compiler can put them into vector code.
 */
#ifndef KVG_REFERENCE_EXP2_H
#define KVG_REFERENCE_EXP2_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define KVG_LOG2E 1.4426950408889634074
#define KVG_LN2 0.69314718055994530942

/* x, or `least` where x is below it; NaN stays. On the bits: a compiler that sees a choice between a variable
 * and a constant computes what follows from the constant beforehand, behind a branch that no vector code has.
 */
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

/* 2^x for x <= 1023. Below -1022 it stays at 2^-1022, which is nothing in every sum it goes into. NaN stays.
 * x = n + f with |f| <= 1/2, and 2^f = e^y by its Taylor series to y^13: |y| <= 0.3466, so the rest is below
 * 0.3466^14 / 14! = 5e-18; rounding adds some 2e-16, relative. */
static inline __attribute__((always_inline)) double kvg_exp2(double x)
{
    const double shift = 0x1.8p52; /* adding it rounds to an integer, which then sits in the low bits */
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

/* log2 x for normal x > 0; zero, infinity and NaN as usual. Otherwise
 * x = 2^n m with m in [sqrt 1/2, sqrt 2), ln m = 2 artanh z, z = (m - 1) / (m + 1), |z| <= 0.1716; the series
 * to z^23 leaves 2 z^25 / 25 < 6e-21. */
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

/* tanh x with an absolute error of about 1e-16, which is what a soft cap asks for. */
static inline __attribute__((always_inline)) double kvg_tanh(double x)
{
    double a = fabs(x) > 25 ? 25 : fabs(x); /* tanh 25 = 1 in double */
    double t = 1 - 2 / (kvg_exp2(2 * KVG_LOG2E * a) + 1);
    t = a < 1e-3 ? a - a * a * a / 3 : t; /* exact zero, and no cancellation, at the small end */
    return isnan(x) ? x : copysign(t, x);
}

/* e^x - 1 for x >= 0, relative error about 1e-14 at worst; large x gives a large finite number. */
static inline __attribute__((always_inline)) double kvg_expm1(double x)
{
    double clipped = x > 700 ? 700 : x;
    double series = x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7))))));
    double plain = kvg_exp2(clipped * KVG_LOG2E) - 1;
    return x < 0.02 ? series : plain;
}

#endif
