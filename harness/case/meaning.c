/* SPDX-License-Identifier: Apache-2.0
 *
 * meaning.c: rules that combine several axes: fields that follow from others, contradictions, what vLLM
 * offers, and the conversion of a case to a problem of the kernel ABI and to the first columns of a row.
 */
#include "case.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/inputs/inputs.h"
#include "harness/machine/machine.h"

#define APPEND_DEFAULT_Q_LEN 16 /* a speculative or chunked step; kernels for few queries support it */

/* ------------------------------------------------------------------------------------------ completion */

static int complete_layer(struct kvg_case *c, const struct kvg_captured_info *info, struct kvg_error *error)
{
    if (c->layer == -1)
        c->layer = info->layers[0];
    for (int64_t i = 0; i < info->n_layers; i++)
        if (info->layers[i] == c->layer)
            return 0;
    char layers[512];
    kvg_captured_list_layers(info, layers, sizeof layers);
    return kvg_fail(error, KVG_EXIT_USAGE, "layer=%" PRId64 ": input %s (%s) holds layers %s", c->layer,
                    c->input, info->path, layers);
}

static int complete_captured(struct kvg_case *c, const struct kvg_captured_info *info,
                             struct kvg_error *error)
{
    c->q_heads = info->q_heads;
    c->kv_heads = info->kv_heads;
    c->head_dim = info->head_dim;
    if (complete_layer(c, info, error))
        return -1;
    if (c->context > info->tokens)
        return kvg_fail(error, KVG_EXIT_USAGE, "context=%" PRId64 ": input %s holds %" PRId64 " tokens",
                        c->context, c->input, info->tokens);
    const int64_t width = kvg_captured_window(info, c->context);
    if (width > info->tokens / c->batch)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "batch=%" PRId64 " context=%" PRId64 ": each sequence takes its own %" PRId64
                        " tokens of input %s, which holds %" PRId64 ", so that batch is at most %" PRId64,
                        c->batch, c->context, width, c->input, info->tokens, info->tokens / width);
    return 0;
}

/* The file has Q for some positions only. Checks that it has the last q_len positions of every window. */
static int check_captured_q(const struct kvg_case *c, const struct kvg_captured_info *info,
                            struct kvg_error *error)
{
    if (c->phase == KVG_PHASE_STORE || c->q_len <= info->q_tail)
        return 0;
    const int64_t width = kvg_captured_window(info, c->context);
    for (int64_t end = width; end <= c->batch * width; end += width) {
        int in_first = end <= info->q_first;
        int in_last = end <= info->tokens && end - c->q_len >= info->tokens - info->q_last;
        if (!in_first && !in_last)
            return kvg_fail(error, KVG_EXIT_USAGE,
                            "q_len=%" PRId64 " context=%" PRId64 " batch=%" PRId64
                            ": input %s holds Q for the first %" PRId64 " positions, the last %" PRId64
                            " and the last %" PRId64
                            " of each window only; prefill is possible up to context=%" PRId64,
                            c->q_len, c->context, c->batch, c->input, info->q_first, info->q_last,
                            info->q_tail, info->q_first);
    }
    return 0;
}

/* A list of lengths says what phase, batch, q_len and context are. */
static int complete_list(struct kvg_case *c, struct kvg_error *error)
{
    struct kvg_list_sums sums;
    if (c->lengths != KVG_LENGTHS_LIST)
        return 0;
    if (c->phase == KVG_PHASE_STORE)
        return kvg_fail(
            error, KVG_EXIT_USAGE,
            "lengths=%s: a list says how many queries each sequence has, and phase store has none; it takes "
            "uniform, ragged or gaps",
            c->list);
    kvg_list_sum(c->list, &sums);
    c->batch = sums.sequences;
    c->context = sums.max_context;
    c->q_len = sums.max_q_len;
    c->phase = c->q_len == 1 ? KVG_PHASE_DECODE : sums.whole ? KVG_PHASE_PREFILL : KVG_PHASE_APPEND;
    return 0;
}

static int complete_shared(const struct kvg_case *c, struct kvg_error *error)
{
    if (c->shared_pages == 0)
        return 0;
    if (c->phase == KVG_PHASE_STORE)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "shared_pages=%" PRId64
                        ": phase store writes each slot once, so that no two of its tokens may "
                        "have the same one",
                        c->shared_pages);
    if (c->batch < 2)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "shared_pages=%" PRId64 ": one sequence shares no page; batch must be 2 or more",
                        c->shared_pages);
    if (c->shared_pages > c->context / c->block_size)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "shared_pages=%" PRId64 " context=%" PRId64 " block_size=%" PRId64
                        ": the longest sequence fills %" PRId64 " pages",
                        c->shared_pages, c->context, c->block_size, c->context / c->block_size);
    return 0;
}

