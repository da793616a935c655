/* SPDX-License-Identifier: Apache-2.0
 *
 * bounds.c: the bounds of bounds.h as arithmetic. Every factor is a named constant with its cause; none is
 * tuned.
 */
#include "bounds.h"

#include <float.h>
#include <gsl/gsl_cdf.h>
#include <math.h>
#include <string.h>

#include "harness/prepare/prepared.h"

/* FP32 roundings between the accumulated dot product and the argument of the exponential: the product of the
 * scales, its product with the dot product, the factor log2(e), the argument itself. */
#define SCALE_ROUNDINGS 4.0
/* Reciprocal of the row sum (2 units where it is approximate), its product, v_scale, and a reserve. 8 units
 * are still only 2^-21. */
#define DIVISION_ROUNDINGS 8.0
/* ln of the row sum plus the max: two results of the size of the lse, and a logarithm with an error of up to
 * 4 units. */
#define LSE_ROUNDINGS 4.0
/* A logit 16 + ln n below the max has a weight under 1e-7 / n. Anything lower is lost in the rounding, so the
 * running max that matters to the worst case is at most this far below the final one. */
#define WEIGHT_THAT_MATTERS 16.0
/* A matrix instruction adds a group of products and the accumulator. It truncates every term and the sum: two
 * truncations more than products. The smallest group has 16 products. */
#define GROUP_ADDENDS (18.0 / 16.0)
/* The standard of the gain test for accumulators that cut off: Hopper's FP8 unit, whose P has 3 fraction
 * bits. */
#define STANDARD_BITS 14
#define STANDARD_P_STEP 0x1p-3
/* The standard for accumulators that round to nearest: FP16, with at most CHAIN additions in a logit and sums
 * of KEYS keys. NORMAL is the smallest normal of FP16 in units of P times e5m2 codes, scaled so that sums of
 * KEYS of the largest code (57344) stay below 65504. */
#define STANDARD_NEAREST_NORMAL 0x1p-10
#define STANDARD_NEAREST_BITS 11
#define STANDARD_NEAREST_CHAIN 32.0
#define STANDARD_NEAREST_KEYS 16.0
/* Keys may be added up in lanes, every 16th key to one sum. Where neighbouring keys cancel, a lane can hold a
 * larger value than the running sum. */
#define LANES 16.0
/* The probable bound counts at most this many rescalings. More would need a max that rises in every tile, and
 * then the early tiles have no weight left. */
#define RESCALES_THAT_MATTER 256.0
/* Error of the references, relative to sum p|v|: worst case, and with random roundings. They have FP64 logits
 * and joins, FP32 weights, and FP32 chains of at most 32 additions. */
#define REFERENCE_WORST (34.0 * KVG_U_F32)
#define REFERENCE_REL (6.0 * KVG_U_F32)
#define REFERENCE_BLOCK 32.0
/* Keeps the arithmetic finite. A bound beyond e^50 accepts everything anyway. */
#define LARGEST_EXPONENT 50.0

static double unit_roundoff(enum kvg_ref_format format)
{
    return format == KVG_REF_F32 ? KVG_U_F32
                                 : ldexp(1.0, -kvg_ref_format_get_info(format)->mantissa_bits - 1);
}

/* Is every value of `from` a value of `to`? */
static int holds(enum kvg_dtype to, enum kvg_dtype from)
{
    if (to == from || to == KVG_F32)
        return 1;
    const struct kvg_ref_format_info *a = kvg_ref_format_get_info(kvg_ref_format_of(from));
    const struct kvg_ref_format_info *b = kvg_ref_format_get_info(kvg_ref_format_of(to));
    return from != KVG_F32 && a->mantissa_bits <= b->mantissa_bits && a->max <= b->max &&
           a->min_exponent - a->mantissa_bits >= b->min_exponent - b->mantissa_bits;
}

/* Rounding of a factor of `dtype` to its operand format. */
static double operand_rel(enum kvg_dtype operand, enum kvg_dtype dtype, int scaled_first, int scale_exact)
{
    if (scaled_first && !scale_exact)
        return unit_roundoff(kvg_ref_format_of(operand));
    return holds(operand, dtype) ? 0.0 : unit_roundoff(kvg_ref_format_of(operand));
}

/* Error of one addition: half a step where it rounds to nearest, a whole step where it cuts off. */
static double accumulator_unit(int bits, enum kvg_rounding rounding)
{
    return bits >= 24 ? KVG_U_F32 : ldexp(1.0, rounding == KVG_ROUND_NEAREST ? -bits : 1 - bits);
}

