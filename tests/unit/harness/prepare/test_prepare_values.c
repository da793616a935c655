/* SPDX-License-Identifier: Apache-2.0
 *
 * test_prepare_values.c: contents of the caches of a prepared case, compared with plain division and
 * rounding.
 */
#include "tests/unit/prepare_fixture.h"

/* A cached value times its scale is within half a step of the source, or it is clipped. e4m3 has 3 fraction
 * bits. */
static void check_cache_values(const struct kvg_case *c)
{
    struct kvg_prepared p;
    prepare(c, &p);
    struct kvg_ref_attention quantised, plain;
    kvg_prepared_dequantised(&p, &quantised);
    kvg_prepared_unquantised(&p, &plain);
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t t = 0; t < p.seq_lens[b]; t++)
            for (int64_t h = 0; h < c->kv_heads; h++)
                for (int64_t d = 0; d < c->head_dim; d++) {
                    int64_t source = ((p.cu_kv_lens[b] + t) * c->kv_heads + h) * c->head_dim + d;
                    assert_int_equal(kvg_ref_kv_index(&plain.k, b, t, h) + d, source);
                    int64_t at = kvg_ref_kv_index(&quantised.k, b, t, h) + d;
                    double scale = quantised.k.scale[h * quantised.k.scale_stride];
                    double got = kvg_ref_load(quantised.k.format, quantised.k.data, at) * scale;
                    double want = bf16(p.k[source]), step = fmax(fabs(want) / 16, scale * 0x1p-10);
                    if (fabs(want) <= 448 * scale)
                        assert_true(fabs(got - want) <= step);
                    else
                        assert_true(fabs(got) == 448 * scale);
                    at = kvg_ref_kv_index(&quantised.v, b, t, h) + d;
                    scale = quantised.v.scale[h * quantised.v.scale_stride];
                    got = kvg_ref_load(quantised.v.format, quantised.v.data, at) * scale;
                    want = bf16(p.v[source]);
                    if (fabs(want) <= 448 * scale)
                        assert_true(fabs(got - want) <= fmax(fabs(want) / 16, scale * 0x1p-10));
                }
    kvg_prepared_free(&p);
}

static void test_cache_values(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    check_cache_values(&c);
    c.layout = KVG_HND;
    c.scheme = KVG_PER_TENSOR;
    c.lengths = KVG_LENGTHS_UNIFORM;
    check_cache_values(&c);
    strcpy(c.input, "k_wide");
    c.calibration = KVG_CALIBRATION_NONE;
    check_cache_values(&c);
}

/* A bf16 cache holds the bits of the source. */
static void test_auto_keeps_bits(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    struct kvg_prepared p;
    c.kv_cache_dtype = KVG_CACHE_AUTO;
    c.scheme = KVG_PER_TENSOR;
    c.calibration = KVG_CALIBRATION_NONE;
    prepare(&c, &p);
    for (int64_t i = 0; i < p.total_kv; i++) {
        const uint16_t *slot = (uint16_t *)p.v_cache + p.slot_mapping[i] * c.kv_heads * c.head_dim;
        assert_memory_equal(slot, p.v + i * c.kv_heads * c.head_dim, (size_t)(c.kv_heads * c.head_dim) * 2);
    }
    assert_true(p.k_saturated == 0 && p.k_flushed == 0);
    kvg_prepared_free(&p);
}

/* The shares, counted again from the codes. */
static void test_saturated_and_flushed(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    struct kvg_prepared p;
    c.calibration = KVG_CALIBRATION_NONE;
    strcpy(c.input, "v_small");
    prepare(&c, &p);
    int64_t row = c.kv_heads * c.head_dim, lost = 0, nonzero = 0;
    for (int64_t i = 0; i < p.total_kv; i++)
        for (int64_t j = 0; j < row; j++) {
            nonzero += (p.v[i * row + j] & 0x7fff) != 0;
            lost += (p.v[i * row + j] & 0x7fff) != 0 &&
                    (((uint8_t *)p.v_cache)[p.slot_mapping[i] * row + j] & 0x7f) == 0;
        }
    assert_true(p.v_flushed == (double)lost / (double)nonzero);
    assert_true(p.v_flushed > 0.2 && p.v_flushed < 0.9); /* sigma is 2^-11 to 2^-7, half a step 2^-10 */
    assert_true(p.v_saturated == 0 && p.k_flushed < 0.01);
    kvg_prepared_free(&p);

    strcpy(c.input, "k_wide");
    prepare(&c, &p);
    int64_t beyond = 0, total = p.total_kv * row;
    for (int64_t i = 0; i < total; i++)
        beyond += fabsf(bf16(p.k[i])) > 448;
    assert_true(p.k_saturated == (double)beyond / (double)total);
    assert_true(p.k_saturated > 0.012 && p.k_saturated < 2.0 / 64); /* two channels of 64, most of them */
    kvg_prepared_free(&p);
    c.calibration = KVG_CALIBRATION_DATASET;
    prepare(&c, &p);
    assert_true(p.k_saturated < 1e-4);
    kvg_prepared_free(&p);
}

static void test_quantised_q(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    struct kvg_prepared p;
    c.path = KVG_PATH_FP8;
    prepare(&c, &p);
    for (int64_t i = 0; i < p.total_q * c.q_heads * c.head_dim; i++) {
        int64_t head = i / c.head_dim % c.q_heads;
        float x = bf16(p.q[i]) * (1.0f / p.q_scale[head / 2]);
        assert_int_equal(p.q8[i], kvg_ref_fp8_encode(KVG_REF_E4M3, x));
    }
    struct kvg_ref_attention a;
    kvg_prepared_dequantised(&p, &a);
    assert_int_equal(a.q_format, KVG_REF_E4M3);
    assert_ptr_equal(a.q, p.q8);
    assert_ptr_equal(a.q_scale, p.q_scale);
    kvg_prepared_free(&p);
}

/* Phase store: there are no queries, rows of padding tokens are NaN, and the cache has the expected codes. */
static void test_store_phase(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    struct kvg_prepared p;
    c.phase = KVG_PHASE_STORE;
    c.path = KVG_PATH_NONE;
    c.q_len = c.context;
    prepare(&c, &p);
    int64_t row = c.kv_heads * c.head_dim;
    assert_int_equal(p.total_q, 0);
    assert_int_equal(p.problem.total_q, p.total_kv);
    assert_null(p.q8);
    for (int64_t i = p.total_kv * row; i < p.store_tokens * row; i++)
        assert_true(isnan(bf16(p.k[i])) && isnan(bf16(p.v[i])));
    uint8_t *again = malloc((size_t)p.cache_elements);
    kvg_poison_cache(p.problem.kv_dtype, again, p.cache_elements);
    for (int64_t i = 0; i < p.store_tokens; i++)
        for (int64_t j = 0; p.slot_mapping[i] >= 0 && j < row; j++)
            again[p.slot_mapping[i] * row + j] =
                kvg_ref_fp8_encode(KVG_REF_E4M3, bf16(p.k[i * row + j]) / p.k_scale[j / c.head_dim]);
    assert_memory_equal(again, p.k_cache, (size_t)p.cache_elements);
    free(again);
    kvg_prepared_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_values),          cmocka_unit_test(test_auto_keeps_bits),
        cmocka_unit_test(test_saturated_and_flushed), cmocka_unit_test(test_quantised_q),
        cmocka_unit_test(test_store_phase),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
