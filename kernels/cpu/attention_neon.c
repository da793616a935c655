/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_neon.c: attention in FP32 with NEON, for any AArch64 CPU (ARMv8.0). No Arm machine was at hand:
 * the results are checked under QEMU, and the speed has not been measured.
 *
 * Decoding. A code of e4m3 or e4m3fnuz, shifted, is an FP16 of 2^-8 or 2^-7 times its value, subnormals
 * included, and a code of e5m2 is the upper half of an FP16; FCVTL does the rest. The NaN codes of e4m3 and
 * e4m3fnuz are found by a comparison whose result, all ones, is a NaN in FP16. The power of two cancels
 * exactly: the logits are multiplied by it, and P carries it.
 *
 * Logits. Two keys against up to four rows of Q, eight dims at a time, in 16 accumulators of four lanes: as
 * many independent chains as a core with four FMA units of latency 4 needs.
 *
 * Values. Up to four rows by 16 dims are accumulated in registers over the tile, then added to the
 * accumulators in memory once. Up to four rows decode K and V on the fly; more rows share a decoded tile.
 */
#include "softmax_neon.h"

#include <string.h>

enum { ROWS = 4, STEP = 8, STRIP = 16 };

/* Row by row, in FP32; rows that do not exist are zero. */
static int64_t packed_q_bytes(int64_t rows, int64_t dim)
{
    return kvg_round_up(rows, ROWS) * dim * 4;
}

static int64_t scratch_bytes(int64_t dim)
{
    return KVG_TILE * dim * 4;
}

static int64_t qk_chain(int64_t dim)
{
    return dim / STEP + 3; /* one lane for each dim of eight, then three levels of a tree */
}

/* ---------------------------------------------------------------- decoding */

/* How the elements of a row become FP32. F32: they were decoded before. */
enum decoder { F32, BF16, E4M3, E5M2, E4M3FNUZ };

static enum decoder decoder_of(enum kvg_dtype dtype)
{
    return dtype == KVG_BF16 ? BF16 : dtype == KVG_E4M3 ? E4M3 : dtype == KVG_E5M2 ? E5M2 : E4M3FNUZ;
}

/* What decoded values must be multiplied by to be the values of the codes. */
static float lowered_by(enum kvg_dtype dtype)
{
    return dtype == KVG_E4M3 ? 0x1p8f : dtype == KVG_E4M3FNUZ ? 0x1p7f : 1.0f;
}

/* Eight elements from dim d on. */
ALWAYS_INLINE void decode8(enum decoder how, const void *row, int64_t d, float32x4_t out[2])
{
    uint16x8_t half;

    if (how == F32) {
        out[0] = vld1q_f32((const float *)row + d);
        out[1] = vld1q_f32((const float *)row + d + 4);
        return;
    }
    if (how == BF16) {
        const uint16x8_t x = vld1q_u16((const uint16_t *)row + d);
        out[0] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(x), 16));
        out[1] = vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(x), 16));
        return;
    }
    const uint8x8_t code = vld1_u8((const uint8_t *)row + d);
    if (how == E5M2) {
        half = vshll_n_u8(code, 8);
    } else {
        const uint8x8_t nan = how == E4M3 ? vceq_u8(vorr_u8(code, vdup_n_u8(0x80)), vdup_n_u8(0xff))
                                          : vceq_u8(code, vdup_n_u8(0x80));
        half = vreinterpretq_u16_s16(vshll_n_s8(vreinterpret_s8_u8(code), 7)); /* the sign twice */
        half = vorrq_u16(vandq_u16(half, vdupq_n_u16(0xbf80)),
                         vreinterpretq_u16_s16(vmovl_s8(vreinterpret_s8_u8(nan))));
    }
    out[0] = vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(half)));
    out[1] = vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(half)));
}

ALWAYS_INLINE void decode_row(enum decoder how, const void *row, int64_t dim, float *out)
{
    for (int64_t d = 0; d < dim; d += STEP) {
        float32x4_t x[2];

        decode8(how, row, d, x);
        vst1q_f32(out + d, x[0]);
        vst1q_f32(out + d + 4, x[1]);
    }
}

