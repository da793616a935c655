/* SPDX-License-Identifier: Apache-2.0
 *
 * test_account.c: the memory account against figures worked out by hand and against the page size formula of
 * vLLM (AttentionSpec.page_size_bytes), restated here.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "harness/measure/account.h"
#include "harness/prepare/prepared.h"

/* What vLLM allocates per layer and block. */
static int64_t vllm_page_size_bytes(int64_t block_size, int64_t kv_heads, int64_t head_size,
                                    int64_t head_size_v, int64_t dtype_bytes)
{
    return block_size * kv_heads * (head_size + head_size_v) * dtype_bytes;
}

/* Sets only the fields that kvg_account_fill_row reads. */
static struct kvg_prepared batch_of(int32_t *seq_lens, int64_t batch, enum kvg_dtype dtype)
{
    struct kvg_prepared p;
    memset(&p, 0, sizeof p);
    p.problem.batch = batch;
    p.problem.kv_heads = 8;
    p.problem.q_heads = 32;
    p.problem.head_dim = 128;
    p.problem.block_size = 16;
    p.problem.kv_dtype = dtype;
    p.problem.path = KVG_PATH_DEQUANT;
    p.problem.scheme = KVG_PER_TENSOR;
    p.seq_lens = seq_lens;
    return p;
}

static struct kvg_row account(const struct kvg_prepared *p)
{
    struct kvg_row row;
    memset(&row, 0, sizeof row);
    kvg_account_fill_row(p, 4096, &row);
    return row;
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want)))
        fail_msg("got %.17g, want %.17g", got, want);
}

/* 100 and 33 tokens in pages of 16: 7 and 3 pages, 12 and 15 slots empty. A token of one layer takes
 * 2 x 8 x 128 = 2048 B in FP8. */
static void test_by_hand(void **state)
{
    (void)state;
    int32_t lens[] = {100, 33, 0};
    struct kvg_prepared p = batch_of(lens, 3, KVG_E4M3);
    struct kvg_row row = account(&p);
    assert_int_equal(row.kv_cache_bytes, 133 * 2048);
    assert_int_equal(row.waste_bytes, (12 + 15) * 2048);
    assert_int_equal(row.scale_bytes, 2 * 4);
    assert_int_equal(row.block_table_bytes, 3 * 7 * 4);
    assert_int_equal(row.workspace_bytes, 4096);
    near(row.bytes_per_token, (133.0 * 2048 + 27 * 2048 + 8 + 84) / 133);
    near(row.tokens_per_gib, 1073741824.0 / row.bytes_per_token);
    near(row.bytes_vs_bf16, (160.0 * 2048 + 8 + 84) / (160.0 * 4096 + 84));
}

/* 100, 70 and 33 tokens in pages of 16, three of which are shared: the sequences have 7, 5 and 3 pages, of which 3, 3
 * and 2 are shared. So 15 - 5 = 10 pages are in use, and 203 - 5 x 16 = 123 tokens are stored. */
static void test_shared_pages(void **state)
{
    (void)state;
    int32_t lens[] = {100, 70, 33};
    struct kvg_prepared p = batch_of(lens, 3, KVG_E4M3);
    p.c.shared_pages = 3;
    struct kvg_row row = account(&p);
    assert_int_equal(row.kv_cache_bytes, 123 * 2048);
    assert_int_equal(row.waste_bytes, (160 - 123) * 2048);
    assert_int_equal(row.block_table_bytes, 3 * 7 * 4);
    near(row.bytes_per_token, (160.0 * 2048 + 8 + 84) / 203);
    near(row.bytes_vs_bf16, (160.0 * 2048 + 8 + 84) / (160.0 * 4096 + 84));
}

/* 100 and 33 tokens in pages of 7: 15 and 5 pages, 5 and 2 slots empty. */
static void test_small_pages(void **state)
{
    (void)state;
    int32_t lens[] = {100, 33};
    struct kvg_prepared p = batch_of(lens, 2, KVG_E4M3);
    p.problem.block_size = 7;
    assert_int_equal(account(&p).kv_cache_bytes, 133 * 2048);
    assert_int_equal(account(&p).waste_bytes, 7 * 2048);
    assert_int_equal(account(&p).block_table_bytes, 2 * 15 * 4);
}

