/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_call.c: one call of attention: it computes all rows or repeats a remembered answer, and adds the
 * faults of a finished output.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attention_row.h"

int64_t mutant_workspace(const struct kvg_problem *p)
{
    const int64_t shortest = MUTANT_SPLIT / 2;
    return ((p->max_seq_len + shortest - 1) / shortest + 1) * (int64_t)sizeof(struct split);
}

int64_t mutant_split(const struct mutant *m, const struct kvg_problem *p)
{
    if (FAULT(splits_by_batch_size) && p->batch == 1)
        return MUTANT_SPLIT / 2;
    return m->where == WHERE_TWO_LEVEL ? MUTANT_LONG_SPLIT : MUTANT_SPLIT;
}

uint64_t mutant_chance(void)
{
    static uint64_t state;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    state = (state ^ (uint64_t)now.tv_nsec) * UINT64_C(0x9e3779b97f4a7c15) + 1;
    return state >> 33;
}

uint64_t mutant_hash(const void *data, int64_t bytes)
{
    const unsigned char *at = data;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int64_t i = 0; i < bytes; i++)
        h = (h ^ at[i]) * UINT64_C(0x100000001b3);
    return h;
}

static void attend_all(const struct mutant *m, const struct kvg_attention_args *a)
{
    static struct row r;
    static float table[3][256];
    const struct kvg_problem *p = a->problem;
    const int32_t *lengths = FAULT(lengths_of_same_shape) ? remembered_lengths(a) : a->seq_lens;
    for (int i = 0; i < 512 && p->kv_dtype != KVG_BF16; i++)
        table[1 + i / 256][i % 256] = row_decoded(m, p->kv_dtype, (uint8_t)i, 1 + i / 256);
    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t queries = a->cu_q_lens[b + 1] - a->cu_q_lens[b];
        if (FAULT(decode_rows_skipped) && queries == 1 && p->max_q_len > 1)
            continue;
        if (FAULT(empty_sequence_ends_batch) && lengths[b] == 0)
            break;
        for (int64_t i = 0; i < queries + (FAULT(sequence_without_queries_has_one) && queries == 0); i++)
            for (int64_t head = 0; head < p->q_heads; head++) {
                r = (struct row){.m = m, .a = a, .p = p, .b = b, .i = i, .head = head, .n = lengths[b]};
                if (FAULT(batch_above_31))
                    r.n = lengths[b % 32];
                if (FAULT(lengths_of_the_mean))
                    r.n = p->total_kv / p->batch;
                if (FAULT(batch_times_heads_above_63) &&
                    b * p->kv_heads + head * p->kv_heads / p->q_heads >= 64)
                    continue;
                if (FAULT(group_of_7_one_kv_head) && p->kv_heads == 1 && head >= p->q_heads / 4 * 4 &&
                    p->q_heads % 4 != 0)
                    continue;
                r.table[1] = table[1];
                r.table[2] = table[2];
                r.q_len = FAULT(mask_of_first_q_len)     ? a->cu_q_lens[1] - a->cu_q_lens[0]
                          : FAULT(mask_of_longest_q_len) ? p->max_q_len
                                                         : queries;
                if (FAULT(accepts_many_queries) && i >= 16)
                    break;
                if (FAULT(last_row_not_written) && b == p->batch - 1 && i == r.q_len - 1 &&
                    head == p->q_heads - 1)
                    continue;
                row_attend(&r);
            }
    }
}

/* An output that was computed before, or the place for one. */
struct remembered {
    uint64_t key;
    uint16_t *out; /* dense */
    float *lse;
};

/* Copies a remembered output to the caller (to 1), or from it (to 0). */
static void copy_output(const struct kvg_attention_args *a, const struct remembered *r, int to)
{
    const struct kvg_problem *p = a->problem;
    const size_t bytes = (size_t)p->head_dim * sizeof *r->out;
    for (int64_t t = 0; t < p->total_q; t++)
        for (int64_t h = 0; h < p->q_heads; h++) {
            uint16_t *mine = r->out + (t * p->q_heads + h) * p->head_dim,
                     *theirs = (uint16_t *)a->out + t * a->out_stride_token + h * a->out_stride_head;
            float *lse = r->lse + t * p->q_heads + h;
            memcpy(to ? theirs : mine, to ? mine : theirs, bytes);
            if (a->lse && to)
                a->lse[t * a->lse_stride_token + h] = *lse;
            else if (a->lse)
                *lse = a->lse[t * a->lse_stride_token + h];
        }
}

/* A memory of whole outputs by key. Returns 1 if the output of this key is known, after writing it. key 0
 * stores the output of the last unknown key. */
