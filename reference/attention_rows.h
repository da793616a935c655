/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_rows.h: the parts that the exact, the emulating and the bounding reference share. Internal to
 * reference/.
 *
 * Rows of one (sequence, KV head) form groups of up to KVG_ROWS_MAX rows. So every key and value is decoded
 * once per group. The context of a group is cut into pieces. Each (group, piece) is one unit of work, which
 * fills one record of doubles per row. The records of a row are then merged in the order of the pieces.
 *
 * Pieces begin at fixed positions of the sequence, and the record of a row depends on that row alone. So the
 * result does not depend on the grouping or on the number of threads.
 */
#ifndef KVG_REFERENCE_ATTENTION_ROWS_H
#define KVG_REFERENCE_ATTENTION_ROWS_H

#include "attention.h"
#include "attention_tiles.h"

#pragma GCC visibility push(hidden)

enum { KVG_ROWS_MAX = 24 }; /* rows of a group */

/* One row, and what is the same for all its keys. */
struct kvg_row_plan {
    int64_t index;       /* position in the caller's arrays */
    int64_t first, last; /* visible keys; last < first: none */
    int64_t q_index;     /* element of the row's first Q value */
    int32_t q_head;
    double scale; /* softmax_scale * q_scale, times k_scale unless K is scaled before rounding */
    double sink;  /* logit of the sink in units of log2; -infinity without one */
};

struct kvg_group {
    int64_t seq, kv_head;
    int64_t row, rows;     /* slice of the sorted rows */
    int64_t first, last;   /* union of the visible keys of its rows */
    int64_t piece, pieces; /* number of the first piece with a visible key; count of pieces from there on */
    int64_t piece_start;   /* key where piece 0 begins */
    int64_t record;        /* offset of the group's records, in doubles */
};

/* How operands are rounded when they are loaded. The exact reference has F32 and 0 throughout. */
struct kvg_operands {
    enum kvg_ref_format q, k, v;
    int k_scaled_first, v_scaled_first;
};

struct kvg_rows {
    const struct kvg_ref_attention *a;
    struct kvg_operands operands;
    int64_t dim;                /* head_dim rounded up to a multiple of KVG_DIM_STEP */
    struct kvg_row_plan *plans; /* [n_rows], sorted by sequence, KV head, first visible key, position */
    int64_t n_rows;
    struct kvg_group *groups;
    int64_t n_groups;
    int64_t piece_tokens; /* keys of a piece */
    int64_t rows_max;     /* most rows of a group */
    int64_t extra_bytes;  /* size of kvg_scratch.extra; 0 unless the caller sets it after kvg_rows_plan */
};

/* Scratch of one thread. Rows of dimensions are padded with zeros up to `dim`. */
struct kvg_scratch {
    double *q;      /* [rows_max][dim] rounded, unscaled */
    float *q_size;  /* [rows_max][dim] |q|, or |q|' of struct kvg_ref_floors */
    float *codes;   /* [KVG_BLOCK_TOKENS][dim] K as loaded */
    float *k;       /* [dim][KVG_BLOCK_TOKENS] K transposed */
    float *k_size;  /* [dim][KVG_BLOCK_TOKENS] |k| or |k|' */
    float *v;       /* [KVG_BLOCK_TOKENS][dim] */
    float *row;     /* [dim] */
    double *wide;   /* [KVG_BLOCK_TOKENS][dim] free for the unit of work */
    double *logit;  /* [rows_max][span] in units of log2 */
    double *spread; /* [rows_max][span] delta of each logit; NULL unless asked for */
    float *p;       /* [rows_max][span] */
    void *extra;    /* [extra_bytes], aligned to 64 bytes */
    int64_t span;   /* keys of a row in logit, spread and p */
};

/* Lists and sorts the rows and forms the groups. Returns 0, or -1 when out of memory (nothing to free then).
 * align_to_first: pieces are counted from the first visible key, so all rows of a group share that key. */
int kvg_rows_plan(struct kvg_rows *rows, const struct kvg_ref_attention *a,
                  const struct kvg_operands *operands, const struct kvg_ref_row *list, int64_t n_rows,
                  int64_t piece_tokens, int align_to_first, int64_t rows_max);
void kvg_rows_free(struct kvg_rows *rows);

int kvg_scratch_make(struct kvg_scratch *s, const struct kvg_rows *rows, int64_t span, int with_spread);
void kvg_scratch_free(struct kvg_scratch *s);

/* The steps of a unit of work. first .. last (inclusive) is a span of keys. The logit of a key that the row
 * sees is written to column token - first. kvg_load_q comes before kvg_logits. */
void kvg_load_q(const struct kvg_rows *rows, const struct kvg_group *g, struct kvg_scratch *s);
void kvg_logits(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t last,
                struct kvg_scratch *s);
/* As kvg_logits, and writes delta of each logit to s->spread. delta is summed in FP32 and then enlarged, so
 * that rounding cannot make it too small. It is too large by up to 2 (dim + 8) 2^-24 of itself. */