/* (1 + unit)^roundings - 1: a chain whose roundings all go the same way. */
static double compounded(double roundings, double unit)
{
    return expm1(roundings * log1p(unit));
}

/* Smallest normal of an operand format: the exponents of a matrix unit do not go lower. */
static double floor_of(enum kvg_dtype operand)
{
    return operand == KVG_F32 ? 0.0
                              : ldexp(1.0, kvg_ref_format_get_info(kvg_ref_format_of(operand))->min_exponent);
}

/* log2 of the factor that P has when it is rounded. */
static int p_offset(const struct kvg_arithmetic *d)
{
    return d->p_format == KVG_E4M3 || d->p_format == KVG_F16 ? d->p_offset_log2 : 0;
}

static void floors_of(const struct kvg_arithmetic *d, int qk_narrow, int pv_narrow,
                      struct kvg_ref_floors *floors)
{
    memset(floors, 0, sizeof *floors);
    if (d->accumulator_rounding == KVG_ROUND_NEAREST)
        return; /* nothing is aligned */
    floors->k_scaled = d->k_scaled_before_qk;
    floors->v_scaled = d->v_scaled_before_pv;
    if (qk_narrow)
        floors->q = floors->k = floor_of(d->qk_operand);
    if (pv_narrow) {
        floors->v = floor_of(d->pv_operand);
        floors->p = ldexp(floor_of(d->p_format), -p_offset(d));
    }
}

/* Stray of one logit of the standard, at most one standard deviation. Cuts are uniform over a unit, roundings
 * over half a unit to either side. 0 where the sums of the logits are FP32 and those of P V either are FP32
 * or round to nearest. */
static double standard_stray(const struct kvg_problem *problem, const struct kvg_arithmetic *d, double chain)
{
    const int nearest = d->accumulator_rounding == KVG_ROUND_NEAREST;
    if (d->qk_accumulator_bits >= 24 && (nearest || d->pv_accumulator_bits >= 24))
        return 0.0;
    if (!nearest)
        return sqrt(((double)problem->head_dim * GROUP_ADDENDS + 2.0) / 12.0) *
               accumulator_unit(STANDARD_BITS, KVG_ROUND_TRUNCATE);
    const double unit = fmin(accumulator_unit(STANDARD_NEAREST_BITS, KVG_ROUND_NEAREST),
                             accumulator_unit(d->qk_accumulator_bits, KVG_ROUND_NEAREST));
    return sqrt(fmin(chain, STANDARD_NEAREST_CHAIN) / 3.0) * unit;
}

/* Accumulation and scaling of one logit. `qk_floor`: below the smallest normal a sum that rounds to nearest
 * has the steps of the smallest normal. */
static void logit_errors(struct kvg_bound *b, const struct kvg_problem *problem,
                         const struct kvg_arithmetic *d, double q_rel, double k_rel)
{
    const double chain = (double)(d->qk_chain > 0 ? d->qk_chain : problem->head_dim);
    const double grouped = chain * GROUP_ADDENDS + 2.0;
    const double add = accumulator_unit(d->qk_accumulator_bits, d->accumulator_rounding);
    /* Products of two operands of at most 11 bits are exact in FP32. Wider ones round once, and scaled K
     * rounds once more where the emulation does not round it to an operand format. */
    const double product = d->qk_operand == KVG_F32 ? 2.0 * KVG_U_F32 : 0.0;
    const double scaling = product + SCALE_ROUNDINGS * KVG_U_F32;
    b->qk_narrow = d->qk_accumulator_bits < 24;
    const int nearest = b->qk_narrow && d->accumulator_rounding == KVG_ROUND_NEAREST;
    const double worst = (nearest ? compounded(chain, add) : grouped * add) + scaling;
    b->logit_bias = b->qk_narrow && !nearest ? 0.5 * worst : 0.0;
    b->logit_stray = worst - b->logit_bias;
    b->logit_common = sqrt(nearest ? chain : grouped) * add + scaling;
    /* FP32: the worst case is small enough to serve as the noise. */
    b->logit_noise = b->qk_narrow ? b->logit_bias + b->logit_common : worst;
    /* Each chain of a logit has such additions: with several chains there are as many as products. The sums of
     * two chains are exact there. */
    b->qk_floor = nearest ? fmax(chain, (double)problem->head_dim) * add * d->qk_smallest_normal : 0.0;
    b->logit_fp32 = grouped * KVG_U_F32 + scaling;
    b->logit_standard = standard_stray(problem, d, chain);
    b->logit_rel = (1.0 + q_rel) * (1.0 + k_rel) - 1.0 + worst * (1.0 + q_rel + k_rel);
}

