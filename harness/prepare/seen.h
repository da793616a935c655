/* SPDX-License-Identifier: Apache-2.0
 *
 * seen.h: the inputs of a prepared case where its kernel sees them.
 *
 * On a CPU that is the host's own memory. On a device they are buffers there, come by in one of two ways:
 *   mirrored  a case that the host prepared whole is copied;
 *   made      of a frame (prepare.h) the host has all but K, V and their caches: those are generated and
 * stored on the device, sequence by sequence, into pages that hold nothing but NaN before. That this made
 *             what the host would have made is not taken on trust: kvg_seen_compare holds the pages of a few
 *             sequences to a part that the host prepared, byte by byte.
 * Either way the buffers keep their addresses when the case is renewed.
 */
#ifndef KVG_HARNESS_SEEN_H
#define KVG_HARNESS_SEEN_H

#include "harness/memory/device_memory.h"
#include "prepared.h"

/* Named as in struct kvg_prepared; NULL where the phase has no use for it. */
struct kvg_seen {
    void *q, *q8; /* attention */
    void *k, *v;  /* store */
    void *k_scale, *v_scale, *q_scale;
    void *k_cache,
        *v_cache; /* attention; store: what the kernel's caches must become, of a made case alone */
    void *block_table;
    void *seq_lens, *cu_q_lens; /* attention */
    void *slot_mapping;
};

/* The host's own buffers. */
void kvg_seen_host(const struct kvg_prepared *p, struct kvg_seen *seen);
/* Allocates in m. 0, or -1 with the error (as device_memory.h has it). */
int kvg_seen_allocate(struct kvg_device_memory *m, const struct kvg_prepared *p, struct kvg_seen *seen,
                      struct kvg_error *error);
/* Brings everything of p there, makes what p as a frame lacks, and seals it; again after p was renewed or
 * given special values. `device` is that of m. */
int kvg_seen_fill(struct kvg_device *device, struct kvg_device_memory *m, const struct kvg_prepared *p,
                  const struct kvg_seen *seen, struct kvg_error *error);
/* Caches of a made case against a part of it. Exit code KVG_EXIT_INCORRECT when they differ: tensor,
 * sequence, token and both codes; no kernel under test is to blame then. */
int kvg_seen_compare(struct kvg_device *device, struct kvg_device_memory *m, const struct kvg_prepared *frame,
                     const struct kvg_prepared *part, const struct kvg_seen *seen, struct kvg_error *error);

#endif
