/* SPDX-License-Identifier: Apache-2.0
 *
 * decode_sm90.h: the sm_90 decode kernels as tests and benchmarks call them, with the planner's choices
 * forced. The kernels themselves are reached through cuda.h.
 */
#ifndef KVG_CUDA_DECODE_SM90_H
#define KVG_CUDA_DECODE_SM90_H

#include "../kernel.h"
#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* attention() with forced choices. probe = 1 brings every page in and does no arithmetic (out stays
 * unwritten): the roof of this kernel's way of reading. The workspace must hold what the forced plan asks
 * for. */
int kvg_sm90_attention(const struct kvg_attention_args *args, const struct kvg_sm90_tuning *tuning,
                       int probe);
/* The plan for the current device. */
int kvg_sm90_plan_here(const struct kvg_problem *p, const struct kvg_sm90_tuning *tuning,
                       struct kvg_sm90_plan *plan, char *why, size_t size);

#ifdef __cplusplus
}
#endif
#endif
