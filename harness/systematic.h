/* SPDX-License-Identifier: Apache-2.0
 *
 * systematic.h: errors too small for a single element to show, but alike in all of them.
 *
 * Per group (sequence, query head) the output y is regressed on the emulated output r, rounded to the output
 * format: gain = 1 + sum (y - r) r / sum r^2, offset = sum (y - r) / n. A right kernel has two reasons to
 * differ from r:
 *   noise  what the probable bound allows before the output is rounded (struct kvg_bound_noise). What comes
 * from the weights may push all elements of a row the same way: added linearly. Rows are independent, and so
 *          is what each element sums up by itself: sums of squares;
 *   steps  where noise carries an element across a rounding boundary of the output it lands one step away.
 *          The chance is noise over step. Elements with the same significand sit at the same distance from
 *          their boundary (a softmax that is nearly one-hot returns code * scale: 8 significands in all), so
 *          they step together: one term per significand, told apart by 16 bits, and Bennett's inequality over
 *          the terms. The terms live in a hash table; two significands that share a cell count as one, which
 *          only widens the limit.
 * The limit is the sum of both and KVG_GAIN_ALLOWANCE, the same for every kernel: it knows nothing of the
 * declared PV accumulator.
 */
#ifndef KVG_HARNESS_SYSTEMATIC_H
#define KVG_HARNESS_SYSTEMATIC_H

#include <stdint.h>
#include "bounds.h"

/* An accumulator of 14 bits that is flushed into FP32 after at most 128 keys cuts off a little of every
 * product, always towards zero. On V >= 0 that is a gain of up to 1e-3 short of 1, which such kernels are
 * forgiven: half a unit roundoff of bf16, less than the output's own rounding. A chain of 1024 keys already
 * loses 16e-3. */
#define KVG_GAIN_ALLOWANCE 0x1p-9
#define KVG_SIGNIFICAND_CELLS 1024 /* of the hash table */

/* Sums over one group; start from zeros. */
struct kvg_systematic {
    double count;                                 /* elements */
    double error_times_r, r_squared, error, size; /* sums; size: of |r| */
    double noise_gain,
        noise_offset; /* sums over rows of (sum shared |r|)^2, (sum shared)^2; and of own |r|, own, squared */
    double step_gain[KVG_SIGNIFICAND_CELLS],
        step_offset[KVG_SIGNIFICAND_CELLS]; /* sum of steps: step * |r|, step */
    double likely_gain[KVG_SIGNIFICAND_CELLS],
        likely_offset[KVG_SIGNIFICAND_CELLS]; /* the same times their chance */
};

/* Adds one row of head_dim elements: got (bf16 bits), the emulated output before rounding, noise as above. An
 * element that is not finite is left out: it fails a check of its own. */
void kvg_systematic_row(struct kvg_systematic *s, int64_t head_dim, const uint16_t *got,
                        const float *emulated, const struct kvg_bound_noise *noise,
                        const struct kvg_bound_tail *tail);

struct kvg_systematic_result {
    double gain, gain_limit;     /* gain NaN when there is too little output for a gain to mean something:
                                    the limit would accept half the output or none of it */
    double offset, offset_limit; /* in units of the output */
};
void kvg_systematic_result(const struct kvg_systematic *s, const struct kvg_bound_tail *tail,
                           struct kvg_systematic_result *out);

#endif
