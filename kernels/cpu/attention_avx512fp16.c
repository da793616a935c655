/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_avx512fp16.c: attention on FP8 caches with FP16 products (AVX512-FP16). The CPU issues two of 32
 * lanes per cycle, four times the rate of VDPBF16PS on the same CPU. decode_avx512fp16.h turns codes into
 * FP16.
 *
 * Precision. Q and K are exact in FP16; each row of Q is multiplied by a power of two such that its sums
 * cannot overflow. P carries a power of two, for its small values. Short sums are FP16, longer ones FP32. In
 * FP16 are, of a logit, two chains of dim / 16 products in each lane and two levels of the tree; of a value,
 * FLUSH_KEYS keys.
 *
 * Logits. The four 128-bit lanes of a register hold eight dims of four rows of Q; eight dims of a key are
 * broadcast to all four.
 *
 * Values. Four rows by 128 dims stay in registers. Up to four rows decode V on the fly; more rows share a
 * decoded tile.
 */
#include "decode_avx512fp16.h"
#include "softmax_avx512.h"

#include <string.h>

/* Measurements: decode of 32k tokens, batch 1, 32/8 heads, head_dim 128, e4m3 in NHD pages of 16, one
 * thread, cold cache. Intel Xeon (Emerald Rapids), virtual machine with 2 CPUs, the other one idle. Read
 * and gather roof: 16 to 17 GB/s; a line from memory takes 135 ns; no prefetcher of the second-level cache
 * is active.
 *
 * Operations on the shuffle and product ports (0 and 5) for a token and KV head:
 *   decoding              16
 *   search for NaN codes   8
 *   QK                    16 products, 6 for their sums
 *   softmax                9
 *   PV                    16 products, 5 to 7 for their sums
 * With data in the first-level cache that takes 42 cycles (14 ns; VDPBF16PS takes 110), less than the
 * gather roof leaves. The limit is memory: with all products removed the call still takes 5.7 ms, with
 * nothing but the prefetches 4.2 ms; the whole call takes 6.0 ms. The likely reason is the 16 buffers for
 * outstanding lines, which are shared by the prefetches from memory, the moves from the second-level cache
 * to the first, and the accumulators. These did not help:
 *   address order instead of each head's own rows        6.4 ms
 *   prefetcht0                                           6.6 ms
 *   no second prefetch into the first level              6.5 ms
 *   one head at a time through all tiles                 9.8 ms
 *   prefetching every second line
 * Error on 8192 keys of input `normal`: 2.05e-3 in relative L2, most of it the rounding of the output.
 * VDPBF16PS has about 2.2e-3, because of P in bf16. */

enum {
    ROWS = 4,
    CHUNK = 8,       /* dims of a lane */
    KEYS = 8,        /* keys whose logits are summed together */
    FLUSH_KEYS = 16, /* keys whose values are added in FP16 */
    WHOLE_STEP = 7,  /* rows prefetched for every eight keys of a whole tile: see _whole.h */
    PAIRS = 2,       /* blocks of 64 dims whose sums are in registers */
    P_ROW =
        KVG_TILE * 4 + KVG_ALIGN, /* bytes: each P twice, then a float: what is to be multiplied to sums */
};

/* Rows in blocks of four, then for each row what is to be multiplied to its sums, KEYS times. */
static int64_t packed_q_bytes(int64_t rows, int64_t dim)
{
    return kvg_round_up(rows, ROWS) * (padded(dim) * 2 + KEYS * 4);
}

/* A decoded tile, then FP32 sums of four rows of a strip. */
static int64_t scratch_bytes(int64_t dim)
{
    return KVG_TILE * padded(dim) * 2 + ROWS * PAIRS * BLOCK * 4;
}

/* ---------------------------------------------------------------- logits */

/* The exponent that no element of a lifted row reaches, so that half of all products of a logit may be added
 * in FP16, with decoded keys up to `top`. */
static int lifted_below(int64_t dim, float top)
{
    int of_limit;

    frexpf(65504.0f / (top * (float)padded(dim) / 2), &of_limit);
    return of_limit - 1;
}

