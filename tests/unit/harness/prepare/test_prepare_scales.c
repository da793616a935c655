/* SPDX-License-Identifier: Apache-2.0
 *
 * test_prepare_scales.c: scales of prepared cases, compared with absmax computed here from the generated
 * values.
 */
#include "harness/inputs/inputs.h"
#include "tests/unit/prepare_fixture.h"

/* absmax[sample][head] of the input of the small case, the input of an observer; computed once. */
static const float *seen(const struct kvg_case *c, enum kvg_tensor tensor, enum kvg_token_set set,
                         int64_t *samples)
{
    static float *absmax[3][2];
    static int64_t count[3][2];
    struct kvg_input_shape shape = {.input = c->input,
                                    .seed = c->seed,
                                    .layer = c->layer,
                                    .q_heads = c->q_heads,
                                    .kv_heads = c->kv_heads,
                                    .head_dim = c->head_dim};
    if (!absmax[tensor][set])
        assert_int_equal(
            kvg_input_absmax(&shape, tensor, set, &absmax[tensor][set], &count[tensor][set], NULL), 0);
    *samples = count[tensor][set];
    return absmax[tensor][set];
}

/* Largest |x| of one head of a set (head < 0: of all heads), reduced here. */
static float hand_absmax(const struct kvg_case *c, enum kvg_tensor tensor, enum kvg_token_set set, int head,
                         enum kvg_ref_observer observer)
{
    int64_t samples, heads = tensor == KVG_TENSOR_Q ? c->q_heads : c->kv_heads;
    const float *absmax = seen(c, tensor, set, &samples);
    float state = 0;
    for (int64_t s = 0; s < samples; s++) {
        float sample = 0;
        for (int64_t h = 0; h < heads; h++)
            if (head < 0 || h == head)
                sample = fmaxf(sample, absmax[s * heads + h]);
        if (s == 0 || observer == KVG_REF_MEMORYLESS_MINMAX)
            state = sample;
        else if (observer == KVG_REF_STATIC_MINMAX)
            state = fmaxf(state, sample);
        else
            state = state + 0.01f * (sample - state);
    }
    return state;
}

static void test_scales_none(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    struct kvg_prepared p;
    c.calibration = KVG_CALIBRATION_NONE;
    c.path = KVG_PATH_FP8;
    prepare(&c, &p);
    assert_int_equal(p.scale_stride, 1);
    for (int h = 0; h < 4; h++)
        assert_true(p.q_scale[h] == 1 && p.k_scale[h] == 1 && p.v_scale[h] == 1);
    kvg_prepared_free(&p);
}

static void test_scales_random_tokens(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    struct kvg_prepared p;
    c.calibration = KVG_CALIBRATION_RANDOM_TOKENS;
    c.observer = KVG_REF_MEMORYLESS_MINMAX; /* has no effect */
    c.path = KVG_PATH_FP8;
    c.scheme = KVG_PER_TENSOR;
    const float max[3] = {hand_absmax(&c, KVG_TENSOR_Q, KVG_SET_RANDOM_TOKENS, -1, KVG_REF_STATIC_MINMAX),
                          hand_absmax(&c, KVG_TENSOR_K, KVG_SET_RANDOM_TOKENS, -1, KVG_REF_STATIC_MINMAX),
                          hand_absmax(&c, KVG_TENSOR_V, KVG_SET_RANDOM_TOKENS, -1, KVG_REF_STATIC_MINMAX)};
    prepare(&c, &p);
    assert_int_equal(p.scale_stride, 0);
    assert_true(p.q_scale[0] == max[0] / 200.0f);
    assert_true(p.k_scale[0] == max[1] / 200.0f);
    assert_true(p.v_scale[0] == max[2] / 100.0f);
    kvg_prepared_free(&p);

    struct kvg_prepare_options options = {50.0f, 60.0f, 70.0f, NULL};
    assert_int_equal(kvg_prepared_make(&c, &options, &p, NULL), 0);
    assert_true(p.q_scale[0] == max[0] / 50.0f);
    assert_true(p.k_scale[0] == max[1] / 60.0f);
    assert_true(p.v_scale[0] == max[2] / 70.0f);
    kvg_prepared_free(&p);
}

static void test_scales_dataset(void **state)
{
    (void)state;
    const float divisors[] = {448.0f, 57344.0f, 224.0f}; /* e4m3fnuz: amax / 448 * 2 */
    for (int dtype = 0; dtype < 3; dtype++)
        for (int observer = 0; observer < 3; observer++)
            for (int scheme = 0; scheme < 2; scheme++) {
                struct kvg_case c = small_case();
                struct kvg_prepared p;
                c.kv_cache_dtype = (enum kvg_cache_dtype)(KVG_CACHE_FP8_E4M3 + dtype);
                c.observer = (enum kvg_ref_observer)observer;
                c.scheme = (enum kvg_scheme)scheme;
                prepare(&c, &p);
                for (int h = 0; h < (scheme ? 4 : 1); h++) {
                    int head = scheme ? h : -1;
                    float k = hand_absmax(&c, KVG_TENSOR_K, KVG_SET_CALIBRATION, head, c.observer);
                    float v = hand_absmax(&c, KVG_TENSOR_V, KVG_SET_CALIBRATION, head, c.observer);
                    assert_true(p.k_scale[h] == k / divisors[dtype]);
                    assert_true(p.v_scale[h] == v / divisors[dtype]);
                    assert_true(p.q_scale[h] == 1.0f); /* Q stays bf16 on the dequant path */
                }
                if (scheme)
                    assert_true(p.k_scale[0] != p.k_scale[1]);
                kvg_prepared_free(&p);
            }
}

/* One q scale per KV head: the largest of its query heads. */
static void test_q_scale_over_group(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    struct kvg_prepared p;
    c.path = KVG_PATH_FP8;
    prepare(&c, &p);
    for (int g = 0; g < 4; g++) {
        float a = hand_absmax(&c, KVG_TENSOR_Q, KVG_SET_CALIBRATION, 2 * g, c.observer) / 448.0f;
        float b = hand_absmax(&c, KVG_TENSOR_Q, KVG_SET_CALIBRATION, 2 * g + 1, c.observer) / 448.0f;
        assert_true(a != b);
        assert_true(p.q_scale[g] == fmaxf(a, b));
    }
    kvg_prepared_free(&p);
}

static void test_bad_scale_is_named(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    struct kvg_prepared p;
    struct kvg_error error = {0};
    c.calibration = KVG_CALIBRATION_RANDOM_TOKENS;
    const float bad[] = {0.0f, -1.0f, NAN, INFINITY};
    for (int i = 0; i < 4; i++) {
        struct kvg_prepare_options options = {200.0f, 200.0f, bad[i], NULL};
        memset(&error, 0, sizeof error);
        assert_int_equal(kvg_prepared_make(&c, &options, &p, &error), -1);
        assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
        assert_non_null(strstr(error.text, "v scale of KV head 0"));
        kvg_prepared_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scales_none),        cmocka_unit_test(test_scales_random_tokens),
        cmocka_unit_test(test_scales_dataset),     cmocka_unit_test(test_q_scale_over_group),
        cmocka_unit_test(test_bad_scale_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
