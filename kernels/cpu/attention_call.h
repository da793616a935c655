/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_call.h: the state of one call of CPU attention, shared by the three parts of the driver:
 * attention.c        walks the items of the plan,
 * attention_tiles.c  takes an item through its tiles of keys,
 * attention_results.c writes the output and merges splits.
 */
#ifndef KVG_KERNELS_CPU_ATTENTION_CALL_H
#define KVG_KERNELS_CPU_ATTENTION_CALL_H

#include "attention_plan.h"

struct kvg_attention_call {
    const struct kvg_attention_ops *ops;
    const struct kvg_attention_args *args;
    const struct kvg_problem *problem;
    struct kvg_attention_plan plan;
    char *base;          /* of the workspace, aligned */
    int64_t *first_item; /* [batch + 1] */
    int64_t *first_part; /* [batch + 1]: first partial result of sequence b; it has none with one split */
};

/* A unit of work of one thread: some queries and some KV heads of a sequence over one split of its
 * context. */
struct kvg_item {
    int64_t seq, split, query, queries, head, heads; /* query: first of the block, within the sequence */
    int64_t seq_len, q_len;
    int64_t begin, end; /* keys of the split that some row sees; begin >= end: none */
    int single;         /* the sequence has one split: the item writes the output */
};

/* One thread's buffers for one item. */
struct kvg_item_scratch {
    char *q, *p, *zero, *scratch;
    float *acc, *factor, *s;
    struct kvg_row_state *state;
};

/* K or V of one tile: the addresses of the keys for the item's first head. NULL: no row sees the key. */
struct kvg_tile_rows {
    const char *row[KVG_TILE];
    int whole; /* no NULL */
};

static inline int64_t kvg_splits_of(const struct kvg_attention_call *call, int64_t seq_len)
{
    const int64_t split = call->plan.split_tokens;
    return split && seq_len > split ? (seq_len + split - 1) / split : 1;
}

/* Visible keys of a query of the item's sequence: [*first, *end), as the table in kernel.h says. From query to
 * query neither of them falls, under every mask. So the keys of a block of queries go from the first of its
 * first query to the end of its last one. */
static inline void kvg_visible(const struct kvg_attention_call *call, const struct kvg_item *it,
                               int64_t query, int64_t *first, int64_t *end)
{
    const struct kvg_problem *p = call->problem;
    const int64_t own = p->mask == KVG_MASK_FULL ? it->seq_len - 1 : it->seq_len - it->q_len + query;

    *end = own + 1;
    *first = p->window > 0 && *end > p->window ? *end - p->window : 0;
    if (p->mask == KVG_MASK_CHUNKED && own > 0) {
        const int64_t chunk = own / p->chunk * p->chunk;
        *first = *first > chunk ? *first : chunk;
    } else if (p->mask == KVG_MASK_PREFIX) {
        const int64_t prefix = call->args->prefix_lens[it->seq],
                      shown = prefix < it->seq_len ? prefix : it->seq_len;
        *end = *end > shown ? *end : shown;
    }
}

/* Scale of a head; NULL means 1. */
static inline float kvg_scale_of(const struct kvg_scale *scale, int64_t head)
{
    return scale->data ? scale->data[head * scale->stride_head] : 1.0f;
}

/* ---- attention_tiles.c ---- */

/* Fills in the softmax parameters of one KV head. */
void kvg_describe_softmax(const struct kvg_attention_call *call, int64_t head, struct kvg_softmax *how);
/* Finds the rows of the tile that starts at key `start`, for the item's first head. Keys outside [begin, end)
 * get NULL. */
void kvg_find_rows(const struct kvg_attention_call *call, const struct kvg_pages *pages,
                   const struct kvg_item *it, int64_t start, int64_t begin, int64_t end,
                   struct kvg_tile_rows *out);
/* All heads of the tile that starts at key `start`; `how` has one entry per head. */
void kvg_attend_heads(const struct kvg_attention_call *call, const struct kvg_item *it,
                      const struct kvg_item_scratch *t, int64_t start, const struct kvg_softmax *how,
                      const struct kvg_tile_rows *k_now, const struct kvg_tile_rows *v_now,
                      const struct kvg_tile_rows *k_next, const struct kvg_tile_rows *v_next);
/* 1 if the item may use whole tiles at all. */
int kvg_may_be_whole(const struct kvg_attention_call *call, const struct kvg_item *it,
                     const struct kvg_softmax *how);
/* 1 if both the first and the last query of the item see all keys of the tile at `start`; its rows must have
 * no NULL. */
int kvg_all_see(const struct kvg_attention_call *call, const struct kvg_item *it, int64_t start);
/* All heads of one tile that every row sees in full. */
void kvg_attend_whole(const struct kvg_attention_call *call, const struct kvg_item *it,
                      const struct kvg_item_scratch *t, const struct kvg_softmax *how,
                      const struct kvg_tile_rows *k, const struct kvg_tile_rows *v,
                      const struct kvg_tile_rows *k_next, const struct kvg_tile_rows *v_next);

/* ---- attention_results.c ---- */

/* Writes the rows of an item: the output, or the partial result of its split. */
void kvg_finish_item(const struct kvg_attention_call *call, const struct kvg_item *it,
                     const struct kvg_item_scratch *t);
/* Merges the splits of a sequence; does nothing where it has one. `acc` has room for one row. All threads of
 * the team call it. */
void kvg_merge_sequence(const struct kvg_attention_call *call, int64_t seq, float *acc);

#endif
