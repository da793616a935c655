/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.h: executes a case of attention.
 */
#ifndef KVG_HARNESS_EXECUTE_ATTENTION_H
#define KVG_HARNESS_EXECUTE_ATTENTION_H

#include "execution.h"

/* Verifies and times the case, or runs it once for a profiler. The verdict is in the row. */
void kvg_execute_attention(struct kvg_execution *x);

#endif
