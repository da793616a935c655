/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_avx512vbmi.c: attention on bf16 dot products (VDPBF16PS) that accumulate in FP32, for CPUs with
 * AVX-512, VBMI and BF16.
 *
 * Decoding. Every FP8 value is a bf16, and its magnitude code indexes two tables of 128 bytes (VPERMI2B): the
 * low and the high byte of that bf16. The table gives normal bf16 numbers for FP8 subnormals, which matters:
 * VDPBF16PS flushes subnormal operands, so a mere shift into place would lose them.
 *
 * Logits. The four 128-bit lanes of a register hold eight dims of four rows of Q; eight dims of a key are
 * broadcast to all four. One accumulator per key then serves a GQA group of four, and the sums of four keys
 * come out of one small transposition.
 *
 * Values. Rows of V are interleaved by pairs of keys, as VDPBF16PS wants them; P is bf16 (a P in e4m3 is
 * exact in it) and two neighbours of a row are one broadcast. Four rows by 64 dims stay in registers over a
 * tile.
 */
#include "attention.h"
#include "exp2.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

enum { ROWS = 4, CHUNK = 8, BLOCK_KEYS = 16, VECTOR = 16, STRIP = 4 * VECTOR };

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* bf16 of a magnitude code. e4m3: subnormal m * 2^-9 (bf16 exponent of 2^-9: 118); e5m2: m * 2^-16 (111). */
#define E4M3(c)                                                                                              \
    ((c) == 0x7f ? 0x7fc0                                                                                    \
     : (c) >= 8  ? (((c) >> 3) + 120) << 7 | ((c)&7) << 4                                                    \
     : (c) >= 4  ? 120 << 7 | ((c)&3) << 5                                                                   \
     : (c) >= 2  ? 119 << 7 | ((c)&1) << 6                                                                   \
     : (c) == 1  ? 118 << 7                                                                                  \
                 : 0)
#define E5M2(c)                                                                                              \
    ((c) > 0x7c ? 0x7fc0                                                                                     \
     : (c) >= 4 ? (((c) >> 2) + 112) << 7 | ((c)&3) << 5                                                     \
     : (c) >= 2 ? 112 << 7 | ((c)&1) << 6                                                                    \
     : (c) == 1 ? 111 << 7                                                                                   \
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

static int64_t padded(int64_t dim)
{
    return kvg_round_up(dim, STRIP);
}

static int64_t packed_q_bytes(int64_t rows, int64_t dim)
{
    return kvg_round_up(rows, ROWS) * dim * 2;
}

static int64_t scratch_bytes(int64_t dim)
{
    return KVG_TILE * padded(dim) * 2;
}

static int64_t qk_chain(int64_t dim)
{
    return 2 * (dim / CHUNK) + 2; /* a pair per instruction, then two levels of a tree */
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

/* All keys to out[count / 2][padded(dim)][2] in bf16. */
ALWAYS_INLINE void decode_pairs(enum kvg_dtype dtype, const struct kvg_keys *keys, uint16_t *out)
{
    const int64_t dim = keys->dim, stride = padded(dim), bytes = kvg_dtype_bytes(dtype);
    const struct pair_tables t = load_pair_tables(dtype);

    for (int64_t j = 0; j < keys->count; j += 2, out += 2 * stride) {
        const char *a = keys->row[j], *b = keys->row[j + 1];
        kvg_prefetch(keys->ahead[j], dim * bytes);
        kvg_prefetch(keys->ahead[j + 1], dim * bytes);
        for (int64_t d = 0; d < dim; d += 32) {
            __m512i low, high;
            decode_pair(dtype, &t, a + d * bytes, b + d * bytes, mask_32(dim - d), &low, &high);
            _mm512_store_si512(out + 2 * d, low);
            _mm512_store_si512(out + 2 * d + 32, high);
        }
    }
}

/* ---------------------------------------------------------------- logits */

/* Blocks of four rows; within a block [chunk of eight dims][row][dim]. Rows that do not exist are zero. */
static void pack_q(const void *const *row, int64_t rows, int64_t dim, enum kvg_dtype dtype, void *packed)
{
    uint16_t *out = packed;

    memset(packed, 0, (size_t)packed_q_bytes(rows, dim));
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t d = 0; d < dim; d++) {
            const uint16_t q = dtype == KVG_BF16
                                   ? ((const uint16_t *)row[r])[d]
                                   : kvg_bf16_encode(kvg_fp8_e4m3_decode(((const uint8_t *)row[r])[d]));
            out[r / ROWS * ROWS * dim + d / CHUNK * ROWS * CHUNK + r % ROWS * CHUNK + d % CHUNK] = q;
        }
    }
}

