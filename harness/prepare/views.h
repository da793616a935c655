/* SPDX-License-Identifier: Apache-2.0
 *
 * views.h: where the elements of the tensors of a call lie in the buffers that its kernel is given.
 *
 * A prepared case holds its tensors densely: their strides follow from the shape. An engine passes views into
 * larger buffers. The axis `views` chooses what the kernel is given:
 *   dense       the dense tensors themselves
 *   padded      gaps after every row, head and page. The gaps of K differ from those of V, and the gaps of
 *               out from those of Q
 *   fused       rows of one QKV tensor [tokens, q_heads + 2 kv_heads, head_dim]; the K cache and then the V
 *               cache in one allocation
 *   paired      K and V caches alternate by page: [num_blocks, 2, page]; sources of a store alternate by
 *               token: [tokens, 2, kv_heads, head_dim]; a row of Q is followed by as many other elements
 *   head_major  the head is the slowest index of Q, out, sources and caches
 *
 * In all kinds but dense, tensors begin 16 bytes after the start of their buffer (or after one element, where
 * rows have no such alignment), so that no larger alignment can be relied on. The gaps of inputs hold NaN,
 * and so do the gaps of outputs before a call. A kernel must not write to them.
 */
#ifndef KVG_HARNESS_PREPARE_VIEWS_H
#define KVG_HARNESS_PREPARE_VIEWS_H

#include <stdint.h>

#include "kernels/kernel.h"

struct kvg_case;

/* Rows [tokens, heads, dim] in a buffer, in elements: element (t, h, d) is at
 * first + t * stride_token + h * stride_head + d. */
struct kvg_rows_view {
    int64_t first, stride_token, stride_head;
    int64_t elements; /* of the whole buffer; K and V that share a buffer have the same number */
};
/* A cache in a buffer, in elements. */
struct kvg_cache_view {
    int64_t first, stride_block, stride_slot, stride_head;
    int64_t elements; /* as above */
};

struct kvg_views {
    int dense;                   /* 1: every buffer is the dense tensor */
    int shared;                  /* 1: K and V lie in one buffer, as sources and as caches */
    struct kvg_rows_view q, out; /* bf16; dim is head_dim */
    struct kvg_rows_view q8;     /* e4m3, path fp8 */
    struct kvg_rows_view lse;    /* f32: one row of q_heads elements a token; stride_head is 1 */
    struct kvg_rows_view k, v;   /* bf16: sources of a store */
    struct kvg_cache_view k_cache, v_cache;
};

/* The sizes that views depend on. */
struct kvg_views_sizes {
    int64_t q_heads, kv_heads, head_dim, block_size;
    int64_t total_q, store_tokens, num_blocks;
    enum kvg_layout layout;
    enum kvg_dtype kv_dtype;
};
/* `kind` is an enum kvg_views_kind of case.h. */
void kvg_views_make(int kind, const struct kvg_views_sizes *sizes, struct kvg_views *out);

/* Alignment in bytes of a row of head_dim elements of a dtype: what kernel.h promises. */
int64_t kvg_row_alignment(int64_t head_dim, int64_t element_bytes);

/* Copies rows between a dense tensor [tokens, heads, dim] and a buffer. `bytes` is the size of an element. */
void kvg_rows_place(const struct kvg_rows_view *view, int64_t tokens, int64_t heads, int64_t dim,
                    int64_t bytes, const void *dense, void *buffer);
void kvg_rows_pick(const struct kvg_rows_view *view, int64_t tokens, int64_t heads, int64_t dim,
                   int64_t bytes, const void *buffer, void *dense);
/* The same for a cache; `dense` has the strides of the layout. */
void kvg_cache_place(const struct kvg_cache_view *view, const struct kvg_views_sizes *sizes, int64_t bytes,
                     const void *dense, void *buffer);
void kvg_cache_pick(const struct kvg_cache_view *view, const struct kvg_views_sizes *sizes, int64_t bytes,
                    const void *buffer, void *dense);

/* Offset in bytes of the first gap byte that is not `poison`; -1 if there is none; -2 when out of memory. */
int64_t kvg_rows_gap_written(const struct kvg_rows_view *view, int64_t tokens, int64_t heads, int64_t dim,
                             int64_t bytes, int poison, const void *buffer);
/* The same for the K and V cache; k_buffer is v_buffer if they share it. *is_v: 1 for the buffer of V. */
int64_t kvg_caches_gap_written(const struct kvg_views *views, const struct kvg_views_sizes *sizes,
                               int64_t bytes, int poison, const void *k_buffer, const void *v_buffer,
                               int *is_v);

#endif
