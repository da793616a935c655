/* SPDX-License-Identifier: Apache-2.0
 *
 * test_rms.c: sums of squared errors against noise whose size is known, because the test made it. Outputs
 * that err as predicted pass with every seed. Outputs that err a few times as much in every element fail,
 * although no single element exceeds its own limit.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "harness/verify/rms.h"
#include "tests/unit/prepared_values.h"

enum { ROWS = 64, DIM = 128 };

/* Rows of N(0, 1) plus noise of size `actual`, rounded to bf16. alike: 1 for one noise for all elements of a
 * row. declared: the size that the kernel declares. */
static void make(struct rng *r, double actual, double declared, int alike, struct kvg_rms *sums)
{
    memset(sums, 0, sizeof *sums);
    for (int i = 0; i < ROWS; i++) {
        uint16_t got[DIM];
        float emulated[DIM];
        struct kvg_bound_noise noise[DIM];
        const double common = rng_normal(r);
        for (int d = 0; d < DIM; d++) {
            const double exact = rng_normal(r), n = actual * (alike ? common : rng_normal(r));
            emulated[d] = (float)exact;
            got[d] = kvg_ref_bf16_encode((float)((double)emulated[d] + n));
            noise[d] = (struct kvg_bound_noise){.declared = declared};
        }
        kvg_rms_add_row(sums, DIM, got, emulated, noise);
    }
}

static struct kvg_rms_result result_of(const struct kvg_rms *sums)
{
    struct kvg_bound_tail tail;
    struct kvg_rms_result result;
    kvg_bound_make_tail(KVG_CHECK_ALPHA, 1, &tail);
    kvg_rms_finish(sums, &tail, &result);
    assert_true(result.predicted <= result.limit);
    return result;
}

/* Noise far below a step, of about a step, and far above it; independent, and alike in a row. */
static void noise_of_the_declared_size_passes(void **state)
{
    static const double sizes[] = {1e-7, 1e-5, 1e-4, 1e-3, 4e-3, 0.02, 0.3};
    struct kvg_rms sums;
    struct rng r = {1};
    (void)state;
    for (int seed = 0; seed < 40; seed++)
        for (int alike = 0; alike < 2; alike++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                make(&r, sizes[i], sizes[i], alike, &sums);
                const struct kvg_rms_result result = result_of(&sums);
                assert_true(result.rms <= result.limit);
            }
}

/* The prediction: for loud noise the error is noise and rounding, for quiet noise it is an occasional step.
 * */
static void prediction_is_near(void **state)
{
    struct kvg_rms sums;
    struct rng r = {2};
    (void)state;
    make(&r, 0.05, 0.05, 0, &sums);
    struct kvg_rms_result result = result_of(&sums);
    assert_true(result.rms > 0.95 * result.predicted && result.rms < 1.05 * result.predicted);
    /* E |n| = 0.8 s, and the chance is counted as 2 s / step: predicted at most 1.6 times too large. */
    make(&r, 1e-4, 1e-4, 0, &sums);
    result = result_of(&sums);
    assert_true(result.rms > 0.5 * result.predicted && result.rms < result.predicted);
}

/* Every element errs twice as much as declared where noise is loud, ten times where it is quiet. With so many
 * rows that cannot be chance, although hardly any single element errs by the five to six sizes that it may.
 * */
static void more_noise_than_declared_is_seen(void **state)
{
    struct kvg_rms sums;
    struct rng r = {3};
    (void)state;
    for (int seed = 0; seed < 20; seed++) {
        make(&r, 0.1, 0.05, 0, &sums);
        struct kvg_rms_result result = result_of(&sums);
        assert_true(result.rms > result.limit);
        make(&r, 1e-3, 1e-4, 0, &sums);
        result = result_of(&sums);
        assert_true(result.rms > result.limit);
    }
}

static void what_is_not_finite_is_left_out(void **state)
{
    const float emulated[3] = {1.0f, NAN, 2.0f};
    const uint16_t got[3] = {0x7f80, 0x3f80, kvg_ref_bf16_encode(2.0f)};
    const struct kvg_bound_noise noise[3] = {{.declared = 1e-6}, {.declared = 1e-6}, {.declared = 1e-6}};
    struct kvg_rms sums = {0};
    (void)state;
    struct kvg_bound_tail tail;
    struct kvg_rms_result result;
    kvg_bound_make_tail(KVG_CHECK_ALPHA, 1, &tail);
    kvg_rms_finish(&sums, &tail, &result);
    assert_true(isnan(result.rms) && isinf(result.limit));
    kvg_rms_add_row(&sums, 3, got, emulated, noise);
    assert_true(sums.count == 1.0 && sums.sum == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(noise_of_the_declared_size_passes),
        cmocka_unit_test(prediction_is_near),
        cmocka_unit_test(more_noise_than_declared_is_seen),
        cmocka_unit_test(what_is_not_finite_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
