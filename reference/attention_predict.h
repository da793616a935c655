/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_predict.h: what attention on an FP8 matrix unit would give, without the GPU.
 *
 * The loop of FlashAttention-3's fp8 path: tiles of keys, last tile first unless told otherwise; Q K^T
 * through the unit from zero; running maximum; P = 2^(logit - max + 8) rounded to e4m3, row sum of unrounded
 * P in FP32; O shrunk in FP32 at each tile, P V through the unit, V's scale and the division by the row sum
 * at the end. The accumulation of P V is what is asked about:
 *
 *   one chain   the unit adds every tile onto O, as a kernel without promotion does;
 *   two levels  the unit starts from zero every `flush_tiles` tiles, and what it has is added to O in FP32.
 *
 * It is a prediction: the arithmetic of the unit is exact to the bit (tensor_core.h), the exponential and the
 * order of the row sum are not the ones of a particular kernel.
 */
#ifndef KVG_REFERENCE_ATTENTION_PREDICT_H
#define KVG_REFERENCE_ATTENTION_PREDICT_H

#include "attention.h"
#include "tensor_core.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kvg_ref_prediction {
    const struct kvg_ref_mma_model *mma;
    int64_t flush_tiles;  /* 0: one chain */
    int64_t tile;         /* keys; 0: FlashAttention-3's decode tile, 128 for head_dim <= 96, else 96 */
    int tile_first_first; /* 1: the tiles in ascending order */
};

/* out [rows, head_dim] in FP32, lse [rows] natural; either may be NULL. a->q_format and the formats of K and
 * V must be ones that the unit takes; P is in the format of E4M3 (E4M3FNUZ for a unit that takes that one).
 * 0, or -1 on out of memory, -2 when a format does not fit. */
int kvg_ref_attention_predict(const struct kvg_ref_attention *a, const struct kvg_ref_prediction *how,
                              const struct kvg_ref_row *rows, int64_t n_rows, float *out, float *lse);

#ifdef __cplusplus
}
#endif

#endif
