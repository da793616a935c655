/* SPDX-License-Identifier: Apache-2.0
 *
 * permute.h: the inputs of a case in another order: of pages, of heads or of sequences. The right output is
 * the output of the case in the same new order. This needs no reference and no bound, so the comparison can
 * be bit by bit.
 *
 *   pages      page n becomes page num_blocks - 1 - n, free pages included
 *   heads      KV head h becomes h + 1, and the last becomes 0, with their scales and query heads. Within
 *              each group the query heads are rotated by one in the same way
 *   sequences  the order of the batch is reversed
 */
#ifndef KVG_HARNESS_PERMUTE_H
#define KVG_HARNESS_PERMUTE_H

#include "prepared.h"

/* The rearranged inputs of a call, and the new places of the rows of its output. Owned; freed by
 * kvg_permuted_free. */
struct kvg_permuted {
    int32_t *block_table;     /* [batch, block_table_stride] */
    int32_t *seq_lens;        /* [batch] */
    int32_t *cu_q_lens;       /* [batch + 1] */
    float *sinks;             /* [q_heads], or NULL without sinks */
    void *q;                  /* as p->q, or p->q8 on path fp8 */
    float *q_scale, *k_scale; /* as in p: [kv_heads] or [1] */
    float *v_scale;
    void *k_cache, *v_cache; /* [cache_elements] each */
    int64_t *row;            /* [total_q]: new number of each query row */
    int64_t *head;           /* [q_heads]: new number of each query head */
    int32_t *prefix_lens;    /* [batch]; zeros without the prefix mask */
};

/* Makes the inputs in another order. 0; 1 if the case has only one page, head or sequence, so that nothing
 * would change; -1 when out of memory. After 1 and -1 there is nothing to free. p must be a whole case,
 * neither a frame nor a part. */
int kvg_permuted_make(const struct kvg_prepared *p, enum kvg_rearrangement which, struct kvg_permuted *out);
void kvg_permuted_free(struct kvg_permuted *m);

/* Copies an output [total_q, q_heads], with `bytes` bytes per (row, head), back into the order of p. */
void kvg_permuted_restore(const struct kvg_prepared *p, const struct kvg_permuted *m, const void *permuted,
                          int64_t bytes, void *restored);

#endif
