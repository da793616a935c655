/* SPDX-License-Identifier: Apache-2.0
 *
 * test_special.c: the lists of special values show every fault of rounding, in few elements.
 *
 * The right code of a value is found by exact arithmetic: value and scale are integers times powers of two, so the
 * quotient is compared with a midpoint by a product of integers. Codes are compared for a few hundred elements,
 * which is what the smallest case has.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "harness/prepare/special.h"
#include "kernels/fp8.h"

enum { FEW = 768 };

/* Values of the e4m3 codes 0 .. 0x7e, by their definition. */
static double e4m3(int code)
{
    const int exponent = code >> 3, mantissa = code & 7;
    return exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
}

/* Rounds x >= 0 to e4m3: to nearest, ties to even (rule 0), ties away (1), towards zero (2); or through FP16 (3). */
static int encode(double x, int rule)
{
    int code = 0;
    if (rule == 3) {
        int e;
        frexp(x, &e);
        const double step = ldexp(1, (e < -13 ? -13 : e) - 11);
        x = nearbyint(x / step) * step;
    }
    while (code < 0x7e && e4m3(code + 1) <= x)
        code++;
    if (code == 0x7e || rule == 2)
        return code;
    const double middle = (e4m3(code) + e4m3(code + 1)) / 2;
    if (x > middle || (x == middle && (rule == 1 || code % 2 == 1)))
        code++;
    return code;
}

/* Among the first FEW values of all scales, how many have another code under a wrong rule? */
static int64_t shown(const struct kvg_special *s, int rule)
{
    int64_t n = 0;
    for (int64_t k = 0; k < KVG_SPECIAL_SCALES; k++) {
        const float scale = kvg_special_scale(KVG_REF_E4M3, k);
        for (int64_t i = 0; i < FEW; i++) {
            const float x = fabsf(kvg_bf16_decode(kvg_special_value(s, k, i)));
            if (isfinite(x) && x > 0)
                n += encode((double)(x / scale), 0) != encode((double)(x / scale), rule);
        }
    }
    return n;
}

static void every_wrong_rounding_shows(void **state)
{
    struct kvg_special s;
    (void)state;
    assert_int_equal(kvg_special_make(KVG_REF_E4M3, KVG_SPECIAL_DIVIDE, &s), 0);
    assert_true(shown(&s, 1) > 8);   /* ties away */
    assert_true(shown(&s, 2) > 100); /* cut off */
    assert_true(shown(&s, 3) > 8);   /* through half precision */
    kvg_special_free(&s);
}

static void all_kinds_come_first(void **state)
{
    struct kvg_special s;
    (void)state;
    assert_int_equal(kvg_special_make(KVG_REF_E4M3, KVG_SPECIAL_DIVIDE, &s), 0);
    for (int64_t k = 0; k < KVG_SPECIAL_SCALES; k++) {
        const float scale = kvg_special_scale(KVG_REF_E4M3, k);
        int zeros = 0, nan = 0, infinite = 0, subnormal = 0, largest = 0, beyond = 0, negative = 0;
        for (int64_t i = 0; i < 2 * FEW; i++) {
            const uint16_t bits = kvg_special_value(&s, k, i);
            const float x = kvg_bf16_decode(bits), q = fabsf(x / scale);
            zeros |= bits == 0 ? 1 : bits == 0x8000u ? 2 : 0;
            nan |= isnan(x);
            infinite |= isinf(x) != 0;
            subnormal |= q > 0x1p-9f && q < 0x1p-6f;
            largest |= q > 432.0f && q <= 448.0f;
            beyond |= q > 464.0f && isfinite(q);
            negative += bits >> 15;
        }
        assert_int_equal(zeros, 3);
        assert_true(nan && infinite && subnormal && largest && beyond);
        assert_in_range(negative, FEW / 2, 3 * FEW / 2);
    }
    kvg_special_free(&s);
}

/* After its list a scale gets every bf16 value. */
static void every_value_follows(void **state)
{
    struct kvg_special s;
    unsigned char *seen = calloc(65536, 1);
    int64_t n = 0;
    (void)state;
    assert_non_null(seen);
    assert_int_equal(kvg_special_make(KVG_REF_E5M2, KVG_SPECIAL_DIVIDE, &s), 0);
    for (int64_t i = 0; i < 65536; i++)
        seen[kvg_special_value(&s, 3, s.count[3] + i)] = 1;
    for (int64_t i = 0; i < 65536; i++)
        n += seen[i];
    assert_int_equal(n, 65536);
    kvg_special_free(&s);
    free(seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_wrong_rounding_shows),
                                       cmocka_unit_test(all_kinds_come_first),
                                       cmocka_unit_test(every_value_follows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
