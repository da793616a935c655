/* SPDX-License-Identifier: Apache-2.0
 *
 * generate.h: one synthetic value as a function of its coordinates.
 *
 * Every function is a pure function of its arguments. It uses integers, and float additions and
 * multiplications that are rounded separately, so a CPU and a GPU compute the same bits. On the host
 * -ffp-contract=off (Makefile) prevents fused operations; in CUDA the __f*_rn intrinsics do. The header
 * needs Random123 and compiles as C11, C++ and CUDA.
 *
 * Random bits: Philox4x32-10 with the seed as key and the counter
 *   { token, head * 2^16 + block, sequence, stream },   block = dim / 64 * 16 + dim % 16.
 * A dim takes word dim / 16 % 4 of the four words of its counter, so 16 consecutive counters fill 64
 * consecutive dims in four runs of 16, which suits vector code. No coordinate depends on a size of the
 * tensor, so a longer context, a larger batch or more heads extend a smaller tensor.
 */
#ifndef KVG_HARNESS_INPUTS_GENERATE_H
#define KVG_HARNESS_INPUTS_GENERATE_H

#include <stdint.h>
#include <string.h>
#include <Random123/philox.h>

#ifdef __CUDACC__
#define KVG_HOST_DEVICE __host__ __device__ static inline
#else
#define KVG_HOST_DEVICE static inline
#endif

/* A product and a sum, each rounded to nearest and never fused with another operation. */
KVG_HOST_DEVICE float kvg_mul_rn(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}
KVG_HOST_DEVICE float kvg_add_rn(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

KVG_HOST_DEVICE uint32_t kvg_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
KVG_HOST_DEVICE float kvg_bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Quantile function of the standard normal distribution as line segments (normal_table.py): 31 octaves of 64
 * segments, 16 kB. On a GPU the caller uploads the table and passes its address. */
#define KVG_NORMAL_SEGMENTS (31 * 64)
struct kvg_normal_segment {
    float base, slope;
};
#ifdef __cplusplus
extern "C" const struct kvg_normal_segment kvg_normal_table[KVG_NORMAL_SEGMENTS];
#else
extern const struct kvg_normal_segment kvg_normal_table[KVG_NORMAL_SEGMENTS];
#endif

/* Standard normal deviate of 32 random bits. The top bit is the sign; the lower 31 bits (made odd) divided
 * by 2^32 are the tail probability. Exactly symmetric; |x| <= 6.23. The integer is truncated to 24
 * significant bits, so that its conversion to float is exact; exponent and top 6 fraction bits of that float
 * are the number of the segment. */
KVG_HOST_DEVICE float kvg_normal(const struct kvg_normal_segment *table, uint32_t bits)
{
    int32_t m = (int32_t)((bits & 0x7fffffffu) | 1u);
    m = m >= (1 << 24) ? m & ~0x7f : m;
    uint32_t f = kvg_float_bits((float)m);
    const struct kvg_normal_segment *segment = &table[(f >> 17) - (127u << 6)];
    float t = kvg_mul_rn((float)(int32_t)(f & 0x1ffffu), 0x1p-17f);
    float x = kvg_add_rn(segment->base, kvg_mul_rn(segment->slope, t));
    return kvg_bits_float(kvg_float_bits(x) | (bits & 0x80000000u));
}

/* bf16 bits, round to nearest even; x is finite. */
KVG_HOST_DEVICE uint16_t kvg_bf16_bits(float x)
{
    uint32_t bits = kvg_float_bits(x);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* Streams of one seed. The values of a tensor and a token set take stream KVG_STREAM_VALUE + tensor * 16 +
 * set. */
enum {
    KVG_STREAM_VALUE = 0,          /* the normal deviate of every element */
    KVG_STREAM_OUTLIER = 0x1000,   /* outlier: whether an element is an outlier */
    KVG_STREAM_OUTLIER2 = 0x2000,  /* outlier: the second deviate */
    KVG_STREAM_FACTOR = 0x3000,    /* the factor of each (tensor, head) */
    KVG_STREAM_CHANNEL = 0x4000,   /* which channels are wide */
    KVG_STREAM_DIRECTION = 0x5000, /* signs of the direction of sink and needle */
    KVG_STREAM_PAGES = 0x6000,     /* the shuffle of the pages */
    KVG_STREAM_SINK = 0x7000       /* the sink of each query head */
};

KVG_HOST_DEVICE uint32_t kvg_random_bits(uint64_t seed, uint32_t stream, uint32_t sequence, uint32_t token,
                                         uint32_t head, uint32_t dim)
{
    philox4x32_ctr_t counter = {{token, (head << 16) + dim / 64 * 16 + dim % 16, sequence, stream}};
    philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    philox4x32_ctr_t words = philox4x32_R(10, counter, key);
    return words.v[dim / 16 % 4];
}

/* An element is an outlier with probability 0.001: its random word is below 2^32 / 1000. */
#define KVG_OUTLIER_THRESHOLD 4294967u
#define KVG_OUTLIER_SIGMA 10.0f

/* A tensor of one sequence: x = z * multiply[head][dim] + add[head][dim], rounded to bf16, where z is the
 * deviate. The vectors contain the factor of the head and what the distribution does to a channel. One token
 * may have vectors of its own. Plain data: the caller owns the arrays, which may be device memory. */
struct kvg_generator {
    uint64_t seed;
    uint32_t stream, sequence;
    int64_t heads, head_dim;
    const float *multiply, *add;                 /* [heads][head_dim] */
    int64_t special_token;                       /* -1: none */
    const float *special_multiply, *special_add; /* [heads][head_dim] */
    int absolute;                                /* 1: |z| instead of z */
    int outliers;                                /* 1: z + 10 z' instead of z for one element in 1000 */
};

/* z + 10 z' if the element is an outlier, else z. */
KVG_HOST_DEVICE float kvg_with_outlier(const struct kvg_generator *g, const struct kvg_normal_segment *table,
                                       float z, uint32_t token, uint32_t head, uint32_t dim)
{
    if (kvg_random_bits(g->seed, g->stream + KVG_STREAM_OUTLIER, g->sequence, token, head, dim) >=
        KVG_OUTLIER_THRESHOLD)
        return z;
    uint32_t bits = kvg_random_bits(g->seed, g->stream + KVG_STREAM_OUTLIER2, g->sequence, token, head, dim);
    return kvg_add_rn(z, kvg_mul_rn(KVG_OUTLIER_SIGMA, kvg_normal(table, bits)));
}

/* The value before rounding to bf16. This is the definition; generator.c and device/cuda/generate.cu compute
 * the same bits faster. */
KVG_HOST_DEVICE float kvg_generator_value(const struct kvg_generator *g,
                                          const struct kvg_normal_segment *table, uint32_t token,
                                          uint32_t head, uint32_t dim)
{
    float z = kvg_normal(table, kvg_random_bits(g->seed, g->stream, g->sequence, token, head, dim));
    if (g->outliers)
        z = kvg_with_outlier(g, table, z, token, head, dim);
    if (g->absolute)
        z = kvg_bits_float(kvg_float_bits(z) & 0x7fffffffu);
    int64_t i = (int64_t)head * g->head_dim + dim;
    int special = (int64_t)token == g->special_token;
    float a = special ? g->special_multiply[i] : g->multiply[i];
    float b = special ? g->special_add[i] : g->add[i];
    return kvg_add_rn(kvg_mul_rn(z, a), b);
}

#endif