/* The exponent that lifts a row whose largest magnitude is `largest` to just below that. */
static int lift_of(float largest, int64_t dim, float top)
{
    int of_row, lift;

    if (!(largest > 0.0f))
        return 0;
    frexpf(largest, &of_row);
    lift = lifted_below(dim, top) - of_row;              /* largest * 2^lift < 2^lifted_below <= limit */
    return lift < -119 ? -119 : lift > 119 ? 119 : lift; /* a finite factor */
}

static void pack_q(const void *const *row, int64_t rows, int64_t dim, enum kvg_dtype dtype, void *packed)
{
    const int64_t stride = padded(dim), all = kvg_round_up(rows, ROWS);
    _Float16 *out = packed;
    float *factor = (float *)(void *)(out + all * stride);

    memset(packed, 0, (size_t)packed_q_bytes(rows, dim));
    for (int64_t r = 0; r < rows; r++) {
        float q[dim], largest = 0.0f;
        double lifted;
        int lift;

        for (int64_t d = 0; d < dim; d++) {
            q[d] = dtype == KVG_BF16 ? kvg_bf16_decode(((const uint16_t *)row[r])[d])
                                     : kvg_fp8_e4m3_decode(((const uint8_t *)row[r])[d]);
            largest = isfinite(q[d]) && fabsf(q[d]) > largest ? fabsf(q[d]) : largest;
        }
        lift = lift_of(largest, dim, TOP);
        lifted = ldexp(1.0, lift);
        for (int i = 0; i < KEYS; i++)
            factor[r * KEYS + i] = ldexpf(1.0f / LOWERED, -lift);
        for (int64_t d = 0; d < dim; d++) {
            const int64_t at = place_of(d);
            out[r / ROWS * ROWS * stride + at / CHUNK * ROWS * CHUNK + r % ROWS * CHUNK + at % CHUNK] =
                (_Float16)(q[d] * lifted);
        }
    }
}

/* Sums of pairs of words, doublewords or quadwords: half as many partial sums of twice as many keys. */
ALWAYS_INLINE __m512h fold_16(__m512h a, __m512h b)
{
    const __m512i x = _mm512_castph_si512(a), y = _mm512_castph_si512(b);

    return _mm512_add_ph(_mm512_castsi512_ph(_mm512_unpacklo_epi16(x, y)),
                         _mm512_castsi512_ph(_mm512_unpackhi_epi16(x, y)));
}

ALWAYS_INLINE __m512h fold_32(__m512h a, __m512h b)
{
    const __m512i x = _mm512_castph_si512(a), y = _mm512_castph_si512(b);

    return _mm512_add_ph(_mm512_castsi512_ph(_mm512_unpacklo_epi32(x, y)),
                         _mm512_castsi512_ph(_mm512_unpackhi_epi32(x, y)));
}

ALWAYS_INLINE __m512 lower_half(__m512i x)
{
    return _mm512_cvtxph_ps(_mm256_castsi256_ph(_mm512_castsi512_si256(x)));
}

ALWAYS_INLINE __m512 upper_half(__m512i x)
{
    return _mm512_cvtxph_ps(_mm256_castsi256_ph(_mm512_extracti64x4_epi64(x, 1)));
}

/* Row n of the 128 that come from memory. */
ALWAYS_INLINE void prefetch_far(const struct kvg_whole *w, int64_t n)
{
    const char *at = w->ahead[n / 8] + w->ahead_offset + n % 8 * w->ahead_stride;

    __builtin_prefetch(at, 0, 2);
    __builtin_prefetch(at + KVG_LINE, 0, 2);
}

/* Row i of the eight keys of a group, from the second-level cache to the first. */
ALWAYS_INLINE void prefetch_near(const struct kvg_whole *w, int64_t group, int64_t i)
{
    const char *at = w->group[group] + w->offset + i * w->stride;

    __builtin_prefetch(at, 0, 3);
    __builtin_prefetch(at + KVG_LINE, 0, 3);
}

