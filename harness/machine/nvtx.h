/* SPDX-License-Identifier: Apache-2.0
 *
 * nvtx.h: named ranges for ncu and nsys. In a build without the CUDA toolkit the functions do nothing.
 *
 * Under a profiler a range costs some microseconds. So a range surrounds a case and is never inside a timed
 * loop.
 */
#ifndef KVG_HARNESS_NVTX_H
#define KVG_HARNESS_NVTX_H

#include <stddef.h>

int kvg_nvtx_available(void); /* 1 if built with NVTX */
/* The name that a range gets: each character that has a meaning for ncu's --nvtx-include (/ [ ] @ *) is ':'. */
void kvg_nvtx_name(const char *text, char *name, size_t size);
/* Begins a range, which is named by kvg_nvtx_name. */
void kvg_nvtx_push(const char *text);
void kvg_nvtx_pop(void);
int kvg_nvtx_depth(void); /* ranges that have begun and not ended, with or without NVTX */

#endif
