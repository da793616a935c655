/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_row.h: one query row under way in the attention kernel of the mutants, as its parts share it:
 * attention_reads.c says what a row reads, attention.c computes it, attention_call.c goes through the rows of
 * a call.
 */
#ifndef KVG_TESTS_MUTANT_ATTENTION_ROW_H
#define KVG_TESTS_MUTANT_ATTENTION_ROW_H

#include "mutant.h"

/* Calls that a mutant with a memory can keep apart. */
enum { REMEMBERED = 512 };

/* One query row under way. */
struct row {
    const struct mutant *m;
    const struct kvg_attention_args *a;
    const struct kvg_problem *p;
    int64_t b, i, q_len, n; /* sequence, query, its queries and keys */
    int64_t head, g;        /* query head, KV head */
    int64_t first, end;     /* visible keys */
    float q[MUTANT_MAX_DIM];
    float logit_scale, v_scale, sum_scale;
    const float *table[3]; /* [1], [2]: value of each code of K and V */
    int moves;             /* of the running maximum */
    float lse_extra;       /* natural logarithm, added to the LSE by some faults */
};

/* The result of one split, as it lies in the workspace. */
struct split {
    float max, sum, lse;
    float acc[MUTANT_MAX_DIM];
};

/* Hash of the shape of a call. */
static inline uint64_t mutant_shape(const struct kvg_attention_args *a)
{
    return mutant_hash(a->problem, (int64_t)sizeof *a->problem);
}

/* ---- attention_reads.c ---- */

/* Scale of tensor 0 (Q), 1 (K) or 2 (V) for the row's head. */
float row_scale(const struct row *r, int tensor);
float row_softmax_scale(const struct row *r);
/* The lengths of a call as a mutant with a memory takes them: those that the first call of this shape saw in
 * this buffer. */
const int32_t *remembered_lengths(const struct kvg_attention_args *a);
/* Value of a code of tensor 1 (K) or 2 (V). */
float row_decoded(const struct mutant *m, enum kvg_dtype dtype, uint8_t code, int tensor);
/* K (tensor 1) or V (2) of a token and the row's KV head: head_dim floats. */
void row_load(const struct row *r, int tensor, int64_t token, float *to);
/* Sets q, g, and first and end. */
void row_load_query(struct row *r);
void row_find_heads(struct row *r);
void row_find_keys(struct row *r);

/* ---- attention.c ---- */

/* Output and LSE of the row, whose m, a, p, b, i, q_len, n, head and table are set. */
void row_attend(struct row *r);

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
