/* SPDX-License-Identifier: Apache-2.0
 *
 * ways.c: see ways.h.
 */
#include "ways.h"

#include <math.h>

static const struct {
    enum kvg_fault_class fault;
    const char *words;
} ways[KVG_WAYS] = {
    [KVG_WAY_RECIPROCAL] = {KVG_FAULT_ENCODING,
                            "multiplied by the reciprocal of the scale instead of divided"},
    [KVG_WAY_SCALE_1] = {KVG_FAULT_SCALE_DROPPED, "quantised with scale 1"},
    [KVG_WAY_SCALE_OF_HEAD_0] = {KVG_FAULT_SCALE_MISAPPLIED, "quantised with the scale of head 0"},
    [KVG_WAY_SCALE_OF_NEXT_HEAD] = {KVG_FAULT_SCALE_MISAPPLIED, "quantised with the scale of the next head"},
    [KVG_WAY_SCALE_OF_OTHER_TENSOR] = {KVG_FAULT_SCALE_MISAPPLIED,
                                       "K quantised with v_scale, V with k_scale"},
    [KVG_WAY_SCALE_TWICE] = {KVG_FAULT_SCALE_MISAPPLIED, "divided by the scale twice"},
    [KVG_WAY_SCALE_INVERTED] = {KVG_FAULT_SCALE_MISAPPLIED, "multiplied by the scale"},
    [KVG_WAY_SCALE_0] = {KVG_FAULT_SCALE_MISAPPLIED, "divided by a scale of zero"},
    [KVG_WAY_TRUNCATED] = {KVG_FAULT_ENCODING, "rounded towards zero"},
    [KVG_WAY_TIES_AWAY] = {KVG_FAULT_ENCODING, "ties rounded away from zero"},
    [KVG_WAY_ROUNDED_TWICE] = {KVG_FAULT_ENCODING, "rounded to bf16 before it is rounded to FP8"},
    [KVG_WAY_THROUGH_F16] = {KVG_FAULT_ENCODING, "rounded to FP16 before it is rounded to FP8"},
    [KVG_WAY_OVERFLOW_NAN] = {KVG_FAULT_ENCODING, "NaN instead of the largest finite value"},
    [KVG_WAY_SATURATED_240] = {KVG_FAULT_ENCODING, "saturated at 240"},
    [KVG_WAY_CLIPPED] = {KVG_FAULT_ENCODING, "clipped below the largest finite value"},
    [KVG_WAY_SUBNORMALS_LOST] = {KVG_FAULT_ENCODING, "subnormal codes stored as zero"},
    [KVG_WAY_NEGATIVE_ZERO_LOST] = {KVG_FAULT_ENCODING, "minus zero stored as plus zero"},
    [KVG_WAY_NAN_ZERO] = {KVG_FAULT_ENCODING, "NaN stored as zero"},
    [KVG_WAY_INFINITY_NAN] = {KVG_FAULT_ENCODING, "an infinity stored as NaN"},
    [KVG_WAY_AS_E4M3] = {KVG_FAULT_ENCODING, "stored as e4m3, whatever the cache's dtype"},
    [KVG_WAY_AS_E5M2] = {KVG_FAULT_ENCODING, "stored as e5m2, whatever the cache's dtype"},
};

enum kvg_fault_class kvg_way_class(enum kvg_way way)
{
    return ways[way].fault;
}

const char *kvg_way_words(enum kvg_way way)
{
    return ways[way].words;
}

float kvg_way_scale(enum kvg_way way, const float *scale, const float *other, int64_t head, int64_t heads,
                    int64_t stride)
{
    const float own = scale[head * stride];
    switch (way) {
    case KVG_WAY_SCALE_1:
        return 1.0f;
    case KVG_WAY_SCALE_OF_HEAD_0:
        return scale[0];
    case KVG_WAY_SCALE_OF_NEXT_HEAD:
        return scale[(head + 1) % heads * stride];
    case KVG_WAY_SCALE_OF_OTHER_TENSOR:
        return other[head * stride];
    case KVG_WAY_SCALE_TWICE:
        return own * own;
    case KVG_WAY_SCALE_INVERTED:
        return 1.0f / own;
    case KVG_WAY_SCALE_0:
        return 0.0f;
    default:
        return own;
    }
}

uint8_t kvg_way_code(enum kvg_way way, enum kvg_ref_format format, float value, float scale, float clip)
{
    float x = way == KVG_WAY_RECIPROCAL ? value * (1.0f / scale) : value / scale;
    const float largest = (float)kvg_ref_format_get_info(format)->max;
    const float smallest = ldexpf(1.0f, kvg_ref_format_get_info(format)->min_exponent);
    if (way == KVG_WAY_AS_E4M3 || way == KVG_WAY_AS_E5M2)
        format = way == KVG_WAY_AS_E4M3 ? KVG_REF_E4M3 : KVG_REF_E5M2;
    if (way == KVG_WAY_ROUNDED_TWICE)
        x = kvg_ref_round(KVG_REF_BF16, x);
    if (way == KVG_WAY_THROUGH_F16)
        x = kvg_ref_round(KVG_REF_F16, x);
    if ((way == KVG_WAY_OVERFLOW_NAN && fabsf(x) > largest) || (way == KVG_WAY_INFINITY_NAN && isinf(x)))
        x = NAN;
    if (way == KVG_WAY_SATURATED_240 && !isnan(x))
        x = fminf(fmaxf(x, -240.0f), 240.0f);
    if (way == KVG_WAY_CLIPPED && !isnan(x))
        x = fminf(fmaxf(x, -clip), clip);
    if (way == KVG_WAY_NAN_ZERO && isnan(x))
        x = 0.0f;
    uint8_t code = kvg_ref_fp8_encode(format, x);
    const float back = kvg_ref_fp8_decode(format, code);
    if (way == KVG_WAY_TRUNCATED && fabsf(back) > fabsf(x))
        code--;
    if (way == KVG_WAY_TIES_AWAY && fabsf(back) < fabsf(x) &&
        fabsf(kvg_ref_fp8_decode(format, (uint8_t)(code + 1))) - fabsf(x) == fabsf(x) - fabsf(back))
        code++;
    if (way == KVG_WAY_SUBNORMALS_LOST && fabsf(back) < smallest)
        code &= 0x80;
    if (way == KVG_WAY_NEGATIVE_ZERO_LOST && code == 0x80)
        code = 0;
    return code;
}
