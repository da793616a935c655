/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare.c: makes the inputs of a kernel from a case.
 *
 * The steps: lengths and pages (layout.c), source values (harness/inputs), scales (scales.c), and the caches.
 * The caches are filled with NaN, and then the reference's quantiser writes the tokens into their pages.
 */
#include "prepare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/inputs/generate.h"
#include "parts.h"

#define BF16_NAN 0x7fc0u

void kvg_prepare_options_default(struct kvg_prepare_options *options)
{
    options->q_constant = KVG_REF_RANDOM_TOKENS_Q_CONSTANT;
    options->k_constant = KVG_REF_RANDOM_TOKENS_K_CONSTANT;
    options->v_constant = KVG_REF_RANDOM_TOKENS_V_CONSTANT;
    options->cache = NULL;
}

struct kvg_input_shape kvg_prepared_shape(const struct kvg_prepared *p)
{
    const struct kvg_case *c = &p->own->values;
    return (struct kvg_input_shape){.input = c->input,
                                    .seed = c->seed,
                                    .layer = c->layer,
                                    .context = c->context,
                                    .q_heads = c->q_heads,
                                    .kv_heads = c->kv_heads,
                                    .head_dim = c->head_dim,
                                    .span = c->context};
}

/* Makes Q, K and V of every sequence, and NaN in the rows of the padding tokens. */
static int fill_sources(struct kvg_prepared *p, struct kvg_error *error)
{
    const struct kvg_case *c = &p->c;
    int64_t q_row = c->q_heads * c->head_dim, kv_row = c->kv_heads * c->head_dim;
    struct kvg_input_shape shape = kvg_prepared_shape(p);
    struct kvg_input_cache *cache = p->own->options.cache;
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
    if (kvg_share_values(p, error))
        return -1;
    for (int64_t i = p->total_kv * kv_row; i < p->store_tokens * kv_row; i++)
        p->k[i] = p->v[i] = BF16_NAN;
    return 0;
}

static void fill_cache(const struct kvg_prepared *p, struct kvg_pages *pages, const float *scale,
                       const uint16_t *source)
{
    const struct kvg_case *c = &p->c;
    struct kvg_ref_kv view = kvg_prepared_cache(p, pages, scale);
    kvg_poison_cache(p->problem.kv_dtype, pages->data, p->cache_elements);
    kvg_ref_paged_store(&view, pages->data, KVG_REF_BF16, source, c->kv_heads * c->head_dim, c->head_dim,
                        p->slot_mapping, p->store_tokens, c->kv_heads, c->head_dim);
}

void kvg_prepared_fill_caches(struct kvg_prepared *p)
{
    fill_cache(p, &p->k_pages, p->k_scale, p->k);
    fill_cache(p, &p->v_pages, p->v_scale, p->v);
}

/* The sinks of the case: normal deviates, or, if large, 8 more than 8 times their size, with the sign + for even
 * heads and - for odd ones. The sinks are the same for every sequence. */
static void fill_sinks(struct kvg_prepared *p, uint64_t seed)
{
    enum { LEAST = 8 };
    for (int64_t h = 0; p->sinks && h < p->c.q_heads; h++) {
        const uint32_t bits = kvg_random_bits(seed, KVG_STREAM_SINK, 0, 0, (uint32_t)h, 0);
        const float z = kvg_normal(kvg_normal_table, bits), size = LEAST + LEAST * fabsf(z);
        p->sinks[h] = p->c.sinks == KVG_SINKS_NORMAL ? z : h % 2 ? -size : size;
    }
}

/* Everything that depends on values: scales, caches, quantised Q. */
static int quantise(struct kvg_prepared *p, struct kvg_error *error)
{
    const struct kvg_case *c = &p->c;
    if (kvg_scales_measure(p, error))
        return -1;
    if (!p->frame)
        kvg_prepared_fill_caches(p);
    if (p->q8)
        kvg_ref_quantize_q(KVG_REF_E4M3, KVG_REF_RECIPROCAL, KVG_REF_BF16, p->q, p->total_q, c->q_heads,
                           c->kv_heads, c->head_dim, p->q_scale, p->scale_stride, p->q8);
    return 0;
}

