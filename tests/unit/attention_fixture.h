/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_fixture.h: a paged attention problem filled with random numbers, for the tests of the reference.
 * Pages are in random order and some are free. Every slot that no sequence owns holds NaN.
 */
#ifndef KVG_TESTS_ATTENTION_FIXTURE_H
#define KVG_TESTS_ATTENTION_FIXTURE_H

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "reference/attention.h"

struct shape {
    int64_t batch, q_heads, kv_heads, head_dim, block_size;
    int64_t seq_len[4], q_len[4];
    enum kvg_ref_format q_format, kv_format;
    int per_head, hnd, causal;
    int64_t window;
    double soft_cap, q_factor, v_mean; /* Q is q_factor * N(0,1), V is N(v_mean, 1), before their scales */
};

struct problem {
    struct shape shape;
    struct kvg_ref_attention a;
    struct kvg_ref_row *rows; /* all rows, query by query */
    int64_t n_rows;
    unsigned char *q, *k, *v; /* bytes behind a.q, a.k.data and a.v.data */
    int64_t blocks;
    int32_t *table;
    float q_scale[16], k_scale[16], v_scale[16];
    int32_t seq_lens[4], cu_q_lens[5];
};

static uint64_t fixture_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* About normal: the sum of four uniforms, scaled to variance 1. */
static float fixture_normal(uint64_t *state)
{
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (double)(fixture_random(state) >> 11) * 0x1p-53 - 0.5;
    return (float)(sum * 1.7320508);
}

static int64_t fixture_longest(const struct shape *s)
{
    int64_t longest = 1;
    for (int64_t b = 0; b < s->batch; b++)
        longest = s->seq_len[b] > longest ? s->seq_len[b] : longest;
    return longest;
}

/* A block table in random order, over more blocks than are needed. */
static void fixture_table(struct problem *p, uint64_t *state)
{
    struct shape *s = &p->shape;
    int64_t stride = (fixture_longest(s) + s->block_size - 1) / s->block_size, needed = stride * s->batch;
    p->blocks = needed + 3;
    int32_t *order = malloc((size_t)p->blocks * sizeof *order);
    p->table = malloc((size_t)needed * sizeof *p->table);
    assert_non_null(order);
    assert_non_null(p->table);
    for (int64_t i = 0; i < p->blocks; i++)
        order[i] = (int32_t)i;
    for (int64_t i = p->blocks - 1; i > 0; i--) {
        int64_t j = (int64_t)(fixture_random(state) % (uint64_t)(i + 1));
        int32_t swap = order[i];
        order[i] = order[j], order[j] = swap;
    }
    memcpy(p->table, order, (size_t)needed * sizeof *order);
    free(order);
    p->a.k.block_table_stride = p->a.v.block_table_stride = stride;
}

static void fixture_view(struct problem *p, struct kvg_ref_kv *kv, const unsigned char *data,
                         const float *scale)
{
    const struct shape *s = &p->shape;
    kv->format = s->kv_format;
    kv->data = data;
    kv->block_size = s->block_size;
    kv->block_table = p->table;
    kv->stride_block = s->block_size * s->kv_heads * s->head_dim;
    kv->stride_slot = s->hnd ? s->head_dim : s->kv_heads * s->head_dim;
    kv->stride_head = s->hnd ? s->block_size * s->head_dim : s->head_dim;
    kv->scale = scale;
    kv->scale_stride = s->per_head;
}

/* A cache of NaN, with numbers in the slots that sequences own. */
static unsigned char *fixture_cache(struct problem *p, struct kvg_ref_kv *kv, const float *scale, double mean,
                                    uint64_t *state)
{
    const struct shape *s = &p->shape;
    int64_t elements = p->blocks * s->block_size * s->kv_heads * s->head_dim;
    int64_t bytes = kvg_ref_format_get_info(s->kv_format)->bytes;
    unsigned char *data = malloc((size_t)(elements * bytes));
    assert_non_null(data);
    fixture_view(p, kv, data, scale);
    float row[256];
    memset(data, s->kv_format == KVG_REF_E4M3FNUZ ? 0x80 : 0xff,
           (size_t)(elements * bytes)); /* NaN everywhere */
    assert_true(isnan(kvg_ref_load(s->kv_format, data, elements - 1)));
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t t = 0; t < s->seq_len[b]; t++)
            for (int64_t h = 0; h < s->kv_heads; h++) {
                for (int64_t d = 0; d < s->head_dim; d++)
                    row[d] = fixture_normal(state) + (float)mean;
                kvg_ref_store_row(s->kv_format, data, kvg_ref_kv_index(kv, b, t, h), s->head_dim, row);
            }
    return data;
}

