/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.h: is the kernel right, and what did the format cost?
 *
 * The expectation of a case is computed once, from the prepared tensors and the declared arithmetic of the
 * kernel. Then any number of outputs (before timing, after timing, second run) is compared with it. bounds.h
 * derives the allowed errors; checks.def lists the checks.
 */
#ifndef KVG_HARNESS_VERIFY_VERIFY_H
#define KVG_HARNESS_VERIFY_VERIFY_H

#include "harness/prepare/prepared.h"

struct kvg_expectation; /* expectation.h: sampled rows, exact and emulating outputs, allowed errors */

/* rows_limit caps the (query, head) rows that are compared with a reference; 0 = a limit chosen for about a
 * second of work. sample.h says which rows are taken. 0, or -1 with the error. */
int kvg_expectation_make(const struct kvg_prepared *p, const struct kvg_kernel *kernel, int64_t rows_limit,
                         struct kvg_expectation **out, struct kvg_error *error);
/* Adds the exact reference on the unquantised tensors. No check needs it; without it a comparison leaves
 * quant_rel_l2 and total_rel_l2 missing, except for a bf16 cache read with a bf16 Q, where the tensors are
 * the unquantised ones. 0, or -1 with the error; e remains valid either way. */
int kvg_expectation_add_unquantised(struct kvg_expectation *e, struct kvg_error *error);
void kvg_expectation_free(struct kvg_expectation *e);

/* out: host copy of the kernel's output [total_q, q_heads, head_dim] bf16, contiguous; lse [total_q, q_heads]
 * or NULL. Fills the error columns, n_checked, n_total, status and reason of the row (passed, incorrect or
 * mistrusted). Returns 0, or -1 when the comparison itself could not be made. */
int kvg_compare_attention(const struct kvg_expectation *e, const uint16_t *out, const float *lse,
                          struct kvg_row *row, struct kvg_error *error);

/* Compares the caches after a store into poisoned caches with p->k_cache and p->v_cache, bit by bit. Every
 * slot is compared: those that no token owns must still hold the poison. */
int kvg_compare_store(const struct kvg_prepared *p, const void *k_cache, const void *v_cache,
                      struct kvg_row *row, struct kvg_error *error);
/* Fills status and reason as kvg_compare_store does where the device compared the caches, since the expected
 * ones lie there. first[K, V]: offset of the first byte that differs, -1 for none. codes[K, V]: the expected
 * and the stored element there. */
int kvg_report_store(const struct kvg_prepared *p, const int64_t first[2], uint8_t codes[2][2][4],
                     struct kvg_row *row, struct kvg_error *error);
/* Compares quantised Q with p->q8, bit by bit. */
int kvg_compare_quantize_q(const struct kvg_prepared *p, const uint8_t *q8, struct kvg_row *row,
                           struct kvg_error *error);

#endif
