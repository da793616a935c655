/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_core.h: what the FP8 matrix units of GPUs compute, bit by bit.
 *
 * No such unit adds in FP32. It takes a step of products and the accumulator at once, shifts all of them to
 * the largest exponent among them, cuts off what falls below a fixed number of fraction bits, adds the rest
 * exactly, and cuts (or rounds) the sum to the width of its result. An accumulator much larger than a product
 * therefore loses the product's low bits, always towards zero: a long sum of numbers of one sign comes out
 * too small.
 *
 * The models and their constants are those of MMA-Sim (arXiv 2511.10909; PyPI package mmasim 2.1.1, against
 * which tests/unit/test_tensor_core.c compares every model bit by bit). What each of them covers:
 *
 *   hopper_wgmma  wgmma.mma_async.m64nNk32.f32 with e4m3 and e5m2 operands (QGMMA) on sm_90a. Steps of 32
 *                 products, 13 fraction bits, result cut to 1 + 8 + 13 bits.
 *   hopper_mma    mma.sync.m16n8k32.f32 with e4m3 and e5m2 operands on sm_90. It does not use the FP8 unit:
 *                 ptxas 13.0 unpacks the operands to f16 and writes two HMMA.16816.F32, the first from zero
 *                 over k = 0, 1 (mod 4), the second on top of it over k = 2, 3 (mod 4), and then one FP32
 *                 addition of the accumulator. Steps of 16 products, 25 fraction bits, result cut to FP32.
 *                 The operands are f16 numbers by then, so a subnormal e4m3 counts with its own exponent.
 *   ada_mma       mma.sync.m16n8k32.f32 with e4m3 and e5m2 operands on sm_89. Steps of 16, 13 fraction bits,
 *                 result cut to 1 + 8 + 13 bits.
 *   blackwell     tcgen05.mma kind::f8f6f4 on sm_100 and mma.sync with FP8 operands on sm_120, result f32.
 *                 Steps of 32, 25 fraction bits, result cut to FP32.
 *   cdna3_mfma    v_mfma_f32_*_fp8_fp8 on MI300 (e4m3fnuz). Steps of 16; products of even and of odd k are
 *                 aligned and summed apart (24 fraction bits), then joined with the accumulator (31 fraction
 *                 bits, rounded down), and the result is rounded to nearest even.
 *
 * NaN and infinity go as in IEEE 754 (any NaN, 0 * inf or inf - inf gives a NaN; an infinity stays); a sum
 * beyond FP32 gives infinity. Every NaN comes out as 0x7fffffff. The units of NVIDIA give +0 for every zero.
 */
#ifndef KVG_REFERENCE_TENSOR_CORE_H
#define KVG_REFERENCE_TENSOR_CORE_H

#include <stdint.h>
#include "formats.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the steps of a chunk hang together. */
enum kvg_ref_mma_family {
    KVG_REF_MMA_FUSED = 0, /* step after step into the accumulator */
    KVG_REF_MMA_HALVES, /* two steps of f16 products from zero, k = 0, 1 then 2, 3 (mod 4); FP32 addition */
    KVG_REF_MMA_PARITY  /* even and odd k apart, round down (CDNA3) */
};

struct kvg_ref_mma_model {
    const char *name; /* "hopper_wgmma", ... */
    const char *help; /* one line */
    enum kvg_ref_mma_family family;
    int chunk;         /* k of the smallest call that does not depend on its neighbours but for c */
    int step;          /* products fused */
    int align_bits;    /* fraction bits below the largest exponent that survive the alignment */
    int result_bits;   /* fraction bits of the result */
    int operand_e_min; /* an operand below 2^this is subnormal inside the unit; 0: as in its FP8 format */
};

/* The models in the order above; NULL past the end. */
const struct kvg_ref_mma_model *kvg_ref_mma_model(int64_t i);
/* By name; NULL when there is none. */
const struct kvg_ref_mma_model *kvg_ref_mma_model_by_name(const char *name);
/* 1 if the unit takes operands of this format: E4M3 and E5M2, or E4M3FNUZ for CDNA3. */
int kvg_ref_mma_takes(const struct kvg_ref_mma_model *model, enum kvg_ref_format format);

/* c + sum a[i] b[i], i < k, as the unit does it over k / chunk calls; a last part chunk is filled up with
 * zeros. Integer arithmetic, written to be read. The formats must be ones that the model takes. */
float kvg_ref_mma_fp8(const struct kvg_ref_mma_model *model, float c, enum kvg_ref_format a_format,
                      const uint8_t *a, enum kvg_ref_format b_format, const uint8_t *b, int64_t k);

/* C[m, n] += A[m, k] B[k, n]: the same bits for a whole matrix, with vectors where the model allows it. */
struct kvg_ref_mma_tile {
    const struct kvg_ref_mma_model *model;
    int64_t m, n, k;
    enum kvg_ref_format a_format, b_format;
    const uint8_t *a; /* A(i, l) at a[i * a_stride + l] */
    int64_t a_stride;
    const uint8_t *b; /* B(l, j) at b[l * b_stride_k + j * b_stride_n] */
    int64_t b_stride_k, b_stride_n;
    float *c; /* C(i, j) at c[i * c_stride + j] */
    int64_t c_stride;
};
void kvg_ref_mma_fp8_tile(const struct kvg_ref_mma_tile *tile);
/* The same with vectors of the nth width, 0 the widest of this CPU. 0, or -1 when there are not so many. */
int kvg_ref_mma_fp8_tile_as(const struct kvg_ref_mma_tile *tile, int n);

#ifdef __cplusplus
}
#endif

#endif
