/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_whole.h: every sequence and head of a large case of which the exact references see a few sequences.
 *
 * A plain FP32 kernel on the device (the "plain" output below) attends to the same bits as the kernel under
 * test, for all sequences.
 *
 * First the plain kernel itself is held to the exact reference, on every (sequence, head) that the
 * expectation samples: relative L2 error and lse error over max(1, |lse|) up to KVG_PLAIN_REL. FP32 sums of n
 * terms stray like a random walk, so that limit grows with the root of the keys beyond KVG_PLAIN_KEYS. It is
 * a hundredth of a rounding to bf16 or less.
 *
 * Then the kernel under test is held to the plain output on every (sequence, head) that sees a key. Its
 * sequences draw their values from one distribution, so the errors of a right kernel are exchangeable but for
 * the number of keys n and the sharpness of a head's softmax: what it does to a sequence nobody looked at is
 * distributed as what it does to those that the references judged. Over n keys a relative L2 error stays what
 * it is where V has no mean (error and output shrink together) and falls with sqrt(n) where it has one.
 *
 * Let e and E be the largest relative L2 error and the largest times sqrt(n), g the root mean square of gain
 * - 1 and l the largest |lse error|, against the plain output, over the m sampled groups, which passed every
 * check. Then a group of n keys must keep to
 *
 *   relative L2 error <= f max(e, E / sqrt(n)) + 2^-8, f = 3 + 8 / m. Between heads the width of the logits
 * differs by up to 2, and with it the error by up to 2.1; a group's error, the root of a sum over head_dim
 * elements or more, scatters by a tenth around that: 3. The second term is for few sampled groups that may
 * all have been mild. Where one key carries the output, one rounding hits all elements alike and e may be
 * small by chance: 2^-8 is all that rounding to bf16 can do.
 *
 *   |gain - 1| <= t g + 2^-8 where that is less. t is Student's quantile with m degrees of freedom, of the
 * share of the false-alarm rate that one group has.
 *
 *   |lse error| <= f l + 2 KVG_PLAIN_REL max(1, |lse|).
 *
 * NaN never passes. Rows that see no key are zero with an lse of -infinity, in every sequence. The part must
 * hold a sequence at least half as long as the longest: short ones say little of long ones.
 *
 * A fault that touches all sequences alike is the references' to find; here those are found that touch one
 * sequence, one split, one page beyond the sampled ones.
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