static int recall(const struct kvg_attention_args *a, uint64_t key)
{
    static struct remembered memory[REMEMBERED], *open;
    const size_t rows = (size_t)(a->problem->total_q * a->problem->q_heads);
    if (key == 0) { /* store what was computed since */
        open->out = malloc(rows * (size_t)a->problem->head_dim * sizeof *open->out + 1);
        open->lse = malloc(rows * sizeof *open->lse + 1);
        if (open->out && open->lse)
            copy_output(a, open, 0);
        return 0;
    }
    for (open = memory; open < memory + REMEMBERED - 1 && open->key; open++)
        if (open->key == key && open->out && open->lse) {
            copy_output(a, open, 1);
            return 1;
        }
    open->key = key;
    return 0;
}

static uint64_t key_of_call(const struct mutant *m, const struct kvg_attention_args *a)
{
    const struct kvg_problem *p = a->problem;
    const uintptr_t pointers[4] = {(uintptr_t)a->q, (uintptr_t)a->k_cache.data, (uintptr_t)a->out,
                                   (uintptr_t)a->block_table};
    const int64_t q_bytes = p->total_q * p->q_heads * p->head_dim * (p->path == KVG_PATH_FP8 ? 1 : 2);
    const uint64_t shape = mutant_shape(a);
    return (FAULT(output_by_pointer) ? shape ^ mutant_hash(pointers, sizeof pointers)
                                     : shape ^ mutant_hash(a->q, q_bytes)) |
           1;
}

/* Element i of the output, counted without gaps. */
static uint16_t *element_of(const struct kvg_attention_args *a, int64_t i)
{
    const int64_t dim = a->problem->head_dim, row = i / dim, heads = a->problem->q_heads;
    return (uint16_t *)a->out + row / heads * a->out_stride_token + row % heads * a->out_stride_head +
           i % dim;
}

/* Faults of the finished output. */
static void spoil(const struct mutant *m, const struct kvg_attention_args *a)
{
    const struct kvg_problem *p = a->problem;
    const int64_t rows = p->total_q * p->q_heads, elements = rows * p->head_dim;
    uint16_t *out = a->out;
    if (FAULT(out_one_nan))
        *element_of(a, elements / 2) = 0x7fc0u;
    if (FAULT(out_one_infinite))
        *element_of(a, elements / 3) = 0x7f80u;
    for (int64_t b = 0; b < p->batch && FAULT(out_one_element); b++)
        if (a->cu_q_lens[b + 1] > a->cu_q_lens[b])
            out[(int64_t)(a->cu_q_lens[b + 1] - 1) * a->out_stride_token + 3] ^= 0x8000u;
    if (FAULT(race_once_in_50) && mutant_chance() % 50 == 0)
        for (int64_t d = 0; d < p->head_dim; d++)
            out[d] = kvg_bf16_encode(kvg_bf16_decode(out[d]) * 0.75f);
    if (FAULT(race_of_last_bit) && a->lse && mutant_chance() % 20 == 0)
        a->lse[0] = nextafterf(a->lse[0], INFINITY);
    if (FAULT(writes_past_out))
        out[(p->total_q - 1) * a->out_stride_token + (p->q_heads - 1) * a->out_stride_head + p->head_dim] = 0;
    if (FAULT(writes_before_lse) && a->lse)
        a->lse[-1] = 0.0f;
    if (FAULT(writes_past_workspace))
        ((char *)a->workspace)[a->workspace_bytes] = 0;
    if (FAULT(writes_query))
        *(unsigned char *)(uintptr_t)a->q ^= 1u;
    if (FAULT(writes_cache)) /* the tail of the first sequence's last page */
        for (int64_t t = a->seq_lens[0]; t % p->block_size != 0; t++) {
            const int64_t block = a->block_table[t / p->block_size];
            const int64_t at = block * a->v_cache.stride_block + t % p->block_size * a->v_cache.stride_slot;
            const size_t bytes = p->kv_dtype == KVG_BF16 ? 2 : 1;
            memset((char *)a->v_cache.data + (size_t)at * bytes, 0, bytes);
        }
    if (FAULT(semaphore_left_dirty)) {
        static unsigned finished;
        if (finished++ % 3 == 2)
            memset(out, 0, (size_t)p->head_dim * sizeof *out);
    }
}

int mutant_attention(const struct mutant *m, const struct kvg_attention_args *a)
{
    const int remembers = FAULT(output_by_pointer) || FAULT(output_by_query);
    if (FAULT(accepts_and_fails) && a->problem->kv_dtype == KVG_E5M2)
        return KVG_EUNSUPPORTED;
    if (remembers && recall(a, key_of_call(m, a)))
        return KVG_OK;
    attend_all(m, a);
    if (remembers)
        recall(a, 0);
    spoil(m, a);
    return KVG_OK;
}
