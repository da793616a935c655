/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_predict.c: the tile loop of FlashAttention-3's fp8 path on a modelled matrix unit.
 *
 * A set holds the rows of one (sequence, KV head), at most ROWS of them. They share K and V of a tile, as on
 * the GPU. Sets are distributed over the threads. The result of a row depends on that row alone.
 */
#include "attention_predict.h"
#include "attention_rows.h"
#include "clones.h"
#include "exp2.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The largest P is 2^offset. These are the largest powers of two below the limits, 448 of e4m3 and 240 of
 * e4m3fnuz. */
enum { P_OFFSET = 8, P_OFFSET_FNUZ = 7 };
enum { ROWS = 64 };  /* of a set; decoding a tile takes as long as its products with 16 rows */
enum { LANES = 16 }; /* of a sum over keys */

struct predict {
    const struct kvg_ref_attention *a;
    const struct kvg_ref_prediction *how;
    const struct kvg_rows *rows;
    struct kvg_group *sets; /* row, rows, seq, kv_head, first, last */
    int64_t n_sets;
    enum kvg_ref_format p_format;
    int64_t tile, dim;
    int offset;
    float *out, *lse;
};

/* Scratch of the set that a thread works on. */
struct work {
    uint8_t *q, *k, *v;  /* [ROWS][dim], [tile][dim] twice */
    uint8_t *p;          /* [ROWS][tile] */
    float *s, *o, *part; /* [ROWS][tile], [ROWS][dim] twice */
    double *logit;       /* [tile] */
    double max[ROWS];    /* running maximum in units of log2 */
    float sum[ROWS];     /* of unrounded P */
    int64_t tiles_in_part;
};

static void free_work(struct work *w)
{
    free(w->q), free(w->k), free(w->v), free(w->p);
    free(w->s), free(w->o), free(w->part), free(w->logit);
}

static int make_work(const struct predict *e, struct work *w)
{
    const size_t dim = (size_t)e->dim, tile = (size_t)e->tile;
    *w = (struct work){.q = malloc(ROWS * dim),
                       .k = malloc(tile * dim),
                       .v = malloc(tile * dim),
                       .p = malloc(ROWS * tile),
                       .s = malloc(ROWS * tile * sizeof(float)),
                       .o = malloc(ROWS * dim * sizeof(float)),
                       .part = malloc(ROWS * dim * sizeof(float)),
                       .logit = malloc(tile * sizeof(double))};
    if (w->q && w->k && w->v && w->p && w->s && w->o && w->part && w->logit)
        return 0;
    free_work(w);
    return -1;
}

/* ---------------------------------------------------------------- tiles */

/* Loads the codes of a tile of K or V. Keys outside the visible keys of the set are zeros. */
static void load_tile(const struct predict *e, const struct kvg_group *g, const struct kvg_ref_kv *kv,
                      int64_t start, uint8_t *codes)
{
    for (int64_t i = 0; i < e->tile; i++, codes += e->dim) {
        const int64_t token = start + i;
        if (token < g->first || token > g->last)
            memset(codes, 0, (size_t)e->dim);
        else
            memcpy(codes, (const uint8_t *)kv->data + kvg_ref_kv_index(kv, g->seq, token, g->kv_head),
                   (size_t)e->dim);
    }
}

/* S = Q K^T, starting from zero, for the visible keys of the set. */
static void scores(const struct predict *e, const struct kvg_group *g, int64_t start, struct work *w)
{
    const int64_t from = g->first > start ? g->first - start : 0;
    const int64_t to = g->last < start + e->tile ? g->last - start + 1 : e->tile;
    memset(w->s, 0, (size_t)(g->rows * e->tile) * sizeof *w->s);
    kvg_ref_mma_fp8_tile(&(struct kvg_ref_mma_tile){.model = e->how->mma,
                                                    .m = g->rows,
                                                    .n = to - from,
                                                    .k = e->dim,
                                                    .a_format = e->a->q_format,
                                                    .b_format = e->a->k.format,
                                                    .a = w->q,
                                                    .a_stride = e->dim,
                                                    .b = w->k + from * e->dim,
                                                    .b_stride_k = 1,
                                                    .b_stride_n = e->dim,
                                                    .c = w->s + from,
                                                    .c_stride = e->tile});
}

/* ---------------------------------------------------------------- softmax */

