/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare.c: from a case to what a kernel is given: lengths and pages (prepare_layout.c), source values
 * (inputs/), scales (prepare_scales.c), and the caches filled by the reference's own quantiser into pages
 * that hold nothing but NaN before.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "reference/clones.h"
#include "parts.h"

#define BF16_NAN 0x7fc0u

void kvg_prepare_options_default(struct kvg_prepare_options *options)
{
    options->q_constant = KVG_REF_RANDOM_TOKENS_Q_CONSTANT;
    options->k_constant = KVG_REF_RANDOM_TOKENS_K_CONSTANT;
    options->v_constant = KVG_REF_RANDOM_TOKENS_V_CONSTANT;
    options->cache = NULL;
}

enum kvg_ref_format kvg_ref_format_of(enum kvg_dtype dtype)
{
    switch (dtype) {
    case KVG_F32:
        return KVG_REF_F32;
    case KVG_F16:
        return KVG_REF_F16;
    case KVG_BF16:
        return KVG_REF_BF16;
    case KVG_E4M3:
        return KVG_REF_E4M3;
    case KVG_E5M2:
        return KVG_REF_E5M2;
    case KVG_E4M3FNUZ:
        return KVG_REF_E4M3FNUZ;
    }
    return KVG_REF_F32;
}

int64_t kvg_dtype_bytes(enum kvg_dtype dtype)
{
    return kvg_ref_format_info(kvg_ref_format_of(dtype))->bytes;
}

int kvg_poison_byte(enum kvg_dtype dtype)
{
    return dtype == KVG_E4M3 || dtype == KVG_E5M2 ? 0x7f : dtype == KVG_E4M3FNUZ ? 0x80 : 0xff;
}

void kvg_poison_cache(enum kvg_dtype dtype, void *cache, int64_t elements)
{
    memset(cache, kvg_poison_byte(dtype), (size_t)(elements * kvg_dtype_bytes(dtype)));
}

struct kvg_input_shape kvg_prepared_shape(const struct kvg_prepared *p)
{
    const struct kvg_case *c = &p->values;
    return (struct kvg_input_shape){.input = c->input,
                                    .seed = c->seed,
                                    .layer = c->layer,
                                    .context = c->context,
                                    .q_heads = c->q_heads,
                                    .kv_heads = c->kv_heads,
                                    .head_dim = c->head_dim,
                                    .span = c->context};
}

/* Q, K and V of every sequence, then NaN in the rows of the padding tokens. */
static int fill_sources(struct kvg_prepared *p, struct kvg_error *error)
{
    const struct kvg_case *c = &p->c;
    int64_t q_row = c->q_heads * c->head_dim, kv_row = c->kv_heads * c->head_dim;
    struct kvg_input_shape shape = kvg_prepared_shape(p);
    struct kvg_input_cache *cache = p->options.cache;
    int threads = (int)c->threads;
    for (int64_t i = 0; i < c->batch; i++) {
        shape.seq = kvg_prepared_sequence(p, i);
        shape.context = p->seq_lens[i];
        shape.q_len = p->cu_q_lens[i + 1] - p->cu_q_lens[i];
        int64_t q = p->cu_q_lens[i] * q_row, kv = p->cu_kv_lens[i] * kv_row;
        int kv_too = shape.context > 0 && !p->frame;
        if ((shape.q_len && kvg_input_cache_fill(cache, &shape, KVG_TENSOR_Q, threads, p->q + q, error)) ||
            (kv_too && (kvg_input_cache_fill(cache, &shape, KVG_TENSOR_K, threads, p->k + kv, error) ||
                        kvg_input_cache_fill(cache, &shape, KVG_TENSOR_V, threads, p->v + kv, error))))
            return -1;
    }
    if (p->frame)
        return 0;
    for (int64_t i = p->total_kv * kv_row; i < p->store_tokens * kv_row; i++)
        p->k[i] = p->v[i] = BF16_NAN;
    return 0;
}

static struct kvg_ref_kv paged_view(const struct kvg_prepared *p, const struct kvg_pages *pages,
                                    const float *scale)
{
    return (struct kvg_ref_kv){.format = kvg_ref_format_of(p->problem.kv_dtype),
                               .data = pages->data,
                               .stride_block = pages->stride_block,
                               .stride_slot = pages->stride_slot,
                               .stride_head = pages->stride_head,
                               .block_size = p->c.block_size,
                               .block_table = p->block_table,
                               .block_table_stride = p->block_table_stride,
                               .scale = scale,
                               .scale_stride = p->scale_stride};
}

