/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize.h: the quantising of Q for a kernel of path fp8.
 */
#ifndef KVG_HARNESS_EXECUTE_QUANTIZE_H
#define KVG_HARNESS_EXECUTE_QUANTIZE_H

#include "execution.h"

/* Quantises Q with the store kernel that belongs to the case's kernel. Bit-exact, or the row is incorrect.
 * Timed apart (time_quantize_q). */
void kvg_execute_quantize_q(struct kvg_execution *x);

#endif
