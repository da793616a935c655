/* SPDX-License-Identifier: Apache-2.0
 *
 * bounds.h: how far a right kernel may be from the reference, derived from the arithmetic that it declares.
 *
 * 1. What a kernel computes
 *
 *   Exact attention, for one output element:
 *
 *     w_j = e^(s_j - m)      weight of key j; s_j its logit, m the largest logit
 *     W   = sum w_j          row sum
 *     p_j = w_j / W
 *     o   = sum p_j v_j      output
 *
 *   A kernel computes
 *
 *     o^ = sum_j (w_j e^(t_j) + r_j) v_j (1 + n_j)  /  sum_j w_j e^(t_j)
 *
 *   and adds the errors of its sums, of the division and of the rounding of the output. The terms:
 *
 *     t_j    all errors that act like an error of the logit; |t_j| <= delta_j + a
 *     delta_j    operands and accumulation of q.k, the softmax scale, the argument of the exponential.
 *                Proportional to |scale| sum_d |q_d k_jd|, with the factor `logit_rel`.
 *     a          the part that is the same for every key of a row: the exponential itself (once per weight,
 *                once more for each rescaling by a new running max, once more for the merge of splits), the
 *                rounding of the running max in the argument, and tanh of the soft cap.
 *     r_j    rounding of P to its format; |r_j| <= eta_j W
 *     eta_j      = min(p_j, max(2^-4 p_j, 2^-18 p_max)) for E4M3 with offset 2^8. Rounding to nearest errs by
 *                half a step: 2^-4 of the value, or half a subnormal step, 2^-10 / 2^8 = 2^-18 of the running
 *                max. The running max is never above the final max, so this holds for any order of the keys.
 *     n_j    rounding of V to its operand format; 0 where V is exact in it
 *
 * 2. The error to first order
 *
 *   sum w_j (v_j - o) = 0, so the error of o^ is the sum of
 *
 *     sum p_j (e^(t_j) - 1)(v_j - o)     logits
 *     sum r_j v_j / W                    rounding of P
 *     - o sum r_j / W                    only where the row sum adds the rounded P
 *     sum p_j n_j v_j                    rounding of V
 *
 *   over sum p_j e^(t_j). Further errors are added:
 *
 *     acc_pv sum p|v|     accumulation of P V
 *     acc_l |o|           accumulation of the row sum
 *     div |o|             division
 *     out_rel |o|         rounding of the output
 *
 * 3. Worst-case bound, against the exact reference
 *
 *   Every term enters by its absolute value. The bound is rigorous in the logits, and elsewhere first order
 *   with the cross terms that matter.
 *
 * 4. Probable bound, against the emulating reference
 *
 *   On V with mean zero the worst case grows with the number of keys n while o shrinks with sqrt(n). Beyond
 *   about 1000 keys the worst-case bound would accept an output of zeros. The emulating reference repeats
 *   every rounding that the kernel declares, so the probable bound only covers what it cannot repeat:
 *
 *     - the order of FP32 sums
 *     - the last bits of the exponential
 *     - the few P so close to a rounding boundary that such a last bit moves them across it
 *       (struct kvg_ref_drift)
 *
 *   How the terms enter:
 *
 *     by squares   Terms that are independent from key to key: the root of the sum of squares of their
 *                  largest sizes (Hoeffding: at least as wide as the true distribution), times `lambda`, the
 *                  quantile of the wanted false-alarm rate. P that cross a boundary enter like this too where
 *                  they are many and their logits differ.
 *     linearly     What hits all keys alike, and the rounding of the output, which is bounded and not
 *                  Gaussian. P that cross a boundary enter like this where they are few or their keys are
 *                  equal: equal keys have equal logits, so P moves for all of them or for none.
 *
 * 5. Narrow accumulators that cut off (matrix units)
 *
 *   A matrix unit shifts the terms of a step to the largest exponent among them, cuts off what falls below
 *   its last bit, and adds. Each term that is not zero loses less than one unit in the last place of the
 *   largest term.
 *
 *     chain      n additions are off by at most n 18/16 + 2 units: the accumulator is a term of every step, a
 *                step has 16 products or more, and the cut of the sum counts once more.
 *     exponents  "Largest" is decided by exponent. A subnormal operand has the exponent of the smallest
 *                normal, so a product can be aligned as if it were larger than it is: up to 2^3 (one factor
 *                in e4m3: P, V, Q or K) or 2^6 (both factors). Sizes that such a loss is proportional to are
 *                therefore taken of |x|' = max(|x|, floor), struct kvg_ref_floors: |q|' |k|' in the logits,
 *                p' |v|' in the output.
 *     bias       The cut is towards zero: half a unit on average, which does not cancel from term to term,
 *                nor from key to key where all have one sign. It enters linearly (`logit_bias`). Only the
 *                other half unit, which strays either way, grows with the square root of the chain.
 *     output     A chain enters with half a unit per term and the stray (`narrow_cut`), chains are added by
 *                squares, and the worst case of it enters once more as a gain, for chains that all lose
 *                alike.
 *
 * 6. Narrow accumulators that round to nearest (FP16 sums of a vector unit)
 *
 *     chain       An addition, or a fused product and addition, errs by half a step of its result. n of
 *                 them are off by at most (1 + u)^n - 1 of the sum of the magnitudes of their terms,
 *                 u = 2^-bits, in either direction. There is no bias. Nothing is aligned, so operands have no
 *                 floors. With random roundings the error is sqrt(n) u.
 *     equal keys  Sums of the same numbers round alike. Where a key occurs r times, the r errors of its logit
 *                 are one, and so are those of the chains that it fills. By Cauchy (sum over r equal
 *                 terms)^2 <= r sum of squares; it is never more than the worst case.
 *     flush       What FP32 takes over after a flush is exact in FP32.
 *     subnormals  Below the smallest normal of the accumulator's format half a step is no longer relative:
 *                 it is u times the smallest normal. This normal is declared in units of the operands, since
 *                 a kernel scales them to where FP16 has its range. The additions of a logit, of all
 *                 its chains together, are a constant of the row (`qk_floor`, part of a). Those of the output add up linearly, or by
 *                 squares (`pv_floor`).
 *
 * 7. The gain test (systematic.h)
 *
 *   It uses the probable bound without the rounding of the output, and as if both accumulators were FP32: a
 *   declared accumulator does not excuse a gain. It needs the noise in two parts:
 *
 *     shared   from the weights; it may push all dims of a row the same way
 *     own      from sums that each dim forms by itself
 *
 *   A kernel that declares a narrow accumulator, however narrow, is measured against a standard instead:
 *
 *     cuts off           Two levels of accumulation on Hopper's FP8 unit. `shared` gets the noise of its
 *                        logits: units of 14 bits over head_dim products, each lost by chance (variance 1/12
 *                        per term).
 *     rounds to nearest  FP16 sums (variance 1/3 of a half step squared per addition).
 *
 *   Where P is rounded to a few bits, a logit that strays by s moves P across a boundary with chance
 *   s / step, by one step: variance s step, at most 2^-3 s for three fraction bits. Equal keys cross
 *   together, and where the row sum adds the unrounded P that is a gain. What the standard loses by
 *   truncation is described in systematic.h.
 *
 * 8. Sinks
 *
 *   A sink z is one more key: logit z, value 0, weight u = e^(z - lse). With o_k and lse_k, the results of the
 *   keys alone, and w = e^(lse_k - lse) = 1 - u, the exact results are
 *
 *     o = w o_k,   lse = ln(e^(lse_k) + e^z)
 *
 *   Its logit is given, so its delta is 0; its weight is added as it is, so its eta is 0. Its t is at most a: one
 *   exponential and the rounding of its argument. All sums above run over the keys and the sink. So
 *   sum w_j (v_j - o) = 0 still holds, and with it sections 2 and 3: the reference adds the sink to `shrink`, and
 *   sum p|v - o| <= sum p|v| + |o| covers the a of the sink.
 *
 *     lse        d lse = w d lse_k + u dz: never more than that of the keys. An empty row has lse z. An error x
 *                of all logits moves it by ln(u + w e^x), which is convex in x.
 *     output     d o = w d o_k + u o (d lse_k - dz). Without a sink an error that is common to the logits of all
 *                keys cancels; with one it enters as the second term, linearly, as (1 - w)|o| times e^x - 1, x the
 *                allowed error of lse_k, and that of z. The probable bound and the noise of the gain test add it
 *                (`sink_pull`). As elsewhere, the gain test takes FP32 logits for it; the loss of the standard
 *                is taken with the sink.
 *     largest    The logits of the keys are as large as lse_k, not as lse: `sunk` = lse - lse_k.
 *     P          With sink_in_maximum P is rounded relative to the larger of the running max and z, so p_max is
 *                the largest weight, that of the sink included. Else it is the largest of the keys.
 *     additions  One more addition of the row sum and, at the end, one more rescaling of it.
 *
 * All numbers are doubles in units of the output, unless a name says `rel`.
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

/* Chance that a right kernel fails one case, all checks together: about one false alarm a year at a thousand
 * cases a night. It is split evenly over the checks whose limits are tails: probable, lse, gain, offset, rms,
 * and the three of classes of keys together. */
