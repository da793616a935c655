/* SPDX-License-Identifier: Apache-2.0
 *
 * test_views.c: the places of elements in the buffers that a kernel is given.
 *
 * For every kind of views and many shapes, each element of every tensor is marked in a map of its buffer. So
 * the test knows by itself which elements are gaps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/case/case.h"
#include "harness/prepare/prepare.h"
#include "harness/prepare/views.h"

enum { KINDS = KVG_VIEWS_HEAD_MAJOR + 1, SHAPES = 6 };

static const struct kvg_views_sizes shapes[SHAPES] = {
    {14, 2, 64, 16, 9, 11, 5, KVG_NHD, KVG_E4M3}, {14, 2, 64, 16, 9, 11, 5, KVG_HND, KVG_BF16},
    {4, 4, 80, 8, 3, 7, 4, KVG_NHD, KVG_BF16},    {4, 4, 80, 8, 3, 7, 4, KVG_HND, KVG_E5M2},
    {3, 1, 7, 24, 2, 5, 3, KVG_NHD, KVG_E4M3},    {3, 1, 20, 24, 2, 5, 3, KVG_HND, KVG_E4M3},
};

static unsigned char *new_map(int64_t elements)
{
    unsigned char *map = calloc((size_t)elements + 1, 1);
    assert_non_null(map);
    return map;
}

/* Marks the rows of a tensor; no element may be marked already or lie outside the buffer. */
static void mark_rows(unsigned char *map, const struct kvg_rows_view *v, int64_t tokens, int64_t heads,
                      int64_t dim)
{
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t d = 0; d < dim; d++) {
                const int64_t at = v->first + t * v->stride_token + h * v->stride_head + d;
                assert_in_range(at, 0, v->elements - 1);
                assert_int_equal(map[at]++, 0);
            }
}

static void mark_cache(unsigned char *map, const struct kvg_cache_view *v, const struct kvg_views_sizes *s)
{
    for (int64_t b = 0; b < s->num_blocks; b++)
        for (int64_t t = 0; t < s->block_size; t++)
            for (int64_t h = 0; h < s->kv_heads; h++)
                for (int64_t d = 0; d < s->head_dim; d++) {
                    const int64_t at =
                        v->first + b * v->stride_block + t * v->stride_slot + h * v->stride_head + d;
                    assert_in_range(at, 0, v->elements - 1);
                    assert_int_equal(map[at]++, 0);
                }
}

/* 16, or the largest power of two that divides the row's bytes: by counting, not as views.c computes it. */
static int64_t promised(int64_t row_bytes)
{
    for (int64_t a = 16; a > 1; a /= 2)
        if (row_bytes % a == 0)
            return a;
    return 1;
}

static void check_alignment(int64_t first, int64_t a, int64_t b, int64_t c, int64_t dim, int64_t bytes)
{
    const int64_t unit = promised(dim * bytes);
    assert_int_equal(kvg_row_alignment(dim, bytes), unit);
    assert_int_equal(first * bytes % unit | a * bytes % unit | b * bytes % unit | c * bytes % unit, 0);
}

static void no_two_elements_share_a_place(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            const struct kvg_views_sizes *s = &shapes[i];
            struct kvg_views v;
            kvg_views_make(kind, s, &v);
            unsigned char *q = new_map(v.q.elements), *q8 = new_map(v.q8.elements),
                          *out = new_map(v.out.elements), *lse = new_map(v.lse.elements),
                          *k = new_map(v.k.elements), *v_source = v.shared ? k : new_map(v.v.elements),
                          *k_cache = new_map(v.k_cache.elements),
                          *v_cache = v.shared ? k_cache : new_map(v.v_cache.elements);
            mark_rows(q, &v.q, s->total_q, s->q_heads, s->head_dim);
            mark_rows(q8, &v.q8, s->total_q, s->q_heads, s->head_dim);
            mark_rows(out, &v.out, s->total_q, s->q_heads, s->head_dim);
            mark_rows(lse, &v.lse, s->total_q, s->q_heads, 1);
            mark_rows(k, &v.k, s->store_tokens, s->kv_heads, s->head_dim);
            mark_rows(v_source, &v.v, s->store_tokens, s->kv_heads, s->head_dim);
            mark_cache(k_cache, &v.k_cache, s);
            mark_cache(v_cache, &v.v_cache, s);
            assert_int_equal(v.lse.stride_head, 1);
            free(q);
            free(q8);
            free(out);
            free(lse);
            free(k);
            free(k_cache);
            if (!v.shared) {
                free(v_source);
                free(v_cache);
            }
        }
}

