/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_scalar.c: attention in FP32 without special instructions. It runs on every CPU, and on x86-64 it
 * is the only kernel that reads e4m3fnuz. A dot product has eight partial sums in a fixed order: the compiler
 * can use the baseline vector unit, and the result does not depend on the compiler.
 */
#include "attention_ops.h"
#include "exp2.h"

#include <math.h>

enum { LANES = 8 };

static int64_t packed_q_bytes(int64_t rows, int64_t dim)
{
    return rows * dim * 4;
}

static int64_t scratch_bytes(int64_t dim)
{
    return KVG_TILE * dim * 4;
}

static int64_t qk_chain(int64_t dim)
{
    return dim / LANES + 3; /* one partial sum, then three levels of a tree */
}

static void decode_table(enum kvg_dtype dtype, float table[256])
{
    for (int code = 0; code < 256; code++) {
        table[code] = dtype == KVG_E4M3   ? kvg_fp8_e4m3_decode((uint8_t)code)
                      : dtype == KVG_E5M2 ? kvg_fp8_e5m2_decode((uint8_t)code)
                                          : kvg_fp8_e4m3fnuz_decode((uint8_t)code);
    }
}

/* count rows of dim elements, to FP32. */
static void decode_rows(const void *const *row, int64_t count, int64_t dim, enum kvg_dtype dtype, float *out)
{
    float table[256];

    if (dtype == KVG_BF16) {
        for (int64_t j = 0; j < count; j++)
            for (int64_t d = 0; d < dim; d++)
                out[j * dim + d] = kvg_bf16_decode(((const uint16_t *)row[j])[d]);
        return;
    }
    decode_table(dtype, table);
    for (int64_t j = 0; j < count; j++)
        for (int64_t d = 0; d < dim; d++)
            out[j * dim + d] = table[((const uint8_t *)row[j])[d]];
}

static void pack_q(const void *const *row, int64_t rows, int64_t dim, enum kvg_dtype dtype, void *packed)
{
    decode_rows(row, rows, dim, dtype, packed);
}

static float dot(const float *a, const float *b, int64_t dim)
{
    float sum[LANES] = {0};

    for (int64_t d = 0; d < dim; d += LANES)
        for (int64_t i = 0; i < LANES; i++)
            sum[i] += a[d + i] * b[d + i];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

static void logits(const struct kvg_keys *keys, const void *packed_q, int64_t rows, void *scratch, float *s)
{
    const int64_t dim = keys->dim;
    const float *k = scratch, *q = packed_q;

    decode_rows(keys->row, keys->count, dim, keys->dtype, scratch);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < keys->count; j++)
            s[r * KVG_TILE + j] = dot(q + r * dim, k + j * dim, dim);
}

static void exp2_all(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = kvg_exp2(x[i]);
}

static float softmax(const struct kvg_softmax *how, float *s, int64_t lo, int64_t hi,
                     struct kvg_row_state *state, void *p_row)
{
    const float before = state->max;
    float *p = p_row, max = before, sum = 0.0f, shift, factor;

    for (int64_t j = lo; j < hi; j++) {
        s[j] = how->cap_log2 > 0.0f ? how->cap_log2 * kvg_tanh(s[j] * how->scale) : s[j] * how->scale;
        max = s[j] > max ? s[j] : max;
    }
    shift = max - how->offset;
    for (int64_t j = 0; j < KVG_TILE; j++) {
        const float e = j >= lo && j < hi ? kvg_exp2(s[j] - shift) : 0.0f;
        sum += e;
        p[j] = how->p_e4m3 ? kvg_fp8_e4m3_decode(kvg_fp8_e4m3_encode(e)) : e;
    }
    factor = before == -INFINITY ? 0.0f : kvg_exp2(before - max);
    state->max = max;
    state->sum = state->sum * factor + sum;
    return factor;
}

static void values(const struct kvg_keys *keys, const void *p_rows, const float *factor, int64_t rows,
                   void *scratch, float *acc, int64_t acc_stride)
{
    const int64_t dim = keys->dim;
    const float *p = p_rows, *v = scratch;

    decode_rows(keys->row, keys->count, dim, keys->dtype, scratch);
    for (int64_t r = 0; r < rows; r++) {
        float *out = acc + r * acc_stride;

        for (int64_t d = 0; d < dim; d++)
            out[d] *= factor[r];
        for (int64_t j = 0; j < keys->count; j++) {
            const float weight = p[r * KVG_TILE + j];
            for (int64_t d = 0; d < dim; d++)
                out[d] += weight * v[j * dim + d];
        }
    }
}

const struct kvg_attention_ops kvg_attention_scalar = {
    .isa = KVG_ISA_SCALAR,
    .rows_apart = 1,
    .row_step = 1,
    .packed_q_bytes = packed_q_bytes,
    .scratch_bytes = scratch_bytes,
    .p_row_bytes = KVG_TILE * 4,
    .pack_q = pack_q,
    .logits = logits,
    .softmax = softmax,
    .values = values,
    .exp2 = exp2_all,
    .qk_chain = qk_chain,
    .exp2_rel_error = KVG_EXP2_REL_ERROR,
    .p_format = KVG_F32,
    .operand = KVG_F32,
    .dtypes = 1u << KVG_BF16 | 1u << KVG_E4M3 | 1u << KVG_E5M2 | 1u << KVG_E4M3FNUZ,
};