static int complete_q_len(struct kvg_case *c, struct kvg_error *error)
{
    const char *phase = kvg_axis_word(KVG_AXIS_PHASE, c->phase);
    int64_t wanted = c->phase == KVG_PHASE_DECODE   ? 1
                     : c->phase == KVG_PHASE_APPEND ? APPEND_DEFAULT_Q_LEN
                                                    : c->context;
    if (c->lengths == KVG_LENGTHS_LIST)
        return 0; /* complete_list did it */
    if (c->q_len == 0)
        c->q_len = wanted;
    if (c->phase == KVG_PHASE_APPEND) {
        if (c->q_len < 2 || c->q_len >= c->context)
            return kvg_fail(error, KVG_EXIT_USAGE,
                            "q_len=%" PRId64 " context=%" PRId64 ": append needs 1 < q_len < context "
                            "(q_len 1 is decode, q_len = context is prefill)",
                            c->q_len, c->context);
    } else if (c->q_len != wanted) {
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "q_len=%" PRId64 ": phase %s has q_len %" PRId64
                        "; leave q_len out or use phase=append",
                        c->q_len, phase, wanted);
    }
    return 0;
}

static int complete_shape(const struct kvg_case *c, struct kvg_error *error)
{
    if (c->q_heads % c->kv_heads)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "heads=%" PRId64 "/%" PRId64 ": query heads must be a multiple of KV heads",
                        c->q_heads, c->kv_heads);
    if (c->lengths != KVG_LENGTHS_LIST && c->context > INT32_MAX / c->batch)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "context=%" PRId64 " batch=%" PRId64
                        ": more than 2^31 - 1 tokens, which the int32 lengths "
                        "of the kernel ABI cannot count",
                        c->context, c->batch);
    return 0;
}

static int complete_path(struct kvg_case *c, struct kvg_error *error)
{
    if (c->phase == KVG_PHASE_STORE)
        c->path = KVG_PATH_NONE;
    else if (c->path == KVG_PATH_NONE)
        return kvg_fail(error, KVG_EXIT_USAGE, "path=none is for phase store only; %s takes dequant or fp8",
                        kvg_axis_word(KVG_AXIS_PHASE, c->phase));
    return 0;
}

/* A prediction runs no kernel and is not timed. */
static void complete_prediction(struct kvg_case *c)
{
    char how[32];
    if (!kvg_case_predicts(c))
        return;
    kvg_case_get(c, KVG_AXIS_ACCUMULATE, how, sizeof how);
    snprintf(c->kernel, sizeof c->kernel, "predict/%s", how);
    c->cache_state = KVG_STATE_NONE;
}

int kvg_case_complete(struct kvg_case *c, struct kvg_error *error)
{
    complete_prediction(c);
    if (c->mask == KVG_MASK_PREFIX && c->prefix == 0)
        c->prefix = kvg_case_usual_prefix(c->context);
    if (c->threads == 0)
        c->threads = kvg_cpus_allowed();
    if (c->kv_cache_dtype == KVG_CACHE_AUTO) { /* a bf16 cache has no scales */
        c->scheme = KVG_PER_TENSOR;
        c->calibration = KVG_CALIBRATION_NONE;
    }
    if (c->calibration != KVG_CALIBRATION_DATASET)
        c->observer = KVG_REF_STATIC_MINMAX; /* unused; its default is left out of the string */
    struct kvg_captured_info info;
    int captured = !kvg_input_is_synthetic(c->input);
    if (complete_list(c, error) || complete_path(c, error))
        return -1;
    if (!captured)
        c->layer = -1;
    else if (kvg_captured_read_info(c->input, &info, error) || complete_captured(c, &info, error))
        return -1;
    if (complete_shape(c, error) || complete_q_len(c, error) || complete_shared(c, error))
        return -1;
    return captured ? check_captured_q(c, &info, error) : 0;
}

/* ------------------------------------------------------------------------------------------ meaning */