/* Eight keys against four rows; meanwhile two lines a step are prefetched: for keys j to j + 7, or for the
 * eight keys number j of a whole tile, or none. */
ALWAYS_INLINE void logits_block(const _Float16 *q, const float *factor, const _Float16 *k, int64_t stride,
                                const struct kvg_keys *keys, const struct kvg_whole *whole, int64_t j,
                                float *s)
{
    __m512h even[KEYS], odd[KEYS];
    int64_t line = 0;

    for (int t = 0; t < KEYS; t++)
        even[t] = odd[t] = _mm512_setzero_ph();
    for (int64_t d = 0; d < stride; d += 2 * CHUNK) {
        for (int i = 0; keys && i < 2; i++, line += KVG_LINE) {
            if (line == stride) {
                line = 0;
                j++;
            }
            prefetch(keys, j, line);
        }
        if (whole) {
            const int64_t i = d / (2 * CHUNK);
            prefetch_near(whole, j + 1, i);
            if (i < WHOLE_STEP)
                prefetch_far(whole, j * WHOLE_STEP + i);
        }
        const __m512h q0 = _mm512_load_ph(q + d * ROWS), q1 = _mm512_load_ph(q + (d + CHUNK) * ROWS);
        for (int t = 0; t < KEYS; t++) {
            const __m128i *at = (const __m128i *)(k + t * stride + d);
            const __m512i k0 = _mm512_broadcast_i32x4(_mm_load_si128(at)),
                          k1 = _mm512_broadcast_i32x4(_mm_load_si128(at + 1));
            even[t] = _mm512_fmadd_ph(q0, _mm512_castsi512_ph(k0), even[t]);
            odd[t] = _mm512_fmadd_ph(q1, _mm512_castsi512_ph(k1), odd[t]);
        }
    }
    for (int t = 0; t < KEYS; t++)
        even[t] = _mm512_add_ph(even[t], odd[t]);
    const __m512h a = fold_32(fold_16(even[0], even[1]), fold_16(even[2], even[3])),
                  b = fold_32(fold_16(even[4], even[5]), fold_16(even[6], even[7]));
    /* lane r of a: keys 0..3 twice, of b: keys 4..7 twice */
    const __m512i low = _mm512_unpacklo_epi64(_mm512_castph_si512(a), _mm512_castph_si512(b)),
                  high = _mm512_unpackhi_epi64(_mm512_castph_si512(a), _mm512_castph_si512(b));
    const __m512 s01 =
                     _mm512_mul_ps(_mm512_add_ps(lower_half(low), lower_half(high)), _mm512_load_ps(factor)),
                 s23 = _mm512_mul_ps(_mm512_add_ps(upper_half(low), upper_half(high)),
                                     _mm512_load_ps(factor + 2 * KEYS));
    _mm256_store_ps(s, _mm512_castps512_ps256(s01));
    _mm256_store_ps(s + KVG_TILE, _mm512_extractf32x8_ps(s01, 1));
    _mm256_store_ps(s + 2 * KVG_TILE, _mm512_castps512_ps256(s23));
    _mm256_store_ps(s + 3 * KVG_TILE, _mm512_extractf32x8_ps(s23, 1));
}

/* dim: keys->dim, which the compiler should know where it is a common one. */
ALWAYS_INLINE void logits_as(enum kvg_dtype dtype, int64_t dim, const struct kvg_keys *keys,
                             const _Float16 *q, int64_t rows, _Float16 *k, float *s)
{
    const int64_t stride = padded(dim);
    const float *factor = (const float *)(const void *)(q + kvg_round_up(rows, ROWS) * stride);
    __m512i nan = _mm512_setzero_si512();

    for (int64_t j = 0; j < keys->count; j += KEYS) {
        decode_keys(dtype, dim, 0, keys, j, KEYS, k, &nan);
        logits_block(q, factor, k, stride, keys, NULL, j, s + j);
        for (int64_t r = ROWS; r < rows; r += ROWS)
            logits_block(q + r * stride, factor + r * KEYS, k, stride, NULL, NULL, 0, s + r * KVG_TILE + j);
    }
    if (any_nan(nan))
        nan_to_logits(keys, rows, s);
}

