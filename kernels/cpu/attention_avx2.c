/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_avx2.c: attention in FP32 with AVX2, FMA and F16C.
 *
 * Decoding by FP16. A shifted e4m3 code is an FP16 of 2^-8 times its value, subnormals included. An e5m2 code
 * is the upper half of an FP16. VCVTPH2PS converts both to FP32.
 *
 * Decoding by shifts, e4m3 on AMD. An e4m3 code shifted into an FP32 has 2^-120 times its value. That saves
 * the conversion, but FP8 subnormals become FP32 subnormals. AMD's FMA takes those at full speed (measured: 8
 * FMA in 4 cycles either way). Other CPUs may take a microcode assist, so they decode by FP16. To avoid
 * underflow each row of Q is lifted by a power of two of its own, and P by 2^60; the sums are multiplied by
 * what remains. The powers of two cancel exactly, so both ways give the same bits.
 *
 * NaN. The NaN of e4m3 would become a number (480). Each part of a tile is searched for a NaN code first. If
 * it has one, it is decoded to memory and NaN is written there.
 *
 * Logits. The two halves of a register hold four dims of two rows of Q; four dims of a key are broadcast to
 * both. So four rows (a GQA group) and four keys need eight accumulators and one transposing sum at the end.
 *
 * Values. Four rows by 16 dims are accumulated in registers over the tile, then added to the accumulators in
 * memory once. Up to four rows decode V on the fly; more rows share a decoded tile.
 */
#include "softmax_avx2.h"

#include <string.h>

/* Instructions for a token and KV head, head_dim 128, group of 4: 128 FMA (64 cycles). A bf16 cache adds
 * 64 for unpacking. e4m3 adds 96 (shift, mask, widen) and 16 to search for NaN. bf16 reads 512 bytes and
 * e4m3 256, so FP8 is faster where memory is the limit, and only a little where one thread runs alone.
 * Prefill of 1024 tokens on Zen 3: 61 GFLOP/s, 60 % of the FMA roof (scalar kernel: 9.5). */

enum { ROWS = 4, CHUNK = 4, BLOCK_KEYS = 16, STRIP = 16 };

/* Blocks of four rows for the products of many rows, then the first four rows as they are, then lifted, then
 * what the logits of each lifted row must be multiplied by. */
static int64_t packed_q_bytes(int64_t rows, int64_t dim)
{
    return ((kvg_round_up(rows, ROWS) + 2 * ROWS) * dim + ROWS) * 4;
}

static int64_t scratch_bytes(int64_t dim)
{
    return KVG_TILE * dim * 4;
}

/* Many rows: one lane per dim of a chunk of four, then two levels of a tree. Up to four rows: one lane per
 * dim of eight, then three levels, which is shorter from 24 dims on. */
static int64_t qk_chain(int64_t dim)
{
    return dim / CHUNK + 3;
}

/* ---------------------------------------------------------------- decoding */

/* How the elements of a row become FP32. */
enum decoder { BF16, E5M2, E4M3_HALF, E4M3_SHIFT };

#define LIFT 0x1p60f /* P (for both ways of e4m3) is multiplied by this */

/* The factor that a sum over K, or over V, must still be multiplied by. For E4M3_SHIFT that of K is in packed
 * Q, one for each row. */
ALWAYS_INLINE float k_factor(enum decoder how)
{
    return how == E4M3_HALF ? 0x1p8f : 1.0f;
}

ALWAYS_INLINE float v_factor(enum decoder how)
{
    return how == E4M3_HALF ? 0x1p8f / LIFT : how == E4M3_SHIFT ? 0x1p120f / LIFT : 1.0f;
}

static float p_factor(enum kvg_dtype dtype)
{
    return dtype == KVG_E4M3 ? LIFT : 1.0f;
}

ALWAYS_INLINE int64_t decoder_bytes(enum decoder how)
{
    return how == BF16 ? 2 : 1;
}

/* For rows decoded to memory, and for rows decoded into registers. */
static enum decoder to_memory(enum kvg_dtype dtype)
{
    return dtype == KVG_BF16 ? BF16 : dtype == KVG_E5M2 ? E5M2 : E4M3_HALF;
}

