/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h: how the sm_90 decode kernel cuts a problem into work. Plain C, no GPU needed.
 *
 * A block has 8 arithmetic warps. Each takes `one KV head x 8 or 16 query rows x one split of the context`;
 * heads * row_blocks * splits_per_block = 8. The splits_per_block splits a block takes side by side are a
 * slab of slab_tokens = split_tokens * splits_per_block keys. All slabs of all sequences form one list, and
 * the list is cut into chunks; a work item is a chunk for one block of heads. Chunks get smaller from round
 * to round (guided self-scheduling), so that few partial results and an even finish go together. Where a
 * chunk crosses from one sequence into the next it falls into segments; each segment leaves one partial
 * result, or the output if it covers its sequence. Everything is fixed by the shapes and lengths, whichever
 * block takes an item: two runs give the same bits.
 */
#ifndef KVG_CUDA_PLAN_H
#define KVG_CUDA_PLAN_H

#include "../kernel.h"
#include "lean_walk.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KVG_SM90_WARPS = 8,
    KVG_SM90_SEGMENT = 128,
    KVG_SM90_MAX_BATCH_IN_SMEM = 1024,
    KVG_SM90_MAX_ROUNDS = 10,
    KVG_SM90_LEAN_STAGES = 4
};

struct kvg_sm90_plan {
    int heads;         /* KV heads a block works on at a time: 1, 2, 4 or 8, a divisor of kv_heads */
    int column_blocks; /* blocks of 8 query rows that a warp takes at once: 1 or 2 */
    int row_blocks; /* warps for the query rows of a KV head; a row: one query token x one query head of the
                       group */
    int splits_per_block; /* 8 / (heads * row_blocks) */
    int rows;             /* group * max_q_len, query rows of a KV head */
    int columns;          /* min(rows, 8 * column_blocks): rows a warp has at most */
    int segments;         /* 128-byte segments of a K or V row, the last one filled up with zeros */
    int tile;             /* keys between two updates of the running max: 32 or 16 */
    int box_tokens;       /* slots a bulk copy brings: 8, 16 or 32 */
    int64_t split_tokens; /* keys of a split */
    int64_t slab_tokens;
    int64_t slabs_per_seq; /* upper bound over the sequences */
    int64_t head_blocks;   /* kv_heads / heads */
    int rounds;
    int64_t chunks_per_round;
    uint32_t round_start[KVG_SM90_MAX_ROUNDS]; /* share of the list before a round, and of one chunk of it,
                                                  2^-32 */
    uint32_t round_step[KVG_SM90_MAX_ROUNDS];
    int stages; /* shared-memory stages; K and V of a tile take one each, in the lean kernel one together */
    int64_t stage_bytes;
    int64_t smem_bytes;
    int64_t blocks;  /* grid */
    int rectangular; /* 1: every sequence counts slabs_per_seq slabs; 0: its real number, by a prefix sum */
    int dynamic;     /* 1: items are handed out by a counter */
    int direct;      /* 1: one slab, or one lean block, covers a sequence: no merge */
    int lean;        /* 1: short work, a warp reads for itself (decode_sm90_lean.cuh) */
    int merge_lanes; /* threads that add up one query row's slice of 32 dims */
    int64_t partial_rows; /* rows of the partial results in the workspace */
    int64_t workspace_bytes;
};

/* What a tuning run may force; 0 = the planner decides. */
struct kvg_sm90_tuning {
    int heads;
    int64_t split_tokens;
    int dynamic; /* 1 = yes, 2 = no */
    int stages;
    int rounds;
    int ratio;         /* percent of what is left that a round takes */
    int lean;          /* 2 = the large kernel always */
    int column_blocks; /* 1 = 8 query rows a warp, whatever their number */
    int promotion;     /* bytes a miss brings into the L2: 128 or 256 */
};

/* Fill *plan for a device with `multiprocessors` and `smem_limit` bytes of shared memory a block. 0, or -1
 * with the reason in why. */
int kvg_sm90_make_plan(const struct kvg_problem *p, const struct kvg_sm90_tuning *tuning, int multiprocessors,
                       int64_t smem_limit, struct kvg_sm90_plan *plan, char *why, size_t size);

/* What the lean kernel's walk goes by, all but the pointers. */
struct kvg_lean_start kvg_sm90_lean_start(const struct kvg_problem *p, const struct kvg_sm90_plan *plan);

/* Offsets in the workspace. */
int64_t kvg_sm90_ws_counter(void);
int64_t kvg_sm90_ws_prefix(void);
int64_t kvg_sm90_ws_stats(void); /* counter and prefix come before it */
int64_t kvg_sm90_ws_output(const struct kvg_sm90_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
