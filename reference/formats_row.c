/* SPDX-License-Identifier: Apache-2.0
 *
 * formats_row.c: the codecs of formats.c for rows of elements.
 *
 * No loop has branches, so the compiler can vectorise them.
 *
 *   decode    Moves the bits to their place in a float and corrects the exponent. The fraction of a subnormal
 *             code is first read as that of a normal number; then the leading one is subtracted.
 *   encode    Rounds a normal magnitude by adding just under half a quantum to its bits. Rounds a subnormal
 *             magnitude by adding a power of two so large that the FP32 addition itself rounds to a whole
 *             number of quanta.
 *   round     Rounds in place in the same way, without computing the code.
 */
#include "formats.h"
#include "clones.h"

#include <math.h>
#include <string.h>

#define INFINITY_BITS UINT32_C(0x7f800000)
#define NAN_BITS UINT32_C(0x7fc00000)

static inline uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* condition ? yes : no, without a branch. For the plain expression the compiler moves floating-point work
 * behind a branch, and then cannot remove the branch. */
static inline uint32_t choose(int condition, uint32_t yes, uint32_t no)
{
    uint32_t mask = 0u - (uint32_t)condition;
    return (yes & mask) | (no & ~mask);
}

/* ---------------------------------------------------------------- decode */

/* Bits of the float of a finite magnitude code, for m fraction bits and the smallest normal number 2^e. */
static inline __attribute__((always_inline)) uint32_t decode_magnitude(uint32_t magnitude, int m, int e)
{
    const uint32_t smallest_normal = (uint32_t)(127 + e) << 23, fraction = magnitude << (23 - m);
    const float subnormal = bits_float(fraction + smallest_normal) - bits_float(smallest_normal);
    return choose(magnitude >> m == 0, float_bits(subnormal), fraction + smallest_normal - (1u << 23));
}

KVG_REF_CLONES
static void load_e4m3(const uint8_t *restrict in, int64_t count, float *restrict out)
{
    for (int64_t i = 0; i < count; i++) {
        const uint32_t magnitude = in[i] & 0x7f, sign = (uint32_t)(in[i] & 0x80) << 24;
        const uint32_t finite = decode_magnitude(magnitude, 3, -6);
        out[i] = bits_float(choose(magnitude == 0x7f, NAN_BITS, finite) | sign);
    }
}

KVG_REF_CLONES
static void load_e5m2(const uint8_t *restrict in, int64_t count, float *restrict out)
{
    for (int64_t i = 0; i < count; i++) {
        const uint32_t magnitude = in[i] & 0x7f, sign = (uint32_t)(in[i] & 0x80) << 24;
        const uint32_t special = choose(magnitude == 0x7c, INFINITY_BITS, NAN_BITS);
        out[i] = bits_float(choose(magnitude < 0x7c, decode_magnitude(magnitude, 2, -14), special) | sign);
    }
}

KVG_REF_CLONES
static void load_e4m3fnuz(const uint8_t *restrict in, int64_t count, float *restrict out)
{
    for (int64_t i = 0; i < count; i++) {
        const uint32_t magnitude = in[i] & 0x7f, sign = (uint32_t)(in[i] & 0x80) << 24;
        const uint32_t finite = decode_magnitude(magnitude, 3, -7) | sign;
        out[i] = bits_float(choose(in[i] == 0x80, NAN_BITS, finite));
    }
}

KVG_REF_CLONES
static void load_bf16(const uint16_t *restrict in, int64_t count, float *restrict out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = bits_float((uint32_t)in[i] << 16);
}

KVG_REF_CLONES
static void load_f16(const uint16_t *restrict in, int64_t count, float *restrict out)
{
    for (int64_t i = 0; i < count; i++) {
        const uint32_t magnitude = in[i] & 0x7fff, sign = (uint32_t)(in[i] & 0x8000) << 16;
        const uint32_t special = INFINITY_BITS | magnitude << 13;
        out[i] = bits_float(choose(magnitude < 0x7c00, decode_magnitude(magnitude, 10, -14), special) | sign);
    }
}

