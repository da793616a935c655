/* SPDX-License-Identifier: Apache-2.0
 *
 * quantise.cu: the harness's own FP8 encoder on the device, and the two kernels that use it: the store that
 * fills a cache, and random operands for matrix products. The encoder uses integer arithmetic only, not the
 * conversion instructions of the kernels under test.
 */
#include "launch.h"

struct format {
    int mantissa_bits, bias;
    uint32_t largest; /* code of the largest finite value */
    uint32_t nan;
    bool one_zero; /* the format has no negative zero */
};
template <int DTYPE> __device__ inline format format_of()
{
    return DTYPE == KVG_E4M3   ? format{3, 7, 0x7e, 0x7f, false}
           : DTYPE == KVG_E5M2 ? format{2, 15, 0x7b, 0x7f, false}
                               : format{3, 8, 0x7f, 0x80, true};
}

/* m / 2^shift, rounded to nearest, ties to even; m < 2^24, shift >= 1. */
__device__ inline uint32_t shift_rounded(uint32_t m, int shift)
{
    if (shift > 24)
        return 0; /* less than half a unit in the last place */
    const uint32_t half = 1u << (shift - 1);
    return (m + half - 1 + (m >> shift & 1)) >> shift;
}

/* Rounds to nearest even and saturates, infinities too. Every NaN gets the same code. */
template <int DTYPE> __device__ inline uint8_t encode(float value)
{
    const format f = format_of<DTYPE>();
    const uint32_t bits = __float_as_uint(value), magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint8_t)f.nan;
    const int exponent = (int)(magnitude >> 23) - 127 + f.bias; /* of the result, if it is normal */
    const uint32_t significand = (magnitude & 0x7fffffu) | (magnitude >> 23 ? 0x800000u : 0u);
    const int drop = 23 - f.mantissa_bits;
    uint32_t code;
    if (exponent >=
        1) /* the significand's hidden bit adds the missing 1 to the exponent field; a carry adds 1 more */
        code = ((uint32_t)(exponent - 1) << f.mantissa_bits) + shift_rounded(significand, drop);
    else
        code = shift_rounded(significand, drop + 1 - exponent);
    code = code < f.largest ? code : f.largest;
    const uint32_t sign = f.one_zero && !code ? 0 : bits >> 24 & 0x80u;
    return (uint8_t)(sign | code);
}

/* ---------------------------------------------------------------- store */

enum { LANES = 16, TOKENS = 16, PIECE = 8 };

/* Stores one element. A bf16 cache takes the bits unchanged. */
template <int DTYPE>
__device__ inline void put(const struct kvg_gpu_store_work &s, int64_t to, uint16_t bits, float scale)
{
    if (DTYPE == KVG_BF16)
        ((uint16_t *)s.pages.data)[to] = bits;
    else
        ((uint8_t *)s.pages.data)[to] =
            encode<DTYPE>(__fdiv_rn(__uint_as_float((uint32_t)bits << 16), scale));
}

/* Stores PIECE elements at once. Source and destination are aligned to PIECE elements. */
template <int DTYPE>
__device__ inline void put_piece(const struct kvg_gpu_store_work &s, int64_t to, const uint16_t *from,
                                 float scale)
{
    const uint4 v = __ldcs((const uint4 *)from);
    if (DTYPE == KVG_BF16) {
        *(uint4 *)((uint16_t *)s.pages.data + to) = v;
        return;
    }
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
    uint32_t code[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < PIECE; i++) {
        const uint32_t bits = i % 2 ? w[i / 2] & 0xffff0000u : w[i / 2] << 16;
        code[i / 4] |= (uint32_t)encode<DTYPE>(__fdiv_rn(__uint_as_float(bits), scale)) << 8 * (i % 4);
    }
    *(uint2 *)((uint8_t *)s.pages.data + to) = make_uint2(code[0], code[1]);
}