/* CALL(how) with a constant. */
#define BY_DECODER(how, CALL)                                                                                \
    switch (how) {                                                                                           \
    case F32:                                                                                                \
        CALL(F32);                                                                                           \
        break;                                                                                               \
    case BF16:                                                                                               \
        CALL(BF16);                                                                                          \
        break;                                                                                               \
    case E4M3:                                                                                               \
        CALL(E4M3);                                                                                          \
        break;                                                                                               \
    case E5M2:                                                                                               \
        CALL(E5M2);                                                                                          \
        break;                                                                                               \
    default:                                                                                                 \
        CALL(E4M3FNUZ);                                                                                      \
        break;                                                                                               \
    }

/* The keys of a tile, ready to be read: as they lie in the cache, or decoded to scratch. */
struct source {
    enum decoder how;
    int64_t count, dim,
        prefetch; /* prefetch: bytes of keys->ahead[j] to fetch while key j is read; 0 = none */
    const void *const *row;
    const char *const *ahead;
};

/* Many rows: the keys decoded to scratch, whose addresses go to row[]. Few rows: the keys as they are. */
static struct source source_of(const struct kvg_keys *keys, int64_t rows, float *scratch,
                               const void *row[KVG_TILE])
{
    const int64_t dim = keys->dim, bytes = dim * kvg_dtype_bytes(keys->dtype);
    const enum decoder how = decoder_of(keys->dtype);

    if (rows <= ROWS)
        return (struct source){how, keys->count, dim, bytes, keys->row, keys->ahead};
    for (int64_t j = 0; j < keys->count; j++) {
        row[j] = scratch + j * dim;
        kvg_prefetch(keys->ahead[j], bytes);
#define CALL(how) decode_row(how, keys->row[j], dim, scratch + j * dim)
        BY_DECODER(how, CALL)
#undef CALL
    }
    return (struct source){F32, keys->count, dim, 0, row, keys->ahead};
}

/* ---------------------------------------------------------------- logits */

static void pack_q(const void *const *row, int64_t rows, int64_t dim, enum kvg_dtype dtype, void *packed)
{
    float *out = packed;

    memset(packed, 0, (size_t)packed_q_bytes(rows, dim));
    for (int64_t r = 0; r < rows; r++) {
        if (dtype == KVG_BF16)
            decode_row(BF16, row[r], dim, out + r * dim);
        else
            decode_row(E4M3, row[r], dim, out + r * dim);
        for (int64_t d = 0; d < dim; d++)
            out[r * dim + d] *= lowered_by(dtype);
    }
}

/* Two keys against `rows` rows. */
ALWAYS_INLINE void logits_2(enum decoder how, int rows, const void *const *row, const float *q, int64_t dim,
                            float factor, float *s)
{
    float32x4_t sum[2][ROWS][2];

    for (int r = 0; r < rows; r++)
        sum[0][r][0] = sum[0][r][1] = sum[1][r][0] = sum[1][r][1] = vdupq_n_f32(0.0f);
    for (int64_t d = 0; d < dim; d += STEP) {
        float32x4_t a[2], b[2];

        decode8(how, row[0], d, a);
        decode8(how, row[1], d, b);
        for (int r = 0; r < rows; r++) {
            for (int i = 0; i < 2; i++) {
                const float32x4_t x = vld1q_f32(q + r * dim + d + 4 * i);
                sum[0][r][i] = vfmaq_f32(sum[0][r][i], a[i], x);
                sum[1][r][i] = vfmaq_f32(sum[1][r][i], b[i], x);
            }
        }
    }
    for (int r = 0; r < rows; r++) {
        s[r * KVG_TILE] = vaddvq_f32(vaddq_f32(sum[0][r][0], sum[0][r][1])) * factor;
        s[r * KVG_TILE + 1] = vaddvq_f32(vaddq_f32(sum[1][r][0], sum[1][r][1])) * factor;
    }
}

ALWAYS_INLINE void logits_rows(enum decoder how, int rows, const struct source *k, const float *q,
                               float factor, float *s)
{
    for (int64_t j = 0; j < k->count; j += 2) {
        kvg_prefetch(k->ahead[j], k->prefetch);
        kvg_prefetch(k->ahead[j + 1], k->prefetch);
        logits_2(how, rows, k->row + j, q, k->dim, factor, s + j);
    }
}

