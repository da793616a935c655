/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_avx512.h: decoding to bf16 and the softmax, shared by the kernels on bf16 products (VDPBF16PS and
 * AMX). Each includes it once. Needs AVX-512 with VBMI and BF16.
 *
 * Decoding. Every FP8 value is exact in bf16. Its magnitude code indexes two tables of 128 bytes (VPERMI2B)
 * with the low and the high byte of that bf16. FP8 subnormals become normal bf16 numbers. This matters
 * because the products flush subnormal operands: codes that were only shifted into place would be lost.
 */
#include "softmax_avx512.h"

#include <string.h>

enum { STRIP = 4 * VECTOR };

/* bf16 of a magnitude code. e4m3: subnormal m * 2^-9 (bf16 exponent of 2^-9: 118); e5m2: m * 2^-16 (111). */
#define E4M3(c)                                                                                              \
    ((c) == 0x7f ? 0x7fc0                                                                                    \
     : (c) >= 8  ? (((c) >> 3) + 120) << 7 | ((c)&7) << 4                                                    \
     : (c) >= 4  ? 120 << 7 | ((c)&3) << 5                                                                   \
     : (c) >= 2  ? 119 << 7 | ((c)&1) << 6                                                                   \
     : (c) == 1  ? 118 << 7                                                                                  \
                 : 0)
#define E5M2(c)                                                                                              \
    ((c) > 0x7c    ? 0x7fc0                                                                                  \
     : (c) == 0x7c ? 0x7f80                                                                                  \
     : (c) >= 4    ? (((c) >> 2) + 112) << 7 | ((c)&3) << 5                                                  \
     : (c) >= 2    ? 112 << 7 | ((c)&1) << 6                                                                 \
     : (c) == 1    ? 111 << 7                                                                                \
                   : 0)
#define LOW(x) (uint8_t)((x)&0xff)
#define HIGH(x) (uint8_t)((x) >> 8)
#define BY_4(part, of, c) part(of((c))), part(of((c) + 1)), part(of((c) + 2)), part(of((c) + 3))
#define BY_16(part, of, c)                                                                                   \
    BY_4(part, of, c), BY_4(part, of, (c) + 4), BY_4(part, of, (c) + 8), BY_4(part, of, (c) + 12)
#define BY_64(part, of, c)                                                                                   \
    BY_16(part, of, c), BY_16(part, of, (c) + 16), BY_16(part, of, (c) + 32), BY_16(part, of, (c) + 48)
#define TABLE(of)                                                                                            \
    {                                                                                                        \
        {BY_64(LOW, of, 0), BY_64(LOW, of, 64)},                                                             \
        {                                                                                                    \
            BY_64(HIGH, of, 0), BY_64(HIGH, of, 64)                                                          \
        }                                                                                                    \
    }
static const _Alignas(64) uint8_t table_e4m3[2][128] = TABLE(E4M3);
static const _Alignas(64) uint8_t table_e5m2[2][128] = TABLE(E5M2);

struct tables {
    __m512i low[2], high[2];
};

/* CALL(dtype) with a constant dtype, so that the compiler specialises the decoding. */
#define BY_DTYPE(dtype, CALL)                                                                                \
    switch (dtype) {                                                                                         \
    case KVG_E4M3:                                                                                           \
        CALL(KVG_E4M3);                                                                                      \
        break;                                                                                               \
    case KVG_E5M2:                                                                                           \
        CALL(KVG_E5M2);                                                                                      \
        break;                                                                                               \
    default:                                                                                                 \
        CALL(KVG_BF16);                                                                                      \
        break;                                                                                               \
    }

static int64_t padded(int64_t dim)
{
    return kvg_round_up(dim, STRIP);
}

/* Element d of a row of Q (bf16 or e4m3) in bf16, exactly. */
static uint16_t q_element(const void *row, int64_t d, enum kvg_dtype dtype)
{
    return dtype == KVG_BF16 ? ((const uint16_t *)row)[d]
                             : kvg_bf16_encode(kvg_fp8_e4m3_decode(((const uint8_t *)row)[d]));
}

/* ---------------------------------------------------------------- decoding */

ALWAYS_INLINE struct tables load_tables(enum kvg_dtype dtype)
{
    const uint8_t(*t)[128] = dtype == KVG_E5M2 ? table_e5m2 : table_e4m3;

    return (struct tables){{_mm512_load_si512(t[0]), _mm512_load_si512(t[0] + 64)},
                           {_mm512_load_si512(t[1]), _mm512_load_si512(t[1] + 64)}};
}

/* Low and high bytes of 64 codes, in place. */
ALWAYS_INLINE void convert(const struct tables *t, __m512i codes, __m512i *low, __m512i *high)
{
    const __m512i magnitude = _mm512_permutex2var_epi8(t->high[0], codes, t->high[1]);

    *low = _mm512_permutex2var_epi8(t->low[0], codes, t->low[1]);
    *high =
        _mm512_ternarylogic_epi32(magnitude, codes, _mm512_set1_epi8((char)0x80), 0xf8); /* | (codes & 80) */
}

