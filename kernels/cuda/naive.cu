/* SPDX-License-Identifier: Apache-2.0
 *
 * naive.cu: textbook attention in FP32. It is the reference on the GPU for cases that are too large for the
 * CPU.
 *
 * One block computes one (sequence, query token, query head). Each of its warps takes every KVG_WARPS-th
 * visible key, with an online softmax. Nothing is rounded before the output. Any phase, path, dtype, layout,
 * group and block size; head_dim up to 256; output in bf16 or, as a reference, in FP32.
 */
#include "cuda.h"
#include "ptx.cuh"

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <stdio.h>

enum { KVG_WARPS = 16, KVG_MOST_DIMS = 256 };

struct naive_params {
    struct kvg_attention_args a;
    struct kvg_problem p;
};

KVG_DEV float element(const void *base, int64_t i, int dtype)
{
    if (dtype == KVG_BF16)
        return __uint_as_float((uint32_t)((const uint16_t *)base)[i] << 16);
    const uint32_t code = ((const uint8_t *)base)[i];
    uint32_t lo, hi;
    if (dtype == KVG_E4M3)
        kvg_unpack_e4m3(code, lo, hi);
    else
        kvg_unpack_e5m2(code, lo, hi);
    return __half2float(__ushort_as_half((uint16_t)lo));
}

__global__ void __launch_bounds__(32 * KVG_WARPS) kvg_naive_kernel(const __grid_constant__ naive_params x)
{
    __shared__ float part[KVG_WARPS][KVG_MOST_DIMS];
    __shared__ float part_m[KVG_WARPS], part_l[KVG_WARPS];
    const struct kvg_problem &p = x.p;
    const struct kvg_attention_args &a = x.a;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, per = (int)(p.head_dim + 31) / 32;
    const int64_t head = blockIdx.x % p.q_heads, rest = blockIdx.x / p.q_heads;
    const int64_t qi = rest % p.max_q_len, b = rest / p.max_q_len;
    const int64_t len = a.seq_lens[b], q_len = a.cu_q_lens[b + 1] - a.cu_q_lens[b],
                  token = a.cu_q_lens[b] + qi;
    if (qi >= q_len)
        return;
    const int64_t g = head / (p.q_heads / p.kv_heads);
    const int64_t last = p.mask == KVG_MASK_FULL ? len - 1 : len - q_len + qi;
    const int64_t first = p.window > 0 && last - p.window + 1 > 0 ? last - p.window + 1 : 0;
    const float *sq = p.path == KVG_PATH_FP8 ? a.scales.q.data : NULL;
    const float scale = a.softmax_scale * (sq ? sq[g * a.scales.q.stride_head] : 1.f) *
                        (a.scales.k.data ? a.scales.k.data[g * a.scales.k.stride_head] : 1.f);
    float q[KVG_MOST_DIMS / 32], o[KVG_MOST_DIMS / 32];
    for (int i = 0; i < KVG_MOST_DIMS / 32; i++) {
        const int d = lane + 32 * i;
        q[i] = i < per && d < p.head_dim
                   ? element(a.q, token * a.q_stride_token + head * a.q_stride_head + d, p.q_dtype)
                   : 0.f;
        o[i] = 0.f;
    }
    float m = -INFINITY, l = 0.f;
    for (int64_t j = first + warp; j <= last; j += KVG_WARPS) {
        const int64_t block = a.block_table[b * a.block_table_stride + j / p.block_size],
                      slot = j % p.block_size;
        const int64_t at_k =
            block * a.k_cache.stride_block + slot * a.k_cache.stride_slot + g * a.k_cache.stride_head;
        const int64_t at_v =
            block * a.v_cache.stride_block + slot * a.v_cache.stride_slot + g * a.v_cache.stride_head;
        float s = 0.f, v[KVG_MOST_DIMS / 32];
#pragma unroll
        for (int i = 0; i < KVG_MOST_DIMS / 32; i++) {
            const int d = lane + 32 * i;
            const bool in = i < per && d < p.head_dim;
            v[i] = in ? element(a.v_cache.data, at_v + d, p.kv_dtype) : 0.f;
            s += in ? q[i] * element(a.k_cache.data, at_k + d, p.kv_dtype) : 0.f;
        }
        for (int d = 1; d < 32; d *= 2)
            s += __shfl_xor_sync(~0u, s, d);
        s *= scale;
        if (p.soft_cap > 0.f)
            s = p.soft_cap * tanhf(s / p.soft_cap);
        if (s > m) {
            const float shrink = expf(m - s);
            l *= shrink;
#pragma unroll
            for (int i = 0; i < KVG_MOST_DIMS / 32; i++)
                o[i] *= shrink;
            m = s;
        }
        const float w = m == -INFINITY && s == -INFINITY ? 0.f : expf(s - m);
        l += w;
#pragma unroll
        for (int i = 0; i < KVG_MOST_DIMS / 32; i++)
            o[i] += w * v[i];
    }
#pragma unroll
    for (int i = 0; i < KVG_MOST_DIMS / 32; i++)
        part[warp][lane + 32 * i] = o[i];
    if (lane == 0)
        part_m[warp] = m, part_l[warp] = l;
    __syncthreads();
    /* The sink is one more part, whose output is 0. */
    float top = a.sinks ? a.sinks[head] : -INFINITY, sum = 0.f;
    const float sink = top;
    for (int w = 0; w < KVG_WARPS; w++)
        top = fmaxf(top, part_m[w]);
    if (a.sinks)
        sum = expf(sink - top);
    for (int w = 0; w < KVG_WARPS; w++)
        if (part_l[w] != 0.f)
            sum += expf(part_m[w] - top) * part_l[w];
    const float v_scale = a.scales.v.data ? a.scales.v.data[g * a.scales.v.stride_head] : 1.f;
    for (int64_t d = threadIdx.x; d < p.head_dim; d += 32 * KVG_WARPS) {
        float y = 0.f;
        for (int w = 0; w < KVG_WARPS; w++)
            if (part_l[w] != 0.f)
                y += expf(part_m[w] - top) * part[w][d];
        y = sum == 0.f ? 0.f : v_scale * y / sum;
        const int64_t at = token * a.out_stride_token + head * a.out_stride_head + d;
        if (p.out_dtype == KVG_F32)
            ((float *)a.out)[at] = y;
        else
            ((uint16_t *)a.out)[at] = (uint16_t)kvg_pack_bf16(y, 0.f);
    }
    if (threadIdx.x == 0 && a.lse)
        a.lse[token * a.lse_stride_token + head] = sum == 0.f ? -INFINITY : top + logf(sum);
}

