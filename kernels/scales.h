/* SPDX-License-Identifier: Apache-2.0
 *
 * scales.h: the usual scales of a call, for those who make calls.
 */
#ifndef KVG_KERNELS_SCALES_H
#define KVG_KERNELS_SCALES_H

#include "kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One scale for each tensor (stride_head 0) or for each KV head (1). A pointer may be NULL. */
static inline struct kvg_scales kvg_scales_of(const float *q, const float *k, const float *v,
                                              int64_t stride_head)
{
    /* Only `store` may write scales, and only those of a scheme in which the kernel makes them. */
    const struct kvg_scales scales = {{(float *)(uintptr_t)q, 0, 0, 0, stride_head},
                                      {(float *)(uintptr_t)k, 0, 0, 0, stride_head},
                                      {(float *)(uintptr_t)v, 0, 0, 0, stride_head}};
    return scales;
}

#ifdef __cplusplus
}
#endif

#endif
