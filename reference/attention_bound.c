/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_bound.c: the sums from which an error bound is built, beside the exact output.
 *
 * Every sum needs the final weights and the final output of its row. So the work has two steps:
 *
 *   - A piece of the context is first computed as in the exact reference. Then its values are read again,
 *     with the FP32 weights that are still in the scratch.
 *   - A row whose context has several pieces needs the results of all of them. It gets a second pass, which
 *     computes the logits again.
 *
 * Pieces and merge order are those of the exact reference.
 *
 * A bound does not need the precision of double. Sums are taken in FP32 over CHUNK keys and then added to a
 * double. Weights are relative to the largest weight of the piece and values are codes; the scales are
 * applied at the end, in double. Then every sum is enlarged by what FP32 can have lost, because a bound must
 * not be too small:
 *
 *   CHUNK_LOSS   the roundings, relative
 *   SQUARE_LOSS  what squares can have lost below the smallest number of FP32
 *
 * Squares that overflow FP32 (values beyond 2^63) make the bound infinite.
 */
#include "attention_rows.h"
#include "clones.h"
#include "exp2.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Keys that are summed in FP32. */
enum { CHUNK = 8 * KVG_BLOCK_TOKENS };
/* Relative loss by the roundings of FP32, each 2^-24. There are fewer than 2 * CHUNK of them: CHUNK
 * additions, and a few in the factors and products before that (e^delta - 1 has about ten; a square has them
 * twice). */
#define CHUNK_LOSS (2 * CHUNK * 0x1p-24)
/* A square below the smallest normal number loses up to half the smallest subnormal number, 2^-150. */
#define SQUARE_LOSS (CHUNK * 0x1p-150)
/* A P that is not rounded to zero is at least half a subnormal step: this part of the smallest normal. */
#define LEAST_P_OF_FLOOR 0x1p-4
/* If no delta of a row is above this, e^delta - 1 is replaced by delta * (e^D - 1) / D, with D the largest
 * delta of the row. That is too large by at most half of this limit, relative. */
#define SMALL_DELTA 0x1p-14
/* Larger exponents are replaced by 60. A bound with a factor of e^60 is useless either way. */
#define LARGEST_EXPONENT 60.0f
#define LARGEST_DELTA 1e9f

/* Sums of a row, in FP32, with one lane for each key of a block. FLAT is sum p (1 - e^-delta). It is kept
 * beside SHRINK, sum p e^-delta, because where delta is small the rounding of SHRINK hides the difference
 * from 1. */
enum { SHRINK, FLAT, ETA_SUM, DELTA_MEAN, GROW, ROW_SUMS };

/* Record of a row in a piece: the element sums in the order of the KVG_TILE enum, then the row sums, padded
 * to a multiple of 64 bytes. */
#define OF_ROW(dim) (KVG_TILE_SUMS * (dim))
#define RECORD(dim) (OF_ROW(dim) + (ROW_SUMS + 7) / 8 * 8)
#define EXACT_RECORD(dim) (KVG_EXACT_PV + (dim))

struct bound {
    const struct kvg_ref_bound_model *model;
    const struct kvg_ref_terms *terms;
    struct kvg_exact_result exact;
};

/* One row in a piece. */
struct bound_row {
    float *sums;                /* [KVG_TILE_SUMS][dim] of the chunk */
    float *lanes;               /* [ROW_SUMS][KVG_BLOCK_TOKENS] of the chunk */
    float *o;                   /* [dim] in units of the codes of V */
    double weight;              /* final weight of a key = weight * p */
    float p_rel, p_abs;         /* rounding of P: relative to p; absolute, in units of p */
    float p_floor;              /* in units of p */
    double largest_delta;       /* of the keys that the row sees */
    int many_etas, many_shifts; /* 0: for all keys eta is p_rel * p; shift is delta * p * one common factor */
};

