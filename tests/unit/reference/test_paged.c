/* SPDX-License-Identifier: Apache-2.0
 *
 * test_paged.c: the paged store against a plain restatement of its rule, element by element, in both layouts
 * and all formats. Also: bytes that it must not touch, offsets beyond 32 bits, and the reciprocal rule of Q.
 */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "reference/paged.h"

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Values over many binades, some of them zero, infinite or NaN. */
static float odd_value(uint64_t *state)
{
    uint64_t kind = next_random(state) % 64;
    if (kind == 0)
        return next_random(state) % 2 ? INFINITY : -INFINITY;
    if (kind == 1)
        return NAN;
    if (kind == 2)
        return next_random(state) % 2 ? 0.0f : -0.0f;
    return ldexpf((float)(next_random(state) % 4096) - 2048, (int)(next_random(state) % 30) - 22);
}

struct store_case {
    enum kvg_ref_format source, cache;
    int hnd;
    int64_t heads, head_dim, tokens, scale_stride;
    const float *scale;
};

enum { BLOCKS = 12, BLOCK_SIZE = 8, PAD = 3 };

static void check_store(const struct store_case *c, uint64_t seed)
{
    int64_t bytes = kvg_ref_format_get_info(c->cache)->bytes,
            elements = BLOCKS * BLOCK_SIZE * c->heads * c->head_dim;
    int64_t stride_head_in = c->head_dim + PAD, stride_token_in = c->heads * stride_head_in + PAD;
    unsigned char *cache = malloc((size_t)(elements * bytes)), *expected = malloc((size_t)(elements * bytes));
    void *source = malloc((size_t)(c->tokens * stride_token_in) * sizeof(float));
    int64_t *slots = malloc((size_t)c->tokens * sizeof *slots);
    memset(cache, 0x7f, (size_t)(elements * bytes));
    memset(expected, 0x7f, (size_t)(elements * bytes));
    for (int64_t i = 0; i < c->tokens * stride_token_in; i++)
        kvg_ref_store(c->source, source, i, odd_value(&seed));
    for (int64_t t = 0; t < c->tokens; t++)
        slots[t] =
            t % 5 == 4 ? -1 - t : (t * 37 + 11) % (BLOCKS * BLOCK_SIZE); /* 37 is prime to 96: distinct */
    struct kvg_ref_kv kv = {
        .format = c->cache, .block_size = BLOCK_SIZE, .scale = c->scale, .scale_stride = c->scale_stride};
    kv.stride_block = BLOCK_SIZE * c->heads * c->head_dim;
    kv.stride_slot = c->hnd ? c->head_dim : c->heads * c->head_dim;
    kv.stride_head = c->hnd ? BLOCK_SIZE * c->head_dim : c->head_dim;
    kvg_ref_paged_store(&kv, cache, c->source, source, stride_token_in, stride_head_in, slots, c->tokens,
                        c->heads, c->head_dim);
    for (int64_t t = 0; t < c->tokens; t++)
        for (int64_t h = 0; h < c->heads && slots[t] >= 0; h++)
            for (int64_t d = 0; d < c->head_dim; d++) {
                float x = kvg_ref_load(c->source, source, t * stride_token_in + h * stride_head_in + d);
                int64_t block = slots[t] / BLOCK_SIZE, slot = slots[t] % BLOCK_SIZE;
                int64_t at = c->hnd ? ((block * c->heads + h) * BLOCK_SIZE + slot) * c->head_dim + d
                                    : ((block * BLOCK_SIZE + slot) * c->heads + h) * c->head_dim + d;
                volatile float quotient = x / (c->scale ? c->scale[h * c->scale_stride] : 1.0f);
                kvg_ref_store(c->cache, expected, at, bytes == 1 ? quotient : x);
            }
    assert_memory_equal(cache, expected, (size_t)(elements * bytes));
    free(cache);
    free(expected);
    free(source);
    free(slots);
}

