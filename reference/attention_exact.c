/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_exact.c: softmax attention as exact as FP32 weights and values allow. The order of every sum is
 * fixed: it does not depend on the machine, the number of threads or the other rows of the call.
 *
 * A piece of the context (KVG_EXACT_PIECE keys) is done in two passes: first all logits and their maximum,
 * then weights and values. Its record is (maximum, sum of weights, sum of weighted values). Records are
 * joined in the order of the pieces, in double.
 *
 * The row sum adds the same FP32 weights that multiply V. So the rounding of a weight moves the output only
 * in proportion to the distance between the output and the value of that key.
 *
 * Relative error against exact arithmetic: 2^-24 for each weight and 2^-24 for each FP32 addition, in chains
 * of at most 32 additions. Over many keys these errors are independent, and the total is about 1e-7.
 */
#include "attention_rows.h"
#include "clones.h"
#include "exp2.h"

#include <math.h>

enum { MAX = KVG_EXACT_MAX, SUM = KVG_EXACT_SUM, PV = KVG_EXACT_PV };

/* The sum, in eight lanes, each in the order of the keys. */
KVG_REF_CLONES
static double sum_of(const float *p, int64_t count)
{
    double lane[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int l = 0; l < 8; l++)
            lane[l] += (double)p[i + l];
    for (int l = 0; i + l < count; l++)
        lane[l] += (double)p[i + l];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

void kvg_exact_piece(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t last,
                     struct kvg_scratch *s, double *record, int64_t stride)
{
    for (int64_t r = 0; r < g->rows; r++) {
        double *row = record + r * stride;
        int64_t from, to;
        kvg_row_span(&rows->plans[g->row + r], first, last, &from, &to);
        row[MAX] = -INFINITY;
        row[SUM] = 0;
        if (to >= from) {
            kvg_weights(s, r, from, to, first, 0, &row[MAX]);
            row[SUM] = sum_of(s->p + r * s->span + (from - first), to - from + 1);
        }
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

/* The sum holds a sink only up to a limit, far beyond which the sink is the lse. */
static double lse_of(const struct kvg_row_plan *row, const double *total, int empty)
{
    if (empty || row->sink - total[MAX] > 500)
        return isnan(total[SUM]) ? total[SUM] : row->sink * KVG_LN2;
    return (total[MAX] + kvg_log2(total[SUM])) * KVG_LN2;
}

/* As kvg_ref_terms.sunk. `keys` is the row sum without the sink. */
static double sunk_of(const struct kvg_row_plan *row, const double *total, double keys)
{
    const double above = row->sink - total[MAX] - kvg_log2(keys);
    const double sunk = above > 500 ? above : kvg_log2(total[SUM] / keys);
    return fmin(fmax(sunk, 0) * KVG_LN2, KVG_REF_SUNK_MOST);
}

void kvg_exact_merge(const struct kvg_rows *rows, const struct kvg_row_plan *row, double *records,
                     int64_t pieces, int64_t stride, const struct kvg_exact_result *result)
{
    int64_t dim = rows->a->head_dim, n = row->index;
    double nothing[2] = {[MAX] = -INFINITY, [SUM] = 0}, *total = pieces > 0 ? records : nothing;
    join(records, pieces, stride, dim);
    int empty = total[SUM] == 0; /* NaN is not empty */
    const double keys = total[SUM];
    total[SUM] += empty ? 0 : kvg_sink_weight(row, total[MAX]);
    double factor = kvg_v_factor(rows, row->q_head / (rows->a->q_heads / rows->a->kv_heads));
    for (int64_t d = 0; d < dim; d++) {
        double o = empty ? 0 : factor * (total[PV + d] / total[SUM]);
        if (result->out)
            result->out[n * dim + d] = (float)o;
        if (result->o)
            result->o[n * rows->dim + d] = o;
    }
    if (result->lse)
        result->lse[n] = (float)lse_of(row, total, empty);
    if (result->sunk && row->sink > -INFINITY)
        result->sunk[n] = empty ? 0 : sunk_of(row, total, keys);
    if (result->max)
        result->max[n] = total[MAX];
    if (result->sum)
        result->sum[n] = total[SUM];
}

static void exact_piece(const struct kvg_rows *rows, const struct kvg_group *g, int64_t piece,
                        struct kvg_scratch *s, double *record, void *context)
{
    (void)context;
    int64_t first, last;
    kvg_piece_span(rows, g, piece, &first, &last);
    kvg_load_q(rows, g, s);
    kvg_logits(rows, g, first, last, s);
    kvg_exact_piece(rows, g, first, last, s, record, PV + rows->dim);
}

static void exact_merge(const struct kvg_rows *rows, const struct kvg_row_plan *row, double *records,
                        int64_t pieces, int64_t stride, void *context)
{
    kvg_exact_merge(rows, row, records, pieces, stride, context);
}

int kvg_ref_attention_f32(const struct kvg_ref_attention *a, const struct kvg_ref_row *rows, int64_t n_rows,
                          float *out, float *lse)
{
    const struct kvg_operands operands = {KVG_REF_F32, KVG_REF_F32, KVG_REF_F32, 0, 0};
    struct kvg_exact_result result = {.out = out, .lse = lse};
    struct kvg_rows plan;
    if (kvg_rows_plan(&plan, a, &operands, rows, n_rows, KVG_EXACT_PIECE, 0, KVG_ROWS_MAX) != 0)
        return -1;
    const int status =
        kvg_rows_run(&plan, KVG_EXACT_PIECE, 0, PV + plan.dim, exact_piece, exact_merge, &result);
    kvg_rows_free(&plan);
    return status;
}
