/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins.h: the kernels of plug-ins, for a process that must not run their code.
 *
 * A plug-in may end or stop the process that loads it: in a constructor, in its entry function, in `supports`. So a
 * child process loads the plug-ins and answers questions about their kernels. The registry of this process lists
 * them with names, summaries and ranks, but without code: no function of such a kernel may be called here. The child
 * is started again when it has died. This guards against accidents, not against a plug-in that sets out to deceive.
 */
#ifndef KVG_HARNESS_PLUGINS_H
#define KVG_HARNESS_PLUGINS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernel.h"
#include "results/error.h"

/* Lists the kernels of plug-ins in the registry. To be called once. The child may take `seconds` to load each
 * plug-in, and as long to answer each question. 0, or -1 with the error, which names the plug-in. */
int kvg_plugins_list(const char *const *paths, int64_t count, double seconds, struct kvg_error *error);
/* As kvg_plugins_list, but the kernels are then loaded into this process too: for a run that calls them here. */
int kvg_plugins_load(const char *const *paths, int64_t count, double seconds, struct kvg_error *error);

/* 1 if the kernel was listed by kvg_plugins_list. */
int kvg_plugins_has(const struct kvg_kernel *kernel);
/* As kvg_kernel_takes, for any kernel of the registry. -1 with the reason if the child died or did not answer. */
int kvg_plugins_take(const struct kvg_kernel *kernel, const struct kvg_problem *problem, char *why,
                     size_t size);
/* As kvg_kernel_rank, for any kernel of the registry, in *rank. -1 with the reason if the child died or did not answer;
 * then *rank is kernel->rank. */
int kvg_plugins_rank(const struct kvg_kernel *kernel, const struct kvg_problem *problem, int *rank, char *why,
                     size_t size);
/* As kernel->arithmetic, for any kernel of the registry that has it. -1 if the child died or did not answer; then *out is
 * as before. */
int kvg_plugins_arithmetic(const struct kvg_kernel *kernel, const struct kvg_problem *problem,
                           int64_t seq_len, struct kvg_arithmetic *out);
/* 1 if the rank of the kernel depends on the problem. */
int kvg_plugins_has_rank_for(const struct kvg_kernel *kernel);
/* Ends the child. A later question starts another. */
void kvg_plugins_rest(void);

#endif
