/* SPDX-License-Identifier: Apache-2.0
 *
 * test_prepare.c: prepared cases: lengths, pages, slots, scales, caches, guards, renewal. Expected values
 * come from rules restated here (absmax taken over generated values, plain division, page arithmetic), not
 * from the code under test.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "harness/inputs/inputs.h"
#include "harness/memory/guard.h"
#include "harness/prepare/own.h"
#include "harness/prepare/prepare.h"

static struct kvg_case small_case(void)
{
    struct kvg_case c;
    memset(&c, 0, sizeof c);
    strcpy(c.kernel, "best");
    strcpy(c.input, "normal");
    c.phase = KVG_PHASE_DECODE;
    c.path = KVG_PATH_DEQUANT;
    c.kv_cache_dtype = KVG_CACHE_FP8_E4M3;
    c.scheme = KVG_PER_HEAD;
    c.calibration = KVG_CALIBRATION_DATASET;
    c.layer = -1;
    c.batch = 6;
    c.q_len = 1;
    c.context = 300;
    c.q_heads = 8;
    c.kv_heads = 4;
    c.head_dim = 64;
    c.block_size = 16;
    c.lengths = KVG_LENGTHS_RAGGED;
    c.threads = 2;
    c.seed = 7;
    return c;
}

static void prepare(const struct kvg_case *c, struct kvg_prepared *p)
{
    struct kvg_error error = {0};
    if (kvg_prepare(c, NULL, p, &error))
        fail_msg("%s", error.text);
}

static float bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, 4);
    return x;
}

/* ---------------------------------------------------------------------------------------- lengths */

/* Lengths that sit one below, at and one above a page or a tile, one empty, the longest first. */
static void test_ragged_lengths(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    struct kvg_prepared p;
    c.calibration = KVG_CALIBRATION_NONE;
    c.batch = 10;
    c.context = 2000;
    prepare(&c, &p);
    int seen[3] = {0}, tile[3] = {0}, empty = 0;
    assert_int_equal(p.seq_lens[0], 2000);
    for (int i = 0; i < 10; i++) {
        int n = p.seq_lens[i];
        assert_in_range(n, 0, 2000);
        empty += n == 0;
        for (int d = -1; d <= 1; d++) {
            seen[d + 1] += i && n > 0 && (n - d) % 16 == 0;
            tile[d + 1] += i && n > 0 && (n - d) % 128 == 0;
        }
        for (int j = 0; j < i; j++)
            assert_int_not_equal(p.seq_lens[j], n);
        assert_int_equal(p.cu_kv_lens[i + 1] - p.cu_kv_lens[i], n);
        assert_int_equal(p.cu_q_lens[i + 1] - p.cu_q_lens[i], 1);
    }
    assert_int_equal(empty, 1);
    for (int d = 0; d < 3; d++)
        assert_true(seen[d] >= 1 && tile[d] >= 1);
    assert_int_equal(p.cu_q_lens[0], 0);
    assert_int_equal(p.total_kv, p.cu_kv_lens[10]);
    assert_int_equal(p.problem.total_kv, p.total_kv);
    assert_int_equal(p.problem.total_q, 10);
    assert_int_equal(p.problem.max_seq_len, 2000);
    kvg_prepared_free(&p);
}

static void test_query_lengths(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    struct kvg_prepared p;
    c.calibration = KVG_CALIBRATION_NONE;
    c.phase = KVG_PHASE_PREFILL;
    c.q_len = c.context;
    prepare(&c, &p);
    for (int i = 0; i < c.batch; i++)
        assert_int_equal(p.cu_q_lens[i + 1] - p.cu_q_lens[i], p.seq_lens[i]);
    assert_int_equal(p.problem.max_q_len, 300);
    kvg_prepared_free(&p);

    c.phase = KVG_PHASE_APPEND;
    c.q_len = 20;
    c.context = 60;
    prepare(&c, &p);
    for (int i = 0; i < c.batch; i++) {
        int n = p.seq_lens[i], q = p.cu_q_lens[i + 1] - p.cu_q_lens[i];
        assert_int_equal(q, n == 0 ? 1 : n < 20 ? n : 20);
    }
    kvg_prepared_free(&p);

    c = small_case();
    c.lengths = KVG_LENGTHS_UNIFORM;
    prepare(&c, &p);
    assert_int_equal(p.total_kv, 6 * 300);
    assert_null(p.own->row_table);
    kvg_prepared_free(&p);
}

