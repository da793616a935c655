/* SPDX-License-Identifier: Apache-2.0
 *
 * test_compare.c: outputs that the checks cannot judge are mistrusted; rows without a visible key; the error
 * columns of a row.
 */
#include "tests/unit/verify_trial.h"

/* ---------------------------------------------------------------- what cannot be told */

static void test_zero_reference_is_mistrusted(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct scalar_kernel k = plain_kernel(KVG_PATH_DEQUANT);
    struct values values = plain_values;
    struct trial t;
    values.v = 0.0;
    trial_make(&t, &c, &values);
    run_kernel(&t, &k);
    judge(&t, &k.declared, 1);
    assert_int_equal(t.row.status, KVG_MISTRUSTED);
    assert_non_null(strstr(t.row.reason, "zero everywhere"));
    /* A value that is not zero is still wrong. */
    t.out[3] = kvg_ref_bf16_encode(1e-3f);
    judge(&t, &k.declared, 1);
    assert_int_equal(t.row.status, KVG_INCORRECT);
    trial_free(&t);
}

/* The values of two keys cancel, under weights that are almost equal. Less is left than the error of two
 * levels of 14 bits, so the output is undefined for such accumulators, and defined for FP32. */
static void test_undefined_is_mistrusted(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct values values = plain_values;
    c.path = KVG_PATH_FP8;
    c.batch = 1;
    c.lengths = KVG_LENGTHS_UNIFORM;
    c.context = 512;
    values.q = 1e-3;
    values.v_pattern = V_NONNEG;
    for (int narrow = 0; narrow < 2; narrow++) {
        struct scalar_kernel k = plain_kernel(KVG_PATH_FP8);
        struct trial t;
        trial_make(&t, &c, &values);
        const int64_t width = c.kv_heads * c.head_dim;
        for (int64_t i = 0; i < c.context / 2 * width; i++)
            t.p.v[(c.context - 1 - i / width) * width + i % width] = t.p.v[i] ^ 0x8000u;
        fill_cache_from(&t.p, &t.p.v_pages, t.p.v_scale, t.p.v);
        if (narrow) {
            k.narrow = 1;
            k.declared.qk_accumulator_bits = k.declared.pv_accumulator_bits = 14;
            k.declared.pv_flush_interval = k.declared.tile;
        }
        run_kernel(&t, &k);
        judge(&t, &k.declared, 1);
        assert_int_equal(t.row.status, narrow ? KVG_MISTRUSTED : KVG_PASSED);
        if (narrow)
            assert_non_null(strstr(t.row.reason, "not defined"));
        else
            assert_true(t.row.zero_ratio > 1.0);
        trial_free(&t);
    }
}

static void test_nonsense_declaration(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct scalar_kernel k = plain_kernel(KVG_PATH_DEQUANT);
    struct kvg_error error = {0};
    struct kvg_expectation *e;
    struct trial t;
    trial_make(&t, &c, &plain_values);
    scalar_declared = k.declared;
    scalar_declared.pv_accumulator_bits = 0;
    assert_int_equal(kvg_expectation_make(&t.p, &scalar_stub, 0, &e, &error), -1);
    assert_null(e);
    assert_non_null(strstr(error.text, "pv_accumulator_bits"));
    assert_non_null(strstr(error.text, SCALAR_NAME));
    scalar_declared = k.declared;
    scalar_declared.exp2_rel_error = NAN;
    assert_int_equal(kvg_expectation_make(&t.p, &scalar_stub, 0, &e, &error), -1);
    assert_non_null(strstr(error.text, "exp2_rel_error"));
    trial_free(&t);
}

/* ---------------------------------------------------------------- empty rows */

static void test_empty_rows(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct scalar_kernel k = plain_kernel(KVG_PATH_DEQUANT);
    struct trial t;
    c.batch = 4; /* ragged: sequence 2 is empty and has one query */
    trial_make(&t, &c, &plain_values);
    assert_int_equal(t.p.seq_lens[2], 0);
    run_kernel(&t, &k);
    judge(&t, &k.declared, 1);
    assert_int_equal(t.row.status, KVG_PASSED);
    assert_int_equal(t.row.n_checked, t.row.n_total);
    const int64_t row = t.p.cu_q_lens[2] * c.q_heads;
    t.out[row * c.head_dim + 1] = kvg_ref_bf16_encode(1e-20f);
    judge(&t, &k.declared, 1);
    assert_true(broke(&t.row, "empty"));
    t.out[row * c.head_dim + 1] = 0x8000; /* -0 is zero */
    judge(&t, &k.declared, 1);
    assert_int_equal(t.row.status, KVG_PASSED);
    t.lse[row] = 0.0f;
    judge(&t, &k.declared, 1);
    assert_true(broke(&t.row, "empty"));
    t.lse[row] = INFINITY;
    judge(&t, &k.declared, 1);
    assert_int_equal(t.row.status, KVG_INCORRECT);
    k.fault = FAULT_EMPTY_NOT_WRITTEN;
    memset(t.out, 0xff, (size_t)(t.p.total_q * c.q_heads * c.head_dim) * sizeof *t.out);
    run_kernel(&t, &k);
    judge(&t, &k.declared, 0);
    assert_true(broke(&t.row, "nonfinite") && broke(&t.row, "empty"));
    trial_free(&t);
}