/* The scratch of a unit of work. */
struct bound_scratch {
    struct bound_row row[KVG_ROWS_MAX];
    double max[KVG_ROWS_MAX];  /* largest logit of each row in the piece */
    float *v_size, *v_aligned; /* [KVG_BLOCK_TOKENS][dim] */
    double *records;           /* [rows_max][RECORD] */
};

static int64_t row_floats(int64_t dim)
{
    return (KVG_TILE_SUMS + 1) * dim + ROW_SUMS * KVG_BLOCK_TOKENS;
}

static int64_t scratch_bytes(const struct kvg_rows *rows)
{
    const int64_t floats = rows->rows_max * row_floats(rows->dim) + 2 * KVG_BLOCK_TOKENS * rows->dim;
    return rows->rows_max * RECORD(rows->dim) * (int64_t)sizeof(double) + floats * (int64_t)sizeof(float);
}

static void lay_out(const struct kvg_rows *rows, const struct kvg_scratch *s, struct bound_scratch *own)
{
    own->records = s->extra;
    void *rest = own->records + rows->rows_max * RECORD(rows->dim);
    float *at = rest;
    for (int64_t r = 0; r < rows->rows_max; r++, at += row_floats(rows->dim)) {
        own->row[r].sums = at;
        own->row[r].o = at + KVG_TILE_SUMS * rows->dim;
        own->row[r].lanes = own->row[r].o + rows->dim;
    }
    own->v_size = at;
    own->v_aligned = at + KVG_BLOCK_TOKENS * rows->dim;
}

/* ---------------------------------------------------------------- factors of keys */

/* e^x - 1 for 0 <= x <= LARGEST_EXPONENT, with a relative error below 2^-20. x = n ln 2 + y with |y| <= 0.35;
 * e^y - 1 is its Taylor series up to y^7, which leaves out less than 6e-9 of it. */
static inline __attribute__((always_inline)) float expm1_f32(float x)
{
    const float shift = 0x1.8p23f, ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
    const float shifted = x * (float)KVG_LOG2E + shift, n = shifted - shift;
    const float y = (x - n * ln2_high) - n * ln2_low;
    uint32_t bits;
    float power;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23;
    memcpy(&power, &bits, sizeof power);
    float e = 1.0f / 5040;
    e = e * y + 1.0f / 720;
    e = e * y + 1.0f / 120;
    e = e * y + 1.0f / 24;
    e = e * y + 1.0f / 6;
    e = e * y + 0.5f;
    e = e * y + 1.0f;
    return power * (e * y) + (power - 1.0f);
}

/* The factors of a block of keys in the sums of a row; zeros beyond the last key. */
struct key_factors {
    float p[KVG_BLOCK_TOKENS], delta[KVG_BLOCK_TOKENS], exponent[KVG_BLOCK_TOKENS];
    float g[KVG_BLOCK_TOKENS], shift[KVG_BLOCK_TOKENS], eta[KVG_BLOCK_TOKENS], p_aligned[KVG_BLOCK_TOKENS];
};

/* Computes the other factors from p, delta and exponent, and adds to the sums of the row. */
KVG_REF_CLONES
static void make_key_factors(float p_rel, float p_abs, float p_floor, struct key_factors *restrict f,
                             float *restrict lanes)
{
    for (int t = 0; t < KVG_BLOCK_TOKENS; t++) {
        const float p = f->p[t], delta = f->delta[t];
        const float grow = expm1_f32(f->exponent[t]);
        const float relative = p_rel * p, most = p * (float)(1 / LEAST_P_OF_FLOOR);
        const float eta = relative > p_abs ? relative : p_abs;
        const float floor = most < p_floor ? most : p_floor;
        const float down = 1.0f / (1.0f + grow);
        f->g[t] = p * delta;
        f->shift[t] = p * grow;
        f->eta[t] = eta < p ? eta : p;
        f->p_aligned[t] = p > floor ? p : floor;
        lanes[SHRINK * KVG_BLOCK_TOKENS + t] += p * down;
        lanes[FLAT * KVG_BLOCK_TOKENS + t] += f->shift[t] * down;
        lanes[ETA_SUM * KVG_BLOCK_TOKENS + t] += f->eta[t];
        lanes[DELTA_MEAN * KVG_BLOCK_TOKENS + t] += f->g[t];
        lanes[GROW * KVG_BLOCK_TOKENS + t] += f->shift[t];
    }
}

