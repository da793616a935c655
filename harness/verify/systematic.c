/* SPDX-License-Identifier: Apache-2.0
 *
 * systematic.c: gain and offset of a group of rows, and their limits.
 */
#include "systematic.h"

#include <math.h>
#include <string.h>

/* An output of zeros is off by a gain of 1. A limit of 1 or more cannot tell zeros from the right output. */
#define LARGEST_MEANINGFUL_LIMIT 1.0

/* bf16 has 7 fraction bits: the step is 2^-7 of the power of two below x. */
double kvg_systematic_step(double x)
{
    int exponent;
    frexp(x, &exponent); /* x = f 2^exponent, 1/2 <= f < 1 */
    return ldexp(1.0, (exponent < -125 ? -125 : exponent) - 8);
}

/* Noise moves an element by less than the last of these bits. */
uint32_t kvg_systematic_significand(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 7 & 0xffffu;
}

/* Fibonacci hash. */
int kvg_systematic_cell(float x)
{
    return (int)(kvg_systematic_significand(x) * 2654435769u >> 22);
}

void kvg_systematic_add_row(struct kvg_systematic *s, int64_t head_dim, const uint16_t *got,
                            const float *emulated, const struct kvg_bound_noise *noise, const float *loss,
                            const struct kvg_bound_tail *tail)
{
    double noise_gain = 0.0, noise_offset = 0.0, standard = 0.0;
    for (int64_t d = 0; d < head_dim; d++) {
        const uint16_t code = kvg_ref_bf16_encode(emulated[d]);
        const double y = (double)kvg_ref_bf16_decode(got[d]), r = (double)kvg_ref_bf16_decode(code);
        const double all = noise[d].shared + noise[d].own, lost = (double)loss[d];
        if (!isfinite(y) || !isfinite(r) || !isfinite(all))
            continue;
        const double error = y - r, size = fabs(r), step = kvg_systematic_step(r);
        s->count += 1.0;
        s->error += error;
        s->size += size;
        s->error_times_r += error * r;
        s->r_squared += r * r;
        s->loss_gain += lost * size;
        s->loss_offset += lost;
        noise_gain += noise[d].shared * size;
        noise_offset += noise[d].shared;
        standard += noise[d].standard * size;
        s->noise_gain += noise[d].own * size * (noise[d].own * size);
        s->noise_offset += noise[d].own * noise[d].own;
        /* The boundary has to lie within the usual size of the noise, on either side. `all` is a bound at the
         * quantile lambda; it is about lambda / 2 usual sizes, since parts of it are linear. The loss of the
         * standard is a usual size already. */
        const double chance = fmin(1.0, (4.0 * all / tail->lambda + 2.0 * lost) / step);
        const int k = kvg_systematic_cell(emulated[d]);
        s->step_gain[k] += step * size;
        s->step_offset[k] += step;
        s->likely_gain[k] += chance * step * size;
        s->likely_offset[k] += chance * step;
    }
    s->noise_gain += noise_gain * noise_gain;
    s->noise_offset += noise_offset * noise_offset;
    s->standard += standard * standard;
}

/* Tail of the sum of steps. Terms of one significand move together. */
static double steps_limit(const double *step, const double *likely, double log_odds)
{
    double variance = 0.0, largest = 0.0, all = 0.0;
    for (int k = 0; k < KVG_SIGNIFICAND_CELLS; k++) {
        variance += step[k] * likely[k]; /* chance * step^2 */
        largest = fmax(largest, step[k]);
        all += step[k];
    }
    return fmin(kvg_bound_bennett(variance, largest, log_odds), all);
}

void kvg_systematic_finish(const struct kvg_systematic *s, const struct kvg_bound_tail *tail,
                           double allowance, struct kvg_systematic_result *out)
{
    out->gain = out->offset = NAN;
    out->undefined = 0.0;
    out->gain_limit = out->offset_limit = INFINITY;
    if (!(s->count > 0.0))
        return;
    out->offset = s->error / s->count;
    out->offset_limit =
        (sqrt(s->noise_offset) + steps_limit(s->step_offset, s->likely_offset, tail->log_odds) +
         allowance * s->size + s->loss_offset) /
        s->count;
    if (!(s->r_squared > 0.0))
        return;
    out->gain_limit =
        (sqrt(s->noise_gain) + steps_limit(s->step_gain, s->likely_gain, tail->log_odds) + s->loss_gain) /
            s->r_squared +
        allowance;
    out->undefined = (tail->lambda * sqrt(s->standard) + s->loss_gain) / s->r_squared;
    if (out->gain_limit < LARGEST_MEANINGFUL_LIMIT)
        out->gain = 1.0 + s->error_times_r / s->r_squared;
}
