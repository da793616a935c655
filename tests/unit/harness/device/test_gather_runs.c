/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gather_runs.c: the runs of a case contain exactly the bytes of the visible keys, each byte once. The
 * expected bytes come from the formula of struct kvg_pages (kernel.h), for every layout, with windows,
 * ragged and empty sequences.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/device/gather_runs.h"

enum { BATCH = 5, BLOCKS = 23, TABLE = 4 };

struct layout {
    enum kvg_dtype dtype;
    int64_t heads, head_dim, block_size, gap_slot, gap_head; /* elements between rows */
    int hnd, unit;
};

static struct kvg_pages pages_of(const struct layout *l)
{
    struct kvg_pages p = {.data = NULL};
    if (l->hnd) {
        p.stride_slot = l->head_dim + l->gap_slot;
        p.stride_head = l->block_size * p.stride_slot + l->gap_head;
        p.stride_block = l->heads * p.stride_head;
    } else {
        p.stride_head = l->head_dim + l->gap_head;
        p.stride_slot = l->heads * p.stride_head + l->gap_slot;
        p.stride_block = l->block_size * p.stride_slot;
    }
    return p;
}

/* Counts in seen[] how often each byte is needed, by the formula of struct kvg_pages. Returns the number of
 * bytes. */
static int64_t mark(const struct layout *l, const struct kvg_gather_shape *s, int64_t element,
                    unsigned char *seen)
{
    int64_t bytes = 0;
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t t = s->first_key[b]; t < s->seq_lens[b]; t++)
            for (int64_t h = 0; h < l->heads; h++)
                for (int64_t i = 0; i < l->head_dim * element; i++) {
                    const int64_t page = s->block_table[b * TABLE + t / l->block_size];
                    seen[(page * s->pages->stride_block + t % l->block_size * s->pages->stride_slot +
                          h * s->pages->stride_head) *
                             element +
                         i]++;
                    bytes++;
                }
    return bytes;
}

static void check(const struct layout *l, int64_t longest)
{
    const struct kvg_problem problem = {.kv_dtype = l->dtype,
                                        .batch = BATCH,
                                        .kv_heads = l->heads,
                                        .head_dim = l->head_dim,
                                        .block_size = l->block_size};
    const int32_t n = (int32_t)l->block_size;
    const int32_t lens[BATCH] = {4 * n, 0, n + 1, 3 * n - 1, 2 * n}, first[BATCH] = {0, 0, n, 3, 2 * n};
    const int64_t element = l->dtype == KVG_BF16 ? 2 : 1;
    const struct kvg_pages pages = pages_of(l);
    int32_t table[BATCH * TABLE];
    for (int i = 0; i < BATCH * TABLE; i++)
        table[i] = (i * 7 + 3) % BLOCKS;
    const struct kvg_gather_shape s = {&problem, &pages, table, TABLE, lens, first, l->unit};
    assert_int_equal(kvg_gather_unit(&problem, &pages, &pages), l->unit);
    const int64_t size = BLOCKS * pages.stride_block * element;
    unsigned char *wanted = calloc((size_t)size, 1), *got = calloc((size_t)size, 1);
    const int64_t bytes = mark(l, &s, element, wanted), count = kvg_gather_runs(&s, longest, NULL);
    uint64_t *runs = malloc((size_t)count * sizeof *runs);
    assert_non_null(runs);
    assert_int_equal(kvg_gather_bytes(&s), 2 * bytes);
    assert_int_equal(kvg_gather_runs(&s, longest, runs), count);
    for (int64_t i = 0; i < count; i++) {
        assert_in_range(KVG_RUN_LENGTH(runs[i]), 1, longest);
        assert_in_range((KVG_RUN_OFFSET(runs[i]) + KVG_RUN_LENGTH(runs[i])) * l->unit, 1, size);
        for (int64_t j = 0; j < KVG_RUN_LENGTH(runs[i]) * l->unit; j++)
            got[KVG_RUN_OFFSET(runs[i]) * l->unit + j]++;
    }
    assert_memory_equal(wanted, got, (size_t)size);
    free(runs);
    free(wanted);
    free(got);
}

