/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_case.cuh: one decode case on the device: caches with shuffled pages and NaN in every slot that no
 * sequence owns, Q, scales and block table. Also runs it and compares results.
 */
#ifndef KVG_TESTS_GPU_BENCH_CASE_CUH
#define KVG_TESTS_GPU_BENCH_CASE_CUH

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/decode_sm90.h"
#include "kernels/scales.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <vector>

#define CU(x)                                                                                                \
    do {                                                                                                     \
        const cudaError_t e_ = (x);                                                                          \
        if (e_ != cudaSuccess) {                                                                             \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(e_));              \
            exit(3);                                                                                         \
        }                                                                                                    \
    } while (0)
#define KVG(x)                                                                                               \
    do {                                                                                                     \
        const int r_ = (x);                                                                                  \
        if (r_) {                                                                                            \
            fprintf(stderr, "%s:%d: %s returned %d (%s)\n", __FILE__, __LINE__, #x, r_,                      \
                    cudaGetErrorString(cudaGetLastError()));                                                 \
            exit(3);                                                                                         \
        }                                                                                                    \
    } while (0)

static __host__ __device__ inline uint32_t mix32(uint64_t x)
{
    x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull, x ^= x >> 33;
    return (uint32_t)(x >> 16);
}
static __device__ inline float normal(uint64_t i, uint64_t seed)
{
    const float u = (mix32(i * 2 + (seed << 40)) + 0.5f) * 0x1p-32f,
                v = mix32(i * 2 + 1 + (seed << 40)) * 0x1p-32f;
    return sqrtf(-2.f * __logf(u)) * __cosf(6.2831853f * v);
}

struct spec {
    int64_t batch, len, q_heads, kv_heads, head_dim, block_size;
    kvg_path path;
    kvg_dtype kv;
    int layout, ragged, per_head, nonneg, q_len;
    int64_t window;
    float cap;
    int causal;
    int sinks; /* 1: a sink for each query head, from -10 to 10 */
};

static __global__ void fill_pages(uint8_t *data, int dtype, kvg_pages pages, const int32_t *table,
                                  int64_t table_stride, const int32_t *lens, int64_t block_size, int heads,
                                  int dim, const float *scale, int64_t scale_stride, int nonneg,
                                  uint64_t seed)
{
    const int b = blockIdx.y;
    const int64_t n = (int64_t)lens[b] * heads * dim;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t d = i % dim, h = i / dim % heads, t = i / dim / heads;
        float x = normal(i, seed * 1000 + b);
        if (nonneg)
            x = fabsf(x);
        const int64_t at = table[b * table_stride + t / block_size] * pages.stride_block +
                           t % block_size * pages.stride_slot + h * pages.stride_head + d;
        if (dtype == KVG_BF16)
            ((__nv_bfloat16 *)data)[at] = __float2bfloat16(x);
        else
            data[at] = __nv_cvt_float_to_fp8(x / scale[h * scale_stride], __NV_SATFINITE,
                                             dtype == KVG_E4M3 ? __NV_E4M3 : __NV_E5M2);
    }
}
static __global__ void fill_q(__nv_bfloat16 *q, int64_t n, uint64_t seed)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        q[i] = __float2bfloat16(normal(i, seed));
}

struct bench_case {
    spec s;
    kvg_problem p;
    kvg_attention_args a;
    std::vector<int32_t> lens, cu, table;
    std::vector<float> scale_h, sinks_h;
    int64_t table_stride, num_blocks, kv_bytes, elements;
    void *k, *v, *q, *q8, *out, *ws;
    float *lse, *scale, *ref, *ref_lse;
    int32_t *d_table, *d_lens, *d_cu;
    int64_t ws_bytes;
};

/* Memory that all cases share, so that no allocation happens between measurements. take() gives the next n
 * bytes, or ends the program with exit code 3. */
struct arena {
    char *base;
    int64_t size, used;
    void *take(int64_t n)
    {
        n = (n + 1023) / 1024 * 1024;
        if (used + n > size) {
            fprintf(stderr, "arena: %lld bytes needed, %lld left\n", (long long)n, (long long)(size - used));
            exit(3);
        }
        void *p = base + used;
        used += n;
        return p;
    }
};

