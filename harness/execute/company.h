/* SPDX-License-Identifier: Apache-2.0
 *
 * company.h: do the bits of a sequence depend on its batch, and those of a query row on the rows beside it?
 *
 *   batch   A sequence alone (batch 1, the same pages), and among others that are shorter or longer and have
 *           another number of query rows, must give the bits that it has in the case, if the kernel declares
 *           KVG_MOVE_COMPANY.
 *   chunks  The query rows of a sequence in two calls must give the bits that they have in one, if the kernel
 *           declares KVG_MOVE_CHUNKS. The first call ends where the second begins, as in chunked prefill.
 *
 * A declared kind is compared bit by bit, whatever arithmetic the kernel declares for the other call.
 * Otherwise the output must be right by the bounds of the case, if the kernel declares the same arithmetic
 * for the other call. A call that the kernel does not support is left out.
 */
#ifndef KVG_HARNESS_EXECUTE_COMPANY_H
#define KVG_HARNESS_EXECUTE_COMPANY_H

#include "execution.h"
#include "harness/verify/expectation.h"

/* Runs at most three sequences of the case, twice for each kernel, phase, path and dtype. The output buffers
 * no longer hold the output of the case after it. 0, or -1 with the verdict. */
int kvg_attention_company(struct kvg_execution *x, const struct kvg_attention_args *args,
                          const struct kvg_expectation *e);

#endif