static int check_declaration(const struct kvg_arithmetic *d, const char *kernel, struct kvg_error *error)
{
    const char *field = NULL;
    double value = 0.0;
    if (d->qk_accumulator_bits < 4 || d->qk_accumulator_bits > 64) {
        field = "qk_accumulator_bits (4 to 64)";
        value = d->qk_accumulator_bits;
    } else if (d->pv_accumulator_bits < 4 || d->pv_accumulator_bits > 64) {
        field = "pv_accumulator_bits (4 to 64)";
        value = d->pv_accumulator_bits;
    } else if (!(d->exp2_rel_error >= 0.0 && d->exp2_rel_error < 1.0)) {
        field = "exp2_rel_error (0 to 1)";
        value = d->exp2_rel_error;
    } else if (d->qk_chain < 0 || d->pv_flush_interval < 0 || d->tile < 0 || d->split_tokens < 0) {
        field = "qk_chain, pv_flush_interval, tile or split_tokens (0 or more)";
        value = (double)(d->qk_chain < 0            ? d->qk_chain
                         : d->pv_flush_interval < 0 ? d->pv_flush_interval
                         : d->tile < 0              ? d->tile
                                                    : d->split_tokens);
    } else if (d->p_offset_log2 < -64 || d->p_offset_log2 > 64) {
        field = "p_offset_log2 (-64 to 64)";
        value = d->p_offset_log2;
    } else if (d->accumulator_rounding != KVG_ROUND_TRUNCATE &&
               d->accumulator_rounding != KVG_ROUND_NEAREST) {
        field = "accumulator_rounding (0 = truncate, 1 = nearest)";
        value = d->accumulator_rounding;
    } else if (!(d->qk_smallest_normal >= 0.0 && d->qk_smallest_normal < 1.0) ||
               !(d->pv_smallest_normal >= 0.0 && d->pv_smallest_normal < 1.0)) {
        field = "qk_smallest_normal or pv_smallest_normal (0 or more, below 1)";
        value = d->qk_smallest_normal >= 0.0 && d->qk_smallest_normal < 1.0 ? d->pv_smallest_normal
                                                                            : d->qk_smallest_normal;
    }
    if (!field)
        return 0;
    return kvg_fail(error, KVG_EXIT_INCORRECT, "kernel %s declares %g for %s", kernel, value, field);
}

int kvg_bound_init(struct kvg_bound *b, const struct kvg_problem *problem, const struct kvg_arithmetic *d,
                   int k_exact, int v_exact, const char *kernel, struct kvg_error *error)
{
    memset(b, 0, sizeof *b);
    if (check_declaration(d, kernel, error) != 0)
        return -1;
    const double q_rel = operand_rel(d->qk_operand, problem->q_dtype, 0, 1);
    const double k_rel = operand_rel(d->qk_operand, problem->kv_dtype, d->k_scaled_before_qk, k_exact);
    logit_errors(b, problem, d, q_rel, k_rel);
    b->exp_rel = d->exp2_rel_error;
    /* tanh(x) = 1 - 2 / (e^2x + 1). A relative error of the exponential enters at most by half, as an
     * absolute error; the rest are FP32 roundings of numbers below 1. */
    b->cap_abs = problem->soft_cap > 0.0f
                     ? (double)problem->soft_cap * (2.0 * d->exp2_rel_error + 8.0 * KVG_U_F32)
                     : 0.0;
    const struct kvg_ref_format_info *p = kvg_ref_format_get_info(kvg_ref_format_of(d->p_format));
    b->p_rel = unit_roundoff(kvg_ref_format_of(d->p_format));
    if (d->p_format != KVG_F32)
        b->p_abs = ldexp(1.0, p->min_exponent - p->mantissa_bits - 1 - p_offset(d));
    b->rounded_row_sum = d->row_sum_of_rounded_p;
    b->tile = d->tile;
    b->split = d->split_tokens;
    b->v_rel = operand_rel(d->pv_operand, problem->kv_dtype, d->v_scaled_before_pv, v_exact);
    b->v_noise = d->pv_operand == KVG_F32 ? 2.0 * KVG_U_F32 : 0.0;
    b->nearest = d->accumulator_rounding == KVG_ROUND_NEAREST;
    b->pv_unit = accumulator_unit(d->pv_accumulator_bits, d->accumulator_rounding);
    b->pv_narrow = d->pv_accumulator_bits < 24;
    b->pv_floor = b->pv_narrow && b->nearest ? b->pv_unit * d->pv_smallest_normal : 0.0;
    b->pv_flush = d->pv_flush_interval;
    floors_of(d, b->qk_narrow, b->pv_narrow, &b->floors);
    const struct kvg_ref_format_info *out = kvg_ref_format_get_info(kvg_ref_format_of(problem->out_dtype));
    b->out_rel = unit_roundoff(kvg_ref_format_of(problem->out_dtype));
    b->out_floor = problem->out_dtype == KVG_F32 ? 0x1p-126 : ldexp(1.0, out->min_exponent);
    b->sink_in_maximum = d->sink_in_maximum;
    return 0;
}

