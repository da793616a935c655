/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_core_tile.c: tensor_core.c for whole matrices, with vectors.
 *
 * FP32 arithmetic can do the unit's integer arithmetic exactly. A product of two FP8 numbers has at most 8
 * significant bits, so it is exact; the power of two of its exponent is the product of those of its factors;
 * dividing by the largest such power (times 2^-align_bits) is exact; converting to int32 cuts towards zero.
 * Columns lie in the lanes of a vector. With 25 fraction bits a term takes 27 bits and 33 of them overflow an
 * int32, so the low 8 bits are summed apart.
 *
 * Lanes with a NaN or an infinity among operands or accumulator are left to tensor_core.c, and so is CDNA3.
 */
#include "tensor_core.h"
#include "clones.h"

#include <math.h>
#include <string.h>

enum {
    COLUMNS = 64, /* of a block */
    CHUNK = 32,   /* products of a block: two steps of 16, or one of 32 */
    LOW = 8,      /* bits of a term summed apart */
    UNROLL = 4,
    FP32_EXPONENT = 0x7f800000
};
/* Where there are products the largest power is 2^-28 at least; without any it does not matter. */
#define LEAST_TOP 0x1p-60f

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

/* A decoded operand format. */
struct codes {
    float value[256];
    float least; /* the power of two of a subnormal */
};

static void decode(const struct kvg_ref_mma_model *model, enum kvg_ref_format format, struct codes *codes)
{
    const int e_min = model->operand_e_min ? model->operand_e_min : kvg_ref_format_info(format)->min_exponent;
    codes->least = ldexpf(1, e_min);
    for (int c = 0; c < 256; c++)
        codes->value[c] = kvg_ref_fp8_decode(format, (uint8_t)c);
}

/* Values become values and the powers of two of their exponents, both 0 for zero and for what is no finite
 * number; special[j] is set for the latter. */
KVG_REF_CLONES static void take_apart(float *value, float *power, int32_t *special, int count, float least)
{
    for (int j = 0; j < count; j++) {
        const uint32_t exponent = bits_of(value[j]) & FP32_EXPONENT;
        const int finite = exponent != FP32_EXPONENT;
        const float x = finite ? value[j] : 0;
        const float own = float_of(exponent) < least ? least : float_of(exponent);
        special[j] |= !finite;
        power[j] = x == 0 ? 0 : own;
        value[j] = x;
    }
}

/* B of one block, [CHUNK][COLUMNS], and A of one row. */
struct block {
    float value[CHUNK][COLUMNS], power[CHUNK][COLUMNS];
    int32_t special[COLUMNS]; /* of the column */
    float row_value[CHUNK], row_power[CHUNK];
    int row_special;
};

/* Per column: the largest power of two among the products of a step, 0 when all are zero. */
static inline __attribute__((always_inline)) void largest(const struct block *block, int at, int n,
                                                          float *top)
{
    for (int j = 0; j < COLUMNS; j++)
        top[j] = 0;
    for (int l = at; l < at + n; l += UNROLL)
        for (int j = 0; j < COLUMNS; j++) {
            float most = top[j];
#pragma GCC unroll 4
            for (int u = 0; u < UNROLL; u++) {
                const float power = block->row_power[l + u] * block->power[l + u][j];
                most = power > most ? power : most;
            }
            top[j] = most;
        }
}

/* Per column: the terms in whole units, cut towards zero and added to sum (and low). */
static inline __attribute__((always_inline)) void add_terms(const struct block *block, int at, int n,
                                                            const float *per_unit, int split, int32_t *sum,
                                                            int32_t *low)
{
    for (int l = at; l < at + n; l += UNROLL)
        for (int j = 0; j < COLUMNS; j++) {
            int32_t high_part = sum[j], low_part = split ? low[j] : 0;
#pragma GCC unroll 4
            for (int u = 0; u < UNROLL; u++) {
                const float product = block->row_value[l + u] * block->value[l + u][j];
                const int32_t term = (int32_t)(product * per_unit[j]);
                high_part += split ? term >> LOW : term;
                low_part += split ? term & ((1 << LOW) - 1) : 0;
            }
            sum[j] = high_part;
            if (split)
                low[j] = low_part;
        }
}