/* ---------------------------------------------------------------------------------------- pages */

static int is_nan_code(const struct kvg_prepared *p, const void *cache, int64_t index)
{
    if (p->problem.kv_dtype == KVG_BF16)
        return isnan(bf16(((const uint16_t *)cache)[index]));
    uint8_t code = ((const uint8_t *)cache)[index];
    if (p->problem.kv_dtype == KVG_E4M3)
        return (code & 0x7f) == 0x7f;
    if (p->problem.kv_dtype == KVG_E5M2)
        return (code & 0x7f) > 0x7c;
    return code == 0x80;
}

/* Each page belongs to one sequence or none; each slot a sequence owns is finite, every other slot is NaN. */
static void check_pages(const struct kvg_case *c)
{
    struct kvg_prepared p;
    prepare(c, &p);
    int64_t bs = c->block_size, slots = p.num_blocks * bs;
    unsigned char *owner = calloc((size_t)slots, 1), *page_used = calloc((size_t)p.num_blocks, 1);
    int64_t in_order = 0, used = 0;
    assert_true(p.block_table_stride > (c->context + bs - 1) / bs);
    for (int64_t b = 0; b < c->batch; b++) {
        const int32_t *table = p.block_table + b * p.block_table_stride;
        int64_t pages = (p.seq_lens[b] + bs - 1) / bs;
        for (int64_t i = 0; i < p.block_table_stride; i++) {
            assert_in_range(table[i], 0, p.num_blocks - 1);
            if (i < pages) {
                assert_int_equal(page_used[table[i]], 0);
                page_used[table[i]] = 1;
                used++;
                in_order += i && table[i] == table[i - 1] + 1;
            }
        }
        for (int64_t t = 0; t < p.seq_lens[b]; t++) {
            int64_t slot = table[t / bs] * bs + t % bs;
            assert_int_equal(p.slot_mapping[p.cu_kv_lens[b] + t], slot);
            assert_int_equal(owner[slot], 0);
            owner[slot] = 1;
        }
    }
    for (int64_t b = 0; b < c->batch; b++) /* spare entries name a page nobody owns */
        for (int64_t i = (p.seq_lens[b] + bs - 1) / bs; i < p.block_table_stride; i++)
            assert_int_equal(page_used[p.block_table[b * p.block_table_stride + i]], 0);
    assert_true(p.num_blocks >= used + 3);
    if (used > 20) /* shuffled */
        assert_true(in_order < used / 4);
    assert_true(p.store_tokens > p.total_kv);
    for (int64_t t = p.total_kv; t < p.store_tokens; t++)
        assert_int_equal(p.slot_mapping[t], -1);
    for (int64_t slot = 0; slot < slots; slot++)
        for (int64_t h = 0; h < c->kv_heads; h++)
            for (int64_t d = 0; d < c->head_dim; d++) {
                int64_t i = c->layout == KVG_NHD
                                ? (slot * c->kv_heads + h) * c->head_dim + d
                                : ((slot / bs * c->kv_heads + h) * bs + slot % bs) * c->head_dim + d;
                assert_int_equal(is_nan_code(&p, p.k_cache, i), !owner[slot]);
                assert_int_equal(is_nan_code(&p, p.v_cache, i), !owner[slot]);
            }
    free(owner);
    free(page_used);
    kvg_prepared_free(&p);
}

static void test_pages(void **state)
{
    (void)state;
    const enum kvg_cache_dtype dtypes[] = {KVG_CACHE_AUTO, KVG_CACHE_FP8_E4M3, KVG_CACHE_FP8_E5M2,
                                           KVG_CACHE_FP8_E4M3FNUZ};
    for (int i = 0; i < 4; i++)
        for (int layout = 0; layout < 2; layout++) {
            struct kvg_case c = small_case();
            c.kv_cache_dtype = dtypes[i];
            c.calibration = KVG_CALIBRATION_NONE;
            c.layout = (enum kvg_layout)layout;
            c.block_size = i % 2 ? 24 : 16;
            if (dtypes[i] == KVG_CACHE_AUTO)
                c.scheme = KVG_PER_TENSOR;
            check_pages(&c);
        }
}

