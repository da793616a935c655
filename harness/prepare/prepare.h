/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare.h: make a prepared case from a case, and give it other values in place.
 */
#ifndef KVG_HARNESS_PREPARE_H
#define KVG_HARNESS_PREPARE_H

#include "prepared.h"

void kvg_prepare_options_default(struct kvg_prepare_options *options); /* 200, 200, 100, NULL */

/* `c` is complete (kvg_case_complete); options may be NULL. 0, or -1 with the error and nothing to free:
 *   a scale that is zero, negative, NaN or infinite   names tensor and head (exit code 4, status invalid)
 *   a case that does not fit this machine's memory    is refused before anything is allocated (exit code 3)
 *   a size beyond the ABI's 32-bit fields             likewise (exit code 3, with the sizes)
 *
 * lengths=ragged: sequence 0 is the longest. The others shrink towards the last one and lie one below, at and
 * one above a multiple of the page size or of 128 (a tile). With a batch of 4 or more, sequence 2 is empty. A
 * sequence has min(q_len, its keys) queries, but at least one in decode and append: the query of an empty
 * sequence sees no key. */
int kvg_prepared_make(const struct kvg_case *c, const struct kvg_prepare_options *options,
                      struct kvg_prepared *out, struct kvg_error *error);

/* For a synthetic case whose K and V are too large for the host and are made on the device instead.
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

/* Gives Q, K, V, scales and caches other values in place, deals the pages anew and, in a ragged batch, moves
 * the lengths on by one sequence. Problem and buffers stay the same, so a kernel that caches its answer, its
 * scales or its page table gives a wrong output.
 *   synthetic input  the values of `seed`, which should differ from the present one; the case's own seed
 *                    restores the first values
 *   captured input   another layer, or the signs flipped where the file has one layer
 * p->c stays as it is. Not for a part. After a failure p can only be freed. */
int kvg_prepared_renew(struct kvg_prepared *p, uint64_t seed, struct kvg_error *error);

/* For phase store: gives K and V every bf16 value in turn, NaN, infinities and both zeros included, and
 * scales under which some quotients are ties between two codes that a product with the reciprocal misses. In
 * place, caches included; Q and pages stay. kvg_prepared_renew ends it. */
void kvg_prepared_special(struct kvg_prepared *p);
/* The nth scale under which a quotient is a tie between two codes while its product with the reciprocal is
 * not: x / (x / m) for m half way between two codes. Few scales have such a quotient among the bf16
 * values. */
float kvg_scale_with_ties(enum kvg_ref_format format, int64_t nth);

#endif
