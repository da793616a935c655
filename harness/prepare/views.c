/* SPDX-License-Identifier: Apache-2.0
 *
 * views.c: the strides of each kind of views, and copies between dense tensors and views.
 */
#include "views.h"

#include <stdlib.h>
#include <string.h>

#include "dtypes.h"
#include "harness/case/case.h"

#define MOST_ALIGNED 16 /* bytes: a vector register, and the unit of Hopper's bulk copies */

int64_t kvg_row_alignment(int64_t head_dim, int64_t element_bytes)
{
    const int64_t row = head_dim * element_bytes, power = row & -row; /* largest power of two in it */
    return power < MOST_ALIGNED ? power : MOST_ALIGNED;
}

/* The smallest gap, in elements, that keeps rows aligned as kernel.h promises. */
static int64_t unit_of(int64_t head_dim, int64_t bytes)
{
    return kvg_row_alignment(head_dim, bytes) / bytes;
}

/* Rows with gaps of `head` and `token` elements after each head and each token. */
static struct kvg_rows_view rows(int64_t first, int64_t tokens, int64_t heads, int64_t dim, int64_t head,
                                 int64_t token)
{
    const int64_t stride_head = dim + head, stride_token = heads * stride_head + token;
    return (struct kvg_rows_view){first, stride_token, stride_head, first + tokens * stride_token};
}

static struct kvg_rows_view head_major_rows(int64_t first, int64_t tokens, int64_t heads, int64_t dim)
{
    return (struct kvg_rows_view){first, dim, tokens * dim, first + tokens * heads * dim};
}

/* A cache with gaps of `gap` elements after each slot row of a head, and other gaps after slots, heads and
 * pages. */
static struct kvg_cache_view cache(const struct kvg_views_sizes *s, int64_t first, int64_t gap)
{
    struct kvg_cache_view c = {.first = first};
    const int64_t row = s->head_dim + gap;
    if (s->layout == KVG_NHD) {
        c.stride_head = row;
        c.stride_slot = s->kv_heads * row + 3 * gap;
        c.stride_block = s->block_size * c.stride_slot + gap;
    } else {
        c.stride_slot = row;
        c.stride_head = s->block_size * row + 3 * gap;
        c.stride_block = s->kv_heads * c.stride_head + gap;
    }
    c.elements = first + s->num_blocks * c.stride_block;
    return c;
}

static void make_dense(const struct kvg_views_sizes *s, struct kvg_views *v)
{
    v->dense = 1;
    v->q = v->q8 = v->out = rows(0, s->total_q, s->q_heads, s->head_dim, 0, 0);
    v->lse = rows(0, s->total_q, s->q_heads, 1, 0, 0);
    v->k = v->v = rows(0, s->store_tokens, s->kv_heads, s->head_dim, 0, 0);
    v->k_cache = v->v_cache = cache(s, 0, 0);
}

static void make_padded(const struct kvg_views_sizes *s, int64_t u16, int64_t u8, int64_t u_cache,
                        struct kvg_views *v)
{
    v->q = rows(u16, s->total_q, s->q_heads, s->head_dim, u16, 2 * u16);
    v->q8 = rows(u8, s->total_q, s->q_heads, s->head_dim, 2 * u8, u8);
    v->out = rows(u16, s->total_q, s->q_heads, s->head_dim, 2 * u16, 5 * u16);
    v->lse = rows(1, s->total_q, s->q_heads, 1, 0, 3);
    v->k = rows(u16, s->store_tokens, s->kv_heads, s->head_dim, u16, 3 * u16);
    v->v = rows(u16, s->store_tokens, s->kv_heads, s->head_dim, 3 * u16, u16);
    v->k_cache = cache(s, u_cache, u_cache);
    v->v_cache = cache(s, u_cache, 2 * u_cache);
}

