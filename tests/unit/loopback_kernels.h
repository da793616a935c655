/* SPDX-License-Identifier: Apache-2.0
 *
 * loopback_kernels.h: kernels that run in the memory of a loopback device: a right kernel of every kind that
 * the harness needs (attention on both paths, store, quantising of Q), and the plain kernel that checks
 * inputs made on the device. A test adds wrong kernels of its own, made from these. A program has one
 * device, `device`.
 */
#ifndef KVG_TESTS_LOOPBACK_KERNELS_H
#define KVG_TESTS_LOOPBACK_KERNELS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kernels/registry.h"
#include "reference/formats.h"
#include "reference/paged.h"
#include "loopback_device.h"
#include "harness/prepare/prepared.h"

extern const struct kvg_kernel kvg_cpu_store_scalar, kvg_cpu_dequant_scalar, kvg_cpu_fp8_scalar;

static struct loopback device;

/* ---------------------------------------------------------------- right kernels */

#define IN(pointer) loopback_inside(&device, pointer)

static inline struct kvg_scales scales_inside(struct kvg_scales s)
{
    s.q.data = IN(s.q.data);
    s.k.data = IN(s.k.data);
    s.v.data = IN(s.v.data);
    return s;
}

static int overtakes; /* 1: the kernel does not wait for its stream */

/* The arguments with host addresses, which a CPU kernel can use. */
static inline struct kvg_attention_args inside(const struct kvg_attention_args *args)
{
    struct kvg_attention_args a = *args;
    assert_ptr_equal(a.stream, &device);
    if (!overtakes)
        loopback_drain(&device);
    a.q = IN(a.q);
    a.k_cache.data = IN(a.k_cache.data);
    a.v_cache.data = IN(a.v_cache.data);
    a.block_table = IN(a.block_table);
    a.seq_lens = IN(a.seq_lens);
    a.cu_q_lens = IN(a.cu_q_lens);
    a.scales = scales_inside(a.scales);
    a.out = IN(a.out);
    a.lse = IN(a.lse);
    a.workspace = IN(a.workspace);
    a.prefix_lens = IN(a.prefix_lens);
    a.stream = NULL;
    return a;
}

static inline int dequant(const struct kvg_attention_args *args)
{
    const struct kvg_attention_args a = inside(args);
    return kvg_cpu_dequant_scalar.attention(&a); /* the workspace is for the number of threads in a.problem */
}

static inline int fp8(const struct kvg_attention_args *args)
{
    const struct kvg_attention_args a = inside(args);
    return kvg_cpu_fp8_scalar.attention(&a);
}

static inline int store(const struct kvg_store_args *args)
{
    struct kvg_store_args a = *args;
    assert_ptr_equal(a.stream, &device);
    a.k = IN(a.k);
    a.v = IN(a.v);
    a.slot_mapping = IN(a.slot_mapping);
    a.k_cache.data = IN(a.k_cache.data);
    a.v_cache.data = IN(a.v_cache.data);
    a.scales = scales_inside(a.scales);
    a.workspace = IN(a.workspace);
    a.stream = NULL;
    return kvg_cpu_store_scalar.store(&a);
}

static inline int quantize_q(const struct kvg_quantize_q_args *args)
{
    struct kvg_quantize_q_args a = *args;
    assert_ptr_equal(a.stream, &device);
    a.q = IN(a.q);
    a.q8 = IN(a.q8);
    a.scales = scales_inside(a.scales);
    a.stream = NULL;
    return kvg_cpu_store_scalar.quantize_q(&a);
}

/* ---- the plain kernel: textbook attention in double, output in float ---- */

static inline double element(const struct kvg_attention_args *a, const struct kvg_pages *pages, int64_t b,
                             int64_t t, int64_t head, int64_t d)
{
    const struct kvg_problem *p = a->problem;
    const int64_t block = a->block_table[b * a->block_table_stride + t / p->block_size];
    return (double)kvg_ref_load(kvg_ref_format_of(p->kv_dtype), pages->data,
                                block * pages->stride_block + t % p->block_size * pages->stride_slot +
                                    head * pages->stride_head + d);
}

static inline void attend(const struct kvg_attention_args *a, int64_t b, int64_t i, int64_t h, float *out,
                          float *lse)
{
    const struct kvg_problem *p = a->problem;
    const int64_t g = h / (p->q_heads / p->kv_heads), n = a->seq_lens[b], row = a->cu_q_lens[b] + i,
                  q_len = a->cu_q_lens[b + 1] - a->cu_q_lens[b];
    int64_t first, last;
    const struct kvg_ref_mask mask = {.kind = p->mask == KVG_MASK_FULL      ? KVG_REF_FULL
                                              : p->mask == KVG_MASK_CHUNKED ? KVG_REF_CHUNKED
                                              : p->mask == KVG_MASK_PREFIX  ? KVG_REF_PREFIX
                                                                            : KVG_REF_CAUSAL,
                                      .window = p->window,
                                      .chunk = p->chunk,
                                      .prefix_lens = a->prefix_lens};
    kvg_ref_visible(&mask, b, n, q_len, i, &first, &last);
    double *s = malloc((size_t)(n + 1) * sizeof *s), top = -INFINITY, sum = 0;
    double scale = (double)a->softmax_scale;
    scale *= a->scales.q.data ? (double)a->scales.q.data[g * a->scales.q.stride_head] : 1;
    scale *= a->scales.k.data ? (double)a->scales.k.data[g * a->scales.k.stride_head] : 1;
    assert_non_null(s);
    for (int64_t t = first; t <= last; t++) {
        s[t] = 0;
        for (int64_t d = 0; d < p->head_dim; d++)
            s[t] += (double)kvg_ref_load(kvg_ref_format_of(p->q_dtype), a->q,
                                         row * a->q_stride_token + h * a->q_stride_head + d) *
                    element(a, &a->k_cache, b, t, g, d);
        s[t] *= scale;
        if (p->soft_cap > 0)
            s[t] = (double)p->soft_cap * tanh(s[t] / (double)p->soft_cap);
        top = fmax(top, s[t]);
    }
    for (int64_t t = first; t <= last; t++)
        sum += s[t] = exp(s[t] - top);
    for (int64_t d = 0; d < p->head_dim; d++) {
        double o = 0;
        for (int64_t t = first; t <= last; t++)
            o += s[t] * element(a, &a->v_cache, b, t, g, d);
        out[d] =
            last < first
                ? 0.0f
                : (float)(o / sum *
                          (a->scales.v.data ? (double)a->scales.v.data[g * a->scales.v.stride_head] : 1));
    }
    *lse = last < first ? -INFINITY : (float)(top + log(sum));
    free(s);
}

