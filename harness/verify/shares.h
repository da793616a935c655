/* SPDX-License-Identifier: Apache-2.0
 *
 * shares.h: errors that follow the place of a key: its slot in the page, odd pages, the first or the last
 * page, its split.
 *
 * A kernel that gets one class of keys wrong (weights of a split times 1.01, one slot of each page decoded
 * with another scale) errs by a multiple of the share of the class, c = sum p v over its keys
 * (attention_shares.h). Whether the row sum is wrong too makes no difference here: it adds a multiple of the
 * output, which is a gain and has its own test. So the error is regressed on x, the part of c at right angles
 * to the output r of the same row:
 *
 *   effect = sum (y - r) x / sum x (c - b r)
 *   x      = w (c - b r)
 *   b      = sum w c r / sum w r r              for each row by itself
 *   w      = 1 / variance of the error of an element: noise times step where the rounding of the output hides
 *            the noise, and noise^2 where it does not
 *
 * The other sums run over all dims of the rows that are used: the last query of every (sequence, query head),
 * as many as fit into KVG_SHARES_BYTES. The weights w get the most out of every element. A single element
 * hardly ever shows an effect of a thousandth of its share; a hundred thousand elements together do.
 *
 * A right kernel has the two reasons to differ that systematic.h names. The limits are made in the same way,
 * from the usual size of the noise:
 *
 *   noise  lambda times the usual size, in proportion to |x|: linearly over the dims of a row, by squares
 *          over rows.
 *   steps  of the rounding of the output, with a chance of noise over step. Elements of one significand step
 *          together (here every significand of 16 bits has a term of its own), and Bennett's inequality holds
 *          over the significands.
 *
 * A kernel that declares a narrow accumulator is forgiven the loss of the standard in every element. All
 * classes share one false-alarm rate.
 *
 * Heads and sequences need no regression: gain and offset are tested for each of them.
 */
#ifndef KVG_HARNESS_VERIFY_SHARES_H
#define KVG_HARNESS_VERIFY_SHARES_H

#include <stdint.h>
#include "expectation.h"

#define KVG_SHARES_BYTES (INT64_C(64) << 20) /* of x */

enum kvg_share_kind {
    KVG_SHARE_SLOT = 0, /* a class is a slot; groups of neighbouring slots where a page has more than 64 */
    KVG_SHARE_PAGE,     /* a class is an enum kvg_share_page */
    KVG_SHARE_SPLIT,    /* a class is split % 16; no class where the kernel declares one split */
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

/* e is complete except for its shares. *out is NULL where the sample is empty. 0, or -1 when out of memory.
 * */
int kvg_shares_make(const struct kvg_expectation *e, const struct kvg_kernel *kernel,
                    struct kvg_shares **out);
void kvg_shares_free(struct kvg_shares *s);
/* Computes the limits anew after kvg_expectation_set_limits has changed those of the expectation. 0, or -1
 * when out of memory. */
int kvg_shares_set_limits(struct kvg_shares *s);

/* out: the kernel's whole output, bf16, as kvg_compare_attention takes it. Values that are not finite are
 * left out: they fail a check of their own. s may be NULL. 0, or -1 when out of memory. */
int kvg_shares_compare(const struct kvg_shares *s, const uint16_t *out,
                       struct kvg_share_result results[KVG_SHARE_KINDS]);

#endif
