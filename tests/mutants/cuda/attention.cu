/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.cu: a plug-in of CUDA kernels that are right except for one fault each (faults.def). The faults
 * are those of a GPU that a CPU kernel cannot have.
 *
 * All mutants share one plain decode kernel. A block takes one query head and 256 keys, in tiles of 32, whose
 * V is loaded by asynchronous copies. The splits are in the workspace until a second kernel merges them.
 */
#include "kernels/kernel.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_pipeline.h>
#include <cuda_runtime_api.h>
#include <stdio.h>

enum { THREADS = 256, WARPS = THREADS / 32, TILE = 32, SPLIT = 256, MOST_DIMS = 256 };

enum fault {
#define MUTANT(name, fault_class, diagnosis, checks, words) FAULT_##name,
#include "faults.def"
#undef MUTANT
};

struct call {
    struct kvg_attention_args a;
    struct kvg_problem p;
    int64_t splits; /* of the longest sequence */
    int64_t first_lengths[16];
    int fault;
};
#define FAULT(name) (c.fault == FAULT_##name)

/* A split in the workspace: sum of weights, largest logit, then head_dim sums of p v. */
static __host__ __device__ int64_t split_floats(const struct kvg_problem &p)
{
    return p.head_dim + 2;
}

static __device__ float element(const void *base, int64_t i, int dtype)
{
    if (dtype == KVG_BF16)
        return __bfloat162float(((const __nv_bfloat16 *)base)[i]);
    const __nv_fp8_storage_t code = ((const __nv_fp8_storage_t *)base)[i];
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, dtype == KVG_E4M3 ? __NV_E4M3 : __NV_E5M2)));
}

/* Keys of a sequence, as the mutant takes them. */
static __device__ int64_t length_of(const call &c, int64_t b)
{
    if (FAULT(lengths_of_first_call) && c.p.batch <= 16)
        return c.first_lengths[b];
    return FAULT(longest_length) ? c.p.max_seq_len : c.a.seq_lens[b];
}

static __device__ int64_t row_of(const call &c, const struct kvg_pages &pages, int64_t b, int64_t j,
                                 int64_t g)
{
    const int64_t page = c.a.block_table[b * c.a.block_table_stride + j / c.p.block_size];
    const int64_t at = FAULT(page_offset_32bit)
                           ? (int64_t)(uint32_t)((uint32_t)page * (uint32_t)pages.stride_block)
                           : page * pages.stride_block;
    return at + j % c.p.block_size * pages.stride_slot + g * pages.stride_head;
}

static __device__ float sum_of_lanes(float x, int lanes)
{
    for (int d = 1; d < lanes; d *= 2)
        x += __shfl_xor_sync(~0u, x, d);
    return x;
}

static __device__ float *split_of(const call &c, int64_t b, int64_t head, int64_t s)
{
    return (float *)c.a.workspace + ((b * c.p.q_heads + head) * c.splits + s) * split_floats(c.p) + 4;
}

static __device__ void merge(const call &c, int64_t b, int64_t head);

static __device__ void copy_v(const call &c, uint8_t (*v)[2 * MOST_DIMS], int64_t b, int64_t g, int64_t from,
                              int64_t end)
{
    const int64_t es = c.p.kv_dtype == KVG_BF16 ? 2 : 1, row = c.p.head_dim * es;
    for (int64_t i = threadIdx.x * 4; i < TILE * row; i += THREADS * 4)
        if (from + i / row < end)
            __pipeline_memcpy_async(&v[i / row][i % row],
                                    (const uint8_t *)c.a.v_cache.data +
                                        row_of(c, c.a.v_cache, b, from + i / row, g) * es + i % row,
                                    4);
    __pipeline_commit();
}

/* Logits of the keys of a tile; each warp computes one key at a time. */
static __device__ void logits(const call &c, const float *q, float *s, int64_t b, int64_t head, int64_t g,
                              int64_t from, int64_t end)
{
    const int lane = threadIdx.x % 32;
    const float scale =
        c.a.softmax_scale * (c.a.scales.k.data ? c.a.scales.k.data[g * c.a.scales.k.stride_head] : 1.f);
    for (int t = threadIdx.x / 32; t < TILE; t += WARPS) {
        float x = 0;
        if (from + t < end) {
            const int64_t at = row_of(c, c.a.k_cache, b, from + t, g);
            for (int64_t d = lane; d < c.p.head_dim; d += 32)
                x += q[d] * element(c.a.k_cache.data, at + d, c.p.kv_dtype);
        }
        x = sum_of_lanes(x, FAULT(half_warp_sum) ? 16 : 32) * scale;
        if (FAULT(no_barrier))
            for (int wait = 0; wait < 200 * (int)(threadIdx.x / 32); wait++)
                __nanosleep(0); /* the warps drift apart, as in a longer kernel */
        if (lane == 0)
            s[t] = from + t < end ? x : -INFINITY;
    }
}