static enum decoder to_registers(enum kvg_dtype dtype)
{
    return dtype == KVG_E4M3 && __builtin_cpu_is("amd") ? E4M3_SHIFT : to_memory(dtype);
}

ALWAYS_INLINE __m256 shifted(const uint8_t *at)
{
    const __m256i code = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)at));

    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_slli_epi32(code, 20), _mm256_set1_epi32((int)0x87f00000)));
}

/* 16 or (half) 8 elements at source[d]. */
ALWAYS_INLINE void decode16(enum decoder how, const void *source, int64_t d, int half, __m256 *low,
                            __m256 *high)
{
    if (how == BF16) {
        const __m128i *at = (const __m128i *)((const uint16_t *)source + d);
        *low = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(at)), 16));
        if (!half) {
            *high =
                _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(at + 1)), 16));
        }
        return;
    }
    const uint8_t *at = (const uint8_t *)source + d;
    if (how == E4M3_SHIFT) {
        *low = shifted(at);
        if (!half)
            *high = shifted(at + 8);
        return;
    }
    const __m128i codes = half ? _mm_loadl_epi64((const __m128i *)at) : _mm_loadu_si128((const __m128i *)at);
    const __m256i words = how == E4M3_HALF
                              ? _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7),
                                                 _mm256_set1_epi16((short)0xbf80))
                              : _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8);
    *low = _mm256_cvtph_ps(_mm256_castsi256_si128(words));
    if (!half)
        *high = _mm256_cvtph_ps(_mm256_extracti128_si256(words, 1));
}

/* Some keys of a tile. In NHD pages the rows of one head lie a power of two apart and share few sets of the
 * first-level cache. A part is small enough that its rows do not evict each other before their second use. */
struct part {
    const void *const *row;
    const char *const *ahead;
    int64_t count, dim;
    enum kvg_dtype dtype;
};

static struct part part_of(const struct kvg_keys *keys, int64_t begin, int64_t most)
{
    const int64_t left = keys->count - begin;

    return (struct part){keys->row + begin, keys->ahead + begin, left < most ? left : most, keys->dim,
                         keys->dtype};
}

/* Does a row hold an e4m3 NaN? */
static int nan_in(const struct part *keys)
{
    const __m256i sign = _mm256_set1_epi8((char)0x80);
    __m256i most = _mm256_setzero_si256(); /* largest magnitude code of each byte lane, sign bit set */
    __m128i rest = _mm_setzero_si128();

    if (keys->dtype != KVG_E4M3)
        return 0;
    for (int64_t j = 0; j < keys->count; j++) {
        const uint8_t *row = keys->row[j];
        int64_t d = 0;

        for (; d + 32 <= keys->dim; d += 32) {
            most =
                _mm256_max_epu8(most, _mm256_or_si256(_mm256_loadu_si256((const __m256i *)(row + d)), sign));
        }
        for (; d < keys->dim; d += 8) {
            rest = _mm_max_epu8(rest, _mm_or_si128(_mm_loadl_epi64((const __m128i *)(row + d)),
                                                   _mm256_castsi256_si128(sign)));
        }
    }
    most = _mm256_max_epu8(most, _mm256_broadcastsi128_si256(rest));
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(most, _mm256_set1_epi8((char)0xff))) != 0;
}

/* Puts NaN where a row of e4m3 codes has it. */
static __attribute__((noinline)) void patch_nan(const void *const *row, int64_t count, int64_t dim,
                                                float *out)
{
    for (int64_t j = 0; j < count; j++) {
        for (int64_t d = 0; d < dim; d++)
            if ((((const uint8_t *)row[j])[d] & 0x7f) == 0x7f)
                out[j * dim + d] = NAN;
    }
}

/* count rows to out[count][dim]. */
ALWAYS_INLINE void decode_rows_as(enum decoder how, const void *const *row, const char *const *ahead,
                                  int64_t count, int64_t dim, float *out)
{
    for (int64_t j = 0; j < count; j++) {
        __m256 low, high;
        int64_t d = 0;

        if (ahead)
            kvg_prefetch(ahead[j], dim * decoder_bytes(how));
        for (; d + STRIP <= dim; d += STRIP) {
            decode16(how, row[j], d, 0, &low, &high);
            _mm256_storeu_ps(out + j * dim + d, low);
            _mm256_storeu_ps(out + j * dim + d + 8, high);
        }
        if (d < dim) {
            decode16(how, row[j], d, 1, &low, &high);
            _mm256_storeu_ps(out + j * dim + d, low);
        }
    }
}

