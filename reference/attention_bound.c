/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_bound.c: the sums from which an error bound is built, beside the exact output.
 *
 * Every sum needs the final weights and the final output of its row, so the exact reference runs first and
 * the context is then read a second time. All of it is in double: the squares of small weights leave the
 * range of FP32. Pieces and merge order are those of the exact reference.
 */
#include "attention_rows.h"
#include "clones.h"
#include "exp2.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef double double4 __attribute__((vector_size(32)));
typedef int64_t long4 __attribute__((vector_size(32)));

/* Sums per output element, in the order of a record; then four per row. The last two take a pass of their own
 * over V, and only where there are floors. */
enum { ABS_PV, LOGIT_SHIFT, P_ROUNDING, SQ_PV, SQ_LOGIT, SQ_P_ROUNDING, ABS_ALIGNED, SQ_ALIGNED, SUMS };
enum { ELEMENT_SUMS = ABS_ALIGNED };
/* A P that is not rounded to zero is at least this share of the smallest normal: half a subnormal step. */
#define LEAST_P_OF_FLOOR 0x1p-4
enum { SHRINK, ETA_SUM, DELTA_MEAN, GROW, ROW_SUMS };
/* Doubles of a record: a multiple of 4, so that vectors stay aligned. */
#define RECORD(dim) (SUMS * (dim) + 4)

/* What one key contributes to the element sums of one row: |v| or v^2 or |v - o| or (v - o)^2 times this. */
struct key_factors {
    double p, shift, eta, sq_p, sq_delta, sq_eta;
};

struct bound {
    const struct kvg_ref_bound_model *model;
    const struct kvg_ref_terms *terms;
    struct kvg_exact_result exact;
};

/* Factors of `count` keys, and their part of the row sums. */
static void key_factors(const struct kvg_ref_bound_model *model, const double *t, const double *delta,
                        int64_t count, double max, double sum, struct key_factors *f, double *row_sums)
{
    double p_max = 1 / sum;
    for (int64_t i = 0; i < count; i++) {
        double p = kvg_exp2(t[i] - max) / sum, grow = kvg_expm1(delta[i]);
        double relative = model->p_rel * p, absolute = model->p_abs * p_max;
        double eta = relative > absolute ? relative : absolute;
        eta = eta < p ? eta : p;
        f[i] = (struct key_factors){p, p * grow, eta, p * p, p * p * delta[i] * delta[i], eta * eta};
        row_sums[SHRINK] += p / (1 + grow);
        row_sums[ETA_SUM] += eta;
        row_sums[DELTA_MEAN] += p * delta[i];
        row_sums[GROW] += p * grow;
    }
}

static inline __attribute__((always_inline)) void add_elements(const struct key_factors *f, const double *v,
                                                               int64_t count, int64_t dim, const double *o,
                                                               double *sums)
{
    double4 acc[ELEMENT_SUMS], center;
    for (int i = 0; i < ELEMENT_SUMS; i++)
        memcpy(&acc[i], sums + i * dim, sizeof acc[i]);
    memcpy(&center, o, sizeof center);
    for (int64_t t = 0; t < count; t++) {
        double4 x = *(const double4 *)(v + t * dim), y = x - center;
        double4 ax = (double4)((long4)x & INT64_MAX),
                ay = (double4)((long4)y & INT64_MAX); /* without the sign */
        acc[ABS_PV] += f[t].p * ax;
        acc[LOGIT_SHIFT] += f[t].shift * ay;
        acc[P_ROUNDING] += f[t].eta * ax;
        acc[SQ_PV] += f[t].sq_p * (x * x);
        acc[SQ_LOGIT] += f[t].sq_delta * (y * y);
        acc[SQ_P_ROUNDING] += f[t].sq_eta * (x * x);
    }
    for (int i = 0; i < ELEMENT_SUMS; i++)
        memcpy(sums + i * dim, &acc[i], sizeof acc[i]);
}

KVG_REF_CLONES
static void add_block_sums(const struct key_factors *f, const double *v, int64_t count, int64_t dim,
                           const double *o, double *sums)
{
    for (int64_t d = 0; d < dim; d += 4)
        add_elements(f, v + d, count, dim, o + d, sums + d);
}

/* sum p' |v|' and its square, with |v|' no smaller than v_floor and p' in the place of p (attention.h). */
KVG_REF_CLONES
static void add_aligned(const struct kvg_ref_floors *floors, double p_max, double v_floor,
                        const struct key_factors *f, const double *v, int64_t count, int64_t dim,
                        double *sums)
{
    const double p_floor = floors->p * p_max;
    double *abs_sum = sums + ABS_ALIGNED * dim, *sq_sum = sums + SQ_ALIGNED * dim;
    for (int64_t t = 0; t < count; t++) {
        const double most = f[t].p / LEAST_P_OF_FLOOR;
        const double p = f[t].p > p_floor ? f[t].p : most < p_floor ? most : p_floor;
        for (int64_t d = 0; d < dim; d++) {
            const double size = fabs(v[t * dim + d]);
            const double x = p * (size > 0 && size < v_floor ? v_floor : size);
            abs_sum[d] += x;
            sq_sum[d] += x * x;
        }
    }
}

/* V of a block with its scale, into the place of K, which is no longer needed. */
static void widen_v(const struct kvg_rows *rows, const struct kvg_group *g, int64_t count,
                    struct kvg_scratch *s)
{
    double factor = kvg_v_factor(rows, g->kv_head);
    for (int64_t t = 0; t < count; t++)
        for (int64_t d = 0; d < rows->a->head_dim; d++)
            s->k[t * rows->dim + d] = (double)s->v[t * rows->dim + d] * factor;
}

