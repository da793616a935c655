/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_shares.h: errors that follow where a key lies: its slot of the page, an odd page, the first or the
 * last page, its split.
 *
 * A kernel that gets one class of keys wrong (weights of a split times 1.01, one slot of each page decoded
 * with another scale) errs by a multiple of the class's share c = sum p v over its keys (attention_shares.h),
 * whether its row sum goes along or not: the difference, a multiple of the output, is a gain and has a test
 * of its own. So the error is regressed on x, the part of c at right angles to the output r of the same row:
 *
 *     effect = sum (y - r) x / sum x (c - b r),   x = w (c - b r),   b = sum w c r / sum w r r
 *
 * b of each row by itself, the rest over all dims of the rows that are looked at: the last query of every
 * (sequence, query head), as many as fit into KVG_SHARES_BYTES. The weights w make the most of every element:
 * one over the variance of its error, which is noise n times step where the output's rounding hides the
 * noise, and n^2 where it does not. A single element shows an effect of a thousandth of its share hardly
 * ever, a hundred thousand of them together do.
 *
 * A right kernel has the two reasons to differ that systematic.h names, and the limits are made in the same
 * way, from the usual size of the noise: lambda of it in proportion to |x|, linearly over the dims of a row
 * and by squares over rows; and steps of the output's rounding, whose chance is noise over step, elements of
 * one significand together (here all are told apart, by 16 bits), with Bennett's inequality over the
 * significands. A kernel that declares a narrow accumulator is forgiven the loss of the standard in every
 * element. Classes share the false-alarm rate.
 *
 * Heads and sequences need no regression: gain and offset are tested for each by itself.
 */
#ifndef KVG_HARNESS_VERIFY_SHARES_H
#define KVG_HARNESS_VERIFY_SHARES_H

#include <stdint.h>
#include "expectation.h"

#define KVG_SHARES_BYTES (INT64_C(64) << 20) /* of x */

enum kvg_share_kind {
    KVG_SHARE_SLOT = 0, /* class: slot of a page, or group of neighbouring slots of a page above 64 */
    KVG_SHARE_PAGE,     /* class: enum kvg_share_page */
    KVG_SHARE_SPLIT,    /* class: split % 16; none where the kernel declares one split */
    KVG_SHARE_KINDS
};
enum kvg_share_page { KVG_SHARE_ODD_PAGES = 0, KVG_SHARE_FIRST_PAGE, KVG_SHARE_LAST_PAGE };

/* All classes of one kind, and the one whose effect exceeds its limit by most. */
struct kvg_share_result {
    int64_t failures, of; /* classes */
    int64_t worst;        /* class */
    double effect, limit; /* of the worst; NaN when of = 0 */
    double ratio;         /* of the worst, as in kvg_bound_ratio; 0 when of = 0 */
};

struct kvg_shares; /* opaque: rows, x and limits */

/* For an expectation that is complete otherwise. Without a row that says anything *out is NULL. 0, or -1 when
 * out of memory. */
int kvg_shares_make(const struct kvg_expectation *e, const struct kvg_kernel *kernel,
                    struct kvg_shares **out);
void kvg_shares_free(struct kvg_shares *s);
/* Limits anew after those of the expectation have changed (kvg_expectation_set_limits). 0, or -1: out of memory. */
int kvg_shares_set_limits(struct kvg_shares *s);

/* out: the kernel's whole output, bf16, as kvg_compare_attention takes it. Values that are not finite are
 * left out: they fail a check of their own. s may be NULL. 0, or -1 when out of memory. */
int kvg_shares_compare(const struct kvg_shares *s, const uint16_t *out,
                       struct kvg_share_result results[KVG_SHARE_KINDS]);

#endif
