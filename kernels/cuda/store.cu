/* SPDX-License-Identifier: Apache-2.0
 *
 * store.cu: quantise K and V and scatter them into pages; quantise Q.
 *
 * A thread takes 16 elements of one head of one token, of K and of V: all its loads go out before the first
 * division, and each result is one 16-byte store. bf16 to FP8 moves 3 bytes an element.
 *
 * x / scale is a correctly rounded FP32 division, as the definition asks, at the price of three FMAs: with
 * r = 1 / scale rounded to nearest, q = x r, the remainder x - q scale is exact in an FMA, and q + remainder * r
 * is the rounded quotient (Markstein) as long as nothing over- or underflows. Quotients of 2^20 and more
 * saturate and those under 2^-40 round to zero in either format, so they need no correction; scales outside
 * [2^-60, 2^60] take the full division. (An input so small that the remainder underflows, below 2^-100, can only
 * meet a scale of at least 2^-60, and then the quotient is below 2^-40.)
 */
#include "cuda.h"
#include "ptx.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <stdio.h>

struct store_params {
    const void *src[2]; /* K, V */
    int64_t src_token[2], src_head[2];
    uint8_t *dst[2];
    int64_t dst_block[2], dst_slot[2], dst_head[2]; /* bytes */
    const float *scale[2];
    int64_t scale_stride;
    const int64_t *slot_mapping;
    int64_t tokens, total_slots;
    int chunks, kv_heads, block_size; /* chunks of 16 elements in a head */
};

template <int SRC>
KVG_DEV void load16(const void *base, int64_t element, float (&x)[16]) {
    if (SRC == KVG_F32) {
        const float4 *p = (const float4 *)((const float *)base + element);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float4 v = __ldcs(p + i);
            x[4 * i] = v.x, x[4 * i + 1] = v.y, x[4 * i + 2] = v.z, x[4 * i + 3] = v.w;
        }
    } else {
        const uint4 *p = (const uint4 *)((const uint16_t *)base + element);
        const uint4 a = __ldcs(p), b = __ldcs(p + 1);
        const uint32_t w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (SRC == KVG_BF16) {
                x[2 * i] = __uint_as_float(w[i] << 16);
                x[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
            } else {
                x[2 * i] = __half2float(__ushort_as_half((uint16_t)w[i]));
                x[2 * i + 1] = __half2float(__ushort_as_half((uint16_t)(w[i] >> 16)));
            }
    }
}

KVG_DEV float divide(float x, float scale, float r, bool plain) {
    if (plain)
        return __fdiv_rn(x, scale);
    const float q = x * r;
    const float fixed = __fmaf_rn(__fmaf_rn(-q, scale, x), r, q);
    const float size = fabsf(q);
    return size < 0x1p20f && size > 0x1p-40f ? fixed : q;
}

template <int DST>
KVG_DEV uint4 quantize16(const float (&x)[16], float scale) {
    const float r = __frcp_rn(scale), size = fabsf(scale);
    const bool plain = !(size > 0x1p-60f && size < 0x1p60f);
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float q[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            q[j] = divide(x[4 * i + j], scale, r, plain);
        const uint32_t lo = DST == KVG_E4M3 ? kvg_pack_e4m3(q[0], q[1]) : kvg_pack_e5m2(q[0], q[1]);
        const uint32_t hi = DST == KVG_E4M3 ? kvg_pack_e4m3(q[2], q[3]) : kvg_pack_e5m2(q[2], q[3]);
        w[i] = lo | hi << 16;
    }
    return make_uint4(w[0], w[1], w[2], w[3]);
}