static void logits(const struct kvg_keys *keys, const void *packed_q, int64_t rows, void *scratch, float *s)
{
    if (keys->dtype == KVG_E4M3 && keys->dim == 128)
        logits_as(KVG_E4M3, 128, keys, packed_q, rows, scratch, s);
    else if (keys->dtype == KVG_E4M3)
        logits_as(KVG_E4M3, keys->dim, keys, packed_q, rows, scratch, s);
    else
        logits_as(KVG_E5M2, keys->dim, keys, packed_q, rows, scratch, s);
}

/* ---------------------------------------------------------------- softmax */

/* The largest P: FLUSH_KEYS products of it and the largest value stay below 65504. */
static float p_factor(enum kvg_dtype dtype)
{
    return dtype == KVG_E4M3 ? 0x1p11f : 0x1p4f;
}

static float softmax(const struct kvg_softmax *how, float *s, int64_t lo, int64_t hi,
                     struct kvg_row_state *state, void *p_row)
{
    const float lift = how->p_e4m3 ? how->p_factor * 0x1p-8f : how->p_factor;
    const __m512i twice = _mm512_set_epi16(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8, 8, 7, 7,
                                           6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    __m512 t[KVG_TILE / VECTOR];
    const float factor = softmax_row(how, s, lo, hi, state, t);

    for (int i = 0; i < KVG_TILE / VECTOR; i++) {
        const __m256h p = _mm512_cvtxps_ph(_mm512_mul_ps(t[i], _mm512_set1_ps(lift)));
        const __m512i words = _mm512_castsi256_si512(_mm256_castph_si256(p));
        _mm512_store_si512((char *)p_row + KVG_ALIGN * i, _mm512_permutexvar_epi16(twice, words));
    }
    *(float *)(void *)((char *)p_row + KVG_TILE * 4) = 1.0f / (lift * LOWERED);
    return factor;
}

/* ---------------------------------------------------------------- values */

/* All keys to out[count][padded(dim)]. */
ALWAYS_INLINE void decode_tile(enum kvg_dtype dtype, const struct kvg_keys *keys, _Float16 *out, __m512i *nan)
{
    decode_keys(dtype, keys->dim, 1, keys, 0, keys->count, out, nan);
}

/* sum += P V of one key; p: of its first row. */
ALWAYS_INLINE void add_key(int rows, int pairs, const char *p, __m512h value[PAIRS][2],
                           __m512h sum[ROWS][PAIRS][2])
{
    for (int r = 0; r < rows; r++) {
        int32_t two;
        memcpy(&two, p + r * P_ROW, sizeof two);
        const __m512h weight = _mm512_castsi512_ph(_mm512_set1_epi32(two));
        for (int i = 0; i < pairs; i++) {
            sum[r][i][0] = _mm512_fmadd_ph(weight, value[i][0], sum[r][i][0]);
            sum[r][i][1] = _mm512_fmadd_ph(weight, value[i][1], sum[r][i][1]);
        }
    }
}

/* FP16 sums to FP32: first == 1: part = sum, else part += sum. part[row][pair][even, odd][half][16]. */
ALWAYS_INLINE void flush(int rows, int pairs, int first, __m512h sum[ROWS][PAIRS][2], float *part)
{
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < 2 * pairs; i++) {
            const __m512i x = _mm512_castph_si512(sum[r][i / 2][i % 2]);
            float *at = part + (r * 2 * PAIRS + i) * 2 * VECTOR;
            __m512 low = lower_half(x), high = upper_half(x);
            if (!first) {
                low = _mm512_add_ps(low, _mm512_load_ps(at));
                high = _mm512_add_ps(high, _mm512_load_ps(at + VECTOR));
            }
            _mm512_store_ps(at, low);
            _mm512_store_ps(at + VECTOR, high);
        }
    }
}

