/* SPDX-License-Identifier: Apache-2.0
 *
 * formats.c: the codecs of single values, which are the definition. They split a number with integer
 * arithmetic. The row functions are in formats_row.c;
 * tests/unit/reference/test_formats_exhaustive.c compares the two for every float
 * (make nightly), and for every float near a change of code in make test.
 *
 * The same method works for every format. In the order of their codes, the magnitudes of a format are evenly
 * spaced within each binade, and the first binade (the subnormals) has the spacing of the second. So the code
 * of a magnitude is a rounded count of quanta plus an offset for the binade. A carry out of the mantissa
 * increments the exponent, as it should.
 */
#include "formats.h"
#include "clones.h"

#include <math.h>
#include <string.h>

/* Largest finite values: e4m3fn 448 and e5m2 57344 (OCP 8-bit floating point specification), e4m3fnuz 240. */
static const struct kvg_ref_format_info format_table[] = {
    [KVG_REF_F32] = {"f32", 4, 23, -126, 0x1.fffffep127}, [KVG_REF_F16] = {"f16", 2, 10, -14, 65504.0},
    [KVG_REF_BF16] = {"bf16", 2, 7, -126, 0x1.fep127},    [KVG_REF_E4M3] = {"e4m3", 1, 3, -6, 448.0},
    [KVG_REF_E5M2] = {"e5m2", 1, 2, -14, 57344.0},        [KVG_REF_E4M3FNUZ] = {"e4m3fnuz", 1, 3, -7, 240.0},
};

const struct kvg_ref_format_info *kvg_ref_format_get_info(enum kvg_ref_format format)
{
    return &format_table[format];
}

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

/* ---------------------------------------------------------------- the definition */

enum { FLOAT_INFINITY = 0x7f800000, FLOAT_MAGNITUDE = 0x7fffffff };

/* Code of a finite magnitude in a format of unlimited range: round to nearest, ties to the even code. */
static uint32_t magnitude_code(uint32_t magnitude, int mantissa_bits, int min_exponent)
{
    int field = (int)(magnitude >> 23);
    uint32_t significand = (magnitude & 0x7fffff) | (field ? 0x800000u : 0u);
    int exponent = (field ? field : 1) - 127; /* value = significand * 2^(exponent - 23) */
    int binade = exponent > min_exponent ? exponent : min_exponent;
    int dropped = 23 - mantissa_bits + (binade - exponent); /* quantum = 2^(binade - mantissa_bits) */
    if (dropped > 24)                                       /* less than half a quantum */
        return 0;
    uint32_t quanta = significand >> dropped;
    uint32_t rest = significand - (quanta << dropped);
    uint32_t half = 1u << (dropped - 1);
    if (rest > half || (rest == half && (quanta & 1)))
        quanta++;
    return ((uint32_t)(binade - min_exponent) << mantissa_bits) + quanta;
}

/* The differences between the three 8-bit formats. */
struct fp8_rules {
    int mantissa_bits, min_exponent, bias;
    uint8_t max_code;  /* of the largest finite value */
    uint8_t nan_code;  /* canonical */
    int unsigned_zero; /* 1: 0x80 is the only NaN, not a negative zero (fnuz) */
};
static const struct fp8_rules fp8_table[] = {
    [KVG_REF_E4M3] = {3, -6, 7, 0x7e, 0x7f, 0},
    [KVG_REF_E5M2] = {2, -14, 15, 0x7b, 0x7f, 0},
    [KVG_REF_E4M3FNUZ] = {3, -7, 8, 0x7f, 0x80, 1},
};

uint8_t kvg_ref_fp8_encode(enum kvg_ref_format format, float value)
{
    const struct fp8_rules *r = &fp8_table[format];
    uint32_t bits = float_bits(value), magnitude = bits & FLOAT_MAGNITUDE;
    uint8_t sign = (uint8_t)(bits >> 31 << 7);
    if (magnitude > FLOAT_INFINITY)
        return r->nan_code;
    uint32_t code = r->max_code;
    if (magnitude < FLOAT_INFINITY)
        code = magnitude_code(magnitude, r->mantissa_bits, r->min_exponent);
    if (code > r->max_code)
        code = r->max_code;
    if (r->unsigned_zero && code == 0)
        return 0;
    return (uint8_t)code | sign;
}