/* One block of keys (first .. end) for all rows of the group. Logits begin at key `span_first`. */
static void bound_block(const struct bound *b, const struct kvg_rows *rows, const struct kvg_group *g,
                        int64_t span_first, int64_t first, int64_t end, struct kvg_scratch *s, double *record)
{
    const struct kvg_ref_floors *floors = &b->model->floors;
    const double v_factor = floors->v_scaled ? 1 : fabs(kvg_v_factor(rows, g->kv_head));
    struct key_factors factors[KVG_BLOCK_TOKENS];
    int64_t low, high;
    kvg_rows_that_see(rows, g, first, end, &low, &high);
    if (high == 0)
        return;
    kvg_load_v(rows, g, first, end - first + 1, s);
    widen_v(rows, g, end - first + 1, s);
    for (int64_t r = low; r < high; r++) {
        const struct kvg_row_plan *row = &rows->plans[g->row + r];
        double *sums = record + r * RECORD(rows->dim);
        int64_t from, to, n = row->index;
        kvg_row_span(row, first, end, &from, &to);
        if (to < from)
            continue;
        int64_t at = r * s->span + (from - span_first);
        key_factors(b->model, s->logit + at, s->spread + at, to - from + 1, b->exact.max[n], b->exact.sum[n],
                    factors, sums + SUMS * rows->dim);
        add_block_sums(factors, s->k + (from - first) * rows->dim, to - from + 1, rows->dim,
                       b->exact.o + n * rows->dim, sums);
        if (floors->p > 0 || floors->v > 0)
            add_aligned(floors, 1 / b->exact.sum[n], floors->v * v_factor, factors,
                        s->k + (from - first) * rows->dim, to - from + 1, rows->dim, sums);
    }
}

static void bound_piece(const struct kvg_rows *rows, const struct kvg_group *g, int64_t piece,
                        struct kvg_scratch *s, double *record, void *context)
{
    const struct bound *b = context;
    int64_t first = g->piece_start + piece * rows->piece_tokens, last = first + rows->piece_tokens - 1;
    first = first > g->first ? first : g->first;
    last = last < g->last ? last : g->last;
    for (int64_t i = 0; i < g->rows * RECORD(rows->dim); i++)
        record[i] = 0;
    kvg_load_q(rows, g, s);
    kvg_logits_and_spread(rows, g, first, last, b->model, s);
    for (int64_t token = first, end; token <= last; token = end + 1) {
        end = kvg_block_end(token, last);
        bound_block(b, rows, g, first, token, end, s, record);
    }
}

static void put(double *array, int64_t index, double value)
{
    if (array)
        array[index] = value;
}

static void bound_merge(const struct kvg_rows *rows, const struct kvg_row_plan *row, double *records,
                        int64_t pieces, int64_t stride, void *context)
{
    const struct kvg_ref_terms *t = ((const struct bound *)context)->terms;
    const struct kvg_ref_floors *floors = &((const struct bound *)context)->model->floors;
    const int aligned = floors->p > 0 || floors->v > 0; /* else they are the plain sums */
    double *const element[SUMS] = {t->abs_pv,   t->logit_shift,   t->p_rounding,  t->sq_pv,
                                   t->sq_logit, t->sq_p_rounding, t->abs_aligned, t->sq_aligned};
    const int source[SUMS] = {ABS_PV,
                              LOGIT_SHIFT,
                              P_ROUNDING,
                              SQ_PV,
                              SQ_LOGIT,
                              SQ_P_ROUNDING,
                              aligned ? ABS_ALIGNED : ABS_PV,
                              aligned ? SQ_ALIGNED : SQ_PV};
    double *const of_row[ROW_SUMS] = {t->shrink, t->eta_sum, t->delta_mean, t->grow};
    int64_t dim = rows->a->head_dim;
    for (int64_t p = 1; p < pieces; p++)
        for (int64_t i = 0; i < RECORD(rows->dim); i++)
            records[i] += records[p * stride + i];
    for (int i = 0; i < SUMS; i++)
        for (int64_t d = 0; d < dim; d++)
            put(element[i], row->index * dim + d, pieces > 0 ? records[source[i] * rows->dim + d] : 0);
    for (int i = 0; i < ROW_SUMS; i++)
        put(of_row[i], row->index, pieces > 0 ? records[SUMS * rows->dim + i] : 0);
}

int kvg_ref_attention_bound(const struct kvg_ref_attention *a, const struct kvg_ref_bound_model *model,
                            const struct kvg_ref_row *rows, int64_t n_rows, float *out, float *lse,
                            const struct kvg_ref_terms *terms)
{
    const struct kvg_operands operands = {KVG_REF_F32, KVG_REF_F32, KVG_REF_F32, 0, 0};
    struct kvg_rows plan;
    if (kvg_rows_plan(&plan, a, &operands, rows, n_rows, KVG_EXACT_PIECE, 0, KVG_ROWS_MAX) != 0)
        return -1;
    struct bound b = {.model = model, .terms = terms, .exact = {.out = out, .lse = lse}};
    b.exact.max = calloc((size_t)n_rows + 1, sizeof *b.exact.max);
    b.exact.sum = calloc((size_t)n_rows + 1, sizeof *b.exact.sum);
    b.exact.o = calloc((size_t)(n_rows * plan.dim) + 1, sizeof *b.exact.o);
    int status = b.exact.max && b.exact.sum && b.exact.o ? kvg_exact_run(&plan, &b.exact) : -1;
    if (status == 0)
        status = kvg_rows_run(&plan, KVG_EXACT_PIECE, 1, RECORD(plan.dim), bound_piece, bound_merge, &b);
    free(b.exact.max);
    free(b.exact.sum);
    free(b.exact.o);
    kvg_rows_free(&plan);
    return status;
}
