/* SPDX-License-Identifier: Apache-2.0
 *
 * ask_device.h: facts about the GPU for a result file. The process that writes the file must never open the
 * device itself, so a child process does.
 */
#ifndef KVG_HARNESS_ASK_DEVICE_H
#define KVG_HARNESS_ASK_DEVICE_H

#include "results/journal.h"

/* Adds the facts of the first CUDA device (GPU, driver, runtime: the keys of
 * harness/device/cuda/facts_cuda.c and conditions_nvml.c). When there is no device, or the child dies, or it
 * writes nothing for KVG_ASK_DEVICE_SECONDS seconds, adds `gpu` = "none" and the reason as `gpu_reason`. A
 * build without CUDA adds nothing. 0, or -1 on out of memory. */
int kvg_device_facts(struct kvg_facts *facts);
#define KVG_ASK_DEVICE_SECONDS 60

#endif
