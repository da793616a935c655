/* SPDX-License-Identifier: Apache-2.0
 *
 * permute.h: the same attention in another order. Pages lie elsewhere, heads carry other numbers, sequences
 * stand in another order: the answer is the old one, rearranged. No reference is needed to see that, so not
 * even a last bit can hide behind a bound.
 *
 *   pages      page number n becomes num_blocks - 1 - n, free pages too
 *   heads      KV head h becomes h + 1, the last becomes 0, with its scales and its query heads; and within a
 *              group every query head moves on by one likewise
 *   sequences  the batch is taken from back to front
 */
#ifndef KVG_HARNESS_PERMUTE_H
#define KVG_HARNESS_PERMUTE_H

#include "prepared.h"

/* A call's inputs, rearranged, and where the rows of its output went. Owned, freed by kvg_permuted_free. */
struct kvg_permuted {
    int32_t *block_table;     /* [batch, block_table_stride] */
    int32_t *seq_lens;        /* [batch] */
    int32_t *cu_q_lens;       /* [batch + 1] */
    void *q;                  /* as p->q, or p->q8 on path fp8 */
    float *q_scale, *k_scale; /* as in p: [kv_heads] or [1] */
    float *v_scale;
    void *k_cache, *v_cache; /* cache_elements each */
    int64_t *row;            /* [total_q]: the row of the output that holds row i of the old one */
    int64_t *head;           /* [q_heads]: likewise the head */
};

/* 0; 1 when the case has nothing that could be rearranged so (one sequence, one head, one page); -1 when out
 * of memory. p is whole: no frame, no part. After 1 and -1 there is nothing to free. */
int kvg_permuted_make(const struct kvg_prepared *p, enum kvg_rearrangement which, struct kvg_permuted *out);
void kvg_permuted_free(struct kvg_permuted *m);

/* Rows of `bytes` bytes per (row, head) of an output [total_q, q_heads], back in their old order. */
void kvg_permuted_restore(const struct kvg_prepared *p, const struct kvg_permuted *m, const void *permuted,
                          int64_t bytes, void *restored);

#endif
