/* SPDX-License-Identifier: Apache-2.0
 *
 * seen.h: the inputs of a prepared case in the memory that its kernel reads.
 *
 * For a CPU kernel this is the host's own memory. For a device kernel the buffers are in device memory and
 * are filled in one of two ways:
 *   mirrored  The host prepared the whole case, and its buffers are copied.
 *   made      The host prepared a frame (prepare.h), which lacks K, V and their caches. The device generates
 *             and stores these, sequence by sequence, into pages filled with NaN. kvg_seen_compare checks the
 *             result: it compares the pages of a few sequences, byte by byte, with a part that the host
 *             prepared.
 * The buffers keep their addresses when the case is renewed.
 */
#ifndef KVG_HARNESS_SEEN_H
#define KVG_HARNESS_SEEN_H

#include "harness/memory/device_memory.h"
#include "prepared.h"

/* Named as in struct kvg_prepared. NULL where the phase does not need the buffer. Tensors and caches are in
 * the places of kvg_prepared.views; v is k, and v_cache is k_cache, where views are shared. */
struct kvg_seen {
    void *q, *q8; /* attention */
    void *k, *v;  /* store */
    void *k_scale, *v_scale, *q_scale;
    void *k_cache, *v_cache; /* attention; in a store of a made case: the expected caches of the kernel */
    void *block_table;
    void *seq_lens, *cu_q_lens; /* attention */
    void *slot_mapping;
    void *prefix_lens; /* attention with the prefix mask */
    void *sinks;       /* attention; NULL without sinks */
};

/* Fills seen with the host's own buffers. */
void kvg_seen_host(const struct kvg_prepared *p, struct kvg_seen *seen);
/* Allocates the buffers in m. 0, or -1 with an error as in device_memory.h. */
int kvg_seen_allocate(struct kvg_device_memory *m, const struct kvg_prepared *p, struct kvg_seen *seen,
                      struct kvg_error *error);
/* Copies the buffers of p to the device, makes K, V and caches if p is a frame, and seals all. To be called
 * again after p was renewed or got special values. `device` is the device of m. */
int kvg_seen_fill(struct kvg_device *device, struct kvg_device_memory *m, const struct kvg_prepared *p,
                  const struct kvg_seen *seen, struct kvg_error *error);
/* Compares the caches of a made case with a part of it. A difference gives an error with exit code
 * KVG_EXIT_INCORRECT, which names tensor, sequence, token and both codes. It is not an error of the kernel
 * under test. */
int kvg_seen_compare(struct kvg_device *device, struct kvg_device_memory *m, const struct kvg_prepared *frame,
                     const struct kvg_prepared *part, const struct kvg_seen *seen, struct kvg_error *error);

#endif
