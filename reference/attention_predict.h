/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_predict.h: predicts, without a GPU, what attention on an FP8 matrix unit returns.
 *
 * It runs the loop of FlashAttention-3's fp8 path, tile of keys by tile of keys. The last tile comes first
 * unless told otherwise. For each tile:
 *
 *   1. Q K^T goes through the matrix unit, starting from zero.
 *   2. The running maximum takes in the logits; O and the row sum so far shrink to it in FP32.
 *   3. P = 2^(logit - max + 8) is rounded to e4m3. The row sum adds the unrounded P in FP32.
 *   4. P V goes through the unit.
 *
 * V's scale and the division by the row sum come at the end. The accumulation of P V is the subject:
 *
 *   one chain   The unit adds every tile onto O, as a kernel without promotion does.
 *   two levels  The unit starts from zero every `flush_tiles` tiles; its result is added to O in FP32.
 *
 * The result is a prediction. The arithmetic of the unit is modelled to the bit (tensor_core.h); the
 * exponential and the order of the row sum are not those of a particular kernel.
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
    int64_t flush_tiles;  /* tiles between two additions to O in FP32; 0: one chain */
    int64_t tile;         /* keys; 0: FlashAttention-3's decode tile, 128 for head_dim <= 96, else 96 */
    int tile_first_first; /* 1: the tiles in ascending order; 0: the last tile first */
};

/* out is [rows, head_dim] in FP32, lse is [rows] (natural logarithm); either may be NULL. The formats of Q, K
 * and V must be ones that the unit takes. P is E4M3, or E4M3FNUZ with an offset of 7 on a unit that takes
 * that format. Returns 0, -1 when out of memory, or -2 when the unit does not take a format. */
int kvg_ref_attention_predict(const struct kvg_ref_attention *a, const struct kvg_ref_prediction *how,
                              const struct kvg_ref_row *rows, int64_t n_rows, float *out, float *lse);

#ifdef __cplusplus
}
#endif

#endif
