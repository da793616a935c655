/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_amx.c: attention on the matrix tiles of AMX. TDPBF16PS makes 16 x 16 sums over 32 bf16 products
 * in 16 cycles; VDPBF16PS needs 512 cycles for that on the same CPU. So most of the remaining time is
 * decoding.
 *
 * Logits. The left operand is K, decoded row by row. The right one is Q, packed once as pairs of dims by
 * rows. The product has keys in rows and is transposed when it is written to s.
 *
 * Values. The left operand is P as the softmax writes it. The right one is V, interleaved by pairs of keys.
 *
 * Whole tiles of up to 16 rows take the faster path of attention_amx_whole.h. This file does the rest: more
 * rows, other values of head_dim, a soft cap, tiles that some row sees only in part.
 */
#include "amx_tiles.h"
#include "attention_avx512.h"
#include "attention_amx_whole.h"

/* Measurements: decode of 32k tokens, batch 1, 32/8 heads, head_dim 128, e4m3 in NHD pages of 16, one
 * thread, cold cache. Intel Xeon (Emerald Rapids), virtual machine with 16 CPUs, noisy: its core runs at
 * half speed at times. Read and gather roof: 13 to 15 GB/s.
 *
 * A token and KV head takes 46 cycles, of which about 28 are decoding. The limit is the shuffle port:
 * VPERMI2B is three instructions inside, two of them on that port. Computing takes 5.9 ms and memory 4.9
 * ms, but before whole tiles (attention_amx_whole.h) 32k tokens took 9.4 ms:
 *   e4m3, pages of 16, NHD    9.4 ms   7.1 GB/s   52 % of the gather roof
 *   e4m3, pages of 128, HND   8.8 ms   7.6 GB/s   56 %
 *   bf16, pages of 16, NHD   12.7 ms  10.5 GB/s   79 %
 * Whole tiles compute for 5.0 ms and hide more of the memory. A prototype for e4m3 alone computed for 3.9
 * to 4.1 ms and took 7.0 ms (least 5.8) against a roof of 4.7 ms (least 4.1). The difference is the price
 * of the general code around the tiles. Effect of each part of the schedule in the prototype, median of
 * 31:
 *   no prefetch                                                   14.7 ms
 *   prefetch from the second-level cache to the first alone        8.7 ms
 *   prefetch from memory alone                                     8.4 ms
 *   both                                                           7.0 ms, least 5.8
 *   both in bursts, none during the softmax                        9.7 ms, least 6.3
 *   loads instead of prefetches                                   12.2 ms
 *   non-temporal prefetches                                       17.7 ms
 * At 8k tokens: 3.1 ms, before whole tiles 4.4 ms, roof 1.24 ms. Without that noise and before whole tiles
 * FP8 was faster than bf16 at 8k tokens too: 2.2 against 2.9 ms, with VDPBF16PS 3.2 against 3.7 ms. */

enum { ROWS = 16, KEYS = 16, CHUNK = 32, CHUNK_KEYS = 32, TILE_FLOATS = 256 };

static void begin(void)
{
    struct tile_config config = {.palette = 1};

    for (int i = 0; i < 8; i++) {
        config.bytes_per_row[i] = 64;
        config.rows[i] = 16;
    }
    MEMORY_BARRIER();
    tile_config(&config);
}

static void end(void)
{
    tile_release();
}

static void whole_begin(int64_t rows, int64_t dim, float *acc, int64_t acc_rows, int64_t acc_stride)
{
    whole_reorder(1, dim, acc, acc_rows, acc_stride);
    whole_configure(rows);
}

static void whole_end(int64_t dim, float *acc, int64_t acc_rows, int64_t acc_stride)
{
    whole_reorder(0, dim, acc, acc_rows, acc_stride);
    begin();
}

static int64_t chunks(int64_t dim)
{
    return (dim + CHUNK - 1) / CHUNK;
}

/* Q for the tiles of this file. Behind it lies another copy of Q for whole tiles of few rows. */
static int64_t own_q_bytes(int64_t rows, int64_t dim)
{
    return kvg_round_up(rows, ROWS) * chunks(dim) * CHUNK * 2;
}

static int64_t packed_q_bytes(int64_t rows, int64_t dim)
{
    return own_q_bytes(rows, dim) + (whole_dim(dim) && rows <= WHOLE_ROWS ? whole_q_words(rows, dim) * 2 : 0);
}

/* A decoded tile, then four product tiles. */
static int64_t scratch_bytes(int64_t dim)
{
    const int64_t own = KVG_TILE * padded(dim) * 2 + 4 * TILE_FLOATS * 4;

    return own > whole_scratch_bytes() ? own : whole_scratch_bytes();
}