static void test_scales(void **state)
{
    (void)state;
    int32_t lens[] = {64};
    struct kvg_prepared p = batch_of(lens, 1, KVG_E5M2);
    assert_int_equal(account(&p).scale_bytes, 8);
    p.problem.scheme = KVG_PER_HEAD;
    assert_int_equal(account(&p).scale_bytes, 2 * 8 * 4);
    p.problem.kv_dtype = KVG_E4M3;
    p.problem.path = KVG_PATH_FP8; /* adds a q scale per KV head */
    assert_int_equal(account(&p).scale_bytes, 3 * 8 * 4);
    p.problem.kv_dtype = KVG_BF16;
    p.problem.path = KVG_PATH_DEQUANT;
    assert_int_equal(account(&p).scale_bytes, 0);
    near(account(&p).bytes_vs_bf16, 1.0);
}

/* K, V and page tails together are whole pages as vLLM counts them. */
static void test_against_vllm(void **state)
{
    (void)state;
    static const enum kvg_dtype dtypes[] = {KVG_BF16, KVG_E4M3, KVG_E5M2, KVG_E4M3FNUZ};
    static const int64_t bytes[] = {2, 1, 1, 1};
    for (int i = 0; i < 4; i++)
        for (int32_t n = 1; n < 3000; n += 331)
            for (int64_t block = 8; block <= 256; block *= 2) {
                int32_t lens[] = {n, 2 * n, n + 1};
                struct kvg_prepared p = batch_of(lens, 3, dtypes[i]);
                p.problem.block_size = block;
                struct kvg_row row = account(&p);
                int64_t pages = 0;
                for (int b = 0; b < 3; b++)
                    pages += lens[b] / block + (lens[b] % block != 0);
                assert_int_equal(row.kv_cache_bytes + row.waste_bytes,
                                 pages * vllm_page_size_bytes(block, 8, 128, 128, bytes[i]));
                assert_true(row.waste_bytes < 3 * vllm_page_size_bytes(block, 8, 128, 128, bytes[i]));
            }
}

/* Published: an L4 with 11.47 GiB for the cache of Qwen3-4B (36 layers, 8 KV heads, head_dim 128) holds
 * 83,488 tokens in bf16 and 166,992 in FP8. */
static void test_published_capacity(void **state)
{
    (void)state;
    int32_t lens[] = {40960};
    struct kvg_prepared p = batch_of(lens, 1, KVG_BF16);
    const double bf16 = account(&p).tokens_per_gib * 11.47 / 36;
    p.problem.kv_dtype = KVG_E4M3;
    const double fp8 = account(&p).tokens_per_gib * 11.47 / 36;
    assert_true(fabs(bf16 / 83488 - 1) < 2e-3);
    assert_true(fabs(fp8 / 166992 - 1) < 2e-3);
}

/* Sizes of 2^33 bytes and more are exact. */
static void test_large(void **state)
{
    (void)state;
    int32_t lens[] = {2147483647, 2147483647};
    struct kvg_prepared p = batch_of(lens, 2, KVG_BF16);
    struct kvg_row row = account(&p);
    assert_true(row.kv_cache_bytes == INT64_C(2) * 2147483647 * 4096);
    assert_true(row.waste_bytes == 2 * 4096);
}

static void test_no_tokens(void **state)
{
    (void)state;
    int32_t lens[] = {0, 0};
    struct kvg_prepared p = batch_of(lens, 2, KVG_E4M3);
    struct kvg_row row = account(&p);
    assert_int_equal(row.kv_cache_bytes, 0);
    assert_int_equal(row.waste_bytes, 0);
    assert_true(isnan(row.bytes_per_token) && isnan(row.tokens_per_gib) && isnan(row.bytes_vs_bf16));
}