/* The offset, in heads, of K and V behind Q in a row of the fused tensor. */
static void make_fused(const struct kvg_views_sizes *s, int64_t u16, int64_t u8, int64_t u_cache,
                       struct kvg_views *v)
{
    const int64_t others = 2 * s->kv_heads * s->head_dim, own = s->q_heads * s->head_dim;
    v->shared = 1;
    v->q = rows(u16, s->total_q, s->q_heads, s->head_dim, 0, others);
    v->q8 = rows(u8, s->total_q, s->q_heads, s->head_dim, 0, others);
    v->k = rows(u16, s->store_tokens, s->kv_heads, s->head_dim, 0, own + others / 2);
    v->v = v->k;
    v->k.first = u16 + own;
    v->v.first = u16 + own + others / 2;
    v->k_cache = cache(s, u_cache, 0);
    v->v_cache = v->k_cache;
    v->v_cache.first = v->k_cache.elements;
    v->k_cache.elements = v->v_cache.elements = u_cache + 2 * (v->k_cache.elements - u_cache);
}

static void make_paired(const struct kvg_views_sizes *s, int64_t u16, int64_t u8, int64_t u_cache,
                        struct kvg_views *v)
{
    const int64_t row = s->kv_heads * s->head_dim;
    v->shared = 1;
    v->q = rows(u16, s->total_q, s->q_heads, s->head_dim, s->head_dim, 0);
    v->q8 = rows(u8, s->total_q, s->q_heads, s->head_dim, s->head_dim, 0);
    v->k = rows(u16, s->store_tokens, s->kv_heads, s->head_dim, 0, row);
    v->v = v->k;
    v->v.first = u16 + row;
    v->k_cache = cache(s, u_cache, 0);
    const int64_t page = v->k_cache.stride_block;
    v->k_cache.stride_block = 2 * page;
    v->k_cache.elements = u_cache + 2 * s->num_blocks * page;
    v->v_cache = v->k_cache;
    v->v_cache.first = u_cache + page;
}

static void make_head_major(const struct kvg_views_sizes *s, int64_t u16, int64_t u8, int64_t u_cache,
                            struct kvg_views *v)
{
    const int64_t page = s->block_size * s->head_dim;
    v->q = v->out = head_major_rows(u16, s->total_q, s->q_heads, s->head_dim);
    v->q8 = head_major_rows(u8, s->total_q, s->q_heads, s->head_dim);
    v->k = v->v = head_major_rows(u16, s->store_tokens, s->kv_heads, s->head_dim);
    v->k_cache = (struct kvg_cache_view){.first = u_cache,
                                         .stride_block = page,
                                         .stride_slot = s->head_dim,
                                         .stride_head = s->num_blocks * page,
                                         .elements = u_cache + s->kv_heads * s->num_blocks * page};
    v->v_cache = v->k_cache;
}

void kvg_views_make(int kind, const struct kvg_views_sizes *s, struct kvg_views *out)
{
    const int64_t u16 = unit_of(s->head_dim, 2), u8 = unit_of(s->head_dim, 1),
                  u_cache = unit_of(s->head_dim, kvg_dtype_bytes(s->kv_dtype));
    *out = (struct kvg_views){0};
    make_dense(s, out);
    if (kind == KVG_VIEWS_DENSE)
        return;
    out->dense = 0;
    out->out = rows(u16, s->total_q, s->q_heads, s->head_dim, 0, 0);
    out->lse = rows(1, s->total_q, s->q_heads, 1, 0, 0);
    if (kind == KVG_VIEWS_PADDED)
        make_padded(s, u16, u8, u_cache, out);
    else if (kind == KVG_VIEWS_FUSED)
        make_fused(s, u16, u8, u_cache, out);
    else if (kind == KVG_VIEWS_PAIRED)
        make_paired(s, u16, u8, u_cache, out);
    else
        make_head_major(s, u16, u8, u_cache, out);
}

/* ------------------------------------------------------------------------------------------ copies */

/* What a copy does with each row: into the buffer, out of it, or poison into it. */
enum way { PLACE, PICK, POISON };

static void copy_row(enum way way, char *in_buffer, char *dense, int64_t bytes, int poison)
{
    if (way == PLACE)
        memcpy(in_buffer, dense, (size_t)bytes);
    else if (way == PICK)
        memcpy(dense, in_buffer, (size_t)bytes);
    else
        memset(in_buffer, poison, (size_t)bytes);
}