static __global__ void __launch_bounds__(THREADS) attend(const __grid_constant__ call c)
{
    __shared__ float q[MOST_DIMS], s[TILE];
    __shared__ alignas(16) uint8_t v[TILE][2 * MOST_DIMS];
    const int64_t b = blockIdx.z, head = blockIdx.y, split = blockIdx.x, d = threadIdx.x;
    const int64_t g = head / (c.p.q_heads / c.p.kv_heads), token = c.a.cu_q_lens[b];
    int64_t end = length_of(c, b);
    if (FAULT(shared_memory_limit) && end > 1024)
        end = 1024;
    if (FAULT(illegal_address) && end > 100 && d == 0 && head == 0 && split == 0)
        ((volatile float *)c.a.workspace)[0] = element(c.a.k_cache.data, INT64_C(1) << 46, c.p.kv_dtype);
    if (FAULT(hangs) && end > 100)
        while (((volatile uint32_t *)c.a.block_table)[0] != 0xabcdef01u)
            __nanosleep(1000);
    const int64_t first = split * SPLIT, last = first + SPLIT < end ? first + SPLIT : end;
    const int64_t shown = FAULT(tail_not_masked) ? (last + TILE - 1) / TILE * TILE : last;
    for (int64_t i = d; i < c.p.head_dim; i += THREADS) {
        uint16_t *at = (uint16_t *)c.a.q + token * c.a.q_stride_token + head * c.a.q_stride_head + i;
        q[i] = __bfloat162float(*(const __nv_bfloat16 *)at);
        if (FAULT(scales_q_in_place) && split == 0)
            *(__nv_bfloat16 *)at = __float2bfloat16(q[i] * c.a.softmax_scale);
    }
    __syncthreads();
    float m = -INFINITY, l = 0, acc = 0;
    __half acc_half = __float2half(0);
    for (int64_t from = first; from < last; from += TILE) {
        copy_v(c, v, b, g, from, shown);
        logits(c, q, s, b, head, g, from, shown);
        __pipeline_wait_prior(0);
        if (!FAULT(no_barrier))
            __syncthreads();
        float top = m;
        for (int t = 0; t < TILE; t++)
            top = fmaxf(top, s[t]);
        const float shrink = m == -INFINITY ? 0 : expf(m - top);
        l *= shrink, acc *= shrink, acc_half = __float2half(__half2float(acc_half) * shrink), m = top;
        for (int t = 0; t < TILE && from + t < shown; t++) {
            const float w = expf(s[t] - top);
            const float value = d < c.p.head_dim ? element(v[t], d, c.p.kv_dtype) : 0;
            l += w;
            acc += w * value;
            acc_half = __hadd(acc_half, __float2half(w * value));
        }
        __syncthreads();
    }
    float *out = split_of(c, b, head, split);
    if (d == 0)
        out[0] = l, out[1] = m;
    if (d < c.p.head_dim)
        out[2 + d] = FAULT(half_accumulator) ? __half2float(acc_half) : acc;
    if (!FAULT(counter_not_reset))
        return;
    __threadfence();
    __syncthreads();
    __shared__ int mine;
    if (d == 0)
        mine = atomicAdd((uint32_t *)c.a.workspace, 1u) == gridDim.x * gridDim.y * gridDim.z - 1;
    __syncthreads();
    for (int64_t i = 0; mine && i < c.p.batch * c.p.q_heads; i++)
        merge(c, i / c.p.q_heads, i % c.p.q_heads);
}

