/* SPDX-License-Identifier: Apache-2.0
 *
 * device_check.h: shared parts of device_check: the device, one line for each check, test bytes.
 */
#ifndef KVG_TESTS_GPU_DEVICE_CHECK_H
#define KVG_TESTS_GPU_DEVICE_CHECK_H

#include <stdint.h>
#include "harness/device/device.h"

struct checks {
    struct kvg_device *d;
    int failures;
};

/* Prints one line: the formatted name, then "ok" or "FAILED" with the device's last error, if there is
 * one. Counts failures. */
void check(struct checks *c, int good, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Memory on the device, or on the host. Without memory the program ends with exit code 3, because nothing
 * else can be checked. */
void *must_allocate(struct checks *c, int64_t bytes);
void *must_malloc(int64_t bytes);
void random_bytes(void *data, int64_t bytes, uint32_t seed);
double now(void); /* seconds */

void check_memory(struct checks *c); /* device_check_memory.c */
void check_inputs(struct checks *c); /* device_check_case.c */
void check_store(struct checks *c);  /* device_check_case.c */
void check_times(struct checks *c);  /* device_check_times.c */
void check_roofs(struct checks *c);  /* device_check_times.c */
void check_errors(struct checks *c); /* device_check_errors.c; the device is lost afterwards */

#endif
