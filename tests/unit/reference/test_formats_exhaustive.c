/* SPDX-License-Identifier: Apache-2.0
 *
 * test_formats_exhaustive.c: every encoder against an oracle that uses no bit tricks.
 *
 * The oracle: a format is the sorted list of the magnitudes of its codes, computed here from bias and
 * mantissa width. The midpoint of two neighbours is exact in double. Floats are taken in ascending order. The
 * oracle keeps the index of the nearest entry. It advances the index when the float is above the midpoint, or
 * is equal to it and the upper neighbour has the even code. Above the last entry FP8 saturates; a 16-bit
 * format has one more entry, for infinity.
 *
 * What is tested:
 *   - FP8, through the plain encoder and the row encoder, in blocks of 4096 floats: each block in which the code
 *     changes, the block before such a change, and every 16th block. With KVG_TEST_LONG=1 (make nightly) all
 *     2^32 floats.
 *   - 16-bit formats: every midpoint and one float to each side of it, and every 97th float.
 *   - Under a sanitizer, which is about ten times slower: every 61st block instead of every 16th, and 16-bit
 *     formats at every 3701st float instead of every 97th.
 */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "reference/formats.h"

enum { BLOCK = 4096 };

struct oracle {
    double *magnitude; /* [count], ascending: of code 0, 1, 2, ... */
    int64_t count;
    uint32_t last_code; /* code of everything above the last midpoint */
    uint32_t sign_bit;
    uint32_t nan_code; /* FP8 only */
    int negative_zero;
};

