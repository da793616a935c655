/* SPDX-License-Identifier: Apache-2.0
 *
 * test_systematic.c: gain and offset of a group against regressions done here, and where a gain means
 * nothing.
 */
#include "harness/verify/systematic.h"
#include "tests/unit/bounds_fixture.h"

static const float no_loss[128];

static void test_gain_and_offset(void **state)
{
    (void)state;
    enum { DIM = 128, ROWS = 4 };
    struct rng r = {3};
    struct kvg_bound_tail tail;
    float emulated[DIM];
    uint16_t got[DIM];
    struct kvg_bound_noise noise[DIM];
    kvg_bound_make_tail(KVG_CHECK_ALPHA, 8, &tail);
    static const double gains[] = {1.0, 0.99, 0.5, -1.0, 0.0};
    for (int i = 0; i < 5; i++) {
        struct kvg_systematic sums;
        struct kvg_systematic_result result;
        double up = 0.0, down = 0.0, mean = 0.0;
        memset(&sums, 0, sizeof sums);
        for (int row = 0; row < ROWS; row++) {
            for (int d = 0; d < DIM; d++) {
                emulated[d] = (float)(3.0 * rng_normal(&r));
                noise[d] = (struct kvg_bound_noise){.shared = 1e-6 * fabs((double)emulated[d]), .own = 1e-7};
                got[d] = kvg_ref_bf16_encode((float)gains[i] * emulated[d]);
                const double x = (double)kvg_ref_bf16_decode(kvg_ref_bf16_encode(emulated[d]));
                const double y = (double)kvg_ref_bf16_decode(got[d]);
                up += x * y;
                down += x * x;
                mean += (y - x) / (ROWS * DIM);
            }
            kvg_systematic_add_row(&sums, DIM, got, emulated, noise, no_loss, &tail);
        }
        kvg_systematic_finish(&sums, &tail, KVG_GAIN_ALLOWANCE, &result);
        assert_true(fabs(result.gain - up / down) < 1e-9);
        assert_true(fabs(result.offset - mean) < 1e-9);
        assert_true(result.gain_limit > KVG_GAIN_ALLOWANCE && result.gain_limit < KVG_GAIN_ALLOWANCE + 1e-3);
        if (i == 0)
            assert_true(result.gain == 1.0 && result.offset == 0.0);
        else
            assert_true(fabs(result.gain - 1.0) > result.gain_limit);
    }
}

/* The loss of the standard for narrow accumulators is forgiven, and no more: sum loss |r| / sum r^2. */
static void test_gain_with_a_loss(void **state)
{
    (void)state;
    enum { DIM = 128 };
    struct rng r = {6};
    struct kvg_bound_tail tail;
    struct kvg_systematic plain = {0}, forgiven = {0};
    struct kvg_systematic_result a, b;
    float emulated[DIM], loss[DIM];
    uint16_t got[DIM];
    struct kvg_bound_noise noise[DIM];
    double lost = 0.0, squares = 0.0, all = 0.0;
    kvg_bound_make_tail(KVG_CHECK_ALPHA, 8, &tail);
    for (int d = 0; d < DIM; d++) {
        emulated[d] = kvg_ref_bf16_decode(kvg_ref_bf16_encode((float)(1.0 + rng_unit(&r))));
        loss[d] = 0.01f * (float)rng_unit(&r);
        got[d] = kvg_ref_bf16_encode(0.98f * emulated[d]);
        noise[d] = (struct kvg_bound_noise){.shared = 1e-9, .own = 1e-9, .usual = 1e-9};
        lost += (double)loss[d] * (double)emulated[d];
        squares += (double)emulated[d] * (double)emulated[d];
        all += (double)loss[d];
    }
    kvg_systematic_add_row(&plain, DIM, got, emulated, noise, no_loss, &tail);
    kvg_systematic_finish(&plain, &tail, KVG_GAIN_ALLOWANCE, &a);
    kvg_systematic_add_row(&forgiven, DIM, got, emulated, noise, loss, &tail);
    kvg_systematic_finish(&forgiven, &tail, KVG_GAIN_ALLOWANCE, &b);
    assert_true(a.gain == b.gain && a.offset == b.offset);
    assert_true(b.gain_limit >= a.gain_limit + lost / squares);
    assert_true(b.offset_limit >= a.offset_limit + all / DIM);
    /* In addition the limit has the steps of elements that a loss may carry across a boundary. */
    assert_true(b.gain_limit < a.gain_limit + lost / squares + 0x1p-7);
    assert_true(fabs(a.gain - 1.0) > a.gain_limit && fabs(b.gain - 1.0) > b.gain_limit);
}

