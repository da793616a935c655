/* SPDX-License-Identifier: Apache-2.0
 *
 * test_prepare_renew.c: damage to the buffers of a prepared case is found, and a renewal changes exactly what
 * prepare.h says.
 */
#include "harness/memory/guard.h"
#include "tests/unit/prepare_fixture.h"

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
    kvg_prepared_free(&p); /* a second time is allowed */
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
    /* The lengths are rotated by one sequence. Every page has one owner again, and most have a new one. */
    int64_t moved = 0, owned = 0;
    char *owner = calloc((size_t)p.num_blocks, 1);
    for (int64_t i = 0; i < c.batch; i++) {
        assert_int_equal(p.seq_lens[i], lengths[(i + 1) % c.batch]);
        assert_int_equal(p.cu_q_lens[i], i); /* in decode an empty sequence has a query, too */
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
    /* The values are those of seed 99: sequence 0 of the case with that seed begins with the same values. */
    c.seed = 99;
    prepare(&c, &fresh);
    size_t row = (size_t)(c.kv_heads * c.head_dim) * 2;
    assert_memory_equal(p.k, fresh.k, (size_t)p.seq_lens[0] * row);
    assert_memory_equal(p.v, fresh.v, (size_t)p.seq_lens[0] * row);
    assert_memory_equal(p.v_scale, fresh.v_scale, 4 * sizeof(float));
    /* Back to the first values. */
    assert_int_equal(kvg_prepared_renew(&p, 7, &error), 0);
    assert_memory_equal(p.k_cache, before, bytes);
    assert_memory_equal(p.block_table, pages, table);
    assert_memory_equal(p.seq_lens, lengths, sizeof lengths);
    free(before);
    free(pages);
    kvg_prepared_free(&p);
    kvg_prepared_free(&fresh);
}

/* Prefixes of P = 9 in a batch of 6: P, half of it, none, all keys but one, 3 keys more than the sequence has, and
 * from the sixth sequence on the same again. A renewal rotates them with the lengths. */
static void test_prefixes(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    struct kvg_prepared p;
    struct kvg_error error = {0};
    prepare(&c, &p);
    assert_null(p.prefix_lens);
    assert_null(kvg_prepared_mask(&p).prefix_lens);
    kvg_prepared_free(&p);
    c.mask = KVG_MASK_PREFIX;
    c.prefix = 9;
    prepare(&c, &p);
    assert_int_equal(c.batch, 6);
    const int32_t n3 = p.seq_lens[3], n4 = p.seq_lens[4];
    const int32_t want[6] = {9, 4, 0, n3 > 0 ? n3 - 1 : 0, n4 + 3, 9};
    assert_memory_equal(p.prefix_lens, want, sizeof want);
    assert_ptr_equal(kvg_prepared_mask(&p).prefix_lens, p.prefix_lens);
    assert_int_equal(kvg_prepared_renew(&p, 99, &error), 0);
    for (int64_t i = 0; i < 6; i++)
        assert_int_equal(p.prefix_lens[i], want[(i + 1) % 6]);
    assert_int_equal(kvg_prepared_check(&p, &error), 0);
    p.prefix_lens[5]++;
    assert_int_equal(kvg_prepared_check(&p, &error), -1);
    assert_non_null(strstr(error.text, "prefix_lens"));
    kvg_prepared_free(&p);
}

/* ---------------------------------------------------------------------------------------- sinks */

static void test_sinks(void **state)
{
    (void)state;
    struct kvg_case c = small_case();
    struct kvg_prepared p, fresh;
    struct kvg_error error = {0};
    float before[8];
    prepare(&c, &p);
    assert_null(p.sinks);
    assert_true(p.problem.features == 0);
    assert_true(kvg_prepared_empty_lse(&p, 3) == -INFINITY);
    kvg_prepared_free(&p);
    c.sinks = KVG_SINKS_NORMAL;
    prepare(&c, &p);
    assert_true(p.problem.features == KVG_FEATURE_SINKS);
    memcpy(before, p.sinks, sizeof before);
    for (int i = 0; i < 8; i++) {
        assert_true(fabsf(p.sinks[i]) < 6.3f);
        assert_true(kvg_prepared_empty_lse(&p, i) == (double)p.sinks[i]);
        for (int j = 0; j < i; j++)
            assert_true(p.sinks[i] != p.sinks[j]);
    }
    expect_damage(&p, (unsigned char *)p.sinks + 5, "sinks", "was changed");
    expect_damage(&p, (unsigned char *)(p.sinks + 8), "sinks", "0 bytes past its end");
    /* The sinks of another seed, and the first ones again. */
    c.seed = 99;
    prepare(&c, &fresh);
    assert_int_equal(kvg_prepared_renew(&p, 99, &error), 0);
    assert_memory_equal(p.sinks, fresh.sinks, sizeof before);
    assert_memory_not_equal(p.sinks, before, sizeof before);
    assert_int_equal(kvg_prepared_check(&p, &error), 0);
    assert_int_equal(kvg_prepared_renew(&p, 7, &error), 0);
    assert_memory_equal(p.sinks, before, sizeof before);
    kvg_prepared_free(&fresh);
    kvg_prepared_free(&p);
    /* Large sinks are 8 times as far from the 8 (or -8) as the normal ones are from 0. */
    c.seed = 7;
    c.sinks = KVG_SINKS_LARGE;
    prepare(&c, &p);
    for (int i = 0; i < 8; i++)
        assert_true(p.sinks[i] == (i % 2 ? -1.0f : 1.0f) * (8.0f + 8.0f * fabsf(before[i])));
    kvg_prepared_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guards),
        cmocka_unit_test(test_renew),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_sinks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