#define KVG_FALSE_ALARMS_PER_CASE 3e-6
#define KVG_RANDOM_CHECKS 6
#define KVG_CHECK_ALPHA (KVG_FALSE_ALARMS_PER_CASE / KVG_RANDOM_CHECKS)

/* Constants of one sequence, from the declared arithmetic. */
struct kvg_bound {
    /* logits; factors of |scale| sum |q k| */
    double logit_rel;      /* all of it: operands, accumulation, scaling */
    double logit_noise;    /* largest part that the emulation does not repeat */
    double logit_fp32;     /* the same if the accumulator were FP32 */
    double logit_standard; /* narrow: stray of one logit of the standard, at most one standard deviation */
    double logit_bias;     /* half a unit for every term that a narrow accumulator cuts; 0 for FP32 */
    double logit_stray;    /* largest distance from the bias: the rest of the worst case */
    double logit_common;   /* the stray with random roundings: sqrt(chain) in place of chain */
    double qk_floor;       /* nearest: extra loss of sums below the smallest normal, over q_size of the row */
    struct kvg_ref_floors floors; /* of the operands of a narrow accumulator; 0 for FP32 */
    /* softmax */
    double exp_rel;      /* one exponential, as declared */
    double cap_abs;      /* logit error of tanh, from the exponential it is made of; 0 without soft cap */
    double p_rel, p_abs; /* rounding of P: of the value, of the running max */