void kvg_ref_load_row(enum kvg_ref_format format, const void *data, int64_t index, int64_t count, float *out)
{
    switch (format) {
    case KVG_REF_F32:
        memcpy(out, (const float *)data + index, (size_t)count * sizeof *out);
        break;
    case KVG_REF_F16:
        load_f16((const uint16_t *)data + index, count, out);
        break;
    case KVG_REF_BF16:
        load_bf16((const uint16_t *)data + index, count, out);
        break;
    case KVG_REF_E4M3:
        load_e4m3((const uint8_t *)data + index, count, out);
        break;
    case KVG_REF_E5M2:
        load_e5m2((const uint8_t *)data + index, count, out);
        break;
    case KVG_REF_E4M3FNUZ:
        load_e4m3fnuz((const uint8_t *)data + index, count, out);
        break;
    }
}

/* ---------------------------------------------------------------- encode */

/* Code of a magnitude for m fraction bits and the smallest normal number 2^e, saturated at max_code. */
static inline __attribute__((always_inline)) uint32_t encode_magnitude(uint32_t magnitude, int m, int e,
                                                                       uint32_t max_code)
{
    const int dropped = 23 - m;
    const uint32_t smallest_normal = (uint32_t)(127 + e) << 23;
    const float adder = bits_float((uint32_t)(127 + e - m + 23) << 23); /* its last bit is one quantum */
    uint32_t nearest = (magnitude + ((1u << (dropped - 1)) - 1) + (magnitude >> dropped & 1)) >> dropped;
    uint32_t normal = nearest - ((uint32_t)(127 + e - 1) << m);
    uint32_t subnormal = float_bits(bits_float(magnitude) + adder) - float_bits(adder);
    uint32_t code = choose(magnitude < smallest_normal, subnormal, normal);
    return code < max_code ? code : max_code;
}

KVG_REF_CLONES
static void store_e4m3(const float *restrict in, int64_t count, uint8_t *restrict out)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = float_bits(in[i]), magnitude = bits & 0x7fffffff;
        uint32_t code = encode_magnitude(magnitude, 3, -6, 0x7e);
        out[i] = (uint8_t)choose(magnitude > INFINITY_BITS, 0x7f, code | bits >> 31 << 7);
    }
}

KVG_REF_CLONES
static void store_e5m2(const float *restrict in, int64_t count, uint8_t *restrict out)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = float_bits(in[i]), magnitude = bits & 0x7fffffff;
        uint32_t code = encode_magnitude(magnitude, 2, -14, 0x7b);
        out[i] = (uint8_t)choose(magnitude > INFINITY_BITS, 0x7f, code | bits >> 31 << 7);
    }
}

KVG_REF_CLONES
static void store_e4m3fnuz(const float *restrict in, int64_t count, uint8_t *restrict out)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = float_bits(in[i]), magnitude = bits & 0x7fffffff;
        uint32_t code = encode_magnitude(magnitude, 3, -7, 0x7f);
        uint32_t sign = choose(code != 0, bits >> 31 << 7, 0);
        out[i] = (uint8_t)choose(magnitude > INFINITY_BITS, 0x80, code | sign);
    }
}

KVG_REF_CLONES
static void store_bf16(const float *restrict in, int64_t count, uint16_t *restrict out)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = float_bits(in[i]);
        uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
        out[i] = (uint16_t)choose((bits & 0x7fffffff) > INFINITY_BITS, quiet, rounded);
    }
}

KVG_REF_CLONES
static void store_f16(const float *restrict in, int64_t count, uint16_t *restrict out)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = float_bits(in[i]), magnitude = bits & 0x7fffffff;
        uint32_t code = encode_magnitude(magnitude, 10, -14, 0x7c00);
        uint32_t nan = 0x7e00 | (magnitude >> 13 & 0x3ff);
        out[i] = (uint16_t)(choose(magnitude > INFINITY_BITS, nan, code) | bits >> 31 << 15);
    }
}