static void decode_rows(enum decoder how, const void *const *row, const char *const *ahead, int64_t count,
                        int64_t dim, float *out)
{
    if (how == E4M3_HALF)
        decode_rows_as(E4M3_HALF, row, ahead, count, dim, out);
    else if (how == E5M2)
        decode_rows_as(E5M2, row, ahead, count, dim, out);
    else
        decode_rows_as(BF16, row, ahead, count, dim, out);
}

/* ---------------------------------------------------------------- logits */

/* The exponent that a row of Q for E4M3_SHIFT is lifted by: its largest finite element comes to lie below
 * 2^100. With 120 a product is as large as without any shift, so more is not needed; with 0 the factor of the
 * logits is 2^120, still finite. */
static int lift_of(const float *q, int64_t dim)
{
    float largest = 0.0f;
    int exponent;

    for (int64_t d = 0; d < dim; d++)
        largest = isfinite(q[d]) && fabsf(q[d]) > largest ? fabsf(q[d]) : largest;
    frexpf(largest, &exponent);
    return exponent < -20 ? 120 : exponent > 100 ? 0 : 100 - exponent;
}

/* Within a block of four rows: [chunk of four dims][row][dim]. Rows that do not exist are zero. */
static void pack_q(const void *const *row, int64_t rows, int64_t dim, enum kvg_dtype dtype, void *packed)
{
    float *out = packed, *plain = out + kvg_round_up(rows, ROWS) * dim, *lifted = plain + ROWS * dim;

    memset(packed, 0, (size_t)packed_q_bytes(rows, dim));
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t d = 0; d < dim; d++) {
            const float q = dtype == KVG_BF16 ? kvg_bf16_decode(((const uint16_t *)row[r])[d])
                                              : kvg_fp8_e4m3_decode(((const uint8_t *)row[r])[d]);
            out[r / ROWS * ROWS * dim + d / CHUNK * ROWS * CHUNK + r % ROWS * CHUNK + d % CHUNK] = q;
            if (r < ROWS)
                plain[r * dim + d] = q;
        }
        if (r < ROWS) {
            const int lift = lift_of(plain + r * dim, dim);
            const float by = ldexpf(1.0f, lift);
            for (int64_t d = 0; d < dim; d++)
                lifted[r * dim + d] = plain[r * dim + d] * by;
            lifted[ROWS * dim + r] = ldexpf(1.0f, 120 - lift);
        }
    }
}

/* Sums of the four lanes of each half: {a0, a1, a2, a3} per half. */
ALWAYS_INLINE __m256 sum_lanes(__m256 a0, __m256 a1, __m256 a2, __m256 a3)
{
    const __m256 a01 = _mm256_add_ps(_mm256_unpacklo_ps(a0, a1), _mm256_unpackhi_ps(a0, a1));
    const __m256 a23 = _mm256_add_ps(_mm256_unpacklo_ps(a2, a3), _mm256_unpackhi_ps(a2, a3));

    return _mm256_add_ps(_mm256_shuffle_ps(a01, a23, 0x44), _mm256_shuffle_ps(a01, a23, 0xee));
}

/* Four keys against two (pairs == 1) or four rows. */
ALWAYS_INLINE void logits_4(int pairs, const float *q, const float *k, int64_t dim, float factor, float *s)
{
    __m256 acc[2][4];

    for (int p = 0; p < pairs; p++)
        for (int t = 0; t < 4; t++)
            acc[p][t] = _mm256_setzero_ps();
    for (int64_t d = 0; d < dim; d += CHUNK) {
        const __m256 q0 = _mm256_load_ps(q + d * ROWS), q1 = _mm256_load_ps(q + d * ROWS + 8);
        for (int t = 0; t < 4; t++) {
            const __m256 key = _mm256_broadcast_ps((const __m128 *)(k + t * dim + d));
            acc[0][t] = _mm256_fmadd_ps(q0, key, acc[0][t]);
            if (pairs == 2)
                acc[1][t] = _mm256_fmadd_ps(q1, key, acc[1][t]);
        }
    }
    for (int p = 0; p < pairs; p++) {
        const __m256 sum =
            _mm256_mul_ps(sum_lanes(acc[p][0], acc[p][1], acc[p][2], acc[p][3]), _mm256_set1_ps(factor));
        _mm_store_ps(s + 2 * p * KVG_TILE, _mm256_castps256_ps128(sum));
        _mm_store_ps(s + (2 * p + 1) * KVG_TILE, _mm256_extractf128_ps(sum, 1));
    }
}