static void fill_cache(const struct kvg_prepared *p, struct kvg_pages *pages, const float *scale,
                       const uint16_t *source)
{
    const struct kvg_case *c = &p->c;
    struct kvg_ref_kv view = paged_view(p, pages, scale);
    kvg_poison_cache(p->problem.kv_dtype, pages->data, p->cache_elements);
    kvg_ref_paged_store(&view, pages->data, KVG_REF_BF16, source, c->kv_heads * c->head_dim, c->head_dim,
                        p->slot_mapping, p->store_tokens, c->kv_heads, c->head_dim);
}

/* Which bf16 magnitudes a scale loses: those beyond `over` and finite or infinite, and those up to `under`
 * that are not zero. A quotient never falls as the magnitude rises, so there is one such place each. */
struct limits {
    uint16_t over, under;
};
#define BF16_INFINITY 0x7f80u

/* The largest magnitude whose quotient is at most `most`. */
static uint16_t largest_within(float scale, float most)
{
    uint32_t within = 0, beyond = BF16_INFINITY + 1;
    while (beyond - within > 1) {
        const uint32_t middle = (within + beyond) / 2;
        if (kvg_ref_bf16_decode((uint16_t)middle) / scale <= most)
            within = middle;
        else
            beyond = middle;
    }
    return (uint16_t)within;
}

/* Codes up to half the smallest subnormal become zero, the half itself included, as it ties to zero, the even
 * code. */
static struct limits limits_of(const struct kvg_ref_format_info *format, float scale)
{
    const float half = ldexpf(0.5f, format->min_exponent - format->mantissa_bits);
    return (struct limits){largest_within(scale, (float)format->max), largest_within(scale, half)};
}

/* What became of the values of one row. */
struct losses {
    int32_t beyond, nonzero, lost;
};

KVG_REF_CLONES
static struct losses count_row(const uint16_t *x, int32_t count, uint16_t over, uint16_t under)
{
    int32_t beyond = 0, nonzero = 0, lost = 0;
    for (int32_t i = 0; i < count; i++) {
        const uint16_t magnitude = x[i] & 0x7fffu;
        beyond += (magnitude > over) & (magnitude <= BF16_INFINITY);
        nonzero += (magnitude > 0) & (magnitude <= BF16_INFINITY);
        lost += (magnitude > 0) & (magnitude <= under);
    }
    return (struct losses){beyond, nonzero, lost};
}

/* Shares of values beyond the largest code, and of non-zero values that round to zero. */
static int count_losses(const struct kvg_prepared *p, const float *scale, const uint16_t *source,
                        double *saturated, double *flushed, struct kvg_error *error)
{
    const struct kvg_case *c = &p->c;
    const struct kvg_ref_format_info *format = kvg_ref_format_info(kvg_ref_format_of(p->problem.kv_dtype));
    const int64_t rows = p->total_kv * c->kv_heads, scales = p->scale_stride ? c->kv_heads : 1;
    int64_t beyond = 0, lost = 0, nonzero = 0;
    *saturated = *flushed = 0;
    if (p->problem.kv_dtype == KVG_BF16)
        return 0;
    struct limits *limits = malloc((size_t)scales * sizeof *limits);
    if (!limits)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for %lld scales", (long long)scales);
    for (int64_t h = 0; h < scales; h++)
        limits[h] = limits_of(format, scale[h]);
#pragma omp parallel for schedule(static) reduction(+ : beyond, lost, nonzero) if (rows > 1024)
    for (int64_t r = 0; r < rows; r++) {
        const struct limits *l = &limits[r % c->kv_heads * p->scale_stride];
        const struct losses row =
            count_row(source + r * c->head_dim, (int32_t)c->head_dim, l->over, l->under);
        beyond += row.beyond;
        nonzero += row.nonzero;
        lost += row.lost;
    }
    free(limits);
    *saturated = rows ? (double)beyond / (double)(rows * c->head_dim) : 0;
    *flushed = nonzero ? (double)lost / (double)nonzero : 0;
    return 0;
}

/* Everything that depends on values: scales, caches, quantised Q. */
static int quantise(struct kvg_prepared *p, struct kvg_error *error)
{
    const struct kvg_case *c = &p->c;
    if (kvg_scales_measure(p, error))
        return -1;
    if (!p->frame) {
        fill_cache(p, &p->k_pages, p->k_scale, p->k);
        fill_cache(p, &p->v_pages, p->v_scale, p->v);
    }
    if (p->q8)
        kvg_ref_quantize_q(KVG_REF_E4M3, KVG_REF_RECIPROCAL, KVG_REF_BF16, p->q, p->total_q, c->q_heads,
                           c->kv_heads, c->head_dim, p->q_scale, p->scale_stride, p->q8);
    return 0;
}

