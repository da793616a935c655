/* SPDX-License-Identifier: Apache-2.0
 *
 * bounds.h: how far a right kernel may be from the reference. The derivation, once.
 *
 * Exact weights w_j = e^(s_j - m), W = sum w_j, p_j = w_j / W, output o = sum p_j v_j. A kernel computes
 *
 *     o^ = sum_j (w_j e^(t_j) + r_j) v_j (1 + n_j) / sum_j w_j e^(t_j)      then sums, divides and rounds,
 *
 *   t_j  everything that acts like an error of the logit, |t_j| <= delta_j + a:
 *          delta_j  operands and accumulation of q.k, softmax scale, argument of the exponential:
 * proportional to |scale| sum_d |q_d k_jd|, factor `logit_rel`; a        the same for every key of a row: the
 * exponential itself (once per weight, once more for every rescaling by a new running max, once more for the
 * merge of splits), the rounding of the running max in the argument, tanh of the soft cap; r_j  rounding of P
 * to its format, |r_j| <= eta_j W. RNE to E4M3 with offset 2^8 errs by half a step: 2^-4 of the value, or
 * half a subnormal step, 2^-10 / 2^8 = 2^-18 of the running max. The running max is never above the final
 * one, so eta_j = min(p_j, max(2^-4 p_j, 2^-18 p_max)) whatever the order; n_j  rounding of V to its operand
 * format, only where that is inexact.
 *
 * Since sum w_j (v_j - o) = 0, the first-order error is sum p_j (e^(t_j) - 1)(v_j - o) + sum r_j v_j / W
 * [- o sum r_j / W where the row sum adds rounded P] + sum p_j n_j v_j, over sum p_j e^(t_j); accumulation
 * adds acc_pv sum p|v| and acc_l |o|, the division div |o|, the output its own rounding.
 *
 * Worst case: every term by its absolute value; rigorous in the logits, first order elsewhere with the cross
 * terms that matter. It is held against the exact reference.
 *
 * Probable: on zero-mean V the worst case grows with n while o shrinks with sqrt(n), and beyond about a
 * thousand keys it would accept zeros. So the second bound is held against the emulating reference, which
 * repeats every rounding the kernel declares, and covers what no emulation can repeat: the order of FP32
 * sums, the last bits of the exponential, and the few P that lie so close to a rounding boundary that such a
 * last bit moves them across. The reference finds those (struct kvg_ref_drift); their steps enter as they
 * are, or by sum of squares where they are many and their logits differ: equal keys have equal logits, and
 * then P moves for all of them or for none. Terms that are independent from key to key enter by sum of
 * squares of their largest size (Hoeffding: at least as wide as the true distribution), times the quantile
 * `lambda` of the wanted false-alarm rate. What hits all keys alike, and the rounding of the output (bounded,
 * not Gaussian), enters linearly.
 *
 * Narrow accumulators: a matrix unit shifts the terms of a step to the largest exponent among them, cuts off
 * what falls below its last bit, and starts over with the sum. Each of the terms that are not zero loses less
 * than one unit of the last place of the largest, so a chain of n additions is off by at most n 18/16 + 2 of
 * them (the sum is a term of every step, of 16 at least, and its own cut one more). Largest is counted by
 * exponent: a subnormal operand has that of the smallest normal, so a product can be aligned as if it were up
 * to 2^3 (P, V, Q or K in e4m3) or 2^6 (both factors) larger than it is. All sizes that such a loss is
 * proportional to are therefore taken of |x|' = max(|x|, floor), struct kvg_ref_floors: |q|' |k|' in the
 * logits, p' |v|' in the output. And the cut is towards zero: half a unit on average that does not cancel
 * from one term to the next, nor from key to key where all have their sign. It enters linearly
 * (`logit_bias`); only the other half unit, which strays either way, grows with the square root of the chain.
 * So with the chains of the output: half a unit per term and the stray (`narrow_cut`), from chain to chain by
 * squares, and once more the worst of it as a gain for where all chains lose alike.
 *
 * Rounded to nearest (FP16 sums of a vector unit): an addition, or a fused product and addition, errs by half
 * a step of its result, so a chain of n is off by at most (1 + u)^n - 1 of the sum of its terms' magnitudes,
 * u = 2^-bits, in either direction: no bias, and nothing is aligned, so there are no floors of operands. With
 * random roundings it is sqrt(n) u. Roundings of sums of the same numbers are the same, though: where a key
 * occurs r times, r errors of its logit are one, and so are those of the chains that it fills; Cauchy gives
 * (sum over r equal terms)^2 <= r sum of squares, and never more than the worst case. What FP32 takes over
 * after a flush is exact in FP32. Below the smallest normal of the accumulator's format half a step is no
 * longer relative: u times the smallest normal, declared in units of the operands since a kernel scales them
 * to where FP16 has its range. n such additions of a logit are a constant of the row (`qk_floor`, part of a),
 * those of the output add up linearly, or by squares (`pv_floor`).
 *
 * The gain test uses the probable bound without output rounding and as if both accumulators were FP32: what a
 * kernel declares of them is no excuse for a gain. It needs the noise in two parts: `shared`, which comes
 * from the weights and may push all dims of a row the same way, and `own`, from sums that each dim forms by
 * itself. A kernel that declares a narrow accumulator, however narrow, is measured by a standard instead, two
 * levels on Hopper's FP8 unit: `shared` gets the noise of its logits, units of 14 bits over head_dim
 * products, each lost by chance (variance 1/12 per term); one that rounds to nearest by FP16 sums (variance
 * 1/3 of a half step squared per addition). Where P is rounded to a few bits, a logit that strays by s moves
 * P across a boundary with chance s / step, by a step: variance s * step, at most 2^-3 s for three fraction
 * bits. Equal keys cross together, and where the row sum adds the unrounded P that is a gain. What the
 * standard loses by truncation stands in systematic.h.
 *
 * All in double; the unit is that of the output unless a name says `rel`.
 */
