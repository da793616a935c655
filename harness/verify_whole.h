/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_whole.h: every sequence and head of a large case of which the exact references see a few sequences.
 *
 * A plain FP32 kernel on the device (the "plain" output below) attends to the same bits as the kernel under
 * test, for all sequences. Two steps:
 *
 *   1. The plain kernel is not trusted: on every (sequence, head) that the expectation samples its output
 * must lie within KVG_PLAIN_REL of the exact reference, as relative L2 error, and its lse within
 * KVG_PLAIN_REL of max(1, |lse|). FP32 sums of n terms stray like a random walk, so the limit grows with the
 * root of the keys beyond KVG_PLAIN_KEYS. That is a hundredth of a rounding to bf16 or less.
 *   2. The kernel under test is then held to the plain output on every (sequence, head) that sees a key. Its
 *      sequences draw their values from one distribution, so the errors of a right kernel are exchangeable:
 * what it does to a sequence nobody looked at is distributed as what it does to those that the references
 * judged. With e, g, l the largest relative L2 error, |gain - 1| and |lse error| against the plain output
 * over the sampled rows (which passed all checks), each group must keep to relative L2 error  2 e + 2^-8 A
 * group's error is the root of a sum over head_dim elements or more, and scatters by a tenth around its mean;
 * 2 e is far outside of that. Where few keys carry the output one rounding hits all elements alike and e may
 * be small by chance: 2^-8 is all that rounding to bf16 can do. |gain - 1|         g + r G         G is the
 * largest gain limit that the expectation allowed, r the ratio of the Gaussian quantiles for all groups and
 * for the sampled ones. |lse error|        2 l + 2 KVG_PLAIN_REL max(1, |lse|) NaN never passes. Rows that
 * see no key are zero with an lse of -infinity, in every sequence.
 *
 * A fault that touches all sequences alike is the references' to find; here those are found that touch one
 * sequence, one split, one page beyond the sampled ones.
 */
#ifndef KVG_HARNESS_VERIFY_WHOLE_H
#define KVG_HARNESS_VERIFY_WHOLE_H

#include "verify.h"

#define KVG_PLAIN_REL 1e-5
#define KVG_PLAIN_KEYS 16384

/* The plain kernel's output of the whole case, on the host, owned; NULL where it did not run. */
struct kvg_plain {
    float *out; /* [total_q, q_heads, head_dim] */
    float *lse; /* [total_q, q_heads] */
};
void kvg_plain_free(struct kvg_plain *plain);

/* Step 1; e belongs to a part of `whole`, or to all of it. 0, or -1 with a sentence in why. */
int kvg_plain_check(const struct kvg_expectation *e, const struct kvg_prepared *whole,
                    const struct kvg_plain *plain, char *why, size_t size);
/* Step 2, for an output that passed kvg_compare_attention, which has filled `row`. out as there but of the
 * whole case; lse may be NULL. Fills n_device_checked and device_rel_l2; a fault makes the row incorrect,
 * with its sequence and head in the reason. 0, or -1 when out of memory. */
int kvg_compare_whole(const struct kvg_expectation *e, const struct kvg_prepared *whole,
                      const struct kvg_plain *plain, const uint16_t *out, const float *lse,
                      struct kvg_row *row, struct kvg_error *error);

#endif
