/* SPDX-License-Identifier: Apache-2.0
 *
 * prepared.c: functions on a prepared case: views for the reference, sizes, checks, and freeing it.
 */
#include "prepared.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "own.h"

int64_t kvg_prepared_sequence(const struct kvg_prepared *p, int64_t i)
{
    return p->part_of ? p->own->sequence[i] : i;
}

int64_t kvg_prepared_shared_pages(const struct kvg_prepared *p, int64_t i)
{
    const int64_t whole = p->seq_lens[i] / p->problem.block_size;
    return p->c.shared_pages < whole ? p->c.shared_pages : whole;
}

struct kvg_views_sizes kvg_prepared_sizes(const struct kvg_prepared *p)
{
    const struct kvg_problem *problem = &p->problem;
    return (struct kvg_views_sizes){.q_heads = problem->q_heads,
                                    .kv_heads = problem->kv_heads,
                                    .head_dim = problem->head_dim,
                                    .block_size = problem->block_size,
                                    .total_q = p->total_q,
                                    .store_tokens = p->store_tokens,
                                    .num_blocks = p->num_blocks,
                                    .layout = problem->layout,
                                    .kv_dtype = problem->kv_dtype};
}

struct kvg_pages kvg_prepared_pages(const struct kvg_prepared *p, int is_v, void *buffer)
{
    const struct kvg_cache_view *view = is_v ? &p->views.v_cache : &p->views.k_cache;
    return (struct kvg_pages){
        .data = buffer ? (char *)buffer + view->first * kvg_dtype_bytes(p->problem.kv_dtype) : NULL,
        .stride_block = view->stride_block,
        .stride_slot = view->stride_slot,
        .stride_head = view->stride_head};
}

void *kvg_rows_begin(const struct kvg_rows_view *view, int64_t element_bytes, const void *buffer)
{
    return buffer ? (char *)(uintptr_t)buffer + view->first * element_bytes : NULL;
}

int64_t kvg_sequence_bytes(const struct kvg_case *c, int64_t length)
{
    struct kvg_problem problem;
    kvg_case_problem(c, &problem);
    return 2 * length * c->kv_heads * c->head_dim *
           ((int64_t)sizeof(uint16_t) + kvg_dtype_bytes(problem.kv_dtype));
}

struct kvg_ref_kv kvg_prepared_cache(const struct kvg_prepared *p, const struct kvg_pages *pages,
                                     const float *scale)
{
    return (struct kvg_ref_kv){.format = kvg_ref_format_of(p->problem.kv_dtype),
                               .data = pages->data,
                               .stride_block = pages->stride_block,
                               .stride_slot = pages->stride_slot,
                               .stride_head = pages->stride_head,
                               .block_size = p->c.block_size,
                               .block_table = p->block_table,
                               .block_table_stride = p->block_table_stride,
                               .scale = scale,
                               .scale_stride = p->scale_stride};
}

void kvg_prepared_free(struct kvg_prepared *p)
{
    if (p->own)
        kvg_guard_free(p->own->guards);
    free(p->own);
    memset(p, 0, sizeof *p);
}

double kvg_prepared_empty_lse(const struct kvg_prepared *p, int64_t q_head)
{
    return p->sinks ? (double)p->sinks[q_head] : -INFINITY;
}

struct kvg_ref_mask kvg_prepared_mask(const struct kvg_prepared *p)
{
    static const enum kvg_ref_mask_kind kinds[] = {[KVG_MASK_CAUSAL] = KVG_REF_CAUSAL,
                                                   [KVG_MASK_FULL] = KVG_REF_FULL,
                                                   [KVG_MASK_CHUNKED] = KVG_REF_CHUNKED,
                                                   [KVG_MASK_PREFIX] = KVG_REF_PREFIX};
    return (struct kvg_ref_mask){.kind = kinds[p->problem.mask],
                                 .window = p->problem.window,
                                 .chunk = p->problem.chunk,
                                 .prefix_lens = p->prefix_lens};
}

static void common_view(const struct kvg_prepared *p, struct kvg_ref_attention *a)
{
    const struct kvg_case *c = &p->c;
    *a = (struct kvg_ref_attention){.batch = c->batch,
                                    .q_heads = c->q_heads,
                                    .kv_heads = c->kv_heads,
                                    .head_dim = c->head_dim,
                                    .q_format = KVG_REF_BF16,
                                    .q = p->q,
                                    .q_stride_token = c->q_heads * c->head_dim,
                                    .q_stride_head = c->head_dim,
                                    .seq_lens = p->seq_lens,
                                    .cu_q_lens = p->cu_q_lens,
                                    .softmax_scale = p->softmax_scale,
                                    .soft_cap = p->problem.soft_cap,
                                    .mask = kvg_prepared_mask(p),
                                    .threads = (int)c->threads,
                                    .sinks = p->sinks};
}

void kvg_prepared_dequantised(const struct kvg_prepared *p, struct kvg_ref_attention *a)
{
    common_view(p, a);
    if (p->q8) {
        a->q_format = KVG_REF_E4M3;
        a->q = p->q8;
        a->q_scale = p->q_scale;
        a->q_scale_stride = p->scale_stride;
    }
    a->k = kvg_prepared_cache(p, &p->k_pages, p->k_scale);
    a->v = kvg_prepared_cache(p, &p->v_pages, p->v_scale);
}

/* A uniform batch has contiguous rows: one "block" per sequence. A ragged batch is viewed as pages of one
 * token, and the table holds row numbers. */
static struct kvg_ref_kv source_view(const struct kvg_prepared *p, const uint16_t *data)
{
    int64_t row = p->c.kv_heads * p->c.head_dim;
    struct kvg_ref_kv view = {.format = KVG_REF_BF16,
                              .data = data,
                              .stride_block = p->c.context * row,
                              .stride_slot = row,
                              .stride_head = p->c.head_dim};
    if (p->own->row_table) {
        view.stride_block = row;
        view.block_size = 1;
        view.block_table = p->own->row_table;
        view.block_table_stride = p->c.context;
    }
    return view;
}

void kvg_prepared_unquantised(const struct kvg_prepared *p, struct kvg_ref_attention *a)
{
    common_view(p, a);
    a->k = source_view(p, p->k);
    a->v = source_view(p, p->v);
}

int kvg_prepared_check(const struct kvg_prepared *p, struct kvg_error *error)
{
    return kvg_guard_check(p->own->guards, error);
}

int kvg_prepared_check_shown(const struct kvg_prepared *p, struct kvg_error *error)
{
    return kvg_guard_check_shown(p->own->guards, error);
}

const struct kvg_case *kvg_prepared_values(const struct kvg_prepared *p)
{
    return &p->own->values;
}
