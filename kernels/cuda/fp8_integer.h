/* SPDX-License-Identifier: Apache-2.0
 *
 * fp8_integer.h: FP8 conversion in integer arithmetic, for GPUs without the conversion instruction (compute
 * capability below 8.9). The codes are those of the instruction: round to nearest even, saturate (infinities
 * too), every NaN becomes 0x7f. It is plain C as well, so that tests on the CPU can check every rounding
 * boundary against the reference.
 */
#ifndef KVG_CUDA_FP8_INTEGER_H
#define KVG_CUDA_FP8_INTEGER_H

#include <stdint.h>

#ifdef __CUDACC__
#define KVG_FP8_INTEGER static __device__ __forceinline__
#else
#define KVG_FP8_INTEGER static inline
#endif

/* Code of the FP32 number with these bits. min_normal and max: bits of the format's smallest normal and
 * largest finite value. */
KVG_FP8_INTEGER uint32_t kvg_fp8_integer_encode(uint32_t bits, int mantissa_bits, int bias,
                                                uint32_t min_normal, uint32_t max)
{
    const uint32_t sign = bits >> 24 & 0x80u;
    uint32_t x = bits & 0x7fffffffu;
    int shift = 23 - mantissa_bits;

    if (x > 0x7f800000u)
        return 0x7fu;
    if (x >= min_normal) {
        x = x < max ? x : max;
        x += (1u << (shift - 1)) - 1u + ((x >> shift) & 1u);
        return sign | ((x >> shift) - ((uint32_t)(127 - bias) << mantissa_bits));
    }
    shift = 151 - (int)(x >> 23) - bias - mantissa_bits; /* the code counts smallest subnormals */
    if (shift > 24)
        return sign; /* less than half of the smallest subnormal; includes the subnormals of FP32 */
    x = (x & 0x7fffffu) | 0x800000u;
    return sign | ((x + (1u << (shift - 1)) - 1u + ((x >> shift) & 1u)) >> shift);
}

KVG_FP8_INTEGER uint32_t kvg_fp8_integer_e4m3(uint32_t bits)
{
    return kvg_fp8_integer_encode(bits, 3, 7, 0x3c800000u /* 2^-6 */, 0x43e00000u /* 448 */);
}

KVG_FP8_INTEGER uint32_t kvg_fp8_integer_e5m2(uint32_t bits)
{
    return kvg_fp8_integer_encode(bits, 2, 15, 0x38800000u /* 2^-14 */, 0x47600000u /* 57344 */);
}

/* The f16 that equals an e4m3 code. NaN becomes 0x7fff. */
KVG_FP8_INTEGER uint32_t kvg_fp8_integer_e4m3_to_f16(uint32_t code)
{
    const uint32_t sign = (code & 0x80u) << 8, x = code & 0x7fu;

    if (x == 0x7fu)
        return 0x7fffu;
    if (x >= 8u) /* the fraction grows by 7 bits, the bias by 8 */
        return sign | ((x << 7) + (8u << 10));
    /* x / 512 is a normal f16; its leading bit is bit 2, 1 or 0 of x */
    return sign | (x >= 4u   ? (8u << 10) + ((x & 3u) << 8)
                   : x >= 2u ? (7u << 10) + ((x & 1u) << 9)
                   : x == 1u ? 6u << 10
                             : 0u);
}

#endif