/* n_checked counts the sampled rows; NaN is found in the other rows too. */
static void test_counts_and_unsampled_nan(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct scalar_kernel k = plain_kernel(KVG_PATH_DEQUANT);
    struct kvg_error error = {0};
    struct kvg_expectation *e;
    struct trial t;
    c.phase = KVG_PHASE_APPEND;
    c.batch = 1;
    c.q_len = 100;
    trial_make(&t, &c, &plain_values);
    run_kernel(&t, &k);
    scalar_declared = k.declared;
    assert_int_equal(kvg_expectation_make(&t.p, &scalar_stub, 16, &e, &error), 0);
    assert_int_equal(kvg_compare_attention(e, t.out, t.lse, &t.row, &error), 0);
    assert_int_equal(t.row.status, KVG_PASSED);
    assert_int_equal(t.row.n_checked, 16 * 64);
    assert_int_equal(t.row.n_total, 100 * 8 * 64);
    for (int64_t i = 0; i < t.row.n_total; i += 997) {
        const uint16_t was = t.out[i];
        t.out[i] = 0x7f80; /* infinity */
        assert_int_equal(kvg_compare_attention(e, t.out, t.lse, &t.row, &error), 0);
        assert_int_equal(t.row.status, KVG_INCORRECT);
        assert_int_equal(t.row.nonfinite, 1);
        t.out[i] = was;
    }
    kvg_expectation_free(e);
    trial_free(&t);
}

/* ---------------------------------------------------------------- errors as numbers */

/* Relative L2 errors against sums formed here from the FP64 reference. */
static void test_error_columns(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct scalar_kernel k = plain_kernel(KVG_PATH_FP8);
    struct trial t;
    c.path = KVG_PATH_FP8;
    trial_make(&t, &c, &plain_values);
    run_kernel(&t, &k);
    judge(&t, &k.declared, 1);
    const int64_t rows = t.p.total_q * c.q_heads, d = c.head_dim;
    struct kvg_ref_row list[64];
    double *exact = malloc((size_t)(rows * d) * sizeof *exact),
           *plain = malloc((size_t)(rows * d) * sizeof *plain);
    struct kvg_ref_attention a;
    assert_non_null(exact);
    assert_non_null(plain);
    for (int64_t i = 0; i < rows; i++)
        list[i] = (struct kvg_ref_row){(int32_t)(i / c.q_heads), 0, (int32_t)(i % c.q_heads)};
    kvg_prepared_dequantised(&t.p, &a);
    assert_int_equal(kvg_ref_attention_f64(&a, list, rows, exact, NULL), 0);
    kvg_prepared_unquantised(&t.p, &a);
    assert_int_equal(kvg_ref_attention_f64(&a, list, rows, plain, NULL), 0);
    double kernel = 0, quant = 0, total = 0, exact_sq = 0, plain_sq = 0, most = 0;
    for (int64_t i = 0; i < rows * d; i++) {
        const double y = (double)kvg_ref_bf16_decode(t.out[i]);
        kernel += (y - exact[i]) * (y - exact[i]);
        quant += (exact[i] - plain[i]) * (exact[i] - plain[i]);
        total += (y - plain[i]) * (y - plain[i]);
        exact_sq += exact[i] * exact[i];
        plain_sq += plain[i] * plain[i];
        most = fmax(most, fabs(y - exact[i]));
    }
    assert_true(fabs(t.row.kernel_rel_l2 / sqrt(kernel / exact_sq) - 1) < 1e-4);
    assert_true(fabs(t.row.quant_rel_l2 / sqrt(quant / plain_sq) - 1) < 1e-4);
    assert_true(fabs(t.row.total_rel_l2 / sqrt(total / plain_sq) - 1) < 1e-4);
    assert_true(fabs(t.row.kernel_max_abs / most - 1) < 1e-4);
    assert_true(t.row.lse_max_abs < 1e-5);
    free(exact);
    free(plain);
    trial_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zero_reference_is_mistrusted), cmocka_unit_test(test_undefined_is_mistrusted),
        cmocka_unit_test(test_nonsense_declaration),         cmocka_unit_test(test_empty_rows),
        cmocka_unit_test(test_counts_and_unsampled_nan),     cmocka_unit_test(test_error_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
