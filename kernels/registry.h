/* SPDX-License-Identifier: Apache-2.0
 *
 * registry.h: all kernels that this process knows: the built-in ones and those of loaded plug-ins. Kernels
 * are never removed. The functions that add kernels must be called from one thread.
 */
#ifndef KVG_KERNELS_REGISTRY_H
#define KVG_KERNELS_REGISTRY_H

#include "kernel.h"

int64_t kvg_registry_count(void);
/* 1 if this build has the CUDA kernels, with or without a GPU in this machine. */
int kvg_registry_has_cuda(void);
const struct kvg_kernel *kvg_registry_get(int64_t i); /* in order of registration; NULL past the end */
const struct kvg_kernel *kvg_registry_find(const char *name); /* NULL if the name is unknown */
/* Loads the plug-in `path`. Returns 0, or -1 with one sentence in why[0..size): no such file, no symbol,
 * another ABI version, a name that a case string cannot hold, or a name that is taken or reserved. Code of the
 * plug-in runs: it may end the process or never return. */
int kvg_registry_load(const char *path, char *why, size_t size);
/* As kvg_registry_load, but gives the list of kernels and does not add or check it. */
int kvg_registry_open(const char *path, const struct kvg_kernel *const **list, int64_t *count, char *why,
                      size_t size);
/* 0 if the kernel was added by kvg_registry_load or kvg_registry_add. */
int kvg_registry_is_builtin(const struct kvg_kernel *kernel);
/* Adds kernels of the program itself, under the same rules as a plug-in. `who` names them in the error.
 * The kernels must live until the process ends; the list is copied. Returns 0, or -1 with one sentence in
 * why. */
int kvg_registry_add(const char *who, const struct kvg_kernel *const *list, int64_t count, char *why,
                     size_t size);
/* 1 if the kernel has the entry point that this phase needs. */
int kvg_kernel_has_entry(const struct kvg_kernel *kernel, enum kvg_phase phase);
/* The kernel's rank for this problem: the result of rank_for, or `rank` if the kernel has no rank_for. */
int kvg_kernel_rank(const struct kvg_kernel *kernel, const struct kvg_problem *problem);
/* 1 if the kernel has all features of the problem and `supports` it; else 0 and one sentence in why[0..size).
 * `supports` is not asked about features that the kernel lacks. */
int kvg_kernel_takes(const struct kvg_kernel *kernel, const struct kvg_problem *problem, char *why,
                     size_t size);
/* Decides whether a kernel takes a problem. Result and `why` as in kvg_kernel.supports. */
typedef int (*kvg_supports_fn)(void *context, const struct kvg_kernel *kernel,
                               const struct kvg_problem *problem, char *why, size_t size);
/* The kernel of highest rank that supports the problem and has the entry point of its phase; of equal
 * ranks the first. NULL, with the last refusal in why, if there is none. If `supports` is NULL,
 * kvg_kernel_takes decides. */
const struct kvg_kernel *kvg_registry_best(const struct kvg_problem *problem, kvg_supports_fn supports,
                                           void *context, char *why, size_t size);
/* As kvg_registry_best, for a caller that has its own ways to ask for both. */
struct kvg_registry_questions {
    kvg_supports_fn supports;
    int (*rank)(void *context, const struct kvg_kernel *kernel, const struct kvg_problem *problem);
    void *context;
};
const struct kvg_kernel *kvg_registry_best_by(const struct kvg_problem *problem,
                                              const struct kvg_registry_questions *ask, char *why,
                                              size_t size);

#endif
