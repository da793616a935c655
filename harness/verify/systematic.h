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
 * The limit is the sum of both, KVG_GAIN_ALLOWANCE, and for kernels that declare a narrow accumulator the
 * loss that the standard is forgiven. It knows nothing of how many bits they declare, nor of the length of
 * their chains.
 *
 * The standard: what two levels of accumulation with Hopper's FP8 unit in Q K^T and in P V, flushed into FP32
 * after 128 keys at most, do to the very same rows, computed bit by bit (attention_predict.h) with the tiles
 * in the order of the kernel, less the same attention without loss: `loss`, per element. Truncation hits all
 * dims of a row alike where their values have one sign or one trend, so it moves the gain by sum |loss r| /
 * sum r^2 at most; forgiven is twice that, since another right kernel takes its keys in another order, and
 * twice the allowance of what a partial sum of the row exceeds its result by: chains that cancel each other
 * lose their shares of the larger sums. On V >= 0 the standard loses 1e-3 to 2e-3; up to 8e-3 where one key
 * outweighs 127 small ones of its chain, each of which then loses half a unit of the large one; more than the
 * output itself where values cancel within a chain: such a group has no gain that means anything. A single
 * chain of 1024 keys of one sign loses 16e-3, one of 8192 keys 0.13.
 *
 * Accumulators that round to nearest lose nothing on average, and their standard is FP16: chains of at most
 * 32 additions in Q K^T, of 16 keys in P V, flushed into FP32, or what the kernel declares if that is better.
 * It is granted the roundings of both, by squares.
 *
 * A defined answer. Zeros are off by a gain of 1, so a limit below 1 tells them from the output, and every
 * (sequence, head) of a right case is to have one, or an element whose probable bound zeros break. There is
 * an exception: where values cancel until less is left than the standard itself may be off by (its stray in
 * the logits, the P that this moves, its loss; all of it computed from the inputs and the standard, nothing
 * from what the kernel declares), no kernel of that kind could do better, and zeros are as good an answer as
 * any. Such an output is called undefined: the standard is not sure of its first bit, half the output, at the
 * rate of the test. Where FP32 is declared there is no standard, and every output is defined.
 */
#ifndef KVG_HARNESS_VERIFY_SYSTEMATIC_H
#define KVG_HARNESS_VERIFY_SYSTEMATIC_H

#include <stdint.h>
#include "bounds.h"

/* Half a unit roundoff of bf16, less than the output's own rounding. */
#define KVG_GAIN_ALLOWANCE 0x1p-9
#define KVG_SIGNIFICAND_CELLS 1024 /* of the hash table */
/* An output is defined where the standard is sure of its first bit. */
#define KVG_DEFINED 0.5

/* Distance of neighbouring bf16 values at x, which is one. */
double kvg_systematic_step(double x);
/* First 16 bits of the fraction of x: elements that have them in common step together. */
uint32_t kvg_systematic_significand(float x);
/* The cell of the hash table that it belongs to. */
int kvg_systematic_cell(float x);

/* Sums over one group; start from zeros. */
struct kvg_systematic {
    double count;                                 /* elements */
    double error_times_r, r_squared, error, size; /* sums; size: of |r| */
    double noise_gain,
        noise_offset; /* sums over rows of (sum shared |r|)^2, (sum shared)^2; and of own |r|, own, squared */
    double standard;  /* sum over rows of (sum standard |r|)^2 */
    double loss_gain, loss_offset; /* sum loss |r|, sum loss: what is forgiven */
    double step_gain[KVG_SIGNIFICAND_CELLS],
        step_offset[KVG_SIGNIFICAND_CELLS]; /* sum of steps: step * |r|, step */
    double likely_gain[KVG_SIGNIFICAND_CELLS],
        likely_offset[KVG_SIGNIFICAND_CELLS]; /* the same times their chance */
};

/* Adds one row of head_dim elements: got (bf16 bits), the emulated output before rounding, noise as above. An
 * element that is not finite is left out: it fails a check of its own. loss: what the standard is forgiven,
 * or zeros. */
void kvg_systematic_add_row(struct kvg_systematic *s, int64_t head_dim, const uint16_t *got,
                            const float *emulated, const struct kvg_bound_noise *noise, const float *loss,
                            const struct kvg_bound_tail *tail);

struct kvg_systematic_result {
    double gain, gain_limit;     /* gain NaN when there is too little output for a gain to mean something:
                                    the limit would accept zeros */
    double offset, offset_limit; /* in units of the output */
    double undefined; /* share of the output that the standard itself may be off by; see KVG_DEFINED */
};
/* allowance: KVG_GAIN_ALLOWANCE, but in tests of the tails alone. */
void kvg_systematic_finish(const struct kvg_systematic *s, const struct kvg_bound_tail *tail,
                           double allowance, struct kvg_systematic_result *out);

#endif
