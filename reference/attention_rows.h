/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_rows.h: what the exact, the emulating and the bounding reference share. Internal to reference/.
 *
 * Rows of one (sequence, KV head) form groups of up to KVG_ROWS_MAX, so that every key and value is decoded
 * once per group. A group's context is cut into pieces; each (group, piece) is one unit of work and leaves a
 * record of doubles per row. Records are then merged per row in the order of the pieces. Pieces begin at
 * fixed positions of the sequence, and a row's record depends on that row alone: so the result is the same
 * whatever the grouping and whatever the number of threads.
 */
#ifndef KVG_REFERENCE_ATTENTION_ROWS_H
#define KVG_REFERENCE_ATTENTION_ROWS_H

#include "attention.h"
#include "attention_tiles.h"

/* Rows of a group. Keys are decoded KVG_BLOCK_TOKENS at a time, and rows of the scratch padded with zeros to
 * a multiple of KVG_DIM_STEP. */
enum { KVG_ROWS_MAX = 24 };

/* One row with everything that does not change from key to key. */
struct kvg_row_plan {
    int64_t index;       /* position in the caller's arrays */
    int64_t first, last; /* visible keys; last < first: none */
    int64_t q_index;     /* element of the row's first Q value */
    int32_t q_head;
    double scale; /* softmax_scale * q_scale, times k_scale unless K is scaled before rounding */
};

struct kvg_group {
    int64_t seq, kv_head;
    int64_t row, rows;     /* slice of the sorted rows */
    int64_t first, last;   /* union of the visible keys */
    int64_t piece, pieces; /* number of the first piece that holds a visible key, and how many do */
    int64_t piece_start;   /* key where piece 0 begins */
    int64_t record;        /* offset of the group's records, in doubles */
};

/* How operands are rounded on their way in; all F32 and 0 for the exact reference. */
struct kvg_operands {
    enum kvg_ref_format q, k, v;
    int k_scaled_first, v_scaled_first;
};

struct kvg_rows {
    const struct kvg_ref_attention *a;
    struct kvg_operands operands;
    int64_t dim;                /* head_dim padded */
    struct kvg_row_plan *plans; /* [n_rows], sorted by sequence, KV head, first visible key, position */
    int64_t n_rows;
    struct kvg_group *groups;
    int64_t n_groups;
    int64_t piece_tokens; /* keys of a piece */
    int64_t rows_max;     /* rows of a group at most */
    int64_t extra_bytes;  /* that a unit of work wants in the scratch; 0 unless set after the plan */
};

/* Scratch of one thread. */
struct kvg_scratch {
    double *q;      /* [rows_max][dim] rounded, unscaled */
    float *q_size;  /* [rows_max][dim] |q|, or |q|' of struct kvg_ref_floors */
    float *codes;   /* [KVG_BLOCK_TOKENS][dim] K as it was loaded */
    float *k;       /* [dim][KVG_BLOCK_TOKENS] */
    float *k_size;  /* [dim][KVG_BLOCK_TOKENS] |k| or |k|' */
    float *v;       /* [KVG_BLOCK_TOKENS][dim] */
    float *row;     /* [dim] */
    double *wide;   /* [KVG_BLOCK_TOKENS][dim] for what a unit of work makes of a block */
    double *logit;  /* [rows_max][span] in units of log2 */
    double *spread; /* [rows_max][span] delta of each logit; only when asked for */
    float *p;       /* [rows_max][span] */
    void *extra;    /* [extra_bytes], aligned to 64 bytes */
    int64_t span;   /* keys that logit and p have room for */
};

/* Lists and sorts the rows, forms the groups. 0, or -1 on out of memory (nothing to free then).
 * align_to_first: pieces are counted from the first visible key, so a group holds rows that share it. */
int kvg_rows_plan(struct kvg_rows *rows, const struct kvg_ref_attention *a,
                  const struct kvg_operands *operands, const struct kvg_ref_row *list, int64_t n_rows,
                  int64_t piece_tokens, int align_to_first, int64_t rows_max);
void kvg_rows_free(struct kvg_rows *rows);

int kvg_scratch_make(struct kvg_scratch *s, const struct kvg_rows *rows, int64_t span, int with_spread);
void kvg_scratch_free(struct kvg_scratch *s);

/* The steps of a unit of work. first .. last (inclusive) is a span of keys; logits go to column
 * token - first, for the keys that the row sees. load_q before logits. */
void kvg_load_q(const struct kvg_rows *rows, const struct kvg_group *g, struct kvg_scratch *s);
void kvg_logits(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t last,
                struct kvg_scratch *s);
