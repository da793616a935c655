/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_core_tile.c: tensor_core.c for whole matrices, with vectors.
 *
 * FP32 arithmetic computes the unit's integer arithmetic exactly:
 *
 *   - A product of two FP8 numbers has at most 8 significant bits, so it is exact.
 *   - Its exponent is the sum of the exponents of its factors, which fit bytes.
 *   - Dividing it by the largest such power of two, times 2^-align_bits, is exact.
 *   - Converting it to int32 cuts towards zero.
 *
 * The lanes of a vector are columns. With 25 fraction bits a term takes 27 bits, and the sum of 33 terms
 * overflows int32. So the low 8 bits of the terms are summed separately.
 *
 * Columns with a NaN or an infinity in an operand or the accumulator are computed by tensor_core.c, and so is
 * CDNA3.
 */
#include "tensor_core.h"
#include "clones.h"

#include <math.h>
#include <string.h>

enum {
    COLUMNS = 64,    /* of a block */
    CHUNK = 32,      /* products of a block: two steps of 16, or one of 32 */
    LOW = 8,         /* low bits of a term that are summed separately */
    WHOLE_BITS = 20, /* up to this many fraction bits, an int32 holds the sum of a step */
    FP32_EXPONENT = 0x7f800000,
    FP32_BIAS = 127,
    /* Exponents of operands lie between -14 and 15. The exponent of a zero is so low that a product with a
     * zero is below all other products. Twice that exponent still fits a byte. */
    ZERO = -63,
    NO_PRODUCT = -40,
    LEAST_TOP = -60 /* lower limit of a column's largest exponent; reached only without products */
};

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---------------------------------------------------------------- operands */

/* Exponents of codes with `m` fraction bits. A zero gets ZERO. So does a code from `limit` on, which is
 * infinite or NaN and sets special[j]. normalised: a subnormal e4m3 number has an exponent of its
 * own, as in f16. */
static inline __attribute__((always_inline)) void exponents(const uint8_t *restrict code, int count, int m,
                                                            int bias, int limit, int normalised,
                                                            int8_t *restrict exponent,
                                                            uint8_t *restrict special)
{
    for (int j = 0; j < count; j++) {
        const uint8_t size = code[j] & 0x7f, field = (uint8_t)(size >> m), nothing = (uint8_t)(size == 0);
        const uint8_t infinite = (uint8_t)(size >= limit), subnormal = (uint8_t)(field == 0);
        const int8_t less = (int8_t)(1 + (size < 4) + (size < 2));
        int8_t own = (int8_t)(field + subnormal - bias);
        own = (int8_t)(normalised && subnormal ? own - less : own);
        exponent[j] = nothing | infinite ? ZERO : own;
        special[j] |= infinite;
    }
}

KVG_REF_CLONES
static void exponents_e4m3(const uint8_t *code, int count, int8_t *exponent, uint8_t *special)
{
    exponents(code, count, 3, 7, 0x7f, 0, exponent, special);
}

KVG_REF_CLONES
static void exponents_e4m3_in_f16(const uint8_t *code, int count, int8_t *exponent, uint8_t *special)
{
    exponents(code, count, 3, 7, 0x7f, 1, exponent, special);
}

KVG_REF_CLONES
static void exponents_e5m2(const uint8_t *code, int count, int8_t *exponent, uint8_t *special)
{
    exponents(code, count, 2, 15, 0x7c, 0, exponent, special);
}

/* Values and exponents of codes. Infinite and NaN codes set special[j] and *any, and get the value zero. */
static void take_apart(const struct kvg_ref_mma_model *model, enum kvg_ref_format format, const uint8_t *code,
                       int count, float *value, int8_t *exponent, uint8_t *special, int *any)
{
    uint8_t all = 0;
    kvg_ref_load_row(format, code, 0, count, value);
    (format == KVG_REF_E5M2     ? exponents_e5m2
     : model->operand_e_min < 0 ? exponents_e4m3_in_f16
                                : exponents_e4m3)(code, count, exponent, special);
    for (int j = 0; j < count; j++)
        all |= special[j];
    for (int j = 0; j < count && all; j++)
        value[j] = special[j] ? 0 : value[j];
    *any |= all;
}

