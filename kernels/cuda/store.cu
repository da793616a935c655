/* SPDX-License-Identifier: Apache-2.0
 *
 * store.cu: quantises K and V and writes them into pages by slot; quantises Q.
 *
 * A thread keeps its position inside a token (16 bytes of K or V) and advances from token to token with two
 * loads in flight. The loop has to compute nothing but the slot. bf16 to FP8 moves 3 bytes an element.
 *
 * x / scale is a correctly rounded FP32 division, as the definition requires, for the price of three FMAs.
 * With r = 1 / scale rounded to nearest and q = x r, the remainder q scale - x is exact in an FMA, and q -
 * remainder * r is the rounded quotient (Markstein), as long as nothing over- or underflows.
 *   - A quotient that overflows has no remainder and saturates.
 *   - A quotient so small that its remainder underflows is far below the smallest code of either format and
 *     becomes a zero of its sign.
 *   - Scales outside [2^-60, 2^60] take the full division.
 *
 * Versions. H200, 524288 tokens, 8 heads, head_dim 128, shuffled pages of 16. Percent of a device-to-device
 * copy (4256 to 4283 GB/s read and written). Predicted each time: 90.
 *
 *       bf16 to e4m3  f32 to e4m3  bf16 to bf16
 *   v1  78.7          85.8         67.7
 *   v2  80.0          79.4         84.6
 *   v3  49.0          57.5         70.3
 *   v4  86.8          90.3         92.7
 *
 *   - v1: 32 bytes of K and of V a thread, 64-bit divisions for every item.
 *   - v2: a thread keeps its position in the token, 4 tokens ahead, 16 blocks a multiprocessor.
 *   - v3: the next 4 tokens are loaded before the last 4 are stored, 4 blocks a multiprocessor. Too few
 *     threads. Removed.
 *   - v4: 2 tokens ahead, streaming stores, up to 128 short blocks a multiprocessor.
 *
 * What remains: bf16 to FP8 is 3 % short of the prediction. e5m2 is the same, so the conversion is not the
 * reason.
 */
#include "cuda.h"
#include "ptx.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <stdio.h>

struct store_params {
    const uint8_t *src[2];             /* K, V */
    int64_t src_token[2], src_head[2]; /* bytes */
    uint8_t *dst[2];
    int64_t dst_block[2], dst_slot[2], dst_head[2]; /* bytes */
    const float *scale[2];
    int64_t scale_stride;
    const int64_t *slot_mapping;
    int64_t tokens, total_slots;
    /* ceil(2^64 / block_size): slot / block_size = high half of the product, for slots < 2^32. */
    uint64_t reciprocal;
    /* vectors: 16-byte pieces of a head. per_token: of K and V of a token. */
    int block_size, vectors, per_token, tokens_a_pass;
};

/* Elements in 16 bytes of the source. */
template <int SRC> struct source {
    static constexpr int n = SRC == KVG_F32 ? 4 : 8;
};

template <int SRC> KVG_DEV void widen(uint4 v, float (&x)[source<SRC>::n])
{
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (SRC == KVG_F32) {
            x[i] = __uint_as_float(w[i]);
        } else if (SRC == KVG_BF16) {
            x[(2 * i) % source<SRC>::n] = __uint_as_float(w[i] << 16);
            x[(2 * i + 1) % source<SRC>::n] = __uint_as_float(w[i] & 0xffff0000u);
        } else {
            x[(2 * i) % source<SRC>::n] = __half2float(__ushort_as_half((uint16_t)w[i]));
            x[(2 * i + 1) % source<SRC>::n] = __half2float(__ushort_as_half((uint16_t)(w[i] >> 16)));
        }
}

KVG_DEV float divide(float x, float scale, float r, bool plain)
{
    if (plain)
        return __fdiv_rn(x, scale);
    const float q = x * r;
    const float fixed = __fmaf_rn(-__fmaf_rn(q, scale, -x), r, q); /* this form keeps -0 */
    return fabsf(q) < 0x1p100f ? fixed : q;
}

