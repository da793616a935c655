/* SPDX-License-Identifier: Apache-2.0
 *
 * ask_kernel.h: does a kernel take a problem? Asked by a process that must never touch a device.
 *
 * `supports` of a kernel on a GPU asks the driver, and a process that did so holds a context on the GPU for
 * the rest of its life, and dies with the driver. So those are asked in a child, started for the first of
 * them and ended with the asker. Kernels of the CPU are asked here.
 */
#ifndef KVG_HARNESS_ASK_KERNEL_H
#define KVG_HARNESS_ASK_KERNEL_H

#include <stddef.h>
#include "kernels/kernel.h"

struct kvg_asker;
struct kvg_asker *kvg_asker_new(void); /* NULL on out of memory; starts nothing */
void kvg_asker_free(struct kvg_asker *asker);

/* 1, or 0 with the reason, as kernel->supports. A child that dies, or is silent for KVG_ASK_SECONDS, has said
 * no, and so to all that would be asked later. The kernel is one of the registry's. */
int kvg_ask_supports(struct kvg_asker *asker, const struct kvg_kernel *kernel,
                     const struct kvg_problem *problem, char *why, size_t size);
#define KVG_ASK_SECONDS 60

#endif