#ifndef KVG_HARNESS_VERIFY_BOUNDS_H
#define KVG_HARNESS_VERIFY_BOUNDS_H

#include <stdint.h>
#include "kernels/kernel.h"
#include "reference/attention.h"
#include "results/error.h"

/* Unit roundoffs: half a step over the value, 2^-(fraction bits + 1). */
#define KVG_U_F32 0x1p-24
#define KVG_U_BF16 0x1p-8

/* Chance that a right kernel fails one case, all checks together: less than one alarm a year at a thousand
 * cases a night. Split evenly over the random checks: element, lse, gain, offset, shares. */
#define KVG_FALSE_ALARMS_PER_CASE 3e-6
#define KVG_RANDOM_CHECKS 6
#define KVG_CHECK_ALPHA (KVG_FALSE_ALARMS_PER_CASE / KVG_RANDOM_CHECKS)

/* Constants of one sequence, from the declared arithmetic. */
struct kvg_bound {
    /* logits; factors of |scale| sum |q k| */
    double logit_rel;      /* all of it: operands, accumulation, scaling */
    double logit_noise;    /* the share that the emulation does not repeat, at most */
    double logit_fp32;     /* the same if the accumulator were FP32 */
    double logit_standard; /* narrow: stray of one logit of the standard, one standard deviation at most */
    double logit_bias;     /* half a unit for every term that a narrow accumulator cuts; 0 for FP32 */
    double logit_stray;    /* about that, at most: the rest of the worst case */
    double logit_common;   /* the same as one logit shows it with random roundings: sqrt(chain) for chain */
    double qk_floor; /* nearest: what sums below the smallest normal may lose more, over q_size of the row */
    struct kvg_ref_floors floors; /* of a narrow accumulator's operands; 0 for FP32 */
    /* softmax */
    double exp_rel;      /* one exponential, as declared */
    double cap_abs;      /* logit error of tanh, from the exponential it is made of; 0 without soft cap */
    double p_rel, p_abs; /* rounding of P: of the value, of the running max */

    int rounded_row_sum; /* row sum adds the rounded P */
    int64_t tile, split; /* keys between two running maxima, keys of a split; 0 = all visible keys */
    /* output */
    double v_rel;    /* rounding of V to its operand format; 0 where exact */
    double v_noise;  /* the share of it that the emulation does not repeat */
    double pv_unit;  /* error of one addition in the PV accumulator: 2^-24, or one step of a narrow one */
    double pv_floor; /* nearest: one addition below the smallest normal, over v_size of the row */
    int qk_narrow, pv_narrow; /* accumulator narrower than FP32 */
    int nearest;              /* and rounds to nearest */
    int64_t pv_flush;         /* keys between two flushes of a narrow accumulator; 0 = never */
    double out_rel;           /* rounding of the output */
    double out_floor;         /* smallest normal of the output format: below it a kernel may flush to zero */
};

/* How rare is rare: a share of a false-alarm rate over `count` numbers that are checked alike. */
struct kvg_bound_tail {
    double lambda;   /* two-sided Gaussian quantile of alpha / count */
    double log_odds; /* ln(2 count / alpha), for Bennett's inequality */
};
/* alpha: what a right kernel fails with, all `count` together; KVG_CHECK_ALPHA but in tests of the tails. */
void kvg_bound_make_tail(double alpha, int64_t count, struct kvg_bound_tail *out);

