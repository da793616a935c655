/* SPDX-License-Identifier: Apache-2.0
 *
 * test_places.c: places of elements under wrong strides. What a kernel leaves in an output is found here by
 * writing the numbers of all elements, in order, to a buffer.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "harness/diagnose/places.h"
#include "harness/prepare/prepare.h"

static const enum kvg_views_kind kinds[] = {KVG_VIEWS_DENSE, KVG_VIEWS_PADDED, KVG_VIEWS_FUSED,
                                            KVG_VIEWS_PAIRED, KVG_VIEWS_HEAD_MAJOR};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void prepare(enum kvg_views_kind views, enum kvg_path path, struct kvg_prepared *p)
{
    struct kvg_case c;
    struct kvg_error error = {0};
    kvg_case_default(&c);
    strcpy(c.input, "normal");
    c.phase = KVG_PHASE_APPEND;
    c.path = path;
    c.batch = 3;
    c.q_len = 3;
    c.context = 40;
    c.q_heads = 6;
    c.kv_heads = 2;
    c.head_dim = 16;
    c.lengths = KVG_LENGTHS_GAPS;
    c.views = views;
    c.threads = 1;
    if (kvg_prepared_make(&c, NULL, p, &error) != 0)
        fail_msg("%s", error.text);
}

/* The strides that a supposition takes for `out`, written down here once more. */
static struct kvg_rows_view taken_by(const struct kvg_prepared *p, enum kvg_supposition what)
{
    struct kvg_rows_view v = p->views.out;
    const int64_t dim = p->problem.head_dim;
    switch ((int)what) {
    case KVG_SUPPOSE_OUT_STRIDES_OF_SHAPE:
        v.stride_token = 6 * dim;
        v.stride_head = dim;
        break;
    case KVG_SUPPOSE_OUT_TOKEN_STRIDE_OF_SHAPE:
        v.stride_token = 6 * dim;
        break;
    case KVG_SUPPOSE_OUT_HEAD_STRIDE_OF_SHAPE:
        v.stride_head = dim;
        break;
    case KVG_SUPPOSE_OUT_STRIDES_OF_Q:
        v.stride_token = (p->q8 ? p->views.q8 : p->views.q).stride_token;
        v.stride_head = (p->q8 ? p->views.q8 : p->views.q).stride_head;
        break;
    default:
        break;
    }
    return v;
}

/* Writes the number of each element, plus 1, to its place. Places outside the buffer are left out. */
static int64_t *written(const struct kvg_prepared *p, const struct kvg_rows_view *v, int64_t dims,
                        int64_t elements)
{
    int64_t *buffer = calloc((size_t)elements, sizeof *buffer);
    assert_non_null(buffer);
    for (int64_t t = 0; t < p->total_q; t++)
        for (int64_t h = 0; h < 6; h++)
            for (int64_t d = 0; d < dims; d++) {
                const int64_t at = v->first + t * v->stride_token + h * v->stride_head + d;
                if (at < elements)
                    buffer[at] = (t * 6 + h) * dims + d + 1;
            }
    return buffer;
}

static int64_t number_of(const struct kvg_element *e, int64_t dims)
{
    return e->token < 0 ? 0 : (e->token * 6 + e->head) * dims + e->dim + 1;
}

static void outputs(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int path = KVG_PATH_DEQUANT; path <= KVG_PATH_FP8; path++)
            for (int w = KVG_SUPPOSE_OUT_STRIDES_OF_SHAPE; w <= KVG_SUPPOSE_OUT_STRIDES_OF_Q; w++) {
                struct kvg_prepared p;
                prepare(kinds[kind], (enum kvg_path)path, &p);
                const enum kvg_supposition what = (enum kvg_supposition)w;
                const struct kvg_rows_view taken = taken_by(&p, what), *right = &p.views.out;
                const int64_t dim = p.problem.head_dim;
                int64_t *buffer = written(&p, &taken, dim, right->elements);
                for (int64_t i = 0; i < p.total_q * 6 * dim; i++) {
                    const struct kvg_element place = {i / dim / 6, i / dim % 6, i % dim};
                    const struct kvg_element e = kvg_element_in_out(&p, what, &place);
                    const int64_t at = right->first + place.token * right->stride_token +
                                       place.head * right->stride_head + place.dim;
                    assert_int_equal(number_of(&e, dim), buffer[at]);
                }
                free(buffer);
                kvg_prepared_free(&p);
            }
}

