/* SPDX-License-Identifier: Apache-2.0
 *
 * registry.h: all kernels of this process: the built-ins and those of loaded plug-ins.
 */
#ifndef KVG_KERNELS_REGISTRY_H
#define KVG_KERNELS_REGISTRY_H

#include "kernel.h"

int64_t kvg_registry_count(void);
/* 1 if this build has the CUDA kernels, whether or not the machine has a GPU. */
int kvg_registry_has_cuda(void);
const struct kvg_kernel *kvg_registry_get(int64_t i); /* in order of registration; NULL past the end */
const struct kvg_kernel *kvg_registry_find(const char *name); /* NULL if unknown */
/* Loads a plug-in. 0, or -1 with one sentence in why (no such file, no symbol, other ABI version, name
 * taken). */
int kvg_registry_load(const char *path, char *why, size_t size);
/* Adds kernels of the program itself, under the rules for plug-ins; `who` names them in the error. The
 * kernels must live until the process ends; the list is copied. */
int kvg_registry_add(const char *who, const struct kvg_kernel *const *list, int64_t count, char *why,
                     size_t size);
/* 1 if the kernel has the entry point that this phase needs. */
int kvg_kernel_has_entry(const struct kvg_kernel *kernel, enum kvg_phase phase);
/* The kernel's rank for this problem: rank_for's answer, else its rank. */
int kvg_kernel_rank(const struct kvg_kernel *kernel, const struct kvg_problem *problem);
/* Answers whether a kernel supports a problem; same contract as kvg_kernel.supports. */
typedef int (*kvg_supports_fn)(void *context, const struct kvg_kernel *kernel,
                               const struct kvg_problem *problem, char *why, size_t size);
/* The supporting kernel of highest rank for the problem (the first of several) that has the entry point its
 * phase needs, or NULL with the last refusal in why. `supports` NULL asks the kernels themselves. */
const struct kvg_kernel *kvg_registry_best(const struct kvg_problem *problem, kvg_supports_fn supports,
                                           void *context, char *why, size_t size);

#endif
