/* SPDX-License-Identifier: Apache-2.0
 *
 * scales.h: how the scales of an FP8 KV cache are computed. There are three calibrations:
 *
 *   none           Every scale is 1.0.
 *   random_tokens  max|x| / constant over one batch of random tokens; the constant is 200 for q, 200 for k
 *                  and 100 for v. This is vLLM's calculate_kv_scales, removed in 2026 and still deployed.
 *   dataset        max|x| / largest value of the format over a calibration set, by one of three observers of
 *                  llm-compressor and compressed-tensors.
 *
 * An observer receives one absmax per sample and head. The division is done in FP32.
 */
#ifndef KVG_REFERENCE_SCALES_H
#define KVG_REFERENCE_SCALES_H

#include <stdint.h>
#include "formats.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kvg_ref_observer {
    KVG_REF_STATIC_MINMAX = 0, /* the true maximum over all samples */
    KVG_REF_MINMAX,            /* moving average: m += 0.01 * (sample - m), from the first sample on */
    KVG_REF_MEMORYLESS_MINMAX  /* the last sample alone */
};

#define KVG_REF_MINMAX_AVERAGING_CONSTANT 0.01f /* compressed-tensors' default for "minmax" */
#define KVG_REF_RANDOM_TOKENS_Q_CONSTANT 200.0f /* vllm/envs.py: Q_SCALE_CONSTANT */
#define KVG_REF_RANDOM_TOKENS_K_CONSTANT 200.0f
#define KVG_REF_RANDOM_TOKENS_V_CONSTANT 100.0f

/* Scales from what an observer saw.
 *
 *   absmax    [samples, heads] largest |x| of a sample and head
 *   per_head  1: writes scale[heads]; 0: takes all heads together and writes scale[1]
 *   divisor   random_tokens: the constant; dataset: the largest value of the format
 *
 * Without a sample the scale is NaN. A NaN among the samples that the observer uses makes it NaN. */
void kvg_ref_scales_from_absmax(const float *absmax, int64_t samples, int64_t heads, int per_head,
                                enum kvg_ref_observer observer, float divisor, float *scale);

/* Largest |x| of `count` consecutive elements; NaN if any of them is NaN. */
float kvg_ref_absmax(enum kvg_ref_format format, const void *data, int64_t index, int64_t count);

/* The q scales of a checkpoint [q_heads] as the run-time q scales [kv_heads]: the maximum of each GQA
 * group. */
void kvg_ref_q_scale_to_kv_heads(const float *q_scale, int64_t q_heads, int64_t kv_heads, float *out);

/* Index of the first scale that is zero, negative, NaN or infinite; -1 when there is none. */
int64_t kvg_ref_first_bad_scale(const float *scale, int64_t count);

#ifdef __cplusplus
}
#endif

#endif
