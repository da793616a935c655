/* SPDX-License-Identifier: Apache-2.0
 *
 * test_inputs.c: synthetic tensors: every bit compared with an independent implementation in Python, any
 * number of threads, longer contexts that extend shorter ones, the absmax values that scales are made of,
 * and names.
 */
#include <gsl/gsl_cdf.h>
#include <gsl/gsl_statistics_float.h>

#include "tests/unit/inputs_fixture.h"
#include "tests/unit/inputs_vectors.h"

/* The fast code of generator.c gives the bits of generate.h, for every distribution and unusual head_dims
 * too. */
static void test_fill_equals_definition(void **state)
{
    (void)state;
    static const int64_t dims[] = {8, 40, 64, 96, 128, 200};
    for (int64_t i = 0; kvg_input_synthetic(i); i++)
        for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++)
            for (int tensor = 0; tensor < 3; tensor++) {
                struct kvg_input_shape s = shape_of(kvg_input_synthetic(i)->name);
                struct kvg_generator g;
                s.head_dim = dims[d];
                s.context = s.q_len = 37;
                s.seq = 3;
                assert_int_equal(
                    kvg_generator_make(&s, (enum kvg_tensor)tensor, KVG_SET_EVALUATION, &g, NULL), 0);
                float *x = fill(&s, (enum kvg_tensor)tensor, 2);
                for (int64_t t = 0; t < 37; t++)
                    for (int64_t h = 0; h < g.heads; h++)
                        for (int64_t k = 0; k < s.head_dim; k++) {
                            float want = kvg_generator_value(&g, kvg_normal_table, (uint32_t)t, (uint32_t)h,
                                                             (uint32_t)k);
                            float got = x[(t * g.heads + h) * s.head_dim + k];
                            assert_true(got == bf16(kvg_bf16_bits(want)));
                        }
                free(x);
                kvg_generator_free(&g);
            }
}

/* Every bit of every distribution, against inputs_vectors.py. */
static void test_checksums(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        for (int tensor = 0; tensor < 3; tensor++) {
            struct kvg_input_shape s = {.input = vectors[i].input,
                                        .seed = VECTOR_SEED,
                                        .seq = VECTOR_SEQUENCE,
                                        .context = VECTOR_TOKENS,
                                        .q_len = VECTOR_TOKENS,
                                        .q_heads = VECTOR_Q_HEADS,
                                        .kv_heads = VECTOR_KV_HEADS,
                                        .head_dim = VECTOR_DIM};
            static uint16_t x[VECTOR_TOKENS * VECTOR_Q_HEADS * VECTOR_DIM];
            int64_t n = VECTOR_TOKENS * (tensor ? VECTOR_KV_HEADS : VECTOR_Q_HEADS) * VECTOR_DIM;
            uint64_t sum = UINT64_C(14695981039346656037);
            assert_int_equal(kvg_input_fill(&s, (enum kvg_tensor)tensor, 1, x, NULL), 0);
            for (int64_t j = 0; j < n; j++)
                sum = (sum ^ x[j]) * UINT64_C(1099511628211);
            if (sum != vectors[i].checksum[tensor])
                fail_msg("%s, tensor %d: other bits than inputs_vectors.py", vectors[i].input, tensor);
        }
}

/* One element computed from the paper's Philox and GSL: seed 1, V, sequence 0, token 5, head 1, dim 17. */
static void test_one_value_from_first_principles(void **state)
{
    (void)state;
    const uint32_t counter[4] = {5, (1u << 16) + 1, 0, 2 * 16 + 2}, no_counter[4] = {0, 1u << 16, 0, 0x3002};
    uint32_t words[4];
    plain_philox(counter, 1, words);
    uint32_t u = words[1]; /* dim 17 is lane 1, position 1 */
    double z = gsl_cdf_ugaussian_Qinv(((u & 0x7fffffff) | 1) * 0x1p-32) * (u >> 31 ? -1 : 1);
    plain_philox(no_counter, 1, words);
    double factor = exp2((words[0] * 0x1p-31 - 1) * 2);
    struct kvg_input_shape s = shape_of("normal");
    float *x = fill(&s, KVG_TENSOR_V, 1);
    double got = x[(5 * s.kv_heads + 1) * s.head_dim + 17];
    assert_true(fabs(got - z * factor) <= fabs(z * factor) * 0x1p-8 + 1e-4);
    free(x);
}

static void test_thread_counts(void **state)
{
    (void)state;
    struct kvg_input_shape s = shape_of("outlier");
    s.context = 301;
    float *one = fill(&s, KVG_TENSOR_K, 1);
    for (int threads = 2; threads < 8; threads++) {
        float *many = fill(&s, KVG_TENSOR_K, threads);
        assert_memory_equal(one, many, (size_t)(s.context * s.kv_heads * s.head_dim) * sizeof *one);
        free(many);
    }
    free(one);
}