/* Two keys against up to four rows of plain Q: {row 0, .. row 3} of each key. */
ALWAYS_INLINE void dots_2(enum decoder how, int rows, const void *const *row, const float *q, int64_t dim,
                          __m128 out[2])
{
    __m256 acc[2][4], low[2], high[2], sum[2];
    int64_t d = 0;

    for (int r = 0; r < 4; r++)
        acc[0][r] = acc[1][r] = _mm256_setzero_ps();
    for (; d + STRIP <= dim; d += STRIP) {
        decode16(how, row[0], d, 0, &low[0], &high[0]);
        decode16(how, row[1], d, 0, &low[1], &high[1]);
        for (int r = 0; r < rows; r++) {
            const __m256 q0 = _mm256_load_ps(q + r * dim + d), q1 = _mm256_load_ps(q + r * dim + d + 8);
            acc[0][r] = _mm256_fmadd_ps(low[0], q0, acc[0][r]);
            acc[1][r] = _mm256_fmadd_ps(low[1], q0, acc[1][r]);
            acc[0][r] = _mm256_fmadd_ps(high[0], q1, acc[0][r]);
            acc[1][r] = _mm256_fmadd_ps(high[1], q1, acc[1][r]);
        }
    }
    if (d < dim) {
        decode16(how, row[0], d, 1, &low[0], &high[0]);
        decode16(how, row[1], d, 1, &low[1], &high[1]);
        for (int r = 0; r < rows; r++) {
            const __m256 q0 = _mm256_load_ps(q + r * dim + d);
            acc[0][r] = _mm256_fmadd_ps(low[0], q0, acc[0][r]);
            acc[1][r] = _mm256_fmadd_ps(low[1], q0, acc[1][r]);
        }
    }
    for (int t = 0; t < 2; t++) {
        sum[t] = sum_lanes(acc[t][0], acc[t][1], acc[t][2], acc[t][3]);
        out[t] = _mm_add_ps(_mm256_castps256_ps128(sum[t]), _mm256_extractf128_ps(sum[t], 1));
    }
}

/* All keys against up to four rows of Q, which for E4M3_SHIFT are lifted. */
ALWAYS_INLINE void logits_few(enum decoder how, int rows, const struct part *keys, const float *q, float *s)
{
    const int64_t bytes = decoder_bytes(how);
    const float *unlift = q + ROWS * keys->dim;

    for (int64_t j = 0; j < keys->count; j += 4) {
        __m128 k[4];

        for (int t = 0; t < 4; t++)
            kvg_prefetch(keys->ahead[j + t], keys->dim * bytes);
        dots_2(how, rows, keys->row + j, q, keys->dim, k);
        dots_2(how, rows, keys->row + j + 2, q, keys->dim, k + 2);
        _MM_TRANSPOSE4_PS(k[0], k[1], k[2], k[3]);
        for (int r = 0; r < rows; r++) {
            const __m128 factor = _mm_set1_ps(how == E4M3_SHIFT ? unlift[r] : k_factor(how));
            _mm_store_ps(s + r * KVG_TILE + j, _mm_mul_ps(k[r], factor));
        }
    }
}

ALWAYS_INLINE void logits_few_rows(enum decoder how, int64_t rows, const struct part *keys, const float *q,
                                   float *s)
{
    switch (rows) {
    case 1:
        logits_few(how, 1, keys, q, s);
        break;
    case 2:
        logits_few(how, 2, keys, q, s);
        break;
    case 3:
        logits_few(how, 3, keys, q, s);
        break;
    default:
        logits_few(how, 4, keys, q, s);
        break;
    }
}