static int64_t plain_calls;

static inline int plain(const struct kvg_attention_args *args)
{
    const struct kvg_attention_args a = inside(args);
    const struct kvg_problem *p = a.problem;
    plain_calls++;
    assert_int_equal(p->out_dtype, KVG_F32);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < a.cu_q_lens[b + 1] - a.cu_q_lens[b]; i++)
            for (int64_t h = 0; h < p->q_heads; h++) {
                const int64_t row = a.cu_q_lens[b] + i;
                attend(&a, b, i, h, (float *)a.out + row * a.out_stride_token + h * a.out_stride_head,
                       &a.lse[row * a.lse_stride_token + h]);
            }
    return KVG_OK;
}

/* ---- the structs to register ---- */

static inline int supports_dequant(const struct kvg_problem *p, char *why, size_t size)
{
    return kvg_cpu_dequant_scalar.supports(p, why, size);
}

static inline int supports_fp8(const struct kvg_problem *p, char *why, size_t size)
{
    return kvg_cpu_fp8_scalar.supports(p, why, size);
}

static inline int supports_store(const struct kvg_problem *p, char *why, size_t size)
{
    return kvg_cpu_store_scalar.supports(p, why, size);
}

static inline int supports_plain(const struct kvg_problem *p, char *why, size_t size)
{
    if (p->phase != KVG_PHASE_STORE && p->out_dtype == KVG_F32)
        return 1;
    snprintf(why, size, "attention with float output");
    return 0;
}

static inline int64_t workspace_dequant(const struct kvg_problem *p)
{
    return kvg_cpu_dequant_scalar.workspace_bytes(p);
}

static inline int64_t workspace_fp8(const struct kvg_problem *p)
{
    return kvg_cpu_fp8_scalar.workspace_bytes(p);
}

static inline void arithmetic_dequant(const struct kvg_problem *p, int64_t seq_len,
                                      struct kvg_arithmetic *out)
{
    kvg_cpu_dequant_scalar.arithmetic(p, seq_len, out);
}

static inline void arithmetic_fp8(const struct kvg_problem *p, int64_t seq_len, struct kvg_arithmetic *out)
{
    kvg_cpu_fp8_scalar.arithmetic(p, seq_len, out);
}

static inline void arithmetic_loose(const struct kvg_problem *p, int64_t seq_len, struct kvg_arithmetic *out)
{
    arithmetic_dequant(p, seq_len, out);
    out->deterministic = 0;
}

#define HEAD(kernel_name)                                                                                    \
    .abi_version = KVG_KERNEL_ABI_VERSION, .struct_size = sizeof(struct kvg_kernel),                         \
    .features = KVG_FEATURE_SHARED_PAGES | KVG_FEATURE_SMALL_PAGES | KVG_FEATURE_CHUNKED_MASK |              \
                KVG_FEATURE_PREFIX_MASK,                                                                     \
    .name = "cuda/loop_" kernel_name, .summary = "for a test", .device = KVG_DEVICE_CUDA
#define DEQUANT(kernel_name, function)                                                                       \
    {                                                                                                        \
        HEAD(kernel_name), .supports = supports_dequant, .arithmetic = arithmetic_dequant,                   \
                           .workspace_bytes = workspace_dequant, .attention = function                       \
    }
#define PLAIN(kernel_name, function)                                                                         \
    {                                                                                                        \
        HEAD(kernel_name), .supports = supports_plain, .arithmetic = arithmetic_dequant,                     \
                           .attention = function                                                             \
    }
#define STORE(kernel_name, store_function, quantize_function)                                                \
    {                                                                                                        \
        HEAD(kernel_name), .supports = supports_store, .store = store_function,                              \
                           .quantize_q = quantize_function                                                   \
    }

static const struct kvg_kernel loopback_right[] = {
    DEQUANT("dequant", dequant),
    {HEAD("loose"), .supports = supports_dequant, .arithmetic = arithmetic_loose,
     .workspace_bytes = workspace_dequant, .attention = dequant},
    {HEAD("fp8"), .supports = supports_fp8, .arithmetic = arithmetic_fp8, .workspace_bytes = workspace_fp8,
     .quantize_q = quantize_q, .attention = fp8},
    PLAIN("plain", plain),
    STORE("store", store, quantize_q),
};
enum { LOOPBACK_RIGHT = sizeof loopback_right / sizeof loopback_right[0] };

#endif