static void test_runs_are_the_keys(void **state)
{
    static const struct layout layouts[] = {
        {KVG_E4M3, 8, 128, 16, 0, 0, 0, 16}, {KVG_E4M3, 8, 128, 16, 0, 0, 1, 16},
        {KVG_BF16, 2, 96, 8, 0, 0, 0, 16},   {KVG_BF16, 2, 96, 8, 0, 0, 1, 16},
        {KVG_E5M2, 3, 20, 24, 0, 0, 0, 4},   {KVG_E5M2, 3, 7, 8, 0, 0, 1, 1},
        {KVG_E4M3, 2, 64, 8, 16, 0, 0, 16},  {KVG_E4M3, 2, 64, 8, 0, 16, 0, 16},
        {KVG_E4M3, 2, 64, 8, 16, 0, 1, 16},  {KVG_E4M3, 2, 64, 8, 0, 4, 1, 4},
        {KVG_BF16, 1, 64, 32, 0, 0, 0, 16},  {KVG_E4M3, 1, 32, 8, 0, 0, 1, 16},
    };
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        check(&layouts[i], 1024);
        check(&layouts[i], 128);
        check(&layouts[i], 3);
    }
}

/* Contiguous bytes are one run: an NHD page or a whole HND page (16 KiB each), or the visible slots of one
 * head of a partly visible HND page. */
static void test_runs_are_long(void **state)
{
    const struct kvg_problem p = {
        .kv_dtype = KVG_E4M3, .batch = 1, .kv_heads = 8, .head_dim = 128, .block_size = 16};
    const struct kvg_pages nhd = {NULL, 16384, 1024, 128}, hnd = {NULL, 16384, 128, 2048};
    const int32_t table[3] = {5, 1, 2}, lens = 40, first = 0;
    struct kvg_gather_shape s = {&p, &nhd, table, 3, &lens, &first, 16};
    uint64_t runs[16];
    (void)state;
    assert_int_equal(kvg_gather_runs(&s, 1024, runs), 3);
    assert_int_equal(KVG_RUN_OFFSET(runs[0]), 5 * 1024);
    assert_int_equal(KVG_RUN_LENGTH(runs[0]), 1024);
    assert_int_equal(KVG_RUN_OFFSET(runs[2]), 2 * 1024);
    assert_int_equal(KVG_RUN_LENGTH(runs[2]), 512);
    s.pages = &hnd;
    assert_int_equal(kvg_gather_runs(&s, 1024, runs), 2 + 8);
    assert_int_equal(KVG_RUN_LENGTH(runs[1]), 1024);
    assert_int_equal(KVG_RUN_OFFSET(runs[9]), 2 * 1024 + 7 * 128);
    assert_int_equal(KVG_RUN_LENGTH(runs[9]), 64);
}

/* The bytes of 128k pages of 256 KiB need more than 32 bits. */
static void test_offsets_are_64_bit(void **state)
{
    const struct kvg_problem p = {
        .kv_dtype = KVG_BF16, .batch = 1, .kv_heads = 8, .head_dim = 128, .block_size = 128};
    const struct kvg_pages nhd = {NULL, 131072, 1024, 128};
    const int32_t table[1] = {131071}, lens = 1, first = 0;
    const struct kvg_gather_shape s = {&p, &nhd, table, 1, &lens, &first, 16};
    uint64_t run;
    (void)state;
    assert_int_equal(kvg_gather_runs(&s, 1024, &run), 1);
    assert_int_equal(KVG_RUN_OFFSET(run), INT64_C(131071) * 16384);
    assert_int_equal(KVG_RUN_LENGTH(run), 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_are_the_keys),
        cmocka_unit_test(test_runs_are_long),
        cmocka_unit_test(test_offsets_are_64_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