/* delta in FP32, as a factor (at most LARGEST_DELTA) and as an exponent (at most LARGEST_EXPONENT). */
KVG_REF_CLONES
static void narrow_deltas(const double *restrict delta, int64_t count, float *restrict factor,
                          float *restrict exponent)
{
    for (int64_t t = 0; t < count; t++) {
        const float x = (float)delta[t], least = x > LARGEST_DELTA ? LARGEST_DELTA : x; /* NaN stays */
        factor[t] = least;
        exponent[t] = least > LARGEST_EXPONENT ? LARGEST_EXPONENT : least;
    }
}

/* The smallest p and the largest delta of a row. NaN is passed over. */
KVG_REF_CLONES
static void extremes(const float *p, const double *delta, int64_t count, float *least, double *most)
{
    float low[16];
    double high[16] = {0};
    int64_t i = 0;
    for (int l = 0; l < 16; l++)
        low[l] = 1;
    for (; i + 16 <= count; i += 16)
        for (int l = 0; l < 16; l++) {
            low[l] = p[i + l] < low[l] ? p[i + l] : low[l];
            high[l] = delta[i + l] > high[l] ? delta[i + l] : high[l];
        }
    for (int l = 0; i + l < count; l++) {
        low[l] = p[i + l] < low[l] ? p[i + l] : low[l];
        high[l] = delta[i + l] > high[l] ? delta[i + l] : high[l];
    }
    for (int l = 1; l < 16; l++) {
        low[0] = low[l] < low[0] ? low[l] : low[0];
        high[0] = high[l] > high[0] ? high[l] : high[0];
    }
    *least = low[0];
    *most = high[0];
}

/* ---------------------------------------------------------------- sums of a piece */

/* Adds the FP32 sums of a chunk to the record and sets them to zero. */
KVG_REF_CLONES
static void join_elements(float *restrict sums, int64_t dim, double *restrict record)
{
    static const int squares_of[KVG_TILE_SUMS] = {[KVG_TILE_ABS] = -1,
                                                  [KVG_TILE_SQ] = KVG_TILE_ABS,
                                                  [KVG_TILE_SHIFT] = -1,
                                                  [KVG_TILE_SQ_LOGIT] = KVG_TILE_SHIFT,
                                                  [KVG_TILE_ROUNDING] = -1,
                                                  [KVG_TILE_ALIGNED] = -1,
                                                  [KVG_TILE_SQ_ALIGNED] = KVG_TILE_ALIGNED};
    for (int i = KVG_TILE_SUMS - 1; i >= 0; i--)
        for (int64_t d = 0; d < dim; d++) {
            const double sum = (double)sums[i * dim + d];
            const double whole = squares_of[i] < 0 ? 0 : (double)sums[squares_of[i] * dim + d];
            /* Squares may have lost something, but their sum is never above the square of the sum. */
            const double least = squares_of[i] < 0 ? sum : sum + SQUARE_LOSS;
            const double most = whole * whole > sum ? whole * whole : sum;
            record[i * dim + d] += least < most ? least : most;
            sums[i * dim + d] = 0;
        }
}

static void join_row(float *lanes, double *record)
{
    for (int i = 0; i < ROW_SUMS; i++)
        for (int t = 0; t < KVG_BLOCK_TOKENS; t++) {
            record[i] += (double)lanes[i * KVG_BLOCK_TOKENS + t];
            lanes[i * KVG_BLOCK_TOKENS + t] = 0;
        }
}

static void join_chunk(const struct kvg_rows *rows, struct bound_row *row, double *record)
{
    join_elements(row->sums, rows->dim, record);
    join_row(row->lanes, record + OF_ROW(rows->dim));
}

