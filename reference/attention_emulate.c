/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_emulate.c: attention with the rounding that a kernel does on purpose, and with no other.
 *
 * A unit of work is one split of the context for one group of rows. Its tiles are taken in the kernel's
 * order. For each tile and row:
 *
 *   1. The running maximum m takes in the logits of the tile. Sums so far shrink by 2^(m_old - m).
 *   2. The weights 2^(logit - m + offset) are rounded to the format of P and multiply V.
 *   3. The row sum adds the weights, rounded or unrounded.
 *
 * Splits are merged by their log-sum-exp. Operands and P are rounded. The accidental rounding of a kernel's
 * sums is left out, because the comparison with a kernel is to show it.
 *
 * A tile without a key that the row sees does not change the row. In FlashAttention-3 such a tile adds zeros.
 */
#include "attention_rows.h"
#include "clones.h"
#include "exp2.h"

#include <math.h>
#include <string.h>

/* Record of a row in a split, as in the exact reference. */
enum { MAX = 0, SUM = 1, PV = 2 };
/* Most memory for the logits and weights of a group's tile, per thread. */
enum { TILE_BYTES = 48 << 20 };
/* Lanes of a sum over keys or dimensions. They are joined as a tree. */
enum { LANES = 8 };

struct emulation {
    const struct kvg_ref_emulation *how;
    int64_t tile; /* keys, at most a split */
    int offset;
    float *out, *lse;
    const struct kvg_ref_drift_model *model; /* NULL: no drift asked for */
    const struct kvg_ref_drift *drift;
    int flips; /* drift is asked for, and P is rounded */
};

/* Weights that are rounded in one call when flips are computed. */
enum { FLIPS_AT_ONCE = 128 };
/* Number of different logits that are remembered, of keys whose P can move. */
enum { SEEN = 4 };

/* Doubles of a record. With drift: three more sums per element, two more per row, and the SEEN logits. */
static int64_t record_doubles(const struct emulation *e, int64_t dim)
{
    return e->drift ? PV + 4 * dim + 2 + SEEN : PV + dim;
}

/* The parts of a record that exist only with drift. */
struct drift_sums {
    double *flips, *squares, *partial, *flip_sum, *flip_same;
    double *seen; /* [SEEN] remembered logits, the latest last */
};

static struct drift_sums drift_of(double *record, int64_t dim)
{
    double *flips = record + PV + dim;
    return (struct drift_sums){flips,           flips + dim,         flips + 2 * dim,
                               flips + 3 * dim, flips + 3 * dim + 1, flips + 3 * dim + 2};
}

/* ---------------------------------------------------------------- vector code */

KVG_REF_CLONES
static void scale(double *x, int64_t count, double factor)
{
    for (int64_t i = 0; i < count; i++)
        x[i] *= factor;
}

/* most = max(most, |x|); NaN in x is passed over. */
KVG_REF_CLONES
static void take_largest(const double *restrict x, int64_t count, double *restrict most)
{
    for (int64_t i = 0; i < count; i++)
        most[i] = fabs(x[i]) > most[i] ? fabs(x[i]) : most[i];
}

/* The sum, in LANES lanes of double. */
KVG_REF_CLONES
static double sum_of(const float *x, int64_t count)
{
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += (double)x[i + l];
    for (int l = 0; i + l < count; l++)
        lane[l] += (double)x[i + l];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* Turns each spread into theta by adding `common`. Returns the largest theta. */
KVG_REF_CLONES
static double errors_of_logits(double *spread, int64_t count, double common)
{
    double lane[LANES] = {0}, largest = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int l = 0; l < LANES; l++) {
            const double theta = spread[i + l] += common;
            lane[l] = theta > lane[l] ? theta : lane[l];
        }
    for (int l = 0; i + l < count; l++) {
        const double theta = spread[i + l] += common;
        lane[l] = theta > lane[l] ? theta : lane[l];
    }
    for (int l = 0; l < LANES; l++)
        largest = lane[l] > largest ? lane[l] : largest;
    return largest;
}

/* Up to this theta, e^theta is a short series. */
#define SMALL_THETA 0.5
/* Larger theta are replaced by this one. A factor of e^80 already moves P to any other value. */
#define LARGE_THETA 80.0
/* Covers the roundings of FP32 in the series and its products. */
#define FP32_SLACK (1 + 0x1p-20)

/* low = p e^-theta and high = p e^theta. Their distance from p is too large by at most 2^-20 + 5e-5 of
 * itself, and never too small. */
