/* SPDX-License-Identifier: Apache-2.0
 *
 * decode_avx512fp16.h: keys of an FP8 cache as FP16, and what happens to the NaN of e4m3. Part of
 * attention_avx512fp16.c, which includes it once.
 *
 * An e4m3 code in the right place of a word is an FP16 of 2^-8 times its value, subnormals included. FP16
 * arithmetic takes subnormals at full speed. VPMADDUBSW puts the code there: it multiplies signed bytes, and
 * a code times 128 is the code shifted left by seven with copies of its sign above. One AND clears the
 * copies. One constant picks the bytes at even places, another those at odd places. So 64 codes become two
 * registers without a shuffle, and Q and the sums keep their dims in the same order. An e5m2 code is the
 * upper half of an FP16; it is multiplied by 2^-8, which is exact for every code and keeps sums in range.
 *
 * The NaN of e4m3 would become a number (480). The decoder therefore searches each tile for a NaN code; where
 * it finds one, the logits or values that depend on it are set to NaN.
 */
#include "attention_ops.h"

#include <immintrin.h>
#include <math.h>

enum {
    BLOCK = 64, /* codes decoded at a time: dims 0, 2, .., 62, then 1, 3, .., 63 */
    SOON = 8    /* keys from the second-level cache to the first before their turn */
};

#define LOWERED 0x1p-8f /* decoded values carry this */
#define TOP 224.0f      /* and are not above this: 57344 of e5m2 */

static int64_t padded(int64_t dim)
{
    return kvg_round_up(dim, BLOCK);
}

/* A dim's place among decoded ones. */
static int64_t place_of(int64_t dim)
{
    return dim / BLOCK * BLOCK + dim % 2 * (BLOCK / 2) + dim % BLOCK / 2;
}

ALWAYS_INLINE const char *key_at(const struct kvg_keys *keys, int64_t j)
{
    return (const char *)keys->row[j] + keys->offset;
}

/* A line of the next tile into the second-level cache, one of a key that is due soon from there to the first.
 */
ALWAYS_INLINE void prefetch(const struct kvg_keys *keys, int64_t j, int64_t at)
{
    __builtin_prefetch(keys->ahead[j] + keys->offset_ahead + at, 0, 2);
    __builtin_prefetch(key_at(keys, (j + SOON) % KVG_TILE) + at, 0, 3);
}

ALWAYS_INLINE __m512i load_codes(const char *at, __mmask64 mask)
{
    return mask == ~(__mmask64)0 ? _mm512_loadu_si512(at) : _mm512_maskz_loadu_epi8(mask, at);
}

/* 64 codes as FP16 times 2^-8; *nan collects NaN codes of e4m3 in the top bits of its bytes. */
ALWAYS_INLINE void decode(enum kvg_dtype dtype, __m512i codes, __m512h value[2], __m512i *nan)
{
    if (dtype == KVG_E4M3) {
        const __m512i clear = _mm512_set1_epi16((short)0xbf80);
        const __m512i even = _mm512_maddubs_epi16(_mm512_set1_epi16(0x0080), codes);
        const __m512i odd = _mm512_maddubs_epi16(_mm512_set1_epi16((short)0x8000), codes);
        value[0] = _mm512_castsi512_ph(_mm512_and_si512(even, clear));
        value[1] = _mm512_castsi512_ph(_mm512_and_si512(odd, clear));
        /* adding 1 changes the top bit of 0x7f and 0xff alone: nan |= (codes + 1) ^ codes */
        *nan = _mm512_ternarylogic_epi32(*nan, codes, _mm512_add_epi8(codes, _mm512_set1_epi8(1)), 0xf6);
    } else {
        const __m512h lower = _mm512_set1_ph((_Float16)LOWERED);
        const __m512i odd = _mm512_and_si512(codes, _mm512_set1_epi16((short)0xff00));
        value[0] = _mm512_mul_ph(_mm512_castsi512_ph(_mm512_slli_epi16(codes, 8)), lower);
        value[1] = _mm512_mul_ph(_mm512_castsi512_ph(odd), lower);
    }
}

ALWAYS_INLINE int any_nan(__m512i nan)
{
    return _mm512_movepi8_mask(nan) != 0;
}

ALWAYS_INLINE __mmask64 mask_64(int64_t dims)
{
    return dims < BLOCK ? ~(__mmask64)0 >> (BLOCK - dims) : ~(__mmask64)0;
}

/* `count` keys from `begin` on to out[count][padded(dim)]. */
ALWAYS_INLINE void decode_keys(enum kvg_dtype dtype, int64_t dim, int ahead, const struct kvg_keys *keys,
                               int64_t begin, int64_t count, _Float16 *out, __m512i *nan)
{
    for (int64_t j = begin; j < begin + count; j++) {
        for (int64_t d = 0; d < dim; d += BLOCK, out += BLOCK) {
            __m512h value[2];
            if (ahead)
                prefetch(keys, j, d);
            decode(dtype, load_codes(key_at(keys, j) + d, mask_64(dim - d)), value, nan);
            _mm512_store_ph(out, value[0]);
            _mm512_store_ph(out + BLOCK / 2, value[1]);
        }
    }
}

/* ---------------------------------------------------------------- NaN of e4m3 */

static int has_nan(const uint8_t *row, int64_t dim)
{
    for (int64_t d = 0; d < dim; d++)
        if ((row[d] & 0x7f) == 0x7f)
            return 1;
    return 0;
}

static __attribute__((noinline)) void nan_to_logits(const struct kvg_keys *keys, int64_t rows, float *s)
{
    for (int64_t j = 0; j < keys->count; j++) {
        if (has_nan((const uint8_t *)key_at(keys, j), keys->dim))
            for (int64_t r = 0; r < rows; r++)
                s[r * KVG_TILE + j] = NAN;
    }
}

static __attribute__((noinline)) void nan_to_values(const struct kvg_keys *keys, int64_t rows, float *acc,
                                                    int64_t acc_stride)
{
    for (int64_t j = 0; j < keys->count; j++) {
        for (int64_t d = 0; d < keys->dim; d++)
            for (int64_t r = 0; r < rows && ((uint8_t)key_at(keys, j)[d] & 0x7f) == 0x7f; r++)
                acc[r * acc_stride + d] = NAN;
    }
}
