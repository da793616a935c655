/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel_check.h: runs one CPU attention kernel on one problem and compares it with a double-precision loop
 * that is written here, independently of reference/. Slots of the cache that no sequence owns hold NaN.
 *
 * Every output element must lie within a tolerance, the sum of what the kernel may do:
 *   rounding of the output   2^-8 |o|
 *   rounding of P            2^-9 sum p|v| in bf16, 2^-11 sum p|v| in FP16
 *   FP32 arithmetic          the error of a logit moves p by 2^-20 * sum |q k|
 *   sums declared narrow     half a step for each addition of a chain
 * On path fp8 the loop quantises P itself, with the tiles and splits that the kernel declares. A p that lies
 * so near a rounding boundary that FP32 cannot decide adds its step to the tolerance.
 */
#ifndef KVG_TESTS_KERNEL_CHECK_H
#define KVG_TESTS_KERNEL_CHECK_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/attention_ops.h"
#include "kernels/cpu/exp2.h"
#include "kernels/registry.h"
#include "reference/formats.h"
#include "harness/prepare/prepared.h"
#include "kernels/scales.h"

enum { MAX_BATCH = 8, GUARD = 256 };

struct shape {
    int64_t q_heads, kv_heads, head_dim, block_size, window;
    float soft_cap;
    enum kvg_layout layout;
    int causal, threads;
    int64_t batch, lens[MAX_BATCH], q_lens[MAX_BATCH];
};

/* Pages that all sequences share, as far as they fill them. */
static int64_t shared_pages;
/* In the place of causal or full, for the shapes described from now on: with chunk > 0 the mask is chunked, with a
 * prefix above 0 it is prefix. */
static struct {
    int64_t chunk, prefixes[MAX_BATCH];
} masked;

struct setting {
    struct kvg_problem problem;
    struct kvg_attention_args args;
    int32_t lens[MAX_BATCH], cu[MAX_BATCH + 1], prefixes[MAX_BATCH];
    int32_t *table;
    float scale_q[64], scale_k[64], scale_v[64];
    unsigned char *q, *k, *v, *out, *lse, *workspace;
    int64_t out_bytes, lse_bytes, cache_elements;
};

/* ---------------------------------------------------------------- random numbers */