static void make_case(arena &m, const spec &s, bench_case &c, uint64_t seed, int64_t ws_bytes)
{
    m.used = 0;
    c.s = s;
    c.lens.assign(s.batch, (int32_t)s.len);
    c.cu.assign(s.batch + 1, 0);
    if (s.ragged)
        for (int64_t b = 0; b < s.batch; b++) {
            static const int edge[] = {0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129};
            const uint32_t r = mix32(seed * 77 + b);
            c.lens[b] = b == 0 ? (int32_t)s.len : r % 3 == 0 ? edge[r / 3 % 14] : (int32_t)(r % (s.len + 1));
            c.lens[b] = std::min<int32_t>(c.lens[b], (int32_t)s.len);
        }
    for (int64_t b = 0; b < s.batch; b++) {
        int q = s.q_len == 1 ? 1 : s.ragged ? 1 + (int)(mix32(seed * 99 + b) % s.q_len) : s.q_len;
        if (b == 0)
            q = s.q_len;
        if (s.q_len > 1 && q > c.lens[b])
            q = c.lens[b];
        c.cu[b + 1] = c.cu[b] + q;
    }
    memset(&c.p, 0, sizeof c.p);
    c.p.phase = s.q_len == 1 ? KVG_PHASE_DECODE : KVG_PHASE_APPEND;
    c.p.path = s.path;
    c.p.q_dtype = s.path == KVG_PATH_FP8 ? KVG_E4M3 : KVG_BF16;
    c.p.kv_dtype = s.kv;
    c.p.out_dtype = KVG_BF16;
    c.p.scheme = s.per_head ? KVG_PER_HEAD : KVG_PER_TENSOR;
    c.p.layout = (kvg_layout)s.layout;
    c.p.batch = s.batch, c.p.q_heads = s.q_heads, c.p.kv_heads = s.kv_heads, c.p.head_dim = s.head_dim;
    c.p.block_size = s.block_size, c.p.total_q = c.cu[s.batch], c.p.max_q_len = s.q_len,
    c.p.max_seq_len = s.len;
    c.p.window = s.window, c.p.soft_cap = s.cap, c.p.mask = s.causal ? KVG_MASK_CAUSAL : KVG_MASK_FULL;
    c.table_stride = (s.len + s.block_size - 1) / s.block_size + 3;
    int64_t pages = 0;
    for (int64_t b = 0; b < s.batch; b++) {
        c.p.total_kv += c.lens[b];
        pages += (c.lens[b] + s.block_size - 1) / s.block_size;
    }
    c.num_blocks = pages + 5;
    std::vector<int32_t> perm(c.num_blocks);
    for (int64_t i = 0; i < c.num_blocks; i++)
        perm[i] = (int32_t)i;
    for (int64_t i = c.num_blocks - 1; i > 0; i--)
        std::swap(perm[i], perm[mix32(seed * 1315423911u + i) % (i + 1)]);
    c.table.assign(s.batch * c.table_stride, -1);
    int64_t next = 0;
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t i = 0; i * s.block_size < c.lens[b]; i++)
            c.table[b * c.table_stride + i] = perm[next++];
    const int64_t es = s.kv == KVG_BF16 ? 2 : 1, row = s.head_dim, token = row * s.kv_heads;
    kvg_pages g = {NULL, token * s.block_size, s.layout == KVG_NHD ? token : row,
                   s.layout == KVG_NHD ? row : row * s.block_size};
    c.elements = c.num_blocks * token * s.block_size;
    c.kv_bytes = 2 * c.p.total_kv * token * es;
    c.k = m.take(c.elements * es), c.v = m.take(c.elements * es);
    CU(cudaMemset(c.k, 0xff, c.elements * es));
    CU(cudaMemset(c.v, 0xff, c.elements * es));
    const int64_t nq = std::max<int64_t>(1, c.p.total_q) * s.q_heads * s.head_dim;
    c.q = m.take(2 * nq), c.q8 = m.take(nq), c.out = m.take(2 * nq), c.ref = (float *)m.take(4 * nq);
    c.lse = (float *)m.take(4 * nq / s.head_dim), c.ref_lse = (float *)m.take(4 * nq / s.head_dim);
    c.d_table = (int32_t *)m.take(4 * c.table.size());
    c.d_lens = (int32_t *)m.take(4 * s.batch), c.d_cu = (int32_t *)m.take(4 * (s.batch + 1));
    const int n_scale = s.per_head ? (int)s.kv_heads : 1;
    c.scale = (float *)m.take(12 * n_scale);
    c.scale_h.resize(3 * n_scale);
    for (int i = 0; i < 3 * n_scale; i++)
        c.scale_h[i] = (1.f + (s.per_head ? (mix32(seed + i) % 100) * 0.02f : 0.f)) / 80.f;
    CU(cudaMemcpy(c.scale, c.scale_h.data(), 12 * n_scale, cudaMemcpyHostToDevice));
    CU(cudaMemcpy(c.d_table, c.table.data(), 4 * c.table.size(), cudaMemcpyHostToDevice));
    CU(cudaMemcpy(c.d_lens, c.lens.data(), 4 * s.batch, cudaMemcpyHostToDevice));
    CU(cudaMemcpy(c.d_cu, c.cu.data(), 4 * (s.batch + 1), cudaMemcpyHostToDevice));
    memset(&c.a, 0, sizeof c.a);
    c.a.problem = &c.p;
    c.a.q_stride_token = s.q_heads * s.head_dim, c.a.q_stride_head = s.head_dim;
    c.a.k_cache = g, c.a.v_cache = g;
    c.a.k_cache.data = c.k, c.a.v_cache.data = c.v;
    c.a.num_blocks = c.num_blocks, c.a.block_table = c.d_table, c.a.block_table_stride = c.table_stride;
    c.a.seq_lens = c.d_lens, c.a.cu_q_lens = c.d_cu;
    c.a.scales =
        kvg_scales_of(s.path == KVG_PATH_FP8 ? c.scale : NULL, s.kv != KVG_BF16 ? c.scale + n_scale : NULL,
                      s.kv != KVG_BF16 ? c.scale + 2 * n_scale : NULL, s.per_head);
    c.a.softmax_scale = 1.f / sqrtf((float)s.head_dim);
    c.sinks_h.clear();
    if (s.sinks) {
        for (int64_t h = 0; h < s.q_heads; h++)
            c.sinks_h.push_back((mix32(seed * 7919 + h) % 2001) * 0.01f - 10.f);
        float *sinks = (float *)m.take(4 * s.q_heads);
        CU(cudaMemcpy(sinks, c.sinks_h.data(), 4 * s.q_heads, cudaMemcpyHostToDevice));
        c.a.sinks = sinks;
        c.p.features = KVG_FEATURE_SINKS;
    }
    c.a.out = c.out, c.a.out_stride_token = s.q_heads * s.head_dim, c.a.out_stride_head = s.head_dim;
    c.a.lse = c.lse, c.a.lse_stride_token = s.q_heads;
    const dim3 grid(s.batch > 16 ? 64 : 1024, (unsigned)s.batch);
    fill_pages<<<grid, 256>>>((uint8_t *)c.k, s.kv, g, c.d_table, c.table_stride, c.d_lens, s.block_size,
                              (int)s.kv_heads, (int)s.head_dim, c.a.scales.k.data, s.per_head, 0,
                              2 * seed + 1);
    fill_pages<<<grid, 256>>>((uint8_t *)c.v, s.kv, g, c.d_table, c.table_stride, c.d_lens, s.block_size,
                              (int)s.kv_heads, (int)s.head_dim, c.a.scales.v.data, s.per_head, s.nonneg,
                              2 * seed + 2);
    fill_q<<<64, 256>>>((__nv_bfloat16 *)c.q, c.p.total_q * s.q_heads * s.head_dim, 3 * seed + 7);
    CU(cudaGetLastError());
    c.a.q = c.q;
    if (s.path == KVG_PATH_FP8) {
        kvg_quantize_q_args qa = {};
        qa.problem = &c.p, qa.q = c.q, qa.q8 = c.q8, qa.scales = c.a.scales;
        qa.q_stride_token = qa.q8_stride_token = s.q_heads * s.head_dim;
        qa.q_stride_head = qa.q8_stride_head = s.head_dim;
        KVG(kvg_cuda_store.quantize_q(&qa));
        c.a.q = c.q8;
    }
    c.ws_bytes = ws_bytes;
    c.ws = m.take(ws_bytes);
    c.a.workspace = c.ws, c.a.workspace_bytes = ws_bytes;
    CU(cudaMemset(c.ws, 0xff, ws_bytes));
    CU(cudaDeviceSynchronize());
}

