/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_nearest.h: what bounds.h asks of a row's inputs where a kernel declares accumulators that are
 * narrower than FP32 and round to nearest: the size of its Q and of its scales, and how many keys are alike.
 */
#ifndef KVG_HARNESS_VERIFY_NEAREST_H
#define KVG_HARNESS_VERIFY_NEAREST_H

#include "reference/attention.h"
#include "bounds.h"

/* Rows in any order; [rows] each. */
struct kvg_nearest {
    double *q_size, *v_size, *repeats; /* as in struct kvg_bound_row */
};

/* Zeros, and no memory, when the declaration has no such accumulator. 0, or -1 when out of memory. */
int kvg_nearest_make(const struct kvg_ref_attention *a, const struct kvg_arithmetic *declared,
                     const struct kvg_bound *bound, const struct kvg_ref_row *rows, int64_t count,
                     struct kvg_nearest *out);
void kvg_nearest_free(struct kvg_nearest *n);

/* How often the most frequent K of a sequence's head occurs, bit by bit. -1 when out of memory. */
int64_t kvg_nearest_repeats(const struct kvg_ref_attention *a, int64_t seq, int64_t kv_head);

#endif
