/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h: how the sm_90 decode kernel divides a problem into work. Plain C; needs no GPU.
 *
 *   warp       A block has 8 arithmetic warps. Each takes one KV head x 8 or 16 query rows x one split of the
 *              context. heads * row_blocks * splits_per_block = 8.
 *   slab       The splits that a block takes side by side: slab_tokens = split_tokens * splits_per_block
 *              keys.
 *   chunk      A part of the list of all slabs of all sequences. Chunks get smaller from round to round
 *              (guided self-scheduling). That gives few partial results and an even finish.
 *   work item  A chunk for one block of heads.
 *   segment    The part of a chunk that lies in one sequence. It leaves one partial result, or the output if
 *              it covers its whole sequence.
 *
 * The division depends only on shapes and lengths, not on which block takes an item, so two runs give the
 * same bits.
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
    int heads;         /* KV heads that a block works on at a time: 1, 2, 4 or 8, a divisor of kv_heads */
    int column_blocks; /* blocks of 8 query rows that a warp takes at once: 1 or 2 */
    /* Warps for the query rows of a KV head. A row is one query token x one query head of the group. */
    int row_blocks;
    int splits_per_block; /* 8 / (heads * row_blocks) */
    int rows;             /* query rows of a KV head: group * max_q_len */
    int columns;          /* most rows of a warp: min(rows, 8 * column_blocks) */
    int segments;         /* 128-byte segments of a K or V row; the last one is padded with zeros */
    int tile;             /* keys between two updates of the running maximum: 32 or 16 */
    int box_tokens;       /* slots of a bulk copy: 8, 16 or 32 */
    int64_t split_tokens; /* keys of a split */
    int64_t slab_tokens;
    int64_t slabs_per_seq; /* upper bound over the sequences */
    int64_t head_blocks;   /* kv_heads / heads */
    int rounds;
    int64_t chunks_per_round;
    /* Fractions of the list, unit 2^-32: what comes before a round, and one chunk of it. */
    uint32_t round_start[KVG_SM90_MAX_ROUNDS];
    uint32_t round_step[KVG_SM90_MAX_ROUNDS];
    /* Shared-memory stages. K and V of a tile take one stage each, in the lean kernel one together. */
    int stages;
    int64_t stage_bytes;
    int64_t smem_bytes;
    int64_t blocks;  /* grid */
    int rectangular; /* 1: every sequence counts as slabs_per_seq slabs. 0: its real number, by prefix sum */
    int dynamic;     /* 1: items are handed out by a counter */
    int direct;      /* 1: one slab, or one lean block, covers a sequence, so there is no merge */
    int lean;        /* 1: short work, each warp reads for itself (decode_sm90_lean.cuh) */
    int merge_lanes; /* threads that add up one query row's slice of 32 dims */
    int64_t partial_rows; /* rows of the partial results in the workspace */
    int64_t workspace_bytes;
};

/* Choices that a tuning run can force. 0 = the planner decides. */
struct kvg_sm90_tuning {
    int heads;
    int64_t split_tokens;
    int dynamic; /* 1 = yes, 2 = no */
    int stages;
    int rounds;
    int ratio;         /* percent of the remaining list that a round takes */
    int lean;          /* 2 = always the large kernel */
    int column_blocks; /* 1 = 8 query rows a warp, whatever their number */
    int promotion;     /* bytes that a miss brings into the L2: 128 or 256 */
};

/* Fills *plan for a device with `multiprocessors` multiprocessors and `smem_limit` bytes of shared memory
 * a block. Returns 0, or -1 with the reason in why[0..size). */
int kvg_sm90_make_plan(const struct kvg_problem *p, const struct kvg_sm90_tuning *tuning, int multiprocessors,
                       int64_t smem_limit, struct kvg_sm90_plan *plan, char *why, size_t size);

/* Parameters of the lean kernel's walk, all but the pointers. */
struct kvg_lean_start kvg_sm90_lean_start(const struct kvg_problem *p, const struct kvg_sm90_plan *plan);

/* Offsets in the workspace, in bytes. */
int64_t kvg_sm90_ws_counter(void);
int64_t kvg_sm90_ws_prefix(void);
int64_t kvg_sm90_ws_stats(void); /* counter and prefix come before it */
int64_t kvg_sm90_ws_output(const struct kvg_sm90_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
