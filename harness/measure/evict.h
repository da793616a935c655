/* SPDX-License-Identifier: Apache-2.0
 *
 * evict.h: evicts memory from the caches, so that the next access is cold.
 */
#ifndef KVG_HARNESS_EVICT_H
#define KVG_HARNESS_EVICT_H

#include <stdint.h>

/* Evicts [data, data + bytes) from all caches of the machine: line by line with CLFLUSHOPT or, on a CPU
 * without it, by reading a buffer of twice the last-level cache. */
void kvg_evict_range(const void *data, int64_t bytes);

#endif