/* Fills all other fields. The caller has set c, values, options, frame and the fields of a part. */
static int prepare(struct kvg_prepared *out, struct kvg_error *error)
{
    if (kvg_layout_sizes(out, error) || kvg_layout_allocate(out, error) ||
        kvg_layout_fill(out, out->own->values.seed, error) || fill_sources(out, error) ||
        quantise(out, error) || kvg_losses_count(out, error)) {
        kvg_prepared_free(out);
        return -1;
    }
    out->softmax_scale = kvg_case_softmax_scale(&out->c);
    fill_sinks(out, out->own->values.seed);
    kvg_guard_seal_all(out->own->guards);
    kvg_shown_fill(out);
    if (!out->views.dense) {
        const void *dense[] = {out->q, out->q8, out->k, out->v, out->k_cache, out->v_cache};
        for (size_t i = 0; i < sizeof dense / sizeof dense[0]; i++)
            kvg_guard_hide(out->own->guards, dense[i]);
    }
    if (out->c.phase != KVG_PHASE_STORE) {
        const void *hidden[] = {out->k, out->v, out->own->row_table};
        for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
            kvg_guard_hide(out->own->guards, hidden[i]);
    }
    return 0;
}

static int begin(struct kvg_prepared *out, const struct kvg_case *c,
                 const struct kvg_prepare_options *options, struct kvg_error *error)
{
    memset(out, 0, sizeof *out);
    out->own = calloc(1, sizeof *out->own);
    if (!out->own)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for a case");
    out->c = out->own->values = *c;
    kvg_prepare_options_default(&out->own->options);
    if (options)
        out->own->options = *options;
    return 0;
}

int kvg_prepared_make(const struct kvg_case *c, const struct kvg_prepare_options *options,
                      struct kvg_prepared *out, struct kvg_error *error)
{
    return begin(out, c, options, error) ? -1 : prepare(out, error);
}

int kvg_prepared_make_frame(const struct kvg_case *c, const struct kvg_prepare_options *options,
                            struct kvg_prepared *out, struct kvg_error *error)
{
    if (!kvg_input_is_synthetic(c->input))
        return kvg_fail(error, KVG_EXIT_USAGE, "input %s: only synthetic values can be made on a device",
                        c->input);
    if (begin(out, c, options, error))
        return -1;
    out->frame = 1;
    return prepare(out, error);
}

int kvg_prepared_make_part(const struct kvg_prepared *frame, const int64_t *sequences, int64_t count,
                           struct kvg_prepared *out, struct kvg_error *error)
{
    if (begin(out, &frame->c, &frame->own->options, error))
        return -1;
    out->own->values = frame->own->values;
    out->part_of = frame->c.batch;
    out->whole = frame->problem;
    out->c.batch = out->own->values.batch = count;
    for (int64_t i = 0; i < count && i < KVG_PART_MOST; i++)
        out->own->sequence[i] = sequences[i];
    return prepare(out, error);
}

static void flip_signs(uint16_t *data, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        data[i] ^= 0x8000u;
}

/* Chooses another layer of the captured file. *only is 1 if the file has no other layer. */
static int other_layer(struct kvg_prepared *p, uint64_t seed, int *only, struct kvg_error *error)
{
    struct kvg_captured_info info;
    if (kvg_captured_read_info(p->c.input, &info, error))
        return -1;
    int64_t n = info.n_layers, at = 0;
    while (at < n && info.layers[at] != p->own->values.layer)
        at++;
    *only = n < 2;
    if (!*only)
        p->own->values.layer = info.layers[(at + 1 + (int64_t)(seed % (uint64_t)(n - 1))) % n];
    return 0;
}

int kvg_prepared_renew(struct kvg_prepared *p, uint64_t seed, struct kvg_error *error)
{
    const struct kvg_case *c = &p->c;
    int only = 0;
    if (kvg_input_is_synthetic(c->input))
        p->own->values.seed = seed;
    else if (seed == c->seed)
        p->own->values.layer = c->layer;
    else if (other_layer(p, seed, &only, error))
        return -1;
    if (kvg_layout_fill(p, seed, error) || fill_sources(p, error))
        return -1;
    if (only && seed != c->seed) {
        flip_signs(p->q, p->total_q * c->q_heads * c->head_dim);
        flip_signs(p->k, p->total_kv * c->kv_heads * c->head_dim);
        flip_signs(p->v, p->total_kv * c->kv_heads * c->head_dim);
    }
    fill_sinks(p, seed);
    if (quantise(p, error))
        return -1;
    const void *changed[] = {p->q,           p->k,
                             p->v,           p->q8,
                             p->q_scale,     p->k_scale,
                             p->v_scale,     p->k_cache,
                             p->v_cache,     p->seq_lens,
                             p->prefix_lens, p->cu_q_lens,
                             p->cu_kv_lens,  p->own->row_table,
                             p->block_table, p->slot_mapping,
                             p->sinks};
    for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++)
        kvg_guard_seal(p->own->guards, changed[i]);
    kvg_shown_fill(p);
    return 0;
}