/* Per-tensor: vLLM's BaseKVCacheMethod and CompressedTensorsKVCacheMethod (strategy "tensor"), any backend.
 *   none           uncalibrated: scale 1.0
 *   random_tokens  calculate_kv_scales, for any fp8 cache dtype; removed in 2026, still deployed
 *   dataset        scales of a checkpoint; for fp8_e5m2 _init_kv_cache_quant raises "fp8_e5m2 kv-cache is not
 *                  supported with fp8 checkpoints."
 * Per-head: CompressedTensorsKVCacheMethod (strategy "attn_head") reads the scales from a checkpoint only,
 * and needs a backend with supports_per_head_quant_scales: FlashAttention 3 or later, which is the fp8 path
 * here. The store kernel takes per-head scales (reshape_and_cache_flash: numel is 1 or kv_heads).
 * fp8_e4m3fnuz is what fp8_e4m3 means on AMD MI300, whose backends dequantise. */
int kvg_case_offered_by_vllm(const struct kvg_case *c)
{
    char why[256];
    if (kvg_case_without_meaning(c, why, sizeof why) || c->mask == KVG_MASK_FULL)
        return 0; /* vLLM's encoder attention, which is not causal, has no KV cache */
    if (c->kv_cache_dtype == KVG_CACHE_AUTO)
        return 1;
    if (c->kv_cache_dtype == KVG_CACHE_FP8_E5M2 && c->calibration == KVG_CALIBRATION_DATASET)
        return 0;
    if (c->scheme == KVG_PER_HEAD)
        return c->calibration == KVG_CALIBRATION_DATASET && c->kv_cache_dtype == KVG_CACHE_FP8_E4M3 &&
               c->path != KVG_PATH_DEQUANT;
    return 1;
}

/* FlashAttention-3's FP8 path takes Q, K and V in e4m3 only: flash_api.cpp does not accept e5m2, and before
 * that vLLM raises "Unrecognized FP8 dtype". */
int kvg_case_without_meaning(const struct kvg_case *c, char *why, size_t size)
{
    if (kvg_case_predicts(c) && c->path != KVG_PATH_FP8) {
        snprintf(why, size,
                 "accumulate predicts the fp8 path only; path dequant multiplies in bf16 or wider");
        return 1;
    }
    if (kvg_case_predicts(c) && c->phase == KVG_PHASE_PREFILL) {
        snprintf(why, size,
                 "predictions are for decode and append only: a whole prefill on the model takes hours");
        return 1;
    }
    if (c->mask == KVG_MASK_FULL && c->window > 0) {
        snprintf(why, size, "a window counts keys back from the query's position; mask full shows all");
        return 1;
    }
    if (c->phase == KVG_PHASE_STORE && (c->mask == KVG_MASK_CHUNKED || c->mask == KVG_MASK_PREFIX)) {
        snprintf(why, size, "a store has no queries, so it has no mask %s",
                 kvg_axis_word(KVG_AXIS_MASK, c->mask));
        return 1;
    }
    if (c->phase == KVG_PHASE_STORE && c->sinks != KVG_SINKS_OFF) {
        snprintf(why, size, "a store has no softmax that sinks could join");
        return 1;
    }
    if (c->path != KVG_PATH_FP8 || c->kv_cache_dtype == KVG_CACHE_FP8_E4M3)
        return 0;
    if (c->kv_cache_dtype == KVG_CACHE_AUTO)
        snprintf(why, size, "a bf16 cache has no fp8 path, which multiplies Q, K and V in fp8_e4m3");
    else
        snprintf(why, size, "the fp8 path multiplies fp8_e4m3 only (FlashAttention-3 rejects %s)",
                 kvg_axis_word(KVG_AXIS_KV_CACHE_DTYPE, c->kv_cache_dtype));
    return 1;
}

float kvg_case_softmax_scale(const struct kvg_case *c)
{
    return (float)(c->softmax_scale > 0 ? c->softmax_scale : 1.0 / sqrt((double)c->head_dim));
}

static enum kvg_dtype cache_element(enum kvg_cache_dtype dtype)
{
    switch (dtype) {
    case KVG_CACHE_AUTO:
        return KVG_BF16;
    case KVG_CACHE_FP8_E4M3:
        return KVG_E4M3;
    case KVG_CACHE_FP8_E5M2:
        return KVG_E5M2;
    case KVG_CACHE_FP8_E4M3FNUZ:
        return KVG_E4M3FNUZ;
    }
    return KVG_BF16;
}