/* 64 dims (those of the mask) of a key to out. */
ALWAYS_INLINE void decode_64(enum kvg_dtype dtype, const struct tables *t, const char *at, __mmask64 mask,
                             uint16_t *out)
{
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7); /* undone by the unpacking */
    __m512i low, high;

    if (dtype == KVG_BF16) {
        _mm512_store_si512(out, _mm512_maskz_loadu_epi16((__mmask32)mask, at));
        _mm512_store_si512(out + 32, _mm512_maskz_loadu_epi16((__mmask32)(mask >> 32), at + 64));
        return;
    }
    convert(t, _mm512_permutexvar_epi64(order, _mm512_maskz_loadu_epi8(mask, at)), &low, &high);
    _mm512_store_si512(out, _mm512_unpacklo_epi8(low, high));
    _mm512_store_si512(out + 32, _mm512_unpackhi_epi8(low, high));
}

/* count keys to out[count][padded(dim)] in bf16; zero behind dim. */
ALWAYS_INLINE void decode_keys(enum kvg_dtype dtype, const struct kvg_keys *keys, int64_t begin,
                               int64_t count, uint16_t *out)
{
    const int64_t bytes = kvg_dtype_bytes(dtype), whole = keys->dim / STRIP * STRIP, rest = keys->dim - whole;
    const __mmask64 mask = rest ? ~(__mmask64)0 >> (64 - rest) : 0;
    const struct tables t = load_tables(dtype);

    for (int64_t j = begin; j < begin + count; j++) {
        const char *row = keys->row[j], *ahead = keys->ahead[j];

        for (int64_t d = 0; d < whole; d += STRIP, out += STRIP) {
            kvg_prefetch(ahead + d * bytes, STRIP * bytes);
            decode_64(dtype, &t, row + d * bytes, ~(__mmask64)0, out);
        }
        if (rest) {
            kvg_prefetch(ahead + whole * bytes, rest * bytes);
            decode_64(dtype, &t, row + whole * bytes, mask, out);
            out += STRIP;
        }
    }
}

/* Lane i of the result: bytes 0..7 keys (a, b) of dims 4i .. 4i+3, bytes 8..15 of dims 16+4i .. 16+4i+3,
 * where the source has 32 dims of a, then of b. */
#define PAIR(i, q) 4 * (i) + (q), 32 + 4 * (i) + (q)
#define LANE(i)                                                                                              \
    PAIR(i, 0), PAIR(i, 1), PAIR(i, 2), PAIR(i, 3), PAIR((i) + 4, 0), PAIR((i) + 4, 1), PAIR((i) + 4, 2),    \
        PAIR((i) + 4, 3)
static const _Alignas(64) uint8_t pair_order[64] = {LANE(0), LANE(1), LANE(2), LANE(3)};
/* Word i of the result: dim i / 2 of a (even) or b (odd). */
#define WORDS(i) (i), 32 + (i), (i) + 1, 33 + (i), (i) + 2, 34 + (i), (i) + 3, 35 + (i)
static const _Alignas(64) uint16_t pair_words[32] = {WORDS(0), WORDS(4), WORDS(8), WORDS(12)};

/* What the conversion of pairs keeps in registers. */
struct pair_tables {
    struct tables t;
    __m512i order, low_words, high_words;
};

ALWAYS_INLINE struct pair_tables load_pair_tables(enum kvg_dtype dtype)
{
    const __m512i words = _mm512_load_si512(pair_words);

    return (struct pair_tables){load_tables(dtype), _mm512_load_si512(pair_order), words,
                                _mm512_add_epi16(words, _mm512_set1_epi16(16))};
}

/* 32 dims (those of the mask) of keys a and b, interleaved: 16 dims each in *low and *high. */
ALWAYS_INLINE void decode_pair(enum kvg_dtype dtype, const struct pair_tables *t, const char *a,
                               const char *b, __mmask32 mask, __m512i *low, __m512i *high)
{
    if (dtype == KVG_BF16) {
        const __m512i x = _mm512_maskz_loadu_epi16(mask, a), y = _mm512_maskz_loadu_epi16(mask, b);
        *low = _mm512_permutex2var_epi16(x, t->low_words, y);
        *high = _mm512_permutex2var_epi16(x, t->high_words, y);
        return;
    }
    const __m256i x = _mm256_maskz_loadu_epi8(mask, a), y = _mm256_maskz_loadu_epi8(mask, b);
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(x), y, 1);
    __m512i low_bytes, high_bytes;

    convert(&t->t, _mm512_permutexvar_epi8(t->order, both), &low_bytes, &high_bytes);
    *low = _mm512_unpacklo_epi8(low_bytes, high_bytes);
    *high = _mm512_unpackhi_epi8(low_bytes, high_bytes);
}

ALWAYS_INLINE __mmask32 mask_32(int64_t dims)
{
    return dims < 32 ? ~(__mmask32)0 >> (32 - dims) : ~(__mmask32)0;
}

/* ---------------------------------------------------------------- softmax */

static float softmax(const struct kvg_softmax *how, float *s, int64_t lo, int64_t hi,
                     struct kvg_row_state *state, void *p_row)
{
    __m512 t[KVG_TILE / VECTOR];
    const float factor = softmax_row(how, s, lo, hi, state, t);

    for (int i = 0; i < KVG_TILE / VECTOR; i += 2) {
        const __m512bh p = _mm512_cvtne2ps_pbh(t[i + 1], t[i]);
        _mm512_store_si512((uint16_t *)p_row + VECTOR * i, (__m512i)p);
    }
    return factor;
}
