/* SPDX-License-Identifier: Apache-2.0
 *
 * ask_device.h: what a result file says about the GPU, asked by a process that must never touch one.
 */
#ifndef KVG_HARNESS_ASK_DEVICE_H
#define KVG_HARNESS_ASK_DEVICE_H

#include "results/journal.h"

/* Adds what the first CUDA device tells of itself (gpu, driver, runtime: the keys of
 * harness/cuda/device_cuda.c), opened in a child that ends with the answer. Where there is no such device, or
 * the child dies or is silent for KVG_ASK_DEVICE_SECONDS, it adds `gpu` = "none" and the reason as
 * `gpu_reason`; a build without CUDA adds nothing. 0, or -1 on out of memory. */
int kvg_device_facts(struct kvg_facts *facts);
#define KVG_ASK_DEVICE_SECONDS 60

#endif
