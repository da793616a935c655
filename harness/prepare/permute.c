/* SPDX-License-Identifier: Apache-2.0
 *
 * permute.c: copies of a prepared case's inputs in another order. There are three maps, for pages, heads and
 * sequences, and two of them are the identity.
 */
#include "permute.h"

#include <stdlib.h>
#include <string.h>

/* Which of the maps is not the identity. */
struct maps {
    const struct kvg_prepared *p;
    int reverse_pages, turn_heads, reverse_sequences;
    int64_t group; /* number of query heads of a KV head */
};

static int64_t page_to(const struct maps *m, int64_t page)
{
    return m->reverse_pages ? m->p->num_blocks - 1 - page : page;
}

static int64_t kv_head_to(const struct maps *m, int64_t head)
{
    return m->turn_heads ? (head + 1) % m->p->problem.kv_heads : head;
}

static int64_t q_head_to(const struct maps *m, int64_t head)
{
    const int64_t in_group = head % m->group;
    return kv_head_to(m, head / m->group) * m->group + (m->turn_heads ? (in_group + 1) % m->group : in_group);
}

static int64_t sequence_to(const struct maps *m, int64_t seq)
{
    return m->reverse_sequences ? m->p->problem.batch - 1 - seq : seq;
}

static int moves_anything(const struct maps *m)
{
    const struct kvg_problem *problem = &m->p->problem;
    return (m->reverse_pages && m->p->num_blocks > 1) || (m->turn_heads && problem->q_heads > 1) ||
           (m->reverse_sequences && problem->batch > 1);
}

static void move_cache(const struct maps *m, const struct kvg_pages *pages, void *to)
{
    const struct kvg_prepared *p = m->p;
    const int64_t size = kvg_dtype_bytes(p->problem.kv_dtype), row = p->problem.head_dim * size;
    const char *from = pages->data;
    memcpy(to, from, (size_t)(p->cache_elements * size));
    for (int64_t b = 0; b < p->num_blocks; b++)
        for (int64_t slot = 0; slot < p->c.block_size; slot++)
            for (int64_t h = 0; h < p->problem.kv_heads; h++) {
                const int64_t in_page = slot * pages->stride_slot;
                const int64_t old = b * pages->stride_block + in_page + h * pages->stride_head;
                const int64_t now =
                    page_to(m, b) * pages->stride_block + in_page + kv_head_to(m, h) * pages->stride_head;
                memcpy((char *)to + now * size, from + old * size, (size_t)row);
            }
}

static void move_scales(const struct maps *m, const float *from, float *to)
{
    const int64_t count = m->p->scale_stride ? m->p->problem.kv_heads : 1;
    for (int64_t h = 0; h < count; h++)
        to[count > 1 ? kv_head_to(m, h) : 0] = from[h];
}

static void move_tables(const struct maps *m, struct kvg_permuted *out)
{
    const struct kvg_prepared *p = m->p;
    const int64_t batch = p->problem.batch, stride = p->block_table_stride;
    for (int64_t b = 0; b < batch; b++) {
        const int64_t to = sequence_to(m, b);
        out->seq_lens[to] = p->seq_lens[b];
        out->prefix_lens[to] = p->prefix_lens ? p->prefix_lens[b] : 0;
        out->cu_q_lens[to + 1] = p->cu_q_lens[b + 1] - p->cu_q_lens[b];
        for (int64_t i = 0; i < stride; i++)
            out->block_table[to * stride + i] = (int32_t)page_to(m, p->block_table[b * stride + i]);
    }
    out->cu_q_lens[0] = 0;
    for (int64_t b = 0; b < batch; b++)
        out->cu_q_lens[b + 1] += out->cu_q_lens[b];
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = p->cu_q_lens[b]; i < p->cu_q_lens[b + 1]; i++)
            out->row[i] = out->cu_q_lens[sequence_to(m, b)] + (i - p->cu_q_lens[b]);
    for (int64_t h = 0; h < p->problem.q_heads; h++)
        out->head[h] = q_head_to(m, h);
    for (int64_t h = 0; p->sinks && h < p->problem.q_heads; h++)
        out->sinks[out->head[h]] = p->sinks[h];
}

