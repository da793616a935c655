/* SPDX-License-Identifier: Apache-2.0
 *
 * same_bits.h: the column same_bits: for each kind of rearrangement that was run, whether the bits of the
 * output stayed the same, and whether the kernel declares that they do.
 */
#ifndef KVG_HARNESS_EXECUTE_SAME_BITS_H
#define KVG_HARNESS_EXECUTE_SAME_BITS_H

#include "kernels/kernel.h"
#include "results/row.h"

/* Adds a kind to the column, as NAME=VALUE:
 *   held    declared, and the bits were the same in every run of this kind
 *   broken  declared, and the bits differed in a run; the row is incorrect
 *   same    not declared, and the bits were the same in every run of this kind
 *   differ  not declared, and the bits differed in a run
 * If the row has the kind already, only other bits change its value. */
void kvg_same_bits_note(struct kvg_row *row, enum kvg_rearrangement which, int declared, int same);
/* The name of a kind in that column: pages, heads, sequences, threads, batch (COMPANY) or chunks. */
const char *kvg_rearrangement_name(enum kvg_rearrangement which);

#endif
