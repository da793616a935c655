/* SPDX-License-Identifier: Apache-2.0
 *
 * test_permute.c: the exact reference on rearranged inputs gives the old output, rearranged, bit by bit. It
 * computes each row independently of the others. The maps are permutations, and every row of a cache is moved
 * exactly once, rows of free pages included.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "harness/prepare/permute.h"
#include "harness/prepare/prepare.h"

static struct kvg_case base_case(enum kvg_path path, enum kvg_layout layout, enum kvg_scheme scheme)
{
    struct kvg_case c;
    memset(&c, 0, sizeof c);
    strcpy(c.kernel, "best");
    strcpy(c.input, "normal");
    c.phase = KVG_PHASE_APPEND;
    c.path = path;
    c.kv_cache_dtype = path == KVG_PATH_FP8 ? KVG_CACHE_FP8_E4M3 : KVG_CACHE_FP8_E5M2;
    c.scheme = scheme;
    c.calibration = KVG_CALIBRATION_DATASET;
    c.layer = -1;
    c.batch = 5;
    c.q_len = 3;
    c.context = 150;
    c.q_heads = 6;
    c.kv_heads = 3;
    c.head_dim = 32;
    c.block_size = 16;
    c.layout = layout;
    c.lengths = KVG_LENGTHS_RAGGED;
    c.threads = 1;
    c.sinks = path == KVG_PATH_FP8 ? KVG_SINKS_LARGE : KVG_SINKS_NORMAL;
    c.seed = 11;
    return c;
}

static void prepare(const struct kvg_case *c, struct kvg_prepared *p)
{
    struct kvg_error error;
    if (kvg_prepared_make(c, NULL, p, &error))
        fail_msg("%s", error.text);
}

/* The exact reference on every row of the output. */
static void attend(const struct kvg_ref_attention *a, const struct kvg_prepared *p, const int32_t *cu_q_lens,
                   float *out, float *lse)
{
    struct kvg_ref_row *rows = malloc((size_t)(p->total_q * p->c.q_heads) * sizeof *rows);
    int64_t n = 0;
    assert_non_null(rows);
    for (int32_t b = 0; b < p->c.batch; b++)
        for (int32_t i = 0; i < cu_q_lens[b + 1] - cu_q_lens[b]; i++)
            for (int32_t h = 0; h < p->c.q_heads; h++)
                rows[n++] = (struct kvg_ref_row){b, i, h};
    assert_int_equal(n, p->total_q * p->c.q_heads);
    assert_int_equal(kvg_ref_attention_f32(a, rows, n, out, lse), 0);
    free(rows);
}

static int is_permutation(const int64_t *map, int64_t n)
{
    char *seen = calloc((size_t)n, 1);
    int64_t good = 0;
    assert_non_null(seen);
    for (int64_t i = 0; i < n; i++)
        good += map[i] >= 0 && map[i] < n && !seen[map[i]]++;
    free(seen);
    return good == n;
}

/* Number of rows of a cache that have the codes of `row`. */
static int64_t count_rows(const struct kvg_prepared *p, const uint8_t *cache, const uint8_t *row)
{
    int64_t count = 0;
    for (int64_t at = 0; at < p->cache_elements; at += p->c.head_dim)
        count += memcmp(cache + at, row, (size_t)p->c.head_dim) == 0;
    return count;
}

static void check(const struct kvg_case *c, enum kvg_rearrangement which)
{
    struct kvg_prepared p;
    struct kvg_permuted m;
    struct kvg_ref_attention a;
    prepare(c, &p);
    const int64_t cells = p.total_q * c->q_heads, n = cells * c->head_dim;
    float *buffer = malloc((size_t)(3 * n + 3 * cells) * sizeof *buffer);
    assert_non_null(buffer);
    float *out = buffer, *moved = out + n, *back = moved + n, *lse = back + n, *lse_moved = lse + cells,
          *lse_back = lse_moved + cells;
    assert_int_equal(kvg_permuted_make(&p, which, &m), 0);
    assert_true(is_permutation(m.row, p.total_q));
    assert_true(is_permutation(m.head, c->q_heads));

    kvg_prepared_dequantised(&p, &a);
    attend(&a, &p, p.cu_q_lens, out, lse);
    a.q = m.q;
    a.q_scale = a.q_scale ? m.q_scale : NULL;
    a.k.data = m.k_cache;
    a.v.data = m.v_cache;
    a.k.scale = m.k_scale;
    a.v.scale = m.v_scale;
    a.k.block_table = a.v.block_table = m.block_table;
    a.seq_lens = m.seq_lens;
    a.cu_q_lens = m.cu_q_lens;
    a.mask.prefix_lens = a.mask.prefix_lens ? m.prefix_lens : NULL;
    assert_non_null(a.sinks);
    a.sinks = m.sinks;
    attend(&a, &p, m.cu_q_lens, moved, lse_moved);
    kvg_permuted_restore(&p, &m, moved, c->head_dim * (int64_t)sizeof *moved, back);
    kvg_permuted_restore(&p, &m, lse_moved, (int64_t)sizeof *lse_moved, lse_back);
    assert_memory_equal(back, out, (size_t)n * sizeof *out);
    assert_memory_equal(lse_back, lse, (size_t)cells * sizeof *lse);

    /* Something was moved and nothing was lost: each row of codes occurs as often as before. */
    const int tables = memcmp(m.block_table, p.block_table,
                              (size_t)(c->batch * p.block_table_stride) * sizeof *m.block_table) != 0;
    const int caches = memcmp(m.k_cache, p.k_cache, (size_t)p.cache_elements) != 0;
    assert_int_equal(tables, which != KVG_MOVE_HEADS);
    assert_int_equal(caches, which != KVG_MOVE_SEQUENCES);
    for (int64_t at = 0; at < p.cache_elements; at += 37 * c->head_dim) {
        const uint8_t *k = (const uint8_t *)p.k_cache + at, *v = (const uint8_t *)p.v_cache + at;
        assert_int_equal(count_rows(&p, m.k_cache, k), count_rows(&p, p.k_cache, k));
        assert_int_equal(count_rows(&p, m.v_cache, v), count_rows(&p, p.v_cache, v));
    }
    free(buffer);
    kvg_permuted_free(&m);
    kvg_prepared_free(&p);
}

