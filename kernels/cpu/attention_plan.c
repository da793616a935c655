/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_plan.c: the problems that CPU attention supports, the arithmetic it declares, and how it cuts a
 * call into items.
 *
 * Few queries (decode, verification of speculated tokens): an item is one split of the context of one
 * sequence, with all KV heads. It goes tile by tile, and within a tile head by head. In the NHD layout it
 * then reads whole pages in address order. The heads are divided between items only when there are too few
 * items for the threads. Many queries: an item is a block of queries of one KV head over the whole visible
 * context.
 */
#include "attention_plan.h"

#include "exp2.h"

#include <math.h>
#include <string.h>

static int supports_formats(const struct kvg_attention_ops *ops, enum kvg_path path,
                            const struct kvg_problem *p, char *why, size_t size)
{
    const enum kvg_dtype q = path == KVG_PATH_FP8 ? KVG_E4M3 : KVG_BF16;
    const uint32_t kv = path == KVG_PATH_FP8 ? 1u << KVG_E4M3 : ops->dtypes;

    if (p->path != path) {
        return kvg_cpu_no(why, size, "the kernel serves path %s only",
                          path == KVG_PATH_FP8 ? "fp8" : "dequant");
    }
    if (p->q_dtype != q) {
        return kvg_cpu_no(why, size, "Q is %s on this path, not %s", kvg_dtype_name(q),
                          kvg_dtype_name(p->q_dtype));
    }
    if ((unsigned)p->kv_dtype > KVG_E4M3FNUZ || !(kv >> p->kv_dtype & 1u)) {
        return kvg_cpu_no(why, size, "a cache of %s is not supported by this kernel",
                          kvg_dtype_name(p->kv_dtype));
    }
    if (p->out_dtype != KVG_BF16)
        return kvg_cpu_no(why, size, "the output is bf16, not %s", kvg_dtype_name(p->out_dtype));
    return 1;
}

static int supports_shape(const struct kvg_problem *p, char *why, size_t size)
{
    if (p->batch < 1 || p->kv_heads < 1 || p->q_heads < 1 || p->q_heads % p->kv_heads != 0) {
        return kvg_cpu_no(why, size, "q_heads (%lld) must be a positive multiple of kv_heads (%lld)",
                          (long long)p->q_heads, (long long)p->kv_heads);
    }
    if (p->head_dim < KVG_DIM_STEP || p->head_dim % KVG_DIM_STEP != 0) {
        return kvg_cpu_no(why, size, "head_dim %lld is not a multiple of %d", (long long)p->head_dim,
                          KVG_DIM_STEP);
    }
    if (p->block_size < 1)
        return kvg_cpu_no(why, size, "block_size %lld is not positive", (long long)p->block_size);
    if (p->window < 0 || !(p->soft_cap >= 0.0f) || p->threads < 1)
        return kvg_cpu_no(why, size, "window and soft_cap must not be negative, threads must be at least 1");
    if ((unsigned)p->mask > KVG_MASK_PREFIX)
        return kvg_cpu_no(why, size, "mask %d is not known", (int)p->mask);
    if (p->mask == KVG_MASK_CHUNKED && p->chunk < 1)
        return kvg_cpu_no(why, size, "a chunk has at least 1 key, not %lld", (long long)p->chunk);
    return 1;
}

int kvg_attention_supports(const struct kvg_attention_ops *ops, enum kvg_path path,
                           const struct kvg_problem *problem, char *why, size_t size)
{
    if (problem->phase != KVG_PHASE_DECODE && problem->phase != KVG_PHASE_APPEND &&
        problem->phase != KVG_PHASE_PREFILL)
        return kvg_cpu_no(why, size, "the kernel attends only; use a store kernel for this phase");
    return kvg_cpu_has(ops->isa, why, size) && supports_formats(ops, path, problem, why, size) &&
           supports_shape(problem, why, size);
}

static int64_t split_tokens(const struct kvg_problem *p)
{
    return p->max_q_len <= KVG_SPLIT_MAX_QUERIES && p->max_seq_len > KVG_SPLIT_TOKENS ? KVG_SPLIT_TOKENS : 0;
}

/* 1 if the other sequences of a call decide whether a sequence of this problem is split: it is longer than a
 * split, and may have few query rows. A sequence that is no longer than a split is never cut. */
static int splits_by_company(const struct kvg_problem *p)
{
    const int all_have_many = p->max_q_len > KVG_SPLIT_MAX_QUERIES && p->total_q == p->batch * p->max_q_len;
    return p->max_seq_len > KVG_SPLIT_TOKENS && !all_have_many;
}

void kvg_attention_arithmetic(const struct kvg_attention_ops *ops, const struct kvg_problem *problem,
                              struct kvg_arithmetic *out)
{
    const int fp8 = problem->path == KVG_PATH_FP8;