/* Logits in units of log2. Returns the largest of them and `max`. */
KVG_REF_CLONES
static double logits(const float *restrict s, int64_t count, double scale, double cap, double max,
                     double *restrict t)
{
    double lane[LANES];
    int64_t i = 0;
    if (cap > 0)
        for (int64_t j = 0; j < count; j++)
            t[j] = KVG_LOG2E * (cap * kvg_tanh((double)s[j] * scale / cap));
    else
        for (int64_t j = 0; j < count; j++)
            t[j] = KVG_LOG2E * ((double)s[j] * scale);
    for (int l = 0; l < LANES; l++)
        lane[l] = max;
    for (; i + LANES <= count; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] = t[i + l] > lane[l] ? t[i + l] : lane[l];
    for (int l = 0; i + l < count; l++)
        lane[l] = t[i + l] > lane[l] ? t[i + l] : lane[l];
    for (int l = 0; l < LANES; l++)
        max = lane[l] > max ? lane[l] : max;
    return max;
}

/* P = 2^(t - base). Returns their sum in FP32. */
KVG_REF_CLONES
static float weights(const double *restrict t, int64_t count, double base, float *restrict p)
{
    float lane[LANES] = {0};
    int64_t i = 0;
    for (int64_t j = 0; j < count; j++)
        p[j] = (float)kvg_exp2(t[j] - base);
    for (; i + LANES <= count; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += p[i + l];
    for (int l = 0; i + l < count; l++)
        lane[l] += p[i + l];
    for (int n = LANES / 2; n > 0; n /= 2)
        for (int l = 0; l < n; l++)
            lane[l] += lane[l + n];
    return lane[0];
}

KVG_REF_CLONES
static void shrink_row(float *x, int64_t count, float factor)
{
    for (int64_t d = 0; d < count; d++)
        x[d] *= factor;
}

/* Softmax of one row's part of a tile: writes P as codes, adds to the row sum, shrinks O to the maximum. */
static void softmax(const struct predict *e, const struct kvg_row_plan *row, int64_t start, struct work *w,
                    int64_t r)
{
    uint8_t *codes = w->p + r * e->tile;
    int64_t from, to;
    kvg_row_span(row, start, start + e->tile - 1, &from, &to);
    memset(codes, 0, (size_t)e->tile);
    if (to < from)
        return;
    float *s = w->s + r * e->tile + (from - start);
    const int64_t count = to - from + 1;
    const double max = logits(s, count, row->scale, e->a->soft_cap, w->max[r], w->logit);
    const double base = (max == -INFINITY ? 0 : max) - e->offset;
    const float shrink = w->max[r] == -INFINITY ? 0 : (float)kvg_exp2(w->max[r] - max);
    w->sum[r] = w->sum[r] * shrink + weights(w->logit, count, base, s);
    kvg_ref_store_row(e->p_format, codes, from - start, count, s);
    w->max[r] = max;
    if (shrink != 1) {
        shrink_row(w->o + r * e->dim, e->dim, shrink);
        shrink_row(w->part + r * e->dim, e->dim, shrink);
    }
}

/* ---------------------------------------------------------------- a set of rows */

/* Adds P V to O, or with two levels to the part that has not been added to O yet. */
static void add_pv(const struct predict *e, const struct kvg_group *g, struct work *w)
{
    kvg_ref_mma_fp8_tile(&(struct kvg_ref_mma_tile){.model = e->how->mma,
                                                    .m = g->rows,
                                                    .n = e->dim,
                                                    .k = e->tile,
                                                    .a_format = e->p_format,
                                                    .b_format = e->a->v.format,
                                                    .a = w->p,
                                                    .a_stride = e->tile,
                                                    .b = w->v,
                                                    .b_stride_k = e->dim,
                                                    .b_stride_n = 1,
                                                    .c = e->how->flush_tiles ? w->part : w->o,
                                                    .c_stride = e->dim});
}

static void flush(const struct predict *e, const struct kvg_group *g, struct work *w)
{
    for (int64_t i = 0; i < g->rows * e->dim; i++) {
        w->o[i] += w->part[i];
        w->part[i] = 0;
    }
    w->tiles_in_part = 0;
}

static void put_row(const struct predict *e, const struct kvg_group *g, const struct work *w, int64_t r)
{
    const struct kvg_row_plan *row = &e->rows->plans[g->row + r];
    const int seen = row->last >= row->first;
    const double factor = kvg_v_factor(e->rows, g->kv_head), above = row->sink - w->max[r];
    const double sum = (double)w->sum[r] + kvg_sink_weight(row, w->max[r]) * kvg_exp2(e->offset);
    for (int64_t d = 0; d < e->dim && e->out; d++)
        e->out[row->index * e->dim + d] = seen ? (float)((double)w->o[r * e->dim + d] * (factor / sum)) : 0;
    if (e->lse)
        e->lse[row->index] =
            (float)((seen && !(above > 500) ? w->max[r] + kvg_log2(sum) - e->offset : row->sink) * KVG_LN2);
}

static void run_set(const struct predict *e, const struct kvg_group *g, struct work *w)
{
    for (int64_t r = 0; r < g->rows; r++) {
        memcpy(w->q + r * e->dim, (const uint8_t *)e->a->q + e->rows->plans[g->row + r].q_index,
               (size_t)e->dim);
        w->max[r] = -INFINITY;
        w->sum[r] = 0;
    }
    memset(w->o, 0, (size_t)(g->rows * e->dim) * sizeof *w->o);
    memset(w->part, 0, (size_t)(g->rows * e->dim) * sizeof *w->part);
    w->tiles_in_part = 0;
    const int64_t low = g->last < g->first ? 1 : g->first / e->tile;
    const int64_t high = g->last < g->first ? 0 : g->last / e->tile;
    for (int64_t n = 0; n <= high - low; n++) {
        const int64_t tile = e->how->tile_first_first ? low + n : high - n;
        load_tile(e, g, &e->a->k, tile * e->tile, w->k);
        load_tile(e, g, &e->a->v, tile * e->tile, w->v);
        scores(e, g, tile * e->tile, w);
        for (int64_t r = 0; r < g->rows; r++)
            softmax(e, &e->rows->plans[g->row + r], tile * e->tile, w, r);
        add_pv(e, g, w);
        if (e->how->flush_tiles && ++w->tiles_in_part >= e->how->flush_tiles)
            flush(e, g, w);
    }
    flush(e, g, w);
    for (int64_t r = 0; r < g->rows; r++)
        put_row(e, g, w, r);
}

/* Joins consecutive groups of one (sequence, KV head) to sets. */
static int make_sets(struct predict *e)
{
    const struct kvg_rows *rows = e->rows;
    e->sets = malloc(((size_t)rows->n_groups + 1) * sizeof *e->sets);
    e->n_sets = 0;
    for (int64_t i = 0; i < rows->n_groups && e->sets; i++) {
        const struct kvg_group *g = &rows->groups[i];
        struct kvg_group *set = e->n_sets > 0 ? &e->sets[e->n_sets - 1] : NULL;
        if (!set || set->seq != g->seq || set->kv_head != g->kv_head || set->rows + g->rows > ROWS) {
            e->sets[e->n_sets++] = *g;
            continue;
        }
        set->rows += g->rows;
        set->first = g->first < set->first ? g->first : set->first;
        set->last = g->last > set->last ? g->last : set->last;
    }
    return e->sets ? 0 : -1;
}

static int run_sets(const struct predict *e)
{
    int failed = 0;
#pragma omp parallel num_threads(e->a->threads)
    {
        struct work w;
        const int made = make_work(e, &w) == 0;
        if (!made) {
#pragma omp atomic write
            failed = 1;
        }
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < e->n_sets; i++)
            if (made)
                run_set(e, &e->sets[i], &w);
        if (made)
            free_work(&w);
    }
    return failed ? -1 : 0;
}

