/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.cu: kernels that only move bytes or wait: those that measure the roofs, the flush of the caches,
 * and the wait that hides the cost of a launch. A thread keeps 8 loads of 16 bytes in flight and combines
 * the values with xor. It writes the result to a sink only when it equals one rare value: so the compiler
 * cannot remove the loads, and almost nothing is written.
 */
#include "launch.h"

/* With four resident blocks per multiprocessor a thread has enough registers for eight loads. Without the
 * bound the compiler saves registers and waits for every second load. */
enum { THREADS = 256, RESIDENT = 4, AHEAD = 8, TILE = THREADS * AHEAD };

__device__ inline uint4 fold(uint4 a, uint4 b)
{
    a.x ^= b.x, a.y ^= b.y, a.z ^= b.z, a.w ^= b.w;
    return a;
}
__device__ inline uint32_t fold(uint32_t a, uint32_t b)
{
    return a ^ b;
}
__device__ inline uint8_t fold(uint8_t a, uint8_t b)
{
    return a ^ b;
}
__device__ inline bool rare(uint4 x)
{
    return x.x == 0x12345678u && x.y == 0x9abcdef0u && x.z == 0x13579bdfu && x.w == 0x2468ace0u;
}
__device__ inline bool rare(uint32_t x)
{
    return x == 0x12345678u;
}
__device__ inline bool rare(uint8_t x)
{
    return x == 0x5a;
}

static unsigned grid_of(int64_t blocks, int64_t pieces)
{
    const int64_t n = blocks && blocks < pieces ? blocks : pieces;
    return (unsigned)(n < 1 ? 1 : n < INT32_MAX ? n : INT32_MAX);
}

/* ---------------------------------------------------------------- linear */

/* Cache policy of a load. Streaming data is evicted first; ordinary data replaces what the cache holds. */
enum { STREAMING, ORDINARY };
template <int HOW> __device__ inline uint4 load(const uint4 *p)
{
    return HOW == STREAMING ? __ldcs(p) : __ldcg(p);
}