void kvg_ref_store_row(enum kvg_ref_format format, void *data, int64_t index, int64_t count, const float *in)
{
    switch (format) {
    case KVG_REF_F32:
        memcpy((float *)data + index, in, (size_t)count * sizeof *in);
        break;
    case KVG_REF_F16:
        store_f16(in, count, (uint16_t *)data + index);
        break;
    case KVG_REF_BF16:
        store_bf16(in, count, (uint16_t *)data + index);
        break;
    case KVG_REF_E4M3:
        store_e4m3(in, count, (uint8_t *)data + index);
        break;
    case KVG_REF_E5M2:
        store_e5m2(in, count, (uint8_t *)data + index);
        break;
    case KVG_REF_E4M3FNUZ:
        store_e4m3fnuz(in, count, (uint8_t *)data + index);
        break;
    }
}

/* ---------------------------------------------------------------- round in place */

/* A magnitude, at most infinity, rounded to m fraction bits with the smallest normal number 2^e. */
static inline __attribute__((always_inline)) uint32_t round_magnitude(uint32_t magnitude, int m, int e)
{
    const int dropped = 23 - m;
    const uint32_t smallest_normal = (uint32_t)(127 + e) << 23;
    const float adder = bits_float((uint32_t)(127 + e - m + 23) << 23);
    const uint32_t half = (1u << (dropped - 1)) - 1 + (magnitude >> dropped & 1);
    const uint32_t normal = (magnitude + half) & ~((1u << dropped) - 1);
    const uint32_t subnormal = float_bits(bits_float(magnitude) + adder - adder);
    return choose(magnitude < smallest_normal, subnormal, normal);
}

/* A value rounded to an FP8 format, which saturates at `largest`. */
static inline __attribute__((always_inline)) float round_fp8(float value, int m, int e, float largest)
{
    const uint32_t bits = float_bits(value), magnitude = bits & 0x7fffffff;
    const uint32_t nearest = round_magnitude(magnitude, m, e), limit = float_bits(largest);
    const uint32_t finite = (bits & 0x80000000) | (nearest < limit ? nearest : limit);
    return bits_float(choose(magnitude > INFINITY_BITS, NAN_BITS, finite));
}

KVG_REF_CLONES
static void round_e4m3(float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = round_fp8(values[i], 3, -6, 448);
}

KVG_REF_CLONES
static void round_e5m2(float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = round_fp8(values[i], 2, -14, 57344);
}

KVG_REF_CLONES
static void round_e4m3fnuz(float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = round_fp8(values[i], 3, -7, 240) + 0.0f; /* there is no negative zero */
}

KVG_REF_CLONES
static void round_bf16(float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = float_bits(values[i]);
        const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1), quiet = bits | 0x400000;
        values[i] = bits_float(choose((bits & 0x7fffffff) > INFINITY_BITS, quiet, rounded) & 0xffff0000);
    }
}

KVG_REF_CLONES
static void round_f16(float *values, int64_t count)
{
    const uint32_t too_large = float_bits(65536);
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = float_bits(values[i]), magnitude = bits & 0x7fffffff;
        const uint32_t nearest = round_magnitude(magnitude, 10, -14);
        const uint32_t number = choose(nearest < too_large, nearest, INFINITY_BITS);
        const uint32_t nan = NAN_BITS | (magnitude & 0x7fe000);
        values[i] = bits_float((bits & 0x80000000) | choose(magnitude > INFINITY_BITS, nan, number));
    }
}

void kvg_ref_round_row(enum kvg_ref_format format, float *values, int64_t count)
{
    switch (format) {
    case KVG_REF_F32:
        break;
    case KVG_REF_F16:
        round_f16(values, count);
        break;
    case KVG_REF_BF16:
        round_bf16(values, count);
        break;
    case KVG_REF_E4M3:
        round_e4m3(values, count);
        break;
    case KVG_REF_E5M2:
        round_e5m2(values, count);
        break;
    case KVG_REF_E4M3FNUZ:
        round_e4m3fnuz(values, count);
        break;
    }
}
