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
};

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
    int64_t stride = PV + rows->dim;
    kvg_logits(rows, g, first, last, s);
    for (int64_t r = 0; r < g->rows; r++) {
        int64_t from, to;
        kvg_row_span(&rows->plans[g->row + r], first, last, &from, &to);
        if (to >= from)
            row_of_tile(e, s, r, from, to, first, rows->dim, record + r * stride);
    }
    kvg_add_pv(rows, g, first, last, s, record + PV, stride);
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
    for (int64_t r = 0; r < g->rows; r++)
        for (int64_t i = 0; i < PV + rows->dim; i++)
            record[r * (PV + rows->dim) + i] = i == MAX ? -INFINITY : 0;
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
    double factor = kvg_v_factor(rows, row->q_head / (rows->a->q_heads / rows->a->kv_heads));
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

int kvg_ref_attention_emulate(const struct kvg_ref_attention *a, const struct kvg_ref_emulation *how,
                              const struct kvg_ref_row *rows, int64_t n_rows, float *out, float *lse)
{
    const struct kvg_operands operands = {how->q_operand, how->k_operand, how->v_operand, how->k_scaled_first,
                                          how->v_scaled_first};
    struct emulation e = {.how = how, .out = out, .lse = lse};
    int64_t keys = longest(a);
    int64_t split = how->split_tokens > 0 && how->split_tokens < keys ? how->split_tokens : keys;
    e.tile = how->tile > 0 && how->tile < split ? how->tile : split;
    e.offset = how->p_format == KVG_REF_E4M3 ? how->p_offset_log2 : 0;
    int64_t rows_max = TILE_BYTES / (e.tile * (int64_t)(sizeof(double) + sizeof(float)));
    struct kvg_rows plan;
    if (kvg_rows_plan(&plan, a, &operands, rows, n_rows, split, how->split_from_window,
                      rows_max > 1 ? rows_max : 1) != 0)
        return -1;
    int status = kvg_rows_run(&plan, e.tile, 0, PV + plan.dim, emulate_split, emulate_merge, &e);
    kvg_rows_free(&plan);
    return status;
}
