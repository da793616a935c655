/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize.c: checks and times the quantising of Q for a kernel of path fp8. Every code must be exact.
 */
#include "quantize.h"

#include <stdlib.h>
#include <string.h>

#include "buffers.h"
#include "edges.h"
#include "explain.h"
#include "harness/prepare/special.h"
#include "harness/verify/verify.h"
#include "kernels/fp8.h"
#include "kernels/registry.h"
#include "timing.h"
#include "verdict.h"
#include "kernels/scales.h"

/* With more elements in Q, special values are quantised under fewer scales. */
#define LARGE_ELEMENTS (INT64_C(1) << 18)
#define POISON 0xff /* kvg_buffer_poison */

/* The end of a kernel's name from the last underscore on, which is its instruction set. */
static const char *suffix(const char *name)
{
    const char *last = strrchr(name, '_');
    return last ? last : "";
}

/* The kernel that quantises Q for the case's kernel: that kernel itself if it can. Otherwise a kernel of the
 * same device: one with the same instruction set, or else the one of the highest rank. */
static const struct kvg_kernel *find_quantizer(const struct kvg_execution *x)
{
    const struct kvg_kernel *best = NULL, *candidate;
    struct kvg_problem problem = x->prepared.problem;
    char why[256];
    problem.phase = KVG_PHASE_STORE;
    problem.path = KVG_PATH_NONE;
    problem.q_dtype = KVG_BF16;
    if (x->kernel->quantize_q)
        return x->kernel;
    for (int64_t i = 0; (candidate = kvg_registry_get(i)); i++) {
        if (!candidate->quantize_q || candidate->device != x->kernel->device ||
            !kvg_kernel_takes(candidate, &problem, why, sizeof why))
            continue;
        if (strcmp(suffix(candidate->name), suffix(x->kernel->name)) == 0)
            return candidate;
        if (!best || kvg_kernel_rank(candidate, &problem) > kvg_kernel_rank(best, &problem))
            best = candidate;
    }
    return best;
}

struct quantize {
    const struct kvg_kernel *kernel;
    struct kvg_quantize_q_args args;
};

static int timed_quantize(void *context)
{
    struct quantize *q = context;
    return q->kernel->quantize_q(&q->args);
}

/* A second Q with its scales and codes, on the host and in the memory of the kernel (seen_...). */
struct ties {
    int64_t n, scales;
    uint16_t *source;
    float *scale;
    uint8_t *wanted;
    void *seen_source, *seen_scale, *seen_q8;
};

/* The tokens that get special values: no more than the lists need. The Q of the others stays zero. */
static struct kvg_special_shape shape_of(const struct kvg_prepared *p, const struct kvg_special *special)
{
    const struct kvg_problem *problem = &p->problem;
    struct kvg_special_shape shape = {.tokens = p->total_q,
                                      .heads = problem->q_heads,
                                      .dim = problem->head_dim,
                                      .group = problem->q_heads / problem->kv_heads,
                                      .scale_stride = p->scale_stride};
    const int64_t needed = kvg_special_tokens(special, &shape);
    shape.tokens = needed < shape.tokens ? needed : shape.tokens;
    return shape;
}

static void fill_ties(const struct kvg_prepared *p, const struct kvg_special *special,
                      const struct kvg_special_shape *shape, int64_t round, struct ties *t)
{
    kvg_special_fill(special, shape, round, t->source, t->scale);
    kvg_ref_quantize_q(KVG_REF_E4M3, KVG_REF_RECIPROCAL, KVG_REF_BF16, t->source, shape->tokens, shape->heads,
                       p->problem.kv_heads, shape->dim, t->scale, p->scale_stride, t->wanted);
}

static int bring_ties(struct kvg_execution *x, struct ties *t)
{
    const int64_t source = t->n * (int64_t)sizeof *t->source, scale = t->scales * (int64_t)sizeof *t->scale;
    if (!t->seen_q8) {
        t->seen_source = kvg_buffer_alloc(x, "q of special values", source);
        t->seen_scale = t->seen_source ? kvg_buffer_alloc(x, "q_scale of special values", scale) : NULL;
        t->seen_q8 = t->seen_scale ? kvg_buffer_alloc(x, "q8 of special values", t->n) : NULL;
    }
    return !t->seen_q8 || kvg_buffer_send(x, t->seen_source, t->source, source) ||
                   kvg_buffer_send(x, t->seen_scale, t->scale, scale) ||
                   kvg_buffer_poison(x, t->seen_q8, t->n)
               ? -1
               : 0;
}

