/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize.h: checks and times the quantising of Q for a kernel of path fp8.
 */
#ifndef KVG_HARNESS_EXECUTE_QUANTIZE_H
#define KVG_HARNESS_EXECUTE_QUANTIZE_H

#include "execution.h"

/* Quantises Q with the kernel that belongs to the case's kernel. If a code is wrong, the row is incorrect.
 * The time has its own column, time_quantize_q. */
void kvg_execute_quantize_q(struct kvg_execution *x);

#endif
