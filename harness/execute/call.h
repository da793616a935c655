/* SPDX-License-Identifier: Apache-2.0
 *
 * call.h: calls an attention kernel once.
 */
#ifndef KVG_HARNESS_EXECUTE_CALL_H
#define KVG_HARNESS_EXECUTE_CALL_H

#include "execution.h"

/* Bytes of out and lse as dense tensors, and of the buffers that the kernel writes them into. */
int64_t kvg_out_bytes(const struct kvg_prepared *p);
int64_t kvg_lse_bytes(const struct kvg_prepared *p);
int64_t kvg_out_buffer_bytes(const struct kvg_prepared *p);
int64_t kvg_lse_buffer_bytes(const struct kvg_prepared *p);
/* The first byte of these buffers. args->out and args->lse point to the first element, which may come later.
 * NULL if args->lse is NULL. */
void *kvg_out_buffer(const struct kvg_prepared *p, const struct kvg_attention_args *args);
void *kvg_lse_buffer(const struct kvg_prepared *p, const struct kvg_attention_args *args);
/* Fills both buffers with NaN. */
int kvg_poison_outputs(struct kvg_execution *x, const struct kvg_attention_args *args);
/* Hashes of both buffers. */
int kvg_hash_outputs(struct kvg_execution *x, const struct kvg_attention_args *args, uint64_t *out,
                     uint64_t *lse);

/* Poisons outputs and workspace, calls prepare (if the kernel has it) and attention, and checks the memory.
 * args->lse may be NULL. -1 with the verdict. */
int kvg_call_attention(struct kvg_execution *x, const struct kvg_attention_args *args);
/* Its parts: poisons outputs and workspace; then the calls alone, with the wait for what they queued. */
int kvg_call_prepare(struct kvg_execution *x, const struct kvg_attention_args *args);
int kvg_call_prepared(struct kvg_execution *x, const struct kvg_attention_args *args);
/* The same without the check of the memory. */
int kvg_call_attention_unchecked(struct kvg_execution *x, const struct kvg_attention_args *args);

#endif
