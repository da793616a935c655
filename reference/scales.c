/* SPDX-License-Identifier: Apache-2.0
 *
 * scales.c: computes scales from the values that a calibration saw. All arithmetic is FP32, as in PyTorch, so
 * that the scales have the bits that the calibration tools in use would write.
 */
#include "scales.h"

#include <math.h>

/* The larger of two magnitudes; NaN if either is NaN. */
static float larger(float a, float b)
{
    return isnan(a) || a > b ? a : b;
}

/* The absmax of sample s: of one head, or of all heads together (head < 0). */
static float observed(const float *absmax, int64_t s, int64_t heads, int64_t head)
{
    const float *sample = absmax + s * heads;
    if (head >= 0)
        return sample[head];
    float max = 0;
    for (int64_t h = 0; h < heads; h++)
        max = larger(sample[h], max);
    return max;
}

static float observe(const float *absmax, int64_t samples, int64_t heads, int64_t head,
                     enum kvg_ref_observer observer)
{
    float state = NAN; /* without a sample the scale is NaN, which kvg_ref_first_bad_scale reports */
    for (int64_t s = 0; s < samples; s++) {
        float x = observed(absmax, s, heads, head);
        if (s == 0 || observer == KVG_REF_MEMORYLESS_MINMAX)
            state = x;
        else if (observer == KVG_REF_STATIC_MINMAX)
            state = larger(x, state);
        else
            state = state + KVG_REF_MINMAX_AVERAGING_CONSTANT * (x - state);
    }
    return state;
}

void kvg_ref_scales_from_absmax(const float *absmax, int64_t samples, int64_t heads, int per_head,
                                enum kvg_ref_observer observer, float divisor, float *scale)
{
    if (!per_head) {
        scale[0] = observe(absmax, samples, heads, -1, observer) / divisor;
        return;
    }
    for (int64_t h = 0; h < heads; h++)
        scale[h] = observe(absmax, samples, heads, h, observer) / divisor;
}

float kvg_ref_absmax(enum kvg_ref_format format, const void *data, int64_t index, int64_t count)
{
    float max = 0, row[256];
    for (int64_t i = 0; i < count; i += 256) {
        int64_t n = count - i < 256 ? count - i : 256;
        kvg_ref_load_row(format, data, index + i, n, row);
        for (int64_t j = 0; j < n; j++)
            max = larger(fabsf(row[j]), max);
    }
    return max;
}

void kvg_ref_q_scale_to_kv_heads(const float *q_scale, int64_t q_heads, int64_t kv_heads, float *out)
{
    int64_t group = q_heads / kv_heads;
    for (int64_t g = 0; g < kv_heads; g++) {
        float max = q_scale[g * group];
        for (int64_t h = 1; h < group; h++)
            max = larger(q_scale[g * group + h], max);
        out[g] = max;
    }
}

int64_t kvg_ref_first_bad_scale(const float *scale, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!(scale[i] > 0 && isfinite(scale[i])))
            return i;
    return -1;
}
