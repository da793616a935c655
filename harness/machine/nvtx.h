/* SPDX-License-Identifier: Apache-2.0
 *
 * nvtx.h: named ranges for ncu and nsys. Where the CUDA toolkit was absent at build time nothing happens.
 *
 * A range costs some microseconds when a profiler listens: it lies around a case, never inside a timed loop.
 */
#ifndef KVG_HARNESS_NVTX_H
#define KVG_HARNESS_NVTX_H

int kvg_nvtx_available(void); /* 1 if built with NVTX */
void kvg_nvtx_push(const char *name);
void kvg_nvtx_pop(void);

#endif