template <int SRC, int DST>
__global__ void __launch_bounds__(256) kvg_store_kernel(const __grid_constant__ store_params p) {
    const int64_t items = p.tokens * p.kv_heads * p.chunks;
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < items; i += (int64_t)gridDim.x * 256) {
        const int chunk = (int)(i % p.chunks);
        const int64_t rest = i / p.chunks;
        const int head = (int)(rest % p.kv_heads);
        const int64_t token = rest / p.kv_heads;
        const int64_t slot = p.slot_mapping[token];
        if (slot < 0 || slot >= p.total_slots)
            continue;
        const int64_t block = slot / p.block_size, offset = slot - block * p.block_size;
        if (DST == KVG_BF16) {
            uint4 v[2][2];
#pragma unroll
            for (int s = 0; s < 2; s++) {
                const uint4 *src = (const uint4 *)((const uint16_t *)p.src[s] + token * p.src_token[s] +
                                                   head * p.src_head[s] + chunk * 16);
                v[s][0] = __ldcs(src), v[s][1] = __ldcs(src + 1);
            }
#pragma unroll
            for (int s = 0; s < 2; s++) {
                uint4 *dst = (uint4 *)(p.dst[s] + block * p.dst_block[s] + offset * p.dst_slot[s] +
                                       head * p.dst_head[s] + chunk * 32);
                dst[0] = v[s][0], dst[1] = v[s][1];
            }
        } else {
            float x[2][16];
#pragma unroll
            for (int s = 0; s < 2; s++)
                load16<SRC>(p.src[s], token * p.src_token[s] + head * p.src_head[s] + chunk * 16, x[s]);
#pragma unroll
            for (int s = 0; s < 2; s++)
                *(uint4 *)(p.dst[s] + block * p.dst_block[s] + offset * p.dst_slot[s] + head * p.dst_head[s] +
                           chunk * 16) = quantize16<DST>(x[s], p.scale[s] ? p.scale[s][head * p.scale_stride] : 1.f);
        }
    }
}

struct quantize_q_params {
    const uint16_t *q;
    uint8_t *q8;
    int64_t q_token, q_head, q8_token, q8_head, tokens;
    const float *scale;
    int64_t scale_stride;
    int chunks, q_heads, group;
};

