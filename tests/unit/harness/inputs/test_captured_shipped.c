/* SPDX-License-Identifier: Apache-2.0
 *
 * test_captured_shipped.c: the shipped captured input: attributes, shapes, the structure of real attention
 * tensors, and cases that are prepared from it.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>
#include <hdf5.h>

#include "harness/inputs/inputs.h"
#include "harness/prepare/prepare.h"

static float bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, 4);
    return x;
}

static void shipped(struct kvg_captured_info *info)
{
    struct kvg_error error = {0};
    if (kvg_captured_read_info("smollm2", info, &error))
        fail_msg("%s", error.text);
}

static struct kvg_input_shape shipped_shape(const struct kvg_captured_info *info, int64_t layer)
{
    return (struct kvg_input_shape){.input = "smollm2",
                                    .layer = layer,
                                    .context = info->tokens,
                                    .q_len = info->q_last,
                                    .q_heads = info->q_heads,
                                    .kv_heads = info->kv_heads,
                                    .head_dim = info->head_dim};
}

static void test_shipped_facts(void **state)
{
    (void)state;
    static const char *const texts[] = {"model_source", "model_licence", "weights",
                                        "dtype",        "generator",     "rope"};
    static const char *const set_texts[] = {"source", "licence"};
    static const char *const sets[] = {"evaluation", "calibration", "random_tokens"};
    struct kvg_captured_info info;
    struct stat st;
    shipped(&info);
    assert_int_equal(stat(info.path, &st), 0);
    assert_true(st.st_size <= 16000000);
    assert_string_equal(info.model, "SmolLM2-135M-Instruct");
    assert_true(info.q_heads == 9 && info.kv_heads == 3 && info.head_dim == 64);
    assert_true(info.tokens >= 4096 && info.q_first == 512 && info.q_last == 64);
    assert_true(info.n_layers >= 4 && info.layers[0] == 0 && info.layers[info.n_layers - 1] == 29);
    hid_t file = H5Fopen(info.path, H5F_ACC_RDONLY, H5P_DEFAULT);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_true(H5Aexists(file, texts[i]) > 0);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 2; j++)
            assert_true(H5Aexists_by_name(file, sets[i], set_texts[j], H5P_DEFAULT) > 0);
    H5Fclose(file);
}

/* Real K differs from noise: some channels are far larger than the rest. */
static void test_shipped_structure(void **state)
{
    (void)state;
    struct kvg_captured_info info;
    shipped(&info);
    size_t n = (size_t)(info.tokens * info.kv_heads * info.head_dim);
    uint16_t *k = malloc(n * sizeof *k), *v = malloc(n * sizeof *v);
    double widest = 0;
    for (int64_t l = 0; l < info.n_layers; l++) {
        struct kvg_input_shape s = shipped_shape(&info, info.layers[l]);
        assert_int_equal(kvg_input_fill(&s, KVG_TENSOR_K, 2, k, NULL), 0);
        assert_int_equal(kvg_input_fill(&s, KVG_TENSOR_V, 2, v, NULL), 0);
        for (size_t i = 0; i < n; i++)
            assert_true(isfinite(bf16(k[i])) && isfinite(bf16(v[i])));
        for (int64_t h = 0; h < info.kv_heads; h++) {
            double all = 0, largest = 0;
            for (int64_t d = 0; d < info.head_dim; d++) {
                double sum = 0;
                for (int64_t t = 0; t < info.tokens; t++)
                    sum += pow(bf16(k[(t * info.kv_heads + h) * info.head_dim + d]), 2);
                all += sum;
                largest = fmax(largest, sum);
            }
            widest = fmax(widest, sqrt(largest / (all / (double)info.head_dim)));
        }
    }
    assert_true(widest > 3); /* N(0,1) would give 1.05 */
    free(k);
    free(v);
}

/* Softmax over the text is far from uniform, and in some head the first token is a sink. */
static void test_shipped_attention(void **state)
{
    (void)state;
    struct kvg_captured_info info;
    shipped(&info);
    int64_t row = info.kv_heads * info.head_dim, group = info.q_heads / info.kv_heads;
    uint16_t *k = malloc((size_t)(info.tokens * row) * sizeof *k);
    uint16_t *q = malloc((size_t)(info.q_last * info.q_heads * info.head_dim) * sizeof *q);
    double *p = malloc((size_t)info.tokens * sizeof *p), sink = 0, local = 0, rows = 0;
    for (int64_t l = 0; l < info.n_layers; l++) {
        struct kvg_input_shape s = shipped_shape(&info, info.layers[l]);
        assert_int_equal(kvg_input_fill(&s, KVG_TENSOR_K, 2, k, NULL), 0);
        assert_int_equal(kvg_input_fill(&s, KVG_TENSOR_Q, 2, q, NULL), 0);
        for (int64_t h = 0; h < info.q_heads; h++) {
            double max = -INFINITY, sum = 0, near = 0;
            for (int64_t t = 0; t < info.tokens; t++) { /* the last query sees all */
                p[t] = 0;
                for (int64_t d = 0; d < info.head_dim; d++)
                    p[t] += (double)bf16(q[((info.q_last - 1) * info.q_heads + h) * info.head_dim + d]) *
                            bf16(k[t * row + h / group * info.head_dim + d]) / 8;
                max = fmax(max, p[t]);
            }
            for (int64_t t = 0; t < info.tokens; t++)
                sum += p[t] = exp(p[t] - max);
            for (int64_t t = info.tokens - 64; t < info.tokens; t++)
                near += p[t] / sum;
            sink = fmax(sink, p[0] / sum);
            local += near;
            rows++;
        }
    }
    assert_true(sink > 0.5);
    assert_true(local / rows > 0.2); /* uniform attention would give 64 / 4096 = 0.016 */
    free(k);
    free(q);
    free(p);
}

