/* SPDX-License-Identifier: Apache-2.0
 *
 * evict.h: make memory cold.
 */
#ifndef KVG_HARNESS_EVICT_H
#define KVG_HARNESS_EVICT_H

#include <stdint.h>

/* Evicts memory from all caches: the lines of [data, data + bytes) one by one (CLFLUSHOPT, which acts on
 * every cache of the machine), or, on a CPU without it, by reading twice the last-level cache. */
void kvg_evict_range(const void *data, int64_t bytes);

#endif
