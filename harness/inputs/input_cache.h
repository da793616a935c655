/* SPDX-License-Identifier: Apache-2.0
 *
 * input_cache.h: inputs that were made once, for the cases that follow and want the same.
 *
 * Neighbouring cases of a plan (plan_order.h) differ in dtype, scheme, calibration or path, and draw the same
 * Q, K and V. What a call gives depends on its shape alone (inputs.h), and the whole shape is the key; a
 * captured file is taken to stay what it was.
 *
 * A kernel under test runs in the same process, so what is kept lies in pages of its own that are read-only:
 * callers get copies, and a stray write into the cache ends the process, which costs the row of the kernel
 * that did it and no other.
 */
#ifndef KVG_HARNESS_INPUT_CACHE_H
#define KVG_HARNESS_INPUT_CACHE_H

#include "shape.h"
#include "results/error.h"

struct kvg_input_cache;

/* Keeps up to `bytes` bytes; what was not asked for longest goes first, and nothing larger than a quarter of
 * that is kept. NULL on out of memory. */
struct kvg_input_cache *kvg_input_cache_new(int64_t bytes);
void kvg_input_cache_free(struct kvg_input_cache *cache); /* NULL is fine */
/* For a worker: 512 MiB, or a sixteenth of the machine's memory where that is less. */
int64_t kvg_input_cache_usual_bytes(void);

/* As kvg_input_fill and kvg_input_absmax; with NULL for the cache they are the same. Failures are not kept. A
 * cache that finds no memory keeps nothing, which is no failure. */
int kvg_input_cache_fill(struct kvg_input_cache *cache, const struct kvg_input_shape *shape,
                         enum kvg_tensor tensor, int threads, uint16_t *out, struct kvg_error *error);
int kvg_input_cache_absmax(struct kvg_input_cache *cache, const struct kvg_input_shape *shape,
                           enum kvg_tensor tensor, enum kvg_token_set set, float **absmax, int64_t *samples,
                           struct kvg_error *error);

/* How often the cache answered, and how often not. */
struct kvg_input_cache_counts {
    int64_t hits, misses, bytes; /* bytes: kept now */
};
void kvg_input_cache_count(const struct kvg_input_cache *cache, struct kvg_input_cache_counts *counts);

#endif