static int tell_losses(struct kvg_prepared *p, struct kvg_error *error)
{
    p->k_saturated = p->v_saturated = p->k_flushed = p->v_flushed = NAN;
    return !p->frame && (count_losses(p, p->k_scale, p->k, &p->k_saturated, &p->k_flushed, error) ||
                         count_losses(p, p->v_scale, p->v, &p->v_saturated, &p->v_flushed, error))
               ? -1
               : 0;
}

/* Everything behind the fields that say what is wanted: c, values, options, frame and those of a part. */
static int prepare(struct kvg_prepared *out, struct kvg_error *error)
{
    if (kvg_layout_sizes(out, error) || kvg_layout_allocate(out, error) ||
        kvg_layout_fill(out, out->values.seed, error) || fill_sources(out, error) || quantise(out, error) ||
        tell_losses(out, error)) {
        kvg_prepared_free(out);
        return -1;
    }
    out->softmax_scale = (float)(1.0 / sqrt((double)out->c.head_dim));
    kvg_guard_seal_all(out->guards);
    if (out->c.phase != KVG_PHASE_STORE) {
        const void *hidden[] = {out->k, out->v, out->row_table};
        for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
            kvg_guard_hide(out->guards, hidden[i]);
    }
    return 0;
}

static void begin(struct kvg_prepared *out, const struct kvg_case *c,
                  const struct kvg_prepare_options *options)
{
    memset(out, 0, sizeof *out);
    out->c = out->values = *c;
    kvg_prepare_options_default(&out->options);
    if (options)
        out->options = *options;
}

int kvg_prepare(const struct kvg_case *c, const struct kvg_prepare_options *options, struct kvg_prepared *out,
                struct kvg_error *error)
{
    begin(out, c, options);
    return prepare(out, error);
}

int kvg_prepare_frame(const struct kvg_case *c, const struct kvg_prepare_options *options,
                      struct kvg_prepared *out, struct kvg_error *error)
{
    begin(out, c, options);
    if (!kvg_input_is_synthetic(c->input))
        return kvg_fail(error, KVG_EXIT_USAGE, "input %s: only synthetic values can be made on a device",
                        c->input);
    out->frame = 1;
    return prepare(out, error);
}

int kvg_prepare_part(const struct kvg_prepared *frame, const int64_t *sequences, int64_t count,
                     struct kvg_prepared *out, struct kvg_error *error)
{
    begin(out, &frame->c, &frame->options);
    out->values = frame->values;
    out->part_of = frame->c.batch;
    out->whole = frame->problem;
    out->c.batch = out->values.batch = count;
    for (int64_t i = 0; i < count && i < KVG_PART_MOST; i++)
        out->sequence[i] = sequences[i];
    return prepare(out, error);
}

int64_t kvg_prepared_sequence(const struct kvg_prepared *p, int64_t i)
{
    return p->part_of ? p->sequence[i] : i;
}

int64_t kvg_sequence_bytes(const struct kvg_case *c, int64_t length)
{
    struct kvg_problem problem;
    kvg_case_problem(c, &problem);
    return 2 * length * c->kv_heads * c->head_dim *
           ((int64_t)sizeof(uint16_t) + kvg_dtype_bytes(problem.kv_dtype));
}

float kvg_scale_with_ties(enum kvg_ref_format format, int64_t nth)
{
    const int first = 2 << kvg_ref_format_info(format)->mantissa_bits; /* codes here are 2 apart */
    for (int x = 129; x < 256; x += 2)
        for (int m = first + 1; m < 2 * first; m += 2) {
            const float value = (float)x, scale = value / (float)m;
            if (kvg_ref_round(format, value / scale) != kvg_ref_round(format, value * (1.0f / scale)) &&
                nth-- == 0)
                return scale;
        }
    return 1.0f;
}

void kvg_prepared_special(struct kvg_prepared *p)
{
    for (int64_t h = 0; h < (p->scale_stride ? p->c.kv_heads : 1) && p->problem.kv_dtype != KVG_BF16; h++) {
        p->k_scale[h] = kvg_scale_with_ties(kvg_ref_format_of(p->problem.kv_dtype), 2 * h);
        p->v_scale[h] = kvg_scale_with_ties(kvg_ref_format_of(p->problem.kv_dtype), 2 * h + 1);
    }
    const int64_t n = p->total_kv * p->c.kv_heads * p->c.head_dim;
    for (int64_t i = 0; i < n;
         i++) { /* an odd factor visits all 65536, without an order that a head could follow */
        p->k[i] = (uint16_t)(i * 40503);
        p->v[i] = (uint16_t)(i * 40503 + 32768);
    }
    fill_cache(p, &p->k_pages, p->k_scale, p->k);
    fill_cache(p, &p->v_pages, p->v_scale, p->v);
    const void *changed[] = {p->k, p->v, p->k_scale, p->v_scale, p->k_cache, p->v_cache};
    for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++)
        kvg_guard_seal(p->guards, changed[i]);
}

