/* SPDX-License-Identifier: Apache-2.0
 *
 * test_formats.c: the codecs against ml_dtypes, against published values, and against the CPU's own
 * half-precision conversion. test_formats_exhaustive.c tests the encoding of every float.
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
#include "tests/vectors/fp8_ml_dtypes.inc"

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof((array)[0])))

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Equal bits, or both NaN. */
static void assert_same(float value, uint32_t expected, int code)
{
    if (isnan(float_of(expected)) ? !isnan(value) : bits_of(value) != expected)
        fail_msg("code 0x%02x: got 0x%08x, expected 0x%08x", (unsigned)code, bits_of(value), expected);
}

static void check_vectors(enum kvg_ref_format format, const uint32_t values[256], const uint32_t *inputs,
                          const uint8_t *codes, int64_t count)
{
    uint8_t all[256];
    float row[256];
    for (int c = 0; c < 256; c++)
        all[c] = (uint8_t)c;
    kvg_ref_load_row(format, all, 0, 256, row);
    for (int c = 0; c < 256; c++) {
        assert_same(kvg_ref_fp8_decode(format, (uint8_t)c), values[c], c);
        assert_same(kvg_ref_load(format, all, c), values[c], c);
        assert_same(row[c], values[c], c);
    }
    assert_true(count > 1000);
    for (int64_t i = 0; i < count; i++) {
        uint8_t code = kvg_ref_fp8_encode(format, float_of(inputs[i]));
        if (code != codes[i])
            fail_msg("0x%08x: got 0x%02x, ml_dtypes has 0x%02x", inputs[i], code, codes[i]);
    }
}

static void test_against_ml_dtypes(void **state)
{
    (void)state;
    check_vectors(KVG_REF_E4M3, e4m3_values, e4m3_inputs, e4m3_codes, COUNT(e4m3_inputs));
    check_vectors(KVG_REF_E5M2, e5m2_values, e5m2_inputs, e5m2_codes, COUNT(e5m2_inputs));
    check_vectors(KVG_REF_E4M3FNUZ, e4m3fnuz_values, e4m3fnuz_inputs, e4m3fnuz_codes, COUNT(e4m3fnuz_inputs));
}

/* Values from the OCP 8-bit floating point specification, table 1, and AMD's data sheet for fnuz. */
static void test_landmarks(void **state)
{
    (void)state;
    static const struct {
        enum kvg_ref_format format;
        uint8_t code;
        float value;
    } landmark[] = {
        {KVG_REF_E4M3, 0x7e, 448},          {KVG_REF_E4M3, 0x08, 0x1p-6},      {KVG_REF_E4M3, 0x01, 0x1p-9},
        {KVG_REF_E4M3, 0x07, 0x1.cp-7},     {KVG_REF_E4M3, 0xfe, -448},        {KVG_REF_E4M3, 0x38, 1},
        {KVG_REF_E5M2, 0x7b, 57344},        {KVG_REF_E5M2, 0x04, 0x1p-14},     {KVG_REF_E5M2, 0x01, 0x1p-16},
        {KVG_REF_E5M2, 0x03, 0x1.8p-15},    {KVG_REF_E5M2, 0x3c, 1},           {KVG_REF_E4M3FNUZ, 0x7f, 240},
        {KVG_REF_E4M3FNUZ, 0x08, 0x1p-7},   {KVG_REF_E4M3FNUZ, 0x01, 0x1p-10}, {KVG_REF_E4M3FNUZ, 0x40, 1},
        {KVG_REF_E4M3FNUZ, 0x07, 0x1.cp-8},
    };
    for (int64_t i = 0; i < COUNT(landmark); i++) {
        assert_true(kvg_ref_fp8_decode(landmark[i].format, landmark[i].code) == landmark[i].value);
        assert_int_equal(kvg_ref_fp8_encode(landmark[i].format, landmark[i].value), landmark[i].code);
    }
    const struct kvg_ref_format_info *info = kvg_ref_format_get_info(KVG_REF_E4M3);
    assert_true(info->max == 448 && info->bytes == 1 && info->mantissa_bits == 3 && info->min_exponent == -6);
    assert_true(kvg_ref_format_get_info(KVG_REF_E5M2)->max == 57344);
    assert_true(kvg_ref_format_get_info(KVG_REF_E4M3FNUZ)->max == 240);
    assert_true(kvg_ref_format_get_info(KVG_REF_F16)->max == 65504);
    assert_true(kvg_ref_format_get_info(KVG_REF_BF16)->max == 3.3895313892515355e38);
    assert_true(kvg_ref_format_get_info(KVG_REF_F32)->max == 3.4028234663852886e38);
}