KVG_REF_CLONES
static void neighbours(const float *restrict p, const double *restrict theta, int64_t count,
                       float *restrict low, float *restrict high)
{
    for (int64_t i = 0; i < count; i++) {
        /* e^x - 1 <= x + x^2/2 + .. + 1.1 x^5/120, because the terms after x^5/120 are below a geometric
         * series of ratio 1/12. 1 - e^-x is below its own series after an odd number of terms. */
        const float x = (float)(theta[i] * FP32_SLACK);
        const float up = x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x * (1.1f / 5)))));
        const float down = x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5))));
        low[i] = p[i] - p[i] * down;
        high[i] = p[i] + p[i] * up;
    }
}

KVG_REF_CLONES
static void far_neighbours(const float *restrict p, const double *restrict theta, int64_t count,
                           float *restrict low, float *restrict high)
{
    for (int64_t i = 0; i < count; i++) {
        const double x = theta[i] > LARGE_THETA ? LARGE_THETA : theta[i];
        const double factor = 1 + kvg_expm1(x);
        low[i] = (float)((double)p[i] / factor);
        high[i] = (float)((double)p[i] * factor);
    }
}

/* f = distance from mid to the farther one of its two rounded neighbours. Returns 1 if any f is not 0. */
KVG_REF_CLONES
static int farther(const float *restrict low, const float *restrict mid, const float *restrict high,
                   int64_t count, double *restrict f)
{
    int any = 0;
    for (int64_t i = 0; i < count; i++) {
        const float down = mid[i] - low[i], up = high[i] - mid[i];
        const float far = down > up ? down : up;
        f[i] = (double)far;
        any |= far != 0;
    }
    return any;
}

/* Keys of a block whose P can move. */
struct moves {
    int64_t count, key[KVG_BLOCK_TOKENS]; /* position in the block */
    float f[KVG_BLOCK_TOKENS];
    double square[KVG_BLOCK_TOKENS];       /* f^2 */
    double logit[SEEN + KVG_BLOCK_TOKENS]; /* begins with the SEEN remembered ones */
};

static void list_moves(const double *f, const double *logit, int64_t count, const double *seen,
                       struct moves *m)
{
    int64_t n = 0;
    memcpy(m->logit, seen, SEEN * sizeof *seen);
    for (int64_t t = 0; t < count; t++) {
        m->key[n] = t;
        m->f[n] = (float)f[t];
        m->square[n] = f[t] * f[t];
        m->logit[SEEN + n] = logit[t];
        n += f[t] != 0;
    }
    m->count = n;
}

/* 1 if any logit equals one of the SEEN logits before it. */
KVG_REF_CLONES
static int any_repeated(const double *logit, int64_t count)
{
    int any = 0;
    for (int64_t i = 0; i < count; i++) {
        const double x = logit[SEEN + i];
        any |= (x == logit[i]) | (x == logit[i + 1]) | (x == logit[i + 2]) | (x == logit[i + 3]);
    }
    return any;
}

/* Replaces v by |v| and writes v^2 to `square`. */
KVG_REF_CLONES
static void sizes_of(float *restrict v, int64_t count, double *restrict square)
{
    for (int64_t i = 0; i < count; i++) {
        square[i] = (double)v[i] * (double)v[i];
        v[i] = fabsf(v[i]);
    }
}

/* ---------------------------------------------------------------- drift */

/* Replaces the spread of `count` unrounded weights by f: how far the rounded weight moves when its logit is
 * off by theta in either direction. Returns 1 if any f is not 0. */
static int flips_of_row(const struct emulation *e, const float *p, double *spread, int64_t count, double max)
{
    const double common = e->model->max_rel * (fabs(max) * KVG_LN2);
    const int small = errors_of_logits(spread, count, common) <= SMALL_THETA;
    int any = 0;
    for (int64_t at = 0; at < count; at += FLIPS_AT_ONCE) {
        const int64_t n = count - at < FLIPS_AT_ONCE ? count - at : FLIPS_AT_ONCE;
        float low[FLIPS_AT_ONCE], mid[FLIPS_AT_ONCE], high[FLIPS_AT_ONCE];
        memcpy(mid, p + at, (size_t)n * sizeof *mid);
        (small ? neighbours : far_neighbours)(mid, spread + at, n, low, high);
        kvg_ref_round_row(e->how->p_format, low, n);
        kvg_ref_round_row(e->how->p_format, mid, n);
        kvg_ref_round_row(e->how->p_format, high, n);
        any |= farther(low, mid, high, n, spread + at);
    }
    return any;
}

