/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_emulate.c: attention with what a kernel does on purpose, and with nothing else.
 *
 * A unit of work is one split of the context for one group of rows. Its tiles are taken in the kernel's
 * order. Per tile and row: the running maximum m takes in the tile's logits, sums so far shrink by 2^(m_old -
 * m), the weights 2^(logit - m + offset) are rounded to the format of P and multiply V, and the row sum adds
 * them rounded or unrounded. Splits are merged by their log-sum-exp. What is rounded here is operands and P;
 * the accidental rounding of a kernel's sums is left out, because it is what the comparison is to show.
 *
 * A tile none of whose keys a row sees changes nothing for it, as in FlashAttention-3, where it adds zeros.
 */
#include "attention_rows.h"
#include "exp2.h"

#include <math.h>

/* Record of a row in a split, as in the exact reference. */
enum { MAX = 0, SUM = 1, PV = 2 };
/* Logits and weights of a group's tile may take this much per thread. */
enum { TILE_BYTES = 48 << 20 };

struct emulation {
    const struct kvg_ref_emulation *how;
    int64_t tile; /* keys, at most a split */
    int offset;
    float *out, *lse;
    const struct kvg_ref_drift_model *model; /* NULL: no drift asked for */
    const struct kvg_ref_drift *drift;
};

/* Logits that are remembered of keys that could move. */
enum { SEEN = 4 };

/* Doubles of a record: with drift, three more sums per element, two per row, and what was seen. */
static int64_t record_doubles(const struct emulation *e, int64_t dim)
{
    return e->drift ? PV + 4 * dim + 2 + SEEN : PV + dim;
}

/* Where the parts of a record begin that only drift has. */
struct drift_sums {
    double *flips, *squares, *partial, *flip_sum, *flip_same;
    double *seen; /* [SEEN] logits, the latest first */
};

static struct drift_sums drift_of(double *record, int64_t dim)
{
    double *flips = record + PV + dim;
    return (struct drift_sums){flips,           flips + dim,         flips + 2 * dim,
                               flips + 3 * dim, flips + 3 * dim + 1, flips + 3 * dim + 2};
}

/* A new maximum shrinks what drifted so far, as it shrinks the sums. */
static void shrink_drift(double *record, double shrink, int64_t dim)
{
    const struct drift_sums sums = drift_of(record, dim);
    for (int64_t d = 0; d < dim; d++) {
        sums.flips[d] *= shrink;
        sums.squares[d] *= shrink * shrink;
        sums.partial[d] *= shrink;
    }
    *sums.flip_sum *= shrink;
    *sums.flip_same *= shrink;
}

/* Is this logit one of those seen last? Takes it in when not. */
static int seen_before(double *seen, double logit)
{
    for (int i = 0; i < SEEN; i++)
        if (seen[i] == logit)
            return 1;
    for (int i = SEEN - 1; i > 0; i--)
        seen[i] = seen[i - 1];
    seen[0] = logit;
    return 0;
}

/* f of `count` unrounded weights, in place of their spread: how far rounding can move for theta either way.
 */
static void flips_of_row(const struct emulation *e, const float *p, double *spread, int64_t count, double max)
{
    const double common = e->model->max_rel * (fabs(max) * KVG_LN2);
    for (int64_t at = 0; at < count; at += KVG_BLOCK_TOKENS) {
        const int64_t n = count - at < KVG_BLOCK_TOKENS ? count - at : KVG_BLOCK_TOKENS;
        float low[KVG_BLOCK_TOKENS], mid[KVG_BLOCK_TOKENS], high[KVG_BLOCK_TOKENS];
        for (int64_t i = 0; i < n; i++) {
            const double factor = exp(spread[at + i] + common);
            mid[i] = p[at + i];
            low[i] = (float)((double)mid[i] / factor);
            high[i] = (float)((double)mid[i] * factor);
        }
        kvg_ref_round_row(e->how->p_format, low, n);
        kvg_ref_round_row(e->how->p_format, mid, n);
        kvg_ref_round_row(e->how->p_format, high, n);
        for (int64_t i = 0; i < n; i++) {
            const double down = (double)mid[i] - (double)low[i], up = (double)high[i] - (double)mid[i];
            spread[at + i] = down > up ? down : up;
        }
    }
}

