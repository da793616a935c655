/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernel_fp8.c: the codecs of kernels/fp8.h and kernels/cuda/fp8_integer.h against the integer
 * arithmetic of the reference. Decoders: every code. Encoders: every FP32 on or next to a boundary of a
 * format (each code, each midpoint of two codes, and their neighbours), and a dense sweep through all
 * exponents.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cuda/fp8_integer.h"
#include "kernels/fp8.h"
#include "reference/formats.h"

struct codec {
    const char *name;
    enum kvg_ref_format format;
    uint8_t (*encode)(float);
    float (*decode)(uint8_t);
};

/* What CUDA kernels do on a GPU without conversion instructions. */
static uint8_t integer_e4m3(float x)
{
    return (uint8_t)kvg_fp8_integer_e4m3(kvg_f32_bits(x));
}
static uint8_t integer_e5m2(float x)
{
    return (uint8_t)kvg_fp8_integer_e5m2(kvg_f32_bits(x));
}
static float integer_e4m3_decode(uint8_t code)
{
    return kvg_f16_decode((uint16_t)kvg_fp8_integer_e4m3_to_f16(code));
}

static const struct codec codecs[] = {
    {"e4m3", KVG_REF_E4M3, kvg_fp8_e4m3_encode, kvg_fp8_e4m3_decode},
    {"e5m2", KVG_REF_E5M2, kvg_fp8_e5m2_encode, kvg_fp8_e5m2_decode},
    {"e4m3fnuz", KVG_REF_E4M3FNUZ, kvg_fp8_e4m3fnuz_encode, kvg_fp8_e4m3fnuz_decode},
    {"e4m3 in integers", KVG_REF_E4M3, integer_e4m3, integer_e4m3_decode},
    {"e5m2 in integers", KVG_REF_E5M2, integer_e5m2,
     kvg_fp8_e5m2_decode}, /* encoder alone: an f16 cut short */
};
enum { CODECS = sizeof codecs / sizeof *codecs };

/* Equal as numbers, signs of zeros included; any NaN equals any NaN. */
static int same(float a, float b)
{
    return isnan(a) ? isnan(b) : kvg_f32_bits(a) == kvg_f32_bits(b);
}

static void check_encode(const struct codec *c, uint32_t bits)
{
    const float x = kvg_f32_from_bits(bits);
    const uint8_t got = c->encode(x), want = kvg_ref_fp8_encode(c->format, x);

    if (got != want)
        fail_msg("%s: %a (0x%08x) encodes to 0x%02x, want 0x%02x", c->name, (double)x, bits, got, want);
}

static void check_near(const struct codec *c, double value)
{
    const uint32_t bits = kvg_f32_bits((float)value);

    for (uint32_t offset = 0; offset < 9; offset++) {
        check_encode(c, (bits + offset - 4) & 0x7fffffffu);
        check_encode(c, ((bits + offset - 4) & 0x7fffffffu) | 0x80000000u);
    }
}

static void test_decode_every_code(void **state)
{
    (void)state;
    for (int i = 0; i < CODECS; i++) {
        for (int code = 0; code < 256; code++) {
            if (!same(codecs[i].decode((uint8_t)code), kvg_ref_fp8_decode(codecs[i].format, (uint8_t)code))) {
                fail_msg("%s: code 0x%02x decodes to %g", codecs[i].name, code,
                         (double)codecs[i].decode((uint8_t)code));
            }
        }
    }
}

/* Known values: OCP 8-bit floating point specification, and AMD's fnuz. */
static void test_known_values(void **state)
{
    (void)state;
    assert_true(kvg_fp8_e4m3_decode(0x7e) == 448.0f && kvg_fp8_e4m3_decode(0x01) == 0x1p-9f);
    assert_true(kvg_fp8_e4m3_decode(0x08) == 0x1p-6f && isnan(kvg_fp8_e4m3_decode(0x7f)));
    assert_true(kvg_fp8_e5m2_decode(0x7b) == 57344.0f && kvg_fp8_e5m2_decode(0x01) == 0x1p-16f);
    assert_true(isinf(kvg_fp8_e5m2_decode(0xfc)) && isnan(kvg_fp8_e5m2_decode(0x7d)));
    assert_true(kvg_fp8_e4m3fnuz_decode(0x7f) == 240.0f && isnan(kvg_fp8_e4m3fnuz_decode(0x80)));
    assert_int_equal(kvg_fp8_e4m3_encode(INFINITY), 0x7e);
    assert_int_equal(kvg_fp8_e4m3_encode(-1e30f), 0xfe);
    assert_int_equal(kvg_fp8_e5m2_encode(INFINITY), 0x7b);
    assert_int_equal(kvg_fp8_e4m3_encode(0x1p-10f), 0x00);  /* a tie with zero goes to the even code */
    assert_int_equal(kvg_fp8_e4m3_encode(0x1.8p-9f), 0x02); /* tie of codes 1 and 2 */
    assert_int_equal(kvg_fp8_e4m3_encode(-0.0f), 0x80);
    assert_int_equal(kvg_fp8_e4m3fnuz_encode(-0.0f), 0x00);
    assert_int_equal(kvg_fp8_e4m3fnuz_encode(NAN), 0x80);
}

static void test_encode_boundaries(void **state)
{
    (void)state;
    for (int i = 0; i < CODECS; i++) {
        const struct codec *c = &codecs[i];
        for (int code = 0; code < 127; code++) {
            const double low = kvg_ref_fp8_decode(c->format, (uint8_t)code);
            const double high = kvg_ref_fp8_decode(c->format, (uint8_t)(code + 1));
            check_near(c, low);
            if (isfinite(high)) {
                check_near(c, 0.5 * (low + high));
                check_near(c, low + 0.25 * (high - low));
            }
        }
        check_near(c, kvg_ref_format_get_info(c->format)->max * 1.03);
        check_near(c, 0x1p-149);
        check_near(c, 0x1.fffffep127);
        check_near(c, INFINITY);
        check_encode(c, 0x7fc00000u);
        check_encode(c, 0xffc00000u);
        check_encode(c, 0x7f800001u);
        check_encode(c, 0xffffffffu);
    }
}

/* Every 251st float: all exponents, fractions in every residue. */
static void test_encode_sweep(void **state)
{
    (void)state;
    for (int i = 0; i < CODECS; i++)
        for (uint64_t bits = (uint64_t)i; bits < (uint64_t)1 << 32; bits += 251)
            check_encode(&codecs[i], (uint32_t)bits);
}

static void test_sixteen_bits(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 65536; code++) {
        assert_true(same(kvg_bf16_decode((uint16_t)code), kvg_ref_bf16_decode((uint16_t)code)));
        assert_true(same(kvg_f16_decode((uint16_t)code), kvg_ref_f16_decode((uint16_t)code)));
    }
    for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += 127) {
        const float x = kvg_f32_from_bits((uint32_t)bits);
        assert_int_equal(kvg_bf16_encode(x), kvg_ref_bf16_encode(x));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_every_code), cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_encode_boundaries), cmocka_unit_test(test_encode_sweep),
        cmocka_unit_test(test_sixteen_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