static void oracle_make(struct oracle *o, int64_t count, int mantissa_bits, int bias)
{
    o->magnitude = malloc((size_t)count * sizeof *o->magnitude);
    assert_non_null(o->magnitude);
    o->count = count;
    o->last_code = (uint32_t)count - 1;
    o->negative_zero = 1;
    double step = pow(2, 1 - bias - mantissa_bits), value = 0;
    for (int64_t code = 0; code < count; code++) {
        o->magnitude[code] = value;
        value += step;
        if (code >> mantissa_bits > 0 && (code + 1) % (1 << mantissa_bits) == 0)
            step *= 2; /* the next code opens a new binade */
    }
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* 1 if x is nearer to entry i + 1 than to entry i. A tie goes to the even code. */
static int passes(const struct oracle *o, int64_t i, double x)
{
    double middle = (o->magnitude[i] + o->magnitude[i + 1]) / 2;
    return x > middle || (x == middle && i % 2 == 1);
}

static int64_t oracle_start(const struct oracle *o, double x)
{
    int64_t low = 0, high = o->count - 1; /* the entry is in [low, high] */
    while (low < high) {
        int64_t i = (low + high) / 2;
        if (passes(o, i, x))
            low = i + 1;
        else
            high = i;
    }
    return low;
}

/* Expected codes of BLOCK floats from the bits `first` on. A block never crosses the change of sign; NaNs get
 * nan_code. */
static void oracle_block(const struct oracle *o, uint32_t first, uint8_t *expected)
{
    uint32_t magnitude = first & 0x7fffffff, sign = first >> 31 ? o->sign_bit : 0;
    int64_t i = magnitude <= 0x7f800000 ? oracle_start(o, float_of(magnitude)) : 0;
    for (int64_t n = 0; n < BLOCK; n++, magnitude++) {
        if (magnitude > 0x7f800000) {
            expected[n] = (uint8_t)o->nan_code;
            continue;
        }
        double x = float_of(magnitude);
        while (i < o->count - 1 && passes(o, i, x))
            i++;
        expected[n] = (uint8_t)(i == 0 && !o->negative_zero ? 0 : (uint32_t)i | sign);
    }
}

/* The first float of the block that an encoder gets wrong, or -1. */
static int64_t block_fault(enum kvg_ref_format format, const struct oracle *o, uint32_t first)
{
    uint8_t expected[BLOCK], row[BLOCK];
    float values[BLOCK];
    oracle_block(o, first, expected);
    for (int64_t n = 0; n < BLOCK; n++)
        values[n] = float_of(first + (uint32_t)n);
    kvg_ref_store_row(format, row, 0, BLOCK, values);
    int wrong = memcmp(row, expected, BLOCK) != 0;
    for (int64_t n = 0; n < BLOCK; n++)
        wrong |= kvg_ref_fp8_encode(format, values[n]) ^ expected[n];
    if (!wrong)
        return -1;
    for (int64_t n = 0; n < BLOCK; n++)
        if (row[n] != expected[n] || kvg_ref_fp8_encode(format, values[n]) != expected[n])
            return (int64_t)first + n;
    return -1;
}

/* Does the code change in the block of floats from bits `first` on, or from one of its neighbours to it? */
static int code_changes(const struct oracle *o, uint32_t first)
{
    uint32_t magnitude = first & 0x7fffffff, before = magnitude ? magnitude - 1 : 0,
             after = magnitude + BLOCK + 1;
    if (before > 0x7f800000)
        return 0; /* NaN, and NaN before it */
    return magnitude == 0 || after > 0x7f800000 ||
           oracle_start(o, float_of(before)) != oracle_start(o, float_of(after));
}

static void exhaust(enum kvg_ref_format format, const struct oracle *o)
{
    int whole = getenv("KVG_TEST_LONG") != NULL;
    int64_t fault = -1, stride = getenv("KVG_TEST_SANITIZED") ? 61 : 16, blocks = (1ll << 32) / BLOCK,
            tested = 0;
#pragma omp parallel for schedule(dynamic, 64) reduction(max : fault) reduction(+ : tested)
    for (int64_t b = 0; b < blocks; b++) {
        uint32_t first = (uint32_t)(b * BLOCK);
        if (!whole && b % stride != 0 && !code_changes(o, first))
            continue;
        int64_t bad = block_fault(format, o, first);
        fault = bad > fault ? bad : fault;
        tested += BLOCK;
    }
    if (fault >= 0)
        fail_msg("%s: float 0x%08llx is encoded wrongly", kvg_ref_format_get_info(format)->name,
                 (unsigned long long)fault);
    if (whole)
        assert_int_equal(tested, 1ll << 32);
    else /* what the stride takes, and blocks on both sides of each change */
        assert_true(tested / BLOCK > blocks / stride + o->count);
    free(o->magnitude);
}

static void test_e4m3(void **state)
{
    (void)state;
    struct oracle o;
    oracle_make(&o, 127, 3, 7);
    assert_true(o.magnitude[126] == 448);
    o.sign_bit = 0x80, o.nan_code = 0x7f;
    exhaust(KVG_REF_E4M3, &o);
}

static void test_e5m2(void **state)
{
    (void)state;
    struct oracle o;
    oracle_make(&o, 124, 2, 15);
    assert_true(o.magnitude[123] == 57344);
    o.sign_bit = 0x80, o.nan_code = 0x7f;
    exhaust(KVG_REF_E5M2, &o);
}

static void test_e4m3fnuz(void **state)
{
    (void)state;
    struct oracle o;
    oracle_make(&o, 128, 3, 8);
    assert_true(o.magnitude[127] == 240);
    o.sign_bit = 0x80, o.nan_code = 0x80, o.negative_zero = 0;
    exhaust(KVG_REF_E4M3FNUZ, &o);
}

/* ---------------------------------------------------------------- 16 bits */

static void check_16(enum kvg_ref_format format, const struct oracle *o, uint32_t magnitude)
{
    int64_t code = oracle_start(o, float_of(magnitude));
    for (uint32_t negative = 0; negative < 2; negative++) {
        float value = float_of(magnitude | negative << 31);
        uint16_t plain = format == KVG_REF_F16 ? kvg_ref_f16_encode(value) : kvg_ref_bf16_encode(value), row;
        kvg_ref_store_row(format, &row, 0, 1, &value);
        if (plain != (uint16_t)(code | negative << 15) || row != plain)
            fail_msg("%s: float 0x%08x gives 0x%04x and, as a row, 0x%04x; expected 0x%04x",
                     kvg_ref_format_get_info(format)->name, magnitude | negative << 31, plain, row,
                     (unsigned)(code | negative << 15));
    }
}

static void check_16_all(enum kvg_ref_format format, const struct oracle *o)
{
    for (int64_t code = 0; code + 1 < o->count; code++) {
        float middle = (float)((o->magnitude[code] + o->magnitude[code + 1]) / 2);
        uint32_t bits;
        memcpy(&bits, &middle, sizeof bits);
        for (uint32_t near = bits ? bits - 1 : 0; near <= bits + 1; near++)
            check_16(format, o, near);
    }
    uint32_t stride = getenv("KVG_TEST_SANITIZED") ? 3701 : 97;
    for (uint32_t magnitude = 0; magnitude <= 0x7f800000; magnitude += stride)
        check_16(format, o, magnitude);
    check_16(format, o, 0x7f800000);
    for (uint32_t nan = 0x7f800001; nan < 0x7fffffff - 99991; nan += 99991)
        assert_true(isnan(kvg_ref_round(format, float_of(nan))));
    free(o->magnitude);
}

static void test_f16(void **state)
{
    (void)state;
    struct oracle o;
    oracle_make(&o, 0x7c01, 10, 15);
    assert_true(o.magnitude[0x7bff] == 65504);
    check_16_all(KVG_REF_F16, &o);
}

static void test_bf16(void **state)
{
    (void)state;
    struct oracle o;
    oracle_make(&o, 0x7f81, 7, 127);
    assert_true(o.magnitude[0x3f80] == 1);
    check_16_all(KVG_REF_BF16, &o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_e4m3), cmocka_unit_test(test_e5m2), cmocka_unit_test(test_e4m3fnuz),
        cmocka_unit_test(test_f16),  cmocka_unit_test(test_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
