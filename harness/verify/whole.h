/* SPDX-License-Identifier: Apache-2.0
 *
 * whole.h: checks every sequence and head of a case that is too large for the exact references, which then
 * see a few sequences only.
 *
 * A plain FP32 kernel on the device attends to the same bits as the kernel under test, for all sequences. Its
 * output is called the plain output.
 *
 * Step 1: the plain kernel is compared with the exact reference, on every (sequence, head) that the
 * expectation samples. Its relative L2 error and its lse error over max(1, |lse|) must not exceed
 * KVG_PLAIN_REL. FP32 sums of n terms stray like a random walk, so beyond KVG_PLAIN_KEYS keys the limit grows
 * with the square root of the keys. It is at most a hundredth of a rounding to bf16.
 *
 * Step 2: the kernel under test is compared with the plain output, on every (sequence, head) that sees a key.
 * All sequences draw their values from one distribution, so the errors of a right kernel are exchangeable,
 * except for the number of keys n and the sharpness of a head's softmax: its errors on a sequence that the
 * references did not see have the distribution of its errors on those that they did see. With n a relative L2
 * error stays the same where V has mean zero (error and output shrink together), and falls with sqrt(n) where
 * V has a mean.
 *
 * The limits come from the m sampled groups, which passed every check. Against the plain output, over these
 * groups:
 *
 *   e   largest relative L2 error
 *   E   largest relative L2 error times sqrt(n)
 *   g   root mean square of gain - 1
 *   l   largest |lse error|
 *
 * A group of n keys must keep
 *
 *   relative L2 error <= f max(e, E / sqrt(n)) + 2^-8,   f = 3 + 8 / m
 *       The width of the logits differs by up to 2 between heads, and with it the error by up to 2.1. The
 *       error of a group, the root of a sum over head_dim elements or more, scatters by a tenth around that:
 *       3 in all. 8 / m is for few sampled groups, which may all have small errors by chance. 2^-8: where one
 *       key carries the output, one rounding hits all elements alike and e may be small by chance; rounding
 *       to bf16 can do no more.
 *   |gain - 1| <= t g + 2^-8, or the limit above where that is less
 *       t is Student's quantile with m degrees of freedom, for the part of the false-alarm rate that one
 *       group has.
 *   |lse error| <= f l + 2 KVG_PLAIN_REL max(1, |lse|)
 *
 * NaN never passes. Rows that see no key must be zero with an lse of -infinity, or of their sink, in every sequence. The part
 * must hold a sequence at least half as long as the longest: short sequences say little about long ones.
 *
 * The references find faults that hit all sequences alike. This comparison finds those that hit one sequence,
 * one split or one page outside the sample.
 */
#ifndef KVG_HARNESS_VERIFY_WHOLE_H
#define KVG_HARNESS_VERIFY_WHOLE_H

#include "verify.h"
#include "harness/prepare/prepared.h"

#define KVG_PLAIN_REL 1e-5
#define KVG_PLAIN_KEYS 16384

/* The plain kernel's output of the whole case, on the host, owned; NULL where it did not run. */
struct kvg_plain {
    float *out; /* [total_q, q_heads, head_dim] */
    float *lse; /* [total_q, q_heads] */
};
void kvg_plain_free(struct kvg_plain *plain);

/* Step 1. e belongs to a part of `whole`, or to all of it. 0, or -1 with a sentence in why. */
int kvg_plain_check(const struct kvg_expectation *e, const struct kvg_prepared *whole,
                    const struct kvg_plain *plain, char *why, size_t size);
/* Step 2, for an output that passed kvg_compare_attention, which has filled `row`. out and lse are as there,
 * but of the whole case; lse may be NULL. Fills n_device_checked and device_rel_l2. A fault makes the row
 * incorrect, with its sequence and head in the reason. 0, or -1 when out of memory. */
int kvg_compare_whole(const struct kvg_expectation *e, const struct kvg_prepared *whole,
                      const struct kvg_plain *plain, const uint16_t *out, const float *lse,
                      struct kvg_row *row, struct kvg_error *error);

#endif