/* Computes the FP32 reference with the naive kernel, into c.ref and c.ref_lse. */
static void run_naive(bench_case &c)
{
    kvg_problem p = c.p;
    p.out_dtype = KVG_F32;
    kvg_attention_args a = c.a;
    a.problem = &p, a.out = c.ref, a.lse = c.ref_lse;
    CU(cudaMemset(c.ref, 0xff, 4 * c.p.total_q * c.s.q_heads * c.s.head_dim));
    KVG(kvg_cuda_naive_f32.attention(&a));
    CU(cudaDeviceSynchronize());
}

struct verdict {
    double rel, gain, lse;
    int bad; /* values that are not finite, or LSE that differ in their infinities */
};

static verdict compare(const bench_case &c)
{
    const int64_t rows = c.p.total_q * c.s.q_heads, n = rows * c.s.head_dim;
    std::vector<uint16_t> out(n);
    std::vector<float> ref(n), lse(rows), ref_lse(rows);
    CU(cudaMemcpy(out.data(), c.out, 2 * n, cudaMemcpyDeviceToHost));
    CU(cudaMemcpy(ref.data(), c.ref, 4 * n, cudaMemcpyDeviceToHost));
    CU(cudaMemcpy(lse.data(), c.lse, 4 * rows, cudaMemcpyDeviceToHost));
    CU(cudaMemcpy(ref_lse.data(), c.ref_lse, 4 * rows, cudaMemcpyDeviceToHost));
    verdict v = {0, 0, 0, 0};
    double num = 0, den = 0, dot = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t w = (uint32_t)out[i] << 16;
        float x;
        memcpy(&x, &w, 4);
        if (!std::isfinite(x) || !std::isfinite(ref[i]))
            v.bad++;
        num += ((double)x - ref[i]) * ((double)x - ref[i]), den += (double)ref[i] * ref[i],
            dot += (double)x * ref[i];
    }
    v.rel = den > 0 ? sqrt(num / den) : num > 0;
    v.gain = den > 0 ? dot / den : 1;
    for (int64_t i = 0; i < rows; i++) {
        if (std::isinf(ref_lse[i]) || std::isinf(lse[i])) {
            if (ref_lse[i] != lse[i])
                v.bad++;
        } else if (std::isnan(lse[i]))
            v.bad++;
        else
            v.lse = std::max(v.lse, (double)fabsf(lse[i] - ref_lse[i]));
    }
    return v;
}

#endif
