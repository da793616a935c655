/* SPDX-License-Identifier: Apache-2.0
 *
 * device_memory.h: guard.h for the memory of a device: buffers that notice who writes where they should not.
 *
 * A guard region of 64 KiB lies before the first and behind the last byte of every buffer and reads as NaN in
 * the formats of a cache. Guards and sealed buffers are hashed by the device itself; only what was found to
 * differ is downloaded, to say where.
 *
 * Errors: KVG_EXIT_INCORRECT where a buffer was written that must not be; KVG_EXIT_TROUBLE where an operation
 * of the device failed (device->error says which, and is the text) or memory ran out (device->error is then
 * empty).
 */
#ifndef KVG_HARNESS_DEVICE_MEMORY_H
#define KVG_HARNESS_DEVICE_MEMORY_H

#include <stdint.h>
#include "results/error.h"
#include "harness/device/device.h"

struct kvg_device_memory; /* owns its buffers */

/* NULL when the host is out of memory. `device` must outlive it. */
struct kvg_device_memory *kvg_device_memory_new(struct kvg_device *device);
void kvg_device_memory_free(struct kvg_device_memory *m); /* and every buffer of it; NULL is fine */

/* Device address of `bytes` >= 0 bytes (never NULL, content undefined, aligned as `allocate` aligns), or NULL
 * with the error. `name` must outlive the buffer. */
void *kvg_device_alloc(struct kvg_device_memory *m, const char *name, int64_t bytes, struct kvg_error *error);
void kvg_device_release(struct kvg_device_memory *m, void *buffer); /* NULL is fine */
/* From now on the buffer must keep the content it has. */
int kvg_device_seal(struct kvg_device_memory *m, const void *buffer, struct kvg_error *error);
/* 0 when every guard region and every sealed buffer is as it was. */
int kvg_device_check(struct kvg_device_memory *m, struct kvg_error *error);
/* Bytes of the device that are taken now and were not when `m` was made, as the driver says; -1 unknown. */
int64_t kvg_device_taken(struct kvg_device_memory *m);
/* Fills error with what the device last said; always -1. */
int kvg_device_fail(const struct kvg_device *device, struct kvg_error *error);

#endif