void kvg_bound_model(const struct kvg_bound *b, struct kvg_ref_bound_model *model)
{
    model->logit_rel = b->logit_rel;
    model->logit_abs = 0.0;
    model->p_rel = b->p_rel;
    model->p_abs = b->p_abs;
    model->floors = b->floors;
    model->sink_in_maximum = b->sink_in_maximum;
}

void kvg_bound_drift(const struct kvg_bound *b, struct kvg_ref_drift_model *model)
{
    /* Where sums round to nearest, the running max strays like any logit and moves all keys of the tile. Its
     * stray and that of the key together stay within the key's worst case. */
    model->logit_rel = b->nearest && b->qk_narrow ? b->logit_stray : b->logit_noise;
    model->max_rel = SCALE_ROUNDINGS * KVG_U_F32;
    model->logit_abs = b->exp_rel + b->cap_abs + SCALE_ROUNDINGS * KVG_U_F32;
    model->floors = b->floors;
}

void kvg_bound_emulation(const struct kvg_arithmetic *d, struct kvg_ref_emulation *how)
{
    memset(how, 0, sizeof *how);
    how->q_operand = how->k_operand = kvg_ref_format_of(d->qk_operand);
    how->v_operand = kvg_ref_format_of(d->pv_operand);
    how->k_scaled_first = d->k_scaled_before_qk;
    how->v_scaled_first = d->v_scaled_before_pv;
    how->p_format = kvg_ref_format_of(d->p_format);
    how->p_offset_log2 = d->p_offset_log2;
    how->row_sum_of_rounded_p = d->row_sum_of_rounded_p;
    how->tile = d->tile;
    how->tile_last_first = d->tile_last_first;
    how->split_tokens = d->split_tokens;
    how->split_from_window = d->split_from_window;
    how->sink_in_maximum = d->sink_in_maximum;
}

void kvg_bound_make_tail(double alpha, int64_t count, struct kvg_bound_tail *out)
{
    const double each = alpha / (double)(count > 0 ? count : 1);
    out->lambda = gsl_cdf_ugaussian_Qinv(each / 2.0);
    out->log_odds = log(2.0 / each);
}

void kvg_bound_fill_row(const struct kvg_bound *b, struct kvg_bound_row *row)
{
    const double n = (double)(row->visible > 0 ? row->visible : 1);
    const double split = b->split > 0 && (double)b->split < n ? (double)b->split : n;
    const double splits = split < n ? ceil(n / split) + 1.0 : 1.0; /* a window may touch one split more */
    const double tile = b->tile > 0 && (double)b->tile < split ? (double)b->tile : split;
    const double sinks = row->sunk > 0.0 ? 1.0 : 0.0;
    const double merges = (splits > 1.0 ? 1.0 : 0.0) + sinks;
    /* lse - ln n <= max <= lse of the keys: this bounds the running max, which is not known here. */
    const double keys = row->lse - row->sunk;
    const double largest = fmax(fabs(row->lse), fmax(fabs(keys), fabs(keys - log(n)))) + 1.0;
    const double deepest = largest + WEIGHT_THAT_MATTERS + log(n);

    row->rescales = ceil(split / tile);
    row->a_rescale = b->exp_rel + 2.0 * KVG_U_F32 * largest;
    /* A merge weighs a split with e^(lse_split - lse): one exponential, two roundings of an lse. */
    const double merge = merges * (b->exp_rel + 2.0 * LSE_ROUNDINGS * KVG_U_F32 * largest);
    const double floor = b->qk_floor * row->q_size;
    row->a_common = b->exp_rel + SCALE_ROUNDINGS * KVG_U_F32 * largest + b->cap_abs + merge + floor;
    row->a_worst = b->exp_rel + SCALE_ROUNDINGS * KVG_U_F32 * deepest + b->cap_abs + merge + floor +
                   row->rescales * (b->exp_rel + 2.0 * KVG_U_F32 * deepest);

    row->narrow_keys = b->pv_flush > 0 && (double)b->pv_flush < split ? (double)b->pv_flush : split;
    const double units = row->narrow_keys * GROUP_ADDENDS + 2.0;
    row->narrow_worst = row->narrow_cut = 0.0;
    if (b->pv_narrow && b->nearest) {
        row->narrow_worst = compounded(row->narrow_keys, b->pv_unit);
    } else if (b->pv_narrow) {
        row->narrow_worst = units * b->pv_unit;
        row->narrow_cut = (0.5 * units + sqrt(units)) * b->pv_unit;
    }
    row->narrow_floor = b->pv_floor * row->v_size;
    const double additions = split + row->rescales + splits + 2.0 + sinks;
    row->acc_l = additions * KVG_U_F32;
    row->acc_pv = row->narrow_worst + additions * KVG_U_F32;
    row->sum_noise = sqrt(additions) * KVG_U_F32;
}