/* Adds f |v| and f^2 v^2 of a tile, and takes the sums so far into `partial`. Few keys have an f. */
static void drift_of_tile(const struct emulation *e, const struct kvg_rows *rows, const struct kvg_group *g,
                          int64_t first, int64_t last, struct kvg_scratch *s, double *record)
{
    const int64_t dim = rows->dim, stride = record_doubles(e, dim);
    for (int64_t token = first; token <= last && e->how->p_format != KVG_REF_F32; token++) {
        int loaded = 0;
        for (int64_t r = 0; r < g->rows; r++) {
            const struct kvg_row_plan *row = &rows->plans[g->row + r];
            const double f = s->spread[r * s->span + (token - first)];
            if (token < row->first || token > row->last || f == 0)
                continue;
            if (!loaded++)
                kvg_load_v(rows, g, token, 1, s);
            const struct drift_sums sums = drift_of(record + r * stride, dim);
            *sums.flip_sum += f;
            if (seen_before(sums.seen, s->logit[r * s->span + (token - first)]))
                *sums.flip_same += f;
            for (int64_t d = 0; d < dim; d++) {
                const double x = f * fabs((double)s->v[d]);
                sums.flips[d] += x;
                sums.squares[d] += x * x;
            }
        }
    }
    for (int64_t r = 0; r < g->rows; r++) {
        const double *sum = record + r * stride + PV;
        const struct drift_sums sums = drift_of(record + r * stride, dim);
        for (int64_t d = 0; d < dim; d++)
            sums.partial[d] = fabs(sum[d]) > sums.partial[d] ? fabs(sum[d]) : sums.partial[d];
    }
}

/* The weights of one row for the part of a tile that it sees; its sums so far shrink to the new maximum. */
static void row_of_tile(const struct emulation *e, struct kvg_scratch *s, int64_t r, int64_t from, int64_t to,
                        int64_t tile_first, int64_t dim, double *record)
{
    double before = record[MAX], sum = 0;
    float *p = s->p + r * s->span + (from - tile_first);
    kvg_weights(s, r, from, to, tile_first, e->offset, &record[MAX]);
    double shrink = kvg_exp2(before - (record[MAX] == -INFINITY ? 0 : record[MAX]));
    for (int64_t d = 0; d < dim; d++)
        record[PV + d] *= shrink;
    if (e->drift)
        shrink_drift(record, shrink, dim);
    if (e->drift && e->how->p_format != KVG_REF_F32)
        flips_of_row(e, p, s->spread + r * s->span + (from - tile_first), to - from + 1, record[MAX]);
    if (e->how->row_sum_of_rounded_p)
        kvg_ref_round_row(e->how->p_format, p, to - from + 1);
    for (int64_t i = 0; i <= to - from; i++)
        sum += (double)p[i];
    if (!e->how->row_sum_of_rounded_p)
        kvg_ref_round_row(e->how->p_format, p, to - from + 1);
    record[SUM] = record[SUM] * shrink + sum;
}

static void emulate_tile(const struct emulation *e, const struct kvg_rows *rows, const struct kvg_group *g,
                         int64_t first, int64_t last, struct kvg_scratch *s, double *record)
{
    int64_t stride = record_doubles(e, rows->dim);
    if (e->drift && e->how->p_format != KVG_REF_F32) {
        const struct kvg_ref_bound_model spread = {
            .logit_rel = e->model->logit_rel, .logit_abs = e->model->logit_abs, .floors = e->model->floors};
        kvg_logits_and_spread(rows, g, first, last, &spread, s);
    } else {
        kvg_logits(rows, g, first, last, s);
    }
    for (int64_t r = 0; r < g->rows; r++) {
        int64_t from, to;
        kvg_row_span(&rows->plans[g->row + r], first, last, &from, &to);
        if (to >= from)
            row_of_tile(e, s, r, from, to, first, rows->dim, record + r * stride);
    }
    kvg_add_pv(rows, g, first, last, s, record + PV, stride);
    if (e->drift)
        drift_of_tile(e, rows, g, first, last, s, record);
}

static void emulate_split(const struct kvg_rows *rows, const struct kvg_group *g, int64_t piece,
                          struct kvg_scratch *s, double *record, void *context)
{
    const struct emulation *e = context;
    int64_t split_first = g->piece_start + piece * rows->piece_tokens;
    int64_t first = split_first > g->first ? split_first : g->first;
    int64_t last =
        split_first + rows->piece_tokens - 1 < g->last ? split_first + rows->piece_tokens - 1 : g->last;
    int64_t tile_low = (first - split_first) / e->tile, tile_high = (last - split_first) / e->tile;
    for (int64_t r = 0; r < g->rows; r++) {
        double *row = record + r * record_doubles(e, rows->dim);
        for (int64_t i = 0; i < record_doubles(e, rows->dim); i++)
            row[i] = i == MAX ? -INFINITY : 0;
        for (int64_t i = 0; i < SEEN && e->drift; i++)
            drift_of(row, rows->dim).seen[i] = NAN;
    }
    kvg_load_q(rows, g, s);
    for (int64_t n = 0; n <= tile_high - tile_low; n++) {
        int64_t tile = e->how->tile_last_first ? tile_high - n : tile_low + n;
        int64_t from = split_first + tile * e->tile, to = from + e->tile - 1;
        emulate_tile(e, rows, g, from > first ? from : first, to < last ? to : last, s, record);
    }
}

/* Log-sum-exp of a split in units of log2. */
static double split_lse(const struct emulation *e, const double *record)
{
    return record[SUM] == 0 ? -INFINITY : record[MAX] + kvg_log2(record[SUM]) - e->offset;
}

static void put(double *array, int64_t index, double value)
{
    if (array)
        array[index] = value;
}