/* sum * unit cut to FP32's 24 bits. */
static inline float cut_wide(int32_t sum, int32_t low, float unit)
{
    const double wide = (double)sum * (1 << LOW) + (double)low;
    uint64_t bits;
    memcpy(&bits, &wide, sizeof bits);
    bits &= ~((UINT64_C(1) << (52 - 23)) - 1);
    double cut;
    memcpy(&cut, &bits, sizeof cut);
    return (float)(cut * (double)unit);
}

/* One step over `n` products from `at`, and all columns of a block. `align` and `result`, the fraction bits
 * of the alignment and of the result, are constants where this is inlined. */
static inline __attribute__((always_inline)) void step(const struct block *block, int at, int n, float *c,
                                                       int align, int result)
{
    const int split = align > 20;
    const uint32_t mask = ~((1u << (23 - result)) - 1);
    float top[COLUMNS], unit[COLUMNS], per_unit[COLUMNS];
    int32_t sum[COLUMNS], low[COLUMNS];
    largest(block, at, n, top);
    for (int j = 0; j < COLUMNS; j++) {
        /* The accumulator's own power; next to a product a subnormal one is nothing. */
        const uint32_t exponent = bits_of(c[j]) & FP32_EXPONENT;
        const float start = exponent == FP32_EXPONENT ? 0 : c[j];
        const float power = exponent == FP32_EXPONENT ? 0 : float_of(exponent);
        float most = power > top[j] ? power : top[j];
        most = most < LEAST_TOP ? LEAST_TOP : most;
        unit[j] = float_of(bits_of(most) - ((uint32_t)align << 23));
        per_unit[j] = float_of((254u << 23) - bits_of(unit[j]));
        const int32_t term = (int32_t)(start * per_unit[j]);
        sum[j] = split ? term >> LOW : term;
        low[j] = split ? term & ((1 << LOW) - 1) : 0;
    }
    add_terms(block, at, n, per_unit, split, sum, low);
    for (int j = 0; j < COLUMNS; j++) {
        const float total =
            split ? cut_wide(sum[j], low[j], unit[j]) : float_of(bits_of((float)sum[j]) & mask) * unit[j];
        /* Without products the accumulator passes through, cut to the width of the result. */
        const float passed = float_of(bits_of(c[j]) & mask) + 0.0f;
        const float next = top[j] == 0 ? passed : total;
        c[j] = (bits_of(c[j]) & FP32_EXPONENT) == FP32_EXPONENT ? c[j] : next;
    }
}

/* Each compiled for two instruction sets. */
KVG_REF_CLONES static void step_13(const struct block *block, int at, int n, float *c)
{
    step(block, at, n, c, 13, 13);
}

KVG_REF_CLONES static void step_25(const struct block *block, int at, int n, float *c)
{
    step(block, at, n, c, 25, 23);
}

static void load_b(const struct kvg_ref_mma_tile *t, const struct codes *codes, const int *order, int64_t at,
                   int64_t k, int64_t column, int64_t columns, struct block *block)
{
    memset(block->special, 0, sizeof block->special);
    for (int l = 0; l < CHUNK; l++) {
        float *value = block->value[l];
        const int64_t there = order[l] < k ? columns : 0;
        const uint8_t *b = t->b + (there ? (at + order[l]) * t->b_stride_k + column * t->b_stride_n : 0);
        for (int64_t j = 0; j < there; j++)
            value[j] = codes->value[b[j * t->b_stride_n]];
        for (int64_t j = there; j < COLUMNS; j++)
            value[j] = 0;
        take_apart(value, block->power[l], block->special, COLUMNS, codes->least);
    }
}