__global__ void __launch_bounds__(256) kvg_quantize_q_kernel(const __grid_constant__ quantize_q_params p) {
    const int64_t items = p.tokens * p.q_heads * p.chunks;
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < items; i += (int64_t)gridDim.x * 256) {
        const int chunk = (int)(i % p.chunks);
        const int64_t rest = i / p.chunks;
        const int head = (int)(rest % p.q_heads);
        const int64_t token = rest / p.q_heads;
        const float r = __frcp_rn(p.scale ? p.scale[head / p.group * p.scale_stride] : 1.f);
        float x[16];
        load16<KVG_BF16>(p.q, token * p.q_token + head * p.q_head + chunk * 16, x);
        uint32_t w[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            w[j] = kvg_pack_e4m3(__fmul_rn(x[4 * j], r), __fmul_rn(x[4 * j + 1], r)) |
                   (uint32_t)kvg_pack_e4m3(__fmul_rn(x[4 * j + 2], r), __fmul_rn(x[4 * j + 3], r)) << 16;
        *(uint4 *)(p.q8 + token * p.q8_token + head * p.q8_head + chunk * 16) = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

static int supports(const struct kvg_problem *p, char *why, size_t size) {
    struct kvg_cuda_device d;
    if (p->phase != KVG_PHASE_STORE && p->path != KVG_PATH_FP8) {
        snprintf(why, size, "stores and quantises Q; does not attend");
        return 0;
    }
    if (p->head_dim < 16 || p->head_dim % 16) {
        snprintf(why, size, "head_dim %lld: this kernel takes multiples of 16", (long long)p->head_dim);
        return 0;
    }
    if (p->phase == KVG_PHASE_STORE) {
        if (p->kv_dtype != KVG_BF16 && p->kv_dtype != KVG_E4M3 && p->kv_dtype != KVG_E5M2) {
            snprintf(why, size, "the cache must be bf16, e4m3 or e5m2");
            return 0;
        }
        if (p->q_dtype != KVG_BF16 && (p->kv_dtype == KVG_BF16 || (p->q_dtype != KVG_F16 && p->q_dtype != KVG_F32))) {
            snprintf(why, size, "K and V must be bf16, or f16 or f32 with an FP8 cache");
            return 0;
        }
    }
    if (kvg_cuda_device_here(&d, why, size))
        return 0;
    if (d.major * 10 + d.minor < 89) {
        snprintf(why, size, "FP8 conversion needs compute capability 8.9, this device has %d.%d", d.major, d.minor);
        return 0;
    }
    return 1;
}

static unsigned grid_for(int64_t items) {
    struct kvg_cuda_device d;
    char why[160];
    const int64_t want = (items + 255) / 256;
    if (kvg_cuda_device_here(&d, why, sizeof why))
        return 1;
    const int64_t most = (int64_t)d.multiprocessors * 16;
    return (unsigned)(want < 1 ? 1 : want < most ? want : most);
}

static int store(const struct kvg_store_args *a) {
    const struct kvg_problem *p = a->problem;
    char why[160];
    if (!supports(p, why, sizeof why) || p->phase != KVG_PHASE_STORE)
        return KVG_EUNSUPPORTED;
    const int64_t es = p->kv_dtype == KVG_BF16 ? 2 : 1, ss = p->q_dtype == KVG_F32 ? 4 : 2;
    const struct kvg_pages *pages[2] = {&a->k_cache, &a->v_cache};
    store_params x = {{a->k, a->v}, {a->k_stride_token, a->v_stride_token}, {a->k_stride_head, a->v_stride_head}};
    for (int s = 0; s < 2; s++) {
        x.dst[s] = (uint8_t *)pages[s]->data;
        x.dst_block[s] = pages[s]->stride_block * es;
        x.dst_slot[s] = pages[s]->stride_slot * es;
        x.dst_head[s] = pages[s]->stride_head * es;
        if (((uintptr_t)x.src[s] | (uintptr_t)x.dst[s] | (x.src_token[s] * ss) | (x.src_head[s] * ss) |
             x.dst_block[s] | x.dst_slot[s] | x.dst_head[s]) &
            15)
            return KVG_EINVAL;
    }
    x.scale[0] = a->scales.k;
    x.scale[1] = a->scales.v;
    x.scale_stride = a->scales.stride;
    x.slot_mapping = a->slot_mapping;
    x.tokens = a->tokens;
    x.total_slots = a->num_blocks * p->block_size;
    x.chunks = (int)(p->head_dim / 16);
    x.kv_heads = (int)p->kv_heads;
    x.block_size = (int)p->block_size;
    if (a->tokens <= 0)
        return KVG_OK;
    const unsigned grid = grid_for(a->tokens * p->kv_heads * x.chunks);
    cudaStream_t stream = (cudaStream_t)a->stream;
#define KVG_STORE_CASE(SRC, DST)                                                                                       \
    if (p->q_dtype == SRC && p->kv_dtype == DST)                                                                       \
    kvg_store_kernel<SRC, DST><<<grid, 256, 0, stream>>>(x)
    KVG_STORE_CASE(KVG_BF16, KVG_BF16);
    KVG_STORE_CASE(KVG_BF16, KVG_E4M3);
    KVG_STORE_CASE(KVG_BF16, KVG_E5M2);
    KVG_STORE_CASE(KVG_F16, KVG_E4M3);
    KVG_STORE_CASE(KVG_F16, KVG_E5M2);
    KVG_STORE_CASE(KVG_F32, KVG_E4M3);
    KVG_STORE_CASE(KVG_F32, KVG_E5M2);
#undef KVG_STORE_CASE
    return cudaGetLastError() == cudaSuccess ? KVG_OK : KVG_EDEVICE;
}

static int quantize_q(const struct kvg_quantize_q_args *a) {
    const struct kvg_problem *p = a->problem;
    char why[160];
    if (p->path != KVG_PATH_FP8 || !supports(p, why, sizeof why))
        return KVG_EUNSUPPORTED;
    if (((uintptr_t)a->q | (uintptr_t)a->q8 | (a->q_stride_token * 2) | (a->q_stride_head * 2) | a->q8_stride_token |
         a->q8_stride_head) &
        15)
        return KVG_EINVAL;
    if (p->total_q <= 0)
        return KVG_OK;
    quantize_q_params x = {};
    x.q = (const uint16_t *)a->q;
    x.q8 = (uint8_t *)a->q8;
    x.q_token = a->q_stride_token;
    x.q_head = a->q_stride_head;
    x.q8_token = a->q8_stride_token;
    x.q8_head = a->q8_stride_head;
    x.tokens = p->total_q;
    x.scale = a->scales.q;
    x.scale_stride = a->scales.stride;
    x.chunks = (int)(p->head_dim / 16);
    x.q_heads = (int)p->q_heads;
    x.group = (int)(p->q_heads / p->kv_heads);
    kvg_quantize_q_kernel<<<grid_for(p->total_q * p->q_heads * x.chunks), 256, 0, (cudaStream_t)a->stream>>>(x);
    return cudaGetLastError() == cudaSuccess ? KVG_OK : KVG_EDEVICE;
}

extern "C" const struct kvg_kernel kvg_cuda_store = {
    KVG_KERNEL_ABI_VERSION,
    sizeof(struct kvg_kernel),
    "cuda/store",
    "quantise K and V with a true division and scatter them into pages; quantise Q with the reciprocal",
    KVG_DEVICE_CUDA,
    90,
    supports,
    NULL,
    NULL,
    NULL,
    store,
    quantize_q,
    NULL,
};
