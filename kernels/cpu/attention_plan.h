/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_plan.h: how a call is cut into items, and the layout of the workspace. Both depend on the problem
 * alone. Tile and split decide the roundings and do not depend on the number of threads, so the output has
 * the same bits for every thread count.
 */
#ifndef KVG_KERNELS_CPU_ATTENTION_PLAN_H
#define KVG_KERNELS_CPU_ATTENTION_PLAN_H

#include "attention_ops.h"

enum {
    KVG_SPLIT_TOKENS = 4096,    /* keys per split of the context; a multiple of KVG_TILE */
    KVG_SPLIT_MAX_QUERIES = 16, /* with more query tokens in some sequence the context is not split */
    KVG_ITEM_ROWS = 64,         /* target of the query rows per item */
    KVG_ITEM_ACC_BYTES = 65536, /* limit of the accumulators of all heads of an item, bytes */
    KVG_ITEMS_PER_THREAD = 2    /* with fewer items than this per thread an item gets fewer heads */
};

struct kvg_attention_plan {
    int64_t group;          /* query heads per KV head */
    int64_t split_tokens;   /* 0 = the context is not split */
    int64_t block_queries;  /* query tokens per item */
    int64_t block_rows;     /* block_queries * group */
    int64_t chunk_heads;    /* KV heads per item */
    int64_t chunks;         /* items that share the KV heads of a sequence */
    int64_t acc_stride;     /* floats per accumulator row */
    int64_t partial_floats; /* of one split of one sequence: accumulators, then (max, sum) of each row */
    int64_t max_partials;   /* splits over all sequences that have more than one */
    /* Workspace, bytes from its start rounded up to KVG_ALIGN. */
    int64_t sequences_at, partials_at, threads_at;
    /* One thread's part of it, bytes from its start. */
    int64_t q_at, q_head_bytes, acc_at, acc_head_bytes, state_at, factor_at, s_at, p_at, zero_at, scratch_at;
    int64_t thread_bytes;
    int64_t bytes; /* of the whole, KVG_ALIGN for the rounding included */
};

void kvg_attention_make_plan(const struct kvg_attention_ops *ops, const struct kvg_problem *problem,
                             struct kvg_attention_plan *plan);

/* The entry points of struct kvg_kernel that need the problem alone: supports, arithmetic,
 * workspace_bytes. */
int kvg_attention_supports(const struct kvg_attention_ops *ops, enum kvg_path path,
                           const struct kvg_problem *problem, char *why, size_t size);
void kvg_attention_arithmetic(const struct kvg_attention_ops *ops, const struct kvg_problem *problem,
                              struct kvg_arithmetic *out);
int64_t kvg_attention_workspace(const struct kvg_attention_ops *ops, const struct kvg_problem *problem);

#endif
