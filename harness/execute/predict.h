/* SPDX-License-Identifier: Apache-2.0
 *
 * predict.h: predicts the errors of attention with a model of a tensor core.
 */
#ifndef KVG_HARNESS_EXECUTE_PREDICT_H
#define KVG_HARNESS_EXECUTE_PREDICT_H

#include "execution.h"

/* Fills the error columns and gains of the row. The row is passed and judges no kernel. */
void kvg_execute_prediction(struct kvg_execution *x);
/* Takes the place of a kernel in such a case. It has a name and a declared arithmetic, that of
 * FlashAttention-3's fp8 path with FP32 sums, but no code. */
extern const struct kvg_kernel kvg_prediction;

#endif
