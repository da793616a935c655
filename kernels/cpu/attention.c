/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.c: the driver of CPU attention. It walks the items of the plan with OpenMP, and each item through
 * its tiles of keys.
 *
 * While a tile is computed, the next one is prefetched through the block table: the hardware's prefetcher
 * stops at every page, or is switched off.
 */
#include "attention.h"
#include "attention_call.h"

#include <math.h>
#include <omp.h>
#include <string.h>

static int64_t blocks_of(const struct kvg_attention_call *call, int64_t q_len)
{
    return (q_len + call->plan.block_queries - 1) / call->plan.block_queries;
}

/* Numbers the items and partials of each sequence. */
static int number_items(struct kvg_attention_call *call)
{
    const struct kvg_attention_args *a = call->args;
    const struct kvg_problem *p = call->problem;
    int64_t items = 0, parts = 0;

    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t n = a->seq_lens[b], q_len = (int64_t)a->cu_q_lens[b + 1] - a->cu_q_lens[b];
        int64_t splits;

        if (n < 0 || n > p->max_seq_len || q_len < 0 || q_len > p->max_q_len)
            return KVG_EINVAL;
        splits = kvg_splits_of(call, n);
        call->first_item[b] = items;
        call->first_part[b] = parts;
        items += splits * blocks_of(call, q_len) * call->plan.chunks;
        parts += splits > 1 ? splits : 0;
    }
    call->first_item[p->batch] = items;
    call->first_part[p->batch] = parts;
    return parts <= call->plan.max_partials ? KVG_OK : KVG_EINVAL;
}

/* Fills in item `index`. Later queries come first: under a causal mask they see more keys, and a long item
 * that starts last would keep one thread busy alone. */
