/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_results.c: the results of CPU attention: output and lse of a row from its state and accumulator,
 * the partial results of splits, and their merge in the order of the splits.
 */
#include "attention_call.h"
#include "exp2.h"

#include <math.h>
#include <string.h>

/* log2 of the sum of e^logit over the keys. */
static double log2_of_keys(const struct kvg_row_state *state, float offset)
{
    return (double)state->max + log2((double)state->sum) - (double)offset;
}

/* What the keys of a row keep beside a sink: e^lse / (e^lse + e^sink), with the lse of the keys. */
static float share_of_keys(float sink, const struct kvg_row_state *state, float offset)
{
    return (float)(1.0 / (1.0 + exp((double)sink - log2_of_keys(state, offset) * KVG_LN2)));
}

/* ln(e^lse + e^sink), without an overflow. `lse` is NaN or -infinity too. */
static float lse_with_sink(double lse, double sink)
{
    if (sink > lse)
        return (float)(sink + log1p(exp(lse - sink)));
    return (float)(lse + log1p(exp(sink - lse)));
}

/* Output and lse of one row from its state and accumulator. */
static void write_row(const struct kvg_attention_call *call, int64_t token, int64_t q_head,
                      const struct kvg_row_state *state, const float *acc)
{
    const struct kvg_attention_args *a = call->args;
    const float offset = call->problem->path == KVG_PATH_FP8 ? 8.0f : 0.0f;
    uint16_t *out = (uint16_t *)a->out + token * a->out_stride_token + q_head * a->out_stride_head;
    /* sum == 0 only where no key is visible: the largest p of a row is 1 (or 2^offset). A NaN is not 0, so it
     * reaches the output. */
    const int none = state->sum == 0.0f;
    float factor = none ? 0.0f : kvg_scale_of(&a->scales.v, q_head / call->plan.group) / state->sum;

    if (a->sinks && !none)
        factor *= share_of_keys(a->sinks[q_head], state, offset);
    for (int64_t d = 0; d < call->problem->head_dim; d++)
        out[d] = kvg_bf16_encode(acc[d] * factor);
    if (a->lse) {
        const double lse = none ? -INFINITY : log2_of_keys(state, offset) * KVG_LN2;
        a->lse[token * a->lse_stride_token + q_head] =
            a->sinks ? lse_with_sink(lse, (double)a->sinks[q_head]) : (float)lse;
    }
}

/* Partial result of a split: accumulators [max_q_len * q_heads, head_dim], then states. */
static float *partial(const struct kvg_attention_call *call, int64_t seq, int64_t split)
{
    return (float *)(void *)(call->base + call->plan.partials_at) +
           (call->first_part[seq] + split) * call->plan.partial_floats;
}

void kvg_finish_item(const struct kvg_attention_call *call, const struct kvg_item *it,
                     const struct kvg_item_scratch *t)
{
    const int64_t group = call->plan.group, dim = call->problem->head_dim, q_heads = call->problem->q_heads;
    const int64_t token = call->args->cu_q_lens[it->seq];

    for (int64_t h = 0; h < it->heads; h++) {
        for (int64_t r = 0; r < it->queries * group; r++) {
            const int64_t query = it->query + r / group, q_head = (it->head + h) * group + r % group;
            const struct kvg_row_state *state = &t->state[h * call->plan.block_rows + r];
            const float *acc = t->acc + h * call->plan.acc_head_bytes / 4 + r * call->plan.acc_stride;

            if (it->single) {
                write_row(call, token + query, q_head, state, acc);
            } else {
                float *part = partial(call, it->seq, it->split);
                const int64_t row = query * q_heads + q_head;
                memcpy(part + row * dim, acc, (size_t)dim * 4);
                memcpy(part + call->problem->max_q_len * q_heads * dim + row * 2, state, sizeof *state);
            }
        }
    }
}

/* Merges one row of a sequence with several splits, in the order of the splits. A split without a visible key
 * has max = -inf and sum = 0. It is skipped, so that -inf - -inf is not computed. */
static void merge_row(const struct kvg_attention_call *call, int64_t seq, int64_t query, int64_t q_head,
                      float *acc)
{
    const int64_t splits = kvg_splits_of(call, call->args->seq_lens[seq]), dim = call->problem->head_dim;
    const int64_t row = query * call->problem->q_heads + q_head;
    const int64_t states_at = call->problem->max_q_len * call->problem->q_heads * dim + row * 2;
    struct kvg_row_state all = {-INFINITY, 0.0f}, one;

    for (int64_t s = 0; s < splits; s++) {
        memcpy(&one, partial(call, seq, s) + states_at, sizeof one);
        all.max = one.max > all.max ? one.max : all.max;
    }
    memset(acc, 0, (size_t)dim * 4);
    for (int64_t s = 0; s < splits; s++) {
        const float *part = partial(call, seq, s);
        float weight;

        memcpy(&one, part + states_at, sizeof one);
        if (one.sum == 0.0f)
            continue;
        weight = kvg_exp2(one.max - all.max);
        all.sum += one.sum * weight;
        for (int64_t d = 0; d < dim; d++)
            acc[d] += part[row * dim + d] * weight;
    }
    write_row(call, call->args->cu_q_lens[seq] + query, q_head, &all, acc);
}

void kvg_merge_sequence(const struct kvg_attention_call *call, int64_t seq, float *acc)
{
    const int64_t q_len = (int64_t)call->args->cu_q_lens[seq + 1] - call->args->cu_q_lens[seq];

    if (kvg_splits_of(call, call->args->seq_lens[seq]) == 1)
        return;
    for (int64_t i = 0; i < q_len; i++) {
#pragma omp for schedule(static) nowait
        for (int64_t h = 0; h < call->problem->q_heads; h++)
            merge_row(call, seq, i, h, acc);
    }
}
