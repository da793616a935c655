/* SPDX-License-Identifier: Apache-2.0
 *
 * decode_sm90.h: the sm_90 decode kernels for tests and benchmarks, which may force the planner's choices.
 * The kernels themselves are reached through cuda.h.
 */
#ifndef KVG_CUDA_DECODE_SM90_H
#define KVG_CUDA_DECODE_SM90_H

#include "../kernel.h"
#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* attention() with forced choices (NULL: the planner's). probe = 1 loads every page and does no
 * arithmetic; `out` is not written. That is the roof of this kernel's way of reading. The workspace must
 * be as large as the forced plan needs. Returns KVG_OK or a KVG_E* error. */
int kvg_sm90_attention(const struct kvg_attention_args *args, const struct kvg_sm90_tuning *tuning,
                       int probe);
/* The plan for the current device. Returns 0, or -1 with the reason in why[0..size). */
int kvg_sm90_plan_here(const struct kvg_problem *p, const struct kvg_sm90_tuning *tuning,
                       struct kvg_sm90_plan *plan, char *why, size_t size);

#ifdef __cplusplus
}
#endif
#endif
