/* SPDX-License-Identifier: Apache-2.0
 *
 * systematic.h: errors too small to show in a single element, but alike in all of them.
 *
 * Per group (sequence, query head) the output y is regressed on the emulated output r, rounded to the output
 * format:
 *
 *   gain   = 1 + sum (y - r) r / sum r^2
 *   offset = sum (y - r) / n
 *
 * Limits. A right kernel has two reasons to differ from r:
 *
 *   noise  what the probable bound allows before the output is rounded (struct kvg_bound_noise). The part
 *          that comes from the weights may push all elements of a row the same way, so it is added linearly.
 *          Rows are independent, and so are the sums that each element forms by itself: these are added by
 *          squares.
 *   steps  Where noise carries an element across a rounding boundary of the output, it lands one step away.
 *          The chance is noise over step. Elements with the same significand have the same distance from
 *          their boundary (a softmax that is nearly one-hot returns code * scale: 8 significands in all), so
 *          they step together. There is one term per significand, told apart by 16 bits, and Bennett's
 *          inequality over the terms. The terms lie in a hash table; two significands that share a cell count
 *          as one, which only widens the limit.
 *
 * The limit is the sum of both, KVG_GAIN_ALLOWANCE and, for kernels that declare a narrow accumulator, the
 * forgiven loss of the standard. It does not depend on how many bits they declare or on the length of their
 * chains.
 *
 * The standard for accumulators that cut off is two levels of accumulation with Hopper's FP8 unit in Q K^T
 * and in P V, flushed into FP32 after at most 128 keys. It is computed bit by bit on the same rows
 * (attention_predict.h), with the tiles in the order of the kernel. `loss`, per element, is its output less
 * the same attention without loss.
 *
 *   Truncation hits all dims of a row alike where their values have one sign or one trend, so it moves the
 *   gain by at most sum |loss r| / sum r^2. Forgiven is
 *
 *     - twice that, since another right kernel takes its keys in another order;
 *     - twice the allowance of what a partial sum of the row exceeds its result by: chains that cancel each
 *       other lose their parts of the larger sums.
 *
 *   What the standard loses:
 *
 *     V >= 0                                         1e-3 to 2e-3
 *     one key outweighs 127 small ones of its chain  up to 8e-3: each loses half a unit of the large one
 *     values cancel within a chain                   more than the output, whose gain then means nothing
 *
 *   For comparison, a single chain of 1024 keys of one sign loses 16e-3, one of 8192 keys 0.13.
 *
 * The standard for accumulators that round to nearest, which lose nothing on average, is FP16: chains of at
 * most 32 additions in Q K^T and of 16 keys in P V, flushed into FP32, or what the kernel declares if that is
 * better. It is granted the roundings of both, by squares.
 *
 * Defined outputs. An output of zeros has a gain of 0, so a limit below 1 tells it from the right output.
 * Every (sequence, head) of a right case must have such a limit, or an element whose probable bound zeros
 * break.
 *
 * The exception: values may cancel until less is left than the error of the standard itself (its stray in the
 * logits, the P that this moves, its loss; all of it computed from the inputs and the standard, nothing from
 * what the kernel declares). Then no kernel of that kind can do better, and zeros are as good an answer as
 * any. Such an output is called undefined: at the rate of the test, the error of the standard can reach half
 * the output, its first bit. Where FP32 is declared there is no standard, and every output is defined.
 */
#ifndef KVG_HARNESS_VERIFY_SYSTEMATIC_H
#define KVG_HARNESS_VERIFY_SYSTEMATIC_H

#include <stdint.h>
#include "bounds.h"

/* Half a unit roundoff of bf16, less than the output's own rounding. */
#define KVG_GAIN_ALLOWANCE 0x1p-9
#define KVG_SIGNIFICAND_CELLS 1024 /* of the hash table */
/* An output is defined where the error of the standard stays below this share of it. */
#define KVG_DEFINED 0.5

/* Distance between neighbouring bf16 values at x, which is a bf16 value. */
double kvg_systematic_step(double x);
/* First 16 bits of the fraction of x. Elements with the same bits step together. */
uint32_t kvg_systematic_significand(float x);
/* Cell of the hash table for the significand of x. */
int kvg_systematic_cell(float x);

/* Sums over one group; start from zeros. */
struct kvg_systematic {
    double count;                                 /* elements */
    double error_times_r, r_squared, error, size; /* sums of (y - r) r, r^2, y - r and |r| */
    double noise_gain;             /* sum over rows of (sum shared |r|)^2, plus sum of (own |r|)^2 */
    double noise_offset;           /* sum over rows of (sum shared)^2, plus sum of own^2 */
    double standard;               /* sum over rows of (sum standard |r|)^2 */
    double loss_gain, loss_offset; /* what is forgiven: sum of loss |r|, sum of loss */
    double step_gain[KVG_SIGNIFICAND_CELLS];     /* sum of step |r|, by significand */
    double step_offset[KVG_SIGNIFICAND_CELLS];   /* sum of step */
    double likely_gain[KVG_SIGNIFICAND_CELLS];   /* sum of chance step |r| */
    double likely_offset[KVG_SIGNIFICAND_CELLS]; /* sum of chance step */
};

/* Adds one row of head_dim elements: got (bf16 bits), the emulated output before rounding, its noise, and the
 * loss that is forgiven, or zeros. An element that is not finite is left out: it fails a check of its own. */
void kvg_systematic_add_row(struct kvg_systematic *s, int64_t head_dim, const uint16_t *got,
                            const float *emulated, const struct kvg_bound_noise *noise, const float *loss,
                            const struct kvg_bound_tail *tail);

struct kvg_systematic_result {
    double gain, gain_limit;     /* gain is NaN where the limit would accept zeros */
    double offset, offset_limit; /* in units of the output; NaN without elements */
    double undefined;            /* error of the standard over the output; see KVG_DEFINED */
};
/* allowance: KVG_GAIN_ALLOWANCE, except in tests of the tails. */
void kvg_systematic_finish(const struct kvg_systematic *s, const struct kvg_bound_tail *tail,
                           double allowance, struct kvg_systematic_result *out);

#endif