/* Sums of the four 32-bit parts of each 128-bit lane: {a0, a1, a2, a3} per lane. */
ALWAYS_INLINE __m512 sum_lanes(__m512 a0, __m512 a1, __m512 a2, __m512 a3)
{
    const __m512 a01 = _mm512_add_ps(_mm512_unpacklo_ps(a0, a1), _mm512_unpackhi_ps(a0, a1));
    const __m512 a23 = _mm512_add_ps(_mm512_unpacklo_ps(a2, a3), _mm512_unpackhi_ps(a2, a3));

    return _mm512_add_ps(_mm512_shuffle_ps(a01, a23, 0x44), _mm512_shuffle_ps(a01, a23, 0xee));
}

ALWAYS_INLINE __m512bh as_bf16(__m512i x)
{
    return (__m512bh)x;
}

/* `keys` keys (a multiple of 4) against `blocks` blocks of four rows. */
ALWAYS_INLINE void logits_block(int blocks, int keys, const uint16_t *q, const uint16_t *k, int64_t dim,
                                int64_t stride, float *s)
{
    __m512 acc[2][16];

    for (int b = 0; b < blocks; b++) {
        for (int t = 0; t < keys; t++) {
            acc[b][t] = _mm512_setzero_ps();
        }
    }
    for (int64_t d = 0; d < dim; d += CHUNK) {
        __m512i rows[2];
        for (int b = 0; b < blocks; b++) {
            rows[b] = _mm512_load_si512(q + b * ROWS * dim + d * ROWS);
        }
        for (int t = 0; t < keys; t++) {
            const __m512i key = _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)(k + t * stride + d)));
            for (int b = 0; b < blocks; b++) {
                acc[b][t] = _mm512_dpbf16_ps(acc[b][t], as_bf16(rows[b]), as_bf16(key));
            }
        }
    }
    for (int b = 0; b < blocks; b++) {
        for (int t = 0; t < keys; t += 4) {
            const __m512 sum = sum_lanes(acc[b][t], acc[b][t + 1], acc[b][t + 2], acc[b][t + 3]);
            float *at = s + b * ROWS * KVG_TILE + t;
            _mm_store_ps(at, _mm512_castps512_ps128(sum));
            _mm_store_ps(at + KVG_TILE, _mm512_extractf32x4_ps(sum, 1));
            _mm_store_ps(at + 2 * KVG_TILE, _mm512_extractf32x4_ps(sum, 2));
            _mm_store_ps(at + 3 * KVG_TILE, _mm512_extractf32x4_ps(sum, 3));
        }
    }
}

ALWAYS_INLINE void logits_as(enum kvg_dtype dtype, const struct kvg_keys *keys, const uint16_t *q,
                             int64_t rows, uint16_t *k, float *s)
{
    const int64_t dim = keys->dim, stride = padded(dim);

    if (rows <= ROWS) { /* short phases, so that decoding and products overlap in the CPU's window */
        for (int64_t j = 0; j < keys->count; j += 8) {
            decode_keys(dtype, keys, j, 8, k);
            logits_block(1, 8, q, k, dim, stride, s + j);
        }
        return;
    }
    for (int64_t j = 0; j < keys->count; j += BLOCK_KEYS) {
        int64_t r = 0;

        decode_keys(dtype, keys, j, BLOCK_KEYS, k);
        for (; r + ROWS < rows; r += 2 * ROWS) {
            logits_block(2, 8, q + r * dim, k, dim, stride, s + r * KVG_TILE + j);
            logits_block(2, 8, q + r * dim, k + 8 * stride, dim, stride, s + r * KVG_TILE + j + 8);
        }
        if (r < rows) {
            logits_block(1, 16, q + r * dim, k, dim, stride, s + r * KVG_TILE + j);
        }
    }
}

static void logits(const struct kvg_keys *keys, const void *packed_q, int64_t rows, void *scratch, float *s)
{
    if (keys->dtype == KVG_E4M3) {
        logits_as(KVG_E4M3, keys, packed_q, rows, scratch, s);
    } else if (keys->dtype == KVG_E5M2) {
        logits_as(KVG_E5M2, keys, packed_q, rows, scratch, s);
    } else {
        logits_as(KVG_BF16, keys, packed_q, rows, scratch, s);
    }
}

