/* SPDX-License-Identifier: Apache-2.0
 *
 * places.c: see places.h. `is(id)` is true for the tried supposition.
 */
#include "places.h"

#define is(id) (what == KVG_SUPPOSE_##id)
#define WIDE_LOAD 32 /* bytes: more than kernel.h promises as alignment */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Elements by which an address lies behind the last multiple of WIDE_LOAD. */
static int64_t behind_multiple(const void *buffer, int64_t first, int64_t bytes)
{
    return (int64_t)(((uintptr_t)buffer + (uintptr_t)(first * bytes)) % WIDE_LOAD) / bytes;
}

/* ---------------------------------------------------------------- inputs */

struct kvg_place kvg_place_of_query(const struct kvg_prepared *p, enum kvg_supposition what, int64_t token,
                                    int64_t head)
{
    struct kvg_rows_view view = p->q8 ? p->views.q8 : p->views.q;
    const int64_t bytes = p->q8 ? 1 : 2, dim = p->problem.head_dim;
    const void *shown = p->q8 ? p->shown.q8 : p->shown.q, *dense = p->q8 ? (const void *)p->q8 : p->q;
    struct kvg_place place = {p->views.dense ? dense : shown, 0};
    if (is(Q_TOKEN_STRIDE_OF_SHAPE) || is(Q_STRIDES_OF_SHAPE))
        view.stride_token = p->problem.q_heads * dim;
    if (is(Q_HEAD_STRIDE_OF_SHAPE) || is(Q_STRIDES_OF_SHAPE))
        view.stride_head = dim;
    place.at = view.first + token * view.stride_token + head * view.stride_head;
    if (is(Q_ALIGNED))
        place.at -= behind_multiple(place.buffer, view.first, bytes);
    if (place.at < 0 || place.at + dim > view.elements)
        place.at = -1;
    return place;
}

/* The strides of a cache as a kernel takes them. */
static struct kvg_cache_view cache_view(const struct kvg_prepared *p, enum kvg_supposition what, int is_v)
{
    const struct kvg_cache_view *own = is_v ? &p->views.v_cache : &p->views.k_cache, *k = &p->views.k_cache;
    const int64_t size = p->problem.block_size, dim = p->problem.head_dim, row = p->problem.kv_heads * dim;
    const int nhd = (p->problem.layout == KVG_NHD) != is(OTHER_LAYOUT);
    const int all = is(CACHE_STRIDES_OF_SHAPE), inner = all || is(INNER_STRIDES_OF_SHAPE) || is(OTHER_LAYOUT);
    struct kvg_cache_view view = *own;
    if (is_v && (is(V_PAGE_STRIDE_OF_K) || is(V_STRIDES_OF_K)))
        view.stride_block = k->stride_block;
    if (is_v && is(V_STRIDES_OF_K)) {
        view.stride_slot = k->stride_slot;
        view.stride_head = k->stride_head;
    }
    if (is_v && is(V_BEHIND_K))
        view.first = k->first + p->num_blocks * k->stride_block;
    if (all || is(PAGE_STRIDE_OF_SHAPE))
        view.stride_block = size * row;
    if (inner || is(SLOT_STRIDE_OF_SHAPE))
        view.stride_slot = nhd ? row : dim;
    if (inner || is(HEAD_STRIDE_OF_SHAPE))
        view.stride_head = nhd ? dim : size * dim;
    return view;
}

struct kvg_place kvg_place_of_key(const struct kvg_prepared *p, enum kvg_supposition what, int is_v,
                                  int64_t page, int64_t slot, int64_t head)
{
    const struct kvg_cache_view view = cache_view(p, what, is_v);
    const int from_k = !is_v || is(V_BEHIND_K);
    const void *dense = from_k ? p->k_pages.data : p->v_pages.data,
               *shown = from_k ? p->shown.k_cache : p->shown.v_cache;
    struct kvg_place place = {p->views.dense ? dense : shown, 0};
    int64_t offset = page * view.stride_block;
    if (is(OFFSET_16_BITS))
        offset = (int64_t)(uint16_t)offset;
    place.at = view.first + offset + slot * view.stride_slot + head * view.stride_head;
    if (is(CACHES_ALIGNED))
        place.at -= behind_multiple(place.buffer, view.first, kvg_dtype_bytes(p->problem.kv_dtype));
    if (place.at < 0 || place.at + p->problem.head_dim > view.elements)
        place.at = -1;
    return place;
}

/* ---------------------------------------------------------------- outputs */

/* The last element that strides `taken` put to the place of an element under strides `right`. */
static struct kvg_element last_written(const struct kvg_rows_view *right, const struct kvg_rows_view *taken,
                                       const struct kvg_prepared *p, int64_t dims,
                                       const struct kvg_element *place)
{
    const int64_t heads = p->problem.q_heads;
    const int64_t offset = place->token * right->stride_token + place->head * right->stride_head + place->dim;
    const int64_t row = (heads - 1) * taken->stride_head + dims;
    for (int64_t t = least(p->total_q - 1, offset / taken->stride_token);
         t >= 0 && offset - t * taken->stride_token < row; t--) {
        const int64_t rest = offset - t * taken->stride_token;
        const int64_t head = least(heads - 1, rest / taken->stride_head);
        if (rest - head * taken->stride_head < dims)
            return (struct kvg_element){t, head, rest - head * taken->stride_head};
    }
    return (struct kvg_element){-1, -1, -1};
}

struct kvg_element kvg_element_in_out(const struct kvg_prepared *p, enum kvg_supposition what,
                                      const struct kvg_element *place)
{
    const int64_t dim = p->problem.head_dim;
    struct kvg_rows_view taken = p->views.out;
    if (is(OUT_TOKEN_STRIDE_OF_SHAPE) || is(OUT_STRIDES_OF_SHAPE))
        taken.stride_token = p->problem.q_heads * dim;
    if (is(OUT_HEAD_STRIDE_OF_SHAPE) || is(OUT_STRIDES_OF_SHAPE))
        taken.stride_head = dim;
    if (is(OUT_STRIDES_OF_Q)) {
        const struct kvg_rows_view *q = p->q8 ? &p->views.q8 : &p->views.q;
        taken.stride_token = q->stride_token;
        taken.stride_head = q->stride_head;
    }
    return last_written(&p->views.out, &taken, p, dim, place);
}

struct kvg_element kvg_element_in_lse(const struct kvg_prepared *p, enum kvg_supposition what,
                                      const struct kvg_element *place)
{
    struct kvg_rows_view taken = p->views.lse;
    if (is(LSE_STRIDE_OF_SHAPE))
        taken.stride_token = p->problem.q_heads;
    return last_written(&p->views.lse, &taken, p, 1, place);
}
