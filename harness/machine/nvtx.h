/* SPDX-License-Identifier: Apache-2.0
 *
 * nvtx.h: named ranges for ncu and nsys. In a build without the CUDA toolkit the functions do nothing.
 *
 * Under a profiler a range costs some microseconds. So a range surrounds a case and is never inside a timed
 * loop.
 */
#ifndef KVG_HARNESS_NVTX_H
#define KVG_HARNESS_NVTX_H

int kvg_nvtx_available(void); /* 1 if built with NVTX */
void kvg_nvtx_push(const char *name);
void kvg_nvtx_pop(void);

#endif
