/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_shares.h: which part of an output comes from which keys.
 *
 * Keys are put into classes by their position: the slot of the page, the split, the last page. The share of a
 * class is the sum of p_j v_j over its keys. p are the exact softmax weights over all keys of the row; v
 * includes its scale. The shares of a partition (but one of ends) add up to the output. A kernel that gets
 * one class wrong has an error in proportion to the share of that class.
 */
#ifndef KVG_REFERENCE_ATTENTION_SHARES_H
#define KVG_REFERENCE_ATTENTION_SHARES_H

#include "attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How keys are put into classes. Cells of `size` keys are counted from the origin.
 *
 *   ends = 0   Key t belongs to class (t - origin) / size % classes.
 *   ends = 1   Class 0 is the cell with the row's first visible key, class 1 the cell with its last. Other
 *              keys belong to no class. A cell that holds both keys counts in both classes. */
struct kvg_ref_partition {
    int64_t size, classes;  /* >= 1; with ends, classes is 2 */
    int from_first_visible; /* origin: 1 = the row's first visible key, 0 = key 0 */
    int ends;
};

/* Reads lse [n_rows], the exact log-sum-exp (natural logarithm) of the same rows. Writes shares [n_rows, sum
 * of classes, head_dim], one partition after the other; zeros where a row sees no key. The error is that of
 * FP32 weights and of lse; sums are in double. Returns 0, or -1 when out of memory. */
int kvg_ref_attention_shares(const struct kvg_ref_attention *a, const struct kvg_ref_partition *partitions,
                             int64_t n_partitions, const struct kvg_ref_row *rows, int64_t n_rows,
                             const float *lse, float *shares);

#ifdef __cplusplus
}
#endif

#endif