/* Three rows are taken as four, of which one is zero. */
ALWAYS_INLINE void logits_as(enum decoder how, const struct source *k, const float *q, int64_t rows,
                             float factor, float *s)
{
    for (int64_t r = 0; r < rows; r += ROWS, q += ROWS * k->dim, s += ROWS * KVG_TILE)
        if (rows - r == 1)
            logits_rows(how, 1, k, q, factor, s);
        else if (rows - r == 2)
            logits_rows(how, 2, k, q, factor, s);
        else
            logits_rows(how, ROWS, k, q, factor, s);
}

static void logits(const struct kvg_keys *keys, const void *packed_q, int64_t rows, void *scratch, float *s)
{
    const void *row[KVG_TILE];
    const struct source k = source_of(keys, rows, scratch, row);

#define CALL(how) logits_as(how, &k, packed_q, rows, lowered_by(keys->dtype), s)
    BY_DECODER(k.how, CALL)
#undef CALL
}

/* ---------------------------------------------------------------- values */

/* P carries what the decoded values lack. */
static float p_factor(enum kvg_dtype dtype)
{
    return lowered_by(dtype);
}

/* acc = acc * factor + P V for `rows` rows and 8 * eights dims from dim d on. */
ALWAYS_INLINE void strip(enum decoder how, int rows, int eights, const struct source *v, int64_t d,
                         const float *p, const float *factor, float *acc, int64_t stride)
{
    const int64_t bytes = how == BF16 ? 2 : 1;
    const int line = v->prefetch && d * bytes % KVG_LINE == 0;
    float32x4_t sum[ROWS][4];

    for (int r = 0; r < rows; r++)
        for (int i = 0; i < 2 * eights; i++)
            sum[r][i] = vdupq_n_f32(0.0f);
    for (int64_t j = 0; j < v->count; j++) {
        float32x4_t value[4];

        if (line)
            kvg_prefetch(v->ahead[j] + d * bytes, 1);
        for (int i = 0; i < eights; i++)
            decode8(how, v->row[j], d + STEP * i, value + 2 * i);
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < 2 * eights; i++)
                sum[r][i] = vfmaq_n_f32(sum[r][i], value[i], p[r * KVG_TILE + j]);
    }
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < 2 * eights; i++) {
            float *at = acc + r * stride + d + 4 * i;
            vst1q_f32(at, vfmaq_n_f32(sum[r][i], vld1q_f32(at), factor[r]));
        }
    }
}

ALWAYS_INLINE void values_rows(enum decoder how, int rows, const struct source *v, const float *p,
                               const float *factor, float *acc, int64_t stride)
{
    int64_t d = 0;

    for (; d + STRIP <= v->dim; d += STRIP)
        strip(how, rows, 2, v, d, p, factor, acc, stride);
    if (d < v->dim)
        strip(how, rows, 1, v, d, p, factor, acc, stride);
}

ALWAYS_INLINE void values_as(enum decoder how, const struct source *v, const float *p, const float *factor,
                             int64_t rows, float *acc, int64_t stride)
{
    for (int64_t r = 0; r < rows; r += ROWS, p += ROWS * KVG_TILE, factor += ROWS, acc += ROWS * stride)
        if (rows - r == 1)
            values_rows(how, 1, v, p, factor, acc, stride);
        else if (rows - r == 2)
            values_rows(how, 2, v, p, factor, acc, stride);
        else if (rows - r == 3)
            values_rows(how, 3, v, p, factor, acc, stride);
        else
            values_rows(how, ROWS, v, p, factor, acc, stride);
}

static void values(const struct kvg_keys *keys, const void *p, const float *factor, int64_t rows,
                   void *scratch, float *acc, int64_t acc_stride)
{
    const void *row[KVG_TILE];
    const struct source v = source_of(keys, rows, scratch, row);

#define CALL(how) values_as(how, &v, p, factor, rows, acc, acc_stride)
    BY_DECODER(v.how, CALL)
#undef CALL
}

const struct kvg_attention_ops kvg_attention_neon = {
    .isa = KVG_ISA_NEON,
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
    .dtypes = 1u << KVG_BF16 | 1u << KVG_E4M3 | 1u << KVG_E5M2 | 1u << KVG_E4M3FNUZ,
};