static void rows_are_aligned_as_promised_and_no_more(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            const struct kvg_views_sizes *s = &shapes[i];
            const int64_t cache = s->kv_dtype == KVG_BF16 ? 2 : 1, d = s->head_dim;
            struct kvg_views v;
            kvg_views_make(kind, s, &v);
            check_alignment(v.q.first, v.q.stride_token, v.q.stride_head, 0, d, 2);
            check_alignment(v.q8.first, v.q8.stride_token, v.q8.stride_head, 0, d, 1);
            check_alignment(v.out.first, v.out.stride_token, v.out.stride_head, 0, d, 2);
            check_alignment(v.k.first, v.k.stride_token, v.k.stride_head, 0, d, 2);
            check_alignment(v.v.first, v.v.stride_token, v.v.stride_head, 0, d, 2);
            check_alignment(v.k_cache.first, v.k_cache.stride_block, v.k_cache.stride_slot,
                            v.k_cache.stride_head, d, cache);
            check_alignment(v.v_cache.first, v.v_cache.stride_block, v.v_cache.stride_slot,
                            v.v_cache.stride_head, d, cache);
            assert_int_equal(v.dense, kind == KVG_VIEWS_DENSE);
            if (v.dense)
                continue;
            /* buffers begin at multiples of 4096, so these tensors have no larger alignment */
            assert_int_equal(v.q.first * 2, promised(d * 2));
            assert_int_equal(v.k_cache.first * cache, promised(d * cache));
            assert_int_equal(v.lse.first, 1);
        }
}

/* What each kind is for: strides that a kernel which computes them from the shape gets wrong. */
static void strides_do_not_follow_from_the_shape(void **state)
{
    const struct kvg_views_sizes *s = &shapes[0]; /* 14/2 heads of 64, pages of 16 NHD */
    struct kvg_views v;
    (void)state;
    kvg_views_make(KVG_VIEWS_PADDED, s, &v);
    assert_true(v.q.stride_head > 64 && v.q.stride_token > 14 * v.q.stride_head);
    assert_true(v.k_cache.stride_head != v.v_cache.stride_head);
    assert_true(v.k_cache.stride_slot != v.v_cache.stride_slot);
    assert_true(v.k_cache.stride_block != v.v_cache.stride_block);
    assert_true(v.k.stride_token != v.v.stride_token && v.k.stride_head != v.v.stride_head);
    assert_true(v.out.stride_token != v.q.stride_token && v.lse.stride_token > 14);
    kvg_views_make(KVG_VIEWS_FUSED, s, &v);
    assert_int_equal(v.q.stride_token, (14 + 2 + 2) * 64);
    assert_int_equal(v.v.first - v.k.first, 2 * 64);
    assert_int_equal(v.v_cache.first - v.k_cache.first, 5 * 16 * 2 * 64); /* after all pages of K */
    kvg_views_make(KVG_VIEWS_PAIRED, s, &v);
    assert_int_equal(v.k_cache.stride_block, 2 * 16 * 2 * 64);
    assert_int_equal(v.v_cache.first - v.k_cache.first, 16 * 2 * 64); /* after one page of K */
    kvg_views_make(KVG_VIEWS_HEAD_MAJOR, s, &v);
    assert_int_equal(v.q.stride_head, 9 * 64);
    assert_int_equal(v.q.stride_token, 64);
    assert_int_equal(v.k_cache.stride_head, 5 * 16 * 64);
}