template <int HOW>
__global__ void __launch_bounds__(THREADS, RESIDENT) read_kernel(const uint4 *data, int64_t n, uint4 *sink)
{
    uint4 x = {0, 0, 0, 0};
    for (int64_t i = (int64_t)blockIdx.x * TILE + threadIdx.x; i < n; i += (int64_t)gridDim.x * TILE) {
        uint4 r[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            r[j] = i + THREADS * j < n ? load<HOW>(data + i + THREADS * j) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            x = fold(x, r[j]);
    }
    if (rare(x))
        *sink = x;
}

__global__ void __launch_bounds__(THREADS, RESIDENT) copy_kernel(uint4 *to, const uint4 *from, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * TILE + threadIdx.x; i < n; i += (int64_t)gridDim.x * TILE) {
        uint4 r[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (i + THREADS * j < n)
                r[j] = __ldcs(from + i + THREADS * j);
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (i + THREADS * j < n)
                __stcs(to + i + THREADS * j, r[j]);
    }
}

/* Volatile, so that every round reads the cache again. */
__device__ inline uint4 load_last_cache(const uint4 *p)
{
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* The blocks read the tiles of the buffer in turn, in many rounds. */
__global__ void __launch_bounds__(THREADS, RESIDENT)
    read_cached_kernel(const uint4 *data, unsigned tiles, unsigned pieces, uint4 *sink)
{
    uint4 x = {0, 0, 0, 0};
    for (unsigned piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        const uint4 *p = data + (int64_t)(piece % tiles) * TILE + threadIdx.x;
        uint4 r[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            r[j] = load_last_cache(p + THREADS * j);
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            x = fold(x, r[j]);
    }
    if (rare(x))
        *sink = x;
}

__global__ void __launch_bounds__(THREADS) write_kernel(uint4 *data, int64_t n, uint32_t value)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS) {
        const uint32_t w = (uint32_t)i * 0x9e3779b1u ^ value;
        data[i] = make_uint4(w, w * 0x85ebca77u, w ^ 0x5bd1e995u, w * 0xc2b2ae3du);
    }
}

extern "C" cudaError_t kvg_launch_read(const void *data, int64_t bytes, int64_t blocks, void *sink,
                                       cudaStream_t stream)
{
    const int64_t n = bytes / 16;
    read_kernel<STREAMING><<<grid_of(blocks, (n + TILE - 1) / TILE), THREADS, 0, stream>>>(
        (const uint4 *)data, n, (uint4 *)sink);
    return cudaGetLastError();
}

extern "C" cudaError_t kvg_launch_copy(void *to, const void *from, int64_t bytes, int64_t blocks,
                                       cudaStream_t stream)
{
    const int64_t n = bytes / 16;
    copy_kernel<<<grid_of(blocks, (n + TILE - 1) / TILE), THREADS, 0, stream>>>((uint4 *)to,
                                                                                (const uint4 *)from, n);
    return cudaGetLastError();
}

extern "C" cudaError_t kvg_launch_read_cached(const void *data, int64_t bytes, int times, int64_t blocks,
                                              void *sink, cudaStream_t stream)
{
    const int64_t tiles = bytes / 16 / TILE, pieces = tiles * times;
    if (!tiles || pieces > INT32_MAX)
        return cudaErrorInvalidValue;
    read_cached_kernel<<<grid_of(blocks, pieces), THREADS, 0, stream>>>((const uint4 *)data, (unsigned)tiles,
                                                                        (unsigned)pieces, (uint4 *)sink);
    return cudaGetLastError();
}

/* The reads come last, so that no dirty cache line is written back during a timed region. */
extern "C" cudaError_t kvg_launch_flush(void *data, int64_t written, int64_t read, void *sink, int mp,
                                        cudaStream_t stream)
{
    uint4 *p = (uint4 *)data;
    write_kernel<<<mp * 8, THREADS, 0, stream>>>(p, written / 16, 0x2545f491u);
    cudaError_t e = cudaGetLastError();
    if (e != cudaSuccess)
        return e;
    read_kernel<ORDINARY><<<mp * 8, THREADS, 0, stream>>>(p + written / 16, read / 16, (uint4 *)sink);
    return cudaGetLastError();
}

/* ---------------------------------------------------------------- gather */

template <typename T> __device__ inline T zero()
{
    return T();
}

/* Reads K and V of one run with `step` lanes: 4 loads of K and 4 of V per lane. */
template <typename T>
__device__ inline T gather_run(const T *k, const T *v, uint64_t run, unsigned lane, unsigned step, T x)
{
    const unsigned n = (unsigned)(run & 0xffff);
    const uint64_t at = (run >> 16) + lane;
    T r[AHEAD];
#pragma unroll
    for (unsigned j = 0; j < AHEAD / 2; j++) {
        const bool in = lane + step * j < n;
        r[j] = in ? __ldcs(k + at + step * j) : zero<T>();
        r[AHEAD / 2 + j] = in ? __ldcs(v + at + step * j) : zero<T>();
    }
#pragma unroll
    for (int j = 0; j < AHEAD; j++)
        x = fold(x, r[j]);
    return x;
}

/* The word of the next run is loaded before the bytes of this run are needed. */
template <typename T, bool WIDE>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    gather_kernel(const T *k, const T *v, const uint64_t *runs, int64_t count, T *sink)
{
    const unsigned lane = WIDE ? threadIdx.x : threadIdx.x % 32;
    const int64_t step = WIDE ? gridDim.x : (int64_t)gridDim.x * (THREADS / 32);
    int64_t u = WIDE ? blockIdx.x : (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    uint64_t run = u < count ? __ldg(runs + u) : 0;
    T x = zero<T>();
    while (u < count) {
        u += step;
        const uint64_t next = u < count ? __ldg(runs + u) : 0;
        x = gather_run(k, v, run, lane, WIDE ? THREADS : 32, x);
        run = next;
    }
    if (rare(x))
        *sink = x;
}

template <typename T>
static cudaError_t launch_gather(const struct kvg_gpu_runs *r, int64_t blocks, void *sink,
                                 cudaStream_t stream)
{
    const T *k = (const T *)r->k, *v = (const T *)r->v;
    if (r->wide)
        gather_kernel<T, true>
            <<<grid_of(blocks, r->count), THREADS, 0, stream>>>(k, v, r->runs, r->count, (T *)sink);
    else
        gather_kernel<T, false>
            <<<grid_of(blocks, (r->count + THREADS / 32 - 1) / (THREADS / 32)), THREADS, 0, stream>>>(
                k, v, r->runs, r->count, (T *)sink);
    return cudaGetLastError();
}

extern "C" cudaError_t kvg_launch_gather(const struct kvg_gpu_runs *r, int64_t blocks, void *sink,
                                         cudaStream_t stream)
{
    return r->unit == 16  ? launch_gather<uint4>(r, blocks, sink, stream)
           : r->unit == 4 ? launch_gather<uint32_t>(r, blocks, sink, stream)
           : r->unit == 1 ? launch_gather<uint8_t>(r, blocks, sink, stream)
                          : cudaErrorInvalidValue;
}

/* ---------------------------------------------------------------- waiting */

__global__ void nothing_kernel(void)
{
}
__global__ void spin_kernel(long long ticks)
{
    const long long begin = clock64();
    while (clock64() - begin < ticks)
        ;
}
__global__ void poke_kernel(volatile int *address)
{
    *address = 1;
}

extern "C" cudaError_t kvg_launch_nothing(cudaStream_t stream)
{
    nothing_kernel<<<1, 32, 0, stream>>>();
    return cudaGetLastError();
}
extern "C" cudaError_t kvg_launch_spin(int64_t ticks, cudaStream_t stream)
{
    spin_kernel<<<1, 1, 0, stream>>>((long long)ticks);
    return cudaGetLastError();
}
extern "C" cudaError_t kvg_launch_poke(void *address, cudaStream_t stream)
{
    poke_kernel<<<1, 1, 0, stream>>>((volatile int *)address);
    return cudaGetLastError();
}