static void walk_rows(enum way way, const struct kvg_rows_view *v, int64_t tokens, int64_t heads, int64_t dim,
                      int64_t bytes, char *dense, char *buffer, int poison)
{
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t h = 0; h < heads; h++)
            copy_row(way, buffer + (v->first + t * v->stride_token + h * v->stride_head) * bytes,
                     dense ? dense + (t * heads + h) * dim * bytes : NULL, dim * bytes, poison);
}

static void walk_cache(enum way way, const struct kvg_cache_view *v, const struct kvg_views_sizes *s,
                       int64_t bytes, char *dense, char *buffer, int poison)
{
    const struct kvg_cache_view d = cache(s, 0, 0);
#pragma omp parallel for schedule(static) if (s->num_blocks > 256)
    for (int64_t b = 0; b < s->num_blocks; b++)
        for (int64_t slot = 0; slot < s->block_size; slot++)
            for (int64_t h = 0; h < s->kv_heads; h++)
                copy_row(
                    way,
                    buffer +
                        (v->first + b * v->stride_block + slot * v->stride_slot + h * v->stride_head) * bytes,
                    dense ? dense + (b * d.stride_block + slot * d.stride_slot + h * d.stride_head) * bytes
                          : NULL,
                    s->head_dim * bytes, poison);
}

void kvg_rows_place(const struct kvg_rows_view *view, int64_t tokens, int64_t heads, int64_t dim,
                    int64_t bytes, const void *dense, void *buffer)
{
    walk_rows(PLACE, view, tokens, heads, dim, bytes, (char *)(uintptr_t)dense, buffer, 0);
}

void kvg_rows_pick(const struct kvg_rows_view *view, int64_t tokens, int64_t heads, int64_t dim,
                   int64_t bytes, const void *buffer, void *dense)
{
    walk_rows(PICK, view, tokens, heads, dim, bytes, dense, (char *)(uintptr_t)buffer, 0);
}

void kvg_cache_place(const struct kvg_cache_view *view, const struct kvg_views_sizes *sizes, int64_t bytes,
                     const void *dense, void *buffer)
{
    walk_cache(PLACE, view, sizes, bytes, (char *)(uintptr_t)dense, buffer, 0);
}

void kvg_cache_pick(const struct kvg_cache_view *view, const struct kvg_views_sizes *sizes, int64_t bytes,
                    const void *buffer, void *dense)
{
    walk_cache(PICK, view, sizes, bytes, dense, (char *)(uintptr_t)buffer, 0);
}

/* ------------------------------------------------------------------------------------------ gaps */

static char *copy_of(const void *buffer, int64_t bytes)
{
    char *copy = malloc((size_t)bytes + 1);
    if (copy)
        memcpy(copy, buffer, (size_t)bytes);
    return copy;
}

/* First byte that is not poison; frees the copy. */
static int64_t first_other(char *copy, int64_t bytes, int poison)
{
    int64_t at = 0;
    while (at < bytes && (unsigned char)copy[at] == (unsigned char)poison)
        at++;
    free(copy);
    return at < bytes ? at : -1;
}

int64_t kvg_rows_gap_written(const struct kvg_rows_view *view, int64_t tokens, int64_t heads, int64_t dim,
                             int64_t bytes, int poison, const void *buffer)
{
    char *copy = copy_of(buffer, view->elements * bytes);
    if (!copy)
        return -2;
    walk_rows(POISON, view, tokens, heads, dim, bytes, NULL, copy, poison);
    return first_other(copy, view->elements * bytes, poison);
}

int64_t kvg_caches_gap_written(const struct kvg_views *views, const struct kvg_views_sizes *sizes,
                               int64_t bytes, int poison, const void *k_buffer, const void *v_buffer,
                               int *is_v)
{
    const struct kvg_cache_view *const v[2] = {&views->k_cache, &views->v_cache};
    const void *const buffer[2] = {k_buffer, v_buffer};
    int64_t at = -1;
    for (int t = 0; t < (views->shared ? 1 : 2) && at == -1; t++) {
        char *copy = copy_of(buffer[t], v[t]->elements * bytes);
        if (!copy)
            return -2;
        for (int u = 0; u < 2; u++)
            if (u == t || views->shared)
                walk_cache(POISON, v[u], sizes, bytes, NULL, copy, poison);
        at = first_other(copy, v[t]->elements * bytes, poison);
        *is_v = t;
    }
    return at;
}
