/* SPDX-License-Identifier: Apache-2.0
 *
 * rms.h: is the error, all elements of a case together, as large as random rounding makes it?
 *
 * The probable bound allows every element the quantile of a tail. A kernel whose noise is a few times what it
 * declares in every element stays below that bound. So the squared errors of all sampled elements are added
 * up,
 *
 *   T = sum (y - R)^2       y  the output
 *                           R  the emulated output, rounded to the output format
 *
 * and compared with what noise of the declared size s (struct kvg_bound_noise) makes of T:
 *
 *   quiet elements   s is below a quarter of a step of the output. Then y is R, or one step off where the
 *                    noise carries it across a rounding boundary, with a chance of at most c = s / step on
 *                    either side. T is sum c step^2. It strays from that as in systematic.h: elements of one
 *                    significand step together, and Bennett's inequality holds over significands.
 *   loud elements    y - R is noise plus a difference of two roundings, which is at most a step and has
 *                    variance step^2 / 6. Noise may push all elements of a row alike; rows are independent.
 *                    With v_r = sum s^2 of a row, sum noise^2 <= sum v_r + 2 sqrt(x sum v_r^2) + 2 x max v_r
 *                    except with probability e^-x (Hsu, Kakade and Zhang, 2012, for sub-Gaussian noise). The
 *                    roundings are bounded by Hoeffding's inequality, the sum of both by Minkowski's.
 */
#ifndef KVG_HARNESS_VERIFY_RMS_H
#define KVG_HARNESS_VERIFY_RMS_H

#include <stdint.h>
#include "bounds.h"
#include "systematic.h"

/* Sums over the rows of a case; start from zeros. */
struct kvg_rms {
    double count, sum;                     /* elements; T */
    double expected;                       /* sum of c step^2 and of s^2 + step^2 / 6 */
    double step_sq[KVG_SIGNIFICAND_CELLS]; /* quiet: sum of step^2 by significand */
    double likely[KVG_SIGNIFICAND_CELLS];  /* quiet: sum of c step^2 by significand */
    double noise, noise_sq, noise_most;    /* loud: sum, sum of squares and maximum of v_r */
    double rounding, rounding_sq;          /* loud: sum of step^2 and of step^4 */
};

/* Adds one row; arguments as for kvg_systematic_add_row. Elements that are not finite are left out. */
void kvg_rms_add_row(struct kvg_rms *s, int64_t head_dim, const uint16_t *got, const float *emulated,
                     const struct kvg_bound_noise *noise);

struct kvg_rms_result {
    double rms;       /* sqrt(T / elements), in units of the output; NaN without elements */
    double predicted; /* the same of the expected sum */
    double limit;     /* largest allowed rms */
};
void kvg_rms_finish(const struct kvg_rms *s, const struct kvg_bound_tail *tail, struct kvg_rms_result *out);

#endif