void kvg_prepared_free(struct kvg_prepared *p)
{
    kvg_guard_free(p->guards);
    memset(p, 0, sizeof *p);
}

static void common_view(const struct kvg_prepared *p, struct kvg_ref_attention *a)
{
    const struct kvg_case *c = &p->c;
    *a = (struct kvg_ref_attention){.batch = c->batch,
                                    .q_heads = c->q_heads,
                                    .kv_heads = c->kv_heads,
                                    .head_dim = c->head_dim,
                                    .q_format = KVG_REF_BF16,
                                    .q = p->q,
                                    .q_stride_token = c->q_heads * c->head_dim,
                                    .q_stride_head = c->head_dim,
                                    .seq_lens = p->seq_lens,
                                    .cu_q_lens = p->cu_q_lens,
                                    .softmax_scale = p->softmax_scale,
                                    .soft_cap = p->problem.soft_cap,
                                    .window = c->window,
                                    .causal = p->problem.causal,
                                    .threads = (int)c->threads};
}

void kvg_prepared_dequantised(const struct kvg_prepared *p, struct kvg_ref_attention *a)
{
    common_view(p, a);
    if (p->q8) {
        a->q_format = KVG_REF_E4M3;
        a->q = p->q8;
        a->q_scale = p->q_scale;
        a->q_scale_stride = p->scale_stride;
    }
    a->k = paged_view(p, &p->k_pages, p->k_scale);
    a->v = paged_view(p, &p->v_pages, p->v_scale);
}

/* Uniform: plain rows, one "block" a sequence. Ragged: pages of one token, whose table holds row numbers. */
static struct kvg_ref_kv source_view(const struct kvg_prepared *p, const uint16_t *data)
{
    int64_t row = p->c.kv_heads * p->c.head_dim;
    struct kvg_ref_kv view = {.format = KVG_REF_BF16,
                              .data = data,
                              .stride_block = p->c.context * row,
                              .stride_slot = row,
                              .stride_head = p->c.head_dim};
    if (p->row_table) {
        view.stride_block = row;
        view.block_size = 1;
        view.block_table = p->row_table;
        view.block_table_stride = p->c.context;
    }
    return view;
}

void kvg_prepared_unquantised(const struct kvg_prepared *p, struct kvg_ref_attention *a)
{
    common_view(p, a);
    a->k = source_view(p, p->k);
    a->v = source_view(p, p->v);
}

int kvg_prepared_check(const struct kvg_prepared *p, struct kvg_error *error)
{
    return kvg_guard_check(p->guards, error);
}

int kvg_prepared_check_shown(const struct kvg_prepared *p, struct kvg_error *error)
{
    return kvg_guard_check_shown(p->guards, error);
}

static void flip_signs(uint16_t *data, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        data[i] ^= 0x8000u;
}

/* Another layer of the captured file, never the present one; *only is set when there is no other. */
static int other_layer(struct kvg_prepared *p, uint64_t seed, int *only, struct kvg_error *error)
{
    struct kvg_captured_info info;
    if (kvg_captured_read_info(p->c.input, &info, error))
        return -1;
    int64_t n = info.n_layers, at = 0;
    while (at < n && info.layers[at] != p->values.layer)
        at++;
    *only = n < 2;
    if (!*only)
        p->values.layer = info.layers[(at + 1 + (int64_t)(seed % (uint64_t)(n - 1))) % n];
    return 0;
}

int kvg_prepared_renew(struct kvg_prepared *p, uint64_t seed, struct kvg_error *error)
{
    const struct kvg_case *c = &p->c;
    int only = 0;
    if (kvg_input_is_synthetic(c->input))
        p->values.seed = seed;
    else if (other_layer(p, seed, &only, error))
        return -1;
    if (kvg_layout_fill(p, seed, error) || fill_sources(p, error))
        return -1;
    if (only && seed != c->seed) {
        flip_signs(p->q, p->total_q * c->q_heads * c->head_dim);
        flip_signs(p->k, p->total_kv * c->kv_heads * c->head_dim);
        flip_signs(p->v, p->total_kv * c->kv_heads * c->head_dim);
    }
    if (quantise(p, error))
        return -1;
    const void *changed[] = {p->q,         p->k,          p->v,         p->q8,          p->q_scale,
                             p->k_scale,   p->v_scale,    p->k_cache,   p->v_cache,     p->seq_lens,
                             p->cu_q_lens, p->cu_kv_lens, p->row_table, p->block_table, p->slot_mapping};
    for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++)
        kvg_guard_seal(p->guards, changed[i]);
    return 0;
}