/* A one-hot softmax returns few significands; noise may carry all elements of one across a boundary. */
static void test_gain_of_few_significands(void **state)
{
    (void)state;
    enum { DIM = 128 };
    struct kvg_bound_tail tail;
    struct kvg_systematic few = {0}, many = {0};
    struct kvg_systematic_result a, b;
    float emulated[DIM];
    uint16_t got[DIM];
    struct kvg_bound_noise noise[DIM];
    kvg_bound_make_tail(KVG_CHECK_ALPHA, 8, &tail);
    for (int d = 0; d < DIM; d++) {
        emulated[d] = 1.0f + 0x1p-8f + (float)(d % 3); /* on a boundary of bf16, or 2 and 3 */
        got[d] = kvg_ref_bf16_encode(emulated[d] + 1e-6f);
        noise[d] = (struct kvg_bound_noise){.shared = 1e-6, .own = 1e-6};
    }
    kvg_systematic_add_row(&few, DIM, got, emulated, noise, no_loss, &tail);
    kvg_systematic_finish(&few, &tail, KVG_GAIN_ALLOWANCE, &a);
    assert_true(fabs(a.gain - 1.0) > 0.0 && fabs(a.gain - 1.0) <= a.gain_limit);
    for (int d = 0; d < DIM; d++)
        emulated[d] = 1.0f + (float)d / 128.0f + 0x1p-9f;
    for (int d = 0; d < DIM; d++)
        got[d] = kvg_ref_bf16_encode(emulated[d]);
    kvg_systematic_add_row(&many, DIM, got, emulated, noise, no_loss, &tail);
    kvg_systematic_finish(&many, &tail, KVG_GAIN_ALLOWANCE, &b);
    assert_true(b.gain_limit - KVG_GAIN_ALLOWANCE < (a.gain_limit - KVG_GAIN_ALLOWANCE) / 5.0);
}

/* `undefined` is the error of the standard over the output: lambda times its noise, added linearly over the
 * dims of a row, plus the forgiven loss. Zeros break a gain limit below 1 and no other. */
static void test_defined(void **state)
{
    (void)state;
    enum { DIM = 64, ROWS = 3 };
    struct kvg_bound_tail tail;
    float emulated[DIM], loss[DIM];
    const uint16_t zero[DIM] = {0};
    struct kvg_bound_noise noise[DIM];
    kvg_bound_make_tail(KVG_CHECK_ALPHA, 8, &tail);
    for (double size = 1e-4; size < 1.0; size *= 1.7) {
        struct kvg_systematic sums = {0};
        struct kvg_systematic_result result;
        double squares = 0.0, all = 0.0;
        for (int d = 0; d < DIM; d++) {
            emulated[d] = d % 2 ? 1.5f : -0.75f;
            loss[d] = (float)(0.1 * size);
            noise[d] =
                (struct kvg_bound_noise){.shared = size * tail.lambda, .usual = size, .standard = size};
        }
        for (int row = 0; row < ROWS; row++)
            kvg_systematic_add_row(&sums, DIM, zero, emulated, noise, loss, &tail);
        kvg_systematic_finish(&sums, &tail, KVG_GAIN_ALLOWANCE, &result);
        for (int d = 0; d < DIM; d++) {
            squares += ROWS * (double)emulated[d] * (double)emulated[d];
            all += fabs((double)emulated[d]);
        }
        const double want = (tail.lambda * sqrt((double)ROWS) * all + 0.1 * ROWS * all) * size / squares;
        assert_true(fabs(result.undefined / want - 1.0) < 1e-6);
        assert_true(result.gain_limit > result.undefined);
        assert_true(isnan(result.gain) == (result.gain_limit >= 1.0));
        if (!isnan(result.gain))
            assert_true(result.gain == 0.0 && fabs(result.gain - 1.0) > result.gain_limit);
    }
}

static void test_gain_without_meaning(void **state)
{
    (void)state;
    struct kvg_bound_tail tail;
    struct kvg_systematic sums = {0};
    struct kvg_systematic_result result;
    const uint16_t zero[4] = {0}, nan[4] = {0x7fc0, 0x7fc0, 0x7fc0, 0x7fc0};
    const float nothing[4] = {0}, small[4] = {1e-3f, -1e-3f, 1e-3f, 1e-3f};
    const struct kvg_bound_noise noise[4] = {
        {.shared = 1, .own = 1}, {.shared = 1, .own = 1}, {.shared = 1, .own = 1}, {.shared = 1, .own = 1}};
    kvg_bound_make_tail(KVG_CHECK_ALPHA, 1, &tail);
    kvg_systematic_add_row(&sums, 4, zero, nothing, noise, no_loss, &tail);
    kvg_systematic_finish(&sums, &tail, KVG_GAIN_ALLOWANCE, &result);
    assert_true(isnan(result.gain));
    memset(&sums, 0, sizeof sums);
    kvg_systematic_add_row(&sums, 4, zero, small, noise, no_loss, &tail); /* noise above the output */
    kvg_systematic_finish(&sums, &tail, KVG_GAIN_ALLOWANCE, &result);
    assert_true(isnan(result.gain));
    memset(&sums, 0, sizeof sums);
    kvg_systematic_add_row(&sums, 4, nan, small, noise, no_loss, &tail);
    kvg_systematic_finish(&sums, &tail, KVG_GAIN_ALLOWANCE, &result);
    assert_true(isnan(result.gain) && isnan(result.offset));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gain_and_offset),          cmocka_unit_test(test_gain_with_a_loss),
        cmocka_unit_test(test_gain_of_few_significands), cmocka_unit_test(test_defined),
        cmocka_unit_test(test_gain_without_meaning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