static __device__ void merge(const call &c, int64_t b, int64_t head)
{
    const int64_t g = head / (c.p.q_heads / c.p.kv_heads), token = c.a.cu_q_lens[b], d = threadIdx.x;
    const int64_t used = FAULT(unused_splits_merged) ? c.splits : (length_of(c, b) + SPLIT - 1) / SPLIT;
    float top = -INFINITY, l = 0, acc = 0;
    for (int64_t s = 0; s < used; s++)
        top = fmaxf(top, split_of(c, b, head, s)[1]);
    for (int64_t s = 0; s < used; s++) {
        const float *x = split_of(c, b, head, s);
        const float w = FAULT(split_weights_missing) ? 1 : expf(x[1] - top);
        l += w * x[0];
        acc += d < c.p.head_dim ? w * x[2 + d] : 0;
    }
    if (FAULT(empty_split_nan))
        acc += expf(top - top) - 1;
    const float v_scale = c.a.scales.v.data ? c.a.scales.v.data[g * c.a.scales.v.stride_head] : 1.f;
    const int64_t at = token * c.a.out_stride_token + head * c.a.out_stride_head + d;
    const float y = l == 0 && !FAULT(empty_split_nan) ? 0 : acc * v_scale / l;
    if (d < c.p.head_dim ||
        (FAULT(writes_past_out) && d < MOST_DIMS && head == c.p.q_heads - 1 && b == c.p.batch - 1))
        ((__nv_bfloat16 *)c.a.out)[at] = __float2bfloat16(d < c.p.head_dim ? y : 0);
    if (d == 0 && c.a.lse) {
        const float lse = l == 0 ? -INFINITY : top + logf(l);
        float *to = c.a.lse + token * c.a.lse_stride_token + head;
        *to = FAULT(lse_base_2) ? lse * 1.44269504f : lse;
        if (FAULT(writes_before_lse) && head == 0 && b == 0)
            to[-1] = lse;
    }
}

static __global__ void __launch_bounds__(THREADS) merge_all(const __grid_constant__ call c)
{
    merge(c, blockIdx.y, blockIdx.x);
}

/* Adds the splits of a row in the order in which its warps arrive, by atomics. */
static __global__ void __launch_bounds__(THREADS) merge_by_atomics(const __grid_constant__ call c)
{
    __shared__ float acc[MOST_DIMS], l;
    const int64_t b = blockIdx.y, head = blockIdx.x, g = head / (c.p.q_heads / c.p.kv_heads);
    const int64_t used = (length_of(c, b) + SPLIT - 1) / SPLIT, token = c.a.cu_q_lens[b];
    float top = -INFINITY;
    for (int64_t s = 0; s < used; s++)
        top = fmaxf(top, split_of(c, b, head, s)[1]);
    for (int64_t d = threadIdx.x; d < MOST_DIMS; d += THREADS)
        acc[d] = 0;
    if (threadIdx.x == 0)
        l = 0;
    __syncthreads();
    /* each warp waits for a time that depends on the clock */
    const int64_t now = clock64(), until = now + now / 64 % 8 * 300 * (threadIdx.x / 32 + 1);
    while (clock64() < until)
        ;
    for (int64_t i = threadIdx.x / 32; i < used; i += WARPS) {
        const float *x = split_of(c, b, head, i), w = expf(x[1] - top);
        for (int64_t d = threadIdx.x % 32; d < c.p.head_dim; d += 32)
            atomicAdd(&acc[d], w * x[2 + d]);
        if (threadIdx.x % 32 == 0)
            atomicAdd(&l, w * x[0]);
    }
    __syncthreads();
    const float v_scale = c.a.scales.v.data ? c.a.scales.v.data[g * c.a.scales.v.stride_head] : 1.f;
    for (int64_t d = threadIdx.x; d < c.p.head_dim; d += THREADS)
        ((__nv_bfloat16 *)c.a.out)[token * c.a.out_stride_token + head * c.a.out_stride_head + d] =
            __float2bfloat16(l == 0 ? 0 : acc[d] * v_scale / l);
    if (threadIdx.x == 0 && c.a.lse)
        c.a.lse[token * c.a.lse_stride_token + head] = l == 0 ? -INFINITY : top + logf(l);
}

/* ---------------------------------------------------------------- host side */

static int supports(const struct kvg_problem *p, char *why, size_t size)
{
    if (p->phase == KVG_PHASE_DECODE && p->path == KVG_PATH_DEQUANT && p->head_dim <= MOST_DIMS &&
        p->head_dim % 8 == 0 && !p->window && p->soft_cap == 0.f &&
        (p->kv_dtype == KVG_BF16 || p->kv_dtype == KVG_E4M3 || p->kv_dtype == KVG_E5M2))
        return 1;
    snprintf(why, size, "the CUDA mutants take decode on path dequant without window and soft cap");
    return 0;
}

