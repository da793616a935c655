/* SPDX-License-Identifier: Apache-2.0
 *
 * rms.c: the sum of squared errors, its prediction and its limit.
 */
#include "rms.h"

#include <math.h>

#include "reference/formats.h"

/* An element is quiet where its noise is below this part of a step. */
#define QUIET 0.25

static void add_quiet(struct kvg_rms *s, float emulated, double usual, double step)
{
    const int k = kvg_systematic_cell(emulated);
    const double chance = fmin(1.0, 2.0 * usual / step);
    s->step_sq[k] += step * step;
    s->likely[k] += chance * step * step;
    s->expected += chance * step * step;
}

void kvg_rms_add_row(struct kvg_rms *s, int64_t head_dim, const uint16_t *got, const float *emulated,
                     const struct kvg_bound_noise *noise)
{
    double variance = 0.0;
    for (int64_t d = 0; d < head_dim; d++) {
        const double y = (double)kvg_ref_bf16_decode(got[d]);
        const double r = (double)kvg_ref_bf16_decode(kvg_ref_bf16_encode(emulated[d]));
        const double usual = noise[d].declared, step = kvg_systematic_step(r);
        if (!isfinite(y) || !isfinite(r) || !isfinite(usual))
            continue;
        s->count += 1.0;
        s->sum += (y - r) * (y - r);
        if (usual < QUIET * step) {
            add_quiet(s, emulated[d], usual, step);
            continue;
        }
        variance += usual * usual;
        s->rounding += step * step;
        s->rounding_sq += step * step * step * step;
        s->expected += usual * usual + step * step / 6.0;
    }
    s->noise += variance;
    s->noise_sq += variance * variance;
    s->noise_most = fmax(s->noise_most, variance);
}

static double quiet_limit(const struct kvg_rms *s, double log_odds)
{
    double mean = 0.0, variance = 0.0, largest = 0.0, all = 0.0;
    for (int k = 0; k < KVG_SIGNIFICAND_CELLS; k++) {
        mean += s->likely[k];
        variance += s->step_sq[k] * s->likely[k];
        largest = fmax(largest, s->step_sq[k]);
        all += s->step_sq[k];
    }
    return fmin(mean + kvg_bound_bennett(variance, largest, log_odds), all);
}

static double loud_limit(const struct kvg_rms *s, double log_odds)
{
    const double noise = s->noise + 2.0 * sqrt(log_odds * s->noise_sq) + 2.0 * log_odds * s->noise_most;
    const double rounding = fmin(s->rounding / 6.0 + sqrt(log_odds * s->rounding_sq / 2.0), s->rounding);
    return noise + 2.0 * sqrt(noise * rounding) + rounding;
}

void kvg_rms_finish(const struct kvg_rms *s, const struct kvg_bound_tail *tail, struct kvg_rms_result *out)
{
    out->rms = out->predicted = NAN;
    out->limit = INFINITY;
    if (!(s->count > 0.0))
        return;
    /* Quiet and loud elements share the chance of a false alarm. */
    const double log_odds = tail->log_odds + log(2.0);
    out->rms = sqrt(s->sum / s->count);
    out->predicted = sqrt(s->expected / s->count);
    out->limit = sqrt((quiet_limit(s, log_odds) + loud_limit(s, log_odds)) / s->count);
}
