/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bits.c: stores and quantised Q are compared bit by bit, and the reason names the first difference.
 */
#include "tests/unit/verify_trial.h"

/* ---------------------------------------------------------------- bit by bit */

static void test_store_bits(void **state)
{
    (void)state;
    static const enum kvg_cache_dtype dtypes[] = {KVG_CACHE_AUTO, KVG_CACHE_FP8_E4M3, KVG_CACHE_FP8_E5M2};
    for (int i = 0; i < 6; i++) {
        struct kvg_case c = plain_case();
        struct kvg_error error = {0};
        struct trial t;
        char words[160];
        c.kv_cache_dtype = dtypes[i % 3];
        c.scheme = KVG_PER_TENSOR;
        c.layout = i < 3 ? KVG_NHD : KVG_HND;
        trial_make(&t, &c, &plain_values);
        const int64_t bytes = kvg_dtype_bytes(t.p.problem.kv_dtype), n = t.p.cache_elements * bytes;
        uint8_t *k = malloc((size_t)n), *v = malloc((size_t)n);
        assert_non_null(k);
        assert_non_null(v);
        memcpy(k, t.p.k_cache, (size_t)n);
        memcpy(v, t.p.v_cache, (size_t)n);
        assert_int_equal(kvg_compare_store(&t.p, k, v, &t.row, &error), 0);
        assert_int_equal(t.row.status, KVG_PASSED);
        assert_int_equal(t.row.n_checked, 2 * t.p.cache_elements);
        /* Sequence 1, token 3, head 2, dim 9 of V, found through the block table. */
        const int64_t block = t.p.block_table[t.p.block_table_stride];
        const int64_t at =
            block * t.p.v_pages.stride_block + 3 * t.p.v_pages.stride_slot + 2 * t.p.v_pages.stride_head + 9;
        v[at * bytes] ^= 1;
        assert_int_equal(kvg_compare_store(&t.p, k, v, &t.row, &error), 0);
        snprintf(words, sizeof words,
                 "1 of %lld V codes differ, first at block %lld slot 3 (sequence 1 token 3) "
                 "head 2 dim 9",
                 (long long)t.p.cache_elements, (long long)block);
        assert_int_equal(t.row.status, KVG_INCORRECT);
        if (!strstr(t.row.reason, words))
            fail_msg("%s", t.row.reason);
        v[at * bytes] ^= 1;
        /* A slot past the end of sequence 0 must keep its poison. */
        const int64_t last = t.p.seq_lens[0], page = t.p.block_table[last / c.block_size];
        assert_true(last % c.block_size != 0);
        k[(page * t.p.k_pages.stride_block + last % c.block_size * t.p.k_pages.stride_slot) * bytes] = 0;
        assert_int_equal(kvg_compare_store(&t.p, k, v, &t.row, &error), 0);
        assert_int_equal(t.row.status, KVG_INCORRECT);
        assert_non_null(strstr(t.row.reason, "a slot that no token owns"));
        free(k);
        free(v);
        trial_free(&t);
    }
}

static void test_quantize_q_bits(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct kvg_error error = {0};
    struct trial t;
    c.path = KVG_PATH_FP8;
    c.phase = KVG_PHASE_APPEND;
    c.q_len = 3;
    trial_make(&t, &c, &plain_values);
    const int64_t n = t.p.total_q * c.q_heads * c.head_dim;
    uint8_t *q8 = malloc((size_t)n);
    assert_non_null(q8);
    memcpy(q8, t.p.q8, (size_t)n);
    assert_int_equal(kvg_compare_quantize_q(&t.p, q8, &t.row, &error), 0);
    assert_int_equal(t.row.status, KVG_PASSED);
    q8[((t.p.cu_q_lens[1] + 2) * c.q_heads + 5) * c.head_dim + 7] ^= 0x80;
    q8[n - 1] ^= 1;
    assert_int_equal(kvg_compare_quantize_q(&t.p, q8, &t.row, &error), 0);
    assert_int_equal(t.row.status, KVG_INCORRECT);
    assert_non_null(strstr(t.row.reason, "2 of "));
    assert_non_null(strstr(t.row.reason, "sequence 1 query 2 head 5 dim 7"));
    free(q8);
    trial_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_bits),
        cmocka_unit_test(test_quantize_q_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
