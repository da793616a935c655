/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.h: the steps of kvg_prepared_make, in their order. Private to harness/prepare.
 */
#ifndef KVG_HARNESS_PREPARE_PARTS_H
#define KVG_HARNESS_PREPARE_PARTS_H

#include "harness/inputs/input_cache.h"
#include "harness/inputs/inputs.h"
#include "own.h"
#include "prepared.h"

/* Number of padding tokens at the end of slot_mapping. */
#define KVG_PADDING_TOKENS 3

/* ---- layout.c: lengths, sizes and pages ---- */

/* From the case alone: the length and the number of queries of sequence i. */
int64_t kvg_layout_length(const struct kvg_case *c, int64_t i);
int64_t kvg_layout_q_len(const struct kvg_case *c, int64_t i);
/* Pages of a sequence of this length that are shared. */
int64_t kvg_layout_shared_pages(const struct kvg_case *c, int64_t length);
/* Present length of a sequence of the whole case, by its number there. seq_lens must be filled. */
int64_t kvg_layout_whole_length(const struct kvg_prepared *p, int64_t sequence);
/* Mask prefix: the prefix length of sequence i. From sequence to sequence in turn: the
 * P of the case, half of it (at least 1), none, all keys but one (at least 0), and 3 keys more than the
 * sequence has. */
int64_t kvg_layout_prefix(const struct kvg_case *c, int64_t i);
/* Sets totals, problem, num_blocks and strides. Allocates nothing. -1 with the error for impossible sizes. */
int kvg_layout_sizes(struct kvg_prepared *p, struct kvg_error *error);
int kvg_layout_allocate(struct kvg_prepared *p, struct kvg_error *error);
/* Fills seq_lens, prefix_lens, cu_*, row_table, block_table and slot_mapping. `seed` determines the order of
 * the pages. If it is not the case's own seed, lengths and prefixes are rotated by one sequence. Sizes and totals stay those of
 * kvg_layout_sizes. */
int kvg_layout_fill(struct kvg_prepared *p, uint64_t seed, struct kvg_error *error);

/* ---- shared.c: the values of shared pages ---- */

/* Copies the rows of K and V of shared pages to every sequence that has them. The first sequence of the whole case
 * that has a page gives its values. k and v must hold the values of each sequence alone. */
int kvg_share_values(struct kvg_prepared *p, struct kvg_error *error);

/* ---- shown.c: the buffers that the kernel is given, where views are not dense ---- */

/* Allocates p->shown; the dense tensors must be allocated. */
int kvg_shown_allocate(struct kvg_prepared *p, struct kvg_error *error);
/* Copies the present values of the dense tensors to p->shown, NaN into the gaps, and seals them. */
void kvg_shown_fill(struct kvg_prepared *p);

/* ---- scales.c: q_scale, k_scale and v_scale of the present values ---- */
int kvg_scales_measure(struct kvg_prepared *p, struct kvg_error *error);

/* ---- losses.c: the shares k_saturated, v_saturated, k_flushed and v_flushed ---- */
int kvg_losses_count(struct kvg_prepared *p, struct kvg_error *error);

/* ---- prepare.c: quantises K and V into the caches ---- */
void kvg_prepared_fill_caches(struct kvg_prepared *p);

/* ---- prepare.c: the shape of a request for inputs; the caller sets seq, context and q_len ---- */
struct kvg_input_shape kvg_prepared_shape(const struct kvg_prepared *p);

#endif