/* 1 if the logit is one of those remembered; otherwise remembers it. */
static int seen_before(double *seen, double logit)
{
    for (int i = 0; i < SEEN; i++)
        if (seen[i] == logit)
            return 1;
    memmove(seen, seen + 1, (SEEN - 1) * sizeof *seen);
    seen[SEEN - 1] = logit;
    return 0;
}

/* Adds to flip_sum and flip_same of a row. */
static void sum_moves(const struct moves *m, const struct drift_sums *sums)
{
    *sums->flip_sum += sum_of(m->f, m->count);
    if (!any_repeated(m->logit, m->count)) {
        memcpy(sums->seen, m->logit + m->count, SEEN * sizeof *sums->seen);
        return;
    }
    for (int64_t n = 0; n < m->count; n++)
        if (seen_before(sums->seen, m->logit[SEEN + n]))
            *sums->flip_same += (double)m->f[n];
}

/* Adds the flips of one block for all rows. Overwrites V and `wide` in the scratch. */
static void drift_of_block(const struct emulation *e, const struct kvg_rows *rows, const struct kvg_group *g,
                           int64_t first, int64_t token, int64_t end, const char *moving,
                           struct kvg_scratch *s, double *record)
{
    const int64_t dim = rows->dim, stride = record_doubles(e, dim);
    const struct kvg_tiles *tiles = kvg_tiles_of(0);
    int loaded = 0;
    for (int64_t r = 0; r < g->rows; r++) {
        const int64_t column = r * s->span - first;
        struct moves m;
        int64_t from, to;
        kvg_row_span(&rows->plans[g->row + r], token, end, &from, &to);
        if (to < from || !moving[r])
            continue;
        const struct drift_sums sums = drift_of(record + r * stride, dim);
        list_moves(s->spread + column + from, s->logit + column + from, to - from + 1, sums.seen, &m);
        if (m.count == 0)
            continue;
        if (!loaded++) {
            kvg_load_v(rows, g, token, end - token + 1, s);
            sizes_of(s->v, (end - token + 1) * dim, s->wide);
        }
        sum_moves(&m, &sums);
        const int64_t at = (from - token) * dim;
        tiles->add_flips(&(struct kvg_flips_tile){m.count, dim, m.key, m.f, m.square, s->v + at, s->wide + at,
                                                  sums.flips, sums.squares});
    }
}

/* Adds f |v| and f^2 v^2 of a tile, and raises `partial` to the size of the sums so far. */
static void drift_of_tile(const struct emulation *e, const struct kvg_rows *rows, const struct kvg_group *g,
                          int64_t first, int64_t last, const char *moving, struct kvg_scratch *s,
                          double *record)
{
    const int64_t dim = rows->dim, stride = record_doubles(e, dim);
    for (int64_t token = first, end; token <= last && e->flips; token = end + 1) {
        end = kvg_block_end(token, last);
        drift_of_block(e, rows, g, first, token, end, moving, s, record);
    }
    for (int64_t r = 0; r < g->rows; r++)
        take_largest(record + r * stride + PV, dim, drift_of(record + r * stride, dim).partial);
}

/* Shrinks the sums so far, and their drift, to a new maximum. */
static void shrink_record(const struct emulation *e, double *record, double shrink, int64_t dim)
{
    if (shrink == 1)
        return;
    record[SUM] *= shrink;
    scale(record + PV, dim, shrink);
    if (!e->drift)
        return;
    const struct drift_sums sums = drift_of(record, dim);
    scale(sums.flips, dim, shrink);
    scale(sums.squares, dim, shrink * shrink);
    scale(sums.partial, dim, shrink);
    *sums.flip_sum *= shrink;
    *sums.flip_same *= shrink;
}

/* ---------------------------------------------------------------- tiles and splits */

/* The weights of one row for the part of a tile that it sees. Shrinks its sums so far to the new maximum.
 * Returns 1 if a weight can move. */
static int row_of_tile(const struct emulation *e, struct kvg_scratch *s, int64_t r, int64_t from, int64_t to,
                       int64_t tile_first, int64_t dim, double *record)
{
    const double before = record[MAX];
    const int64_t at = r * s->span + (from - tile_first), count = to - from + 1;
    float *p = s->p + at;
    kvg_weights(s, r, from, to, tile_first, e->offset, &record[MAX]);
    shrink_record(e, record, kvg_exp2(before - (record[MAX] == -INFINITY ? 0 : record[MAX])), dim);
    const int moving = e->flips && flips_of_row(e, p, s->spread + at, count, record[MAX]);
    if (e->how->row_sum_of_rounded_p)
        kvg_ref_round_row(e->how->p_format, p, count);
    record[SUM] += sum_of(p, count);
    if (!e->how->row_sum_of_rounded_p)
        kvg_ref_round_row(e->how->p_format, p, count);
    return moving;
}

