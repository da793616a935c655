/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_call.h: one call of CPU attention under way, as the three parts of its driver share it:
 * attention.c walks the items of the plan, attention_tiles.c takes an item through its tiles of keys,
 * attention_results.c writes what came out and merges splits.
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
    int64_t *first_part; /* [batch + 1]: partials of sequence b; none where it has one split */
};

struct kvg_item {
    int64_t seq, split, query, queries, head, heads; /* query: first of the block, within the sequence */
    int64_t seq_len, q_len;
    int64_t begin, end; /* keys visible to some row, within the split; begin >= end: none */
    int single;         /* the sequence has one split: the item writes the output */
};

/* One thread's buffers for one item. */
struct kvg_item_scratch {
    char *q, *p, *zero, *scratch;
    float *acc, *factor, *s;
    struct kvg_row_state *state;
};

/* K or V of one tile, all heads of the item: addresses of the item's first head. NULL: not visible. */
struct kvg_tile_rows {
    const char *row[KVG_TILE];
    int whole; /* no NULL */
};

static inline int64_t kvg_splits_of(const struct kvg_attention_call *call, int64_t seq_len)
{
    const int64_t split = call->plan.split_tokens;
    return split && seq_len > split ? (seq_len + split - 1) / split : 1;
}

/* Visible keys of a query: [*first, *end). */
static inline void kvg_visible(const struct kvg_problem *p, int64_t seq_len, int64_t q_len, int64_t query,
                               int64_t *first, int64_t *end)
{
    *end = p->causal ? seq_len - q_len + query + 1 : seq_len;
    *first = p->window > 0 && *end > p->window ? *end - p->window : 0;
}

/* NULL is 1. */
static inline float kvg_scale_of(const float *scale, int64_t stride, int64_t head)
{
    return scale ? scale[head * stride] : 1.0f;
}

/* ---- attention_tiles.c ---- */

/* What softmax does in one KV head. */
void kvg_describe_softmax(const struct kvg_attention_call *call, int64_t head, struct kvg_softmax *how);
/* Rows of the tile that starts at key `start`, of the item's first head; keys outside [begin, end) get NULL.
 */
void kvg_find_rows(const struct kvg_attention_call *call, const struct kvg_pages *pages,
                   const struct kvg_item *it, int64_t start, int64_t begin, int64_t end,
                   struct kvg_tile_rows *out);
/* All heads of one tile that starts at key `start`; `how` has one entry for each. */
void kvg_attend_heads(const struct kvg_attention_call *call, const struct kvg_item *it,
                      const struct kvg_item_scratch *t, int64_t start, const struct kvg_softmax *how,
                      const struct kvg_tile_rows *k_now, const struct kvg_tile_rows *v_now,
                      const struct kvg_tile_rows *k_next, const struct kvg_tile_rows *v_next);
/* Whether every row of the item may take whole tiles at all. */
int kvg_may_be_whole(const struct kvg_attention_call *call, const struct kvg_item *it,
                     const struct kvg_softmax *how);
/* Whether all keys of a tile without NULL are visible to the first query and to the last. */
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
/* Merges the splits of a sequence that has several; `acc` holds one row. Called by all threads of the team.
 */
void kvg_merge_sequence(const struct kvg_attention_call *call, int64_t seq, float *acc);

#endif