static void test_store(void **state)
{
    (void)state;
    static const float scales[4] = {0.013f, 1.0f, 3.7e-3f, 41.0f};
    const enum kvg_ref_format sources[] = {KVG_REF_BF16, KVG_REF_F16, KVG_REF_F32};
    const enum kvg_ref_format caches[] = {KVG_REF_E4M3, KVG_REF_E5M2, KVG_REF_E4M3FNUZ, KVG_REF_BF16};
    const int64_t dims[] = {8, 64, 80, 128, 7, 513};
    for (int s = 0; s < 3; s++)
        for (int f = 0; f < 4; f++)
            for (int hnd = 0; hnd < 2; hnd++)
                for (int d = 0; d < 6; d++) {
                    struct store_case c = {sources[s], caches[f], hnd,   1 + (d * 3 + s) % 4,
                                           dims[d],    71,        d % 2, d == 2 ? NULL : scales + d % 2};
                    c.heads = c.heads > 3 ? 3 : c.heads;
                    check_store(&c, (uint64_t)(s * 1000 + f * 100 + hnd * 10 + d));
                }
}

/* A call large enough to be split over threads gives the same bytes as one call per token. */
static void test_store_in_parallel(void **state)
{
    (void)state;
    enum { TOKENS = 700, HEADS = 4, DIM = 128, N = TOKENS * HEADS * DIM };
    uint16_t *source = malloc(N * sizeof *source);
    uint8_t *whole = calloc(N, 1), *single = calloc(N, 1);
    int64_t slots[TOKENS];
    uint64_t seed = 5;
    for (int i = 0; i < N; i++)
        source[i] = kvg_ref_bf16_encode(odd_value(&seed));
    for (int64_t t = 0; t < TOKENS; t++)
        slots[t] = (t * 3 + 1) % TOKENS;
    const float scale = 0.3f;
    struct kvg_ref_kv kv = {.format = KVG_REF_E4M3,
                            .stride_block = 4 * HEADS * DIM,
                            .stride_slot = HEADS * DIM,
                            .stride_head = DIM,
                            .block_size = 4,
                            .scale = &scale};
    kvg_ref_paged_store(&kv, whole, KVG_REF_BF16, source, HEADS * DIM, DIM, slots, TOKENS, HEADS, DIM);
    for (int64_t t = 0; t < TOKENS; t++)
        kvg_ref_paged_store(&kv, single, KVG_REF_BF16, source + t * HEADS * DIM, HEADS * DIM, DIM, slots + t,
                            1, HEADS, DIM);
    assert_memory_equal(whole, single, N);
    free(source);
    free(whole);
    free(single);
}

/* A cache in the 16-bit format of the source keeps every bit, those of signalling NaNs and payloads
 * included. */
static void test_bits_are_kept(void **state)
{
    (void)state;
    uint16_t source[65536], cache[65536];
    int64_t slots[512];
    const float scale = 2; /* not used for 16-bit formats */
    for (int i = 0; i < 65536; i++)
        source[i] = (uint16_t)i;
    for (int64_t t = 0; t < 512; t++)
        slots[t] = t;
    for (int format = KVG_REF_F16; format <= KVG_REF_BF16; format++) {
        struct kvg_ref_kv kv = {.format = (enum kvg_ref_format)format,
                                .stride_block = 16 * 128,
                                .stride_slot = 128,
                                .stride_head = 128,
                                .block_size = 16,
                                .scale = &scale};
        memset(cache, 0, sizeof cache);
        kvg_ref_paged_store(&kv, cache, kv.format, source, 128, 128, slots, 512, 1, 128);
        assert_memory_equal(cache, source, sizeof cache);
    }
}

static void test_addresses(void **state)
{
    (void)state;
    const int32_t table[] = {5, 2147483647, 9, 0, 1, 2};
    struct kvg_ref_kv kv = {.stride_block = 1 << 20,
                            .stride_slot = 1024,
                            .stride_head = 128,
                            .block_size = 16,
                            .block_table = table,
                            .block_table_stride = 3};
    assert_int_equal(kvg_ref_kv_index(&kv, 0, 0, 0), 5ll << 20);
    assert_int_equal(kvg_ref_kv_index(&kv, 0, 31, 7), (2147483647ll << 20) + 15 * 1024 + 7 * 128);
    assert_int_equal(kvg_ref_kv_index(&kv, 1, 32, 1), (2ll << 20) + 128);
    kv.block_table = NULL;
    assert_int_equal(kvg_ref_kv_index(&kv, 3, 3000000, 2), (3ll << 20) + 3000000ll * 1024 + 2 * 128);
}