/* Rounding of P over the sum of the weights. `terms` bounds sum r before the weights grow; `weights` is the
 * sum that the relative part acts on. Where P cannot be subnormal, only the relative part counts. */
static double rounding_of_p(const struct kvg_bound *b, double terms, double grown, double shrink,
                            double weights)
{
    const double all = (terms + b->p_rel * grown) / shrink;
    return b->p_abs < KVG_U_F32 * KVG_U_F32 ? fmin(all, b->p_rel * weights) : all;
}

double kvg_bound_worst(const struct kvg_bound *b, const struct kvg_bound_row *row,
                       const struct kvg_bound_element *e)
{
    const double o = fabs(e->exact), n = (double)(row->visible > 0 ? row->visible : 1);
    const double up = exp(fmin(row->a_worst, LARGEST_EXPONENT)), more = up - 1.0;
    const double grow = row->grow * up + more; /* sum p (e^(delta + a) - 1) */
    const double shrink = row->shrink / up;
    if (!(shrink > 0.0))
        return INFINITY;
    /* e^(delta + a) - 1 = e^a (e^delta - 1) + (e^a - 1), and sum p|v - o| <= sum p|v| + |o|. */
    const double logits = up * e->logit_shift + more * (e->abs_pv + o);
    /* sum w^ |v| over sum w^, the smaller of two bounds: growing sums over shrinking ones; or |o| plus the
     * mean distance from it. The second is tight where one key has all the weight and an error of its logit
     * cancels. */
    const double weights =
        fmin((e->abs_pv + logits + o * grow) / shrink, o + (e->abs_pv + o + logits) / shrink);
    const double p_rounding = rounding_of_p(b, up * e->p_rounding, logits + o * grow, shrink, weights);
    const double row_sum = b->rounded_row_sum ? rounding_of_p(b, up * row->eta_sum, grow, shrink, 1.0) : 0.0;
    if (!(row_sum < 1.0))
        return INFINITY;
    /* Subnormal operands are aligned as if they were larger, in whichever direction the weights err. */
    const double aligned = fmax(e->abs_aligned - e->abs_pv, 0.0) / shrink;
    const double pv = (b->v_rel + b->v_noise + row->acc_pv) * (weights + p_rounding) +
                      row->narrow_worst * aligned + n * row->narrow_floor / shrink;
    double error = (logits / shrink + p_rounding + o * row_sum + pv) / (1.0 - row_sum);
    error += (row->acc_l + DIVISION_ROUNDINGS * KVG_U_F32) * (o + error);
    return error + b->out_rel * (o + error) + b->out_floor + REFERENCE_WORST * e->abs_pv;
}

double kvg_bound_ratio(double got, double reference, double allowed)
{
    const double error = fabs(got - reference);
    if (!isfinite(got) || isnan(error) || isnan(allowed))
        return INFINITY;
    if (error == 0.0 || isinf(allowed))
        return 0.0;
    return error / allowed;
}

double kvg_bound_bennett(double variance, double largest, double log_odds)
{
    if (!(variance > 0.0) || !(largest > 0.0))
        return 0.0;
    /* Solve h(u) = (1 + u) ln(1 + u) - u = log_odds M^2 / s^2, with s^2 = variance, M = largest; then
     * t = u s^2 / M. h is convex and increasing, so Newton's method from above converges from above.
     * h(u) >= u^2 / (2 + 2u/3) (Bernstein) gives the start. */
    const double y = log_odds * largest * largest / variance;
    double u = y / 3.0 + sqrt(y * y / 9.0 + 2.0 * y);
    for (int i = 0; i < 60; i++) {
        const double step = ((1.0 + u) * log1p(u) - u - y) / log1p(u);
        u -= step;
        if (fabs(step) <= 1e-9 * u)
            break;
    }
    return u * variance / largest;
}

