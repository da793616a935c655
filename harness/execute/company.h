/* SPDX-License-Identifier: Apache-2.0
 *
 * company.h: do the bits of a sequence depend on its batch, and those of a query row on the rows beside it?
 *
 *   batch   A sequence alone (batch 1, the same pages) must give the bits that it has in the batch, if the kernel
 *           declares KVG_MOVE_COMPANY.
 *   chunks  The query rows of a sequence in two calls must give the bits that they have in one, if the kernel
 *           declares KVG_MOVE_CHUNKS. The first call ends where the second begins, as in chunked prefill.
 *
 * Without the declaration the output must be right by the bounds, where the kernel declares the same arithmetic
 * for the smaller problem.
 */
#ifndef KVG_HARNESS_EXECUTE_COMPANY_H
#define KVG_HARNESS_EXECUTE_COMPANY_H

#include "execution.h"
#include "harness/verify/expectation.h"

/* 0, or -1 with the verdict. */
int kvg_attention_company(struct kvg_execution *x, const struct kvg_attention_args *args,
                          const struct kvg_expectation *e);

#endif