/* As kvg_logits, and delta of each logit into s->spread: summed in FP32, and too large by up to
 * 2 (dim + 8) 2^-24 of itself, so that no rounding makes it too small. */
void kvg_logits_and_spread(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first,
                           int64_t last, const struct kvg_ref_bound_model *model, struct kvg_scratch *s);
/* The softmax weights of row r over keys from .. to of a span that begins at `first`: the largest logit goes
 * to *max if it exceeds what is there, p = 2^(logit - max + offset) to s->p. */
void kvg_weights(struct kvg_scratch *s, int64_t r, int64_t from, int64_t to, int64_t first, int offset,
                 double *max);
/* sum[r * stride + d] += p[r][token - first] * v[token][d] over the keys of the span that row r sees; a value
 * that a row does not see never touches its sum, NaN included. */
void kvg_add_pv(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t last,
                struct kvg_scratch *s, double *sum, int64_t stride);
/* V of up to KVG_BLOCK_TOKENS keys, as codes or scaled and rounded as the operands say, into s->v. */
void kvg_load_v(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t count,
                struct kvg_scratch *s);
/* The factor that V still lacks after kvg_load_v. */
double kvg_v_factor(const struct kvg_rows *rows, int64_t kv_head);

/* The part of [first, last] that a row sees; *to < *from when it sees nothing of it. */
static inline void kvg_row_span(const struct kvg_row_plan *row, int64_t first, int64_t last, int64_t *from,
                                int64_t *to)
{
    *from = row->first > first ? row->first : first;
    *to = row->last < last ? row->last : last;
}

/* The rows [*low, *high) of a group outside which none sees a key of first .. last; *high = 0: none at all.
 */
void kvg_rows_that_see(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t last,
                       int64_t *low, int64_t *high);

/* Last key of the block that `token` lies in, or `last`. Blocks begin at multiples of KVG_BLOCK_TOKENS, where
 * no grouping of rows can move them. */
static inline int64_t kvg_block_end(int64_t token, int64_t last)
{
    int64_t end = token - token % KVG_BLOCK_TOKENS + KVG_BLOCK_TOKENS - 1;
    return end < last ? end : last;
}

/* A unit of work: fills the group's records of one piece, [g->rows][record_doubles]. */
typedef void (*kvg_piece_fn)(const struct kvg_rows *rows, const struct kvg_group *g, int64_t piece,
                             struct kvg_scratch *s, double *record, void *context);
/* All records of one row, piece by piece `stride` doubles apart; merging may use them up. */
typedef void (*kvg_merge_fn)(const struct kvg_rows *rows, const struct kvg_row_plan *row, double *records,
                             int64_t pieces, int64_t stride, void *context);
/* Runs all groups in waves that keep the records within a fixed amount of memory. 0, or -1 out of memory. */
int kvg_rows_run(struct kvg_rows *rows, int64_t span, int with_spread, int64_t record_doubles,
                 kvg_piece_fn piece, kvg_merge_fn merge, void *context);

/* ---------------------------------------------------------------- exact reference, attention_exact.c */

enum { KVG_EXACT_PIECE = 4096 }; /* keys of a piece */

/* What the exact reference knows of each row; arrays may be NULL. */
struct kvg_exact_result {
    float *out, *lse;  /* as kvg_ref_attention_f32 */
    double *max, *sum; /* [n_rows] largest logit in units of log2, and the row sum relative to it */
    double *o;         /* [n_rows, dim padded] the output before rounding; padding untouched */
};
/* Record of a row in a piece: its largest logit, the sum of its weights relative to that, and from
 * KVG_EXACT_PV on the weighted sum of the values. */
enum { KVG_EXACT_MAX = 0, KVG_EXACT_SUM = 1, KVG_EXACT_PV = 2 };
/* Fills the records, `stride` doubles apart, of the piece first .. last whose logits are in the scratch,
 * where the weights are left. */
void kvg_exact_piece(const struct kvg_rows *rows, const struct kvg_group *g, int64_t first, int64_t last,
                     struct kvg_scratch *s, double *record, int64_t stride);
/* The result of one row from its records, which are used up. */
void kvg_exact_merge(const struct kvg_rows *rows, const struct kvg_row_plan *row, double *records,
                     int64_t pieces, int64_t stride, const struct kvg_exact_result *result);
/* The keys of a piece that some row of the group may see. */
static inline void kvg_piece_span(const struct kvg_rows *rows, const struct kvg_group *g, int64_t piece,
                                  int64_t *first, int64_t *last)
{
    const int64_t start = g->piece_start + piece * rows->piece_tokens, end = start + rows->piece_tokens - 1;
    *first = start > g->first ? start : g->first;
    *last = end < g->last ? end : g->last;
}

#endif
