/* SPDX-License-Identifier: Apache-2.0
 *
 * device_check.h: what the parts of device_check share: the device, one line for each check, bytes to check
 * with.
 */
#ifndef KVG_TESTS_GPU_DEVICE_CHECK_H
#define KVG_TESTS_GPU_DEVICE_CHECK_H

#include <stdint.h>
#include "harness/device/device.h"

struct checks {
    struct kvg_device *d;
    int failures;
};

/* One line: the name, what it says, and "ok" or "FAILED" (with the device's error, if there is one). */
void check(struct checks *c, int good, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Device memory, or the program ends: nothing else could be checked. */
void *must_allocate(struct checks *c, int64_t bytes);
void *must_malloc(int64_t bytes);
void random_bytes(void *data, int64_t bytes, uint32_t seed);
double now(void); /* s */

void check_memory(struct checks *c); /* device_check_memory.c */
void check_inputs(struct checks *c); /* device_check_case.c */
void check_store(struct checks *c);  /* device_check_case.c */
void check_times(struct checks *c);  /* device_check_times.c */
void check_roofs(struct checks *c);  /* device_check_times.c */
void check_errors(struct checks *c); /* device_check_errors.c; the device is lost afterwards */

#endif
