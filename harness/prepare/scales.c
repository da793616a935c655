/* SPDX-License-Identifier: Apache-2.0
 *
 * scales.c: computes the scales of a case from its calibration.
 *
 *   none           1.0
 *   random_tokens  absmax over the random-token set / constant, in FP32
 *   dataset        absmax over the calibration set, as the observer reduces it / largest value of the format
 *
 * e4m3fnuz: on platforms with that format vLLM loads a checkpoint's scale, absmax / 448, and doubles it, so
 * the largest code used is 224 of 240. It does not double the scales that it computes itself or takes as 1.0.
 * Q is quantised on the fp8 path only, always to e4m3. Its scale per head is computed for each query head,
 * and the largest in a GQA group is the scale of the group's KV head.
 */
#include <stdio.h>
#include <stdlib.h>
#include "parts.h"
#include "prepared.h"

static const char *const tensor_name[] = {"q", "k", "v"};
static const char *const observer_name[] = {"static_minmax", "minmax", "memoryless_minmax"};

static float divisor(const struct kvg_prepared *p, enum kvg_tensor tensor)
{
    if (p->c.calibration == KVG_CALIBRATION_RANDOM_TOKENS) {
        const float constants[] = {p->own->options.q_constant, p->own->options.k_constant,
                                   p->own->options.v_constant};
        return constants[tensor];
    }
    if (tensor == KVG_TENSOR_Q || p->problem.kv_dtype == KVG_E4M3)
        return (float)kvg_ref_format_get_info(KVG_REF_E4M3)->max;
    if (p->problem.kv_dtype == KVG_E4M3FNUZ)
        return (float)kvg_ref_format_get_info(KVG_REF_E4M3)->max / 2;
    return (float)kvg_ref_format_get_info(kvg_ref_format_of(p->problem.kv_dtype))->max;
}

static int bad_scale(const struct kvg_prepared *p, enum kvg_tensor tensor, int64_t head, float scale,
                     struct kvg_error *error)
{
    char who[64] = "", how[128];
    if (p->c.scheme == KVG_PER_HEAD)
        snprintf(who, sizeof who, " of %s head %lld", tensor == KVG_TENSOR_Q ? "query" : "KV",
                 (long long)head);
    if (p->c.calibration == KVG_CALIBRATION_RANDOM_TOKENS)
        snprintf(how, sizeof how, "random_tokens with constant %g", (double)divisor(p, tensor));
    else
        snprintf(how, sizeof how, "dataset with observer %s", observer_name[p->c.observer]);
    return kvg_fail(error, KVG_EXIT_USAGE,
                    "%s scale%s is %g (calibration %s, input %s): a scale must be positive and finite",
                    tensor_name[tensor], who, (double)scale, how, p->c.input);
}

/* The scales of one tensor: one per head of the tensor (per_head) or one (per_tensor), as in a checkpoint. */
static int measure(struct kvg_prepared *p, enum kvg_tensor tensor, float *scale, struct kvg_error *error)
{
    struct kvg_input_shape shape = kvg_prepared_shape(p);
    int64_t heads = tensor == KVG_TENSOR_Q ? p->c.q_heads : p->c.kv_heads, samples;
    int random = p->c.calibration == KVG_CALIBRATION_RANDOM_TOKENS, per_head = p->c.scheme == KVG_PER_HEAD;
    float *absmax;
    if (kvg_input_cache_absmax(p->own->options.cache, &shape, tensor,
                               random ? KVG_SET_RANDOM_TOKENS : KVG_SET_CALIBRATION, &absmax, &samples,
                               error))
        return -1;
    /* random_tokens sees its set as one batch, so the number of stored samples does not matter. */
    kvg_ref_scales_from_absmax(absmax, samples, heads, per_head,
                               random ? KVG_REF_STATIC_MINMAX : p->c.observer, divisor(p, tensor), scale);
    free(absmax);
    int64_t bad = kvg_ref_first_bad_scale(scale, per_head ? heads : 1);
    return bad < 0 ? 0 : bad_scale(p, tensor, bad, scale[bad], error);
}

static void set_to_one(struct kvg_prepared *p, float *scale)
{
    for (int64_t h = 0; h < (p->scale_stride ? p->c.kv_heads : 1); h++)
        scale[h] = 1.0f;
}

static int measure_q(struct kvg_prepared *p, struct kvg_error *error)
{
    if (p->c.scheme == KVG_PER_TENSOR)
        return measure(p, KVG_TENSOR_Q, p->q_scale, error);
    float *per_head = malloc((size_t)p->c.q_heads * sizeof *per_head);
    if (!per_head)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for %lld scales", (long long)p->c.q_heads);
    int failed = measure(p, KVG_TENSOR_Q, per_head, error);
    if (!failed)
        kvg_ref_q_scale_to_kv_heads(per_head, p->c.q_heads, p->c.kv_heads, p->q_scale);
    free(per_head);
    return failed;
}

int kvg_scales_measure(struct kvg_prepared *p, struct kvg_error *error)
{
    set_to_one(p, p->q_scale);
    set_to_one(p, p->k_scale);
    set_to_one(p, p->v_scale);
    if (p->c.calibration == KVG_CALIBRATION_NONE || p->c.kv_cache_dtype == KVG_CACHE_AUTO)
        return 0;
    if (p->c.path == KVG_PATH_FP8 && measure_q(p, error))
        return -1;
    return measure(p, KVG_TENSOR_K, p->k_scale, error) || measure(p, KVG_TENSOR_V, p->v_scale, error) ? -1
                                                                                                      : 0;
}