/* A slot beyond 2^31 elements. calloc reserves 3 GiB of addresses; only the pages that are touched take
 * memory. */
static void test_store_beyond_32_bits(void **state)
{
    (void)state;
    const int64_t far_slot = (3ll << 30) / 128;
    uint8_t *cache = calloc((size_t)(3ll << 30) + 4096, 1);
    if (!cache || getenv("KVG_TEST_SANITIZED")) {
        free(cache);
        skip();
    }
    float source[128];
    for (int d = 0; d < 128; d++)
        source[d] = (float)(d + 1);
    struct kvg_ref_kv kv = {.format = KVG_REF_E4M3,
                            .stride_block = 16 * 128,
                            .stride_slot = 128,
                            .stride_head = 128,
                            .block_size = 16};
    kvg_ref_paged_store(&kv, cache, KVG_REF_F32, source, 128, 128, &far_slot, 1, 1, 128);
    for (int d = 0; d < 128; d++)
        assert_int_equal(cache[(3ll << 30) + d], kvg_ref_fp8_encode(KVG_REF_E4M3, source[d]));
    free(cache);
}

static void test_rules(void **state)
{
    (void)state;
    assert_true(kvg_ref_scaled(KVG_REF_DIVIDE, 7, 3) == 7.0f / 3.0f);
    assert_true(kvg_ref_scaled(KVG_REF_RECIPROCAL, 7, 3) == 7.0f * (1.0f / 3.0f));
    /* The two rules differ at a tie. 1.0625 is midway between the codes of 1 and 1.125, and the tie goes to
     * 1. x = 1.0625 s is exact, so x / s is the tie itself; x (1 / s) may be just above it. */
    int parted = 0;
    for (int s = 3; s < 200; s += 2) {
        float x = 1.0625f * (float)s, scale = (float)s;
        uint8_t divided = kvg_ref_fp8_encode(KVG_REF_E4M3, kvg_ref_scaled(KVG_REF_DIVIDE, x, scale));
        uint8_t multiplied = kvg_ref_fp8_encode(KVG_REF_E4M3, kvg_ref_scaled(KVG_REF_RECIPROCAL, x, scale));
        assert_int_equal(divided, 0x38);
        parted += multiplied != divided;
        assert_true(multiplied == 0x38 || multiplied == 0x39);
    }
    assert_true(parted > 0);
}

static void test_quantize_q(void **state)
{
    (void)state;
    enum { TOKENS = 70, Q_HEADS = 6, KV_HEADS = 2, DIM = 96, N = TOKENS * Q_HEADS * DIM };
    static uint16_t q[N];
    static uint8_t codes[N];
    const float scale[KV_HEADS] = {0.37f, 41.0f};
    uint64_t seed = 11;
    int differ = 0;
    for (int i = 0; i < N; i++)
        q[i] = kvg_ref_bf16_encode(odd_value(&seed));
    for (int stride = 0; stride < 2; stride++)
        for (int rule = KVG_REF_DIVIDE; rule <= KVG_REF_RECIPROCAL; rule++) {
            kvg_ref_quantize_q(KVG_REF_E4M3, (enum kvg_ref_rule)rule, KVG_REF_BF16, q, TOKENS, Q_HEADS,
                               KV_HEADS, DIM, scale, stride, codes);
            for (int i = 0; i < N; i++) {
                float x = kvg_ref_bf16_decode(q[i]), s = scale[i / DIM % Q_HEADS / 3 * stride];
                volatile float quotient = x / s, inverse = 1.0f / s, product = x * inverse;
                float scaled = rule == KVG_REF_DIVIDE ? quotient : product;
                assert_int_equal(codes[i], kvg_ref_fp8_encode(KVG_REF_E4M3, scaled));
                differ += quotient != product;
            }
        }
    assert_true(differ > 0); /* otherwise these values do not distinguish the two rules */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store),         cmocka_unit_test(test_store_in_parallel),
        cmocka_unit_test(test_bits_are_kept), cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_rules),         cmocka_unit_test(test_store_beyond_32_bits),
        cmocka_unit_test(test_quantize_q),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
