/* SPDX-License-Identifier: Apache-2.0
 *
 * fp_control.h: how this thread rounds: rounding mode, flushing of subnormals, exceptions that trap, and on x86 the
 * precision of the x87 unit. Flags of exceptions that have happened are no part of it.
 */
#ifndef KVG_HARNESS_FP_CONTROL_H
#define KVG_HARNESS_FP_CONTROL_H

#include <stddef.h>
#include <stdint.h>

struct kvg_fp_control {
    uint64_t main; /* x86: MXCSR without flags; AArch64: FPCR */
    uint64_t x87;  /* x86: the x87 control word; else 0 */
};
void kvg_fp_control_get(struct kvg_fp_control *control);
void kvg_fp_control_set(const struct kvg_fp_control *control);
int kvg_fp_control_differs(const struct kvg_fp_control *a, const struct kvg_fp_control *b);
/* The fields that differ, in words: "the rounding mode (upward), flushing of subnormals (on)". */
void kvg_fp_control_describe(const struct kvg_fp_control *before, const struct kvg_fp_control *now,
                             char *text, size_t size);
/* Sets the control of this thread and of a team of `threads` OpenMP threads. Returns 1 if that of a thread was another,
 * and then *found is one of these; else 0. */
int kvg_fp_control_restore(const struct kvg_fp_control *control, int64_t threads,
                           struct kvg_fp_control *found);

#endif
