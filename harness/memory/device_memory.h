/* SPDX-License-Identifier: Apache-2.0
 *
 * device_memory.h: guard.h for device memory: buffers that detect writes out of bounds and writes to inputs.
 *
 * Every buffer has a guard region of 64 KiB before its first byte and one after its last byte. The guards
 * read as NaN in the formats of a cache (except e4m3fnuz). The device itself hashes guards and sealed
 * buffers. Only a guard that differs is downloaded, to find the place.
 *
 * Errors: KVG_EXIT_INCORRECT when a buffer was changed that must not be. KVG_EXIT_TROUBLE when an operation
 * of the device failed (the text is device->error) or memory ran out (device->error is then empty).
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

/* Device address of `bytes` bytes with undefined content (not NULL for 0 bytes either; alignment as from
 * `allocate`), or NULL with the error. `name` must outlive the buffer. */
void *kvg_device_memory_alloc(struct kvg_device_memory *m, const char *name, int64_t bytes,
                              struct kvg_error *error);
void kvg_device_memory_release(struct kvg_device_memory *m, void *buffer); /* NULL is fine */
/* Seals a buffer: its present content is the right one from now on. 0, or -1 with the error. */
int kvg_device_memory_seal(struct kvg_device_memory *m, const void *buffer, struct kvg_error *error);
/* 0 when every guard region and every sealed buffer is unchanged; else -1 with the error. */
int kvg_device_memory_check(struct kvg_device_memory *m, struct kvg_error *error);
/* Bytes of device memory allocated since `m` was made, as the driver reports them (0 or more); -1 unknown. */
int64_t kvg_device_memory_taken(struct kvg_device_memory *m);
/* Fills error with device->error and KVG_EXIT_TROUBLE; returns -1. */
int kvg_device_fail(const struct kvg_device *device, struct kvg_error *error);

#endif