/* A longer context, more sequences and more heads extend a smaller tensor. */
static void test_extension(void **state)
{
    (void)state;
    static const char *const inputs[] = {"normal",  "outlier", "channel_outlier", "v_nonneg",
                                         "v_shift", "k_wide",  "q_wide",          "far_logits"};
    for (int i = 0; i < 8; i++) {
        struct kvg_input_shape s = shape_of(inputs[i]), l = s;
        l.context = l.q_len = 1024;
        for (int tensor = 0; tensor < 3; tensor++) {
            int64_t row = (tensor == KVG_TENSOR_Q ? s.q_heads : s.kv_heads) * s.head_dim;
            float *a = fill(&s, (enum kvg_tensor)tensor, 1), *b = fill(&l, (enum kvg_tensor)tensor, 1);
            assert_memory_equal(a, b, (size_t)(512 * row) * sizeof *a);
            free(a);
            free(b);
        }
        /* the decode query is the last row of the prefill queries */
        struct kvg_input_shape decode = s;
        decode.q_len = 1;
        float *all = fill(&s, KVG_TENSOR_Q, 1), *last = fill(&decode, KVG_TENSOR_Q, 1);
        assert_memory_equal(all + 511 * s.q_heads * s.head_dim, last,
                            (size_t)(s.q_heads * s.head_dim) * sizeof *last);
        free(all);
        free(last);
    }
    struct kvg_input_shape few = shape_of("normal"), many = few;
    many.kv_heads = 8;
    float *a = fill(&few, KVG_TENSOR_V, 1), *b = fill(&many, KVG_TENSOR_V, 1);
    for (int64_t t = 0; t < few.context; t++)
        assert_memory_equal(a + t * 4 * 64, b + t * 8 * 64, 4 * 64 * sizeof *a);
    free(b);
    many = few;
    many.seq = 1;
    b = fill(&many, KVG_TENSOR_V, 1);
    assert_memory_not_equal(a, b, 512 * 4 * 64 * sizeof *a);
    assert_true(fabs(gsl_stats_float_correlation(a, 1, b, 1, 512 * 4 * 64)) < 5 / sqrt(512 * 4 * 64));
    free(a);
    free(b);
}

/* ---------------------------------------------------------------------------------------- absmax */

static void test_absmax(void **state)
{
    (void)state;
    struct kvg_input_shape s = shape_of("normal");
    float *absmax, *random;
    int64_t samples;
    assert_int_equal(kvg_input_absmax(&s, KVG_TENSOR_K, KVG_SET_RANDOM_TOKENS, &random, &samples, NULL), 0);
    assert_int_equal(samples, 1);
    assert_int_equal(kvg_input_absmax(&s, KVG_TENSOR_K, KVG_SET_CALIBRATION, &absmax, &samples, NULL), 0);
    assert_int_equal(samples, 64);
    /* sample 3, computed from the definition */
    struct kvg_generator g;
    s.seq = 3;
    assert_int_equal(kvg_generator_make(&s, KVG_TENSOR_K, KVG_SET_CALIBRATION, &g, NULL), 0);
    assert_true(g.seed == s.seed + 1);
    float largest[4] = {0};
    for (uint32_t t = 0; t < 128; t++)
        for (uint32_t h = 0; h < 4; h++)
            for (uint32_t d = 0; d < 64; d++)
                largest[h] = fmaxf(largest[h], fabsf(kvg_generator_value(&g, kvg_normal_table, t, h, d)));
    for (int h = 0; h < 4; h++)
        assert_true(absmax[3 * 4 + h] == bf16(kvg_bf16_bits(largest[h])));
    kvg_generator_free(&g);
    /* the factors are those of the evaluation set: absmax / rms is that of 8192 normal deviates, about 3.9 */
    s.seq = 0;
    float *k = fill(&s, KVG_TENSOR_K, 2), *none = absmax;
    for (int h = 0; h < 4; h++) {
        double factor = rms(k, 4, 64, 512, h);
        assert_true(absmax[h] / factor > 3.2 && absmax[h] / factor < 5.4);
        assert_true(random[h] / factor > 3.9 && random[h] / factor < 6);
    }
    assert_int_equal(kvg_input_absmax(&s, KVG_TENSOR_K, KVG_SET_EVALUATION, &none, &samples, NULL), -1);
    assert_null(none);
    free(absmax);
    free(random);
    free(k);
}

/* Every distribution gives a finite and positive absmax for each head and sample. */
static void test_absmax_of_every_input(void **state)
{
    (void)state;
    for (int64_t i = 0; kvg_input_synthetic(i); i++)
        for (int tensor = 0; tensor < 3; tensor++) {
            struct kvg_input_shape s = shape_of(kvg_input_synthetic(i)->name);
            s.kv_heads = s.q_heads = 2;
            s.head_dim = 32;
            float *absmax;
            int64_t samples;
            assert_int_equal(
                kvg_input_absmax(&s, (enum kvg_tensor)tensor, KVG_SET_CALIBRATION, &absmax, &samples, NULL),
                0);
            for (int64_t j = 0; j < samples * 2; j++)
                assert_true(absmax[j] > 0 && isfinite(absmax[j]));
            free(absmax);
        }
}

/* ---------------------------------------------------------------------------------------- names */

static void test_names(void **state)
{
    (void)state;
    static const char *const good[] = {"normal",      "needle",  "needle:0", "needle:1",
                                       "needle:0.75", "smollm2", "x.h5"};
    static const char *const bad[] = {"",           "Normal",      "needle:", "needle:1.5", "needle:-0.1",
                                      "needle:nan", "needle:0.5x", "needles", "smollm",     ".h5"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(kvg_input_check(good[i], NULL), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kvg_error error = {0};
        assert_int_equal(kvg_input_check(bad[i], &error), -1);
        assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
        assert_non_null(strstr(error.text, "input"));
    }
    assert_true(kvg_input_is_synthetic("needle:0.3") && !kvg_input_is_synthetic("smollm2"));
    assert_null(kvg_input_synthetic(12));
    assert_null(kvg_input_synthetic(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fill_equals_definition),
        cmocka_unit_test(test_checksums),
        cmocka_unit_test(test_one_value_from_first_principles),
        cmocka_unit_test(test_thread_counts),
        cmocka_unit_test(test_extension),
        cmocka_unit_test(test_absmax),
        cmocka_unit_test(test_absmax_of_every_input),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
