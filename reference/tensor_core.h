/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_core.h: what the FP8 matrix units of GPUs compute, bit by bit.
 *
 * No such unit adds in FP32. A unit handles one step of products and the accumulator at once:
 *
 *   1. It shifts all of them to the largest exponent among them.
 *   2. It cuts off what falls below a fixed number of fraction bits.
 *   3. It adds the rest exactly.
 *   4. It cuts (or rounds) the sum to the width of its result.
 *
 * So a product that meets a much larger accumulator loses its low bits, always towards zero. A long sum of
 * numbers of one sign comes out too small.
 *
 * The models and their constants are those of MMA-Sim (arXiv 2511.10909; PyPI package mmasim 2.1.1).
 * tests/unit/reference/test_tensor_core.c compares every model with that package, bit by bit. The models:
 *
 *   hopper_wgmma  wgmma.mma_async.m64nNk32.f32 with e4m3 and e5m2 operands (QGMMA) on sm_90a.
 *                 Steps of 32 products, 13 fraction bits, result cut to 1 + 8 + 13 bits.
 *   hopper_mma    mma.sync.m16n8k32.f32 with e4m3 and e5m2 operands on sm_90. It does not use the FP8 unit:
 *                 ptxas 13.0 unpacks the operands to f16 and emits two HMMA.16816.F32 and one FP32 addition.
 *                 The first HMMA starts from zero and covers k = 0, 1 (mod 4); the second adds k = 2, 3
 *                 (mod 4) to it; the accumulator is added last, in FP32.
 *                 Steps of 16 products, 25 fraction bits, result cut to FP32.
 *                 The operands are f16 numbers, so a subnormal e4m3 number has its own exponent.
 *   ada_mma       mma.sync.m16n8k32.f32 with e4m3 and e5m2 operands on sm_89.
 *                 Steps of 16 products, 13 fraction bits, result cut to 1 + 8 + 13 bits.
 *   blackwell     tcgen05.mma kind::f8f6f4 on sm_100, and mma.sync with FP8 operands on sm_120, result f32.
 *                 Steps of 32 products, 25 fraction bits, result cut to FP32.
 *   cdna3_mfma    v_mfma_f32_*_fp8_fp8 on MI300 (e4m3fnuz). Steps of 16 products. Products of even k and of
 *                 odd k are aligned and summed separately (24 fraction bits), then joined with the
 *                 accumulator (31 fraction bits, rounded down). The result is rounded to nearest even.
 *
 * NaN and infinity follow IEEE 754: any NaN, 0 * inf and inf - inf give NaN; an infinity stays. A sum beyond
 * FP32 gives infinity. Every NaN is returned as 0x7fffffff. NVIDIA's units return +0 for every zero.
 */
#ifndef KVG_REFERENCE_TENSOR_CORE_H
#define KVG_REFERENCE_TENSOR_CORE_H

#include <stdint.h>
#include "formats.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the steps of a chunk are combined. */
enum kvg_ref_mma_family {
    KVG_REF_MMA_FUSED = 0, /* each step is added to the accumulator */
    KVG_REF_MMA_HALVES, /* two steps of f16 products from zero, k = 0, 1 then 2, 3 (mod 4); FP32 addition */
    KVG_REF_MMA_PARITY  /* even and odd k summed separately, rounded down (CDNA3) */
};

struct kvg_ref_mma_model {
    const char *name; /* "hopper_wgmma", ... */
    const char *help; /* one line */
    enum kvg_ref_mma_family family;
    int chunk;         /* k of one call: the chunks of a longer sum depend on each other through c only */
    int step;          /* products that are summed at once */
    int align_bits;    /* fraction bits below the largest exponent that survive the alignment */
    int result_bits;   /* fraction bits of the result */
    int operand_e_min; /* an operand below 2^this is subnormal inside the unit; 0: as in its FP8 format */
};

/* Model number i in the order above; NULL past the end. */
const struct kvg_ref_mma_model *kvg_ref_mma_model_get(int64_t i);
/* The model of that name; NULL when there is none. */
const struct kvg_ref_mma_model *kvg_ref_mma_model_by_name(const char *name);
/* 1 if the unit takes operands of this format: E4M3FNUZ on CDNA3, E4M3 and E5M2 on the others. */
int kvg_ref_mma_takes(const struct kvg_ref_mma_model *model, enum kvg_ref_format format);

/* c + sum of a[i] b[i] over i < k, as the unit computes it in k / chunk calls. An incomplete last chunk is
 * filled with zeros. Uses integer arithmetic and is written to be read. The model must take both formats. */
float kvg_ref_mma_fp8(const struct kvg_ref_mma_model *model, float c, enum kvg_ref_format a_format,
                      const uint8_t *a, enum kvg_ref_format b_format, const uint8_t *b, int64_t k);

/* C[m, n] += A[m, k] B[k, n]: each element has the bits of kvg_ref_mma_fp8. Uses vector code where the model
 * allows it. */
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
/* The same with vectors of the nth width of this CPU; n = 0 is the widest. Returns 0, or -1 when the CPU has
 * no nth width. */
int kvg_ref_mma_fp8_tile_as(const struct kvg_ref_mma_tile *tile, int n);

#ifdef __cplusplus
}
#endif

#endif