static float *products(const void *scratch, int64_t dim)
{
    return (float *)(void *)((char *)(uintptr_t)scratch + KVG_TILE * padded(dim) * 2);
}

static int64_t qk_chain(int64_t dim)
{
    return CHUNK / 2 + 1 + chunks(dim); /* even or odd products, their sum, the chunks */
}

/* Blocks of 16 rows; within a block [pair of dims][row][2]. Rows and dims that do not exist are zero. */
static void pack_q(const void *const *row, int64_t rows, int64_t dim, enum kvg_dtype dtype, void *packed)
{
    uint16_t *out = packed, *whole_q = (uint16_t *)packed + whole_q_at(dim);
    const int64_t columns = whole_dim(dim) && rows <= WHOLE_ROWS ? whole_columns(rows) : 0;

    memset(packed, 0, (size_t)packed_q_bytes(rows, dim));
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t d = 0; d < dim; d++) {
            const uint16_t q = q_element(row[r], d, dtype);
            out[r / ROWS * ROWS * chunks(dim) * CHUNK + (d / 2 * ROWS + r % ROWS) * 2 + d % 2] = q;
            if (columns)
                whole_q[whole_q_place(columns, r, d)] = q;
        }
    }
}

/* ---------------------------------------------------------------- logits */

/* from[key][16] to s[row][key]: 16 keys, four rows (columns `column` .. + 3 of from). */
ALWAYS_INLINE void transpose_4(const float *from, float *s)
{
    __m512 z[4], low[2], high[2];

    for (int q = 0; q < 4; q++) { /* lane l: key 4 l + q */
        z[q] = _mm512_castps128_ps512(_mm_loadu_ps(from + q * ROWS));
        z[q] = _mm512_insertf32x4(z[q], _mm_loadu_ps(from + (q + 4) * ROWS), 1);
        z[q] = _mm512_insertf32x4(z[q], _mm_loadu_ps(from + (q + 8) * ROWS), 2);
        z[q] = _mm512_insertf32x4(z[q], _mm_loadu_ps(from + (q + 12) * ROWS), 3);
    }
    low[0] = _mm512_unpacklo_ps(z[0], z[1]);
    low[1] = _mm512_unpacklo_ps(z[2], z[3]);
    high[0] = _mm512_unpackhi_ps(z[0], z[1]);
    high[1] = _mm512_unpackhi_ps(z[2], z[3]);
    _mm512_store_ps(s, _mm512_shuffle_ps(low[0], low[1], 0x44));
    _mm512_store_ps(s + KVG_TILE, _mm512_shuffle_ps(low[0], low[1], 0xee));
    _mm512_store_ps(s + 2 * KVG_TILE, _mm512_shuffle_ps(high[0], high[1], 0x44));
    _mm512_store_ps(s + 3 * KVG_TILE, _mm512_shuffle_ps(high[0], high[1], 0xee));
}

/* All 64 keys against 16 rows. The results of keys that were not decoded are undefined and never read. */
ALWAYS_INLINE void logits_16(const uint16_t *k, const uint16_t *q, int64_t dim, float *product)
{
    const int64_t stride = padded(dim);

    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    for (int64_t c = 0; c < chunks(dim); c++) {
        const uint16_t *at = k + c * CHUNK;
        tile_load(4, q + c * CHUNK * ROWS, 64);
        tile_load(5, at, stride * 2);
        tile_dp(0, 5, 4);
        tile_load(6, at + KEYS * stride, stride * 2);
        tile_dp(1, 6, 4);
        tile_load(7, at + 2 * KEYS * stride, stride * 2);
        tile_dp(2, 7, 4);
        tile_load(5, at + 3 * KEYS * stride, stride * 2);
        tile_dp(3, 5, 4);
    }
    tile_store(0, product, 64);
    tile_store(1, product + TILE_FLOATS, 64);
    tile_store(2, product + 2 * TILE_FLOATS, 64);
    tile_store(3, product + 3 * TILE_FLOATS, 64);
    MEMORY_BARRIER();
}

/* 16 keys against 16 rows. */
ALWAYS_INLINE void logits_block(const uint16_t *k, const uint16_t *q, int64_t dim, float *product)
{
    const int64_t stride = padded(dim), n = chunks(dim);

    tile_zero(0);
    for (int64_t c = 0; c < n; c += 2) {
        tile_load(4, k + c * CHUNK, stride * 2);
        tile_load(5, q + c * CHUNK * ROWS, 64);
        tile_dp(0, 4, 5);
        if (c + 1 < n) {
            tile_load(6, k + (c + 1) * CHUNK, stride * 2);
            tile_load(7, q + (c + 1) * CHUNK * ROWS, 64);
            tile_dp(0, 6, 7);
        }
    }
    tile_store(0, product, 64);
}