/* acc = acc * factor + part, dims back in order; `dims` of the strip exist. */
ALWAYS_INLINE void add_tile(int rows, int pairs, int64_t dims, const float *part, const char *p,
                            const float *factor, float *acc, int64_t acc_stride)
{
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
                  second = _mm512_add_epi32(first, _mm512_set1_epi32(8));

    for (int r = 0; r < rows; r++) {
        float unlift;
        memcpy(&unlift, p + r * P_ROW + KVG_TILE * 4, sizeof unlift);
        const __m512 f = _mm512_set1_ps(factor[r]), u = _mm512_set1_ps(unlift);
        for (int i = 0; i < 4 * pairs; i++) { /* i / 2: half of a block */
            const float *even = part + r * PAIRS * BLOCK + i / 4 * BLOCK + i / 2 % 2 * VECTOR;
            float *at = acc + r * acc_stride + i * VECTOR;
            if (i * VECTOR < dims) {
                const __m512 x = _mm512_permutex2var_ps(_mm512_load_ps(even), i % 2 ? second : first,
                                                        _mm512_load_ps(even + 2 * VECTOR));
                _mm512_store_ps(at, _mm512_fmadd_ps(x, u, _mm512_mul_ps(_mm512_load_ps(at), f)));
            }
        }
    }
}

ALWAYS_INLINE void clear(int rows, int pairs, __m512h sum[ROWS][PAIRS][2])
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < pairs; i++)
            sum[r][i][0] = sum[r][i][1] = _mm512_setzero_ph();
}

/* What a strip of values is made of: `v` decoded before (with its stride), or the keys from dim d on. */
struct strip {
    const struct kvg_keys *keys;
    const _Float16 *v;
    int64_t stride, d, dims;
    float *part;
};

ALWAYS_INLINE void sum_strip(enum kvg_dtype dtype, int decoded, int rows, int pairs, const struct strip *w,
                             const char *p, const float *factor, float *acc, int64_t acc_stride, __m512i *nan)
{
    const __mmask64 mask = mask_64(w->dims - (pairs - 1) * BLOCK); /* of the last block */

    for (int64_t begin = 0; begin < w->keys->count; begin += FLUSH_KEYS) {
        __m512h sum[ROWS][PAIRS][2];

        clear(rows, pairs, sum);
        for (int64_t j = begin; j < begin + FLUSH_KEYS; j++) {
            __m512h value[PAIRS][2];
            for (int i = 0; i < pairs; i++) {
                if (decoded) {
                    value[i][0] = _mm512_load_ph(w->v + j * w->stride + i * BLOCK);
                    value[i][1] = _mm512_load_ph(w->v + j * w->stride + i * BLOCK + BLOCK / 2);
                } else {
                    const int64_t at = w->d + i * BLOCK;
                    prefetch(w->keys, j, at);
                    decode(dtype, load_codes(key_at(w->keys, j) + at, i == pairs - 1 ? mask : ~(__mmask64)0),
                           value[i], nan);
                }
            }
            add_key(rows, pairs, p + j * 4, value, sum);
        }
        flush(rows, pairs, begin == 0, sum, w->part);
    }
    add_tile(rows, pairs, w->dims, w->part, p, factor, acc + w->d, acc_stride);
}

/* CALL(rows, pairs) with both constant, so that the sums are registers. */
#define BY_PAIRS(CALL, rows)                                                                                 \
    if (pairs == 1)                                                                                          \
        CALL(rows, 1);                                                                                       \
    else                                                                                                     \
        CALL(rows, 2);
#define BY_ROWS(CALL)                                                                                        \
    switch (rows) {                                                                                          \
    case 1:                                                                                                  \
        BY_PAIRS(CALL, 1)                                                                                    \
        break;                                                                                               \
    case 2:                                                                                                  \
        BY_PAIRS(CALL, 2)                                                                                    \
        break;                                                                                               \
    case 3:                                                                                                  \
        BY_PAIRS(CALL, 3)                                                                                    \
        break;                                                                                               \
    default:                                                                                                 \
        BY_PAIRS(CALL, 4)                                                                                    \
        break;                                                                                               \
    }