static void find_item(const struct kvg_attention_call *call, int64_t index, struct kvg_item *it)
{
    const struct kvg_attention_args *a = call->args;
    const struct kvg_attention_plan *plan = &call->plan;
    int64_t low = 0, high = call->problem->batch, rest, blocks, block, first, unused;

    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (call->first_item[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    it->seq = low;
    it->seq_len = a->seq_lens[low];
    it->q_len = (int64_t)a->cu_q_lens[low + 1] - a->cu_q_lens[low];
    it->single = kvg_splits_of(call, it->seq_len) == 1;
    rest = index - call->first_item[low];
    blocks = blocks_of(call, it->q_len);
    it->head = rest % plan->chunks * plan->chunk_heads;
    it->heads = call->problem->kv_heads - it->head;
    it->heads = it->heads < plan->chunk_heads ? it->heads : plan->chunk_heads;
    rest /= plan->chunks;
    block = blocks - 1 - rest % blocks;
    it->split = rest / blocks;
    it->query = block * plan->block_queries;
    it->queries = it->q_len - it->query;
    it->queries = it->queries < plan->block_queries ? it->queries : plan->block_queries;
    kvg_visible(call, it, it->query, &first, &unused);
    kvg_visible(call, it, it->query + it->queries - 1, &unused, &it->end);
    it->begin = first;
    if (!it->single) {
        const int64_t from = it->split * plan->split_tokens, to = from + plan->split_tokens;
        it->begin = it->begin > from ? it->begin : from;
        it->end = it->end < to ? it->end : to;
    }
}

/* Switches to whole tiles (on = 1) or back. */
static void turn_whole(const struct kvg_attention_call *call, const struct kvg_item *it,
                       const struct kvg_item_scratch *t, int on)
{
    const int64_t dim = call->problem->head_dim, rows = it->heads * call->plan.block_rows;

    if (on)
        call->ops->whole_begin(it->queries * call->plan.group, dim, t->acc, rows, call->plan.acc_stride);
    else
        call->ops->whole_end(dim, t->acc, rows, call->plan.acc_stride);
}

static void prepare_item(const struct kvg_attention_call *call, const struct kvg_item *it,
                         const struct kvg_item_scratch *t)
{
    const struct kvg_attention_args *a = call->args;
    const int64_t group = call->plan.group, rows = it->queries * group,
                  bytes = kvg_dtype_bytes(call->problem->q_dtype);
    const int64_t token = a->cu_q_lens[it->seq] + it->query;

    memset(t->acc, 0, (size_t)(it->heads * call->plan.acc_head_bytes));
    memset(t->zero, 0, (size_t)call->problem->head_dim * 4);
    for (int64_t h = 0; h < it->heads; h++) {
        const void *row[rows];

        for (int64_t r = 0; r < rows; r++) {
            const int64_t q_head = (it->head + h) * group + r % group;
            row[r] = (const char *)a->q +
                     ((token + r / group) * a->q_stride_token + q_head * a->q_stride_head) * bytes;
            t->state[h * call->plan.block_rows + r] = (struct kvg_row_state){-INFINITY, 0.0f};
        }
        call->ops->pack_q(row, rows, call->problem->head_dim, call->problem->q_dtype,
                          t->q + h * call->plan.q_head_bytes);
    }
}

static void run_item(const struct kvg_attention_call *call, const struct kvg_item *it,
                     const struct kvg_item_scratch *t)
{
    const struct kvg_attention_args *a = call->args;
    /* One thread walks the splits of a sequence in order, so it may prefetch past the end of its split. */
    const int64_t ahead_end = call->problem->threads == 1 && it->single == 0 ? it->seq_len : it->end;
    struct kvg_tile_rows k_now, v_now, k_next, v_next;
    struct kvg_softmax how[it->heads];
    int64_t start = it->begin / KVG_TILE * KVG_TILE;
    int may, whole = 0;

    prepare_item(call, it, t);
    for (int64_t h = 0; h < it->heads; h++)
        kvg_describe_softmax(call, it->head + h, &how[h]);
    if (it->begin < it->end) {
        kvg_find_rows(call, &a->k_cache, it, start, it->begin, it->end, &k_now);
        kvg_find_rows(call, &a->v_cache, it, start, it->begin, it->end, &v_now);
    }
    may = kvg_may_be_whole(call, it, how);
    for (; start < it->end && it->begin < it->end; start += KVG_TILE) {
        kvg_find_rows(call, &a->k_cache, it, start + KVG_TILE, it->begin, ahead_end, &k_next);
        kvg_find_rows(call, &a->v_cache, it, start + KVG_TILE, it->begin, ahead_end, &v_next);
        if (whole != (may && k_now.whole && kvg_all_see(call, it, start))) {
            whole = !whole;
            turn_whole(call, it, t, whole);
        }
        if (whole)
            kvg_attend_whole(call, it, t, how, &k_now, &v_now, &k_next, &v_next);
        else
            kvg_attend_heads(call, it, t, start, how, &k_now, &v_now, &k_next, &v_next);
        k_now = k_next;
        v_now = v_next;
    }
    if (whole)
        turn_whole(call, it, t, 0);
    kvg_finish_item(call, it, t);
}

static void thread_scratch(const struct kvg_attention_call *call, int thread, struct kvg_item_scratch *t)
{
    const struct kvg_attention_plan *plan = &call->plan;
    char *base = call->base + plan->threads_at + thread * plan->thread_bytes;

    t->q = base + plan->q_at;
    t->acc = (float *)(void *)(base + plan->acc_at);
    t->state = (struct kvg_row_state *)(base + plan->state_at);
    t->factor = (float *)(void *)(base + plan->factor_at);
    t->s = (float *)(void *)(base + plan->s_at);
    t->p = base + plan->p_at;
    t->zero = base + plan->zero_at;
    t->scratch = base + plan->scratch_at;
}

int kvg_attention_run(const struct kvg_attention_ops *ops, const struct kvg_attention_args *args)
{
    struct kvg_attention_call call = {.ops = ops, .args = args, .problem = args->problem};
    int64_t items;
    int status;

    kvg_attention_make_plan(ops, args->problem, &call.plan);
    if (!args->workspace || args->workspace_bytes < call.plan.bytes)
        return KVG_EINVAL;
    call.base = (char *)kvg_round_up((int64_t)(intptr_t)args->workspace, KVG_ALIGN);
    call.first_item = (int64_t *)(call.base + call.plan.sequences_at);
    call.first_part = call.first_item + call.problem->batch + 1;
    status = number_items(&call);
    if (status != KVG_OK)
        return status;
    items = call.first_item[call.problem->batch];
#pragma omp parallel num_threads(call.problem->threads)
    {
        struct kvg_item_scratch t;

        thread_scratch(&call, omp_get_thread_num(), &t);
        if (ops->begin)
            ops->begin();
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < items; i++) {
            struct kvg_item it;
            find_item(&call, i, &it);
            run_item(&call, &it, &t);
        }
        if (ops->end)
            ops->end();
        for (int64_t b = 0; b < call.problem->batch; b++)
            kvg_merge_sequence(&call, b, t.acc);
    }
    return KVG_OK;
}
