/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_exact.c: softmax attention as exactly as FP32 weights and values allow, with every sum in an
 * order that neither machine nor thread count nor neighbouring rows can change.
 *
 * A piece of the context (KVG_EXACT_PIECE keys) is done in two passes: all logits and their maximum, then
 * weights and values. Its record is (max, sum of weights, sum of weighted values); records are joined in the
 * order of the pieces, in double. The row sum adds the same FP32 weights that multiply V, so rounding a
 * weight moves the output by its distance to that one value only.
 *
 * Error against exact arithmetic, relative: 2^-24 per weight and 2^-24 per FP32 addition, chains of at most
 * 32 additions; over many keys these are independent, and about 1e-7 is left.
 */
#include "attention_rows.h"
#include "exp2.h"

#include <math.h>

/* Record of a row: largest logit, sum of weights, sum of weight times value. */
enum { MAX = 0, SUM = 1, PV = 2 };

static void exact_piece(const struct kvg_rows *rows, const struct kvg_group *g, int64_t piece,
                        struct kvg_scratch *s, double *record, void *context)
{
    (void)context;
    int64_t stride = PV + rows->dim;
    int64_t first = g->piece_start + piece * rows->piece_tokens, last = first + rows->piece_tokens - 1;
    first = first > g->first ? first : g->first;
    last = last < g->last ? last : g->last;
    kvg_load_q(rows, g, s);
    kvg_logits(rows, g, first, last, s);
    for (int64_t r = 0; r < g->rows; r++) {
        double *row = record + r * stride, sum = 0;
        int64_t from, to;
        kvg_row_span(&rows->plans[g->row + r], first, last, &from, &to);
        row[MAX] = -INFINITY;
        if (to >= from)
            kvg_weights(s, r, from, to, first, 0, &row[MAX]);
        for (int64_t i = from; i <= to; i++)
            sum += (double)s->p[r * s->span + (i - first)];
        row[SUM] = sum;
        for (int64_t d = 0; d < rows->dim; d++)
            row[PV + d] = 0;
    }
    kvg_add_pv(rows, g, first, last, s, record + PV, stride);
}

/* Joins the records of a row into the first of them. */
static void join(double *records, int64_t pieces, int64_t stride, int64_t dim)
{
    if (pieces == 0)
        return;
    double *total = records, max = -INFINITY;
    for (int64_t p = 0; p < pieces; p++)
        max = records[p * stride + MAX] > max ? records[p * stride + MAX] : max;
    for (int64_t p = 0; p < pieces; p++) {
        double *record = records + p * stride;
        double factor = kvg_exp2(record[MAX] - (max == -INFINITY ? 0 : max));
        for (int64_t d = SUM; d < PV + dim; d++)
            total[d] = p == 0 ? record[d] * factor : total[d] + record[d] * factor;
    }
    total[MAX] = max;
}

static void exact_merge(const struct kvg_rows *rows, const struct kvg_row_plan *row, double *records,
                        int64_t pieces, int64_t stride, void *context)
{
    const struct kvg_exact_result *result = context;
    int64_t dim = rows->a->head_dim, n = row->index;
    double nothing[2] = {[MAX] = -INFINITY, [SUM] = 0}, *total = pieces > 0 ? records : nothing;
    join(records, pieces, stride, dim);
    int empty = total[SUM] == 0; /* NaN is not empty */
    double factor = kvg_v_factor(rows, row->q_head / (rows->a->q_heads / rows->a->kv_heads));
    for (int64_t d = 0; d < dim; d++) {
        double o = empty ? 0 : factor * (total[PV + d] / total[SUM]);
        if (result->out)
            result->out[n * dim + d] = (float)o;
        if (result->o)
            result->o[n * rows->dim + d] = o;
    }
    if (result->lse)
        result->lse[n] = empty ? -INFINITY : (float)((total[MAX] + kvg_log2(total[SUM])) * KVG_LN2);
    if (result->max)
        result->max[n] = total[MAX];
    if (result->sum)
        result->sum[n] = total[SUM];
}

int kvg_exact_run(struct kvg_rows *rows, const struct kvg_exact_result *result)
{
    struct kvg_exact_result context = *result;
    return kvg_rows_run(rows, KVG_EXACT_PIECE, 0, PV + rows->dim, exact_piece, exact_merge, &context);
}

int kvg_ref_attention_f32(const struct kvg_ref_attention *a, const struct kvg_ref_row *rows, int64_t n_rows,
                          float *out, float *lse)
{
    const struct kvg_operands operands = {KVG_REF_F32, KVG_REF_F32, KVG_REF_F32, 0, 0};
    const struct kvg_exact_result result = {.out = out, .lse = lse};
    struct kvg_rows plan;
    if (kvg_rows_plan(&plan, a, &operands, rows, n_rows, KVG_EXACT_PIECE, 0, KVG_ROWS_MAX) != 0)
        return -1;
    int status = kvg_exact_run(&plan, &result);
    kvg_rows_free(&plan);
    return status;
}