static void strip_decoded(int64_t rows, int64_t pairs, const struct strip *w, const char *p,
                          const float *factor, float *acc, int64_t acc_stride){
#define CALL(rows, pairs) sum_strip(KVG_E4M3, 1, rows, pairs, w, p, factor, acc, acc_stride, NULL)
    BY_ROWS(CALL)
#undef CALL
}

ALWAYS_INLINE
    void values_as(enum kvg_dtype dtype, const struct kvg_keys *keys, const char *p, const float *factor,
                   int64_t rows, _Float16 *scratch, float *acc, int64_t acc_stride)
{
    const int64_t stride = padded(keys->dim);
    struct strip w = {keys, scratch, stride, 0, 0, (float *)(void *)(scratch + KVG_TILE * stride)};
    __m512i nan = _mm512_setzero_si512();

    if (rows > ROWS)
        decode_tile(dtype, keys, scratch, &nan);
    for (; w.d < keys->dim; w.d += PAIRS * BLOCK) {
        const int64_t pairs = keys->dim - w.d > BLOCK ? 2 : 1;
        w.v = scratch + w.d;
        w.dims = keys->dim - w.d < PAIRS * BLOCK ? keys->dim - w.d : PAIRS * BLOCK;
        if (rows <= ROWS) {
#define CALL(rows, pairs) sum_strip(dtype, 0, rows, pairs, &w, p, factor, acc, acc_stride, &nan)
            BY_ROWS(CALL)
#undef CALL
            continue;
        }
        for (int64_t r = 0; r < rows; r += ROWS) {
            strip_decoded(rows - r < ROWS ? rows - r : ROWS, pairs, &w, p + r * P_ROW, factor + r,
                          acc + r * acc_stride, acc_stride);
        }
    }
    if (any_nan(nan))
        nan_to_values(keys, rows, acc, acc_stride);
}

static void values(const struct kvg_keys *keys, const void *p, const float *factor, int64_t rows,
                   void *scratch, float *acc, int64_t acc_stride)
{
    if (keys->dtype == KVG_E4M3)
        values_as(KVG_E4M3, keys, p, factor, rows, scratch, acc, acc_stride);
    else
        values_as(KVG_E5M2, keys, p, factor, rows, scratch, acc, acc_stride);
}

#include "attention_avx512fp16_whole.h"

static int64_t qk_chain(int64_t dim)
{
    return padded(dim) / CHUNK / 2 + 3; /* products of a lane, its two chains, two levels of the tree */
}

/* The smallest normal of FP16 in units of the operands: lifted Q has its largest at half of 2^lifted_below at
 * least, P its factor, decoded values 2^-8. */
#define SMALLEST_NORMAL 0x1p-14
static double qk_smallest_normal(int64_t dim)
{
    return ldexp(SMALLEST_NORMAL / (double)LOWERED, 1 - lifted_below(dim, TOP));
}

static double pv_smallest_normal(enum kvg_dtype dtype)
{
    return SMALLEST_NORMAL / (double)(LOWERED * p_factor(dtype));
}

const struct kvg_attention_ops kvg_attention_avx512fp16 = {
    .isa = KVG_ISA_AVX512FP16,
    .adds_offset = 1,
    .own_rows_ahead = 1,
    .row_step = ROWS,
    .packed_q_bytes = packed_q_bytes,
    .scratch_bytes = scratch_bytes,
    .p_row_bytes = P_ROW,
    .p_factor = p_factor,
    .pack_q = pack_q,
    .logits = logits,
    .softmax = softmax,
    .values = values,
    .whole_fits = whole_fits,
    .whole_begin = whole_begin,
    .whole = whole,
    .whole_end = whole_end,
    .exp2 = exp2_all,
    .qk_chain = qk_chain,
    .exp2_rel_error = KVG_EXP2_REL_ERROR,
    .p_format = KVG_F16,
    .operand = KVG_BF16,
    .dtypes = 1u << KVG_E4M3 | 1u << KVG_E5M2,
    .sum_bits = 11,
    .pv_flush = FLUSH_KEYS,
    .qk_smallest_normal = qk_smallest_normal,
    .pv_smallest_normal = pv_smallest_normal,
};