/* ---------------------------------------------------------------- softmax */

ALWAYS_INLINE __m512 exp2_16(__m512 x)
{
    x = _mm512_max_ps(_mm512_set1_ps(-127.0f), x); /* the second operand where one is NaN */
    const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(x, n);
    const __m512i power =
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
    __m512 p = _mm512_set1_ps(KVG_EXP2_C6);

    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(KVG_EXP2_C5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(KVG_EXP2_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(KVG_EXP2_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(KVG_EXP2_C2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(KVG_EXP2_C1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(KVG_EXP2_C0));
    return _mm512_mul_ps(p, _mm512_castsi512_ps(power));
}

ALWAYS_INLINE __m512 tanh_16(__m512 x)
{
    const __m512 sign = _mm512_and_ps(x, _mm512_set1_ps(-0.0f)), a = _mm512_abs_ps(x),
                 z = _mm512_mul_ps(x, x);
    const __m512 two = _mm512_set1_ps(2.0f), one = _mm512_set1_ps(1.0f);
    const __m512 large = _mm512_min_ps(_mm512_set1_ps(KVG_TANH_LARGE), a); /* NaN stays */
    const __m512 e = exp2_16(_mm512_mul_ps(large, _mm512_set1_ps((float)(2.0 * KVG_LOG2E))));
    const __m512 high = _mm512_or_ps(_mm512_sub_ps(one, _mm512_div_ps(two, _mm512_add_ps(e, one))), sign);
    __m512 y = _mm512_set1_ps(KVG_TANH_C4);

    y = _mm512_fmadd_ps(y, z, _mm512_set1_ps(KVG_TANH_C3));
    y = _mm512_fmadd_ps(y, z, _mm512_set1_ps(KVG_TANH_C2));
    y = _mm512_fmadd_ps(y, z, _mm512_set1_ps(KVG_TANH_C1));
    y = _mm512_fmadd_ps(y, z, _mm512_set1_ps(KVG_TANH_C0));
    y = _mm512_fmadd_ps(x, _mm512_mul_ps(z, y), x);
    return _mm512_mask_mov_ps(high, _mm512_cmp_ps_mask(a, _mm512_set1_ps(KVG_TANH_SMALL), _CMP_LT_OQ), y);
}

/* p >= 0 rounded to e4m3, still as FP32. p <= 2^8 (1 + a few ulp), so nothing saturates. */
ALWAYS_INLINE __m512 round_e4m3(__m512 p)
{
    const __m512i bits = _mm512_castps_si512(p);
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, 20), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(even, _mm512_set1_epi32(0x7ffff)));
    const __m512 normal = _mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32((int)0xfff00000)));
    const __m512 magic = _mm512_set1_ps(KVG_FP8_E4M3.subnormal_magic);
    const __mmask16 small = _mm512_cmp_ps_mask(p, _mm512_set1_ps(KVG_FP8_E4M3.min_normal), _CMP_LT_OQ);

    return _mm512_mask_sub_ps(normal, small, _mm512_add_ps(p, magic), magic);
}

static void exp2_all(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i += VECTOR) {
        _mm512_storeu_ps(x + i, exp2_16(_mm512_loadu_ps(x + i)));
    }
}

static float softmax(const struct kvg_softmax *how, float *s, int64_t lo, int64_t hi,
                     struct kvg_row_state *state, void *p_row)
{
    const float before = state->max;
    const __m512 scale = _mm512_set1_ps(how->scale), cap = _mm512_set1_ps(how->cap_log2);
    const uint64_t seen = (~(uint64_t)0 >> (64 - hi)) & (~(uint64_t)0 << lo);
    __m512 t[KVG_TILE / VECTOR], top = _mm512_set1_ps(before), shift, sum = _mm512_setzero_ps();
    float max, factor;