/* Four quotients as four codes. */
template <int DST> KVG_DEV uint32_t quantize4(const float *x, float scale, float r, bool plain)
{
    float q[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        q[j] = divide(x[j], scale, r, plain);
    const uint32_t lo = DST == KVG_E4M3 ? kvg_pack_e4m3(q[0], q[1]) : kvg_pack_e5m2(q[0], q[1]);
    const uint32_t hi = DST == KVG_E4M3 ? kvg_pack_e4m3(q[2], q[3]) : kvg_pack_e5m2(q[2], q[3]);
    return lo | hi << 16;
}

enum { KVG_STORE_THREADS = 256, KVG_STORE_AHEAD = 2 };

/* A thread keeps its position in the token (K or V, head, 16 bytes) and advances by KVG_STORE_AHEAD tokens
 * at a time. */
template <int SRC, int DST>
__global__ void __launch_bounds__(KVG_STORE_THREADS) kvg_store_kernel(const __grid_constant__ store_params p)
{
    const int place = blockIdx.y * KVG_STORE_THREADS + threadIdx.x;
    const int sub = p.tokens_a_pass > 1 ? place / p.per_token : 0;
    const int item = place - sub * p.per_token;
    if (item >= p.per_token || sub >= p.tokens_a_pass)
        return;
    const int kv = item >= p.per_token / 2, in_kv = item - kv * (p.per_token / 2);
    const int head = in_kv / p.vectors, vec = in_kv - head * p.vectors;
    constexpr int bytes = DST == KVG_BF16 ? 16 : source<SRC>::n;
    const uint8_t *src = p.src[kv] + head * p.src_head[kv] + vec * 16;
    uint8_t *dst = p.dst[kv] + head * p.dst_head[kv] + vec * bytes;
    const float scale = DST == KVG_BF16 || !p.scale[kv] ? 1.f : p.scale[kv][head * p.scale_stride];
    const float r = __frcp_rn(scale), size = fabsf(scale);
    const bool plain = !(size > 0x1p-60f && size < 0x1p60f);
    const int64_t pass = (int64_t)p.tokens_a_pass * KVG_STORE_AHEAD;
    for (int64_t t = blockIdx.x * pass + sub; t < p.tokens; t += gridDim.x * pass) {
        int64_t slot[KVG_STORE_AHEAD];
        uint4 v[KVG_STORE_AHEAD];
#pragma unroll
        for (int i = 0; i < KVG_STORE_AHEAD; i++) {
            const int64_t token = t + i * p.tokens_a_pass;
            const bool in = token < p.tokens;
            v[i] = in ? __ldcs((const uint4 *)(src + token * p.src_token[kv])) : make_uint4(0, 0, 0, 0);
            slot[i] = in ? p.slot_mapping[token] : -1;
        }
#pragma unroll
        for (int i = 0; i < KVG_STORE_AHEAD; i++) {
            if (slot[i] < 0 || slot[i] >= p.total_slots)
                continue;
            const int64_t block = (int64_t)__umul64hi((uint64_t)slot[i], p.reciprocal);
            uint8_t *to = dst + block * p.dst_block[kv] + (slot[i] - block * p.block_size) * p.dst_slot[kv];
            if (DST == KVG_BF16) {
                __stcs((uint4 *)to, v[i]);
            } else {
                float x[source<SRC>::n];
                widen<SRC>(v[i], x);
                if (SRC == KVG_F32)
                    __stcs((uint32_t *)to, quantize4<DST>(x, scale, r, plain));
                else
                    __stcs((uint2 *)to, make_uint2(quantize4<DST>(x, scale, r, plain),
                                                   quantize4<DST>(x + source<SRC>::n - 4, scale, r, plain)));
            }
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

__global__ void __launch_bounds__(256) kvg_quantize_q_kernel(const __grid_constant__ quantize_q_params p)
{
    const int64_t items = p.tokens * p.q_heads * p.chunks;
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < items; i += (int64_t)gridDim.x * 256) {
        const int chunk = (int)(i % p.chunks);
        const int64_t rest = i / p.chunks;
        const int head = (int)(rest % p.q_heads);
        const int64_t token = rest / p.q_heads;
        const float r = __frcp_rn(p.scale ? p.scale[head / p.group * p.scale_stride] : 1.f);
        float x[8];
        widen<KVG_BF16>(*(const uint4 *)(p.q + token * p.q_token + head * p.q_head + chunk * 8), x);
        uint32_t w[2];
#pragma unroll
        for (int j = 0; j < 2; j++)
            w[j] = kvg_pack_e4m3(__fmul_rn(x[4 * j], r), __fmul_rn(x[4 * j + 1], r)) |
                   (uint32_t)kvg_pack_e4m3(__fmul_rn(x[4 * j + 2], r), __fmul_rn(x[4 * j + 3], r)) << 16;
        *(uint2 *)(p.q8 + token * p.q8_token + head * p.q8_head + chunk * 8) = make_uint2(w[0], w[1]);
    }
}

static int supports(const struct kvg_problem *p, char *why, size_t size)
{
    struct kvg_cuda_device d;
    if (kvg_cuda_device_here(&d, why, size))
        return 0;
    if (d.major < 8) {
        snprintf(why, size, "compiled for compute capability 8.0 and later, this device has %d.%d", d.major,
                 d.minor);
        return 0;
    }
    if (p->phase != KVG_PHASE_STORE && p->path != KVG_PATH_FP8) {
        snprintf(why, size, "this kernel stores K and V and quantises Q; it does not compute attention");
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
        if (p->q_dtype != KVG_BF16 &&
            (p->kv_dtype == KVG_BF16 || (p->q_dtype != KVG_F16 && p->q_dtype != KVG_F32))) {
            snprintf(why, size, "K and V must be bf16, or f16 or f32 with an FP8 cache");
            return 0;
        }
    }
    return 1;
}

/* Grid for `want` passes with `across` blocks side by side, at most blocks_each blocks a multiprocessor.
 * Many short blocks are faster here than few long ones: 128 a multiprocessor reach 87 to 92 % of the copy
 * roof, 16 reach 80 to 86 %. */
static unsigned grid_for(int64_t want, int64_t across, int blocks_each)
{
    struct kvg_cuda_device d;
    char why[160];
    if (kvg_cuda_device_here(&d, why, sizeof why))
        return 1;
    const int64_t most = (int64_t)d.multiprocessors * blocks_each / across + 1;
    return (unsigned)(want < 1 ? 1 : want < most ? want : most);
}

static int store(const struct kvg_store_args *a)
{
    const struct kvg_problem *p = a->problem;
    char why[160];
    if (!supports(p, why, sizeof why) || p->phase != KVG_PHASE_STORE)
        return KVG_EUNSUPPORTED;
    const int64_t es = p->kv_dtype == KVG_BF16 ? 2 : 1, ss = p->q_dtype == KVG_F32 ? 4 : 2;
    const struct kvg_pages *pages[2] = {&a->k_cache, &a->v_cache};
    store_params x = {};
    x.src[0] = (const uint8_t *)a->k, x.src[1] = (const uint8_t *)a->v;
    x.src_token[0] = a->k_stride_token * ss, x.src_token[1] = a->v_stride_token * ss;
    x.src_head[0] = a->k_stride_head * ss, x.src_head[1] = a->v_stride_head * ss;
    for (int s = 0; s < 2; s++) {
        x.dst[s] = (uint8_t *)pages[s]->data;
        x.dst_block[s] = pages[s]->stride_block * es;
        x.dst_slot[s] = pages[s]->stride_slot * es;
        x.dst_head[s] = pages[s]->stride_head * es;
        if (((uintptr_t)x.src[s] | (uintptr_t)x.dst[s] | x.src_token[s] | x.src_head[s] | x.dst_block[s] |
             x.dst_slot[s] | x.dst_head[s]) &
            15)
            return KVG_EUNSUPPORTED;
    }
    x.scale[0] = a->scales.k.data;
    x.scale[1] = a->scales.v.data;
    x.scale_stride = a->scales.k.stride_head;
    x.slot_mapping = a->slot_mapping;
    x.tokens = a->tokens;
    x.total_slots = a->num_blocks * p->block_size;
    x.block_size = (int)p->block_size;
    x.reciprocal = UINT64_MAX / (uint64_t)p->block_size + 1;
    x.vectors = (int)(p->head_dim * ss / 16);
    x.per_token = (int)(2 * p->kv_heads * x.vectors);
    x.tokens_a_pass = x.per_token < KVG_STORE_THREADS ? KVG_STORE_THREADS / x.per_token : 1;
    if (x.total_slots > (int64_t)UINT32_MAX)
        return KVG_EUNSUPPORTED;
    if (a->tokens <= 0)
        return KVG_OK;
    const int64_t across = (x.per_token + KVG_STORE_THREADS - 1) / KVG_STORE_THREADS;
    const int64_t pass = (int64_t)x.tokens_a_pass * KVG_STORE_AHEAD;
    const dim3 grid(grid_for((a->tokens + pass - 1) / pass, across, 128), (unsigned)across);
    cudaStream_t stream = (cudaStream_t)a->stream;
#define KVG_STORE_CASE(SRC, DST)                                                                             \
    if (p->q_dtype == SRC && p->kv_dtype == DST)                                                             \
    kvg_store_kernel<SRC, DST><<<grid, KVG_STORE_THREADS, 0, stream>>>(x)
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

static int quantize_q(const struct kvg_quantize_q_args *a)
{
    const struct kvg_problem *p = a->problem;
    char why[160];
    if (p->path != KVG_PATH_FP8 || !supports(p, why, sizeof why))
        return KVG_EUNSUPPORTED;
    if (((uintptr_t)a->q | (uintptr_t)a->q8 | (a->q_stride_token * 2) | (a->q_stride_head * 2) |
         a->q8_stride_token | a->q8_stride_head) &
        15)
        return KVG_EUNSUPPORTED;
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
    x.scale = a->scales.q.data;
    x.scale_stride = a->scales.q.stride_head;
    x.chunks = (int)(p->head_dim / 8);
    x.q_heads = (int)p->q_heads;
    x.group = (int)(p->q_heads / p->kv_heads);
    kvg_quantize_q_kernel<<<grid_for((p->total_q * p->q_heads * x.chunks + 255) / 256, 1, 16), 256, 0,
                            (cudaStream_t)a->stream>>>(x);
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
    NULL,
    0, /* no features */
};