/* Prefixes move with their sequences. */
static void prefixes_move_with_their_sequences(void **state)
{
    static const enum kvg_rearrangement which[] = {KVG_MOVE_PAGES, KVG_MOVE_HEADS, KVG_MOVE_SEQUENCES};
    struct kvg_case c = base_case(KVG_PATH_DEQUANT, KVG_NHD, KVG_PER_HEAD);
    (void)state;
    c.phase = KVG_PHASE_PREFILL;
    c.context = c.q_len = 50;
    c.mask = KVG_MASK_PREFIX;
    c.prefix = 20;
    for (int w = 0; w < 3; w++)
        check(&c, which[w]);
}

static void rearranged_inputs_give_the_rearranged_output(void **state)
{
    static const enum kvg_rearrangement which[] = {KVG_MOVE_PAGES, KVG_MOVE_HEADS, KVG_MOVE_SEQUENCES};
    (void)state;
    for (int w = 0; w < 3; w++)
        for (int path = 0; path < 2; path++)
            for (int layout = 0; layout < 2; layout++)
                for (int scheme = 0; scheme < 2; scheme++) {
                    const struct kvg_case c =
                        base_case(path ? KVG_PATH_FP8 : KVG_PATH_DEQUANT, layout ? KVG_HND : KVG_NHD,
                                  scheme ? KVG_PER_HEAD : KVG_PER_TENSOR);
                    check(&c, which[w]);
                }
}

/* New numbers of heads, worked out by hand: 3 KV heads with 2 query heads each. */
static void maps_are_those_of_the_header(void **state)
{
    static const int64_t head[] = {3, 2, 5, 4, 1, 0};
    const struct kvg_case c = base_case(KVG_PATH_FP8, KVG_NHD, KVG_PER_HEAD);
    struct kvg_prepared p;
    struct kvg_permuted m;
    (void)state;
    prepare(&c, &p);
    assert_int_equal(kvg_permuted_make(&p, KVG_MOVE_HEADS, &m), 0);
    assert_memory_equal(m.head, head, sizeof head);
    for (int h = 0; h < 3; h++) {
        assert_true(m.k_scale[(h + 1) % 3] == p.k_scale[h]);
        assert_true(m.v_scale[(h + 1) % 3] == p.v_scale[h]);
        assert_true(m.q_scale[(h + 1) % 3] == p.q_scale[h]);
    }
    kvg_permuted_free(&m);
    assert_int_equal(kvg_permuted_make(&p, KVG_MOVE_PAGES, &m), 0);
    for (int64_t i = 0; i < c.batch * p.block_table_stride; i++)
        assert_int_equal(m.block_table[i], p.num_blocks - 1 - p.block_table[i]);
    kvg_permuted_free(&m);
    assert_int_equal(kvg_permuted_make(&p, KVG_MOVE_SEQUENCES, &m), 0);
    for (int64_t b = 0; b < c.batch; b++)
        assert_int_equal(m.seq_lens[b], p.seq_lens[c.batch - 1 - b]);
    assert_int_equal(m.cu_q_lens[c.batch], p.total_q);
    kvg_permuted_free(&m);
    kvg_prepared_free(&p);
}

static void one_of_a_kind_cannot_move(void **state)
{
    struct kvg_case c = base_case(KVG_PATH_DEQUANT, KVG_NHD, KVG_PER_TENSOR);
    struct kvg_prepared p;
    struct kvg_permuted m;
    (void)state;
    c.batch = c.q_heads = c.kv_heads = 1;
    c.lengths = KVG_LENGTHS_UNIFORM;
    prepare(&c, &p);
    assert_int_equal(kvg_permuted_make(&p, KVG_MOVE_SEQUENCES, &m), 1);
    assert_int_equal(kvg_permuted_make(&p, KVG_MOVE_HEADS, &m), 1);
    assert_int_equal(kvg_permuted_make(&p, KVG_MOVE_PAGES, &m), 0);
    kvg_permuted_free(&m);
    kvg_prepared_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rearranged_inputs_give_the_rearranged_output),
        cmocka_unit_test(maps_are_those_of_the_header),
        cmocka_unit_test(one_of_a_kind_cannot_move),
        cmocka_unit_test(prefixes_move_with_their_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
