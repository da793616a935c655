/* SPDX-License-Identifier: Apache-2.0
 *
 * nearest_sums.h: what the bounds need of a row's inputs where a kernel declares accumulators that are
 * narrower than FP32 and round to nearest: the size of Q and of the scales, and how many keys are equal.
 */
#ifndef KVG_HARNESS_VERIFY_NEAREST_SUMS_H
#define KVG_HARNESS_VERIFY_NEAREST_SUMS_H

#include "reference/attention.h"
#include "bounds.h"

/* One number for each row, in the order of the rows. */
struct kvg_nearest_sums {
    double *q_size, *v_size, *repeats; /* as in struct kvg_bound_row */
};

/* NULL pointers where the declaration has no such accumulator. 0, or -1 when out of memory. */
int kvg_nearest_sums_make(const struct kvg_ref_attention *a, const struct kvg_arithmetic *declared,
                          const struct kvg_bound *bound, const struct kvg_ref_row *rows, int64_t count,
                          struct kvg_nearest_sums *out);
void kvg_nearest_sums_free(struct kvg_nearest_sums *n);

#endif
