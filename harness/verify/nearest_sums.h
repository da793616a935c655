/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_nearest.h: what bounds.h asks of a row's inputs where a kernel declares accumulators that are
 * narrower than FP32 and round to nearest: the size of its Q and of its scales, and how many keys are alike.
 */
#ifndef KVG_HARNESS_VERIFY_NEAREST_SUMS_H
#define KVG_HARNESS_VERIFY_NEAREST_SUMS_H

#include "reference/attention.h"
#include "bounds.h"

/* Rows in any order; [rows] each. */
struct kvg_nearest_sums {
    double *q_size, *v_size, *repeats; /* as in struct kvg_bound_row */
};

/* Zeros, and no memory, when the declaration has no such accumulator. 0, or -1 when out of memory. */
int kvg_nearest_sums_make(const struct kvg_ref_attention *a, const struct kvg_arithmetic *declared,
                          const struct kvg_bound *bound, const struct kvg_ref_row *rows, int64_t count,
                          struct kvg_nearest_sums *out);
void kvg_nearest_sums_free(struct kvg_nearest_sums *n);

#endif
