/* SPDX-License-Identifier: Apache-2.0
 *
 * formats.h: number formats of the reference.
 *
 * These functions are the definition that everything else in the project is tested against. The functions for
 * single values use integer arithmetic only and are written to be read; the row functions give the same bits
 * and are fast.
 *
 * Encoding to FP8:
 *   - rounds to nearest, ties to even;
 *   - saturates to the largest finite value, infinities included;
 *   - turns every NaN into one canonical NaN: 0x7f, or 0x80 in e4m3fnuz.
 * __nv_cvt_float_to_fp8(.., __NV_SATFINITE, ..) and the conversion instruction of NVIDIA GPUs do the same.
 */
#ifndef KVG_REFERENCE_FORMATS_H
#define KVG_REFERENCE_FORMATS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum kvg_ref_format {
    KVG_REF_F32 = 0,
    KVG_REF_F16,
    KVG_REF_BF16,
    KVG_REF_E4M3,    /* OCP e4m3fn: bias 7, max 448, NaN 0x7f and 0xff, no infinity */
    KVG_REF_E5M2,    /* OCP e5m2: bias 15, max 57344, infinity 0x7c, NaN 0x7d..0x7f */
    KVG_REF_E4M3FNUZ /* AMD MI300: bias 8, max 240, NaN 0x80 alone, no negative zero */
};

/* Static facts of a format. */
struct kvg_ref_format_info {
    const char *name;
    int bytes;         /* per element */
    int mantissa_bits; /* explicit fraction bits */
    int min_exponent;  /* of the smallest normal: 2^min_exponent */
    double max;        /* largest finite value */
};
const struct kvg_ref_format_info *kvg_ref_format_get_info(enum kvg_ref_format format);

/* FP8: `format` must be one of the three 8-bit formats. Every NaN code decodes to a NaN. */
uint8_t kvg_ref_fp8_encode(enum kvg_ref_format format, float value);
float kvg_ref_fp8_decode(enum kvg_ref_format format, uint8_t code);

/* 16-bit formats: round to nearest, ties to even. Overflow gives infinity, as IEEE 754 demands. A NaN keeps
 * its sign and leading payload bits and becomes quiet. */
uint16_t kvg_ref_bf16_encode(float value);
float kvg_ref_bf16_decode(uint16_t code);
uint16_t kvg_ref_f16_encode(float value);
float kvg_ref_f16_decode(uint16_t code);

/* One element of any format, at data[index]; index counts elements. */
float kvg_ref_load(enum kvg_ref_format format, const void *data, int64_t index);
void kvg_ref_store(enum kvg_ref_format format, void *data, int64_t index, float value);
/* Rows of `count` consecutive elements from `index` on: decode, encode, and round in place. Fast enough for a
 * whole cache. The bits are those of kvg_ref_load, kvg_ref_store and kvg_ref_round. */
void kvg_ref_load_row(enum kvg_ref_format format, const void *data, int64_t index, int64_t count, float *out);
void kvg_ref_store_row(enum kvg_ref_format format, void *data, int64_t index, int64_t count, const float *in);
void kvg_ref_round_row(enum kvg_ref_format format, float *values, int64_t count);
/* `value` encoded and decoded again. */
float kvg_ref_round(enum kvg_ref_format format, float value);

#ifdef __cplusplus
}
#endif

#endif
