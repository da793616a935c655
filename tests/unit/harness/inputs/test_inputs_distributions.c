/* SPDX-License-Identifier: Apache-2.0
 *
 * test_inputs_distributions.c: the documented properties of each synthetic distribution, checked on values
 * and logits: factors of heads, outliers, wide channels, means, and that attention finds sink and needle.
 */
#include "tests/unit/inputs_fixture.h"

/* K and V factors are spread over 2^-2 to 2^2; the Q factor cancels the K factor up to 2^+-1/2. */
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
        if (i == 1) { /* at scale 1 much of a wide channel exceeds e4m3 in every head */
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

/* Softmax weights of one query over all keys, in double. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_factors),       cmocka_unit_test(test_outlier),
        cmocka_unit_test(test_wide_channels), cmocka_unit_test(test_v_distributions),
        cmocka_unit_test(test_sink),          cmocka_unit_test(test_needle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