static int supports(const struct kvg_problem *p, char *why, size_t size)
{
    struct kvg_cuda_device d;
    const int q_ok = p->path == KVG_PATH_FP8 ? p->q_dtype == KVG_E4M3 : p->q_dtype == KVG_BF16;
    if (kvg_cuda_device_here(&d, why, size))
        return 0;
    if (d.major < 8) {
        snprintf(why, size, "compiled for compute capability 8.0 and later, this device has %d.%d", d.major,
                 d.minor);
        return 0;
    }
    if (p->phase == KVG_PHASE_STORE || !q_ok || (p->out_dtype != KVG_BF16 && p->out_dtype != KVG_F32) ||
        (p->kv_dtype != KVG_BF16 && p->kv_dtype != KVG_E4M3 && p->kv_dtype != KVG_E5M2)) {
        snprintf(why, size,
                 "attention with bf16 (path fp8: e4m3) Q, a bf16, e4m3 or e5m2 cache and bf16 or f32 output");
        return 0;
    }
    if (p->head_dim < 1 || p->head_dim > KVG_MOST_DIMS) {
        snprintf(why, size, "head_dim %lld: this kernel takes up to %d", (long long)p->head_dim,
                 KVG_MOST_DIMS);
        return 0;
    }
    if (p->kv_heads < 1 || p->q_heads % p->kv_heads) {
        snprintf(why, size, "q_heads %lld is not a multiple of kv_heads %lld", (long long)p->q_heads,
                 (long long)p->kv_heads);
        return 0;
    }
    if (p->batch * p->max_q_len > INT32_MAX / p->q_heads) {
        snprintf(why, size, "batch x q_len x heads exceeds 2^31 blocks");
        return 0;
    }
    return 1;
}

static void arithmetic(const struct kvg_problem *p, int64_t seq_len, struct kvg_arithmetic *out)
{
    *out = {};
    out->qk_operand = KVG_F32;
    out->qk_accumulator_bits = 24;
    out->qk_chain = p->head_dim;
    out->exp2_rel_error = 2.4e-7; /* expf: 2 ulp by the CUDA manual */
    out->p_format = KVG_F32;
    out->pv_operand = KVG_F32;
    out->pv_accumulator_bits = 24;
    out->pv_flush_interval = 0;
    out->tile = 1;
    out->split_tokens = 0;
    out->deterministic = 1;
    out->same_bits_under =
        KVG_MOVE_PAGES | KVG_MOVE_HEADS | KVG_MOVE_SEQUENCES | KVG_MOVE_COMPANY | KVG_MOVE_CHUNKS;
    (void)seq_len;
}

static int attention(const struct kvg_attention_args *a)
{
    char why[160];
    if (!supports(a->problem, why, sizeof why))
        return KVG_EUNSUPPORTED;
    naive_params x = {*a, *a->problem};
    const int64_t blocks = x.p.batch * x.p.max_q_len * x.p.q_heads;
    kvg_naive_kernel<<<(unsigned)blocks, 32 * KVG_WARPS, 0, (cudaStream_t)a->stream>>>(x);
    return cudaGetLastError() == cudaSuccess ? KVG_OK : KVG_EDEVICE;
}

extern "C" const struct kvg_kernel kvg_cuda_naive_f32 = {
    KVG_KERNEL_ABI_VERSION,
    sizeof(struct kvg_kernel),
    "cuda/naive_f32",
    "textbook attention in FP32, any shape: the reference on the GPU",
    KVG_DEVICE_CUDA,
    1,
    supports,
    arithmetic,
    NULL,
    NULL,
    NULL,
    NULL,
    attention,
    NULL,
    /* each key is found through the block table */
    KVG_FEATURE_SHARED_PAGES | KVG_FEATURE_SMALL_PAGES | KVG_FEATURE_SINKS,
};