/* The mean of delta over the keys alone: the sink, which delta_mean includes, has none. */
static double mean_of_keys(const struct kvg_bound_row *row)
{
    return row->delta_mean * exp(row->sunk);
}

/* Variance of an element where `share` of each logit's delta is noise. The first order in delta grows by
 * e^delta where the logits are so large that FP32 loses their units. */
static double logit_variance(double share, const struct kvg_bound_row *row, const struct kvg_bound_element *e)
{
    const double steep = share * exp(fmin(2.0 * share * mean_of_keys(row), LARGEST_EXPONENT));
    return steep * steep * e->sq_logit;
}

/* The same for the standard of narrow accumulators, whose share of delta is s:
 *
 *   sum p^2 (s^2 + step s) (v - o)^2
 *
 * The second part is for P rounded to a few bits that crosses a boundary. s varies little from key to key, so
 * its mean takes the place of one of the two factors. Equal keys stray and cross together; where the row sum
 * adds the unrounded P that is a gain, and v takes the place of v - o. It is never more than all keys
 * together can do. */
static double standard_variance(const struct kvg_bound *b, const struct kvg_bound_row *row,
                                const struct kvg_bound_element *e)
{
    const double share = b->logit_standard / b->logit_rel, mean = mean_of_keys(row);
    const double repeats = b->nearest ? fmax(row->repeats, 1.0) : 1.0;
    if ((!b->qk_narrow && !b->pv_narrow) || !(mean > 0.0))
        return 0.0;
    const double together = fmax(e->sq_logit, e->logit_shift * e->logit_shift);
    const double logits = fmin(repeats * e->sq_logit, together);
    double weights = logits / (mean * mean);
    if (repeats > 1.0 && !b->rounded_row_sum)
        weights = fmax(weights, fmin(repeats * e->sq_pv, e->abs_pv * e->abs_pv));
    return share * share * logits + fmin(STANDARD_P_STEP, 2.0 * b->p_rel) * share * mean * weights;
}

/* Error from weights that cross a rounding boundary; `moved` is the part of the row sum that moves with them.
 * Keys with equal logits cross together, so their part of the sum enters linearly. It enters twice, since
 * only the latest few logits are compared. Where logits stray by more than a step of P, the flips are the
 * stray itself, which has its own term; rounding adds no more than two roundings of P to that. */
static double moved_weights(const struct kvg_bound *b, const struct kvg_bound_row *row,
                            const struct kvg_bound_element *e, double quantile, double moved)
{
    const double o = fmax(fabs(e->emulated), fabs(e->exact));
    const double same = row->flip_sum > 0.0 ? fmin(2.0 * row->flip_same / row->flip_sum, 1.0) : 0.0;
    const double below_normal = fmax(e->p_rounding - b->p_rel * e->abs_pv, 0.0);
    const double twice = 2.0 * (quantile * b->p_rel * sqrt(e->sq_pv) + below_normal + same * e->p_rounding);
    const double flips = fmin(e->flips, quantile * sqrt(e->sq_flips) + same * e->flips);
    return (fmin(flips, twice) + moved * o) / fmax(1.0 - moved, DBL_MIN);
}

/* Variance from narrow accumulators of P V that round to nearest.
 *
 *   equal keys  Roundings are independent from one sum to the next, unless the sums are of the same numbers:
 *               (sum over equal keys)^2 <= repeats * sum of squares.
 *   chains      They are independent: (chain sum of p|v|)^2 <= keys * chain sum of p^2 v^2. Each of the
 *               `keys` additions of a chain rounds at most the sum of the chain.
 *
 * It is never more than the worst case, whatever the signs. */
static double nearest_sums(const struct kvg_bound_row *row, const struct kvg_bound_element *e, double keys,
                           double unit, double quantile)
{
    const double linear = compounded(keys, unit) * e->abs_pv / quantile;
    const double squares = keys * unit * (keys * unit) * e->sq_pv;
    return fmin(fmax(row->repeats, 1.0) * squares, linear * linear);
}