/* Prepares a row for its keys from .. to of a piece that begins at `first`. */
static void begin_row(const struct bound *b, const struct kvg_rows *rows, const struct kvg_group *g,
                      int64_t r, int64_t first, int64_t from, int64_t to, const struct kvg_scratch *s,
                      double piece_max, struct bound_row *row)
{
    const struct kvg_ref_bound_model *model = b->model;
    const int64_t n = rows->plans[g->row + r].index, at = r * s->span + (from - first);
    const double factor = kvg_v_factor(rows, g->kv_head), sum = b->exact.sum[n];
    /* How far the largest logit of the row is above that of the piece; 1000 stands for all larger ones. */
    const double above = b->exact.max[n] - piece_max;
    /* The same of the largest weight to which P is rounded relative. */
    const double sink = rows->plans[g->row + r].sink - piece_max;
    const double top = model->sink_in_maximum && sink > above ? sink : above;
    const double p_max = kvg_exp2(top > 1000 ? 1000 : top);
    float least;
    row->weight = sum == 0 ? 0 : kvg_exp2(-above) / sum; /* NaN is not 0 */
    row->p_rel = (float)model->p_rel;
    row->p_abs = (float)fmin(model->p_abs * p_max, 1); /* p is at most 1 */
    row->p_floor = (float)fmin(model->floors.p * p_max, 1 / LEAST_P_OF_FLOOR);
    extremes(s->p + at, s->spread + at, to - from + 1, &least, &row->largest_delta);
    row->many_etas = row->p_abs > row->p_rel * least;
    row->many_shifts = row->largest_delta > SMALL_DELTA;
    for (int64_t d = 0; d < rows->dim; d++)
        row->o[d] = factor == 0 ? 0 : (float)(b->exact.o[n * rows->dim + d] / factor);
    memset(row->sums, 0, (size_t)(KVG_TILE_SUMS * rows->dim) * sizeof *row->sums);
    memset(row->lanes, 0, ROW_SUMS * KVG_BLOCK_TOKENS * sizeof *row->lanes);
}

/* Applies the factors that all keys of the row share, and enlarges the sums by what FP32 may have lost. */
static void finish_row(const struct bound *b, const struct kvg_rows *rows, const struct kvg_group *g,
                       const struct bound_row *row, double *record)
{
    const int64_t dim = rows->dim;
    const double factor = row->weight * fabs(kvg_v_factor(rows, g->kv_head)), up = 1 + CHUNK_LOSS;
    const double shift =
        row->largest_delta > 0 && !row->many_shifts ? kvg_expm1(row->largest_delta) / row->largest_delta : 1;
    double *of_row = record + OF_ROW(dim);
    const double scale[KVG_TILE_SUMS] = {[KVG_TILE_ABS] = factor,
                                         [KVG_TILE_SQ] = factor * factor,
                                         [KVG_TILE_SHIFT] = factor * shift,
                                         [KVG_TILE_SQ_LOGIT] = factor * factor,
                                         [KVG_TILE_ROUNDING] = factor,
                                         [KVG_TILE_ALIGNED] = factor,
                                         [KVG_TILE_SQ_ALIGNED] = factor * factor};
    if (!row->many_etas)
        for (int64_t d = 0; d < dim; d++)
            record[KVG_TILE_ROUNDING * dim + d] = b->model->p_rel * record[KVG_TILE_ABS * dim + d];
    for (int i = 0; i < KVG_TILE_SUMS; i++)
        for (int64_t d = 0; d < dim; d++)
            record[i * dim + d] *= up * scale[i];
    for (int i = 0; i < ROW_SUMS; i++)
        of_row[i] *= row->weight * (i == SHRINK ? 1 - CHUNK_LOSS : up);
}

/* |V| of a block, and |V|' (struct kvg_ref_floors). */
KVG_REF_CLONES
static void sizes_of_v(const float *restrict v, int64_t count, float floor, float *restrict size,
                       float *restrict aligned)
{
    for (int64_t i = 0; i < count; i++) {
        size[i] = fabsf(v[i]);
        aligned[i] = size[i] > 0 && size[i] < floor ? floor : size[i];
    }
}