    memset(out, 0, sizeof *out);
    out->qk_operand = ops->operand;
    out->qk_accumulator_bits = ops->sum_bits ? ops->sum_bits : 24;
    out->qk_chain = ops->qk_chain(problem->head_dim);
    out->exp2_rel_error = ops->exp2_rel_error;
    out->p_format = fp8 ? KVG_E4M3 : ops->p_format;
    out->p_offset_log2 = fp8 ? 8 : ops->p_format == KVG_F16 ? ilogbf(ops->p_factor(problem->kv_dtype)) : 0;
    out->pv_operand = ops->operand;
    out->pv_accumulator_bits = ops->sum_bits ? ops->sum_bits : 24;
    out->pv_flush_interval = ops->pv_flush;
    if (ops->sum_bits) {
        out->accumulator_rounding = KVG_ROUND_NEAREST;
        out->qk_smallest_normal = ops->qk_smallest_normal(problem->head_dim);
        out->pv_smallest_normal = ops->pv_smallest_normal(problem->kv_dtype);
    }
    out->tile = KVG_TILE;
    out->split_tokens = split_tokens(problem);
    out->deterministic = 1;
    out->same_bits_under = KVG_MOVE_PAGES | KVG_MOVE_HEADS | KVG_MOVE_SEQUENCES | KVG_MOVE_WORK;
    if (!splits_by_company(problem))
        out->same_bits_under |= KVG_MOVE_COMPANY;
    if (ops->rows_apart && problem->max_seq_len <= KVG_SPLIT_TOKENS)
        out->same_bits_under |= KVG_MOVE_CHUNKS;
}

static int64_t minimum(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t maximum(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* KV heads per item. */
static int64_t chunk_heads(const struct kvg_problem *p, const struct kvg_attention_plan *plan)
{
    const int64_t blocks = (maximum(p->max_q_len, 1) + plan->block_queries - 1) / plan->block_queries;
    const int64_t splits =
        plan->split_tokens ? (p->max_seq_len + plan->split_tokens - 1) / plan->split_tokens : 1;
    const int64_t wanted = (int64_t)p->threads * (p->threads > 1 ? KVG_ITEMS_PER_THREAD : 1);
    const int64_t items = p->batch * blocks * splits;
    const int64_t fit = maximum(1, KVG_ITEM_ACC_BYTES / (plan->block_rows * plan->acc_stride * 4));
    int64_t heads = minimum(p->kv_heads, fit);

    if (p->max_q_len > KVG_SPLIT_MAX_QUERIES)
        return 1;
    while (heads > 1 && items * ((p->kv_heads + heads - 1) / heads) < wanted)
        heads = (heads + 1) / 2;
    return heads;
}

/* Places one array after the last. */
static int64_t place(int64_t *end, int64_t bytes)
{
    const int64_t at = *end;

    *end = at + kvg_round_up(bytes, KVG_ALIGN);
    return at;
}

static void plan_thread(const struct kvg_attention_ops *ops, const struct kvg_problem *p,
                        struct kvg_attention_plan *plan)
{
    const int64_t rows = kvg_round_up(plan->block_rows, ops->row_step), heads = plan->chunk_heads;
    int64_t end = 0;

    plan->q_head_bytes = kvg_round_up(ops->packed_q_bytes(plan->block_rows, p->head_dim), KVG_ALIGN);
    plan->acc_head_bytes = plan->block_rows * plan->acc_stride * 4;
    plan->q_at = place(&end, heads * plan->q_head_bytes);
    plan->acc_at = place(&end, heads * plan->acc_head_bytes);
    plan->state_at = place(&end, heads * plan->block_rows * (int64_t)sizeof(struct kvg_row_state));
    plan->factor_at = place(&end, rows * 4);
    plan->s_at = place(&end, rows * KVG_TILE * 4);
    plan->p_at = place(&end, rows * ops->p_row_bytes);
    plan->zero_at = place(&end, p->head_dim * 4);
    plan->scratch_at = place(&end, ops->scratch_bytes(p->head_dim));
    plan->thread_bytes = end;
}

void kvg_attention_make_plan(const struct kvg_attention_ops *ops, const struct kvg_problem *p,
                             struct kvg_attention_plan *plan)
{
    int64_t end = 0;

    memset(plan, 0, sizeof *plan);
    plan->group = p->q_heads / p->kv_heads;
    plan->split_tokens = split_tokens(p);
    plan->block_queries = minimum(maximum(p->max_q_len, 1), maximum(1, KVG_ITEM_ROWS / plan->group));
    plan->block_rows = plan->block_queries * plan->group;
    plan->acc_stride = kvg_round_up(p->head_dim, KVG_ALIGN / 4);
    plan->chunk_heads = chunk_heads(p, plan);
    plan->chunks = (p->kv_heads + plan->chunk_heads - 1) / plan->chunk_heads;
    plan->partial_floats = kvg_round_up(p->max_q_len * p->q_heads * (p->head_dim + 2), KVG_ALIGN / 4);
    if (plan->split_tokens) {
        const int64_t longest = (p->max_seq_len + plan->split_tokens - 1) / plan->split_tokens;
        plan->max_partials = minimum(p->total_kv / plan->split_tokens + p->batch, p->batch * longest);
    }
    plan_thread(ops, p, plan);
    plan->sequences_at = place(&end, 2 * (p->batch + 1) * 8);
    plan->partials_at = place(&end, plan->max_partials * plan->partial_floats * 4);
    plan->threads_at = place(&end, p->threads * plan->thread_bytes);
    plan->bytes = end + KVG_ALIGN;
}

int64_t kvg_attention_workspace(const struct kvg_attention_ops *ops, const struct kvg_problem *problem)
{
    struct kvg_attention_plan plan;

    kvg_attention_make_plan(ops, problem, &plan);
    return plan.bytes;
}
