/* SPDX-License-Identifier: Apache-2.0
 *
 * call.h: calls an attention kernel once.
 */
#ifndef KVG_HARNESS_EXECUTE_CALL_H
#define KVG_HARNESS_EXECUTE_CALL_H

#include "execution.h"

/* Bytes of out and lse. */
int64_t kvg_out_bytes(const struct kvg_prepared *p);
int64_t kvg_lse_bytes(const struct kvg_prepared *p);

/* Poisons outputs and workspace, calls prepare (if the kernel has it) and attention, and checks the memory.
 * args->lse may be NULL. -1 with the verdict. */
int kvg_call_attention(struct kvg_execution *x, const struct kvg_attention_args *args);
/* The same without the check of the memory. */
int kvg_call_attention_unchecked(struct kvg_execution *x, const struct kvg_attention_args *args);

#endif