/* The floor of V in units of its codes. */
static float v_floor(const struct bound *b, const struct kvg_rows *rows, const struct kvg_group *g)
{
    const double factor = fabs(kvg_v_factor(rows, g->kv_head));
    return (float)(b->model->floors.v_scaled && factor > 0 ? b->model->floors.v / factor
                                                           : b->model->floors.v);
}

/* 1 if the aligned sums differ from the plain sums. */
static int aligned_apart(const struct bound *b)
{
    return b->model->floors.p > 0 || b->model->floors.v > 0;
}

/* Adds the keys first .. end, one block, to the sums of all rows. Column 0 is key `span_first`. */
static void bound_block(const struct bound *b, const struct kvg_rows *rows, const struct kvg_group *g,
                        int64_t span_first, int64_t first, int64_t end, struct kvg_scratch *s,
                        const struct bound_scratch *own)
{
    const struct kvg_tiles *tiles = kvg_tiles_of(0);
    struct key_factors f;
    int64_t low, high;
    kvg_rows_that_see(rows, g, first, end, &low, &high);
    if (high == 0)
        return;
    kvg_load_v(rows, g, first, end - first + 1, s);
    sizes_of_v(s->v, (end - first + 1) * rows->dim, v_floor(b, rows, g), own->v_size, own->v_aligned);
    for (int64_t r = low; r < high; r++) {
        const struct bound_row *row = &own->row[r];
        int64_t from, to;
        kvg_row_span(&rows->plans[g->row + r], first, end, &from, &to);
        if (to < from)
            continue;
        const int64_t at = r * s->span + (from - span_first), count = to - from + 1,
                      v_at = (from - first) * rows->dim;
        if (count < KVG_BLOCK_TOKENS)
            memset(&f, 0, sizeof f);
        memcpy(f.p, s->p + at, (size_t)count * sizeof *f.p);
        narrow_deltas(s->spread + at, count, f.delta, f.exponent);
        make_key_factors(row->p_rel, row->p_abs, row->p_floor, &f, row->lanes);
        const struct kvg_bound_tile tile = {.count = count,
                                            .dim = rows->dim,
                                            .p = f.p,
                                            .g = f.g,
                                            .shift = row->many_shifts ? f.shift : NULL,
                                            .eta = row->many_etas ? f.eta : NULL,
                                            .v = s->v + v_at,
                                            .v_size = own->v_size + v_at,
                                            .o = row->o,
                                            .p_aligned = f.p_aligned,
                                            .v_aligned = own->v_aligned + v_at,
                                            .sums = row->sums};
        tiles->add_bound(&tile);
        if (aligned_apart(b))
            tiles->add_aligned(&tile);
    }
}

/* The sums of a piece. Its weights and spread are in the scratch, its maxima in `own`. */
static void bound_sums(const struct bound *b, const struct kvg_rows *rows, const struct kvg_group *g,
                       int64_t first, int64_t last, struct kvg_scratch *s, struct bound_scratch *own,
                       double *records)
{
    const int64_t stride = RECORD(rows->dim);
    int64_t from[KVG_ROWS_MAX] = {0}, to[KVG_ROWS_MAX] = {0};
    memset(records, 0, (size_t)(g->rows * stride) * sizeof *records);
    for (int64_t r = 0; r < g->rows; r++) {
        kvg_row_span(&rows->plans[g->row + r], first, last, &from[r], &to[r]);
        if (to[r] >= from[r])
            begin_row(b, rows, g, r, first, from[r], to[r], s, own->max[r], &own->row[r]);
    }
    for (int64_t token = first, end; token <= last; token = end + 1) {
        end = kvg_block_end(token, last);
        bound_block(b, rows, g, first, token, end, s, own);
        for (int64_t r = 0; r < g->rows && (end == last || end % CHUNK == CHUNK - 1); r++)
            if (to[r] >= from[r])
                join_chunk(rows, &own->row[r], records + r * stride);
    }
    for (int64_t r = 0; r < g->rows; r++)
        if (to[r] >= from[r])
            finish_row(b, rows, g, &own->row[r], records + r * stride);
}

