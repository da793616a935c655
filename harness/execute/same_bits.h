/* SPDX-License-Identifier: Apache-2.0
 *
 * same_bits.h: the column same_bits: for each kind of rearrangement, whether the bits of the output stayed the
 * same, and whether the kernel declares it.
 */
#ifndef KVG_HARNESS_EXECUTE_SAME_BITS_H
#define KVG_HARNESS_EXECUTE_SAME_BITS_H

#include "execution.h"

/* Adds "NAME=held" (declared, and the bits are the same), "NAME=same" (not declared) or "NAME=differ" (not
 * declared, and right by the bounds) to the row. A declared kind whose bits differ fails the row instead. */
void kvg_same_bits_note(struct kvg_execution *x, enum kvg_rearrangement which, int declared, int same);
/* The name of a kind in that column. */
const char *kvg_rearrangement_name(enum kvg_rearrangement which);

#endif
