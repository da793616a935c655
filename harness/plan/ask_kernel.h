/* SPDX-License-Identifier: Apache-2.0
 *
 * ask_kernel.h: does a kernel take a problem? For a process that must never touch a device.
 *
 * `supports` of a GPU kernel calls the driver. A process that has done so holds a context on the GPU until it
 * ends, and a crash in the driver ends it. Therefore `supports` of GPU kernels runs in a child process, which
 * is started at the first such question and killed by kvg_asker_free. `supports` of built-in CPU kernels is called
 * directly, that of plug-ins in the process of plugins.h.
 */
#ifndef KVG_HARNESS_ASK_KERNEL_H
#define KVG_HARNESS_ASK_KERNEL_H

#include <stddef.h>
#include "kernels/kernel.h"

struct kvg_asker;
struct kvg_asker *kvg_asker_new(void); /* NULL on out of memory; starts no child */
void kvg_asker_free(struct kvg_asker *asker);

/* 1, or 0 with the reason, as kernel->supports. The kernel is one of the registry. When the child dies, or
 * does not answer within KVG_ASK_SECONDS, the answer is 0 to this question and to all later ones about GPU
 * kernels. When the process of a plug-in's kernel dies or does not answer, the answer is 1: the case is kept, and its
 * row says what the kernel does. */
int kvg_asker_ask(struct kvg_asker *asker, const struct kvg_kernel *kernel, const struct kvg_problem *problem,
                  char *why, size_t size);
#define KVG_ASK_SECONDS 60

#endif
