/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: from the shape of a problem to the division of its work. See plan.h.
 *
 * Whole pages are preferred. A block that takes all KV heads of a token reads NHD pages as they lie in
 * memory: 16 KB in one piece for 8 heads of 128 bytes. If the context is so short that the partial results
 * would be as large as the pages, a block takes fewer heads and more splits instead, and adds the splits up
 * in shared memory.
 */
#include "plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SLACK = 1024, UNIT_RING = 8, MAX_STAGES = 16 };

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
static int64_t round_up(int64_t a, int64_t b)
{
    return ceil_div(a, b) * b;
}
static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t gcd64(int64_t a, int64_t b)
{
    while (b) {
        const int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

static int64_t element_bytes(enum kvg_dtype t)
{
    return t == KVG_BF16 || t == KVG_F16 ? 2 : 1;
}

/* Most heads that a block can take at once. */
static int most_heads(const struct kvg_problem *p, int row_blocks)
{
    int h = KVG_SM90_WARPS / row_blocks;
    while (p->kv_heads % h)
        h /= 2;
    return h;
}

/* Most keys that the queries of a sequence of n keys can see. */
static int64_t visible_span(const struct kvg_problem *p, int64_t n)
{
    return p->window > 0 ? min64(n, p->window + p->max_q_len - 1) : n;
}

/* Keys per block if each block took 8 heads: the measure for the amount of work. */
static int64_t block_load(const struct kvg_problem *p, int multiprocessors)
{
    const int64_t span = visible_span(p, ceil_div(p->total_kv, p->batch));
    return p->batch * span * p->kv_heads / KVG_SM90_WARPS / multiprocessors;
}

/* Limits of the load for one head a block and for one round of chunks; measured on an H200. */
enum { KVG_ONE_HEAD_LOAD = 3000, KVG_ONE_ROUND_LOAD = 4096 };

/* Little work: one head and many splits a block, added up in the block, so that there are few partial
 * results. More work: whole pages. Several rounds: two splits side by side, which halves the partial
 * results. */
static int choose_heads(const struct kvg_problem *p, int most, int multiprocessors)
{
    const int64_t load = block_load(p, multiprocessors);
    int h = load < KVG_ONE_HEAD_LOAD ? 1 : load > KVG_ONE_ROUND_LOAD ? KVG_SM90_WARPS / 2 : KVG_SM90_WARPS;
    while (h > most)
        h /= 2;
    return h;
}

/* Chunks of a round: one for each block, if the head blocks divide evenly. In a single round chunks should
 * also end where sequences end, as long as at most one block in 16 is idle because of it. */
static int64_t choose_chunks(const struct kvg_problem *p, const struct kvg_sm90_plan *plan,
                             int multiprocessors, int rounds)
{
    const int64_t each = multiprocessors / plan->head_blocks;
    if (each * plan->head_blocks * 10 < multiprocessors * (int64_t)9)
        return ceil_div(4 * (int64_t)multiprocessors, plan->head_blocks); /* not even: more and smaller
                                                                           * chunks */
    const int64_t even = each / p->batch * p->batch;
    return rounds == 1 && even * 16 >= each * 15 ? even : each;
}

/* Most keys of a block if the list is cut into equal parts. */
static int64_t largest_load(const struct kvg_problem *p, const struct kvg_sm90_plan *plan, int64_t split)
{
    const int64_t span = visible_span(p, ceil_div(p->total_kv, p->batch));
    const int64_t slab = split * plan->splits_per_block;
    return ceil_div(p->batch * ceil_div(span, slab), plan->chunks_per_round) * slab;
}

/* One round: the split whose slabs divide most evenly among the blocks; of equals the longest. More
 * rounds: short slabs, so that the chunks of the last round can be small. */
static int64_t choose_split(const struct kvg_problem *p, const struct kvg_sm90_plan *plan)
{
    if (plan->rounds > 1)
        return 128;
    const int64_t span = visible_span(p, ceil_div(p->total_kv, p->batch));
    int64_t best = 0, best_load = INT64_MAX;
    for (int64_t waves = 1; waves <= 16; waves++) {
        const int64_t slabs = plan->chunks_per_round * waves / p->batch; /* per sequence */
        if (slabs < 1)
            continue;
        const int64_t slab = ceil_div(span > 0 ? span : 1, slabs);
        const int64_t split = round_up(ceil_div(slab, plan->splits_per_block), 16);
        const int64_t load = largest_load(p, plan, split);
        if (load < best_load && (!best || split >= 64)) {
            best = split;
            best_load = load;
        }
    }
    return best ? best : round_up(ceil_div(span > 0 ? span : 1, plan->splits_per_block), 16);
}

/* Rounds up. Rounded down, fraction * list would be just below the whole number that is meant. */
static uint32_t share_up(double x)
{
    const double y = ceil(x * 4294967296.0);
    return y >= 4294967295.0 ? UINT32_MAX : (uint32_t)y;
}

/* A round takes `ratio` percent of what is left, the last round takes the rest. `least`: keys of the last
 * chunk of a block. */
static void cut_rounds(struct kvg_sm90_plan *plan, int64_t tokens_per_block, int64_t least, int most,
                       int ratio)
{
    const double chunks = (double)plan->chunks_per_round;
    double left = 1, start = 0;
    int r = 0;
    for (; r < most - 1 && left * ratio / 100 * (double)tokens_per_block > (double)least; r++) {
        const double share = left * ratio / 100;
        plan->round_start[r] = share_up(start);
        plan->round_step[r] = share_up(share / chunks);
        start += share;
        left -= share;
    }
    plan->round_start[r] = share_up(start);
    plan->round_step[r] = share_up(left / chunks);
    plan->rounds = r + 1;
}

/* The lean kernel takes one wave of blocks. Each block has one head and one chunk inside one sequence,
 * without window and soft cap. Sequences of unequal length fit only if one slab covers each of them. */
static int lean_fits(const struct kvg_problem *p, const struct kvg_sm90_plan *plan, int64_t items,
                     int multiprocessors)
{
    return plan->heads == 1 && plan->row_blocks * plan->column_blocks == 1 && plan->rounds == 1 &&
           plan->rectangular && !p->window && !(p->soft_cap > 0) && plan->segments <= 2 &&
           items <= multiprocessors && plan->chunks_per_round % p->batch == 0;
}

/* Shared memory besides the stages: barriers, prefix sums, and the results of the splits that are added
 * up. */
static int64_t fixed_bytes(const struct kvg_problem *p, const struct kvg_sm90_plan *plan)
{
    int64_t bytes = SLACK + 2 * MAX_STAGES * 8 + UNIT_RING * 24, dims = p->head_dim;
    if (plan->lean) {
        bytes = SLACK + KVG_SM90_WARPS * KVG_SM90_LEAN_STAGES * 2 * 8;
        dims = plan->segments * KVG_SM90_SEGMENT / element_bytes(p->kv_dtype);
    }
    if (!plan->rectangular)
        bytes += 8 * (p->batch + 1);
    if (plan->splits_per_block > 1)
        bytes += (int64_t)KVG_SM90_WARPS * plan->columns * (dims + 2) * 4;
    return bytes;
}

/* What the steps of planning share. */
struct planner {
    const struct kvg_problem *p;
    struct kvg_sm90_tuning tuning; /* zeros: no wish */
    int multiprocessors;
    int64_t smem_limit; /* bytes of shared memory of a block */
    struct kvg_sm90_plan *plan;
    char *why; /* [size] */
    size_t size;
};

/* The query rows of a KV head: how many, and how the warps share them. */
static int plan_rows(struct planner *s)
{
    const struct kvg_problem *p = s->p;
    struct kvg_sm90_plan *plan = s->plan;
    const int64_t rows = p->q_heads / p->kv_heads * p->max_q_len;
    if (rows > 64) {
        snprintf(s->why, s->size,
                 "group %lld x q_len %lld is %lld query rows per KV head; this kernel takes up to 64",
                 (long long)(p->q_heads / p->kv_heads), (long long)p->max_q_len, (long long)rows);
        return -1;
    }
    plan->rows = (int)rows;
    /* K and V are read and widened once for 16 rows, where there are enough registers. */
    plan->column_blocks = rows > 8 && p->head_dim <= 128 ? 2 : 1;
    if (s->tuning.column_blocks == 1)
        plan->column_blocks = 1;
    plan->columns = (int)min64(rows, 8 * plan->column_blocks);
    plan->row_blocks = 1;
    while (plan->row_blocks * 8 * plan->column_blocks < rows)
        plan->row_blocks *= 2;
    plan->segments = (int)ceil_div(p->head_dim * element_bytes(p->kv_dtype), KVG_SM90_SEGMENT);
    plan->tile = plan->segments == 1 ? 32 : 16;
    return 0;
}

/* The KV heads of a block, and the splits that its warps work on side by side. */
static int plan_heads(struct planner *s)
{
    struct kvg_sm90_plan *plan = s->plan;
    const int most = most_heads(s->p, plan->row_blocks);
    plan->heads = s->tuning.heads ? s->tuning.heads : choose_heads(s->p, most, s->multiprocessors);
    if (plan->heads > most || most % plan->heads) {
        snprintf(s->why, s->size, "heads=%d does not divide %d", plan->heads, most);
        return -1;
    }
    plan->head_blocks = s->p->kv_heads / plan->heads;
    plan->splits_per_block = KVG_SM90_WARPS / (plan->heads * plan->row_blocks);
    return 0;
}

/* Rounds of chunks, each round smaller than the one before. */
static void plan_rounds(struct planner *s)
{
    const struct kvg_problem *p = s->p;
    struct kvg_sm90_plan *plan = s->plan;
    const int64_t span = visible_span(p, ceil_div(p->total_kv, p->batch));
    const int64_t tokens_per_block = p->batch * span * plan->head_blocks / s->multiprocessors;
    const int rounds = s->tuning.rounds                                         ? s->tuning.rounds
                       : block_load(p, s->multiprocessors) > KVG_ONE_ROUND_LOAD ? 3
                                                                                : 1;
    plan->chunks_per_round = choose_chunks(p, plan, s->multiprocessors, rounds);
    const int most_rounds = plan->chunks_per_round * plan->head_blocks > s->multiprocessors ? 1 : rounds;
    const int64_t least = 320 * KVG_SM90_WARPS / (plan->heads * plan->row_blocks);
    cut_rounds(plan, tokens_per_block, least, most_rounds,
               s->tuning.ratio      ? s->tuning.ratio
               : plan->segments > 1 ? 80
                                    : 60);
}

/* Splits, the boxes in which they are loaded, and the slabs of a sequence. */
static int plan_splits(struct planner *s)
{
    const struct kvg_problem *p = s->p;
    struct kvg_sm90_plan *plan = s->plan;
    const int uniform = p->total_kv == p->batch * p->max_seq_len && !p->window;
    plan->split_tokens = s->tuning.split_tokens ? s->tuning.split_tokens : choose_split(p, plan);
    plan->box_tokens = (int)gcd64(gcd64(p->block_size, plan->split_tokens), plan->tile);
    if (plan->box_tokens < 8) {
        snprintf(s->why, s->size, "block_size %lld: this kernel takes multiples of 8",
                 (long long)p->block_size);
        return -1;
    }
    plan->slab_tokens = plan->split_tokens * plan->splits_per_block;
    plan->slabs_per_seq = ceil_div(p->max_seq_len, plan->slab_tokens);
    if (p->window > 0)
        plan->slabs_per_seq =
            min64(plan->slabs_per_seq, ceil_div(p->window + p->max_q_len - 1, plan->slab_tokens) + 1);
    if (plan->slabs_per_seq < 1)
        plan->slabs_per_seq = 1;
    plan->direct = plan->slabs_per_seq == 1;
    plan->rectangular = plan->direct || p->batch > KVG_SM90_MAX_BATCH_IN_SMEM || uniform;
    return 0;
}

/* The work items, the blocks that take them, and which of the two kernels. */
static int plan_items(struct planner *s)
{
    struct kvg_sm90_plan *plan = s->plan;
    const int64_t slabs = s->p->batch * plan->slabs_per_seq,
                  items = plan->rounds * plan->chunks_per_round * plan->head_blocks;
    if (slabs > INT32_MAX || items > INT32_MAX / 2) {
        snprintf(s->why, s->size, "%lld slabs and %lld work items; this kernel counts both in 31 bits",
                 (long long)slabs, (long long)items);
        return -1;
    }
    plan->blocks = min64(items, s->multiprocessors);
    plan->dynamic = s->tuning.dynamic ? s->tuning.dynamic == 1 : items > plan->blocks;
    plan->lean = s->tuning.lean != 2 && lean_fits(s->p, plan, items, s->multiprocessors);
    if (plan->lean) {
        plan->dynamic = 0;
        plan->direct |= plan->chunks_per_round == s->p->batch;
    }
    return 0;
}

/* The stages of K and V in shared memory. */
static int plan_stages(struct planner *s)
{
    struct kvg_sm90_plan *plan = s->plan;
    plan->stage_bytes =
        (int64_t)plan->tile * plan->splits_per_block * plan->heads * plan->segments * KVG_SM90_SEGMENT;
    if (plan->lean)
        plan->stage_bytes *= 2; /* K and V of a tile are one stage */
    const int64_t fixed = fixed_bytes(s->p, plan);
    /* One long chunk a block: with fewer bytes in flight the blocks share the memory more evenly. */
    const int64_t calm = s->tuning.stages    ? s->tuning.stages
                         : plan->lean        ? 2
                         : plan->rounds == 1 ? 4
                                             : MAX_STAGES;
    int64_t stages = min64((s->smem_limit - fixed) / plan->stage_bytes, MAX_STAGES);
    if (plan->lean)
        stages = min64(stages, KVG_SM90_LEAN_STAGES);
    stages = min64(stages, calm);
    if (stages < 2) {
        snprintf(
            s->why, s->size,
            "head_dim %lld needs %lld bytes of shared memory a stage; two stages do not fit on this device",
            (long long)s->p->head_dim, (long long)plan->stage_bytes);
        return -1;
    }
    plan->stages = (int)stages;
    plan->smem_bytes = fixed + stages * plan->stage_bytes;
    return 0;
}

/* The partial results, the lanes that merge them, and the workspace. */
static void plan_merge(struct planner *s)
{
    const struct kvg_problem *p = s->p;
    struct kvg_sm90_plan *plan = s->plan;
    const int64_t slots = plan->rounds * plan->chunks_per_round + p->batch;
    plan->partial_rows = plan->direct ? 0 : slots * p->max_q_len * p->q_heads;
    /* Lanes of a merge task: 8 for each segment that a sequence is likely to have, limited by the number
     * of threads. */
    const int64_t tasks = p->batch * p->max_q_len * p->q_heads * p->head_dim / 32;
    const int64_t segments = ceil_div(plan->rounds * plan->chunks_per_round, p->batch) + 1;
    plan->merge_lanes = 8;
    while (plan->merge_lanes < 256 && plan->merge_lanes / 8 < segments &&
           tasks * plan->merge_lanes < (int64_t)s->multiprocessors * 1024)
        plan->merge_lanes *= 2;
    plan->workspace_bytes = kvg_sm90_ws_output(plan) + plan->partial_rows * p->head_dim * 4;
}

int kvg_sm90_make_plan(const struct kvg_problem *p, const struct kvg_sm90_tuning *tuning, int multiprocessors,
                       int64_t smem_limit, struct kvg_sm90_plan *plan, char *why, size_t size)
{
    struct planner s = {.p = p,
                        .multiprocessors = multiprocessors,
                        .smem_limit = smem_limit,
                        .plan = plan,
                        .why = why,
                        .size = size};
    if (tuning)
        s.tuning = *tuning;
    memset(plan, 0, sizeof *plan);
    if (plan_rows(&s) || plan_heads(&s))
        return -1;
    plan_rounds(&s);
    if (plan_splits(&s) || plan_items(&s) || plan_stages(&s))
        return -1;
    plan_merge(&s);
    return 0;
}

int64_t kvg_sm90_ws_counter(void)
{
    return 0;
}
int64_t kvg_sm90_ws_prefix(void)
{
    return 256;
}
int64_t kvg_sm90_ws_stats(void)
{
    return 256 + round_up(4 * (KVG_SM90_MAX_BATCH_IN_SMEM + 1), 256);
}
int64_t kvg_sm90_ws_output(const struct kvg_sm90_plan *plan)
{
    return kvg_sm90_ws_stats() + round_up(plan->partial_rows * 8, 256);
}

struct kvg_lean_start kvg_sm90_lean_start(const struct kvg_problem *p, const struct kvg_sm90_plan *plan)
{
    struct kvg_lean_start s;
    memset(&s, 0, sizeof s);
    s.share = plan->round_step[0];
    s.slabs = (int32_t)(p->batch * plan->slabs_per_seq);
    s.slabs_per_seq = (int32_t)plan->slabs_per_seq;
    s.slab_tokens = (int32_t)plan->slab_tokens;
    s.split_tokens = (int32_t)plan->split_tokens;
    s.max_seq_len = (int32_t)p->max_seq_len;
    s.block_size = (int32_t)p->block_size;
    s.block_log2 = -1;
    for (int i = 0; i < 31; i++)
        if (p->block_size == (int64_t)1 << i)
            s.block_log2 = i;
    while (plan->box_tokens << s.boxes_log2 < plan->tile)
        s.boxes_log2++;
    return s;
}