/* The logits, and the output with what it loses below the smallest normal. */
static double nearest_variance(const struct kvg_bound *b, const struct kvg_bound_row *row,
                               const struct kvg_bound_element *e, double logits, double quantile)
{
    const double repeats = fmax(row->repeats, 1.0), linear = e->logit_shift / quantile;
    const double n = (double)(row->visible > 0 ? row->visible : 1);
    const double floor = n * row->narrow_floor * row->narrow_floor;
    double variance = b->qk_narrow ? fmin(repeats * logits, linear * linear) : logits;
    if (b->pv_narrow)
        variance += nearest_sums(row, e, row->narrow_keys, b->pv_unit, quantile) + repeats * floor;
    return variance;
}

/* What the gain test grants the standard for sums that round to nearest: no bias, but every dim has its own
 * roundings. Never more than the kernel declares. */
static double nearest_standard(const struct kvg_bound *b, const struct kvg_bound_row *row,
                               const struct kvg_bound_element *e, double quantile)
{
    if (!b->nearest || !b->pv_narrow)
        return 0.0;
    const double unit = accumulator_unit(STANDARD_NEAREST_BITS, KVG_ROUND_NEAREST);
    const double n = (double)(row->visible > 0 ? row->visible : 1), repeats = fmax(row->repeats, 1.0);
    const double floor = fmin(row->narrow_floor, unit * STANDARD_NEAREST_NORMAL * row->v_size);
    return fmin(nearest_sums(row, e, STANDARD_NEAREST_KEYS, unit, quantile),
                nearest_sums(row, e, row->narrow_keys, b->pv_unit, quantile)) +
           repeats * n * floor * floor;
}

/* (1 - w)|o| times the errors of the lse of the keys and of the sink (section 8). `logit`: largest error of a
 * logit, as a factor of |scale| sum |q k|. */
static double sink_pull(const struct kvg_bound *b, const struct kvg_bound_row *row, double o, double logit,
                        double quantile)
{
    if (!(row->sunk > 0.0))
        return 0.0;
    const double rescales = sqrt(fmin(row->rescales, RESCALES_THAT_MATTER)) * row->a_rescale;
    const double keys =
        logit / b->logit_rel * mean_of_keys(row) + row->a_common + quantile * (row->sum_noise + rescales);
    /* |z| <= |lse| + |ln share|, and share |ln share| < 1. */
    const double share = -expm1(-row->sunk);
    const double sink =
        share * (b->exp_rel + SCALE_ROUNDINGS * KVG_U_F32 * fabs(row->lse)) + SCALE_ROUNDINGS * KVG_U_F32;
    return (share * expm1(fmin(keys, LARGEST_EXPONENT)) + sink) * o;
}

/* Largest error of a logit that the bound takes with this quantile, as a factor of |scale| sum |q k|. */
static double declared_logit(const struct kvg_bound *b, double quantile)
{
    return b->logit_bias + fmin(b->logit_stray, quantile * b->logit_common);
}