    for (int i = 0; i < KVG_TILE / VECTOR; i++) {
        t[i] = _mm512_mul_ps(_mm512_load_ps(s + VECTOR * i), scale);
        if (how->cap_log2 > 0.0f) {
            t[i] = _mm512_mul_ps(tanh_16(t[i]), cap);
        }
        t[i] = _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), (__mmask16)(seen >> (VECTOR * i)), t[i]);
        top = _mm512_max_ps(t[i], top); /* the second operand where one is NaN */
    }
    max = _mm512_reduce_max_ps(top);
    shift = _mm512_set1_ps(max - how->offset);
    for (int i = 0; i < KVG_TILE / VECTOR; i++) {
        t[i] = exp2_16(_mm512_sub_ps(t[i], shift));
        sum = _mm512_add_ps(sum, t[i]);
        t[i] = how->p_e4m3 ? round_e4m3(t[i]) : t[i];
    }
    for (int i = 0; i < KVG_TILE / VECTOR; i += 2) {
        const __m512bh p = _mm512_cvtne2ps_pbh(t[i + 1], t[i]);
        _mm512_store_si512((uint16_t *)p_row + VECTOR * i, (__m512i)p);
    }
    factor = before == max ? 1.0f : before == -INFINITY ? 0.0f : kvg_exp2(before - max);
    state->max = max;
    state->sum = state->sum * factor + _mm512_reduce_add_ps(sum);
    return factor;
}

/* ---------------------------------------------------------------- values */

/* acc = acc * factor + sum, rows x 16 * vectors. */
ALWAYS_INLINE void add_tile(int rows, int vectors, __m512 sum[4][4], const float *factor, float *acc,
                            int64_t acc_stride)
{
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < vectors; i++) {
            float *at = acc + r * acc_stride + VECTOR * i;
            _mm512_store_ps(at, _mm512_fmadd_ps(_mm512_load_ps(at), _mm512_set1_ps(factor[r]), sum[r][i]));
        }
    }
}

/* sum += P V for one pair of keys. */
ALWAYS_INLINE void add_pair(int rows, int vectors, const uint16_t *p, const __m512i value[4],
                            __m512 sum[4][4])
{
    for (int r = 0; r < rows; r++) {
        int32_t pair;
        memcpy(&pair, p + r * KVG_TILE, sizeof pair);
        const __m512i weight = _mm512_set1_epi32(pair);
        for (int i = 0; i < vectors; i++) {
            sum[r][i] = _mm512_dpbf16_ps(sum[r][i], as_bf16(weight), as_bf16(value[i]));
        }
    }
}

ALWAYS_INLINE void clear(int rows, int vectors, __m512 sum[4][4])
{
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < vectors; i++) {
            sum[r][i] = _mm512_setzero_ps();
        }
    }
}

/* Pairs decoded before, from dim d on at v. */
ALWAYS_INLINE void strip(int rows, int vectors, const uint16_t *v, int64_t stride, int64_t count,
                         const uint16_t *p, const float *factor, float *acc, int64_t acc_stride)
{
    __m512 sum[4][4];

    clear(rows, vectors, sum);
    for (int64_t j = 0; j < count; j += 2, v += 2 * stride) {
        __m512i value[4];
        for (int i = 0; i < vectors; i++) {
            value[i] = _mm512_load_si512(v + 2 * VECTOR * i);
        }
        add_pair(rows, vectors, p + j, value, sum);
    }
    add_tile(rows, vectors, sum, factor, acc, acc_stride);
}

/* Pairs decoded on the fly: for rows that fit one pass. */
ALWAYS_INLINE void strip_decoding(enum kvg_dtype dtype, int rows, int vectors, const struct kvg_keys *keys,
                                  int64_t d, const uint16_t *p, const float *factor, float *acc,
                                  int64_t acc_stride)
{
    const int64_t bytes = kvg_dtype_bytes(dtype), at = d * bytes;
    const __mmask32 first = mask_32(keys->dim - d), second = vectors > 2 ? mask_32(keys->dim - d - 32) : 0;
    const struct pair_tables t = load_pair_tables(dtype);
    __m512 sum[4][4];

    clear(rows, vectors, sum);
    for (int64_t j = 0; j < keys->count; j += 2) {
        const char *a = (const char *)keys->row[j] + at, *b = (const char *)keys->row[j + 1] + at;
        __m512i value[4];

        decode_pair(dtype, &t, a, b, first, &value[0], &value[1]);
        if (vectors > 2) {
            decode_pair(dtype, &t, a + 32 * bytes, b + 32 * bytes, second, &value[2], &value[3]);
        }
        for (int64_t i = 0; i < STRIP * bytes; i += KVG_LINE) {
            __builtin_prefetch(keys->ahead[j] + at + i, 0, 2);
            __builtin_prefetch(keys->ahead[j + 1] + at + i, 0, 2);
        }
        add_pair(rows, vectors, p + j, value, sum);
    }
    add_tile(rows, vectors, sum, factor, acc + d, acc_stride);
}

