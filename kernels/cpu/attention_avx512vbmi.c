/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_avx512vbmi.c: attention on bf16 dot products (VDPBF16PS) that accumulate in FP32, for CPUs with
 * AVX-512, VBMI and BF16.
 *
 * Logits. The four 128-bit lanes of a register hold eight dims of four rows of Q; eight dims of a key are
 * broadcast to all four. So one accumulator per key serves a GQA group of four. One small transposition gives
 * the sums of four keys.
 *
 * Values. Rows of V are interleaved by pairs of keys, as VDPBF16PS needs them. P is bf16, in which an e4m3 P
 * is exact; the P of two neighbouring keys is one broadcast. Four rows by 64 dims stay in registers over a
 * tile. Up to four rows decode V on the fly; more rows share a decoded tile.
 */
#include "attention_avx512.h"

/* What limits this kernel: Emerald Rapids issues one VDPBF16PS of 512 bits in two cycles. The 32 that a
 * token and KV head (head_dim 128) need take 64 cycles, 28 ns; a gather roof of 13 GB/s leaves 19.5 ns. */

enum { ROWS = 4, CHUNK = 8, BLOCK_KEYS = 16 };

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

/* ---------------------------------------------------------------- logits */

/* Blocks of four rows; within a block [chunk of eight dims][row][dim]. Rows that do not exist are zero. */
static void pack_q(const void *const *row, int64_t rows, int64_t dim, enum kvg_dtype dtype, void *packed)
{
    uint16_t *out = packed;

    memset(packed, 0, (size_t)packed_q_bytes(rows, dim));
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t d = 0; d < dim; d++) {
            const uint16_t q = q_element(row[r], d, dtype);
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

    for (int b = 0; b < blocks; b++)
        for (int t = 0; t < keys; t++)
            acc[b][t] = _mm512_setzero_ps();
    for (int64_t d = 0; d < dim; d += CHUNK) {
        __m512i rows[2];
        for (int b = 0; b < blocks; b++)
            rows[b] = _mm512_load_si512(q + b * ROWS * dim + d * ROWS);
        for (int t = 0; t < keys; t++) {
            const __m512i key = _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)(k + t * stride + d)));
            for (int b = 0; b < blocks; b++)
                acc[b][t] = _mm512_dpbf16_ps(acc[b][t], as_bf16(rows[b]), as_bf16(key));
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
        if (r < rows)
            logits_block(1, 16, q + r * dim, k, dim, stride, s + r * KVG_TILE + j);
    }
}

static void logits(const struct kvg_keys *keys, const void *packed_q, int64_t rows, void *scratch, float *s){
#define CALL(dtype) logits_as(dtype, keys, packed_q, rows, scratch, s)
    BY_DTYPE(keys->dtype, CALL)
#undef CALL
}

/* ---------------------------------------------------------------- values */

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
        for (int i = 0; i < vectors; i++)
            sum[r][i] = _mm512_dpbf16_ps(sum[r][i], as_bf16(weight), as_bf16(value[i]));
    }
}

ALWAYS_INLINE void clear(int rows, int vectors, __m512 sum[4][4])
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < vectors; i++)
            sum[r][i] = _mm512_setzero_ps();
}

/* Pairs decoded before, from dim d on at v. */
ALWAYS_INLINE void strip(int rows, int vectors, const uint16_t *v, int64_t stride, int64_t count,
                         const uint16_t *p, const float *factor, float *acc, int64_t acc_stride)
{
    __m512 sum[4][4];

    clear(rows, vectors, sum);
    for (int64_t j = 0; j < count; j += 2, v += 2 * stride) {
        __m512i value[4];
        for (int i = 0; i < vectors; i++)
            value[i] = _mm512_load_si512(v + 2 * VECTOR * i);
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
        if (vectors > 2)
            decode_pair(dtype, &t, a + 32 * bytes, b + 32 * bytes, second, &value[2], &value[3]);
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

    if (rows > ROWS)
        decode_pairs(dtype, keys, scratch);
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
#define CALL(dtype) values_as(dtype, keys, p, factor, rows, scratch, acc, acc_stride)
    BY_DTYPE(keys->dtype, CALL)
#undef CALL
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