/* ---------------------------------------------------------------- passes */

/* Writes `count` numbers, or zeros where `from` is NULL, to a row of `array`, which may be NULL. */
static void put(double *array, int64_t row, int64_t count, const double *from)
{
    if (array && from)
        memcpy(array + row * count, from, (size_t)count * sizeof *array);
    else if (array)
        memset(array + row * count, 0, (size_t)count * sizeof *array);
}

static void put_terms(const struct kvg_rows *rows, const struct kvg_row_plan *row, const double *record,
                      const struct bound *b)
{
    const struct kvg_ref_terms *t = b->terms;
    const int aligned = aligned_apart(b), seen = row->last >= row->first;
    double *const element[KVG_TILE_SUMS] = {
        [KVG_TILE_ABS] = t->abs_pv,           [KVG_TILE_SQ] = t->sq_pv,
        [KVG_TILE_SHIFT] = t->logit_shift,    [KVG_TILE_SQ_LOGIT] = t->sq_logit,
        [KVG_TILE_ROUNDING] = t->p_rounding,  [KVG_TILE_ALIGNED] = t->abs_aligned,
        [KVG_TILE_SQ_ALIGNED] = t->sq_aligned};
    for (int i = 0; i < KVG_TILE_SUMS; i++) {
        const int source = i == KVG_TILE_ALIGNED && !aligned      ? KVG_TILE_ABS
                           : i == KVG_TILE_SQ_ALIGNED && !aligned ? KVG_TILE_SQ
                                                                  : i;
        put(element[i], row->index, rows->a->head_dim, seen ? record + source * rows->dim : NULL);
    }
    const double *sum = seen ? record + OF_ROW(rows->dim) : NULL;
    /* The weights add up to 1, so both are lower bounds of sum p e^-delta. The sink has no delta. */
    double shrink = 0;
    if (seen) {
        const double sink = kvg_sink_weight(row, b->exact.max[row->index]) / b->exact.sum[row->index];
        shrink = fmax(sum[SHRINK] + (sink > 0 ? sink * (1 - CHUNK_LOSS) : 0), 1 - sum[FLAT]);
    }
    put(t->shrink, row->index, 1, &shrink);
    put(t->eta_sum, row->index, 1, seen ? &sum[ETA_SUM] : NULL);
    put(t->delta_mean, row->index, 1, seen ? &sum[DELTA_MEAN] : NULL);
    put(t->grow, row->index, 1, seen ? &sum[GROW] : NULL);
    put(t->sunk, row->index, 1, seen ? &b->exact.sunk[row->index] : NULL);
}

/* The exact reference of a piece. If the group has a single piece, its bound as well. */
static void first_piece(const struct kvg_rows *rows, const struct kvg_group *g, int64_t piece,
                        struct kvg_scratch *s, double *record, void *context)
{
    const struct bound *b = context;
    const int64_t stride = EXACT_RECORD(rows->dim);
    struct bound_scratch own;
    int64_t first, last;
    kvg_piece_span(rows, g, piece, &first, &last);
    kvg_load_q(rows, g, s);
    if (g->pieces > 1)
        kvg_logits(rows, g, first, last, s);
    else
        kvg_logits_and_spread(rows, g, first, last, b->model, s);
    kvg_exact_piece(rows, g, first, last, s, record, stride);
    if (g->pieces > 1)
        return;
    lay_out(rows, s, &own);
    for (int64_t r = 0; r < g->rows; r++) {
        own.max[r] = record[r * stride + KVG_EXACT_MAX];
        kvg_exact_merge(rows, &rows->plans[g->row + r], record + r * stride, 1, stride, &b->exact);
    }
    bound_sums(b, rows, g, first, last, s, &own, own.records);
    for (int64_t r = 0; r < g->rows; r++)
        put_terms(rows, &rows->plans[g->row + r], own.records + r * RECORD(rows->dim), b);
}