/* plain: up to four rows of Q, then the same lifted, then the factors. */
static void logits_in_registers(const struct part *keys, int64_t rows, const float *plain, float *s)
{
    switch (to_registers(keys->dtype)) {
    case E4M3_SHIFT:
        logits_few_rows(E4M3_SHIFT, rows, keys, plain + ROWS * keys->dim, s);
        break;
    case E4M3_HALF:
        logits_few_rows(E4M3_HALF, rows, keys, plain, s);
        break;
    case E5M2:
        logits_few_rows(E5M2, rows, keys, plain, s);
        break;
    default:
        logits_few_rows(BF16, rows, keys, plain, s);
        break;
    }
}

/* A part decoded to memory, against all rows. */
static void logits_from_memory(const struct part *keys, int nan, const float *packed_q, int64_t rows,
                               float *k, float *s)
{
    const enum decoder how = to_memory(keys->dtype);
    const int64_t dim = keys->dim;
    const float factor = k_factor(how);

    decode_rows(how, keys->row, keys->ahead, keys->count, dim, k);
    if (nan)
        patch_nan(keys->row, keys->count, dim, k);
    for (int64_t r = 0; r < rows; r += ROWS) {
        for (int64_t t = 0; t < keys->count; t += 4)
            if (rows - r > 2)
                logits_4(2, packed_q + r * dim, k + t * dim, dim, factor, s + r * KVG_TILE + t);
            else
                logits_4(1, packed_q + r * dim, k + t * dim, dim, factor, s + r * KVG_TILE + t);
    }
}

static void logits(const struct kvg_keys *keys, const void *packed_q, int64_t rows, void *scratch, float *s)
{
    for (int64_t j = 0; j < keys->count; j += BLOCK_KEYS) {
        const struct part part = part_of(keys, j, BLOCK_KEYS);
        const int nan = nan_in(&part);

        if (rows <= ROWS && !nan)
            logits_in_registers(&part, rows, (const float *)packed_q + ROWS * keys->dim, s + j);
        else
            logits_from_memory(&part, nan, packed_q, rows, scratch, s + j);
    }
}

/* ---------------------------------------------------------------- values */

/* rows x 8 * vectors accumulators: acc = acc * factor + scale * tile sum. */
ALWAYS_INLINE void add_tile(int rows, int vectors, __m256 sum[4][2], const float *factor, float scale,
                            float *acc, int64_t stride)
{
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < vectors; i++) {
            float *at = acc + r * stride + 8 * i;
            const __m256 old = _mm256_mul_ps(_mm256_load_ps(at), _mm256_set1_ps(factor[r]));
            _mm256_store_ps(at, _mm256_fmadd_ps(sum[r][i], _mm256_set1_ps(scale), old));
        }
    }
}

/* One strip of 16 (or, vectors == 1, 8) dims. Decoded tile at v, or v == NULL: codes decoded here. */
ALWAYS_INLINE void strip(int rows, int vectors, enum decoder how, const struct part *keys, int64_t d,
                         const float *v, const float *p, const float *factor, float *acc, int64_t stride)
{
    const int64_t bytes = decoder_bytes(how);
    const int line = v == NULL && d * bytes % KVG_LINE == 0;
    __m256 sum[4][2], value[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};

    for (int r = 0; r < rows; r++)
        sum[r][0] = sum[r][1] = _mm256_setzero_ps();
    for (int64_t j = 0; j < keys->count; j++) {
        if (v) {
            value[0] = _mm256_loadu_ps(v + j * keys->dim + d);
            value[1] = vectors == 2 ? _mm256_loadu_ps(v + j * keys->dim + d + 8) : value[1];
        } else {
            decode16(how, keys->row[j], d, vectors == 1, &value[0], &value[1]);
            if (line)
                __builtin_prefetch(keys->ahead[j] + d * bytes, 0, 2);
        }
        for (int r = 0; r < rows; r++) {
            const __m256 weight = _mm256_broadcast_ss(p + r * KVG_TILE + j);
            for (int i = 0; i < vectors; i++)
                sum[r][i] = _mm256_fmadd_ps(weight, value[i], sum[r][i]);
        }
    }
    add_tile(rows, vectors, sum, factor, v_factor(how), acc + d, stride);
}