static void emulate_tile(const struct emulation *e, const struct kvg_rows *rows, const struct kvg_group *g,
                         int64_t first, int64_t last, struct kvg_scratch *s, double *record)
{
    const int64_t stride = record_doubles(e, rows->dim);
    char moving[KVG_ROWS_MAX] = {0};
    if (e->flips) {
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
            moving[r] = (char)row_of_tile(e, s, r, from, to, first, rows->dim, record + r * stride);
    }
    kvg_add_pv(rows, g, first, last, s, record + PV, stride);
    if (e->drift)
        drift_of_tile(e, rows, g, first, last, moving, s, record);
}

/* The sink as the key before all others, in the split with the first visible key. */
static void begin_with_sink(const struct emulation *e, const struct kvg_row_plan *row, int64_t first,
                            int64_t last, double *record)
{
    if (!e->how->sink_in_maximum || row->sink == -INFINITY || row->last < row->first || row->first < first ||
        row->first > last)
        return;
    record[MAX] = row->sink;
    record[SUM] = kvg_exp2(e->offset);
}

/* The sink if it joins the row sum at the end, else -infinity. */
static double sink_at_end(const struct emulation *e, const struct kvg_row_plan *row)
{
    return e->how->sink_in_maximum && row->last >= row->first ? -INFINITY : row->sink;
}

