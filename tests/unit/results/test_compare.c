/* SPDX-License-Identifier: Apache-2.0
 *
 * test_compare.c: the interval of a ratio of medians. The ranks come from exact sums of binomial coefficients
 * (in the comments), the rest from samples that are chosen by hand.
 */
#include "results/compare.h"
#include "tests/unit/results_sample.h"

/* n samples base + step, base + 2 step, ..., in an order that is not sorted. */
static void fill(struct kvg_row *row, int64_t n, double base, double step)
{
    double samples[KVG_MAX_SAMPLES];
    assert_int_equal(kvg_row_init(row), 0);
    for (int64_t i = 0; i < n; i++)
        samples[i] = base + step * (double)(1 + (i * 7) % n);
    assert_int_equal(kvg_row_set_samples(row, samples, n), 0);
    row->time_median = base + step * (double)(n + 1) / 2;
    row->time_q1 = row->time_q3 = row->time_median;
}

/* The samples of `row` are 1 to n (seconds); those of `one` are all 1. */
static void check_ends(int64_t n, double low, double high)
{
    struct kvg_row row, one;
    struct kvg_ratio ratio;
    fill(&row, n, 0, 1);
    fill(&one, 100, 1, 0);
    assert_int_equal(kvg_ratio_make(&row, &one, &ratio), 0);
    if (isnan(low)) {
        assert_true(isnan(ratio.low) && isnan(ratio.high));
        assert_int_equal(kvg_ratio_says(&ratio), KVG_NOT_KNOWN);
    } else {
        assert_true(fabs(ratio.low - low) < 1e-6 && fabs(ratio.high - high) < 1e-6);
    }
    kvg_row_free(&row);
    kvg_row_free(&one);
}

/* The r smallest and largest of n may be left out if 2 * (C(n,0) + ... + C(n,r)) / 2^n <= 0.005.
 *   n = 8:   r = 0 gives 2/256 = 0.0078, too much
 *   n = 9:   r = 0 gives 0.0039, r = 1 gives 0.039
 *   n = 15:  r = 1 gives 0.00098, r = 2 gives 0.0074
 *   n = 30:  r = 6 gives 0.0014, r = 7 gives 0.0052
 *   n = 100: r = 35 gives 0.0035, r = 36 gives 0.0066 */
static void ends_by_the_binomial_distribution(void **state)
{
    (void)state;
    check_ends(0, NAN, NAN);
    check_ends(8, NAN, NAN);
    check_ends(9, 1, 9);
    check_ends(15, 2, 14);
    check_ends(30, 7, 24);
    check_ends(100, 36, 65);
    check_ends(256, 106 + 0.0, 151); /* r = 105 */
}

static enum kvg_than says(double low, double high, double margin)
{
    const struct kvg_ratio ratio = {.times = 1, .low = low, .high = high, .margin = margin};
    return kvg_ratio_says(&ratio);
}

static void only_what_lies_beyond_the_margin_is_known(void **state)
{
    (void)state;
    assert_int_equal(says(1.03, 1.1, KVG_QUIET_MARGIN), KVG_FASTER);
    assert_int_equal(says(1.01, 1.1, KVG_QUIET_MARGIN), KVG_NOT_KNOWN);
    assert_int_equal(says(1.2, 1.4, KVG_NOISY_MARGIN), KVG_NOT_KNOWN);
    assert_int_equal(says(1.4, 1.9, KVG_NOISY_MARGIN), KVG_FASTER);
    assert_int_equal(says(0.5, 0.9, KVG_QUIET_MARGIN), KVG_SLOWER);
    assert_int_equal(says(0.5, 0.9, KVG_NOISY_MARGIN), KVG_NOT_KNOWN);
    assert_int_equal(says(0.5, 0.7, KVG_NOISY_MARGIN), KVG_SLOWER);
    assert_int_equal(says(0.99, 1.01, KVG_QUIET_MARGIN), KVG_EQUALLY_FAST);
    assert_int_equal(says(0.99, 1.01, KVG_NOISY_MARGIN), KVG_NOT_KNOWN);
    assert_int_equal(says(NAN, NAN, KVG_QUIET_MARGIN), KVG_NOT_KNOWN);
}

/* 16 s of the kernel and 4 s for Q are 20 s; the ends 15 +- of the samples move by 4 s too. */
static void quantising_q_is_part_of_path_fp8(void **state)
{
    struct kvg_row row, one;
    struct kvg_ratio ratio;
    (void)state;
    fill(&row, 15, 8, 1);
    fill(&one, 100, 1, 0);
    row.time_quantize_q = 4;
    assert_true(kvg_whole_time(&row) == 16);
    assert_int_equal(kvg_row_set_string(&row.path, "fp8"), 0);
    assert_true(kvg_whole_time(&row) == 20);
    assert_int_equal(kvg_ratio_make(&row, &one, &ratio), 0);
    assert_true(ratio.times == 20 && fabs(ratio.low - 14) < 1e-6 && fabs(ratio.high - 26) < 1e-6);
    kvg_row_free(&row);
    kvg_row_free(&one);
}

/* Quarters (4 5 6) (4 8 9) (2 5 5) (4 6 7): medians 5 8 5 6, minima 4 4 2 4. */
static void figures_move_between_quarters(void **state)
{
    const double samples[] = {4, 5, 6, 9, 4, 8, 5, 2, 5, 7, 6, 4};
    struct kvg_row row;
    (void)state;
    assert_int_equal(kvg_row_init(&row), 0);
    assert_true(isnan(kvg_median_moves(&row)));
    assert_int_equal(kvg_row_set_samples(&row, samples, 12), 0);
    assert_true(fabs(kvg_median_moves(&row) - 0.6) < 1e-6);
    assert_true(fabs(kvg_minimum_moves(&row) - 1.0) < 1e-6);
    assert_int_equal(kvg_row_set_samples(&row, samples, 7), 0);
    assert_true(isnan(kvg_median_moves(&row)) && isnan(kvg_minimum_moves(&row)));
    kvg_row_free(&row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_by_the_binomial_distribution),
        cmocka_unit_test(only_what_lies_beyond_the_margin_is_known),
        cmocka_unit_test(quantising_q_is_part_of_path_fp8),
        cmocka_unit_test(figures_move_between_quarters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