static void arithmetic(const struct kvg_problem *p, int64_t, struct kvg_arithmetic *out)
{
    *out = {};
    out->qk_operand = KVG_F32;
    out->qk_accumulator_bits = 24;
    out->qk_chain = p->head_dim / 32 + 5;
    out->exp2_rel_error = 2.4e-7; /* expf: 2 ulp by the CUDA manual */
    out->p_format = KVG_F32;
    out->pv_operand = KVG_F32;
    out->pv_accumulator_bits = 24;
    out->tile = TILE;
    out->split_tokens = SPLIT;
    out->deterministic = 1;
    out->same_bits_under = KVG_MOVE_PAGES | KVG_MOVE_HEADS | KVG_MOVE_SEQUENCES;
}

static int64_t splits_of(const struct kvg_problem *p)
{
    return (p->max_seq_len + SPLIT - 1) / SPLIT + 1; /* includes one that no sequence uses */
}

static int64_t workspace_bytes(const struct kvg_problem *p)
{
    return 16 + p->batch * p->q_heads * splits_of(p) * split_floats(*p) * (int64_t)sizeof(float);
}

/* Sets the lengths to those of the first call of this batch size. */
static int first_lengths(call *c)
{
    static int64_t kept[16], batch;
    int32_t now[16];
    if (c->p.batch > 16)
        return KVG_OK;
    if (batch != c->p.batch) {
        if (cudaMemcpyAsync(now, c->a.seq_lens, 4 * c->p.batch, cudaMemcpyDeviceToHost,
                            (cudaStream_t)c->a.stream) ||
            cudaStreamSynchronize((cudaStream_t)c->a.stream))
            return KVG_EDEVICE;
        for (int64_t i = 0; i < c->p.batch; i++)
            kept[i] = now[i];
        batch = c->p.batch;
    }
    for (int64_t i = 0; i < c->p.batch; i++)
        c->first_lengths[i] = kept[i];
    return KVG_OK;
}

static int run(int fault, const struct kvg_attention_args *a)
{
    static cudaStream_t own;
    call c = {*a, *a->problem, splits_of(a->problem), {}, fault};
    cudaStream_t stream = (cudaStream_t)a->stream, second = stream;
    if (a->workspace_bytes < workspace_bytes(a->problem))
        return KVG_EINVAL;
    if ((FAULT(own_stream) || FAULT(merge_on_own_stream)) && !own &&
        cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking) != cudaSuccess)
        return KVG_EDEVICE;
    if (FAULT(own_stream))
        stream = second = own;
    if (FAULT(merge_on_own_stream))
        second = own;
    if (FAULT(lengths_of_first_call) && first_lengths(&c))
        return KVG_EDEVICE;
    const dim3 grid((unsigned)c.splits, (unsigned)c.p.q_heads, (unsigned)c.p.batch);
    const dim3 rows((unsigned)c.p.q_heads, (unsigned)c.p.batch);
    attend<<<grid, THREADS, FAULT(launch_fails) ? 1 << 20 : 0, stream>>>(c);
    if (FAULT(launch_fails))
        return cudaGetLastError(), KVG_OK;
    if (FAULT(atomic_sum))
        merge_by_atomics<<<rows, THREADS, 0, second>>>(c);
    else if (!FAULT(counter_not_reset))
        merge_all<<<rows, THREADS, 0, second>>>(c);
    return cudaGetLastError() == cudaSuccess ? KVG_OK : KVG_EDEVICE;
}

#define MUTANT(id, fault_class, diagnosis, checks, words)                                                    \
    static int attention_##id(const struct kvg_attention_args *a)                                            \
    {                                                                                                        \
        return run(FAULT_##id, a);                                                                           \
    }                                                                                                        \
    static const struct kvg_kernel kernel_##id = {KVG_KERNEL_ABI_VERSION,                                    \
                                                  sizeof(struct kvg_kernel),                                 \
                                                  "cuda_mutant/" #id,                                        \
                                                  words,                                                     \
                                                  KVG_DEVICE_CUDA,                                           \
                                                  -1,                                                        \
                                                  supports,                                                  \
                                                  arithmetic,                                                \
                                                  workspace_bytes,                                           \
                                                  NULL,                                                      \
                                                  NULL,                                                      \
                                                  NULL,                                                      \
                                                  attention_##id,                                            \
                                                  NULL};
#include "faults.def"
#undef MUTANT

extern "C" const struct kvg_kernel *const *kvg_plugin_kernels(int64_t *count)
{
#define MUTANT(id, fault_class, diagnosis, checks, words) &kernel_##id,
    static const struct kvg_kernel *const kernels[] = {
#include "faults.def"
    };
#undef MUTANT
    *count = (int64_t)(sizeof kernels / sizeof kernels[0]);
    return kernels;
}