static void placed_rows_come_back(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        const struct kvg_views_sizes *s = &shapes[3];
        const int64_t n = s->total_q * s->q_heads * s->head_dim;
        struct kvg_views v;
        kvg_views_make(kind, s, &v);
        uint16_t *dense = calloc((size_t)n, 2), *back = calloc((size_t)n, 2),
                 *buffer = calloc((size_t)v.q.elements, 2);
        assert_true(dense && back && buffer);
        for (int64_t i = 0; i < n; i++)
            dense[i] = (uint16_t)(i + 1);
        kvg_rows_place(&v.q, s->total_q, s->q_heads, s->head_dim, 2, dense, buffer);
        const int64_t t = 2, h = 3, d = 5;
        assert_int_equal(buffer[v.q.first + t * v.q.stride_token + h * v.q.stride_head + d],
                         (t * 4 + h) * 80 + d + 1);
        kvg_rows_pick(&v.q, s->total_q, s->q_heads, s->head_dim, 2, buffer, back);
        assert_memory_equal(dense, back, (size_t)n * 2);
        free(dense);
        free(back);
        free(buffer);
    }
}

/* Every gap byte is watched, and no byte of an element is. */
static void written_gaps_are_found(void **state)
{
    enum { POISON = 0xff };
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        const struct kvg_views_sizes *s = &shapes[4];
        struct kvg_views v;
        kvg_views_make(kind, s, &v);
        unsigned char *map = new_map(v.out.elements), *buffer = malloc((size_t)v.out.elements * 2);
        assert_non_null(buffer);
        mark_rows(map, &v.out, s->total_q, s->q_heads, s->head_dim);
        for (int64_t i = 0; i < 2 * v.out.elements; i++) {
            memset(buffer, POISON, (size_t)v.out.elements * 2);
            buffer[i] = 0;
            assert_int_equal(
                kvg_rows_gap_written(&v.out, s->total_q, s->q_heads, s->head_dim, 2, POISON, buffer),
                map[i / 2] ? -1 : i);
        }
        free(map);
        free(buffer);
    }
}

static void written_gaps_of_caches_are_found(void **state)
{
    enum { POISON = 0x7f };
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        const struct kvg_views_sizes *s = &shapes[4];
        struct kvg_views v;
        kvg_views_make(kind, s, &v);
        unsigned char *map[2] = {NULL}, *buffer[2] = {NULL};
        const struct kvg_cache_view *views[2] = {&v.k_cache, &v.v_cache};
        for (int t = 0; t < 2; t++) {
            map[t] = t && v.shared ? map[0] : new_map(views[t]->elements);
            mark_cache(map[t], views[t], s);
            buffer[t] = t && v.shared ? buffer[0] : malloc((size_t)views[t]->elements);
            assert_non_null(buffer[t]);
        }
        for (int t = 0; t < (v.shared ? 1 : 2); t++)
            for (int64_t i = 0; i < views[t]->elements; i++) {
                int is_v = -1;
                for (int u = 0; u < 2; u++)
                    memset(buffer[u], POISON, (size_t)views[u]->elements);
                buffer[t][i] = 0;
                assert_int_equal(kvg_caches_gap_written(&v, s, 1, POISON, buffer[0], buffer[1], &is_v),
                                 map[t][i] ? -1 : i);
                if (!map[t][i])
                    assert_int_equal(is_v, t);
            }
        for (int t = 0; t < (v.shared ? 1 : 2); t++) {
            free(map[t]);
            free(buffer[t]);
        }
    }
}

/* ------------------------------------------------------------------------------------------ prepared
 * cases */

static void prepare_text(const char *text, struct kvg_prepared *p)
{
    struct kvg_case c;
    struct kvg_error error;
    if (kvg_case_parse(text, &c, &error) || kvg_case_complete(&c, &error) ||
        kvg_prepared_make(&c, NULL, p, &error))
        fail_msg("%s: %s", text, error.text);
}

