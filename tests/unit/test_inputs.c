/* SPDX-License-Identifier: Apache-2.0
 *
 * test_inputs.c: the synthetic generators against independent sources: Random123's published known answers,
 * printed normal quantiles, GSL's distribution functions, and plain reasoning about logits.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <gsl/gsl_cdf.h>
#include <gsl/gsl_sort_float.h>
#include <gsl/gsl_statistics_float.h>
#include "../../harness/inputs/parts.h"
#include "inputs_vectors.h"

static float bf16(uint16_t bits)
{
    return kvg_bits_float((uint32_t)bits << 16);
}

static struct kvg_input_shape shape_of(const char *input)
{
    return (struct kvg_input_shape){.input = input,
                                    .seed = 1,
                                    .layer = -1,
                                    .context = 512,
                                    .q_len = 512,
                                    .q_heads = 8,
                                    .kv_heads = 4,
                                    .head_dim = 64};
}

/* A filled tensor as floats, malloc'ed. */
static float *fill(const struct kvg_input_shape *s, enum kvg_tensor tensor, int threads)
{
    int64_t tokens = tensor == KVG_TENSOR_Q ? s->q_len : s->context;
    int64_t n = tokens * (tensor == KVG_TENSOR_Q ? s->q_heads : s->kv_heads) * s->head_dim;
    uint16_t *bits = malloc((size_t)n * sizeof *bits);
    float *x = malloc((size_t)n * sizeof *x);
    struct kvg_error error = {0};
    assert_true(bits && x);
    if (kvg_input_fill(s, tensor, threads, bits, &error))
        fail_msg("%s", error.text);
    for (int64_t i = 0; i < n; i++)
        x[i] = bf16(bits[i]);
    free(bits);
    return x;
}

/* The factor of a head, from many values: the root mean square of a normal tensor. */
static double rms(const float *x, int64_t heads, int64_t head_dim, int64_t tokens, int64_t head)
{
    double sum = 0;
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t d = 0; d < head_dim; d++)
            sum += pow(x[(t * heads + head) * head_dim + d], 2);
    return sqrt(sum / (double)(tokens * head_dim));
}

/* ---------------------------------------------------------------------------------------- Philox */

/* kat_vectors of Random123, philox4x32 10. */
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

/* The same block by plain integer arithmetic, from the paper's description (Salmon et al., SC11). */
static void plain_philox(const uint32_t counter[4], uint64_t seed, uint32_t out[4])
{
    uint32_t c[4], k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    memcpy(c, counter, sizeof c);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)c[0] * 0xD2511F53u, b = (uint64_t)c[2] * 0xCD9E8D57u;
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k1,
                            (uint32_t)a};
        memcpy(c, next, sizeof c);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
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

/* The table against GSL's quantile function, all octaves, and monotonic across every segment's edge. */
static void test_table_against_gsl(void **state)
{
    (void)state;
    double worst = 0;
    for (uint64_t m = 1; m < 0x80000000u; m += m / 1013 + 1) {
        double want = gsl_cdf_ugaussian_Qinv((double)(m | 1) * 0x1p-32);
        worst = fmax(worst, fabs(kvg_normal(kvg_normal_table, (uint32_t)m) - want));
    }
    assert_true(worst < 1e-4); /* bf16 keeps 2^-9 of it */
    float before = INFINITY;
    for (uint64_t m = 1; m < 0x80000000u; m += m / 4999 + 1) {
        float x = kvg_normal(kvg_normal_table, (uint32_t)m);
        assert_true(x <= before && x >= 0);
        before = x;
    }
}

/* Deviates of one stream: n floats. */
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

/* ---------------------------------------------------------------------------------------- tensors */

/* The fast row code computes what the header defines, for every distribution, odd head_dims included. */
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
                            float want =
                                kvg_generate(&g, kvg_normal_table, (uint32_t)t, (uint32_t)h, (uint32_t)k);
                            float got = x[(t * g.heads + h) * s.head_dim + k];
                            assert_true(got == bf16(kvg_bf16_bits(want)));
                        }
                free(x);
                kvg_generator_free(&g);
            }
}