static int call_with_ties(struct kvg_execution *x, const struct quantize *q, const struct ties *t)
{
    struct quantize ties = *q;
    const int64_t dim = x->prepared.problem.head_dim, heads = x->prepared.problem.q_heads;
    ties.args.q = t->seen_source; /* dense, whatever the views of the case */
    ties.args.q_stride_token = ties.args.q8_stride_token = heads * dim;
    ties.args.q_stride_head = ties.args.q8_stride_head = dim;
    ties.args.q8 = t->seen_q8;
    ties.args.scales.q.data = t->seen_scale;
    if (kvg_call_finish(x, "quantize_q", timed_quantize(&ties)))
        return -1;
    const uint8_t *got = kvg_buffer_fetch(x, KVG_FETCHED_OUT, t->seen_q8, t->n);
    if (!got)
        return -1;
    for (int64_t i = 0; i < t->n; i++)
        if (got[i] != t->wanted[i] && !((got[i] & 0x7f) == 0x7f && (t->wanted[i] & 0x7f) == 0x7f)) {
            const int64_t g = i / dim % heads / (heads / x->prepared.problem.kv_heads);
            const float scale = t->scale[g * x->prepared.scale_stride], value = kvg_bf16_decode(t->source[i]);
            kvg_verdict_suspect(x, KVG_FAULT_ENCODING,
                                "codes differ on special values: midpoints, subnormals, the largest codes");
            return kvg_verdict(
                x, KVG_INCORRECT,
                "quantize_q of %s: quantize_q: element %lld of a Q of special values, %.9g with scale %.9g: "
                "got code 0x%02x, expected 0x%02x (of the product with the reciprocal)",
                q->kernel->name, (long long)i, (double)value, (double)scale, got[i], t->wanted[i]);
        }
    return 0;
}

/* Quantises a Q of special values, under several scales. */
static int quantize_ties(struct kvg_execution *x, const struct quantize *q)
{
    const struct kvg_prepared *p = &x->prepared;
    struct kvg_special special;
    struct ties t = {.n = p->total_q * p->problem.q_heads * p->problem.head_dim,
                     .scales = p->scale_stride ? p->problem.kv_heads : 1};
    int failed = -1;
    t.source = calloc((size_t)t.n, sizeof *t.source);
    t.scale = malloc((size_t)t.scales * sizeof *t.scale);
    t.wanted = calloc((size_t)t.n, 1);
    if (!t.source || !t.scale || !t.wanted ||
        kvg_special_make(KVG_REF_E4M3, KVG_SPECIAL_RECIPROCAL, &special)) {
        kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a second Q");
    } else {
        const struct kvg_special_shape shape = shape_of(p, &special);
        failed = 0;
        const int64_t rounds =
            t.n > LARGE_ELEMENTS ? KVG_SPECIAL_SCALES / 2 : kvg_special_rounds(&special, &shape);
        for (int64_t round = 0; round < rounds && !failed; round++) {
            fill_ties(p, &special, &shape, round, &t);
            failed = bring_ties(x, &t) || call_with_ties(x, q, &t) ? -1 : 0;
        }
        kvg_special_free(&special);
    }
    free(t.source);
    free(t.scale);
    free(t.wanted);
    return failed;
}

/* The codes as a dense tensor in host memory. NULL with the verdict, also if the gaps between them were
 * written. The caller frees *dense. */