/* The kernel's cache holds the codes of the dense one, and NaN everywhere else. */
static void shown_caches_hold_the_same_codes(void **state)
{
    static const char *const words[] = {"padded", "fused", "paired", "head_major"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        char text[200];
        struct kvg_prepared p;
        snprintf(text, sizeof text,
                 "kernel=cpu/none phase=decode context=40 batch=2 heads=4/2 head_dim=16 views=%s", words[i]);
        prepare_text(text, &p);
        const struct kvg_pages pages[2] = {kvg_prepared_pages(&p, 0, p.shown.k_cache),
                                           kvg_prepared_pages(&p, 1, p.shown.v_cache)};
        const uint8_t *dense[2] = {p.k_cache, p.v_cache};
        int64_t number = 0, nan = 0;
        for (int t = 0; t < 2; t++)
            for (int64_t b = 0; b < p.num_blocks; b++)
                for (int64_t s = 0; s < 16; s++)
                    for (int64_t h = 0; h < 2; h++)
                        for (int64_t d = 0; d < 16; d++) {
                            const int64_t at = b * pages[t].stride_block + s * pages[t].stride_slot +
                                               h * pages[t].stride_head + d;
                            const uint8_t code = ((const uint8_t *)pages[t].data)[at];
                            assert_int_equal(code, dense[t][((b * 16 + s) * 2 + h) * 16 + d]);
                            number += (code & 0x7f) != 0x7f;
                        }
        assert_int_equal(number, 2 * 2 * 40 * 2 * 16); /* K and V of two sequences */
        for (int t = 0; t < (p.views.shared ? 1 : 2); t++) {
            const uint8_t *buffer = t ? p.shown.v_cache : p.shown.k_cache;
            const int64_t n = t ? p.views.v_cache.elements : p.views.k_cache.elements;
            for (int64_t j = 0; j < n; j++)
                nan += (buffer[j] & 0x7f) != 0x7f;
        }
        assert_int_equal(nan, number); /* no code outside the places of elements */
        kvg_prepared_free(&p);
    }
}

static void gaps_have_empty_sequences_and_no_new_tokens(void **state)
{
    struct kvg_prepared p;
    (void)state;
    prepare_text(
        "kernel=cpu/none phase=append q_len=5 context=300 batch=8 heads=2/1 head_dim=16 lengths=gaps", &p);
    assert_int_equal(p.seq_lens[0], 0);
    assert_int_equal(p.seq_lens[4], 0);
    assert_int_equal(p.seq_lens[7], 0);
    assert_int_equal(p.seq_lens[2], 300);
    assert_true(p.cu_q_lens[1] > p.cu_q_lens[0]); /* a query without a key */
    assert_int_equal(p.cu_q_lens[2], p.cu_q_lens[1]);
    assert_true(p.seq_lens[1] > 0); /* keys without a query */
    assert_int_equal(p.cu_q_lens[8], p.cu_q_lens[7]);
    for (int i = 3; i < 7; i++)
        assert_true(!p.seq_lens[i] || (p.seq_lens[i] % 2 && p.seq_lens[i] % 3 && p.seq_lens[i] % 5));
    assert_int_equal(p.problem.max_q_len, 5); /* of sequence 3 or 6 */
    assert_int_equal(p.problem.max_seq_len, 300);
    assert_int_equal(p.problem.total_q, p.cu_q_lens[8]);
    kvg_prepared_free(&p);
}

static void slots_of_a_store_with_gaps_are_in_no_order(void **state)
{
    struct kvg_prepared p;
    int64_t falls = 0, minus_one = 0, below = 0, stored = 0;
    (void)state;
    prepare_text("kernel=cpu/none phase=store context=200 batch=4 heads=2/1 head_dim=16 lengths=gaps", &p);
    char *taken = calloc((size_t)(p.num_blocks * 16), 1);
    assert_non_null(taken);
    for (int64_t i = 0; i < p.total_kv; i++) {
        const int64_t slot = p.slot_mapping[i];
        falls += i > 0 && slot >= 0 && p.slot_mapping[i - 1] > slot;
        minus_one += slot == -1;
        below += slot < -1;
        stored += slot >= 0;
        if (slot >= 0) {
            assert_in_range(slot, 0, p.num_blocks * 16 - 1);
            assert_int_equal(taken[slot]++, 0);
        }
    }
    assert_true(falls > stored / 4 && minus_one > 0 && below > minus_one && stored > p.total_kv / 2);
    free(taken);
    kvg_prepared_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_elements_share_a_place),
        cmocka_unit_test(rows_are_aligned_as_promised_and_no_more),
        cmocka_unit_test(strides_do_not_follow_from_the_shape),
        cmocka_unit_test(placed_rows_come_back),
        cmocka_unit_test(written_gaps_are_found),
        cmocka_unit_test(written_gaps_of_caches_are_found),
        cmocka_unit_test(shown_caches_hold_the_same_codes),
        cmocka_unit_test(gaps_have_empty_sequences_and_no_new_tokens),
        cmocka_unit_test(slots_of_a_store_with_gaps_are_in_no_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
