/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_shares.h: which part of an output comes from which keys.
 *
 * Keys fall into classes by where they lie: in which slot of a page, in which split, in the last page. The
 * share of a class is sum p_j v_j over its keys, with p the exact softmax weights over all keys of the row
 * and v with its scale; the shares of a partition add up to the output. A kernel that gets one class wrong
 * errs in proportion to its share.
 */
#ifndef KVG_REFERENCE_ATTENTION_SHARES_H
#define KVG_REFERENCE_ATTENTION_SHARES_H

#include "attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Key t belongs to class (t - origin) / size % classes; `ends` instead: to class 0 in the cell of `size` keys
 * that holds the row's first visible key, to class 1 in that of its last (to both, where they are one). */
struct kvg_ref_partition {
    int64_t size, classes;  /* >= 1; ends: classes = 2 */
    int from_first_visible; /* origin: the row's first visible key instead of key 0 */
    int ends;
};

/* lse [n_rows]: of the same rows, natural, exact. shares [n_rows, sum of classes, head_dim], partition after
 * partition; zeros where a row sees no key. Error: FP32 weights, sums in double, and that of lse. 0, or -1 on
 * out of memory. */
int kvg_ref_attention_shares(const struct kvg_ref_attention *a, const struct kvg_ref_partition *partitions,
                             int64_t n_partitions, const struct kvg_ref_row *rows, int64_t n_rows,
                             const float *lse, float *shares);

#ifdef __cplusplus
}
#endif

#endif