static void test_saturation_and_nan(void **state)
{
    (void)state;
    /* Ties: 464 is midway between 448 and 480, which would be the value of the NaN code. 61440 is midway
     * between 57344 and 65536, which would be the value of the code of infinity. */
    const float huge[] = {449, 464, 465, 480, 57345, 61440, 65536, 1e30f, INFINITY};
    for (int64_t i = 0; i < COUNT(huge); i++) {
        assert_int_equal(kvg_ref_fp8_encode(KVG_REF_E4M3, huge[i]), 0x7e);
        assert_int_equal(kvg_ref_fp8_encode(KVG_REF_E4M3, -huge[i]), 0xfe);
        assert_int_equal(kvg_ref_fp8_encode(KVG_REF_E4M3FNUZ, huge[i]), 0x7f);
        assert_int_equal(kvg_ref_fp8_encode(KVG_REF_E4M3FNUZ, -huge[i]), 0xff);
        if (huge[i] >= 57344) {
            assert_int_equal(kvg_ref_fp8_encode(KVG_REF_E5M2, huge[i]), 0x7b);
            assert_int_equal(kvg_ref_fp8_encode(KVG_REF_E5M2, -huge[i]), 0xfb);
        }
    }
    const uint32_t nan[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xffffffff};
    for (int64_t i = 0; i < COUNT(nan); i++) {
        assert_int_equal(kvg_ref_fp8_encode(KVG_REF_E4M3, float_of(nan[i])), 0x7f);
        assert_int_equal(kvg_ref_fp8_encode(KVG_REF_E5M2, float_of(nan[i])), 0x7f);
        assert_int_equal(kvg_ref_fp8_encode(KVG_REF_E4M3FNUZ, float_of(nan[i])), 0x80);
        for (int format = KVG_REF_F32; format <= KVG_REF_E4M3FNUZ; format++)
            assert_true(isnan(kvg_ref_round((enum kvg_ref_format)format, float_of(nan[i]))));
    }
    assert_true(isinf(kvg_ref_fp8_decode(KVG_REF_E5M2, 0xfc)));
    assert_int_equal(kvg_ref_fp8_encode(KVG_REF_E4M3, -0.0f), 0x80);
    assert_int_equal(kvg_ref_fp8_encode(KVG_REF_E4M3FNUZ, -0.0f), 0);
    assert_int_equal(kvg_ref_fp8_encode(KVG_REF_E4M3FNUZ, -1e-10f), 0);
}

/* All 65536 codes: decoding agrees with the formula, and encoding returns the code. */
static void test_16_bit_codes(void **state)
{
    (void)state;
    static uint16_t all[65536];
    static float f16[65536], bf16[65536];
    for (int c = 0; c < 65536; c++)
        all[c] = (uint16_t)c;
    kvg_ref_load_row(KVG_REF_F16, all, 0, 65536, f16);
    kvg_ref_load_row(KVG_REF_BF16, all, 0, 65536, bf16);
    for (int c = 0; c < 65536; c++) {
        int exponent = c >> 10 & 31, fraction = c & 1023;
        double magnitude =
            exponent ? ldexp(1 + fraction / 1024.0, exponent - 15) : ldexp(fraction / 1024.0, -14);
        double value = c >> 15 ? -magnitude : magnitude;
        if (exponent < 31) {
            assert_true((double)kvg_ref_f16_decode((uint16_t)c) == value);
            assert_int_equal(kvg_ref_f16_encode((float)value), c);
        } else {
            assert_true(fraction ? isnan(f16[c]) : isinf(f16[c]));
        }
        assert_int_equal(bits_of(f16[c]), bits_of(kvg_ref_f16_decode((uint16_t)c)));
        assert_int_equal(bits_of(bf16[c]), (uint32_t)c << 16);
        assert_int_equal(bits_of(kvg_ref_bf16_decode((uint16_t)c)), (uint32_t)c << 16);
        if (!isnan(bf16[c]))
            assert_int_equal(kvg_ref_bf16_encode(bf16[c]), c);
    }
    assert_int_equal(kvg_ref_f16_encode(65520), 0x7c00); /* midway to 65536: the even neighbour is infinity */
    assert_int_equal(kvg_ref_f16_encode(65519), 0x7bff);
    assert_int_equal(kvg_ref_bf16_encode(-3.4e38f), 0xff80);
}