    int rounded_row_sum; /* 1: the row sum adds the rounded P */
    int64_t tile, split; /* keys between two running maxima, keys of a split; 0 = all visible keys */
    /* output */
    double v_rel;    /* rounding of V to its operand format; 0 where exact */
    double v_noise;  /* part of it that the emulation does not repeat */
    double pv_unit;  /* error of one addition in the PV accumulator: 2^-24, or one step of a narrow one */
    double pv_floor; /* nearest: error of one addition below the smallest normal, over v_size of the row */
    int qk_narrow, pv_narrow; /* 1: the accumulator is narrower than FP32 */
    int nearest;              /* 1: accumulators round to nearest, 0: they cut off */
    int64_t pv_flush;         /* keys between two flushes of a narrow accumulator; 0 = never */
    double out_rel;           /* rounding of the output */
    double out_floor;         /* smallest normal of the output format; below it a kernel may flush to zero */
    int sink_in_maximum;      /* 1: P is rounded relative to a maximum that includes the sink */
};

/* Quantiles of one of `count` numbers that share a false-alarm rate alpha. */
struct kvg_bound_tail {
    double lambda;   /* two-sided Gaussian quantile of alpha / count */
    double log_odds; /* ln(2 count / alpha), for Bennett's inequality */
};
/* alpha: chance that a right kernel fails any of the `count` numbers. KVG_CHECK_ALPHA, except in tests of the
 * tails. */
void kvg_bound_make_tail(double alpha, int64_t count, struct kvg_bound_tail *out);

/* k_exact, v_exact: 1 where all scales of K (V) are powers of two, so that scaling before rounding is exact.
 * Returns 0, or -1 when the declaration makes no sense (the error names field and value). */
int kvg_bound_init(struct kvg_bound *b, const struct kvg_problem *problem,
                   const struct kvg_arithmetic *declared, int k_exact, int v_exact, const char *kernel,
                   struct kvg_error *error);
/* What the reference has to sum up for the bounds. logit_abs stays 0: `a` is added by kvg_bound_fill_row,
 * which knows the lse. */