/* Another seed, another shuffle; the same seed, the same. */
static void test_shuffle_follows_seed(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    struct kvg_prepared a, b, other;
    c.calibration = KVG_CALIBRATION_NONE;
    prepare(&c, &a);
    prepare(&c, &b);
    c.seed++;
    prepare(&c, &other);
    size_t bytes = (size_t)(c.batch * a.block_table_stride) * sizeof(int32_t);
    assert_memory_equal(a.block_table, b.block_table, bytes);
    assert_memory_not_equal(a.block_table, other.block_table, bytes);
    assert_memory_equal(a.k_cache, b.k_cache, (size_t)a.cache_elements);
    kvg_prepared_free(&a);
    kvg_prepared_free(&b);
    kvg_prepared_free(&other);
}

/* The case's thread count decides no bit. */
static void test_threads_change_nothing(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    struct kvg_prepared a, b;
    c.path = KVG_PATH_FP8;
    c.threads = 1;
    prepare(&c, &a);
    c.threads = 5;
    prepare(&c, &b);
    assert_memory_equal(a.k_cache, b.k_cache, (size_t)a.cache_elements);
    assert_memory_equal(a.v_cache, b.v_cache, (size_t)a.cache_elements);
    assert_memory_equal(a.q8, b.q8, (size_t)(a.total_q * c.q_heads * c.head_dim));
    assert_memory_equal(a.k_scale, b.k_scale, 4 * sizeof(float));
    kvg_prepared_free(&a);
    kvg_prepared_free(&b);
}

/* ---------------------------------------------------------------------------------------- scales */

/* What an observer sees of the small case's input, fetched once: absmax[sample][head]. */
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

/* Largest |x| of one head (or all, head < 0) of a set, reduced by hand. */
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
    c.observer = KVG_REF_MEMORYLESS_MINMAX; /* has no say */
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
    assert_int_equal(kvg_prepare(&c, &options, &p, NULL), 0);
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
        assert_int_equal(kvg_prepare(&c, &options, &p, &error), -1);
        assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
        assert_non_null(strstr(error.text, "v scale of KV head 0"));
        kvg_prepared_free(&p);
    }
}

/* ---------------------------------------------------------------------------------------- values */

/* A cached value times its scale is within half a step of the source, or clipped. e4m3 has 3 fraction bits.
 */
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

/* A bf16 cache holds the source's bits. */
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

/* Shares counted again from the codes. */
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

/* Phase store: no queries, the padding tokens' rows are NaN, the expectation is the filled cache. */
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

/* ---------------------------------------------------------------------------------------- guards */

static void expect_damage(struct kvg_prepared *p, unsigned char *at, const char *name, const char *where)
{
    struct kvg_error error = {0};
    unsigned char before = *at;
    *at ^= 0x01;
    assert_int_equal(kvg_prepared_check(p, &error), -1);
    assert_int_equal(error.exit_code, KVG_EXIT_INCORRECT);
    assert_non_null(strstr(error.text, name));
    assert_non_null(strstr(error.text, where));
    *at = before;
    assert_int_equal(kvg_prepared_check(p, &error), 0);
}

static void test_guards(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    struct kvg_prepared p;
    c.calibration = KVG_CALIBRATION_NONE;
    prepare(&c, &p);
    assert_int_equal(kvg_prepared_check(&p, NULL), 0);
    assert_int_equal((uintptr_t)p.k_cache % KVG_GUARD_ALIGNMENT, 0);
    unsigned char *k = p.k_cache, *end = k + p.cache_elements, *table = (unsigned char *)p.block_table;
    expect_damage(&p, end, "k_cache", "0 bytes past its end");
    expect_damage(&p, end + KVG_GUARD_BYTES - 1, "k_cache", "65535 bytes past its end");
    expect_damage(&p, k - 1, "k_cache", "1 bytes before its start");
    expect_damage(&p, k - KVG_GUARD_BYTES, "k_cache", "65536 bytes before its start");
    expect_damage(&p, table + c.batch * p.block_table_stride * 4, "block_table", "0 bytes past");
    expect_damage(&p, table, "block_table", "was changed");
    expect_damage(&p, k + 12345, "k_cache", "was changed");
    expect_damage(&p, (unsigned char *)p.v_scale, "v_scale", "was changed");
    expect_damage(&p, (unsigned char *)p.q + 77, "q", "was changed");
    kvg_prepared_free(&p);
    kvg_prepared_free(&p); /* harmless */
}