static const uint8_t *bring_codes(struct kvg_execution *x, void *q8, uint8_t **dense)
{
    const struct kvg_prepared *p = &x->prepared;
    const struct kvg_rows_view *view = &p->views.q8;
    const int64_t heads = p->problem.q_heads, dim = p->problem.head_dim;
    const uint8_t *buffer = kvg_buffer_fetch(x, KVG_FETCHED_OUT, q8, view->elements);
    if (!buffer || p->views.dense)
        return buffer;
    const int64_t at = kvg_rows_gap_written(view, p->total_q, heads, dim, 1, POISON, buffer);
    *dense = at == -1 ? malloc((size_t)(p->total_q * heads * dim) + 1) : NULL;
    if (!*dense && at < 0) {
        kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for dense codes");
    } else if (!*dense) {
        kvg_verdict_suspect(x, KVG_FAULT_MEMORY, "a stride of q8 is computed from the shape");
        kvg_verdict(x, KVG_INCORRECT,
                    "quantize_q: q8 was written between its rows, at element %lld of its buffer (strides: "
                    "token %lld, head %lld; first element %lld)",
                    (long long)at, (long long)view->stride_token, (long long)view->stride_head,
                    (long long)view->first);
    } else
        kvg_rows_pick(view, p->total_q, heads, dim, 1, buffer, *dense);
    return *dense;
}

/* Compares the codes with those of the reference. -1 with the verdict. */
static int compare_codes(struct kvg_execution *x, const struct kvg_kernel *kernel, void *q8)
{
    uint8_t *dense = NULL;
    struct kvg_error error;
    struct kvg_row other;
    const uint8_t *got = bring_codes(x, q8, &dense);
    int failed = -1;
    if (got && kvg_row_init(&other) == 0) {
        if (kvg_compare_quantize_q(&x->prepared, got, &other, &error)) {
            kvg_verdict_of_error(x, &error);
        } else if (other.status != KVG_PASSED) {
            kvg_verdict(x, (enum kvg_status)other.status, "quantize_q of %s: %s", kernel->name, other.reason);
            kvg_explain_quantize_q(x, got);
        } else
            failed = 0;
        kvg_row_free(&other);
    }
    free(dense);
    return failed;
}

struct edge_call {
    struct kvg_execution *x;
    const struct quantize *q;
    void *q8;
};

/* A call whose inputs touch memory without access. */
static int call_at_edge(void *context)
{
    const struct edge_call *c = context;
    struct kvg_execution *x = c->x;
    if (kvg_buffer_poison(x, c->q8, x->prepared.views.q8.elements) ||
        kvg_call_finish(x, "quantize_q", c->q->kernel->quantize_q(&c->q->args)) || kvg_buffers_check(x))
        return -1;
    return compare_codes(x, c->q->kernel, c->q8);
}

void kvg_execute_quantize_q(struct kvg_execution *x)
{
    const struct kvg_prepared *p = &x->prepared;
    struct quantize q = {.kernel = find_quantizer(x)};
    struct kvg_problem problem = p->problem;
    const struct kvg_views *v = &p->views;
    if (!q.kernel)
        return; /* time_quantize_q stays empty */
    problem.q_dtype = KVG_BF16;
    uint8_t *q8 = kvg_buffer_alloc(x, "q8 of the kernel", v->q8.elements);
    if (!q8)
        return;
    q.args = (struct kvg_quantize_q_args){
        .problem = &problem,
        .q = kvg_rows_begin(&v->q, sizeof(uint16_t), x->seen.q),
        .q_stride_token = v->q.stride_token,
        .q_stride_head = v->q.stride_head,
        .q8 = kvg_rows_begin(&v->q8, 1, q8),
        .q8_stride_token = v->q8.stride_token,
        .q8_stride_head = v->q8.stride_head,
        .scales = kvg_scales_of(x->seen.q_scale, x->seen.k_scale, x->seen.v_scale, p->scale_stride),
        .stream = x->site.device ? x->site.device->ops->stream(x->site.device) : NULL};
    struct edge_call at_edge = {x, &q, q8};
    if (kvg_buffer_poison(x, q8, v->q8.elements) || kvg_call_finish(x, "quantize_q", timed_quantize(&q)) ||
        kvg_buffers_check(x) || compare_codes(x, q.kernel, q8) || quantize_ties(x, &q) ||
        kvg_quantize_edges(x, &q.args, call_at_edge, &at_edge))
        return;
    if (x->timed)
        x->row->time_quantize_q = kvg_calls_time_apart(x, timed_quantize, &q);
}