/* 100, 33 and 5 tokens in pages of 16, with a window of 40: keys from 60, 0 and 0 on, which begin in pages 3, 0
 * and 0. In use are 4 + 3 + 1 pages; 40 + 33 + 5 of their 128 slots hold keys. */
static void test_window(void **state)
{
    (void)state;
    int32_t lens[] = {100, 33, 5, 0};
    struct kvg_prepared p = batch_of(lens, 4, KVG_E4M3);
    p.problem.phase = KVG_PHASE_DECODE;
    p.problem.window = 40;
    for (int full = 0; full < 2; full++) {
        p.problem.mask = full ? KVG_MASK_FULL : KVG_MASK_CAUSAL;
        struct kvg_row row = account(&p);
        assert_int_equal(row.kv_cache_bytes, 78 * 2048);
        assert_int_equal(row.waste_bytes, 50 * 2048);
        assert_int_equal(row.block_table_bytes, 4 * 7 * 4);
        near(row.bytes_per_token, (128.0 * 2048 + 8 + 112) / 138);
        near(row.tokens_per_gib, 1073741824.0 * 138 / (128.0 * 2048 + 8 + 112));
        near(row.bytes_vs_bf16, (128.0 * 2048 + 8 + 112) / (128.0 * 4096 + 112));
    }
    p.problem.phase = KVG_PHASE_STORE; /* every token is stored */
    assert_int_equal(account(&p).kv_cache_bytes, 138 * 2048);
}

/* A window of 1024 at 32k tokens holds 64 whole pages of 16 in place of 2048. */
static void test_long_window(void **state)
{
    (void)state;
    int32_t lens[] = {32768};
    struct kvg_prepared p = batch_of(lens, 1, KVG_BF16);
    p.problem.phase = KVG_PHASE_DECODE;
    p.problem.window = 1024;
    struct kvg_row row = account(&p);
    assert_int_equal(row.kv_cache_bytes, 1024 * 4096);
    assert_int_equal(row.waste_bytes, 0);
    lens[0] = 32769; /* keys from 31745 on: slot 1 of page 1984, to slot 0 of page 2048 */
    row = account(&p);
    assert_int_equal(row.kv_cache_bytes, 1024 * 4096);
    assert_int_equal(row.waste_bytes, 65 * 16 * 4096 - 1024 * 4096);
}

/* Chunks of 24 in pages of 16. Of 100 keys the current chunk is 96 .. 119: 4 keys in page 6. Of 72 keys it is
 * 48 .. 71: 24 keys in pages 3 and 4. Of 30 keys it is 24 .. 47: 6 keys in page 1. */
static void test_chunks(void **state)
{
    (void)state;
    int32_t lens[] = {100, 72, 30, 0};
    struct kvg_prepared p = batch_of(lens, 4, KVG_E4M3);
    p.problem.phase = KVG_PHASE_PREFILL;
    p.problem.mask = KVG_MASK_CHUNKED;
    p.problem.chunk = 24;
    struct kvg_row row = account(&p);
    assert_int_equal(row.kv_cache_bytes, (4 + 24 + 6) * 2048);
    assert_int_equal(row.waste_bytes, (4 * 16 - 34) * 2048);
    near(row.bytes_per_token, (64.0 * 2048 + 8 + 112) / 202);
    p.problem.window = 5; /* keys 96 .., 67 .. and 25 .. */
    row = account(&p);
    assert_int_equal(row.kv_cache_bytes, (4 + 5 + 5) * 2048);
    assert_int_equal(row.waste_bytes, (3 * 16 - 14) * 2048);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),      cmocka_unit_test(test_scales),
        cmocka_unit_test(test_against_vllm), cmocka_unit_test(test_published_capacity),
        cmocka_unit_test(test_shared_pages), cmocka_unit_test(test_small_pages),
        cmocka_unit_test(test_large),        cmocka_unit_test(test_no_tokens),
        cmocka_unit_test(test_window),       cmocka_unit_test(test_long_window),
        cmocka_unit_test(test_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
