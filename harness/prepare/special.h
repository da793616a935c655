/* SPDX-License-Identifier: Apache-2.0
 *
 * special.h: source values and scales under which faults of rounding show.
 *
 * A fault of a conversion shows on few values: where the quotient of value and scale lies on the midpoint between
 * two codes or within one bit of it, where it is subnormal, at the largest code, at zeros of both signs, and at
 * NaN and infinity. Random values hold them by luck. The lists here begin with them, so that a few hundred
 * elements hold all kinds.
 */
#ifndef KVG_HARNESS_PREPARE_SPECIAL_H
#define KVG_HARNESS_PREPARE_SPECIAL_H

#include <stdint.h>

#include "reference/formats.h"

struct kvg_prepared;

/* Scale number i (any i >= 0; they repeat after KVG_SPECIAL_SCALES) for a format: 1 and scales whose quotients
 * with some bf16 values are midpoints where the product with the reciprocal is not; and each of them one bit
 * larger and one bit smaller, so that the same quotients lie beside the midpoints. */
enum { KVG_SPECIAL_SCALES = 8 };
float kvg_special_scale(enum kvg_ref_format format, int64_t i);

/* How a quotient is computed: as a store does, or as the quantiser of Q does. */
enum kvg_special_rule { KVG_SPECIAL_DIVIDE, KVG_SPECIAL_RECIPROCAL };

/* For each scale a list of bf16 values, those that show faults first. */
struct kvg_special {
    enum kvg_ref_format format;
    uint16_t *values[KVG_SPECIAL_SCALES];
    int64_t count[KVG_SPECIAL_SCALES];
};
/* -1 on out of memory; there is nothing to free then. */
int kvg_special_make(enum kvg_ref_format format, enum kvg_special_rule rule, struct kvg_special *special);
void kvg_special_free(struct kvg_special *special);
/* Value i of the list of a scale. After the end of the list every bf16 value follows in turn. */
uint16_t kvg_special_value(const struct kvg_special *special, int64_t scale, int64_t i);

/* Fills Q [tokens, heads, dim] and scale [count]; KV head h takes the list of scale round + h. `group` is the
 * number of heads of Q for one scale. */
void kvg_special_fill(const struct kvg_special *special, int64_t round, int64_t tokens, int64_t heads,
                      int64_t group, int64_t dim, int64_t scale_stride, uint16_t *values, float *scale);

/* The nth scale x / m under which the quotient of the bf16 value x is m, half way between two codes, while
 * the product with the reciprocal of the scale rounds to another code. Few scales have such a bf16 value. */
float kvg_scale_with_ties(enum kvg_ref_format format, int64_t nth);

/* For phase store: fills K and V of a prepared case with special values, sets its scales, and makes the caches
 * from them. `round` chooses the scales; V has others than K. `special` is for the dtype of the cache; NULL for
 * a bf16 cache, whose K and V get every bf16 value in turn. kvg_prepared_renew restores ordinary values. */
void kvg_prepared_special(struct kvg_prepared *p, const struct kvg_special *special, int64_t round);

/* For attention on an FP8 cache: writes codes at which kernels go wrong into keys that queries see, in every
 * sequence and head: zeros of both signs, the smallest and the largest subnormal, the smallest normal and the
 * largest codes of both signs. V of the last visible key gets all of them, K of a key before it zeros and
 * subnormals alone: a largest code of K would make its key outweigh all others. kvg_prepared_renew restores ordinary values. */
void kvg_prepared_special_codes(struct kvg_prepared *p);

#endif
