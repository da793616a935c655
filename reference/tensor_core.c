/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_core.c: the FP8 matrix units in integer arithmetic.
 *
 * Every summand is sign * significand * 2^unit, with integers. To align it is to shift it: towards zero on
 * NVIDIA's units (the magnitude is shifted), down on AMD's (the signed number is shifted). The sum of a step
 * is exact in 64 bits. Infinities and NaNs are handled apart: if a summand is one of them, the result is that
 * of IEEE 754, which does not depend on the order of the sum.
 */
#include "tensor_core.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum {
    FP32_E_MIN = -126,  /* exponent of the smallest normal */
    FP32_FRACTION = 23, /* explicit bits */
    STEP_MAX = 32,      /* most products of a step */
    F16_E_MIN = -14,    /* in f16 no e4m3 operand is subnormal; e5m2 operands are as in e5m2 */
    CDNA3_SUM_BITS = 31 /* fraction bits of the joined sum of CDNA3 */
};

static const struct kvg_ref_mma_model models[] = {
    {"hopper_wgmma", "wgmma e4m3/e5m2 on Hopper: 13 fraction bits", KVG_REF_MMA_FUSED, 32, 32, 13, 13, 0},
    {"hopper_mma", "mma.sync e4m3/e5m2 on Hopper: two HMMA in f16, 25 fraction bits, and an FP32 addition",
     KVG_REF_MMA_HALVES, 32, 16, 25, 23, F16_E_MIN},
    {"ada_mma", "mma.sync e4m3/e5m2 on Ada: 13 fraction bits", KVG_REF_MMA_FUSED, 16, 16, 13, 13, 0},
    {"blackwell", "tcgen05.mma and mma.sync e4m3/e5m2 on Blackwell: 25 fraction bits", KVG_REF_MMA_FUSED, 32,
     32, 25, 23, 0},
    {"cdna3_mfma", "mfma e4m3fnuz on CDNA3: 24 fraction bits, even and odd products apart",
     KVG_REF_MMA_PARITY, 16, 16, 24, 23, 0},
};

const struct kvg_ref_mma_model *kvg_ref_mma_model_get(int64_t i)
{
    return i >= 0 && i < (int64_t)(sizeof models / sizeof *models) ? &models[i] : NULL;
}

const struct kvg_ref_mma_model *kvg_ref_mma_model_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(models[i].name, name) == 0)
            return &models[i];
    return NULL;
}

int kvg_ref_mma_takes(const struct kvg_ref_mma_model *model, enum kvg_ref_format format)
{
    if (model->family == KVG_REF_MMA_PARITY)
        return format == KVG_REF_E4M3FNUZ;
    return format == KVG_REF_E4M3 || format == KVG_REF_E5M2;
}

/* ---------------------------------------------------------------- numbers as integers */

/* significand * 2^unit. `exponent` is the one that is compared to find the largest: floor(log2) of a normal
 * number, the sum of both exponents for a product. The exponent of a zero is not used. */
struct term {
    int64_t significand;
    int unit, exponent;
};

static struct term operand(enum kvg_ref_format format, uint8_t code, int e_min)
{
    const int fraction = format == KVG_REF_E5M2 ? 2 : 3;
    const int bias = format == KVG_REF_E5M2 ? 15 : format == KVG_REF_E4M3 ? 7 : 8;
    const int field = (code & 0x7f) >> fraction, rest = code & ((1 << fraction) - 1);
    struct term t;
    t.exponent = field ? field - bias : 1 - bias;
    t.significand = field ? (1 << fraction) + rest : rest;
    while (e_min && t.significand && t.significand < 1 << fraction && t.exponent > e_min) {
        t.significand *= 2;
        t.exponent--;
    }
    t.unit = t.exponent - fraction;
    if (code & 0x80)
        t.significand = -t.significand;
    return t;
}

static struct term product(struct term a, struct term b)
{
    return (struct term){a.significand * b.significand, a.unit + b.unit, a.exponent + b.exponent};
}

static struct term accumulator(float c)
{
    uint32_t bits;
    memcpy(&bits, &c, sizeof bits);
    const int field = (bits >> FP32_FRACTION) & 0xff;
    struct term t;
    t.exponent = field ? field - 127 : FP32_E_MIN;
    t.significand = (bits & 0x7fffff) + (field ? 1 << FP32_FRACTION : 0);
    t.unit = t.exponent - FP32_FRACTION;
    if (bits >> 31)
        t.significand = -t.significand;
    return t;
}

/* A term in units of 2^unit, rounded towards zero; align_down below rounds down. Left shifts are short: by
 * the constants of the models, no term has more fraction bits than survive, except the 23 of the accumulator
 * and the 6 of a product. */
static int64_t align_to_zero(struct term t, int unit)
{
    if (t.significand == 0)
        return 0; /* the exponent of a zero means nothing */
    const int shift = unit - t.unit;
    const int64_t magnitude = t.significand < 0 ? -t.significand : t.significand;
    const int64_t moved = shift <= 0   ? magnitude * (INT64_C(1) << -shift)
                          : shift > 62 ? 0
                                       : magnitude >> shift;
    return t.significand < 0 ? -moved : moved;
}

static int64_t align_down(int64_t significand, int from_unit, int unit)
{
    const int shift = unit - from_unit;
    return shift <= 0 ? significand * (INT64_C(1) << -shift) : significand >> (shift > 62 ? 62 : shift);
}

