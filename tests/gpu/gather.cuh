/* SPDX-License-Identifier: Apache-2.0
 *
 * gather.cuh: the gather roof: kernels that read a case's K and V pages and do nothing else. A thread keeps 8
 * loads of 16 bytes in flight and folds what it reads with xor; a sum that never matches keeps the compiler
 * honest.
 */
#ifndef KVG_TESTS_GPU_GATHER_CUH
#define KVG_TESTS_GPU_GATHER_CUH

#include "bench_case.cuh"

static __device__ inline uint4 fold(uint4 a, uint4 b)
{
    a.x ^= b.x, a.y ^= b.y, a.z ^= b.z, a.w ^= b.w;
    return a;
}

/* Whole pages: 256 threads bring 4 KB of K or V a load, 8 loads at a time. piece: 16 KB of K and 16 KB of V.
 */
static __global__ void __launch_bounds__(256)
    gather_pages(const uint4 *k, const uint4 *v, const int32_t *table, int64_t table_stride, int pages,
                 int64_t page_vecs, int pieces, int64_t total, uint4 *sink)
{
    uint4 x = {0, 0, 0, 0};
    for (int64_t u = blockIdx.x; u < total; u += gridDim.x) {
        const int64_t page = u / pieces, part = u % pieces;
        const int64_t b = page / pages, i = page % pages;
        const int64_t at = table[b * table_stride + i] * page_vecs + part * 1024 + threadIdx.x;
        uint4 r[8];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            r[j] = (part * 1024 + threadIdx.x + 256 * j) < page_vecs ? __ldcs(k + at + 256 * j) : x;
            r[4 + j] = (part * 1024 + threadIdx.x + 256 * j) < page_vecs ? __ldcs(v + at + 256 * j) : x;
        }
#pragma unroll
        for (int j = 0; j < 8; j++)
            x = fold(x, r[j]);
    }
    if (x.x == 0x12345678u && x.y == 0x9abcdef0u && x.z == 0x13579bdfu && x.w == 0x2468ace0u)
        *sink = x;
}

/* One head a block: half of the threads read K, half V; 8 rows of 16 bytes a thread. */
static __global__ void __launch_bounds__(256)
    gather_heads(const uint4 *k, const uint4 *v, const int32_t *table, int64_t table_stride, int64_t len,
                 int block_size, int heads, int row_vecs, int64_t stride_block, int64_t stride_slot,
                 int64_t stride_head, int groups, int64_t total, uint4 *sink)
{
    uint4 x = {0, 0, 0, 0};
    const uint4 *base = threadIdx.x < 128 ? k : v;
    const int lane = threadIdx.x % 128, rows = 128 / row_vecs;
    for (int64_t u = blockIdx.x; u < total; u += gridDim.x) {
        const int64_t h = u % heads, rest = u / heads, b = rest / groups, i = rest % groups;
        uint4 r[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const int64_t t = (i * 8 + j) * rows + lane / row_vecs;
            r[j] = t < len ? __ldcs(base + table[b * table_stride + t / block_size] * stride_block +
                                    t % block_size * stride_slot + h * stride_head + lane % row_vecs)
                           : x;
        }
#pragma unroll
        for (int j = 0; j < 8; j++)
            x = fold(x, r[j]);
    }
    if (x.x == 0x12345678u && x.y == 0x9abcdef0u && x.z == 0x13579bdfu && x.w == 0x2468ace0u)
        *sink = x;
}

static __global__ void __launch_bounds__(256) read_linear(const uint4 *p, int64_t n, uint4 *sink)
{
    uint4 x = {0, 0, 0, 0};
    for (int64_t i = (int64_t)blockIdx.x * 2048 + threadIdx.x; i < n; i += (int64_t)gridDim.x * 2048) {
        uint4 r[8];
#pragma unroll
        for (int j = 0; j < 8; j++)
            r[j] = i + 256 * j < n ? __ldcs(p + i + 256 * j) : x;
#pragma unroll
        for (int j = 0; j < 8; j++)
            x = fold(x, r[j]);
    }
    if (x.x == 0x12345678u && x.y == 0x9abcdef0u && x.z == 0x13579bdfu && x.w == 0x2468ace0u)
        *sink = x;
}

static void launch_gather_pages(const bench_case &c, int grid, uint4 *sink, cudaStream_t st)
{
    const int64_t es = c.s.kv == KVG_BF16 ? 2 : 1;
    const int64_t vecs = c.s.block_size * c.s.kv_heads * c.s.head_dim * es / 16;
    const int pages = (int)((c.s.len + c.s.block_size - 1) / c.s.block_size),
              pieces = (int)((vecs + 1023) / 1024);
    const int64_t total = c.s.batch * pages * pieces;
    gather_pages<<<grid ? (int)std::min<int64_t>(grid, total) : (int)total, 256, 0, st>>>(
        (const uint4 *)c.k, (const uint4 *)c.v, c.d_table, c.table_stride, pages, vecs, pieces, total, sink);
    CU(cudaGetLastError());
}

static void launch_gather_heads(const bench_case &c, int grid, uint4 *sink, cudaStream_t st)
{
    const int64_t es = c.s.kv == KVG_BF16 ? 2 : 1;
    const int row_vecs = (int)(c.s.head_dim * es / 16), rows = 128 / row_vecs;
    const int groups = (int)((c.s.len + 8 * rows - 1) / (8 * rows));
    const int64_t total = c.s.batch * groups * c.s.kv_heads;
    const kvg_pages &g = c.a.k_cache;
    gather_heads<<<grid ? (int)std::min<int64_t>(grid, total) : (int)total, 256, 0, st>>>(
        (const uint4 *)c.k, (const uint4 *)c.v, c.d_table, c.table_stride, c.s.len, (int)c.s.block_size,
        (int)c.s.kv_heads, row_vecs, g.stride_block * es / 16, g.stride_slot * es / 16,
        g.stride_head * es / 16, groups, total, sink);
    CU(cudaGetLastError());
}

#endif