void kvg_logits_and_spread(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first,
                           int64_t last, const struct kvg_ref_bound_model *model, struct kvg_scratch *s);
/* The softmax weights of row r for the keys from .. to of a span that begins at `first`. Raises *max to the
 * largest logit, then writes p = 2^(logit - *max + offset) to s->p. */
void kvg_weights(struct kvg_scratch *s, int64_t r, int64_t from, int64_t to, int64_t first, int offset,
                 double *max);
/* sum[r * stride + d] += p[r][token - first] * v[token][d] over the keys of the span that row r sees. A value
 * that a row does not see is not added, not even with weight 0: it may be NaN. */
void kvg_add_pv(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t last,
                struct kvg_scratch *s, double *sum, int64_t stride);
/* Loads V of up to KVG_BLOCK_TOKENS keys into s->v, scaled and rounded as `operands` says. */
void kvg_load_v(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t count,
                struct kvg_scratch *s);
/* The scale that kvg_load_v has not applied to V; 1 when it has. */
double kvg_v_factor(const struct kvg_rows *rows, int64_t kv_head);

/* The part [*from, *to] of [first, last] that a row sees; *to < *from when it sees none of it. */
static inline void kvg_row_span(const struct kvg_row_plan *row, int64_t first, int64_t last, int64_t *from,
                                int64_t *to)
{
    *from = row->first > first ? row->first : first;
    *to = row->last < last ? row->last : last;
}

/* The smallest range [*low, *high) of rows of the group that holds every row which sees a key of first ..
 * last; *high = 0 when no row does. */
void kvg_rows_that_see(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t last,
                       int64_t *low, int64_t *high);

/* Weight of the sink of a row relative to a logit `max`, both in units of log2. 0 where it is lost in double.
 * It stays finite: sinks beyond 1000 above `max` weigh as much as one at 1000. */
double kvg_sink_weight(const struct kvg_row_plan *row, double max);

/* Last key of the block of `token`, at most `last`. Blocks begin at multiples of KVG_BLOCK_TOKENS, so they do
 * not depend on the grouping of rows. */
static inline int64_t kvg_block_end(int64_t token, int64_t last)
{
    int64_t end = token - token % KVG_BLOCK_TOKENS + KVG_BLOCK_TOKENS - 1;
    return end < last ? end : last;
}

/* A unit of work: fills the group's records of one piece, [g->rows][record_doubles]. */
typedef void (*kvg_piece_fn)(const struct kvg_rows *rows, const struct kvg_group *g, int64_t piece,
                             struct kvg_scratch *s, double *record, void *context);
/* Merges the records of one row, which are `stride` doubles apart, one per piece. It may overwrite them. */
typedef void (*kvg_merge_fn)(const struct kvg_rows *rows, const struct kvg_row_plan *row, double *records,
                             int64_t pieces, int64_t stride, void *context);
/* Runs all groups, in waves, so that the records fit a fixed amount of memory. Returns 0, or -1 when out of
 * memory. */
int kvg_rows_run(struct kvg_rows *rows, int64_t span, int with_spread, int64_t record_doubles,
                 kvg_piece_fn piece, kvg_merge_fn merge, void *context);

/* ---------------------------------------------------------------- exact reference, attention_exact.c */

enum { KVG_EXACT_PIECE = 4096 }; /* keys of a piece */

/* Results of the exact reference for each row; arrays may be NULL. */
struct kvg_exact_result {
    float *out, *lse;  /* as kvg_ref_attention_f32 */
    double *max, *sum; /* [n_rows] largest logit of a key in units of log2, and the row sum relative to it */
    double *sunk;      /* [n_rows] as in struct kvg_ref_terms */
    double *o;         /* [n_rows, dim padded] the output before rounding; padding untouched */
};
/* Record of a row in a piece: its largest logit, the sum of its weights relative to that logit, and, from
 * KVG_EXACT_PV on, the weighted sum of the values. */
enum { KVG_EXACT_MAX = 0, KVG_EXACT_SUM = 1, KVG_EXACT_PV = 2 };
/* Fills the records, `stride` doubles apart, of the piece first .. last. The logits are in the scratch; the
 * weights are left there. */
void kvg_exact_piece(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t last,
                     struct kvg_scratch *s, double *record, int64_t stride);
/* The result of one row from its records, which it overwrites. */
void kvg_exact_merge(const struct kvg_rows *rows, const struct kvg_row_plan *row, double *records,
                     int64_t pieces, int64_t stride, const struct kvg_exact_result *result);
/* The keys of a piece that lie within the visible keys of the group. */
static inline void kvg_piece_span(const struct kvg_rows *rows, const struct kvg_group *g, int64_t piece,
                                  int64_t *first, int64_t *last)
{
    const int64_t start = g->piece_start + piece * rows->piece_tokens, end = start + rows->piece_tokens - 1;
    *first = start > g->first ? start : g->first;
    *last = end < g->last ? end : g->last;
}

#pragma GCC visibility pop

#endif