/* The two calibration sets differ: the absmax of English text is not that of random token ids. */
static void test_shipped_calibration(void **state)
{
    (void)state;
    struct kvg_captured_info info;
    shipped(&info);
    for (int64_t l = 0; l < info.n_layers; l++) {
        struct kvg_input_shape s = shipped_shape(&info, info.layers[l]);
        for (int t = 0; t < 3; t++) {
            float *text, *random, most = 0, most_random = 0;
            int64_t n, n_random, heads = t ? info.kv_heads : info.q_heads;
            assert_int_equal(kvg_input_absmax(&s, (enum kvg_tensor)t, KVG_SET_CALIBRATION, &text, &n, NULL),
                             0);
            assert_int_equal(
                kvg_input_absmax(&s, (enum kvg_tensor)t, KVG_SET_RANDOM_TOKENS, &random, &n_random, NULL), 0);
            assert_true(n >= 64 && n_random >= 64);
            for (int64_t i = 0; i < n * heads; i++) {
                assert_true(text[i] > 0 && isfinite(text[i]));
                most = fmaxf(most, text[i]);
            }
            for (int64_t i = 0; i < n_random * heads; i++)
                most_random = fmaxf(most_random, random[i]);
            assert_true(most != most_random && most_random > 0 && isfinite(most_random));
            free(text);
            free(random);
        }
    }
}

static struct kvg_case shipped_case(void)
{
    struct kvg_case c;
    memset(&c, 0, sizeof c);
    strcpy(c.input, "smollm2");
    c.phase = KVG_PHASE_DECODE;
    c.path = KVG_PATH_FP8;
    c.kv_cache_dtype = KVG_CACHE_FP8_E4M3;
    c.scheme = KVG_PER_HEAD;
    c.calibration = KVG_CALIBRATION_DATASET;
    c.batch = 4;
    c.q_len = 1;
    c.context = 1024;
    c.q_heads = 9;
    c.kv_heads = 3;
    c.head_dim = 64;
    c.block_size = 16;
    c.threads = 2;
    return c;
}

static void test_shipped_prepared(void **state)
{
    (void)state;
    struct kvg_case c = shipped_case();
    struct kvg_prepared p;
    struct kvg_error error = {0};
    for (int lengths = 0; lengths < 2; lengths++) {
        c.lengths = (enum kvg_lengths)lengths;
        if (kvg_prepared_make(&c, NULL, &p, &error))
            fail_msg("%s", error.text);
        assert_true(p.k_saturated < 0.001 && p.v_saturated < 0.001);
        size_t bytes = (size_t)p.cache_elements;
        uint8_t *before = malloc(bytes), *first = malloc(bytes);
        memcpy(first, p.k_cache, bytes);
        memcpy(before, p.k_cache, bytes);
        assert_int_equal(kvg_prepared_renew(&p, 5, &error), 0); /* another layer */
        assert_memory_not_equal(p.k_cache, before, bytes);
        assert_true(kvg_prepared_values(&p)->layer != 0 && p.c.layer == 0);
        memcpy(before, p.k_cache, bytes);
        assert_int_equal(kvg_prepared_renew(&p, 5, &error), 0); /* and yet another */
        assert_memory_not_equal(p.k_cache, before, bytes);
        assert_int_equal(kvg_prepared_renew(&p, c.seed, &error), 0); /* the first values again */
        assert_memory_equal(p.k_cache, first, bytes);
        assert_int_equal(kvg_prepared_values(&p)->layer, 0);
        assert_int_equal(kvg_prepared_check(&p, &error), 0);
        free(first);
        free(before);
        kvg_prepared_free(&p);
    }
    c.lengths = KVG_LENGTHS_UNIFORM;
    c.batch = 5; /* 5 windows of 1024 in 4096 tokens */
    assert_int_equal(kvg_prepared_make(&c, NULL, &p, &error), -1);
    assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
    assert_non_null(strstr(error.text, "4096"));
    c.batch = 1;
    c.context = 8192;
    assert_int_equal(kvg_prepared_make(&c, NULL, &p, &error), -1);
    assert_non_null(strstr(error.text, "context 8192 is beyond the captured text of 4096 tokens"));
    c.phase = KVG_PHASE_PREFILL;
    c.context = c.q_len = 512;
    assert_int_equal(kvg_prepared_make(&c, NULL, &p, &error), 0);
    kvg_prepared_free(&p);
}

int main(void)
{
    H5dont_atexit(); /* as the reader does; but here the test is the first to call HDF5 */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shipped_facts),     cmocka_unit_test(test_shipped_structure),
        cmocka_unit_test(test_shipped_attention), cmocka_unit_test(test_shipped_calibration),
        cmocka_unit_test(test_shipped_prepared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