static void move_query(const struct kvg_prepared *p, struct kvg_permuted *out)
{
    const int64_t heads = p->problem.q_heads;
    const int64_t bytes = p->problem.head_dim * (int64_t)(p->q8 ? sizeof *p->q8 : sizeof *p->q);
    const char *from = p->q8 ? (const void *)p->q8 : (const void *)p->q;
    for (int64_t i = 0; i < p->total_q; i++)
        for (int64_t h = 0; h < heads; h++)
            memcpy((char *)out->q + (out->row[i] * heads + out->head[h]) * bytes,
                   from + (i * heads + h) * bytes, (size_t)bytes);
}

static int allocate(const struct kvg_prepared *p, struct kvg_permuted *out)
{
    const size_t batch = (size_t)p->problem.batch, heads = (size_t)p->problem.q_heads;
    const size_t scales = (size_t)(p->scale_stride ? p->problem.kv_heads : 1), rows = (size_t)p->total_q;
    const size_t cache = (size_t)(p->cache_elements * kvg_dtype_bytes(p->problem.kv_dtype));
    *out = (struct kvg_permuted){
        .block_table = malloc(batch * (size_t)p->block_table_stride * sizeof *out->block_table + 1),
        .seq_lens = malloc(batch * sizeof *out->seq_lens + 1),
        .cu_q_lens = malloc((batch + 1) * sizeof *out->cu_q_lens),
        .q = malloc(rows * heads * (size_t)p->problem.head_dim * sizeof *p->q + 1),
        .q_scale = malloc(scales * sizeof *out->q_scale),
        .k_scale = malloc(scales * sizeof *out->k_scale),
        .v_scale = malloc(scales * sizeof *out->v_scale),
        .k_cache = malloc(cache + 1),
        .v_cache = malloc(cache + 1),
        .row = malloc(rows * sizeof *out->row + 1),
        .head = malloc(heads * sizeof *out->head + 1),
        .prefix_lens = malloc(batch * sizeof *out->prefix_lens + 1),
        .sinks = p->sinks ? malloc(heads * sizeof *out->sinks) : NULL,
    };
    return out->block_table && out->seq_lens && out->cu_q_lens && out->q && out->q_scale && out->k_scale &&
                   out->v_scale && out->k_cache && out->v_cache && out->row && out->head &&
                   out->prefix_lens && (out->sinks || !p->sinks)
               ? 0
               : -1;
}

int kvg_permuted_make(const struct kvg_prepared *p, enum kvg_rearrangement which, struct kvg_permuted *out)
{
    const struct maps m = {.p = p,
                           .reverse_pages = which == KVG_MOVE_PAGES,
                           .turn_heads = which == KVG_MOVE_HEADS,
                           .reverse_sequences = which == KVG_MOVE_SEQUENCES,
                           .group = p->problem.q_heads / p->problem.kv_heads};
    if (!moves_anything(&m))
        return 1;
    if (allocate(p, out)) {
        kvg_permuted_free(out);
        return -1;
    }
    move_tables(&m, out);
    move_query(p, out);
    move_scales(&m, p->q_scale, out->q_scale);
    move_scales(&m, p->k_scale, out->k_scale);
    move_scales(&m, p->v_scale, out->v_scale);
    move_cache(&m, &p->k_pages, out->k_cache);
    move_cache(&m, &p->v_pages, out->v_cache);
    return 0;
}

void kvg_permuted_free(struct kvg_permuted *m)
{
    free(m->block_table);
    free(m->seq_lens);
    free(m->cu_q_lens);
    free(m->q);
    free(m->q_scale);
    free(m->k_scale);
    free(m->v_scale);
    free(m->k_cache);
    free(m->v_cache);
    free(m->row);
    free(m->head);
    free(m->prefix_lens);
    free(m->sinks);
    *m = (struct kvg_permuted){0};
}

void kvg_permuted_restore(const struct kvg_prepared *p, const struct kvg_permuted *m, const void *permuted,
                          int64_t bytes, void *restored)
{
    const int64_t heads = p->problem.q_heads;
    for (int64_t i = 0; i < p->total_q; i++)
        for (int64_t h = 0; h < heads; h++)
            memcpy((char *)restored + (i * heads + h) * bytes,
                   (const char *)permuted + (m->row[i] * heads + m->head[h]) * bytes, (size_t)bytes);
}