/* B of one block, and A of one row of it. */
struct block {
    float value[CHUNK][COLUMNS] __attribute__((aligned(64)));
    int8_t exponent[CHUNK][COLUMNS] __attribute__((aligned(64)));
    uint8_t special[COLUMNS]; /* of the column */
    int any_special;
};
struct row {
    float value[CHUNK];
    int8_t exponent[CHUNK];
    int special, zero; /* 1: some value is infinite or NaN; all values are zero */
};

static void load_b(const struct kvg_ref_mma_tile *t, const int *order, int64_t at, int64_t k, int64_t column,
                   int64_t columns, struct block *block)
{
    memset(block->special, 0, sizeof block->special);
    block->any_special = 0;
    for (int l = 0; l < CHUNK; l++) {
        const int64_t there = order[l] < k ? columns : 0;
        const uint8_t *b = t->b + (there ? (at + order[l]) * t->b_stride_k + column * t->b_stride_n : 0);
        uint8_t code[COLUMNS] = {0};
        for (int64_t j = 0; j < there && t->b_stride_n != 1; j++)
            code[j] = b[j * t->b_stride_n];
        if (t->b_stride_n == 1)
            memcpy(code, b, (size_t)there);
        take_apart(t->model, t->b_format, code, COLUMNS, block->value[l], block->exponent[l], block->special,
                   &block->any_special);
    }
}

static void load_a(const struct kvg_ref_mma_tile *t, const int *order, int64_t at, int64_t k, int64_t i,
                   struct row *row)
{
    const uint8_t *a = t->a + i * t->a_stride + at;
    uint8_t code[CHUNK], special[CHUNK] = {0}, bits = 0;
    for (int l = 0; l < CHUNK; l++) {
        code[l] = order[l] < k ? a[order[l]] : 0;
        bits |= code[l] & 0x7f;
    }
    row->special = 0;
    row->zero = bits == 0;
    take_apart(t->model, t->a_format, code, CHUNK, row->value, row->exponent, special, &row->special);
}

/* ---------------------------------------------------------------- steps */

/* State of one step, for one row and all columns. */
struct step {
    int8_t top[COLUMNS] __attribute__((aligned(64))); /* largest exponent of a product */
    float per_unit[COLUMNS] __attribute__((aligned(64)));
    int32_t sum[COLUMNS] __attribute__((aligned(64))), low[COLUMNS] __attribute__((aligned(64)));
    float unit[COLUMNS];
};

/* Computes the unit of each column, and starts the sum with the accumulator in that unit. */
static inline __attribute__((always_inline)) void begin_step(const float *c, int align, struct step *s)
{
    const int split = align > WHOLE_BITS;
    for (int j = 0; j < COLUMNS; j++) {
        /* The exponent of the accumulator. A subnormal accumulator is negligible beside any product. */
        const int own = (int)(bits_of(c[j]) >> 23 & 0xff), finite = own < 0xff;
        const int of_products = (s->top[j] < LEAST_TOP ? LEAST_TOP : s->top[j]) + FP32_BIAS;
        const int most = finite && own > of_products ? own : of_products;
        s->unit[j] = float_of((uint32_t)(most - align) << 23);
        s->per_unit[j] = float_of((uint32_t)(2 * FP32_BIAS - (most - align)) << 23);
        const int32_t term = (int32_t)((finite ? c[j] : 0) * s->per_unit[j]);
        s->sum[j] = split ? term >> LOW : term;
        s->low[j] = split ? term & ((1 << LOW) - 1) : 0;
    }
}

