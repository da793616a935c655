/* SPDX-License-Identifier: Apache-2.0
 *
 * test_prepare.c: lengths, pages and slots of prepared cases, and the cases that are refused. Expected values
 * come from page arithmetic restated here.
 */
#include "harness/prepare/own.h"
#include "tests/unit/prepare_fixture.h"

/* ---------------------------------------------------------------------------------------- lengths */

/* Lengths one below, at and one above a page or a tile; one sequence is empty, the longest is the first. */
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
    for (int64_t b = 0; b < c->batch; b++) /* spare entries name a page that no sequence owns */
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

/* The shuffle of the pages depends on the seed alone. */
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

/* The number of threads changes no bit. */
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

/* ---------------------------------------------------------------------------------------- limits */

static void expect_refusal(const struct kvg_case *c, enum kvg_exit code, const char *text)
{
    struct kvg_prepared p;
    struct kvg_error error = {0};
    assert_int_equal(kvg_prepared_make(c, NULL, &p, &error), -1);
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
    c.block_size = 0;
    expect_refusal(&c, KVG_EXIT_USAGE, "block_size 0");
    c = small_case();
    c.context = 0;
    expect_refusal(&c, KVG_EXIT_USAGE, "context 0");
    c = small_case();
    strcpy(c.input, "nrmal");
    expect_refusal(&c, KVG_EXIT_USAGE, "nrmal");
}

/* Offsets beyond 2^31 elements: a cache of 2.1e9 codes is too large for a test, so the index arithmetic is
 * checked with a table that names a far page. */
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
        cmocka_unit_test(test_absurd_sizes),
        cmocka_unit_test(test_offsets_are_64_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
