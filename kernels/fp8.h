/* SPDX-License-Identifier: Apache-2.0
 *
 * fp8.h: number formats for kernels, one element at a time.
 *
 * Rounds to nearest even, saturates to the largest finite value (infinities too) and turns every NaN into
 * 0x7f (fnuz: 0x80), as NVIDIA's conversion instruction does; that is what the store of an FP8 cache does.
 * Header-only and without other headers of kvgauge, so that a plug-in needs this file and kernel.h alone.
 * Tested code by code against reference/formats.h, which is written apart.
 *
 * How an FP8 encoder works here. A magnitude at or above the smallest normal is rounded in its bit pattern:
 * add half an ulp less one plus the lowest kept bit, then shift. A smaller one is added to a power of two
 * whose ulp equals the smallest subnormal: the FP32 adder does the rounding, and the low bits are the code.
 * The caller's rounding mode must be to nearest even (the default). Subnormal inputs may be flushed or not:
 * every FP32 subnormal rounds to zero anyway.
 */
#ifndef KVG_KERNELS_FP8_H
#define KVG_KERNELS_FP8_H

#include <stdint.h>
#include <string.h>

/* What an encoder or decoder must know of an 8-bit format. */
struct kvg_fp8_format {
    int mantissa_bits;     /* explicit fraction bits */
    int bias;              /* of the exponent */
    float max;             /* largest finite value */
    float min_normal;      /* 2^(1 - bias) */
    float subnormal_magic; /* 2^(23 + 1 - bias - mantissa_bits): its ulp is the smallest subnormal */
};

static const struct kvg_fp8_format KVG_FP8_E4M3 = {3, 7, 448.0f, 0x1p-6f, 0x1p14f};
static const struct kvg_fp8_format KVG_FP8_E5M2 = {2, 15, 57344.0f, 0x1p-14f, 0x1p7f};
static const struct kvg_fp8_format KVG_FP8_E4M3FNUZ = {3, 8, 240.0f, 0x1p-7f, 0x1p13f};

static inline uint32_t kvg_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float kvg_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Magnitude code (0 .. 0x7f) of a magnitude that is not NaN. */
static inline uint32_t kvg_fp8_magnitude(const struct kvg_fp8_format *f, float magnitude)
{
    const int shift = 23 - f->mantissa_bits;
    uint32_t bits;

    if (magnitude < f->min_normal)
        return kvg_f32_bits(magnitude + f->subnormal_magic) - kvg_f32_bits(f->subnormal_magic);
    bits = kvg_f32_bits(magnitude < f->max ? magnitude : f->max);
    bits += (1u << (shift - 1)) - 1u + ((bits >> shift) & 1u);
    return (bits >> shift) - ((uint32_t)(127 - f->bias) << f->mantissa_bits);
}

static inline uint8_t kvg_fp8_e4m3_encode(float value)
{
    const uint32_t bits = kvg_f32_bits(value), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;

    if (magnitude > 0x7f800000u)
        return 0x7fu;
    return (uint8_t)(sign | kvg_fp8_magnitude(&KVG_FP8_E4M3, kvg_f32_from_bits(magnitude)));
}

static inline uint8_t kvg_fp8_e5m2_encode(float value)
{
    const uint32_t bits = kvg_f32_bits(value), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;

    if (magnitude > 0x7f800000u)
        return 0x7fu;
    return (uint8_t)(sign | kvg_fp8_magnitude(&KVG_FP8_E5M2, kvg_f32_from_bits(magnitude)));
}

/* One NaN (0x80) and one zero: what rounds to zero loses its sign. */
static inline uint8_t kvg_fp8_e4m3fnuz_encode(float value)
{
    const uint32_t bits = kvg_f32_bits(value), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
    uint32_t code;

    if (magnitude > 0x7f800000u)
        return 0x80u;
    code = kvg_fp8_magnitude(&KVG_FP8_E4M3FNUZ, kvg_f32_from_bits(magnitude));
    return (uint8_t)(code == 0u ? 0u : sign | code);
}

/* Value of a magnitude code that is neither NaN nor infinity. */
static inline float kvg_fp8_value(const struct kvg_fp8_format *f, uint32_t code)
{
    const uint32_t exponent = code >> f->mantissa_bits;

    if (exponent == 0u) /* code counts smallest subnormals */
        return (float)code * (f->min_normal / (float)(1 << f->mantissa_bits));
    return kvg_f32_from_bits((code + ((uint32_t)(127 - f->bias) << f->mantissa_bits))
                             << (23 - f->mantissa_bits));
}

static inline float kvg_fp8_e4m3_decode(uint8_t code)
{
    const uint32_t sign = (uint32_t)(code & 0x80u) << 24, magnitude = code & 0x7fu;

    if (magnitude == 0x7fu)
        return kvg_f32_from_bits(sign | 0x7fc00000u);
    return kvg_f32_from_bits(sign | kvg_f32_bits(kvg_fp8_value(&KVG_FP8_E4M3, magnitude)));
}

static inline float kvg_fp8_e5m2_decode(uint8_t code)
{
    const uint32_t sign = (uint32_t)(code & 0x80u) << 24, magnitude = code & 0x7fu;

    if (magnitude >= 0x7cu)
        return kvg_f32_from_bits(sign | (magnitude == 0x7cu ? 0x7f800000u : 0x7fc00000u));
    return kvg_f32_from_bits(sign | kvg_f32_bits(kvg_fp8_value(&KVG_FP8_E5M2, magnitude)));
}

static inline float kvg_fp8_e4m3fnuz_decode(uint8_t code)
{
    const uint32_t sign = (uint32_t)(code & 0x80u) << 24, magnitude = code & 0x7fu;

    if (code == 0x80u)
        return kvg_f32_from_bits(0x7fc00000u);
    return kvg_f32_from_bits(sign | kvg_f32_bits(kvg_fp8_value(&KVG_FP8_E4M3FNUZ, magnitude)));
}

/* bf16: the upper half of an FP32. A NaN stays one even if its payload sat in the lower half. */
static inline uint16_t kvg_bf16_encode(float value)
{
    const uint32_t bits = kvg_f32_bits(value);

    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float kvg_bf16_decode(uint16_t code)
{
    return kvg_f32_from_bits((uint32_t)code << 16);
}

/* f16 to FP32, exact. */
static inline float kvg_f16_decode(uint16_t code)
{
    const uint32_t sign = (uint32_t)(code & 0x8000u) << 16, exponent = code >> 10 & 0x1fu,
                   fraction = code & 0x3ffu;

    if (exponent == 0u)
        return kvg_f32_from_bits(sign | kvg_f32_bits((float)fraction * 0x1p-24f));
    if (exponent == 0x1fu) /* a signalling NaN turns quiet, as the hardware's conversion does */
        return kvg_f32_from_bits(sign | 0x7f800000u | fraction << 13 | (fraction != 0u ? 0x400000u : 0u));
    return kvg_f32_from_bits(sign | (exponent + 112u) << 23 | fraction << 13);
}

#endif