/* An independent source: the compiler converts its half type with the F16C unit or with libgcc. */
static void test_f16_against_compiler(void **state)
{
    (void)state;
#ifdef __FLT16_MANT_DIG__
    for (uint32_t bits = 0; bits < 0xffffff00u - 4099; bits += 4099) {
        float value = float_of(bits);
        _Float16 half = (_Float16)value;
        uint16_t expected;
        memcpy(&expected, &half, sizeof expected);
        if (!isnan(value))
            assert_int_equal(kvg_ref_f16_encode(value), expected);
    }
#else
    skip();
#endif
}

/* Rows and single elements agree for every format, with an offset, at every length around the vector
 * widths. */
static void test_rows(void **state)
{
    (void)state;
    float in[600], out[600], rounded[600];
    unsigned char data[4 * 600], single[4 * 600];
    for (int i = 0; i < 600; i++)
        in[i] = ldexpf((float)((i * 7919) % 1013 - 506), (i * 31) % 24 - 18);
    for (int format = KVG_REF_F32; format <= KVG_REF_E4M3FNUZ; format++) {
        enum kvg_ref_format f = (enum kvg_ref_format)format;
        for (int count = 0; count < 70; count++) {
            memset(data, 0xa5, sizeof data);
            memset(single, 0xa5, sizeof single);
            kvg_ref_store_row(f, data, 3, count, in);
            for (int i = 0; i < count; i++)
                kvg_ref_store(f, single, 3 + i, in[i]);
            assert_memory_equal(data, single, sizeof data);
        }
        kvg_ref_store_row(f, data, 0, 600, in);
        kvg_ref_load_row(f, data, 0, 600, out);
        memcpy(rounded, in, sizeof in);
        kvg_ref_round_row(f, rounded, 600);
        for (int i = 0; i < 600; i++) {
            assert_int_equal(bits_of(out[i]), bits_of(kvg_ref_round(f, in[i])));
            assert_int_equal(bits_of(rounded[i]), bits_of(out[i]));
            assert_int_equal(bits_of(kvg_ref_load(f, data, i)), bits_of(out[i]));
        }
    }
}

/* Rounding in place does not go through codes, so it has a test of its own: all exponents, both signs,
 * fractions at and next to ties, NaN and infinities. */
static void test_rounded_in_place(void **state)
{
    (void)state;
    static const uint32_t fraction[] = {0,        1,        0xfff,    0x1000,   0x1001,   0x2000,   0x7fff,
                                        0x8000,   0x8001,   0x18000,  0x3ffff,  0x40000,  0x7ffff,  0x80000,
                                        0x80001,  0x100000, 0x17ffff, 0x180000, 0x180001, 0x200000, 0x3fffff,
                                        0x400000, 0x500000, 0x6fffff, 0x700000, 0x780000, 0x7f7fff, 0x7fffff};
    enum { FRACTIONS = sizeof fraction / sizeof fraction[0] };
    float values[2 * FRACTIONS], rounded[2 * FRACTIONS];
    for (int format = KVG_REF_F32; format <= KVG_REF_E4M3FNUZ; format++)
        for (uint32_t exponent = 0; exponent < 256; exponent++) {
            for (int i = 0; i < 2 * FRACTIONS; i++) {
                const uint32_t bits = (uint32_t)(i % 2) << 31 | exponent << 23 | fraction[i / 2];
                memcpy(&values[i], &bits, sizeof bits);
            }
            memcpy(rounded, values, sizeof values);
            kvg_ref_round_row((enum kvg_ref_format)format, rounded, 2 * FRACTIONS);
            for (int i = 0; i < 2 * FRACTIONS; i++)
                assert_int_equal(bits_of(rounded[i]),
                                 bits_of(kvg_ref_round((enum kvg_ref_format)format, values[i])));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_ml_dtypes),    cmocka_unit_test(test_landmarks),
        cmocka_unit_test(test_saturation_and_nan),   cmocka_unit_test(test_16_bit_codes),
        cmocka_unit_test(test_f16_against_compiler), cmocka_unit_test(test_rows),
        cmocka_unit_test(test_rounded_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