static void load_a(const struct kvg_ref_mma_tile *t, const struct codes *codes, const int *order, int64_t at,
                   int64_t k, int64_t row, struct block *block)
{
    const uint8_t *a = t->a + row * t->a_stride + at;
    int32_t special[CHUNK] = {0};
    for (int l = 0; l < CHUNK; l++)
        block->row_value[l] = order[l] < k ? codes->value[a[order[l]]] : 0;
    take_apart(block->row_value, block->row_power, special, CHUNK, codes->least);
    block->row_special = 0;
    for (int l = 0; l < CHUNK; l++)
        block->row_special |= special[l];
}

/* One element the slow way. */
static float element(const struct kvg_ref_mma_tile *t, int64_t at, int64_t k, int64_t row, int64_t column,
                     float c)
{
    uint8_t b[CHUNK];
    for (int64_t l = 0; l < k; l++)
        b[l] = t->b[(at + l) * t->b_stride_k + column * t->b_stride_n];
    return kvg_ref_mma_fp8(t->model, c, t->a_format, t->a + row * t->a_stride + at, t->b_format, b, k);
}

/* One row of a block, all its columns: c[j] becomes the new accumulator. */
static void row_of_block(const struct kvg_ref_mma_tile *t, const struct block *block, int64_t k, float *c)
{
    const int steps = CHUNK / t->model->step;
    void (*const one)(const struct block *, int, int, float *) =
        t->model->align_bits == 13 ? step_13 : step_25;
    float d[COLUMNS] = {0};
    float *sum = t->model->family == KVG_REF_MMA_HALVES ? d : c;
    for (int s = 0; s < steps && (sum == d || s * t->model->step < k); s++)
        one(block, s * t->model->step, t->model->step, sum);
    for (int j = 0; j < COLUMNS && sum == d; j++)
        c[j] += d[j];
}

static void columns_of_tile(const struct kvg_ref_mma_tile *t, const struct codes *a, const struct codes *b,
                            const int *order, int64_t column)
{
    const int64_t columns = t->n - column < COLUMNS ? t->n - column : COLUMNS;
    struct block block;
    for (int64_t at = 0; at < t->k; at += CHUNK) {
        const int64_t k = t->k - at < CHUNK ? t->k - at : CHUNK;
        load_b(t, b, order, at, k, column, columns, &block);
        for (int64_t i = 0; i < t->m; i++) {
            float *c = t->c + i * t->c_stride + column, sums[COLUMNS] = {0};
            load_a(t, a, order, at, k, i, &block);
            memcpy(sums, c, (size_t)columns * sizeof *sums);
            row_of_block(t, &block, k, sums);
            for (int64_t j = 0; j < columns; j++)
                if (block.row_special || block.special[j] || !isfinite(c[j]))
                    sums[j] = element(t, at, k, i, column + j, c[j]);
            memcpy(c, sums, (size_t)columns * sizeof *sums);
        }
    }
}

void kvg_ref_mma_fp8_tile(const struct kvg_ref_mma_tile *t)
{
    if (t->model->family == KVG_REF_MMA_PARITY) {
        for (int64_t at = 0; at < t->k; at += CHUNK)
            for (int64_t i = 0; i < t->m; i++)
                for (int64_t j = 0; j < t->n; j++) {
                    float *c = t->c + i * t->c_stride + j;
                    *c = element(t, at, t->k - at < CHUNK ? t->k - at : CHUNK, i, j, *c);
                }
        return;
    }
    struct codes a, b;
    decode(t->model, t->a_format, &a);
    decode(t->model, t->b_format, &b);
    int order[CHUNK];
    for (int l = 0; l < CHUNK; l++) /* HALVES: k = 0, 1 (mod 4) first */
        order[l] = t->model->family != KVG_REF_MMA_HALVES ? l : l % 16 / 2 * 4 + l % 2 + l / 16 * 2;
    for (int64_t column = 0; column < t->n; column += COLUMNS)
        columns_of_tile(t, &a, &b, order, column);
}