int kvg_ref_attention_predict(const struct kvg_ref_attention *a, const struct kvg_ref_prediction *how,
                              const struct kvg_ref_row *rows, int64_t n_rows, float *out, float *lse)
{
    if (!kvg_ref_mma_takes(how->mma, a->q_format) || !kvg_ref_mma_takes(how->mma, a->k.format) ||
        !kvg_ref_mma_takes(how->mma, a->v.format))
        return -2;
    const int fnuz = kvg_ref_mma_takes(how->mma, KVG_REF_E4M3FNUZ);
    const struct kvg_operands operands = {KVG_REF_F32, KVG_REF_F32, KVG_REF_F32, 0, 0};
    int64_t longest = 1;
    for (int64_t b = 0; b < a->batch; b++)
        longest = a->seq_lens[b] > longest ? a->seq_lens[b] : longest;
    struct kvg_rows plan;
    if (kvg_rows_plan(&plan, a, &operands, rows, n_rows, longest, 0, KVG_ROWS_MAX) != 0)
        return -1;
    struct predict e = {.a = a,
                        .how = how,
                        .rows = &plan,
                        .p_format = fnuz ? KVG_REF_E4M3FNUZ : KVG_REF_E4M3,
                        .tile = how->tile > 0       ? how->tile
                                : a->head_dim <= 96 ? 128
                                                    : 96,
                        .dim = a->head_dim,
                        .offset = fnuz ? P_OFFSET_FNUZ : P_OFFSET,
                        .out = out,
                        .lse = lse};
    const int status = make_sets(&e) != 0 ? -1 : run_sets(&e);
    free(e.sets);
    kvg_rows_free(&plan);
    return status;
}