/* floor(log2 |x|) for x != 0. */
static int top_bit(int64_t x)
{
    return 63 - __builtin_clzll((unsigned long long)(x < 0 ? -x : x));
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

/* sum * 2^unit cut to `fraction` fraction bits; +0 for zero, infinity beyond FP32. */
static float cut(int64_t sum, int unit, int fraction)
{
    if (sum == 0)
        return 0;
    const int last = max_int(top_bit(sum) + unit, FP32_E_MIN) - fraction;
    const int64_t kept = align_to_zero((struct term){sum, unit, 0}, last > unit ? last : unit);
    return kept == 0 ? 0 : (float)ldexp((double)kept, last > unit ? last : unit);
}

/* ---------------------------------------------------------------- one step */

/* c + sum of the products, with the cuts of FUSED and HALVES. */
static float fuse(const struct kvg_ref_mma_model *model, float c, const struct term *products, int n)
{
    const struct term add = accumulator(c);
    int top = add.significand ? add.exponent : FP32_E_MIN;
    for (int i = 0; i < n; i++)
        if (products[i].significand)
            top = max_int(top, products[i].exponent);
    const int unit = top - model->align_bits;
    int64_t sum = align_to_zero(add, unit);
    for (int i = 0; i < n; i++)
        sum += align_to_zero(products[i], unit);
    return cut(sum, unit, model->result_bits);
}

enum { NONE = -999 }; /* exponent of a sum of zeros */
/* Sum of the products of one parity, from `first` on. Writes their largest exponent, or NONE, to *top. */
static int64_t half_sum(const struct kvg_ref_mma_model *model, const struct term *products, int first, int n,
                        int *top)
{
    int64_t sum = 0;
    *top = NONE;
    for (int i = first; i < n; i += 2)
        if (products[i].significand)
            *top = max_int(*top, products[i].exponent);
    for (int i = first; i<n && * top> NONE; i += 2)
        sum += align_to_zero(products[i], *top - model->align_bits);
    return sum;
}

static float fuse_parity(const struct kvg_ref_mma_model *model, float c, const struct term *products, int n)
{
    const int bits = model->align_bits, extra = CDNA3_SUM_BITS + 1 - bits;
    int top_even, top_odd;
    const int64_t even = half_sum(model, products, 0, n, &top_even);
    const int64_t odd = half_sum(model, products, 1, n, &top_odd);
    const int top_dot = max_int(top_even, top_odd);
    const int64_t dot =
        align_down(even, top_even - bits, top_dot - bits) + align_down(odd, top_odd - bits, top_dot - bits);
    const struct term add = accumulator(c);
    const int top = max_int(top_dot, add.exponent);
    int64_t from_c = 0;
    if (add.exponent >= top - bits - 1)
        from_c = align_down(add.significand, add.unit, top - bits);
    const int64_t sum = align_down(dot, top_dot - bits, top - bits - extra) + from_c * (1 << extra);
    if (sum == 0)
        return 0;
    const int unit = top - bits - extra;
    const int last = max_int(max_int(top_bit(sum) + unit, FP32_E_MIN) - CDNA3_SUM_BITS, unit);
    return (float)ldexp((double)align_down(sum, unit, last), last); /* at most 33 bits: rounded once */
}

/* ---------------------------------------------------------------- a chain of steps */

static float canonical(float x)
{
    const uint32_t nan = 0x7fffffff;
    if (isnan(x))
        memcpy(&x, &nan, sizeof x);
    return x;
}

struct operands {
    enum kvg_ref_format a_format, b_format;
    const uint8_t *a, *b;
};

/* The IEEE 754 sum of the products, without c. *finite is 0 if a summand is infinite or NaN: finite products
 * are too small to overflow FP32. */
static float special_sum(const struct operands *o, int64_t k, int *finite)
{
    float sum = 0;
    for (int64_t i = 0; i < k; i++)
        sum += kvg_ref_fp8_decode(o->a_format, o->a[i]) * kvg_ref_fp8_decode(o->b_format, o->b[i]);
    *finite = isfinite(sum);
    return sum;
}

/* The two HMMA of a chunk and the FP32 addition. products[32] ends in zeros if the chunk is incomplete. */
static float halves(const struct kvg_ref_mma_model *model, float c, const struct term *products)
{
    struct term chosen[STEP_MAX / 2];
    float d = 0;
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < STEP_MAX / 2; i++)
            chosen[i] = products[i / 2 * 4 + 2 * half + i % 2];
        d = fuse(model, d, chosen, STEP_MAX / 2);
    }
    return c + d;
}

static float one_chunk(const struct kvg_ref_mma_model *model, float c, const struct operands *o, int k)
{
    int finite;
    const float special = special_sum(o, k, &finite);
    if (!finite || !isfinite(c))
        return canonical(special + c);
    struct term products[STEP_MAX] = {{0}};
    for (int i = 0; i < k; i++)
        products[i] = product(operand(o->a_format, o->a[i], model->operand_e_min),
                              operand(o->b_format, o->b[i], model->operand_e_min));
    switch (model->family) {
    case KVG_REF_MMA_HALVES:
        return halves(model, c, products);
    case KVG_REF_MMA_PARITY:
        return fuse_parity(model, c, products, k);
    default:
        return fuse(model, c, products, k);
    }
}

float kvg_ref_mma_fp8(const struct kvg_ref_mma_model *model, float c, enum kvg_ref_format a_format,
                      const uint8_t *a, enum kvg_ref_format b_format, const uint8_t *b, int64_t k)
{
    for (int64_t at = 0; at < k; at += model->chunk) {
        const struct operands o = {a_format, b_format, a + at, b + at};
        c = one_chunk(model, c, &o, (int)(k - at < model->chunk ? k - at : model->chunk));
    }
    return c;
}
