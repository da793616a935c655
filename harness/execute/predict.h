/* SPDX-License-Identifier: Apache-2.0
 *
 * predict.h: attention on the model of a tensor core.
 */
#ifndef KVG_HARNESS_EXECUTE_PREDICT_H
#define KVG_HARNESS_EXECUTE_PREDICT_H

#include "execution.h"

/* Fills error columns and gains, and gives no verdict. */
void kvg_execute_prediction(struct kvg_execution *x);
/* Stands in for the kernel of such a case. It has a name and a declared arithmetic, that of
 * FlashAttention-3's fp8 path with FP32 sums, and no code. */
extern const struct kvg_kernel kvg_prediction;

#endif