/* (sum * 2^LOW + low) * unit, cut to FP32's 24 bits. */
static inline __attribute__((always_inline)) float cut_wide(int32_t sum, int32_t low, float unit)
{
    const double wide = (double)sum * (1 << LOW) + (double)low;
    uint64_t bits;
    memcpy(&bits, &wide, sizeof bits);
    bits &= ~((UINT64_C(1) << (52 - 23)) - 1);
    double cut;
    memcpy(&cut, &bits, sizeof cut);
    return (float)(cut * (double)unit);
}

/* The result without products: the accumulator, cut to the width of the result. */
static inline __attribute__((always_inline)) float passed(float c, int result)
{
    return float_of(bits_of(c) & ~((1u << (23 - result)) - 1)) + 0.0f;
}

/* condition ? yes : no, without a branch, which would prevent vectorisation. */
static inline __attribute__((always_inline)) uint32_t choose(int condition, float yes, float no)
{
    const uint32_t mask = 0u - (uint32_t)condition;
    return (bits_of(yes) & mask) | (bits_of(no) & ~mask);
}

/* The sums as the new accumulators. An infinite or NaN accumulator stays. */
static inline __attribute__((always_inline)) void end_step(float *restrict c, int align, int result,
                                                           const struct step *restrict s)
{
    const uint32_t mask = ~((1u << (23 - result)) - 1);
    for (int j = 0; j < COLUMNS; j++) {
        const float total = align > WHOLE_BITS ? cut_wide(s->sum[j], s->low[j], s->unit[j])
                                               : float_of(bits_of((float)s->sum[j]) & mask) * s->unit[j];
        const uint32_t next = choose(s->top[j] < NO_PRODUCT, passed(c[j], result), total);
        c[j] = float_of(choose((bits_of(c[j]) & FP32_EXPONENT) == FP32_EXPONENT, c[j], float_of(next)));
    }
}

typedef void (*step_fn)(const struct block *block, const struct row *row, int at, int n, float *c);

typedef int8_t bytes16 __attribute__((vector_size(16)));
static inline bytes16 max_of_bytes(bytes16 x, bytes16 y)
{
    const bytes16 more = x > y;
    return (x & more) | (y & ~more);
}

#define NAME(x) x##_16
#define VEC 16
#define MAX8(x, y) max_of_bytes((bytes16)(x), (bytes16)(y))
#include "tensor_core_tile_body.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAVE_WIDE_VECTORS 1
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2")
#define NAME(x) x##_32
#define VEC 32
#define MAX8(x, y) (bytes_32) _mm256_max_epi8((__m256i)(x), (__m256i)(y))
#include "tensor_core_tile_body.h"
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")
#define NAME(x) x##_64
#define VEC 64
#define MAX8(x, y) (bytes_64) _mm512_max_epi8((__m512i)(x), (__m512i)(y))
#include "tensor_core_tile_body.h"
#pragma GCC pop_options
#endif

/* The step function for vectors of the nth width, the widest first; NULL when the CPU has no nth width. */
static step_fn step_of(const struct kvg_ref_mma_model *model, int n)
{
    const int narrow = model->align_bits == 13;
    step_fn found[3];
    int count = 0;
#ifdef HAVE_WIDE_VECTORS
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        found[count++] = narrow ? step_13_64 : step_25_64;
    if (__builtin_cpu_supports("avx2"))
        found[count++] = narrow ? step_13_32 : step_25_32;
#endif
    found[count++] = narrow ? step_13_16 : step_25_16;
    return n >= 0 && n < count ? found[n] : NULL;
}

/* ---------------------------------------------------------------- tiles */

/* One element, computed by tensor_core.c. */
static float element(const struct kvg_ref_mma_tile *t, int64_t at, int64_t k, int64_t row, int64_t column,
                     float c)
{
    uint8_t b[CHUNK];
    for (int64_t l = 0; l < k; l++)
        b[l] = t->b[(at + l) * t->b_stride_k + column * t->b_stride_n];
    return kvg_ref_mma_fp8(t->model, c, t->a_format, t->a + row * t->a_stride + at, t->b_format, b, k);
}