double kvg_bound_probable(const struct kvg_bound *b, const struct kvg_bound_row *row,
                          const struct kvg_bound_element *e, const struct kvg_bound_tail *tail,
                          const struct kvg_bound_tail *group, struct kvg_bound_noise *noise)
{
    const double o = fmax(fabs(e->emulated), fabs(e->exact));
    /* Largest sum that one addition or rescaling rounds: as the emulation saw it from tile to tile, doubled
     * for sums within a tile, plus what lanes that take every 16th key may add up to. */
    const double sum = 2.0 * e->partial + e->abs_pv / LANES;
    const double rescales = fmin(row->rescales, RESCALES_THAT_MATTER);
    /* Independent from key to key, from one rescaling to the next, from one addition to the next. */
    const double logits = logit_variance(b->logit_noise / b->logit_rel, row, e);
    const double fp32_logits = logit_variance(b->logit_fp32 / b->logit_rel, row, e);
    const double standard = standard_variance(b, row, e);
    const double shared =
        row->a_common * row->a_common * e->sq_pv + rescales * row->a_rescale * row->a_rescale * sum * sum;
    const double own = row->sum_noise * row->sum_noise * sum * sum + b->v_noise * b->v_noise * e->sq_pv;
    /* Where the row sum adds the rounded P, flips move the row sum too, and all is divided by what is left of
     * it. */
    const double moved = b->rounded_row_sum ? fmin(row->flip_sum, 1.0) : 0.0;
    const double flips = moved_weights(b, row, e, tail->lambda, moved);
    /* The same for all keys. */
    const double alike = row->a_common + b->v_noise + DIVISION_ROUNDINGS * KVG_U_F32;
    const double linear = (alike + tail->lambda * row->sum_noise) * o +
                          sink_pull(b, row, o, declared_logit(b, tail->lambda), tail->lambda);
    const double group_linear =
        (alike + group->lambda * row->sum_noise) * o +
        sink_pull(b, row, o, fmin(b->logit_fp32, declared_logit(b, group->lambda)), group->lambda);
    /* The references' own sums, in blocks: (block sum of p|v|)^2 <= keys * block sum of p^2 v^2. */
    const double block = fmin(e->abs_pv, sqrt(REFERENCE_BLOCK * e->sq_pv));
    const double floor = b->out_floor + 2.0 * REFERENCE_REL * (e->partial + block);
    /* A P that moves only because the accumulator of the logits is narrow does not excuse a gain either. */
    noise->shared = group->lambda * sqrt(fp32_logits + standard + shared) + group_linear;
    if (!b->qk_narrow)
        noise->shared += moved_weights(b, row, e, group->lambda, moved);
    const double granted = nearest_standard(b, row, e, group->lambda);
    noise->own = group->lambda * sqrt(own + granted) + floor;
    noise->standard = sqrt(standard + granted);
    const double random_logits =
        b->qk_narrow ? fp32_logits : logit_variance(b->logit_common / b->logit_rel, row, e);
    noise->usual = sqrt(fmin(fp32_logits, random_logits) + standard + shared + own + granted) +
                   (alike + row->sum_noise) * o + floor +
                   sink_pull(b, row, o, fmin(b->logit_fp32, declared_logit(b, 1.0)), 1.0);
    if (!b->qk_narrow)
        noise->usual += moved_weights(b, row, e, 1.0, moved);

    /* A narrow accumulator that cuts off: half a unit on average, and the stray about it. Chains are
     * independent: (chain sum of p|v|)^2 <= keys * chain sum of p^2 v^2. Where all cuts have one sign they
     * are a gain. */
    const double chain = fmin(sqrt(row->narrow_keys * e->sq_aligned), e->abs_aligned);
    const double cut = row->narrow_cut * row->narrow_cut * chain * chain;
    const double accumulators = b->nearest ? nearest_variance(b, row, e, logits, tail->lambda) : logits + cut;
    const double gain = b->nearest ? 0.0 : row->narrow_worst * o;
    noise->declared = b->qk_narrow || b->pv_narrow
                          ? sqrt(accumulators + shared + own) + moved_weights(b, row, e, 1.0, moved) +
                                (alike + row->sum_noise) * o + floor + gain +
                                sink_pull(b, row, o, declared_logit(b, 1.0), 1.0)
                          : noise->usual;
    const double error = tail->lambda * sqrt(accumulators + shared + own) + flips + linear + floor + gain;
    return error + b->out_rel * (o + error);
}

double kvg_bound_lse_worst(const struct kvg_bound *b, const struct kvg_bound_row *row)
{
    const double up = exp(fmin(row->a_worst, LARGEST_EXPONENT));
    const double grow = row->grow * up + up - 1.0, shrink = row->shrink / up;
    double row_sum = 0.0;
    if (!(shrink > 0.0))
        return INFINITY;
    if (b->rounded_row_sum)
        row_sum = rounding_of_p(b, up * row->eta_sum, grow, shrink, 1.0);
    if (!(row_sum < 1.0))
        return INFINITY;
    const double low = -log(shrink) - log1p(-row_sum), high = log1p(grow) + log1p(row_sum);
    return fmax(low, high) + row->acc_l +
           (LSE_ROUNDINGS * KVG_U_F32 + REFERENCE_WORST) * (fabs(row->lse) + 1.0);
}

double kvg_bound_lse_probable(const struct kvg_bound *b, const struct kvg_bound_row *row,
                              const struct kvg_bound_tail *tail)
{
    const double logit = declared_logit(b, tail->lambda) / b->logit_rel;
    double logits = logit * mean_of_keys(row);
    if (row->sunk > 0.0) /* ln(u + w e^x) is convex: above 0 it moves faster than w x */
        logits = log1p(exp(-row->sunk) * expm1(fmin(logits, LARGEST_EXPONENT)));
    double error = logits + row->a_common;
    error +=
        tail->lambda * (row->sum_noise + sqrt(fmin(row->rescales, RESCALES_THAT_MATTER)) * row->a_rescale);
    if (b->rounded_row_sum)
        error += row->flip_sum < 1.0 ? -log1p(-row->flip_sum) : INFINITY;
    return error + 2.0 * (LSE_ROUNDINGS * KVG_U_F32 + REFERENCE_REL) * (fabs(row->lse) + 1.0);
}
