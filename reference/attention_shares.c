/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_shares.c: the share of each class of keys, in one pass over K and V.
 *
 * The weights follow from the known log-sum-exp. A block of keys is cut into runs of one class; a run is
 * summed in registers and then added to its class. Pieces are longer than those of the exact reference,
 * because a record holds many classes. Pieces begin at fixed keys, so the bits do not depend on the threads
 * or on the other rows.
 */
#include "attention_shares.h"
#include "attention_rows.h"
#include "clones.h"
#include "exp2.h"

#include <string.h>

enum { PIECE = 16384 }; /* keys */

typedef double double4 __attribute__((vector_size(32)));
typedef float float4 __attribute__((vector_size(16)));

struct shares {
    const struct kvg_ref_partition *partitions;
    int64_t n_partitions, classes;
    const float *lse;
    float *out;
};

/* sum[d] += p v[d]. */
KVG_REF_CLONES
static void add_key(float p, const float *restrict v, int64_t dim, double *restrict sum)
{
    const double weight = (double)p;
    for (int64_t d = 0; d < dim; d++)
        sum[d] += weight * (double)v[d];
}

/* sum[d] += sum_t p[t] v[t][d] over a run of keys. */
KVG_REF_CLONES
static void add_run(const float *p, const float *v, int64_t count, int64_t dim, double *sum)
{
    for (int64_t d = 0; d < dim; d += 16) {
        double4 lane[4]; /* records are aligned to doubles only */
        memcpy(lane, sum + d, sizeof lane);
        for (int64_t t = 0; t < count; t++) {
            const float *at = v + t * dim + d;
            const double weight = (double)p[t];
            for (int i = 0; i < 4; i++)
                lane[i] += weight * __builtin_convertvector(*(const float4 *)(at + 4 * i), double4);
        }
        memcpy(sum + d, lane, sizeof lane);
    }
}

static int64_t origin_of(const struct kvg_ref_partition *part, const struct kvg_row_plan *row)
{
    return part->from_first_visible ? row->first : 0;
}

/* Adds the keys from .. to of one row to the classes of a partition. p and v point to the weight and the
 * value of key `from`. */
static void add_cycle(const struct kvg_ref_partition *part, const struct kvg_row_plan *row, int64_t from,
                      int64_t to, const float *p, const float *v, int64_t dim, double *sums)
{
    const int64_t origin = origin_of(part, row), cell = (from - origin) / part->size;
    int64_t class = cell % part->classes, end = origin + (cell + 1) * part->size;
    for (int64_t t = from; t <= to; t = end, end += part->size) {
        end = end < to + 1 ? end : to + 1;
        if (end - t == 1)
            add_key(p[t - from], v + (t - from) * dim, dim, sums + class * dim);
        else
            add_run(p + (t - from), v + (t - from) * dim, end - t, dim, sums + class * dim);
        class = class + 1 < part->classes ? class + 1 : 0;
    }
}

/* The same for a partition into ends. */
static void add_ends(const struct kvg_ref_partition *part, const struct kvg_row_plan *row, int64_t from,
                     int64_t to, const float *p, const float *v, int64_t dim, double *sums)
{
    const int64_t origin = origin_of(part, row);
    const int64_t ends[2] = {row->first, row->last};
    for (int i = 0; i < 2; i++) {
        const int64_t cell = origin + (ends[i] - origin) / part->size * part->size;
        const int64_t first = cell > from ? cell : from;
        const int64_t last = cell + part->size - 1 < to ? cell + part->size - 1 : to;
        if (last >= first)
            add_run(p + (first - from), v + (first - from) * dim, last - first + 1, dim, sums + i * dim);
    }
}

static void add_row(const struct shares *c, const struct kvg_row_plan *row, int64_t from, int64_t to,
                    const float *p, const float *v, int64_t dim, double *sums)
{
    for (int64_t i = 0; i < c->n_partitions; i++) {
        const struct kvg_ref_partition *part = &c->partitions[i];
        (part->ends ? add_ends : add_cycle)(part, row, from, to, p, v, dim, sums);
        sums += part->classes * dim;
    }
}

static void shares_piece(const struct kvg_rows *rows, const struct kvg_group *g, int64_t piece,
                         struct kvg_scratch *s, double *record, void *context)
{
    const struct shares *c = context;
    const int64_t dim = rows->dim, stride = c->classes * dim;
    int64_t first = g->piece_start + piece * rows->piece_tokens, last = first + rows->piece_tokens - 1;
    first = first > g->first ? first : g->first;
    last = last < g->last ? last : g->last;
    for (int64_t i = 0; i < g->rows * stride; i++)
        record[i] = 0;
    kvg_load_q(rows, g, s);
    kvg_logits(rows, g, first, last, s);
    for (int64_t r = 0; r < g->rows; r++) {
        const struct kvg_row_plan *row = &rows->plans[g->row + r];
        double lse =
            (double)c->lse[row->index] * KVG_LOG2E; /* no logit exceeds it by more than its rounding */
        int64_t from, to;
        kvg_row_span(row, first, last, &from, &to);
        if (to >= from)
            kvg_weights(s, r, from, to, first, 0, &lse);
    }
    for (int64_t token = first, end; token <= last; token = end + 1) {
        int64_t low, high;
        end = kvg_block_end(token, last);
        kvg_rows_that_see(rows, g, token, end, &low, &high);
        if (high > 0)
            kvg_load_v(rows, g, token, end - token + 1, s);
        for (int64_t r = low; r < high; r++) {
            const struct kvg_row_plan *row = &rows->plans[g->row + r];
            int64_t from, to;
            kvg_row_span(row, token, end, &from, &to);
            if (to >= from)
                add_row(c, row, from, to, s->p + r * s->span + (from - first), s->v + (from - token) * dim,
                        dim, record + r * stride);
        }
    }
}

static void shares_merge(const struct kvg_rows *rows, const struct kvg_row_plan *row, double *records,
                         int64_t pieces, int64_t stride, void *context)
{
    const struct shares *c = context;
    const int64_t dim = rows->a->head_dim;
    const double factor = kvg_v_factor(rows, row->q_head / (rows->a->q_heads / rows->a->kv_heads));
    for (int64_t i = 0; i < c->classes; i++)
        for (int64_t d = 0; d < dim; d++) {
            double sum = 0;
            for (int64_t p = 0; p < pieces; p++)
                sum += records[p * stride + i * rows->dim + d];
            c->out[(row->index * c->classes + i) * dim + d] = (float)(factor * sum);
        }
}

int kvg_ref_attention_shares(const struct kvg_ref_attention *a, const struct kvg_ref_partition *partitions,
                             int64_t n_partitions, const struct kvg_ref_row *rows, int64_t n_rows,
                             const float *lse, float *shares)
{
    const struct kvg_operands operands = {KVG_REF_F32, KVG_REF_F32, KVG_REF_F32, 0, 0};
    struct shares c = {.partitions = partitions, .n_partitions = n_partitions, .lse = lse, .out = shares};
    struct kvg_rows plan;
    for (int64_t i = 0; i < n_partitions; i++)
        c.classes += partitions[i].classes;
    if (kvg_rows_plan(&plan, a, &operands, rows, n_rows, PIECE, 0, KVG_ROWS_MAX) != 0)
        return -1;
    const int status = kvg_rows_run(&plan, PIECE, 0, c.classes * plan.dim, shares_piece, shares_merge, &c);
    kvg_rows_free(&plan);
    return status;
}
