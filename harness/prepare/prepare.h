/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare.h: makes a prepared case from a case, and replaces its values in place.
 */
#ifndef KVG_HARNESS_PREPARE_H
#define KVG_HARNESS_PREPARE_H

#include "prepared.h"

void kvg_prepare_options_default(struct kvg_prepare_options *options); /* constants 200, 200, 100; no cache */

/* `c` is complete (kvg_case_complete); options may be NULL. 0, or -1 with the error and nothing to free:
 *   a scale is zero, negative, NaN or infinite    exit code 4, status invalid; names tensor and head
 *   the case does not fit this machine's memory   exit code 3; found before anything is allocated
 *   a size does not fit the ABI's 32-bit fields   exit code 3; found before anything is allocated
 *
 * lengths=ragged: sequence 0 is the longest. The others shrink towards the last one and lie one below, at and
 * one above a multiple of the page size or of 128 (a tile). With a batch of 4 or more, sequence 2 is empty. A
 * sequence has min(q_len, its keys) queries, but at least one in decode and append: the query of an empty
 * sequence sees no key. */
int kvg_prepared_make(const struct kvg_case *c, const struct kvg_prepare_options *options,
                      struct kvg_prepared *out, struct kvg_error *error);

/* For a synthetic case whose K and V are too large for the host, so that the device makes them.
 *   frame  lengths, tables, slots, scales and Q: everything but K, V and their caches.
 *   part   a few sequences of the frame's case as a complete case of their own, in pages of their own. Each
 *          sequence has the same length, the same scales and bit by bit the same values as in the whole case,
 *          with the frame's present seed. `sequences` [count <= KVG_PART_MOST] are their numbers, all
 *          different. A part cannot be renewed: make another one.
 * Errors as for kvg_prepared_make. */
int kvg_prepared_make_frame(const struct kvg_case *c, const struct kvg_prepare_options *options,
                            struct kvg_prepared *out, struct kvg_error *error);
int kvg_prepared_make_part(const struct kvg_prepared *frame, const int64_t *sequences, int64_t count,
                           struct kvg_prepared *out, struct kvg_error *error);

/* Replaces the values of Q, K, V, scales and caches in place, shuffles the pages again and, in a ragged
 * batch, rotates the lengths by one sequence. Problem and buffers stay the same, so a kernel that caches its
 * answer, its scales or its page table gives a wrong output.
 *   synthetic input  the values of `seed`, which should differ from the present one
 *   captured input   another layer, or the signs flipped where the file has one layer
 * The case's own seed restores the first values.
 * p->c stays as it is. Not for a part. After a failure p can only be freed. */
int kvg_prepared_renew(struct kvg_prepared *p, uint64_t seed, struct kvg_error *error);

#endif
