/* SPDX-License-Identifier: Apache-2.0
 *
 * reorder.h: runs a kernel on the same work in another order.
 */
#ifndef KVG_HARNESS_EXECUTE_REORDER_H
#define KVG_HARNESS_EXECUTE_REORDER_H

#include "execution.h"
#include "harness/verify/verify.h"

/* Runs the kernel with pages, heads and sequences in another order and with another number of threads. A
 * session runs each kind twice for each kernel, phase, path and dtype, on cases that have something to
 * rearrange and whose cache is not too large. Called after a run on changed inputs was right. The output
 * buffers no longer hold the verified output after it. -1 with the verdict. */
int kvg_attention_reorder(struct kvg_execution *x, const struct kvg_attention_args *args,
                          const struct kvg_expectation *e);

#endif