/* Up to 16 rows. Decoding runs 16 keys ahead of the tiles: both then overlap, and a tile load does not wait
 * for stores that have just been issued. */
ALWAYS_INLINE void logits_few(enum kvg_dtype dtype, const struct kvg_keys *keys, const uint16_t *q,
                              int64_t rows, uint16_t *k, float *product, float *s)
{
    const int64_t dim = keys->dim, block = KEYS * padded(dim);

    decode_keys(dtype, keys, 0, KEYS, k);
    for (int64_t j = 0; j < keys->count; j += KEYS) {
        if (j + KEYS < keys->count)
            decode_keys(dtype, keys, j + KEYS, KEYS, k + (j / KEYS + 1) * block);
        MEMORY_BARRIER();
        logits_block(k + j / KEYS * block, q, dim, product + j * ROWS);
        MEMORY_BARRIER();
    }
    for (int64_t j = 0; j < keys->count; j += KEYS)
        for (int64_t i = 0; i < rows; i += 4)
            transpose_4(product + j * ROWS + i, s + i * KVG_TILE + j);
}

ALWAYS_INLINE void logits_as(enum kvg_dtype dtype, const struct kvg_keys *keys, const uint16_t *q,
                             int64_t rows, uint16_t *k, float *s)
{
    const int64_t dim = keys->dim;
    float *product = products(k, dim);

    if (rows <= ROWS) {
        logits_few(dtype, keys, q, rows, k, product, s);
        return;
    }
    decode_keys(dtype, keys, 0, keys->count, k);
    MEMORY_BARRIER();
    for (int64_t r = 0; r < rows; r += ROWS) {
        logits_16(k, q + r * chunks(dim) * CHUNK, dim, product);
        for (int64_t j = 0; j < keys->count; j += KEYS)
            for (int64_t i = 0; i < ROWS && r + i < rows; i += 4)
                transpose_4(product + j * ROWS + i, s + (r + i) * KVG_TILE + j);
    }
}

static void logits(const struct kvg_keys *keys, const void *packed_q, int64_t rows, void *scratch, float *s){
#define CALL(dtype) logits_as(dtype, keys, packed_q, rows, scratch, s)
    BY_DTYPE(keys->dtype, CALL)
#undef CALL
}

/* ---------------------------------------------------------------- values */

/* Adds 32 keys to the four product tiles: 16 rows of P by 64 dims of V. */
ALWAYS_INLINE void add_half(const uint16_t *p, const uint16_t *v, int64_t stride)
{
    tile_load(4, p, KVG_TILE * 2);
    tile_load(5, v, stride * 4);
    tile_dp(0, 4, 5);
    tile_load(6, v + 2 * VECTOR, stride * 4);
    tile_dp(1, 4, 6);
    tile_load(7, v + 4 * VECTOR, stride * 4);
    tile_dp(2, 4, 7);
    tile_load(5, v + 6 * VECTOR, stride * 4);
    tile_dp(3, 4, 5);
}

ALWAYS_INLINE void clear_products(void)
{
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
}

/* acc = acc * factor + the product tiles, for `rows` rows from dim d on. */
ALWAYS_INLINE void add_products(int64_t rows, int64_t dims, const float *factor, float *product, float *acc,
                                int64_t acc_stride)
{
    const int64_t blocks = dims < STRIP ? (dims + VECTOR - 1) / VECTOR : 4;

    tile_store(0, product, 64);
    tile_store(1, product + TILE_FLOATS, 64);
    tile_store(2, product + 2 * TILE_FLOATS, 64);
    tile_store(3, product + 3 * TILE_FLOATS, 64);
    MEMORY_BARRIER();
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t b = 0; b < blocks; b++) {
            float *at = acc + i * acc_stride + b * VECTOR;
            const __m512 sum = _mm512_load_ps(product + b * TILE_FLOATS + i * VECTOR);
            _mm512_store_ps(at, _mm512_fmadd_ps(_mm512_load_ps(at), _mm512_set1_ps(factor[i]), sum));
        }
    }
}

/* The keys [begin, begin + 32) of dims [d, d + 64) to their place in out; keys that were not read are 0,
 * since P is 0 there but old scratch may hold a NaN. */