float kvg_ref_fp8_decode(enum kvg_ref_format format, uint8_t code)
{
    const struct fp8_rules *r = &fp8_table[format];
    int magnitude = code & 0x7f, negative = code >> 7;
    int infinity = format == KVG_REF_E5M2 ? 0x7c : -1;
    if (r->unsigned_zero ? code == r->nan_code : magnitude > r->max_code && magnitude != infinity)
        return NAN;
    if (magnitude == infinity)
        return negative ? -INFINITY : INFINITY;
    int field = magnitude >> r->mantissa_bits;
    int quanta = magnitude & ((1 << r->mantissa_bits) - 1);
    if (field > 0)
        quanta += 1 << r->mantissa_bits;
    float value = ldexpf((float)quanta, (field > 0 ? field : 1) - r->bias - r->mantissa_bits);
    return negative ? -value : value;
}

uint16_t kvg_ref_bf16_encode(float value)
{
    uint32_t bits = float_bits(value);
    if ((bits & FLOAT_MAGNITUDE) > FLOAT_INFINITY)
        return (uint16_t)(bits >> 16 | 0x40); /* quiet; the bit also keeps it from becoming an infinity */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float kvg_ref_bf16_decode(uint16_t code)
{
    return bits_float((uint32_t)code << 16);
}

uint16_t kvg_ref_f16_encode(float value)
{
    uint32_t bits = float_bits(value), magnitude = bits & FLOAT_MAGNITUDE;
    uint32_t sign = bits >> 31 << 15;
    if (magnitude > FLOAT_INFINITY)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    uint32_t code = 0x7c00;
    if (magnitude < FLOAT_INFINITY)
        code = magnitude_code(magnitude, 10, -14);
    return (uint16_t)(sign | (code > 0x7c00 ? 0x7c00 : code));
}

float kvg_ref_f16_decode(uint16_t code)
{
    uint32_t sign = (uint32_t)(code >> 15) << 31, field = code >> 10 & 31, fraction = code & 0x3ff;
    if (field == 31)
        return bits_float(sign | FLOAT_INFINITY | fraction << 13);
    float value = field ? ldexpf((float)(fraction + 1024), (int)field - 25) : ldexpf((float)fraction, -24);
    return sign ? -value : value;
}

/* ---------------------------------------------------------------- single elements */

float kvg_ref_load(enum kvg_ref_format format, const void *data, int64_t index)
{
    switch (format) {
    case KVG_REF_F32:
        return ((const float *)data)[index];
    case KVG_REF_F16:
        return kvg_ref_f16_decode(((const uint16_t *)data)[index]);
    case KVG_REF_BF16:
        return kvg_ref_bf16_decode(((const uint16_t *)data)[index]);
    default:
        return kvg_ref_fp8_decode(format, ((const uint8_t *)data)[index]);
    }
}

void kvg_ref_store(enum kvg_ref_format format, void *data, int64_t index, float value)
{
    switch (format) {
    case KVG_REF_F32:
        ((float *)data)[index] = value;
        break;
    case KVG_REF_F16:
        ((uint16_t *)data)[index] = kvg_ref_f16_encode(value);
        break;
    case KVG_REF_BF16:
        ((uint16_t *)data)[index] = kvg_ref_bf16_encode(value);
        break;
    default:
        ((uint8_t *)data)[index] = kvg_ref_fp8_encode(format, value);
    }
}

float kvg_ref_round(enum kvg_ref_format format, float value)
{
    switch (format) {
    case KVG_REF_F32:
        return value;
    case KVG_REF_F16:
        return kvg_ref_f16_decode(kvg_ref_f16_encode(value));
    case KVG_REF_BF16:
        return kvg_ref_bf16_decode(kvg_ref_bf16_encode(value));
    default:
        return kvg_ref_fp8_decode(format, kvg_ref_fp8_encode(format, value));
    }
}
