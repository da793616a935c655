/* SPDX-License-Identifier: Apache-2.0
 *
 * input_cache.h: a cache of inputs, for later cases that need the same tensors.
 *
 * Neighbouring cases of a plan (harness/plan/order.h) differ in dtype, scheme, calibration or path, and use
 * the same Q, K and V. The result of a call depends only on its shape (shape.h), so the whole shape is the
 * key. A captured file is assumed not to change.
 *
 * A kernel under test runs in the same process, so entries are kept in read-only pages of their own. Callers
 * get copies. A stray write into the cache ends the process, so only the row of the kernel that wrote is
 * lost.
 */
#ifndef KVG_HARNESS_INPUT_CACHE_H
#define KVG_HARNESS_INPUT_CACHE_H

#include "shape.h"
#include "results/error.h"

struct kvg_input_cache;

/* Keeps up to `bytes` bytes. The least recently used entry is dropped first; nothing larger than a quarter
 * of `bytes` is kept. NULL on out of memory. */
struct kvg_input_cache *kvg_input_cache_new(int64_t bytes);
void kvg_input_cache_free(struct kvg_input_cache *cache); /* NULL is fine */
/* Size for a worker: 512 MiB, or a sixteenth of the machine's memory if that is less. */
int64_t kvg_input_cache_usual_bytes(void);

/* The same as kvg_input_fill and kvg_input_absmax (inputs.h), which are called when the cache has no entry
 * or is NULL. Failures are not kept. A cache that cannot allocate memory keeps nothing, which is not an
 * error. */
int kvg_input_cache_fill(struct kvg_input_cache *cache, const struct kvg_input_shape *shape,
                         enum kvg_tensor tensor, int threads, uint16_t *out, struct kvg_error *error);
int kvg_input_cache_absmax(struct kvg_input_cache *cache, const struct kvg_input_shape *shape,
                           enum kvg_tensor tensor, enum kvg_token_set set, float **absmax, int64_t *samples,
                           struct kvg_error *error);

/* For tests: calls that the cache answered and calls that it did not. */
struct kvg_input_cache_counts {
    int64_t hits, misses, bytes; /* bytes: size of all entries */
};
void kvg_input_cache_count(const struct kvg_input_cache *cache, struct kvg_input_cache_counts *counts);

#endif
