/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_parts.h: the steps of kvg_prepare, in their order. Private to prepare*.c.
 */
#ifndef KVG_HARNESS_PREPARE_PARTS_H
#define KVG_HARNESS_PREPARE_PARTS_H

#include "harness/inputs/input_cache.h"
#include "harness/inputs/inputs.h"
#include "prepare.h"

/* Padding tokens at the end of slot_mapping. */
#define KVG_PADDING_TOKENS 3

/* prepare_layout.c: lengths, sizes, pages. Lengths of sequence i from the case alone. */
int64_t kvg_layout_length(const struct kvg_case *c, int64_t i);
int64_t kvg_layout_q_len(const struct kvg_case *c, int64_t length);
/* Sets totals, problem, num_blocks, strides and so on, or refuses sizes that cannot be. Allocates nothing. */
int kvg_layout_sizes(struct kvg_prepared *p, struct kvg_error *error);
int kvg_layout_allocate(struct kvg_prepared *p, struct kvg_error *error);
/* Fills seq_lens, cu_*, row_table, block_table and slot_mapping. `seed` shuffles the pages; where it is not
 * the case's own, the sequences trade lengths too. Sizes and totals stay those of kvg_layout_sizes. */
int kvg_layout_fill(struct kvg_prepared *p, uint64_t seed, struct kvg_error *error);

/* prepare_scales.c: scales of p->values to q_scale, k_scale, v_scale. */
int kvg_scales_measure(struct kvg_prepared *p, struct kvg_error *error);

/* The shape an input function is asked for; seq, context and q_len are set by the caller. */
struct kvg_input_shape kvg_prepared_shape(const struct kvg_prepared *p);

#endif