/* Past the end of a buffer a reader finds NaN in each format. */
static void test_guards_read_as_nan(void **state)
{
    (void)state;
    struct kvg_guard_list *list = kvg_guard_create();
    unsigned char *data = kvg_guard_alloc(list, "x", 4096, NULL);
    for (int i = 0; i < 512; i++) {
        uint16_t half;
        float single;
        memcpy(&half, data + 4096 + 2 * i, 2);
        memcpy(&single, data + 4096 + 4 * i, 4);
        assert_true(isnan(bf16(half)) && isnan(single));
        assert_true(isnan(kvg_ref_fp8_decode(KVG_REF_E4M3, data[4096 + i])));
        assert_true(isnan(kvg_ref_fp8_decode(KVG_REF_E5M2, data[4096 + i])));
    }
    assert_null(kvg_guard_alloc(list, "absurd", INT64_MAX / 4, NULL));
    assert_non_null(kvg_guard_alloc(list, "empty", 0, NULL));
    data[0] = 1; /* never sealed: may change */
    assert_int_equal(kvg_guard_check(list, NULL), 0);
    kvg_guard_free(list);
    kvg_guard_free(NULL);
}

static void test_hash(void **state)
{
    (void)state;
    int64_t bytes = (INT64_C(6) << 20) + 13;
    unsigned char *data = malloc((size_t)bytes);
    for (int64_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 7 + i / 251);
    uint64_t hash = kvg_hash_bytes(data, bytes);
    assert_true(hash == kvg_hash_bytes(data, bytes));
    const int64_t at[] = {0, 63, 64, 1 << 20, (5 << 20) + 1, bytes - 1};
    for (int i = 0; i < 6; i++) {
        data[at[i]] ^= 0x10;
        assert_true(hash != kvg_hash_bytes(data, bytes));
        data[at[i]] ^= 0x10;
    }
    /* two pieces of 1 MiB exchanged */
    for (int64_t i = 0; i < 1 << 20; i++) {
        unsigned char x = data[i];
        data[i] = data[i + (1 << 20)];
        data[i + (1 << 20)] = x;
    }
    assert_true(hash != kvg_hash_bytes(data, bytes));
    assert_true(kvg_hash_bytes(data, 100) != kvg_hash_bytes(data, 101));
    free(data);
}

/* ---------------------------------------------------------------------------------------- renewal */

static void test_renew(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    struct kvg_prepared p, fresh;
    struct kvg_error error = {0};
    c.path = KVG_PATH_FP8;
    prepare(&c, &p);
    const void *k_cache = p.k_cache;
    size_t bytes = (size_t)p.cache_elements, table = (size_t)(c.batch * p.block_table_stride) * 4;
    uint8_t *before = malloc(bytes);
    int32_t *pages = malloc(table), lengths[6];
    memcpy(lengths, p.seq_lens, sizeof lengths);
    memcpy(before, p.k_cache, bytes);
    memcpy(pages, p.block_table, table);
    assert_int_equal(kvg_prepared_renew(&p, 99, &error), 0);
    assert_ptr_equal(p.k_cache, k_cache);
    assert_memory_not_equal(p.k_cache, before, bytes);
    /* lengths moved on by one, and every page was dealt to one owner again, elsewhere */
    int64_t moved = 0, owned = 0;
    char *owner = calloc((size_t)p.num_blocks, 1);
    for (int64_t i = 0; i < c.batch; i++) {
        assert_int_equal(p.seq_lens[i], lengths[(i + 1) % c.batch]);
        assert_int_equal(p.cu_q_lens[i], i); /* decode: an empty sequence has its query too */
        assert_int_equal(p.cu_kv_lens[i + 1] - p.cu_kv_lens[i], p.seq_lens[i]);
        for (int64_t t = 0; t < p.seq_lens[i]; t++) {
            int32_t page = p.block_table[i * p.block_table_stride + t / 16];
            assert_int_equal(p.slot_mapping[p.cu_kv_lens[i] + t], (int64_t)page * 16 + t % 16);
            if (t % 16 == 0) {
                assert_false(owner[page]++);
                moved += page != pages[i * p.block_table_stride + t / 16];
                owned++;
            }
        }
    }
    assert_true(moved * 2 > owned);
    assert_int_equal(p.total_kv, p.cu_kv_lens[c.batch]);
    free(owner);
    assert_int_equal(p.c.seed, 7);
    assert_int_equal(kvg_prepared_check(&p, &error), 0);
    /* the values are those of seed 99: sequence 0 of its case begins with the same ones */
    c.seed = 99;
    prepare(&c, &fresh);
    size_t row = (size_t)(c.kv_heads * c.head_dim) * 2;
    assert_memory_equal(p.k, fresh.k, (size_t)p.seq_lens[0] * row);
    assert_memory_equal(p.v, fresh.v, (size_t)p.seq_lens[0] * row);
    assert_memory_equal(p.v_scale, fresh.v_scale, 4 * sizeof(float));
    /* and back */
    assert_int_equal(kvg_prepared_renew(&p, 7, &error), 0);
    assert_memory_equal(p.k_cache, before, bytes);
    assert_memory_equal(p.block_table, pages, table);
    assert_memory_equal(p.seq_lens, lengths, sizeof lengths);
    free(before);
    free(pages);
    kvg_prepared_free(&p);
    kvg_prepared_free(&fresh);
}