/* Every bit of every distribution, against an implementation in Python integers. */
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
                fail_msg("%s, tensor %d: other bits than the oracle's", vectors[i].input, tensor);
        }
}

/* One element worked out from the paper's Philox and GSL: seed 1, V, sequence 0, token 5, head 1, dim 17. */
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

/* A longer context, more sequences, more heads and a later position extend what was there. */
static void test_extension(void **state)
{
    (void)state;
    static const char *const inputs[] = {"normal",   "outlier", "channel_outlier",
                                         "v_nonneg", "v_shift", "k_wide"};
    for (int i = 0; i < 6; i++) {
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

/* K and V factors spread over 2^-2 to 2^2; Q undoes K's up to 2^+-1/2; the logits stay sane in each head. */
static void test_factors(void **state)
{
    (void)state;
    struct kvg_input_shape s = shape_of("normal");
    s.q_heads = 64;
    s.kv_heads = 32;
    s.context = s.q_len = 64;
    float *q = fill(&s, KVG_TENSOR_Q, 2), *k = fill(&s, KVG_TENSOR_K, 2), *v = fill(&s, KVG_TENSOR_V, 2);
    double low = INFINITY, high = 0, own_low = INFINITY, own_high = 0;
    for (int64_t h = 0; h < 32; h++) {
        double fk = rms(k, 32, 64, 64, h), fv = rms(v, 32, 64, 64, h);
        assert_true(fk > 0.24 && fk < 4.2 && fv > 0.24 && fv < 4.2);
        low = fmin(low, fk);
        high = fmax(high, fk);
        for (int64_t i = 0; i < 2; i++) {
            double own = rms(q, 64, 64, 64, 2 * h + i) * fk;
            assert_true(own > 0.66 && own < 1.5); /* sqrt(1/2) to sqrt(2), and the spread of two rms */
            own_low = fmin(own_low, own);
            own_high = fmax(own_high, own);
        }
    }
    assert_true(low < 0.5 && high > 2 && own_low < 0.85 && own_high > 1.2);
    free(q);
    free(k);
    free(v);
}

/* ---------------------------------------------------------------------------------------- distributions */

static void test_outlier(void **state)
{
    (void)state;
    struct kvg_input_shape s = shape_of("outlier");
    s.context = 4096;
    float *v = fill(&s, KVG_TENSOR_V, 2);
    struct kvg_input_shape plain = s;
    plain.input = "normal";
    float *n = fill(&plain, KVG_TENSOR_V, 2);
    int64_t total = s.context * s.kv_heads * s.head_dim, differ = 0;
    double sum = 0;
    for (int64_t i = 0; i < total; i++)
        if (v[i] != n[i]) {
            double factor = rms(n, s.kv_heads, s.head_dim, 64, i / s.head_dim % s.kv_heads);
            sum += pow((v[i] - n[i]) / factor, 2);
            differ++;
        }
    double expected = 0.001 * (double)total;
    assert_true(fabs((double)differ - expected) < 5 * sqrt(expected));
    assert_true(fabs(sum / (double)differ / 100 - 1) < 5 * sqrt(2 / (double)differ) + 0.03);
    free(v);
    free(n);
}

static void test_wide_channels(void **state)
{
    (void)state;
    static const char *const inputs[] = {"channel_outlier", "k_wide"};
    static const double ratio[] = {20, 2048};
    for (int i = 0; i < 2; i++) {
        struct kvg_input_shape s = shape_of(inputs[i]), plain = shape_of("normal");
        float *k = fill(&s, KVG_TENSOR_K, 2), *n = fill(&plain, KVG_TENSOR_K, 2);
        float *q = fill(&s, KVG_TENSOR_Q, 2), *v = fill(&s, KVG_TENSOR_V, 2),
              *nv = fill(&plain, KVG_TENSOR_V, 2);
        int64_t wide = 0;
        for (int64_t h = 0; h < s.kv_heads; h++) {
            for (int64_t d = 0; d < s.head_dim; d++) {
                double channel = fabs(k[h * s.head_dim + d] / n[h * s.head_dim + d]);
                assert_true(channel == 1 || fabs(channel / ratio[i] - 1) < 0.01);
                wide += channel != 1;
            }
        }
        assert_int_equal(wide, 2 * s.kv_heads); /* one in each group of 32 channels */
        assert_memory_equal(v, nv, 512 * 4 * 64 * sizeof *v);
        if (i == 1) { /* most of a wide channel is beyond e4m3 at scale 1 in every head */
            for (int64_t h = 0; h < s.kv_heads; h++) {
                int64_t beyond = 0;
                for (int64_t t = 0; t < s.context; t++)
                    for (int64_t d = 0; d < s.head_dim; d++)
                        beyond += fabsf(k[(t * s.kv_heads + h) * s.head_dim + d]) > 448;
                assert_true(beyond > s.context * 2 * 3 / 10);
            }
        }
        /* logits of 512 keys stay of order one */
        for (int64_t h = 0; h < s.q_heads; h++) {
            double sum = 0;
            for (int64_t t = 0; t < s.context; t++) {
                double logit = 0;
                for (int64_t d = 0; d < s.head_dim; d++)
                    logit += (double)q[h * s.head_dim + d] * k[(t * s.kv_heads + h / 2) * s.head_dim + d];
                sum += logit * logit / (double)s.head_dim;
            }
            double sigma = sqrt(sum / (double)s.context);
            assert_true(sigma > 0.4 && sigma < 4);
        }
        free(k);
        free(n);
        free(q);
        free(v);
        free(nv);
    }
}

static void test_v_distributions(void **state)
{
    (void)state;
    struct kvg_input_shape s = shape_of("normal");
    float *n = fill(&s, KVG_TENSOR_V, 2);
    static const char *const inputs[] = {"v_nonneg", "v_shift", "v_small"};
    static const double mean[] = {0.7978845608, 1, 0}, sigma[] = {0.6028102749, 1, 0x1p-9};
    for (int i = 0; i < 3; i++) {
        s.input = inputs[i];
        float *v = fill(&s, KVG_TENSOR_V, 2), *k = fill(&s, KVG_TENSOR_K, 2);
        for (int64_t h = 0; h < s.kv_heads; h++) {
            double factor = rms(n, s.kv_heads, s.head_dim, s.context, h), sum = 0, square = 0;
            double count = (double)(s.context * s.head_dim);
            for (int64_t t = 0; t < s.context; t++)
                for (int64_t d = 0; d < s.head_dim; d++) {
                    double x = v[(t * s.kv_heads + h) * s.head_dim + d] / factor;
                    sum += x / count;
                    square += x * x / count;
                    if (i == 0)
                        assert_true(x >= 0);
                }
            assert_true(fabs(sum - mean[i]) < 5 * sigma[i] / sqrt(count) + 0.01 * fabs(mean[i]));
            assert_true(fabs(sqrt(square - sum * sum) / sigma[i] - 1) < 0.03);
        }
        free(v);
        free(k);
    }
    free(n);
}

/* Plain attention in double over one query row; weight[n]. */
static void softmax_weights(const struct kvg_input_shape *s, const float *q, const float *k, int64_t q_head,
                            double *weight)
{
    double max = -INFINITY, sum = 0;
    int64_t kv = q_head / (s->q_heads / s->kv_heads);
    for (int64_t t = 0; t < s->context; t++) {
        weight[t] = 0;
        for (int64_t d = 0; d < s->head_dim; d++)
            weight[t] += (double)q[q_head * s->head_dim + d] * k[(t * s->kv_heads + kv) * s->head_dim + d];
        weight[t] /= sqrt((double)s->head_dim);
        max = fmax(max, weight[t]);
    }
    for (int64_t t = 0; t < s->context; t++)
        sum += weight[t] = exp(weight[t] - max);
    for (int64_t t = 0; t < s->context; t++)
        weight[t] /= sum;
}

static void test_sink(void **state)
{
    (void)state;
    static const int64_t contexts[] = {64, 1024, 16384}, dims[] = {64, 128, 64};
    for (int i = 0; i < 3; i++) {
        struct kvg_input_shape s = shape_of("sink");
        s.context = contexts[i];
        s.head_dim = dims[i];
        s.q_len = 1;
        float *q = fill(&s, KVG_TENSOR_Q, 2), *k = fill(&s, KVG_TENSOR_K, 2), *v = fill(&s, KVG_TENSOR_V, 2);
        double *weight = malloc((size_t)s.context * sizeof *weight);
        for (int64_t h = 0; h < s.q_heads; h++) {
            softmax_weights(&s, q, k, h, weight);
            assert_true(weight[0] > 0.5 && weight[0] < 0.98);
        }
        for (int64_t h = 0; h < s.kv_heads; h++) /* a small V, as in real models */
            assert_true(rms(v, s.kv_heads, s.head_dim, 1, h) <
                        0.25 * rms(v + s.kv_heads * s.head_dim, s.kv_heads, s.head_dim, s.context - 1, h));
        free(weight);
        free(q);
        free(k);
        free(v);
    }
}

static void check_needle(const char *input, int64_t position, int64_t context, int64_t head_dim)
{
    struct kvg_input_shape s = shape_of(input);
    s.context = context;
    s.head_dim = head_dim;
    s.q_len = 1;
    float *q = fill(&s, KVG_TENSOR_Q, 2), *k = fill(&s, KVG_TENSOR_K, 2), *v = fill(&s, KVG_TENSOR_V, 2);
    double *weight = malloc((size_t)context * sizeof *weight);
    for (int64_t h = 0; h < s.q_heads; h++) {
        softmax_weights(&s, q, k, h, weight);
        assert_true(weight[position] > 0.999);
        /* so the output is about the needle's V: the same size in every channel, unlike any other token's */
        const float *answer = v + (position * s.kv_heads + h / 2) * head_dim;
        for (int64_t d = 0; d < head_dim; d++) {
            double out = 0;
            for (int64_t t = 0; t < context; t++)
                out += weight[t] * v[(t * s.kv_heads + h / 2) * head_dim + d];
            assert_true(fabs(out - answer[d]) < 0.01 * fabs(answer[d]));
            assert_true(fabsf(answer[d]) == fabsf(answer[0]) && answer[0] != 0);
        }
    }
    free(weight);
    free(q);
    free(k);
    free(v);
}

static void test_needle(void **state)
{
    (void)state;
    check_needle("needle", 500, 1000, 64); /* round(0.5 * 999) */
    check_needle("needle:0", 0, 1000, 64);
    check_needle("needle:1", 999, 1000, 128);
    check_needle("needle:0.25", 4096, 16385, 64);
    check_needle("needle:0.9", 0, 1, 32);
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
    /* sample 3 from the definition */
    struct kvg_generator g;
    s.seq = 3;
    assert_int_equal(kvg_generator_make(&s, KVG_TENSOR_K, KVG_SET_CALIBRATION, &g, NULL), 0);
    assert_true(g.seed == s.seed + 1);
    float largest[4] = {0};
    for (uint32_t t = 0; t < 128; t++)
        for (uint32_t h = 0; h < 4; h++)
            for (uint32_t d = 0; d < 64; d++)
                largest[h] = fmaxf(largest[h], fabsf(kvg_generate(&g, kvg_normal_table, t, h, d)));
    for (int h = 0; h < 4; h++)
        assert_true(absmax[3 * 4 + h] == bf16(kvg_bf16_bits(largest[h])));
    kvg_generator_free(&g);
    /* the same factors as the evaluation set: absmax over rms is that of 8192 normals, about 3.9 */
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

/* Every distribution gives scales: finite, positive, one per head and sample. */
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
    assert_null(kvg_input_synthetic(9));
    assert_null(kvg_input_synthetic(-1));
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
        cmocka_unit_test(test_fill_equals_definition),
        cmocka_unit_test(test_checksums),
        cmocka_unit_test(test_one_value_from_first_principles),
        cmocka_unit_test(test_thread_counts),
        cmocka_unit_test(test_extension),
        cmocka_unit_test(test_factors),
        cmocka_unit_test(test_outlier),
        cmocka_unit_test(test_wide_channels),
        cmocka_unit_test(test_v_distributions),
        cmocka_unit_test(test_sink),
        cmocka_unit_test(test_needle),
        cmocka_unit_test(test_absmax),
        cmocka_unit_test(test_absmax_of_every_input),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