template <int DTYPE, bool PIECES>
__global__ void __launch_bounds__(LANES *TOKENS) store_kernel(const struct kvg_gpu_store_work s)
{
    const int64_t head = blockIdx.y;
    const float scale = s.scale ? s.scale[head * s.scale_stride] : 1.0f;
    for (int64_t t = (int64_t)blockIdx.x * TOKENS + threadIdx.y; t < s.tokens;
         t += (int64_t)gridDim.x * TOKENS) {
        const int64_t slot = s.slots[t];
        if (slot < 0)
            continue;
        const int64_t to = slot / s.block_size * s.pages.stride_block +
                           slot % s.block_size * s.pages.stride_slot + head * s.pages.stride_head;
        const uint16_t *from = s.source + (t * s.heads + head) * s.head_dim;
        if (PIECES)
            for (int64_t d = threadIdx.x * PIECE; d < s.head_dim; d += LANES * PIECE)
                put_piece<DTYPE>(s, to + d, from + d, scale);
        else
            for (int64_t d = threadIdx.x; d < s.head_dim; d += LANES)
                put<DTYPE>(s, to + d, from[d], scale);
    }
}

static int in_pieces(const struct kvg_gpu_store_work *s)
{
    const struct kvg_pages *p = &s->pages;
    return (uintptr_t)s->source % 16 == 0 && (uintptr_t)p->data % 16 == 0 && s->head_dim % PIECE == 0 &&
           p->stride_block % PIECE == 0 && p->stride_slot % PIECE == 0 && p->stride_head % PIECE == 0;
}

template <int DTYPE>
static cudaError_t launch_store(const struct kvg_gpu_store_work *s, int mp, cudaStream_t stream)
{
    const int64_t needed = (s->tokens + TOKENS - 1) / TOKENS,
                  share = ((int64_t)mp * 64 + s->heads - 1) / s->heads;
    const dim3 grid((unsigned)(needed < share ? needed : share), (unsigned)s->heads), block(LANES, TOKENS);
    if (in_pieces(s))
        store_kernel<DTYPE, true><<<grid, block, 0, stream>>>(*s);
    else
        store_kernel<DTYPE, false><<<grid, block, 0, stream>>>(*s);
    return cudaGetLastError();
}

extern "C" cudaError_t kvg_launch_store(const struct kvg_gpu_store_work *s, int mp, cudaStream_t stream)
{
    if (s->heads < 0 || s->heads > 65535 || s->tokens < 0 || s->block_size < 1)
        return cudaErrorInvalidValue;
    if (!s->tokens || !s->heads)
        return cudaSuccess;
    switch (s->dtype) {
    case KVG_BF16:
        return launch_store<KVG_BF16>(s, mp, stream);
    case KVG_E4M3:
        return launch_store<KVG_E4M3>(s, mp, stream);
    case KVG_E5M2:
        return launch_store<KVG_E5M2>(s, mp, stream);
    case KVG_E4M3FNUZ:
        return launch_store<KVG_E4M3FNUZ>(s, mp, stream);
    default:
        return cudaErrorInvalidValue;
    }
}

/* ---------------------------------------------------------------- noise */

/* The sum of four random bytes is close to a normal deviate of mean 510 and standard deviation 147.8. */
template <int DTYPE>
__global__ void __launch_bounds__(256) noise_kernel(void *out, int64_t elements, uint32_t seed)
{
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < elements; i += (int64_t)gridDim.x * 256) {
        uint32_t x = (uint32_t)i * 0x9e3779b1u + (uint32_t)(i >> 32) * 0x85ebca77u + seed;
        x = (x ^ x >> 16) * 0x7feb352du;
        x = (x ^ x >> 15) * 0x846ca68bu;
        x ^= x >> 16;
        const int sum = (int)((x & 0xff) + (x >> 8 & 0xff) + (x >> 16 & 0xff) + (x >> 24));
        const float value = (float)(sum - 510) * (1.0f / 147.8f);
        if (DTYPE == KVG_BF16)
            ((uint16_t *)out)[i] = kvg_bf16_bits(value);
        else
            ((uint8_t *)out)[i] = encode<DTYPE>(value);
    }
}

extern "C" cudaError_t kvg_launch_noise(enum kvg_dtype dtype, void *out, int64_t elements, uint32_t seed,
                                        int mp, cudaStream_t stream)
{
    if (dtype == KVG_BF16)
        noise_kernel<KVG_BF16><<<mp * 16, 256, 0, stream>>>(out, elements, seed);
    else if (dtype == KVG_E4M3)
        noise_kernel<KVG_E4M3><<<mp * 16, 256, 0, stream>>>(out, elements, seed);
    else
        return cudaErrorInvalidValue;
    return cudaGetLastError();
}