static void lse(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct kvg_prepared p;
        prepare(kinds[kind], KVG_PATH_DEQUANT, &p);
        struct kvg_rows_view taken = p.views.lse;
        taken.stride_token = 6;
        int64_t *buffer = written(&p, &taken, 1, p.views.lse.elements);
        for (int64_t i = 0; i < p.total_q * 6; i++) {
            const struct kvg_element place = {i / 6, i % 6, 0};
            const struct kvg_element e = kvg_element_in_lse(&p, KVG_SUPPOSE_LSE_STRIDE_OF_SHAPE, &place);
            assert_int_equal(number_of(&e, 1),
                             buffer[p.views.lse.first + place.token * p.views.lse.stride_token + place.head]);
        }
        free(buffer);
        kvg_prepared_free(&p);
    }
}

/* Without a fault every place holds what the dense tensor holds. */
static void right_places(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct kvg_prepared p;
        prepare(kinds[kind], KVG_PATH_FP8, &p);
        const int64_t dim = p.problem.head_dim, size = p.problem.block_size;
        for (int64_t row = 0; row < p.total_q * 6; row++) {
            const struct kvg_place q = kvg_place_of_query(&p, KVG_SUPPOSE_RIGHT, row / 6, row % 6);
            assert_true(q.at >= 0);
            assert_memory_equal((const uint8_t *)q.buffer + q.at, p.q8 + row * dim, dim);
        }
        for (int64_t i = 0; i < p.num_blocks * size * 2; i++)
            for (int is_v = 0; is_v < 2; is_v++) {
                const int64_t page = i / 2 / size, slot = i / 2 % size, head = i % 2;
                const struct kvg_pages *pages = is_v ? &p.v_pages : &p.k_pages;
                const struct kvg_place at = kvg_place_of_key(&p, KVG_SUPPOSE_RIGHT, is_v, page, slot, head);
                assert_true(at.at >= 0);
                assert_memory_equal((const uint8_t *)at.buffer + at.at,
                                    (const uint8_t *)pages->data + page * pages->stride_block +
                                        slot * pages->stride_slot + head * pages->stride_head,
                                    dim);
            }
        kvg_prepared_free(&p);
    }
}

/* Page 1, slot 2, head 1 of a cache of 16 slots, 2 heads and 16 dims in NHD: 1 * 512 + 2 * 32 + 16 elements
 * behind the first, if the strides are computed from the shape. */
static void wrong_places(void **state)
{
    (void)state;
    struct kvg_prepared p;
    prepare(KVG_VIEWS_PADDED, KVG_PATH_DEQUANT, &p);
    const struct kvg_cache_view *k = &p.views.k_cache, *v = &p.views.v_cache;
    struct kvg_place at = kvg_place_of_key(&p, KVG_SUPPOSE_CACHE_STRIDES_OF_SHAPE, 0, 1, 2, 1);
    assert_ptr_equal(at.buffer, p.shown.k_cache);
    assert_int_equal(at.at, k->first + 512 + 64 + 16);
    at = kvg_place_of_key(&p, KVG_SUPPOSE_V_STRIDES_OF_K, 1, 1, 2, 1);
    assert_ptr_equal(at.buffer, p.shown.v_cache);
    assert_int_equal(at.at, v->first + k->stride_block + 2 * k->stride_slot + k->stride_head);
    assert_true(k->stride_block != v->stride_block && k->stride_slot != v->stride_slot);
    at = kvg_place_of_query(&p, KVG_SUPPOSE_Q_STRIDES_OF_SHAPE, 2, 3);
    assert_int_equal(at.at, p.views.q.first + 2 * 96 + 3 * 16);
    at = kvg_place_of_key(&p, KVG_SUPPOSE_RIGHT, 0, p.num_blocks, 0, 0);
    assert_int_equal(at.at, -1); /* behind the cache */
    kvg_prepared_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(outputs), cmocka_unit_test(lse),
                                       cmocka_unit_test(right_places), cmocka_unit_test(wrong_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
