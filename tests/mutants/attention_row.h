/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_row.h: one query row during its computation, shared by the parts of the mutants' attention
 * kernel. attention_reads.c reads what a row needs, attention.c computes the row, attention_call.c goes
 * through the rows of a call.
 */
#ifndef KVG_TESTS_MUTANT_ATTENTION_ROW_H
#define KVG_TESTS_MUTANT_ATTENTION_ROW_H

#include "mutant.h"

/* Number of calls that a mutant with a memory can keep apart. */
enum { REMEMBERED = 512 };

/* The state of one query row. */
struct row {
    const struct mutant *m;
    const struct kvg_attention_args *a;
    const struct kvg_problem *p;
    int64_t b, i, q_len, n; /* sequence, query token, query tokens and keys of the sequence */
    int64_t head, g;        /* query head, KV head */
    int64_t first, end;     /* visible keys: [first, end) */
    float q[MUTANT_MAX_DIM];
    float logit_scale, v_scale, sum_scale;
    const float *table[3]; /* [1], [2]: the value of each code of K and of V */
    int moves;             /* how often the running maximum moved */
    float lse_extra;       /* natural logarithm; some faults add it to the LSE */
};

/* The result of one split, as stored in the workspace. */
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
/* The lengths of a call for a mutant with a memory: those that the first call of this shape saw in this
 * buffer. */
const int32_t *remembered_lengths(const struct kvg_attention_args *a);
/* Value of a code of tensor 1 (K) or 2 (V). */
float row_decoded(const struct mutant *m, enum kvg_dtype dtype, uint8_t code, int tensor);
/* Loads K (tensor 1) or V (2) of a token and the row's KV head: head_dim floats. */
void row_load(const struct row *r, int tensor, int64_t token, float *to);
/* Number of the row among all query rows of the call. */
int64_t row_token(const struct row *r);
/* Set q, g, and first and end of the row. */
void row_load_query(struct row *r);
void row_find_heads(struct row *r);
void row_find_keys(struct row *r);

/* Number of pages that the sequence has in common with the first one, from its first page on. 0 for the first. */
int64_t row_common_pages(const struct row *r);

/* ---- attention.c ---- */

/* Computes and writes output and LSE of the row. Its m, a, p, b, i, q_len, n, head and table must be set. */
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
