/* SPDX-License-Identifier: Apache-2.0
 *
 * special.h: source values and scales under which faults of rounding show.
 *
 * A fault of a conversion shows on few values: where the quotient of value and scale lies on the midpoint
 * between two codes or within one bit of it, where it is subnormal, at the largest code, at zeros of both
 * signs, and at NaN and infinity. Random values hold them by luck. The lists here begin with them, so that a
 * few hundred elements hold all kinds.
 */
#ifndef KVG_HARNESS_PREPARE_SPECIAL_H
#define KVG_HARNESS_PREPARE_SPECIAL_H

#include <stdint.h>

#include "reference/formats.h"

struct kvg_prepared;

/* How a quotient is computed: as a store does, or as the quantiser of Q does. */
enum kvg_special_rule { KVG_SPECIAL_DIVIDE, KVG_SPECIAL_RECIPROCAL };

/* Scales, and for each a list of bf16 values. The lists 0 to 3 hold all kinds, and so do the lists 4 to 7:
 *   0, 4  some quotients are midpoints where the product with the reciprocal of the scale is not, or the
 *         other way round
 *   1, 5  the midpoints between neighbouring codes, all of them, subnormal codes included
 *   2, 7  values one bit of FP32 below each midpoint
 *   3, 6  values one bit above each midpoint */
enum { KVG_SPECIAL_SCALES = 8 };
struct kvg_special {
    enum kvg_ref_format format;
    float scale[KVG_SPECIAL_SCALES];
    uint16_t *values[KVG_SPECIAL_SCALES]; /* values that show faults come first */
    int64_t count[KVG_SPECIAL_SCALES];
    int64_t telling; /* so many values at the beginning of each list, at most, show faults */
};
/* `format` is an FP8 format. -1 on out of memory; there is nothing to free then. */
int kvg_special_make(enum kvg_ref_format format, enum kvg_special_rule rule, struct kvg_special *special);
void kvg_special_free(struct kvg_special *special);
/* Value i of the list of a scale. After the end of the list every bf16 value follows in turn. */
uint16_t kvg_special_value(const struct kvg_special *special, int64_t scale, int64_t i);

/* A tensor of special values. */
struct kvg_special_shape {
    int64_t tokens, heads, dim;
    int64_t group;        /* number of heads for one scale, where the stride is 1 */
    int64_t scale_stride; /* 0: one scale for all heads */
    const int64_t *slots; /* tokens with a negative slot get no special value; NULL: all tokens get one */
};
/* Fills values [tokens, heads, dim] and scale [1 or heads / group]. Scale g is number (round + g) modulo
 * KVG_SPECIAL_SCALES. After each KVG_SPECIAL_SCALES rounds the lists go on where they stopped. */
void kvg_special_fill(const struct kvg_special *special, const struct kvg_special_shape *shape, int64_t round,
                      uint16_t *values, float *scale);
/* Number of tokens that hold the longest list. More tokens are of no use. */
int64_t kvg_special_tokens(const struct kvg_special *special, const struct kvg_special_shape *shape);
/* Number of rounds after which all telling values of all scales were used. A multiple of KVG_SPECIAL_SCALES;
 * 0 for an empty tensor. */
int64_t kvg_special_rounds(const struct kvg_special *special, const struct kvg_special_shape *shape);

/* The nth scale x / m under which the quotient of the bf16 value x is m, half way between two codes, while
 * the product with the reciprocal of the scale rounds to another code. Few scales have such a bf16 value. */
float kvg_scale_with_ties(enum kvg_ref_format format, int64_t nth);

/* For phase store: fills K and V of a prepared case with special values, sets its scales, and makes the
 * caches from them. `round` chooses the scales; V has others than K. `special` is for the dtype of the cache;
 * NULL for a bf16 cache, whose K and V get every bf16 value in turn. With `special`, only as many tokens are
 * stored as the lists need; the slots of the others become -1. kvg_prepared_renew restores ordinary values
 * and slots. */
void kvg_prepared_special(struct kvg_prepared *p, const struct kvg_special *special, int64_t round);
/* Number of rounds of kvg_prepared_special after which K and V have each had all telling values. */
int64_t kvg_prepared_special_rounds(const struct kvg_prepared *p, const struct kvg_special *special);

/* Codes at which attention kernels go wrong:
 *   LARGEST     Zeros of both signs, the smallest and the largest subnormal, the smallest normal and the
 *               largest codes of both signs. V of every key gets all of them. K of every fourth key gets
 *               zeros, subnormals and one largest code, of both signs in turn.
 *   SUBNORMALS  Every code of K and V is subnormal or zero, of both signs. k_scale is chosen so that the
 *               logits have a standard deviation of about 1.5 (per_tensor: on average over the heads). If K
 *               is flushed, all keys have the same weight; if V is flushed, the output is zero. */
enum kvg_special_codes { KVG_CODES_LARGEST, KVG_CODES_SUBNORMALS };
/* For attention on an FP8 cache: writes such codes into keys of every sequence and head. Other keys keep
 * their codes. kvg_prepared_renew restores ordinary values and scales. */
void kvg_prepared_special_codes(struct kvg_prepared *p, enum kvg_special_codes which);

#endif