/* Drift of a row from the splits, whose maximum and sum over all are known. */
static void merge_drift(const struct emulation *e, const struct kvg_rows *rows, int64_t n, double *records,
                        int64_t pieces, int64_t stride, double max, double sum, double v_factor)
{
    const int64_t dim = rows->a->head_dim;
    for (int64_t d = 0; d <= dim; d++) { /* d = dim: the sums of the row */
        double flips = 0, squares = 0, partial = 0, same = 0;
        for (int64_t p = 0; p < pieces; p++) {
            const struct drift_sums sums = drift_of(records + p * stride, rows->dim);
            const double *record = records + p * stride;
            if (record[SUM] == 0)
                continue;
            const double weight = kvg_exp2(split_lse(e, record) - max) / (record[SUM] * sum);
            if (d == dim) {
                flips += weight * *sums.flip_sum;
                same += weight * *sums.flip_same;
                continue;
            }
            flips += weight * sums.flips[d];
            squares += weight * weight * sums.squares[d];
            partial += weight * weight * sums.partial[d] * sums.partial[d];
        }
        if (d == dim) {
            put(e->drift->flip_sum, n, flips);
            put(e->drift->flip_same, n, same);
            continue;
        }
        put(e->drift->flips, n * dim + d, v_factor * flips);
        put(e->drift->sq_flips, n * dim + d, v_factor * v_factor * squares);
        put(e->drift->partial, n * dim + d, v_factor * sqrt(partial));
    }
}

static void emulate_merge(const struct kvg_rows *rows, const struct kvg_row_plan *row, double *records,
                          int64_t pieces, int64_t stride, void *context)
{
    const struct emulation *e = context;
    int64_t dim = rows->a->head_dim, n = row->index;
    double max = -INFINITY, sum = 0;
    for (int64_t p = 0; p < pieces; p++) {
        double lse = split_lse(e, records + p * stride);
        max = lse > max ? lse : max;
    }
    double factor = kvg_v_factor(rows, row->q_head / (rows->a->q_heads / rows->a->kv_heads));
    if (e->drift) {
        for (int64_t p = 0; p < pieces; p++)
            sum += records[p * stride + SUM] == 0 ? 0 : kvg_exp2(split_lse(e, records + p * stride) - max);
        merge_drift(e, rows, n, records, pieces, stride, max, sum, fabs(factor));
        sum = 0;
    }
    double *total = records + PV;
    for (int64_t p = 0, seen = 0; p < pieces; p++) {
        const double *record = records + p * stride;
        if (record[SUM] == 0)
            continue; /* an empty split */
        double weight = kvg_exp2(split_lse(e, record) - max);
        sum += weight;
        for (int64_t d = 0; d < dim; d++)
            total[d] = (seen ? total[d] : 0) + weight * (record[PV + d] / record[SUM]);
        seen = 1;
    }
    for (int64_t d = 0; d < dim && e->out; d++)
        e->out[n * dim + d] = sum == 0 ? 0 : (float)(factor * (total[d] / sum));
    if (e->lse)
        e->lse[n] = sum == 0 ? -INFINITY : (float)((max + kvg_log2(sum)) * KVG_LN2);
}

static int64_t longest(const struct kvg_ref_attention *a)
{
    int64_t keys = 1;
    for (int64_t b = 0; b < a->batch; b++)
        keys = a->seq_lens[b] > keys ? a->seq_lens[b] : keys;
    return keys;
}

int kvg_ref_attention_drift(const struct kvg_ref_attention *a, const struct kvg_ref_emulation *how,
                            const struct kvg_ref_drift_model *model, const struct kvg_ref_row *rows,
                            int64_t n_rows, float *out, float *lse, const struct kvg_ref_drift *drift)
{
    const struct kvg_operands operands = {how->q_operand, how->k_operand, how->v_operand, how->k_scaled_first,
                                          how->v_scaled_first};
    struct emulation e = {.how = how, .out = out, .lse = lse, .model = model, .drift = drift};
    int64_t keys = longest(a);
    int64_t split = how->split_tokens > 0 && how->split_tokens < keys ? how->split_tokens : keys;
    e.tile = how->tile > 0 && how->tile < split ? how->tile : split;
    e.offset = how->p_format == KVG_REF_E4M3 ? how->p_offset_log2 : 0;
    int64_t rows_max = TILE_BYTES / (e.tile * (int64_t)(2 * sizeof(double) + sizeof(float)));
    struct kvg_rows plan;
    if (kvg_rows_plan(&plan, a, &operands, rows, n_rows, split, how->split_from_window,
                      rows_max > 1 ? rows_max : 1) != 0)
        return -1;
    int status = kvg_rows_run(&plan, e.tile, drift != NULL, record_doubles(&e, plan.dim), emulate_split,
                              emulate_merge, &e);
    kvg_rows_free(&plan);
    return status;
}

int kvg_ref_attention_emulate(const struct kvg_ref_attention *a, const struct kvg_ref_emulation *how,
                              const struct kvg_ref_row *rows, int64_t n_rows, float *out, float *lse)
{
    return kvg_ref_attention_drift(a, how, NULL, rows, n_rows, out, lse, NULL);
}