static uint64_t random_bits(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double uniform(uint64_t *state)
{
    return ((double)(random_bits(state) >> 11) + 0.5) * 0x1p-53;
}

static double normal(uint64_t *state)
{
    const double radius = sqrt(-2.0 * log(uniform(state)));
    return radius * cos(6.283185307179586 * uniform(state));
}

/* ---------------------------------------------------------------- set-up */

static enum kvg_ref_format ref_format(enum kvg_dtype dtype)
{
    static const enum kvg_ref_format map[] = {KVG_REF_F32,  KVG_REF_F16,  KVG_REF_BF16,
                                              KVG_REF_E4M3, KVG_REF_E5M2, KVG_REF_E4M3FNUZ};
    return map[dtype];
}

static void *guarded(int64_t bytes)
{
    unsigned char *p = aligned_alloc(64, (size_t)((bytes + 2 * GUARD + 63) / 64 * 64));
    assert_non_null(p);
    memset(p, 0xff, (size_t)(bytes + 2 * GUARD)); /* NaN in every format */
    return p + GUARD;
}

static void check_guards(const unsigned char *p, int64_t bytes)
{
    for (int64_t i = 0; i < GUARD; i++) {
        assert_int_equal(p[-1 - i], 0xff);
        assert_int_equal(p[bytes + i], 0xff);
    }
}

static void release(void *p)
{
    free((unsigned char *)p - GUARD);
}

static int64_t cache_index(const struct setting *s, int64_t seq, int64_t token, int64_t head)
{
    const struct kvg_pages *pages = &s->args.k_cache;
    const int64_t size = s->problem.block_size;
    const int64_t block = s->table[seq * s->args.block_table_stride + token / size];
    return block * pages->stride_block + token % size * pages->stride_slot + head * pages->stride_head;
}

/* Fills the owned slots; everything else stays NaN (0xff.. in each format; 0x80 for fnuz). */
static void fill_cache(struct setting *s, unsigned char *data, const float *scale, uint64_t seed)
{
    const struct kvg_problem *p = &s->problem;
    const enum kvg_ref_format format = ref_format(p->kv_dtype);

    if (p->kv_dtype == KVG_E4M3FNUZ)
        memset(data, 0x80, (size_t)s->cache_elements);
    for (int64_t b = 0; b < p->batch; b++) {
        for (int64_t t = 0; t < s->lens[b]; t++) {
            for (int64_t h = 0; h < p->kv_heads; h++) {
                for (int64_t d = 0; d < p->head_dim; d++) {
                    const double x = 0.5 + normal(&seed); /* a mean shows faults of accumulation */
                    kvg_ref_store(format, data, cache_index(s, b, t, h) + d, (float)x / scale[h]);
                }
            }
        }
    }
}

static void describe(struct setting *s, const struct shape *shape, enum kvg_path path, enum kvg_dtype kv)
{
    struct kvg_problem *p = &s->problem;

    memset(s, 0, sizeof *s);
    *p = (struct kvg_problem){.path = path,
                              .q_dtype = path == KVG_PATH_FP8 ? KVG_E4M3 : KVG_BF16,
                              .kv_dtype = kv,
                              .out_dtype = KVG_BF16,
                              .scheme = KVG_PER_HEAD,
                              .layout = shape->layout,
                              .batch = shape->batch,
                              .q_heads = shape->q_heads,
                              .kv_heads = shape->kv_heads,
                              .head_dim = shape->head_dim,
                              .block_size = shape->block_size,
                              .window = shape->window,
                              .soft_cap = shape->soft_cap,
                              .mask = shape->causal ? KVG_MASK_CAUSAL : KVG_MASK_FULL,
                              .threads = shape->threads};
    for (int64_t b = 0; b < p->batch; b++) {
        s->lens[b] = (int32_t)shape->lens[b];
        s->cu[b + 1] = s->cu[b] + (int32_t)shape->q_lens[b];
        p->total_q += shape->q_lens[b];
        p->total_kv += shape->lens[b];
        p->max_q_len = shape->q_lens[b] > p->max_q_len ? shape->q_lens[b] : p->max_q_len;
        p->max_seq_len = shape->lens[b] > p->max_seq_len ? shape->lens[b] : p->max_seq_len;
    }
    for (int64_t b = 0; b < p->batch; b++) {
        s->prefixes[b] = (int32_t)masked.prefixes[b];
        if (masked.prefixes[b] > 0)
            p->mask = KVG_MASK_PREFIX, p->features = KVG_FEATURE_PREFIX_MASK;
    }
    if (masked.chunk > 0) {
        p->mask = KVG_MASK_CHUNKED;
        p->chunk = masked.chunk;
        p->features = KVG_FEATURE_CHUNKED_MASK;
    }
    p->phase = p->max_q_len == 1 ? KVG_PHASE_DECODE : KVG_PHASE_APPEND;
    p->features |=
        (shape->block_size % 8 ? KVG_FEATURE_SMALL_PAGES : 0) | (shared_pages ? KVG_FEATURE_SHARED_PAGES : 0);
}

/* Pages in random order, some of them unused; the tail of the table names no valid page. */
static void make_table(struct setting *s, uint64_t seed)
{
    const struct kvg_problem *p = &s->problem;
    const int64_t per_seq = p->max_seq_len / p->block_size + 2, blocks = p->batch * per_seq + 3;
    int32_t *order = malloc((size_t)blocks * sizeof *order);

    assert_non_null(order);
    s->table = malloc((size_t)(p->batch * per_seq) * sizeof *s->table);
    assert_non_null(s->table);
    for (int64_t i = 0; i < blocks; i++) {
        const int64_t j = (int64_t)(random_bits(&seed) % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = (int32_t)i;
    }
    for (int64_t b = 0; b < p->batch; b++) {
        for (int64_t i = 0; i < per_seq; i++) {
            const int used = i < (s->lens[b] + p->block_size - 1) / p->block_size;
            const int shared = i < shared_pages && (i + 1) * p->block_size <= s->lens[b];
            s->table[b * per_seq + i] = used ? order[(shared ? 0 : b) * per_seq + i] : 0x7fffffff;
        }
    }
    free(order);
    s->args.block_table = s->table;
    s->args.block_table_stride = per_seq;
    s->args.num_blocks = blocks;
}

static void set_up(struct setting *s, const struct kvg_kernel *kernel, uint64_t seed)
{
    const struct kvg_problem *p = &s->problem;
    const int64_t page = p->block_size * p->kv_heads * p->head_dim, kv_bytes = kvg_dtype_bytes(p->kv_dtype);
    struct kvg_attention_args *a = &s->args;
    struct kvg_pages pages = {NULL, page, p->kv_heads * p->head_dim, p->head_dim};

    if (p->layout == KVG_HND)
        pages = (struct kvg_pages){NULL, page, p->head_dim, p->block_size * p->head_dim};
    make_table(s, seed);
    a->problem = p;
    a->k_cache = a->v_cache = pages;
    s->cache_elements = a->num_blocks * page;
    for (int64_t h = 0; h < p->kv_heads; h++) {
        const int quantised = p->kv_dtype != KVG_BF16;
        s->scale_q[h] = p->path == KVG_PATH_FP8 ? (float)exp2(uniform(&seed) * 4 - 4) : 1.0f;
        s->scale_k[h] = quantised ? (float)exp2(uniform(&seed) * 4 - 4) : 1.0f;
        s->scale_v[h] = quantised ? (float)exp2(uniform(&seed) * 4 - 4) : 1.0f;
    }
    s->k = guarded(s->cache_elements * kv_bytes);
    s->v = guarded(s->cache_elements * kv_bytes);
    fill_cache(s, s->k, s->scale_k, seed + 1);
    fill_cache(s, s->v, s->scale_v, seed + 2);
    s->q = guarded((p->total_q * p->q_heads + 1) * p->head_dim * 2);
    seed += 3;
    for (int64_t i = 0; i < p->total_q * p->q_heads * p->head_dim; i++) {
        const int64_t group = p->q_heads / p->kv_heads, h = i / p->head_dim % p->q_heads / group;
        kvg_ref_store(ref_format(p->q_dtype), s->q, i, (float)normal(&seed) / s->scale_q[h]);
    }
    a->k_cache.data = s->k;
    a->v_cache.data = s->v;
    a->q = s->q;
    a->q_stride_token = a->out_stride_token = p->q_heads * p->head_dim;
    a->q_stride_head = a->out_stride_head = p->head_dim;
    a->lse_stride_token = p->q_heads;
    a->seq_lens = s->lens;
    a->cu_q_lens = s->cu;
    a->prefix_lens = p->mask == KVG_MASK_PREFIX ? s->prefixes : NULL;
    a->scales = kvg_scales_of(s->scale_q, s->scale_k, s->scale_v, 1);
    a->softmax_scale = 1.0f / sqrtf((float)p->head_dim);
    s->out_bytes = p->total_q * p->q_heads * p->head_dim * 2;
    s->lse_bytes = p->total_q * p->q_heads * 4;
    s->out = guarded(s->out_bytes);
    s->lse = guarded(s->lse_bytes);
    a->workspace_bytes = kernel->workspace_bytes(p);
    s->workspace = guarded(a->workspace_bytes);
    a->out = s->out;
    a->lse = (float *)(void *)s->lse;
    a->workspace = s->workspace;
}

static void tear_down(struct setting *s)
{
    release(s->q);
    release(s->k);
    release(s->v);
    release(s->out);
    release(s->lse);
    release(s->workspace);
    free(s->table);
}

/* ---------------------------------------------------------------- the independent loop */

struct expected {
    double out[512], tolerance[512], lse, lse_tolerance;
};

static double e4m3(double p)
{
    return kvg_ref_fp8_decode(KVG_REF_E4M3, kvg_ref_fp8_encode(KVG_REF_E4M3, (float)p));
}

/* Logit j and the sum of |q k| behind it, scaled. */
static double logit(const struct setting *s, int64_t seq, int64_t row, int64_t h, int64_t j,
                    double *magnitude)
{
    const struct kvg_problem *p = &s->problem;
    const int64_t g = h / (p->q_heads / p->kv_heads), k_at = cache_index(s, seq, j, g);
    const double scale = (double)s->args.softmax_scale * s->scale_q[g] * s->scale_k[g];
    double sum = 0, size = 0;

    for (int64_t d = 0; d < p->head_dim; d++) {
        const double q = kvg_ref_load(ref_format(p->q_dtype), s->q, (row * p->q_heads + h) * p->head_dim + d);
        const double k = kvg_ref_load(ref_format(p->kv_dtype), s->k, k_at + d);
        sum += q * k;
        size += fabs(q * k);
    }
    *magnitude = size * scale;
    sum *= scale;
    return p->soft_cap > 0 ? p->soft_cap * tanh(sum / p->soft_cap) : sum;
}

/* Largest error of a sum over the sum of its magnitudes: RNE in the declared bits, `chain` additions. */
static double sum_error(int bits, int64_t chain)
{
    return bits < 24 ? (double)chain * exp2(-bits) : 0;
}

/* 1 if query i of the sequence sees key j: each mask in words, key by key. */
static int sees(const struct setting *s, int64_t seq, int64_t i, int64_t j)
{
    const struct kvg_problem *p = &s->problem;
    const int64_t n = s->lens[seq], own = n - (s->cu[seq + 1] - s->cu[seq]) + i,
                  right = p->mask == KVG_MASK_FULL ? n - 1 : own;
    if (j < 0 || j >= n || (p->window > 0 && right - j >= p->window))
        return 0;
    if (p->mask == KVG_MASK_FULL)
        return 1;
    if (p->mask == KVG_MASK_CHUNKED)
        return j <= own && j / p->chunk == own / p->chunk;
    return j <= own || (p->mask == KVG_MASK_PREFIX && j < s->prefixes[seq]);
}

/* One output row: query token i of sequence seq, query head h. */
static void expect(const struct setting *s, const struct kvg_arithmetic *how, int64_t seq, int64_t i,
                   int64_t h, struct expected *e)
{
    const struct kvg_problem *p = &s->problem;
    const int64_t n = s->lens[seq], g = h / (p->q_heads / p->kv_heads);
    int64_t first = 0, end = n;
    while (first < n && !sees(s, seq, i, first))
        first++;
    while (end > first && !sees(s, seq, i, end - 1))
        end--;
    const int64_t split = how->split_tokens ? how->split_tokens : n + 1;
    double *t = calloc((size_t)n + 1, sizeof *t);
    const double qk_error = 0x1p-20 + sum_error(how->qk_accumulator_bits, how->qk_chain),
                 pv_error = 0x1p-18 + sum_error(how->pv_accumulator_bits, how->pv_flush_interval);
    double total = 0, top = -INFINITY, slack = 0;

    assert_non_null(t);
    memset(e, 0, sizeof *e);
    for (int64_t j = first; j < end; j++) {
        double magnitude;
        t[j] = logit(s, seq, s->cu[seq] + i, h, j, &magnitude);
        top = fmax(top, t[j]);
        slack = fmax(slack, qk_error * magnitude + 0x1p-20);
    }
    for (int64_t j = first; j < end; j++)
        total += exp(t[j] - top);
    e->lse = end > first ? top + log(total) : -INFINITY;
    e->lse_tolerance = slack + 0x1p-20 * fabs(e->lse);
    for (int64_t j0 = 0; j0 < end; j0 += split) { /* splits */
        double running = -INFINITY;
        for (int64_t tile = j0; tile < end && tile < j0 + split; tile += how->tile) {
            const int64_t stop = fmin(fmin((double)(tile + how->tile), (double)(j0 + split)), (double)end);
            for (int64_t j = tile > first ? tile : first; j < stop; j++)
                running = fmax(running, t[j]);
            for (int64_t j = tile > first ? tile : first; j < stop; j++) {
                const int64_t at = cache_index(s, seq, j, g);
                double weight = exp(t[j] - top), unsure = 2 * slack * weight;
                if (how->p_format == KVG_E4M3) {
                    const double p8 = exp2((t[j] - running) * KVG_LOG2E + 8), back = exp(running - top) / 256;
                    weight = e4m3(p8) * back;
                    unsure += back * (e4m3(p8 * (1 + 2 * slack)) - e4m3(p8 * (1 - 2 * slack)));
                } else if (how->p_format == KVG_BF16) {
                    unsure += 0x1p-8 * weight;
                } else if (how->p_format == KVG_F16) {
                    unsure += 0x1p-10 * weight;
                }
                for (int64_t d = 0; d < p->head_dim; d++) {
                    const double v =
                        kvg_ref_load(ref_format(p->kv_dtype), s->v, at + d) * (double)s->scale_v[g];
                    e->out[d] += weight * v / total;
                    e->tolerance[d] += (unsure + pv_error * weight) * fabs(v) / total;
                }
            }
        }
    }
    for (int64_t d = 0; d < p->head_dim; d++)
        e->tolerance[d] += 0x1p-8 * fabs(e->out[d]);
    free(t);
}

static void compare(const struct setting *s, const struct kvg_kernel *kernel, const char *label)
{
    const struct kvg_problem *p = &s->problem;
    struct kvg_arithmetic how;

    for (int64_t b = 0; b < p->batch; b++) {
        kernel->arithmetic(p, s->lens[b], &how);
        for (int64_t row = s->cu[b]; row < s->cu[b + 1]; row++) {
            for (int64_t h = 0; h < p->q_heads; h++) {
                const float lse = ((const float *)(const void *)s->lse)[row * p->q_heads + h];
                struct expected e;

                expect(s, &how, b, row - s->cu[b], h, &e);
                if (isinf(e.lse) ? lse != -INFINITY : !(fabs(lse - e.lse) <= e.lse_tolerance)) {
                    fail_msg("%s %s: lse %g, want %g +- %g (seq %d of %d keys, row %d, head %d)",
                             kernel->name, label, lse, e.lse, e.lse_tolerance, (int)b, s->lens[b], (int)row,
                             (int)h);
                }
                for (int64_t d = 0; d < p->head_dim; d++) {
                    const float o =
                        kvg_ref_load(KVG_REF_BF16, s->out, (row * p->q_heads + h) * p->head_dim + d);
                    if (!(fabs(o - e.out[d]) <= e.tolerance[d])) {
                        fail_msg("%s %s: out %g, want %g +- %g (seq %d of %d keys, row %d, head %d, dim %d)",
                                 kernel->name, label, o, e.out[d], e.tolerance[d], (int)b, s->lens[b],
                                 (int)row, (int)h, (int)d);
                    }
                }
            }
        }
    }
}

/* ---------------------------------------------------------------- one case on every kernel */

static int runs_here(const struct kvg_kernel *kernel, const struct kvg_problem *p)
{
    char why[256] = "";
    const int yes =
        kernel->device == KVG_DEVICE_CPU && kernel->attention && kvg_kernel_takes(kernel, p, why, sizeof why);

    assert_true(yes || kernel->device != KVG_DEVICE_CPU || !kernel->attention || why[0]);
    return yes;
}

static void run_kernel(const struct kvg_kernel *kernel, const struct shape *shape, enum kvg_path path,
                       enum kvg_dtype kv, const char *label)
{
    struct setting s;
    unsigned char *first;

    describe(&s, shape, path, kv);
    if (!runs_here(kernel, &s.problem))
        return;
    set_up(&s, kernel, (uint64_t)(shape->head_dim * 131 + shape->q_heads * 17 + shape->block_size));
    assert_int_equal(kernel->attention(&s.args), KVG_OK);
    compare(&s, kernel, label);
    check_guards(s.out, s.out_bytes);
    check_guards(s.lse, s.lse_bytes);
    check_guards(s.workspace, s.args.workspace_bytes);

    /* Another number of threads must give the same bits. */
    first = malloc((size_t)s.out_bytes + 1);
    assert_non_null(first);
    memcpy(first, s.out, (size_t)s.out_bytes);
    release(s.workspace);
    s.problem.threads = shape->threads == 1 ? 3 : 1;
    s.args.workspace_bytes = kernel->workspace_bytes(&s.problem);
    s.workspace = guarded(s.args.workspace_bytes);
    s.args.workspace = s.workspace;
    memset(s.out, 0xff, (size_t)s.out_bytes);
    assert_int_equal(kernel->attention(&s.args), KVG_OK);
    assert_memory_equal(first, s.out, (size_t)s.out_bytes);
    s.args.workspace_bytes -= 1;
    assert_int_equal(kernel->attention(&s.args), KVG_EINVAL);
    free(first);
    tear_down(&s);
}

/* A NaN in a slot that a sequence owns must reach the output: from K every row that sees it, from V its own
 * dim. Other heads and sequences must have none. */
static void check_owned_nan(const struct kvg_kernel *kernel, enum kvg_path path, enum kvg_dtype kv,
                            int64_t group, int64_t dim, int in_k)
{
    enum { KEY = 37, AT = 19 };
    const struct shape shape = {2 * group, 2, dim, 16, 0, 0, KVG_NHD, 1, 1, 2, {70, 70}, {1, 1}};
    struct setting s;

    describe(&s, &shape, path, kv);
    if (!runs_here(kernel, &s.problem))
        return;
    set_up(&s, kernel, 7);
    kvg_ref_store(ref_format(kv), in_k ? s.k : s.v, cache_index(&s, 0, KEY, 1) + AT, NAN);
    assert_int_equal(kernel->attention(&s.args), KVG_OK);
    for (int64_t row = 0; row < 2; row++) {
        for (int64_t h = 0; h < 2 * group; h++) {
            for (int64_t d = 0; d < dim; d++) {
                const float o = kvg_ref_load(KVG_REF_BF16, s.out, (row * 2 * group + h) * dim + d);
                const int poisoned = row == 0 && h >= group && (in_k || d == AT);
                if (isnan(o) != poisoned) {
                    fail_msg("%s: NaN in %c, row %d head %d dim %d is %g", kernel->name, "VK"[in_k], (int)row,
                             (int)h, (int)d, (double)o);
                }
            }
        }
    }
    tear_down(&s);
}

#endif