ALWAYS_INLINE void decode_half(enum kvg_dtype dtype, const struct kvg_keys *keys, int64_t begin, int64_t d,
                               uint16_t *out)
{
    const int64_t stride = padded(keys->dim), bytes = kvg_dtype_bytes(dtype), dims = keys->dim - d;
    const int64_t end = keys->count - begin < CHUNK_KEYS ? keys->count : begin + CHUNK_KEYS;
    const __mmask32 first = mask_32(dims), second = dims > 32 ? mask_32(dims - 32) : 0;
    const struct pair_tables t = load_pair_tables(dtype);
    int64_t j = begin;

    out += begin * stride + 2 * d;
    for (; j < end; j += 2, out += 2 * stride) {
        const char *a = (const char *)keys->row[j] + d * bytes,
                   *b = (const char *)keys->row[j + 1] + d * bytes;
        __m512i value[4];

        kvg_prefetch(keys->ahead[j] + d * bytes, (dims < STRIP ? dims : STRIP) * bytes);
        kvg_prefetch(keys->ahead[j + 1] + d * bytes, (dims < STRIP ? dims : STRIP) * bytes);
        decode_pair(dtype, &t, a, b, first, &value[0], &value[1]);
        _mm512_store_si512(out, value[0]);
        _mm512_store_si512(out + 32, value[1]);
        if (second) {
            decode_pair(dtype, &t, a + 32 * bytes, b + 32 * bytes, second, &value[2], &value[3]);
            _mm512_store_si512(out + 64, value[2]);
            _mm512_store_si512(out + 96, value[3]);
        }
    }
    for (; j < begin + CHUNK_KEYS; j += 2, out += 2 * stride)
        memset(out, 0, STRIP * 4);
}

/* Up to 16 rows: 32 keys by 64 dims are decoded ahead of the tiles. */
ALWAYS_INLINE void values_few(enum kvg_dtype dtype, const struct kvg_keys *keys, const uint16_t *p,
                              const float *factor, int64_t rows, uint16_t *v, float *acc, int64_t acc_stride)
{
    const int64_t dim = keys->dim, stride = padded(dim), halves = (keys->count + CHUNK_KEYS - 1) / CHUNK_KEYS;

    decode_half(dtype, keys, 0, 0, v);
    for (int64_t d = 0; d < dim; d += STRIP) {
        clear_products();
        for (int64_t h = 0; h < halves; h++) {
            if (h + 1 < halves)
                decode_half(dtype, keys, (h + 1) * CHUNK_KEYS, d, v);
            else if (d + STRIP < dim)
                decode_half(dtype, keys, 0, d + STRIP, v);
            MEMORY_BARRIER();
            add_half(p + h * CHUNK_KEYS, v + h * CHUNK_KEYS * stride + 2 * d, stride);
        }
        add_products(rows, dim - d, factor, products(v, dim), acc + d, acc_stride);
    }
}

ALWAYS_INLINE void values_as(enum kvg_dtype dtype, const struct kvg_keys *keys, const uint16_t *p,
                             const float *factor, int64_t rows, uint16_t *v, float *acc, int64_t acc_stride)
{
    const int64_t dim = keys->dim, stride = padded(dim), halves = (keys->count + CHUNK_KEYS - 1) / CHUNK_KEYS;

    if (rows <= ROWS) {
        values_few(dtype, keys, p, factor, rows, v, acc, acc_stride);
        return;
    }
    for (int64_t d = 0; d < dim; d += STRIP)
        for (int64_t h = 0; h < halves; h++)
            decode_half(dtype, keys, h * CHUNK_KEYS, d, v);
    MEMORY_BARRIER();
    for (int64_t r = 0; r < rows; r += ROWS) {
        for (int64_t d = 0; d < dim; d += STRIP) {
            clear_products();
            for (int64_t h = 0; h < halves; h++)
                add_half(p + r * KVG_TILE + h * CHUNK_KEYS, v + h * CHUNK_KEYS * stride + 2 * d, stride);
            add_products(rows - r < ROWS ? rows - r : ROWS, dim - d, factor + r, products(v, dim),
                         acc + r * acc_stride + d, acc_stride);
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

const struct kvg_attention_ops kvg_attention_amx = {
    .isa = KVG_ISA_AMX,
    .row_step = ROWS,
    .packed_q_bytes = packed_q_bytes,
    .scratch_bytes = scratch_bytes,
    .p_row_bytes = KVG_TILE * 2,
    .begin = begin,
    .end = end,
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
    .p_format = KVG_BF16,
    .operand = KVG_BF16,
    .dtypes = 1u << KVG_BF16 | 1u << KVG_E4M3 | 1u << KVG_E5M2,
};
