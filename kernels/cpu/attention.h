/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.h: runs a call of CPU attention. What a kernel supports, declares and needs as workspace is in
 * attention_plan.h.
 */
#ifndef KVG_KERNELS_CPU_ATTENTION_H
#define KVG_KERNELS_CPU_ATTENTION_H

#include "attention_ops.h"

/* The `attention` entry point of a kernel that is made of these micro-kernels. KVG_OK; or KVG_EINVAL where
 * the workspace is missing or too small, or where a length contradicts the problem. */
int kvg_attention_run(const struct kvg_attention_ops *ops, const struct kvg_attention_args *args);

#endif