/* One row of a block, all columns: c[j] becomes the new accumulator. */
static void row_of_block(const struct kvg_ref_mma_tile *t, step_fn one, const struct block *block,
                         const struct row *row, int64_t k, float *c)
{
    const int n = t->model->step;
    if (row->zero && t->model->family != KVG_REF_MMA_HALVES) {
        for (int j = 0; j < COLUMNS; j++)
            c[j] =
                (bits_of(c[j]) & FP32_EXPONENT) == FP32_EXPONENT ? c[j] : passed(c[j], t->model->result_bits);
        return;
    }
    if (t->model->family != KVG_REF_MMA_HALVES) {
        for (int at = 0; at < CHUNK && at < k; at += n)
            one(block, row, at, n, c);
        return;
    }
    float d[COLUMNS] = {0};
    for (int at = 0; at < CHUNK; at += n)
        one(block, row, at, n, d);
    for (int j = 0; j < COLUMNS; j++)
        c[j] += d[j];
}

static int all_finite(const float *c)
{
    int bad = 0;
    for (int j = 0; j < COLUMNS; j++)
        bad |= (bits_of(c[j]) & FP32_EXPONENT) == FP32_EXPONENT;
    return !bad;
}

static void columns_of_tile(const struct kvg_ref_mma_tile *t, step_fn one, const int *order, int64_t column)
{
    const int64_t columns = t->n - column < COLUMNS ? t->n - column : COLUMNS;
    struct block block;
    struct row row;
    for (int64_t at = 0; at < t->k; at += CHUNK) {
        const int64_t k = t->k - at < CHUNK ? t->k - at : CHUNK;
        load_b(t, order, at, k, column, columns, &block);
        for (int64_t i = 0; i < t->m; i++) {
            float *c = t->c + i * t->c_stride + column, sums[COLUMNS] = {0};
            load_a(t, order, at, k, i, &row);
            memcpy(sums, c, (size_t)columns * sizeof *sums);
            const int easy = !row.special && !block.any_special && all_finite(sums);
            row_of_block(t, one, &block, &row, k, sums);
            for (int64_t j = 0; j < columns && !easy; j++)
                if (row.special || block.special[j] || !isfinite(c[j]))
                    sums[j] = element(t, at, k, i, column + j, c[j]);
            memcpy(c, sums, (size_t)columns * sizeof *sums);
        }
    }
}

int kvg_ref_mma_fp8_tile_as(const struct kvg_ref_mma_tile *t, int n)
{
    const step_fn one = step_of(t->model, n);
    if (!one)
        return -1;
    if (t->model->family == KVG_REF_MMA_PARITY) {
        for (int64_t at = 0; at < t->k; at += CHUNK)
            for (int64_t i = 0; i < t->m; i++)
                for (int64_t j = 0; j < t->n; j++) {
                    float *c = t->c + i * t->c_stride + j;
                    *c = element(t, at, t->k - at < CHUNK ? t->k - at : CHUNK, i, j, *c);
                }
        return 0;
    }
    int order[CHUNK];
    for (int l = 0; l < CHUNK; l++) /* HALVES: k = 0, 1 (mod 4) first */
        order[l] = t->model->family != KVG_REF_MMA_HALVES ? l : l % 16 / 2 * 4 + l % 2 + l / 16 * 2;
    for (int64_t column = 0; column < t->n; column += COLUMNS)
        columns_of_tile(t, one, order, column);
    return 0;
}

void kvg_ref_mma_fp8_tile(const struct kvg_ref_mma_tile *t)
{
    (void)kvg_ref_mma_fp8_tile_as(t, 0); /* cannot fail: every CPU has a widest width */
}