static void first_merge(const struct kvg_rows *rows, const struct kvg_row_plan *row, double *records,
                        int64_t pieces, int64_t stride, void *context)
{
    const struct bound *b = context;
    if (pieces != 1)
        kvg_exact_merge(rows, row, records, pieces, stride, &b->exact);
    if (pieces == 0)
        put_terms(rows, row, records, b); /* the row sees no key: all zeros */
}

/* The bound of groups with more than one piece. Their output is known by now. */
static void second_piece(const struct kvg_rows *rows, const struct kvg_group *g, int64_t piece,
                         struct kvg_scratch *s, double *record, void *context)
{
    const struct bound *b = context;
    struct bound_scratch own;
    int64_t first, last;
    if (g->pieces < 2)
        return;
    lay_out(rows, s, &own);
    kvg_piece_span(rows, g, piece, &first, &last);
    kvg_load_q(rows, g, s);
    kvg_logits_and_spread(rows, g, first, last, b->model, s);
    for (int64_t r = 0; r < g->rows; r++) {
        int64_t from, to;
        own.max[r] = -INFINITY;
        kvg_row_span(&rows->plans[g->row + r], first, last, &from, &to);
        if (to >= from)
            kvg_weights(s, r, from, to, first, 0, &own.max[r]);
    }
    bound_sums(b, rows, g, first, last, s, &own, record);
}

static void second_merge(const struct kvg_rows *rows, const struct kvg_row_plan *row, double *records,
                         int64_t pieces, int64_t stride, void *context)
{
    if (pieces < 2)
        return;
    for (int64_t p = 1; p < pieces; p++)
        for (int64_t i = 0; i < RECORD(rows->dim); i++)
            records[i] += records[p * stride + i];
    put_terms(rows, row, records, context);
}

static int run_passes(struct kvg_rows *plan, struct bound *b)
{
    int status = kvg_rows_run(plan, KVG_EXACT_PIECE, 1, EXACT_RECORD(plan->dim), first_piece, first_merge, b);
    int again = 0;
    for (int64_t n = 0; n < plan->n_groups; n++)
        again |= plan->groups[n].pieces > 1;
    if (status == 0 && again)
        status = kvg_rows_run(plan, KVG_EXACT_PIECE, 1, RECORD(plan->dim), second_piece, second_merge, b);
    return status;
}

int kvg_ref_attention_bound(const struct kvg_ref_attention *a, const struct kvg_ref_bound_model *model,
                            const struct kvg_ref_row *rows, int64_t n_rows, float *out, float *lse,
                            const struct kvg_ref_terms *terms)
{
    const struct kvg_operands operands = {KVG_REF_F32, KVG_REF_F32, KVG_REF_F32, 0, 0};
    struct kvg_rows plan;
    if (kvg_rows_plan(&plan, a, &operands, rows, n_rows, KVG_EXACT_PIECE, 0, KVG_ROWS_MAX) != 0)
        return -1;
    plan.extra_bytes = scratch_bytes(&plan);
    struct bound b = {.model = model, .terms = terms, .exact = {.out = out, .lse = lse}};
    b.exact.max = calloc((size_t)n_rows + 1, sizeof *b.exact.max);
    b.exact.sum = calloc((size_t)n_rows + 1, sizeof *b.exact.sum);
    b.exact.sunk = calloc((size_t)n_rows + 1, sizeof *b.exact.sunk);
    b.exact.o = calloc((size_t)(n_rows * plan.dim) + 1, sizeof *b.exact.o);
    const int made = b.exact.max && b.exact.sum && b.exact.sunk && b.exact.o;
    const int status = made ? run_passes(&plan, &b) : -1;
    free(b.exact.max);
    free(b.exact.sunk);
    free(b.exact.sum);
    free(b.exact.o);
    kvg_rows_free(&plan);
    return status;
}