static uint64_t features_of(const struct kvg_case *c)
{
    return (c->block_size % 8 ? KVG_FEATURE_SMALL_PAGES : 0) |
           (c->shared_pages > 0 ? KVG_FEATURE_SHARED_PAGES : 0) |
           (c->mask == KVG_MASK_CHUNKED ? KVG_FEATURE_CHUNKED_MASK : 0) |
           (c->mask == KVG_MASK_PREFIX ? KVG_FEATURE_PREFIX_MASK : 0) |
           (c->sinks != KVG_SINKS_OFF ? KVG_FEATURE_SINKS : 0);
}

void kvg_case_problem(const struct kvg_case *c, struct kvg_problem *problem)
{
    *problem = (struct kvg_problem){
        .phase = c->phase,
        .path = c->path,
        .q_dtype = c->path == KVG_PATH_FP8 ? KVG_E4M3 : KVG_BF16,
        .kv_dtype = cache_element(c->kv_cache_dtype),
        .out_dtype = KVG_BF16,
        .scheme = c->scheme,
        .layout = c->layout,
        .batch = c->batch,
        .q_heads = c->q_heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .block_size = c->block_size,
        .total_q = c->batch * c->q_len,
        .max_q_len = c->q_len,
        .max_seq_len = c->context,
        .total_kv = c->batch * c->context,
        .window = c->window,
        .soft_cap = (float)c->soft_cap,
        .mask = c->mask,
        .threads = (int)c->threads,
        .features = features_of(c),
        .chunk = c->chunk,
    };
    if (c->lengths == KVG_LENGTHS_LIST) {
        struct kvg_list_sums sums;
        kvg_list_sum(c->list, &sums);
        problem->total_q = sums.total_q;
        problem->total_kv = sums.total_kv;
    }
}

/* ------------------------------------------------------------------------------------------ row */

static int set_axis_text(const struct kvg_case *c, enum kvg_axis axis, char **field)
{
    char value[KVG_CASE_VALUE_MAX];
    kvg_case_get(c, axis, value, sizeof value);
    return kvg_row_set_string(field, value);
}

static int set_names(const struct kvg_case *c, struct kvg_row *row)
{
    char text[KVG_CASE_STRING_MAX], id[17];
    kvg_case_format(c, text);
    kvg_case_id(c, id);
    return kvg_row_set_string(&row->case_id, id) || kvg_row_set_string(&row->case_string, text) ? -1 : 0;
}

int kvg_case_to_row(const struct kvg_case *c, struct kvg_row *row)
{
    if (set_names(c, row) || set_axis_text(c, KVG_AXIS_KERNEL, &row->kernel) ||
        set_axis_text(c, KVG_AXIS_PHASE, &row->phase) || set_axis_text(c, KVG_AXIS_PATH, &row->path) ||
        set_axis_text(c, KVG_AXIS_KV_CACHE_DTYPE, &row->kv_cache_dtype) ||
        set_axis_text(c, KVG_AXIS_SCHEME, &row->scheme) ||
        set_axis_text(c, KVG_AXIS_CALIBRATION, &row->calibration) ||
        set_axis_text(c, KVG_AXIS_INPUT, &row->input) || set_axis_text(c, KVG_AXIS_LENGTHS, &row->lengths) ||
        set_axis_text(c, KVG_AXIS_LAYOUT, &row->layout) || set_axis_text(c, KVG_AXIS_VIEWS, &row->views) ||
        set_axis_text(c, KVG_AXIS_MASK, &row->mask) || set_axis_text(c, KVG_AXIS_SINKS, &row->sinks) ||
        set_axis_text(c, KVG_AXIS_ACCUMULATE, &row->accumulate) ||
        set_axis_text(c, KVG_AXIS_CACHE_STATE, &row->cache_state))
        return -1;
    if (c->calibration == KVG_CALIBRATION_DATASET ? set_axis_text(c, KVG_AXIS_OBSERVER, &row->observer)
                                                  : kvg_row_set_string(&row->observer, ""))
        return -1;
    row->offered_by_vllm = kvg_case_offered_by_vllm(c);
    row->layer = c->layer;
    row->seed = (int64_t)c->seed; /* kvg_case_set limits seeds to int64 */
    row->batch = c->batch;
    row->q_len = c->q_len;
    row->context = c->context;
    row->q_heads = c->q_heads;
    row->kv_heads = c->kv_heads;
    row->head_dim = c->head_dim;
    row->block_size = c->block_size;
    row->shared_pages = c->shared_pages;
    row->window = c->window;
    row->soft_cap = c->soft_cap;
    row->softmax_scale = (double)kvg_case_softmax_scale(c);
    row->threads = c->threads;
    row->prediction = kvg_case_predicts(c);
    return 0;
}
