/* SPDX-License-Identifier: Apache-2.0
 *
 * test_scales.c: scales against values worked out by hand, on numbers small enough to follow. Divisions are
 * checked to the bit, moving averages to 2e-6.
 */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "reference/scales.h"

/* Three samples of two heads. */
static const float absmax[] = {4, 10, 8, 2, 6, 3};

static void test_static_minmax(void **state)
{
    (void)state;
    float scale[2];
    kvg_ref_scales_from_absmax(absmax, 3, 2, 1, KVG_REF_STATIC_MINMAX, 448, scale);
    assert_true(scale[0] == 8.0f / 448.0f);
    assert_true(scale[1] == 10.0f / 448.0f);
    kvg_ref_scales_from_absmax(absmax, 3, 2, 0, KVG_REF_STATIC_MINMAX, 448, scale);
    assert_true(scale[0] == 10.0f / 448.0f);
}

static void test_memoryless_minmax(void **state)
{
    (void)state;
    float scale[2];
    kvg_ref_scales_from_absmax(absmax, 3, 2, 1, KVG_REF_MEMORYLESS_MINMAX, 57344, scale);
    assert_true(scale[0] == 6.0f / 57344.0f);
    assert_true(scale[1] == 3.0f / 57344.0f);
    kvg_ref_scales_from_absmax(absmax, 3, 2, 0, KVG_REF_MEMORYLESS_MINMAX, 448, scale);
    assert_true(scale[0] == 6.0f / 448.0f);
}

static void test_moving_average(void **state)
{
    (void)state;
    float scale[2];
    kvg_ref_scales_from_absmax(absmax, 3, 2, 1, KVG_REF_MINMAX, 448, scale);
    /* head 0: 4, then 4 + 0.04 = 4.04, then 4.04 + 0.01 * 1.96 = 4.0596; head 1: 10, 9.92, 9.8508 */
    assert_true(fabs(scale[0] * 448 - 4.0596) < 1e-6);
    assert_true(fabs(scale[1] * 448 - 9.8508) < 2e-6);
    /* all heads together: samples 10, 8, 6: 10, 9.98, 9.9402 */
    kvg_ref_scales_from_absmax(absmax, 3, 2, 0, KVG_REF_MINMAX, 448, scale);
    assert_true(fabs(scale[0] * 448 - 9.9402) < 2e-6);
}

static void test_random_tokens(void **state)
{
    (void)state;
    const float batch[] = {30, 50};
    float scale[2];
    kvg_ref_scales_from_absmax(batch, 1, 2, 0, KVG_REF_STATIC_MINMAX, KVG_REF_RANDOM_TOKENS_K_CONSTANT,
                               scale);
    assert_true(scale[0] == 0.25f);
    kvg_ref_scales_from_absmax(batch, 1, 2, 1, KVG_REF_STATIC_MINMAX, KVG_REF_RANDOM_TOKENS_V_CONSTANT,
                               scale);
    assert_true(scale[0] == 30.0f / 100.0f && scale[1] == 0.5f);
    assert_true(KVG_REF_RANDOM_TOKENS_Q_CONSTANT == 200);
}

/* One NaN, in any head and sample, makes the scale bad. So does having no sample. */
static void test_nan_and_nothing(void **state)
{
    (void)state;
    const enum kvg_ref_observer remembering[] = {KVG_REF_STATIC_MINMAX, KVG_REF_MINMAX};
    for (int o = 0; o < 2; o++)
        for (int at = 0; at < 6; at++) {
            float copy[6], scale[2];
            for (int i = 0; i < 6; i++)
                copy[i] = i == at ? NAN : absmax[i];
            kvg_ref_scales_from_absmax(copy, 3, 2, 1, remembering[o], 448, scale);
            assert_int_equal(kvg_ref_first_bad_scale(scale, 2), at % 2);
            kvg_ref_scales_from_absmax(copy, 3, 2, 0, remembering[o], 448, scale);
            assert_int_equal(kvg_ref_first_bad_scale(scale, 1), 0);
        }
    float scale[2] = {1, 1};
    kvg_ref_scales_from_absmax(absmax, 0, 2, 1, KVG_REF_STATIC_MINMAX, 448, scale);
    assert_true(isnan(scale[0]) && isnan(scale[1]));
}

static void test_absmax(void **state)
{
    (void)state;
    float data[1000];
    uint16_t half[1000];
    for (int i = 0; i < 1000; i++)
        data[i] = (float)(i % 97 - 48) / 4;
    data[777] = -33;
    data[5] = 100; /* before the range asked for */
    for (int i = 0; i < 1000; i++)
        half[i] = kvg_ref_bf16_encode(data[i]);
    assert_true(kvg_ref_absmax(KVG_REF_F32, data, 6, 994) == 33);
    assert_true(kvg_ref_absmax(KVG_REF_BF16, half, 6, 994) == 33);
    assert_true(kvg_ref_absmax(KVG_REF_F32, data, 6, 771) == 12);
    assert_true(kvg_ref_absmax(KVG_REF_F32, data, 0, 0) == 0);
    data[300] = NAN;
    assert_true(isnan(kvg_ref_absmax(KVG_REF_F32, data, 0, 1000)));
}

static void test_q_scale_to_kv_heads(void **state)
{
    (void)state;
    const float q[] = {1, 3, 2, 7, 5, 6};
    float out[6];
    kvg_ref_q_scale_to_kv_heads(q, 6, 2, out);
    assert_true(out[0] == 3 && out[1] == 7);
    kvg_ref_q_scale_to_kv_heads(q, 6, 6, out);
    for (int i = 0; i < 6; i++)
        assert_true(out[i] == q[i]);
    kvg_ref_q_scale_to_kv_heads(q, 6, 1, out);
    assert_true(out[0] == 7);
}

static void test_first_bad_scale(void **state)
{
    (void)state;
    const float bad[] = {0, -0.0f, -1, NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 6; i++) {
        float scale[3] = {1e-30f, 1, 2};
        assert_int_equal(kvg_ref_first_bad_scale(scale, 3), -1);
        scale[2] = bad[i];
        assert_int_equal(kvg_ref_first_bad_scale(scale, 3), 2);
        scale[0] = bad[i];
        assert_int_equal(kvg_ref_first_bad_scale(scale, 3), 0);
    }
    assert_int_equal(kvg_ref_first_bad_scale(NULL, 0), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_static_minmax),       cmocka_unit_test(test_memoryless_minmax),
        cmocka_unit_test(test_moving_average),      cmocka_unit_test(test_random_tokens),
        cmocka_unit_test(test_nan_and_nothing),     cmocka_unit_test(test_absmax),
        cmocka_unit_test(test_q_scale_to_kv_heads), cmocka_unit_test(test_first_bad_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