/* ---------------------------------------------------------------------------------------- limits */

static void expect_refusal(const struct kvg_case *c, enum kvg_exit code, const char *text)
{
    struct kvg_prepared p;
    struct kvg_error error = {0};
    assert_int_equal(kvg_prepare(c, NULL, &p, &error), -1);
    if (error.exit_code != code || !strstr(error.text, text))
        fail_msg("%d: %s", error.exit_code, error.text);
    kvg_prepared_free(&p);
}

static void test_absurd_sizes(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    c.lengths = KVG_LENGTHS_UNIFORM;
    c.batch = 64;
    c.context = INT64_C(30) << 20; /* 2e9 keys of 512 elements */
    expect_refusal(&c, KVG_EXIT_TROUBLE, "GiB");
    c.batch = 2000000000;
    expect_refusal(&c, KVG_EXIT_TROUBLE, "2147483647");
    c.batch = 2;
    c.context = INT64_C(1) << 40;
    expect_refusal(&c, KVG_EXIT_TROUBLE, "1099511627776");
    c.context = INT64_MAX;
    expect_refusal(&c, KVG_EXIT_TROUBLE, "2147483647");
    c.context = INT64_C(2000000000);
    c.batch = 1;
    c.kv_heads = c.q_heads = 65535;
    c.head_dim = 65536;
    c.block_size = INT32_MAX / 8 * 8;
    expect_refusal(&c, KVG_EXIT_TROUBLE, "2^63");
    c = small_case();
    c.block_size = 12;
    expect_refusal(&c, KVG_EXIT_USAGE, "block_size 12");
    c = small_case();
    c.context = 0;
    expect_refusal(&c, KVG_EXIT_USAGE, "context 0");
    c = small_case();
    strcpy(c.input, "nrmal");
    expect_refusal(&c, KVG_EXIT_USAGE, "nrmal");
}

/* Offsets beyond 2^31 elements: one cache of 2.1e9 e4m3 codes would not fit a test, so the views' arithmetic
 * is checked with a table that names a far page. */
static void test_offsets_are_64_bit(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    struct kvg_prepared p;
    c.calibration = KVG_CALIBRATION_NONE;
    c.layout = KVG_HND;
    prepare(&c, &p);
    struct kvg_ref_attention a;
    kvg_prepared_dequantised(&p, &a);
    int32_t far[1] = {2000000};
    a.k.block_table = far;
    a.k.block_table_stride = 1;
    assert_true(kvg_ref_kv_index(&a.k, 0, 3, 2) == INT64_C(2000000) * 16 * 4 * 64 + 2 * 16 * 64 + 3 * 64);
    kvg_prepared_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ragged_lengths),
        cmocka_unit_test(test_query_lengths),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_shuffle_follows_seed),
        cmocka_unit_test(test_threads_change_nothing),
        cmocka_unit_test(test_scales_none),
        cmocka_unit_test(test_scales_random_tokens),
        cmocka_unit_test(test_scales_dataset),
        cmocka_unit_test(test_q_scale_over_group),
        cmocka_unit_test(test_bad_scale_is_named),
        cmocka_unit_test(test_cache_values),
        cmocka_unit_test(test_auto_keeps_bits),
        cmocka_unit_test(test_saturated_and_flushed),
        cmocka_unit_test(test_quantised_q),
        cmocka_unit_test(test_store_phase),
        cmocka_unit_test(test_guards),
        cmocka_unit_test(test_guards_read_as_nan),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_renew),
        cmocka_unit_test(test_absurd_sizes),
        cmocka_unit_test(test_offsets_are_64_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