/* A strip for 1 to 4 rows. */
ALWAYS_INLINE void strip_rows(int64_t rows, int vectors, enum decoder how, const struct part *keys, int64_t d,
                              const float *v, const float *p, const float *factor, float *acc, int64_t stride)
{
    switch (rows) {
    case 1:
        strip(1, vectors, how, keys, d, v, p, factor, acc, stride);
        break;
    case 2:
        strip(2, vectors, how, keys, d, v, p, factor, acc, stride);
        break;
    case 3:
        strip(3, vectors, how, keys, d, v, p, factor, acc, stride);
        break;
    default:
        strip(4, vectors, how, keys, d, v, p, factor, acc, stride);
        break;
    }
}

/* v: the decoded tile, or NULL with at most four rows: decoded on the fly. */
ALWAYS_INLINE void values_as(enum decoder how, const struct part *keys, const float *v, const float *p,
                             const float *factor, int64_t rows, float *acc, int64_t stride)
{
    const int64_t dim = keys->dim;

    for (int64_t d = 0; d < dim; d += STRIP) {
        for (int64_t r = 0; r < rows; r += ROWS) {
            const int64_t n = rows - r < ROWS ? rows - r : ROWS;
            if (dim - d >= STRIP)
                strip_rows(n, 2, how, keys, d, v, p + r * KVG_TILE, factor + r, acc + r * stride, stride);
            else
                strip_rows(n, 1, how, keys, d, v, p + r * KVG_TILE, factor + r, acc + r * stride, stride);
        }
    }
}

static void values_from_memory(const struct part *keys, int nan, const float *p, const float *factor,
                               int64_t rows, float *v, float *acc, int64_t stride)
{
    decode_rows(to_memory(keys->dtype), keys->row, keys->ahead, keys->count, keys->dim, v);
    if (nan)
        patch_nan(keys->row, keys->count, keys->dim, v);
    if (keys->dtype == KVG_E4M3)
        values_as(E4M3_HALF, keys, v, p, factor, rows, acc, stride);
    else /* e5m2 and bf16 have the same factor, and nothing is left to decode */
        values_as(BF16, keys, v, p, factor, rows, acc, stride);
}

static void values_in_registers(const struct part *keys, const float *p, const float *factor, int64_t rows,
                                float *acc, int64_t stride)
{
    switch (to_registers(keys->dtype)) {
    case E4M3_SHIFT:
        values_as(E4M3_SHIFT, keys, NULL, p, factor, rows, acc, stride);
        break;
    case E4M3_HALF:
        values_as(E4M3_HALF, keys, NULL, p, factor, rows, acc, stride);
        break;
    case E5M2:
        values_as(E5M2, keys, NULL, p, factor, rows, acc, stride);
        break;
    default:
        values_as(BF16, keys, NULL, p, factor, rows, acc, stride);
        break;
    }
}

static void values(const struct kvg_keys *keys, const void *p_rows, const float *factor, int64_t rows,
                   void *scratch, float *acc, int64_t acc_stride)
{
    static const float ones[ROWS] = {1.0f, 1.0f, 1.0f, 1.0f};
    const int64_t most = rows <= ROWS ? KVG_TILE / 2 : KVG_TILE;
    const float *p = p_rows;

    for (int64_t j = 0; j < keys->count; j += most) {
        const struct part part = part_of(keys, j, most);
        const float *f = j == 0 ? factor : ones; /* only few rows come here twice */
        const int nan = nan_in(&part);

        if (rows <= ROWS && !nan)
            values_in_registers(&part, p + j, f, rows, acc, acc_stride);
        else
            values_from_memory(&part, nan, p + j, f, rows, scratch, acc, acc_stride);
    }
}

const struct kvg_attention_ops kvg_attention_avx2 = {
    .isa = KVG_ISA_AVX2,
    .row_step = ROWS,
    .packed_q_bytes = packed_q_bytes,
    .scratch_bytes = scratch_bytes,
    .p_row_bytes = KVG_TILE * 4,
    .p_factor = p_factor,
    .pack_q = pack_q,
    .logits = logits,
    .softmax = softmax,
    .values = values,
    .exp2 = exp2_all,
    .qk_chain = qk_chain,
    .exp2_rel_error = KVG_EXP2_REL_ERROR,
    .p_format = KVG_F32,
    .operand = KVG_F32,
    .dtypes = 1u << KVG_BF16 | 1u << KVG_E4M3 | 1u << KVG_E5M2,
};