/* CALL(rows, vectors) with both constant, so that the accumulators are registers. */
#define BY_VECTORS(CALL, rows)                                                                               \
    switch (vectors) {                                                                                       \
    case 1:                                                                                                  \
        CALL(rows, 1);                                                                                       \
        break;                                                                                               \
    case 2:                                                                                                  \
        CALL(rows, 2);                                                                                       \
        break;                                                                                               \
    case 3:                                                                                                  \
        CALL(rows, 3);                                                                                       \
        break;                                                                                               \
    default:                                                                                                 \
        CALL(rows, 4);                                                                                       \
        break;                                                                                               \
    }
#define BY_ROWS(CALL)                                                                                        \
    switch (rows) {                                                                                          \
    case 1:                                                                                                  \
        BY_VECTORS(CALL, 1)                                                                                  \
        break;                                                                                               \
    case 2:                                                                                                  \
        BY_VECTORS(CALL, 2)                                                                                  \
        break;                                                                                               \
    case 3:                                                                                                  \
        BY_VECTORS(CALL, 3)                                                                                  \
        break;                                                                                               \
    default:                                                                                                 \
        BY_VECTORS(CALL, 4)                                                                                  \
        break;                                                                                               \
    }

static void strip_any(int64_t rows, int64_t vectors, const uint16_t *v, int64_t stride, int64_t count,
                      const uint16_t *p, const float *factor, float *acc, int64_t acc_stride){
#define CALL(rows, vectors) strip(rows, vectors, v, stride, count, p, factor, acc, acc_stride)
    BY_ROWS(CALL)
#undef CALL
}

ALWAYS_INLINE
    void values_as(enum kvg_dtype dtype, const struct kvg_keys *keys, const uint16_t *p, const float *factor,
                   int64_t rows, uint16_t *scratch, float *acc, int64_t acc_stride)
{
    const int64_t dim = keys->dim, stride = padded(dim);

    if (rows > ROWS) {
        decode_pairs(dtype, keys, scratch);
    }
    for (int64_t d = 0; d < dim; d += STRIP) {
        const int64_t vectors = dim - d < STRIP ? (dim - d + VECTOR - 1) / VECTOR : 4;
        if (rows <= ROWS) {
#define CALL(rows, vectors) strip_decoding(dtype, rows, vectors, keys, d, p, factor, acc, acc_stride)
            BY_ROWS(CALL)
#undef CALL
            continue;
        }
        for (int64_t r = 0; r < rows; r += ROWS) {
            strip_any(rows - r < ROWS ? rows - r : ROWS, vectors, scratch + 2 * d, stride, keys->count,
                      p + r * KVG_TILE, factor + r, acc + r * acc_stride + d, acc_stride);
        }
    }
}

static void values(const struct kvg_keys *keys, const void *p, const float *factor, int64_t rows,
                   void *scratch, float *acc, int64_t acc_stride)
{
    if (keys->dtype == KVG_E4M3) {
        values_as(KVG_E4M3, keys, p, factor, rows, scratch, acc, acc_stride);
    } else if (keys->dtype == KVG_E5M2) {
        values_as(KVG_E5M2, keys, p, factor, rows, scratch, acc, acc_stride);
    } else {
        values_as(KVG_BF16, keys, p, factor, rows, scratch, acc, acc_stride);
    }
}

const struct kvg_attention_ops kvg_attention_avx512 = {
    .isa = KVG_ISA_AVX512VBMI,
    .row_step = ROWS,
    .packed_q_bytes = packed_q_bytes,
    .scratch_bytes = scratch_bytes,
    .p_row_bytes = KVG_TILE * 2,
    .pack_q = pack_q,
    .logits = logits,
    .softmax = softmax,
    .values = values,
    .exp2 = exp2_all,
    .qk_chain = qk_chain,
    .exp2_rel_error = KVG_EXP2_REL_ERROR,
    .p_format = KVG_BF16,
    .operand = KVG_BF16,
    .dtypes = 1u << KVG_BF16 | 1u << KVG_E4M3 | 1u << KVG_E5M2,
};
