/* SPDX-License-Identifier: Apache-2.0
 *
 * ways.h: other ways to quantise a value than the right one. Private to the room.
 */
#ifndef KVG_HARNESS_DIAGNOSE_WAYS_H
#define KVG_HARNESS_DIAGNOSE_WAYS_H

#include "failure.h"

enum kvg_way {
    KVG_WAY_RECIPROCAL,
    KVG_WAY_SCALE_1,
    KVG_WAY_SCALE_OF_HEAD_0,
    KVG_WAY_SCALE_OF_NEXT_HEAD,
    KVG_WAY_SCALE_OF_OTHER_TENSOR,
    KVG_WAY_SCALE_TWICE,
    KVG_WAY_SCALE_INVERTED,
    KVG_WAY_SCALE_0,
    KVG_WAY_TRUNCATED,
    KVG_WAY_TIES_AWAY,
    KVG_WAY_ROUNDED_TWICE,
    KVG_WAY_THROUGH_F16,
    KVG_WAY_OVERFLOW_NAN,
    KVG_WAY_SATURATED_240,
    KVG_WAY_CLIPPED,
    KVG_WAY_SUBNORMALS_LOST,
    KVG_WAY_NEGATIVE_ZERO_LOST,
    KVG_WAY_NAN_ZERO,
    KVG_WAY_INFINITY_NAN,
    KVG_WAY_AS_E4M3,
    KVG_WAY_AS_E5M2,
    KVG_WAYS
};

enum kvg_fault_class kvg_way_class(enum kvg_way way);
const char *kvg_way_words(enum kvg_way way); /* "quantised with scale 1", ... */

/* The scale that the way takes for a head. `other`: the scales of the other tensor. */
float kvg_way_scale(enum kvg_way way, const float *scale, const float *other, int64_t head, int64_t heads,
                    int64_t stride);
/* The code of a value. clip: the bound of KVG_WAY_CLIPPED. */
uint8_t kvg_way_code(enum kvg_way way, enum kvg_ref_format format, float value, float scale, float clip);

#endif