static void fixture_queries(struct problem *p, uint64_t *state)
{
    const struct shape *s = &p->shape;
    for (int64_t b = 0; b < s->batch; b++) {
        p->seq_lens[b] = (int32_t)s->seq_len[b];
        p->cu_q_lens[b + 1] = p->cu_q_lens[b] + (int32_t)s->q_len[b];
    }
    int64_t total = p->cu_q_lens[s->batch], elements = total * s->q_heads * s->head_dim;
    p->q = malloc((size_t)elements * sizeof(float));
    p->rows = malloc((size_t)(total * s->q_heads) * sizeof *p->rows);
    assert_non_null(p->q);
    assert_non_null(p->rows);
    for (int64_t i = 0; i < elements; i++)
        kvg_ref_store(s->q_format, p->q, i, fixture_normal(state) * (float)s->q_factor);
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t i = 0; i < s->q_len[b]; i++)
            for (int64_t h = 0; h < s->q_heads; h++)
                p->rows[p->n_rows++] = (struct kvg_ref_row){(int32_t)b, (int32_t)i, (int32_t)h};
}

static void problem_make(struct problem *p, const struct shape *s, uint64_t seed)
{
    uint64_t state = seed * 2654435761u + 88172645463325252u;
    *p = (struct problem){.shape = *s};
    for (int64_t h = 0; h < s->kv_heads; h++) {
        p->q_scale[h] = (float)(45 + fixture_random(&state) % 46) / 64;
        p->k_scale[h] = (float)(32 + fixture_random(&state) % 96) / 64;
        p->v_scale[h] = (float)(16 + fixture_random(&state) % 240) / 64;
    }
    fixture_table(p, &state);
    p->k = fixture_cache(p, &p->a.k, p->k_scale, 0, &state);
    p->v = fixture_cache(p, &p->a.v, p->v_scale, s->v_mean, &state);
    fixture_queries(p, &state);
    struct kvg_ref_attention *a = &p->a;
    a->batch = s->batch, a->q_heads = s->q_heads, a->kv_heads = s->kv_heads, a->head_dim = s->head_dim;
    a->q_format = s->q_format, a->q = p->q;
    a->q_stride_token = s->q_heads * s->head_dim, a->q_stride_head = s->head_dim;
    a->q_scale = p->q_scale, a->q_scale_stride = s->per_head;
    a->seq_lens = p->seq_lens, a->cu_q_lens = p->cu_q_lens;
    a->softmax_scale = 1 / sqrt((double)s->head_dim);
    a->soft_cap = s->soft_cap,
    a->mask = (struct kvg_ref_mask){.kind = s->causal ? KVG_REF_CAUSAL : KVG_REF_FULL, .window = s->window},
    a->threads = 2;
}

static void problem_free(struct problem *p)
{
    free(p->rows);
    free(p->q);
    free(p->k);
    free(p->v);
    free(p->table);
}

/* The shapes for which every property is tested:
 *   - decode, append and prefill;
 *   - 1, 2, 3, 4, 7 and 16 query heads per KV head;
 *   - ragged batches with an empty sequence, with more queries than keys, and without any query;
 *   - lengths at block and piece boundaries. */
static const struct shape shapes[] = {
    {1, 4, 4, 64, 16, {33}, {1}, KVG_REF_BF16, KVG_REF_E4M3, 0, 0, 1, 0, 0, 1, 0},
    {3, 8, 2, 128, 16, {100, 0, 2049}, {1, 1, 1}, KVG_REF_BF16, KVG_REF_E4M3, 1, 1, 1, 0, 0, 1, 1},
    {2, 7, 1, 80, 8, {31, 32}, {5, 40}, KVG_REF_BF16, KVG_REF_E5M2, 0, 0, 1, 0, 0, 1, 0},
    {2, 6, 2, 96, 24, {65, 129}, {65, 129}, KVG_REF_E4M3, KVG_REF_E4M3, 1, 0, 1, 0, 0, 1, 0},
    {2, 4, 2, 64, 16, {300, 77}, {4, 2}, KVG_REF_BF16, KVG_REF_BF16, 1, 1, 1, 70, 0, 2, 0},
    {1, 2, 1, 256, 32, {517}, {3}, KVG_REF_F16, KVG_REF_F16, 0, 0, 0, 0, 30, 8, 0},
    {2, 3, 3, 7, 8, {2048, 4097}, {2, 1}, KVG_REF_F32, KVG_REF_F32, 0, 0, 1, 2050, 5, 3, 1},
    {4, 16, 1, 192, 16, {1, 0, 2, 16}, {1, 2, 0, 16}, KVG_REF_BF16, KVG_REF_E4M3FNUZ, 1, 1, 1, 3, 20, 1, 0},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

#endif