/* q_scale and k_scale exact powers of two make scaling before rounding exact: k_exact, v_exact say so.
 * Returns 0, or -1 when the declaration makes no sense (the error names field and value). */
int kvg_bound_init(struct kvg_bound *b, const struct kvg_problem *problem,
                   const struct kvg_arithmetic *declared, int k_exact, int v_exact, const char *kernel,
                   struct kvg_error *error);
/* What the reference has to sum up for it (logit_abs stays 0: `a` is added here, once the lse is known). */
void kvg_bound_model(const struct kvg_bound *b, struct kvg_ref_bound_model *model);
/* How far a kernel's logits may be from the emulated ones. */
void kvg_bound_drift(const struct kvg_bound *b, struct kvg_ref_drift_model *model);
/* The declaration as the emulating reference takes it. */
void kvg_bound_emulation(const struct kvg_arithmetic *declared, struct kvg_ref_emulation *how);

/* One row: what all its elements share. */
struct kvg_bound_row {
    /* from the reference */
    int64_t visible; /* keys */
    double lse;      /* exact */
    double shrink, grow, eta_sum, delta_mean, flip_sum, flip_same;
    /* of the inputs; read for narrow accumulators that round to nearest */
    double q_size;  /* |softmax_scale q_scale| max |q|, times k_scale unless K is scaled before */
    double v_size;  /* v_scale; 1 where V is scaled before */
    double repeats; /* keys of the sequence that are equal to each other, at most; below 1 counts as 1 */
    /* derived by kvg_bound_row */
    double a_worst;   /* row-constant logit error, every rescaling counted */
    double a_common;  /* the same for one exponential: what the probable bound adds linearly */
    double a_rescale; /* one rescaling */
    double rescales;  /* updates of the running max of a split, at most */

    double acc_pv, acc_l;             /* worst-case relative error of the two sums */
    double sum_noise;                 /* FP32 sums with random roundings, of sum p|v| */
    double narrow_worst, narrow_keys; /* narrow accumulator: error of one chain over its sum p|v|, its keys */
    double narrow_cut;                /* cut off: half a unit for every term, and the stray about that */
    double narrow_floor;              /* nearest: one addition below the smallest normal, of the output */
};
void kvg_bound_fill_row(const struct kvg_bound *b, struct kvg_bound_row *row);

/* Sums of one element, as in struct kvg_ref_terms. */
struct kvg_bound_element {
    double exact, emulated;
    double abs_pv, logit_shift, p_rounding, sq_pv, sq_logit;
    double abs_aligned, sq_aligned;  /* = abs_pv, sq_pv but for narrow accumulators */
    double flips, sq_flips, partial; /* as in struct kvg_ref_drift */
};
/* The part of the probable bound that the gain test allows (see above), and its usual size: standard
 * deviation with random roundings in the logits' sums too, where the bound takes their worst case. */
struct kvg_bound_noise {
    double shared, own, usual;
    double
        declared; /* as usual, but with the accumulators that the kernel declares: what rms.h predicts with */
    double standard; /* standard deviation of what the standard is granted; 0 where FP32 is declared */
};
double kvg_bound_worst(const struct kvg_bound *b, const struct kvg_bound_row *row,
                       const struct kvg_bound_element *e);

/* tail: of the elements; group: of the groups that the gain test makes of them, for the noise. */
double kvg_bound_probable(const struct kvg_bound *b, const struct kvg_bound_row *row,
                          const struct kvg_bound_element *e, const struct kvg_bound_tail *tail,
                          const struct kvg_bound_tail *group, struct kvg_bound_noise *noise);

/* Error of the log-sum-exp: worst against the exact one, probable against the emulated one. */
double kvg_bound_lse_worst(const struct kvg_bound *b, const struct kvg_bound_row *row);
double kvg_bound_lse_probable(const struct kvg_bound *b, const struct kvg_bound_row *row,
                              const struct kvg_bound_tail *tail);

/* Error over what is allowed. Above 1 fails a check. Never NaN:
 *
 *   got is NaN or infinite         infinity, whatever is allowed
 *   reference or allowed is NaN    infinity
 *   got equals the reference       0, even where nothing is allowed
 *   nothing is allowed             infinity
 *   allowed is infinite            0: such a bound is no limit
 */
double kvg_bound_ratio(double got, double reference, double allowed);

/* Bennett: smallest t with P(|sum| >= t) <= e^-log_odds' for independent zero-mean terms of variance
 * `variance` in all, none above `largest`. */
double kvg_bound_bennett(double variance, double largest, double log_odds);

#endif