void kvg_bound_model(const struct kvg_bound *b, struct kvg_ref_bound_model *model);
/* How far a kernel's logits may be from the emulated ones. */
void kvg_bound_drift(const struct kvg_bound *b, struct kvg_ref_drift_model *model);
/* The declaration in the terms of the emulating reference. */
void kvg_bound_emulation(const struct kvg_arithmetic *declared, struct kvg_ref_emulation *how);

/* What all elements of a row share. */
struct kvg_bound_row {
    /* from the reference */
    int64_t visible; /* keys */
    double lse;      /* exact */
    double shrink, grow, eta_sum, delta_mean, flip_sum, flip_same;
    double sunk; /* how far the sink raises the lse; 0 without a sink */
    /* from the inputs; only read for narrow accumulators that round to nearest */
    double q_size;  /* |softmax_scale q_scale| max |q|, times k_scale unless K is scaled before the product */
    double v_size;  /* v_scale; 1 where V is scaled before the product */
    double repeats; /* largest number of equal keys in the sequence; below 1 counts as 1 */
    /* derived by kvg_bound_fill_row */
    double a_worst;   /* logit error that is constant in the row, every rescaling counted */
    double a_common;  /* the same for one exponential: the probable bound adds it linearly */
    double a_rescale; /* error of one rescaling */
    double rescales;  /* largest number of updates of the running max of a split */

    double acc_pv, acc_l; /* worst-case relative error of the two sums */
    double sum_noise;     /* error of FP32 sums with random roundings, over sum p|v| */
    double narrow_worst;  /* narrow accumulator: error of one chain over its sum p|v| */
    double narrow_keys;   /* keys of such a chain */
    double narrow_cut;    /* cut off: half a unit for every term, and the stray about it */
    double narrow_floor;  /* nearest: one addition below the smallest normal, in units of the output */
};
void kvg_bound_fill_row(const struct kvg_bound *b, struct kvg_bound_row *row);

/* Sums of one element, as in struct kvg_ref_terms. */
struct kvg_bound_element {
    double exact, emulated;
    double abs_pv, logit_shift, p_rounding, sq_pv, sq_logit;
    double abs_aligned, sq_aligned;  /* with floors; abs_pv and sq_pv except for narrow accumulators */
    double flips, sq_flips, partial; /* as in struct kvg_ref_drift */
};
/* The noise of an element before its rounding to the output format. */
struct kvg_bound_noise {
    double shared, own; /* what the gain test allows at the quantile of its groups; see section 7 */
    double usual;    /* usual size of both: one standard deviation, with random roundings in the sums of the
                           logits too, where the bound takes their worst case */
    double declared; /* as usual, but with the accumulators that the kernel declares; for rms.h */
    double standard; /* standard deviation of what the standard is granted; 0 where FP32 is declared */
};
double kvg_bound_worst(const struct kvg_bound *b, const struct kvg_bound_row *row,
                       const struct kvg_bound_element *e);

/* tail: of the elements. group: of the groups of the gain test, for the noise. */
double kvg_bound_probable(const struct kvg_bound *b, const struct kvg_bound_row *row,
                          const struct kvg_bound_element *e, const struct kvg_bound_tail *tail,
                          const struct kvg_bound_tail *group, struct kvg_bound_noise *noise);

/* Allowed error of the log-sum-exp: worst against the exact one, probable against the emulated one. */
double kvg_bound_lse_worst(const struct kvg_bound *b, const struct kvg_bound_row *row);
double kvg_bound_lse_probable(const struct kvg_bound *b, const struct kvg_bound_row *row,
                              const struct kvg_bound_tail *tail);

/* The same for a row without a visible key, whose lse is its sink. */
double kvg_bound_lse_empty(double sink);
/* The ratio of such an lse, as kvg_bound_ratio. `sink` is -infinity without one. */
double kvg_bound_empty_ratio(double lse, double sink);

/* Error over what is allowed. Above 1 fails a check. Never NaN:
 *
 *   got is NaN or infinite         infinity, whatever is allowed
 *   reference or allowed is NaN    infinity
 *   got equals the reference       0, even where nothing is allowed
 *   nothing is allowed             infinity
 *   allowed is infinite            0: such a bound is no limit
 */
double kvg_bound_ratio(double got, double reference, double allowed);

/* Bennett's inequality: smallest t with P(sum >= t) <= e^-log_odds, for independent terms with mean zero, of
 * variance `variance` in all, none above `largest`. */
double kvg_bound_bennett(double variance, double largest, double log_odds);

#endif
