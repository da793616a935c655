/* SPDX-License-Identifier: Apache-2.0
 *
 * reorder.h: the same work in another order.
 */
#ifndef KVG_HARNESS_EXECUTE_REORDER_H
#define KVG_HARNESS_EXECUTE_REORDER_H

#include "execution.h"
#include "harness/verify/verify.h"

/* Runs the kernel with pages, heads, sequences and threads in another order: each kind twice for each kernel,
 * phase, path and dtype, where the case has something to rearrange and its cache is not too large. For a
 * kernel that followed changed inputs. Leaves other outputs in place than the verified ones. -1 with the
 * verdict. */
int kvg_attention_reorder(struct kvg_execution *x, const struct kvg_attention_args *args,
                          const struct kvg_expectation *e);

#endif