static void emulate_split(const struct kvg_rows *rows, const struct kvg_group *g, int64_t piece,
                          struct kvg_scratch *s, double *record, void *context)
{
    const struct emulation *e = context;
    int64_t split_first = g->piece_start + piece * rows->piece_tokens;
    int64_t first = split_first > g->first ? split_first : g->first;
    int64_t last =
        split_first + rows->piece_tokens - 1 < g->last ? split_first + rows->piece_tokens - 1 : g->last;
    const int64_t stride = record_doubles(e, rows->dim);
    int64_t tile_low = (first - split_first) / e->tile, tile_high = (last - split_first) / e->tile;
    for (int64_t r = 0; r < g->rows; r++) {
        double *row = record + r * stride;
        memset(row, 0, (size_t)stride * sizeof *row);
        row[MAX] = -INFINITY;
        begin_with_sink(e, &rows->plans[g->row + r], split_first, split_first + rows->piece_tokens - 1, row);
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

/* Writes factor * array, or zeros where `array` is NULL, to row n of `out`, which may be NULL. */
static void put(double *out, int64_t n, const double *array, int64_t count, double factor)
{
    for (int64_t d = 0; d < count && out; d++)
        out[n * count + d] = array ? factor * array[d] : 0;
}

/* Weights the drift of a split by the share of the split in the row. `partial` becomes its square. */
static void weigh_drift(const struct drift_sums *sums, int64_t dim, double weight)
{
    for (int64_t d = 0; d < dim; d++) {
        const double partial = weight * sums->partial[d];
        sums->flips[d] *= weight;
        sums->squares[d] *= weight * weight;
        sums->partial[d] = partial * partial;
    }
    *sums->flip_sum *= weight;
    *sums->flip_same *= weight;
}

/* Drift of a row from its splits. record[MAX] holds the weight of a split, see weights_of_splits. */
static void merge_drift(const struct emulation *e, const struct kvg_rows *rows, int64_t n, double *records,
                        int64_t pieces, int64_t stride, double sum, double v_factor)
{
    const int64_t dim = rows->a->head_dim;
    struct drift_sums row = {0};
    for (int64_t p = 0; p < pieces; p++) {
        double *record = records + p * stride;
        const struct drift_sums sums = drift_of(record, rows->dim);
        weigh_drift(&sums, dim, record[SUM] == 0 ? 0 : record[MAX] / (record[SUM] * sum));
        if (p == 0) {
            row = sums;
            continue;
        }
        for (int64_t d = 0; d < dim; d++) {
            row.flips[d] += sums.flips[d];
            row.squares[d] += sums.squares[d];
            row.partial[d] += sums.partial[d];
        }
        *row.flip_sum += *sums.flip_sum;
        *row.flip_same += *sums.flip_same;
    }
    for (int64_t d = 0; d < dim && row.partial; d++)
        row.partial[d] = sqrt(row.partial[d]);
    put(e->drift->flips, n, row.flips, dim, v_factor);
    put(e->drift->sq_flips, n, row.squares, dim, v_factor * v_factor);
    put(e->drift->partial, n, row.partial, dim, v_factor);
    put(e->drift->flip_sum, n, row.flip_sum, 1, 1);
    put(e->drift->flip_same, n, row.flip_same, 1, 1);
}

/* Replaces the maximum of each split by the weight of the split, which is 0 if the row sees none of its keys.
 * Returns the sum of the weights, that of a sink included, and writes the largest log-sum-exp to *max. */
static double weights_of_splits(const struct emulation *e, double *records, int64_t pieces, int64_t stride,
                                double sink, double *max)
{
    *max = sink;
    for (int64_t p = 0; p < pieces; p++) {
        double *record = records + p * stride;
        record[MAX] = record[SUM] == 0 ? -INFINITY : record[MAX] + kvg_log2(record[SUM]) - e->offset;
        *max = record[MAX] > *max ? record[MAX] : *max;
    }
    double sum = sink > -INFINITY ? kvg_exp2(sink - *max) : 0;
    for (int64_t p = 0; p < pieces; p++) {
        double *record = records + p * stride;
        record[MAX] = record[SUM] == 0 ? 0 : kvg_exp2(record[MAX] - *max);
        sum += record[MAX];
    }
    return sum;
}

static void emulate_merge(const struct kvg_rows *rows, const struct kvg_row_plan *row, double *records,
                          int64_t pieces, int64_t stride, void *context)
{
    const struct emulation *e = context;
    const int64_t dim = rows->a->head_dim, n = row->index;
    const double factor = kvg_v_factor(rows, row->q_head / (rows->a->q_heads / rows->a->kv_heads));
    double max;
    const double sum = weights_of_splits(e, records, pieces, stride, sink_at_end(e, row), &max);
    if (e->drift)
        merge_drift(e, rows, n, records, pieces, stride, sum, fabs(factor));
    double *total = records + PV;
    int seen = 0;
    for (int64_t p = 0; p < pieces; p++) {
        const double *record = records + p * stride;
        if (record[SUM] == 0)
            continue; /* an empty split */
        for (int64_t d = 0; d < dim; d++)
            total[d] = (seen ? total[d] : 0) + record[MAX] * (record[PV + d] / record[SUM]);
        seen = 1;
    }
    for (int64_t d = 0; d < dim && e->out; d++)
        e->out[n * dim + d] = !seen || sum == 0 ? 0 : (float)(factor * (total[d] / sum));
    if (e->lse)
        e->lse[n] = sum == 0 ? -INFINITY : (float)((max + kvg_log2(sum)) * KVG_LN2);
}

/* The format to round an operand to. It is F32, which rounds nothing, if `to` holds every value of `from`
 * exactly. */
static enum kvg_ref_format operand(enum kvg_ref_format from, enum kvg_ref_format to, int scaled)
{
    const int e4m3 = from == KVG_REF_E4M3, e5m2 = from == KVG_REF_E5M2;
    const int held = from == to || ((e4m3 || e5m2) && (to == KVG_REF_BF16 || to == KVG_REF_F16));
    return held && !scaled ? KVG_REF_F32 : to;
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
    const struct kvg_operands operands = {
        operand(a->q_format, how->q_operand, 0), operand(a->k.format, how->k_operand, how->k_scaled_first),
        operand(a->v.format, how->v_operand, how->v_scaled_first), how->k_scaled_first, how->v_scaled_first};
    struct emulation e = {.how = how, .out = out, .lse = lse, .model = model, .drift = drift};
    int64_t keys = longest(a);
    int64_t split = how->split_tokens > 0 && how->split_tokens < keys ? how->split_tokens : keys;
    e.tile = how->tile > 0 && how->tile < split ? how->tile : split;
    e.offset = how->p_format == KVG_REF_E4M3 || how->p_format == KVG_REF_F16 ? how->p_offset_log2 : 0;
    e.flips = drift && how->p_format != KVG_REF_F32;
    int64_t rows_max = TILE_BYTES / (e.tile * (int64_t)(2 * sizeof(double) + sizeof(float)));
    struct kvg_rows plan;
    if (kvg_rows_plan(&plan, a, &operands, rows, n_rows, split, how->split_from_window,
                      rows_max > 1 ? rows_max : 1) != 0)
        return -1;
    int status =
        kvg_rows_run(&plan, e.tile, e.flips, record_doubles(&e, plan.dim), emulate_split, emulate_merge, &e);
    kvg_rows_free(&plan);
    return status;
}

int kvg_ref_attention_emulate(const struct kvg_ref_attention *a, const struct kvg_ref_emulation *how,
                              const struct kvg_ref_row *rows, int64_t n_rows, float *out, float *lse)
{
    return kvg_ref_attention_drift(a, how, NULL, rows, n_rows, out, lse, NULL);
}
