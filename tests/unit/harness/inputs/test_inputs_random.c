/* SPDX-License-Identifier: Apache-2.0
 *
 * test_inputs_random.c: the random numbers of the synthetic inputs, compared with independent sources:
 * Random123's published known answers, printed normal quantiles, and GSL's distribution functions.
 */
#include <gsl/gsl_cdf.h>
#include <gsl/gsl_sort_float.h>
#include <gsl/gsl_statistics_float.h>

#include "tests/unit/inputs_fixture.h"

/* ---------------------------------------------------------------------------------------- Philox */

/* Values from the file kat_vectors of Random123, philox4x32 10. */
static void test_philox_known_answers(void **state)
{
    (void)state;
    static const uint32_t known[3][10] = {{0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                          {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff,
                                           0xffffffff, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                          {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822,
                                           0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    for (int i = 0; i < 3; i++) {
        const uint32_t *k = known[i];
        uint64_t seed = k[4] | (uint64_t)k[5] << 32;
        /* dim 16 * lane + j is word `lane` of counter { token, head * 2^16 + j, sequence, stream } */
        for (uint32_t lane = 0; lane < 4; lane++) {
            uint32_t block = k[1] & 0xffff, dim = block / 16 * 64 + lane * 16 + block % 16;
            assert_int_equal(kvg_random_bits(seed, k[3], k[2], k[0], k[1] >> 16, dim), k[6 + lane]);
        }
    }
}

static void test_coordinates_reach_the_counter(void **state)
{
    (void)state;
    for (uint32_t dim = 0; dim < 300; dim += 7) {
        const uint32_t counter[4] = {1000003, (5u << 16) + dim / 64 * 16 + dim % 16, 42, 0x21};
        uint32_t words[4];
        plain_philox(counter, UINT64_C(0x123456789abcdef), words);
        assert_int_equal(kvg_random_bits(UINT64_C(0x123456789abcdef), 0x21, 42, 1000003, 5, dim),
                         words[dim / 16 % 4]);
    }
}

/* ---------------------------------------------------------------------------------------- normals */

/* Printed quantiles (Abramowitz and Stegun, table 26.5 and 26.6): P(N > x) = p. */
static void test_published_quantiles(void **state)
{
    (void)state;
    static const double known[][2] = {{0.25, 0.6744897502},  {0.1, 1.2815515655},  {0.05, 1.6448536270},
                                      {0.025, 1.9599639845}, {0.01, 2.3263478740}, {0.001, 3.0902323062},
                                      {1e-4, 3.7190164855},  {1e-5, 4.2648907939}, {1e-6, 4.7534243088},
                                      {1e-8, 5.6120012442}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t bits = (uint32_t)(known[i][0] * 0x1p32);
        double grain = 0x1p-32 / known[i][0] / known[i][1]; /* one step of the random word, in x */
        assert_true(fabs((double)kvg_normal(kvg_normal_table, bits) - known[i][1]) < 1e-4 + grain);
        assert_true(kvg_normal(kvg_normal_table, bits | 0x80000000u) == -kvg_normal(kvg_normal_table, bits));
    }
    assert_true(fabs(kvg_normal(kvg_normal_table, 0) - 6.2303) < 1e-3); /* P = 2^-32 */
    assert_true(kvg_normal(kvg_normal_table, 0x7fffffff) < 1e-6);
}

/* The table against GSL's quantile function in all octaves; and it falls monotonically, also between
 * segments. */
static void test_table_against_gsl(void **state)
{
    (void)state;
    double worst = 0;
    for (uint64_t m = 1; m < 0x80000000u; m += m / 1013 + 1) {
        double want = gsl_cdf_ugaussian_Qinv((double)(m | 1) * 0x1p-32);
        worst = fmax(worst, fabs(kvg_normal(kvg_normal_table, (uint32_t)m) - want));
    }
    assert_true(worst < 1e-4); /* less than the rounding to bf16, 2^-9 relative */
    float before = INFINITY;
    for (uint64_t m = 1; m < 0x80000000u; m += m / 4999 + 1) {
        float x = kvg_normal(kvg_normal_table, (uint32_t)m);
        assert_true(x <= before && x >= 0);
        before = x;
    }
}

/* n deviates of one stream. */
static float *deviates(int64_t n, uint32_t stream, uint32_t head)
{
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = kvg_normal(kvg_normal_table,
                          kvg_random_bits(3, stream, 0, (uint32_t)(i / 128), head, (uint32_t)(i % 128)));
    return x;
}

/* Limits are five standard errors of each statistic at n = 2^20. */
static void test_moments(void **state)
{
    (void)state;
    const int64_t n = 1 << 20;
    float *x = deviates(n, KVG_STREAM_VALUE, 0);
    double moment[5] = {0};
    for (int64_t i = 0; i < n; i++)
        for (int k = 1; k < 5; k++)
            moment[k] += pow(x[i], k) / (double)n;
    double root = sqrt((double)n);
    assert_true(fabs(moment[1]) < 5 / root);
    assert_true(fabs(moment[2] - 1) < 5 * sqrt(2) / root);
    assert_true(fabs(moment[3]) < 5 * sqrt(15) / root);
    assert_true(fabs(moment[4] - 3) < 5 * sqrt(96) / root);
    free(x);
}

static void test_distribution(void **state)
{
    (void)state;
    const int64_t n = 1 << 20;
    float *x = deviates(n, KVG_STREAM_VALUE + 16, 2);
    gsl_sort_float(x, 1, (size_t)n);
    double distance = 0;
    for (int64_t i = 0; i < n; i++) {
        double p = gsl_cdf_ugaussian_P(x[i]);
        distance =
            fmax(distance, fmax(fabs(p - (double)i / (double)n), fabs(p - (double)(i + 1) / (double)n)));
    }
    assert_true(distance < 1.95 / sqrt((double)n)); /* Kolmogorov-Smirnov at 0.1% */
    static const double tails[] = {1e-2, 1e-3, 1e-4, 1e-5};
    for (int k = 0; k < 4; k++) {
        double expected = tails[k] * (double)n, above = 0, below = 0;
        for (int64_t i = 0; i < n; i++) {
            above += x[i] > gsl_cdf_ugaussian_Qinv(tails[k]);
            below += x[i] < -gsl_cdf_ugaussian_Qinv(tails[k]);
        }
        assert_true(fabs(above - expected) < 5 * sqrt(expected) &&
                    fabs(below - expected) < 5 * sqrt(expected));
    }
    free(x);
}

/* No correlation between heads, tensors, sets, neighbours in a row, and rows: |r| below 5 / sqrt(n). */
static void test_independence(void **state)
{
    (void)state;
    const int64_t n = 1 << 17;
    const uint32_t streams[] = {0, 16, 32, 2, 1, KVG_STREAM_OUTLIER2, 0, 0};
    const uint32_t heads[] = {0, 0, 0, 0, 0, 0, 1, 7};
    float *x[8];
    for (int i = 0; i < 8; i++)
        x[i] = deviates(n, streams[i], heads[i]);
    double limit = 5 / sqrt((double)n);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < i; j++)
            assert_true(fabs(gsl_stats_float_correlation(x[i], 1, x[j], 1, (size_t)n)) < limit);
    static const int lags[] = {1, 2, 16, 32, 64, 128, 256};
    for (int k = 0; k < 7; k++)
        assert_true(fabs(gsl_stats_float_correlation(x[0], 1, x[0] + lags[k], 1, (size_t)(n - 256))) < limit);
    for (int i = 0; i < 8; i++)
        free(x[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_coordinates_reach_the_counter),
        cmocka_unit_test(test_published_quantiles),
        cmocka_unit_test(test_table_against_gsl),
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_independence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
