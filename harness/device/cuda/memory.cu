/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.cu: hash of device memory, first difference of two buffers, and packing of pages. Hash and
 * comparison run at the bandwidth of the memory; a buffer that does not start at a multiple of 16 is read
 * byte by byte.
 */
#include "launch.h"

/* With four resident blocks per multiprocessor a thread has enough registers for AHEAD loads in flight. */
enum { THREADS = 256, RESIDENT = 4, AHEAD = 8 };

/* 16 bytes at data + 16 i. */
template <bool ALIGNED> __device__ inline ulonglong2 load(const uint8_t *data, int64_t i)
{
    if (ALIGNED)
        return __ldcs((const ulonglong2 *)data + i);
    ulonglong2 v = {0, 0};
#pragma unroll
    for (int j = 0; j < 8; j++) {
        v.x |= (unsigned long long)data[16 * i + j] << 8 * j;
        v.y |= (unsigned long long)data[16 * i + 8 + j] << 8 * j;
    }
    return v;
}

/* The last bytes % 16 bytes, padded with zeros. */
__device__ inline ulonglong2 load_tail(const uint8_t *data, int64_t bytes)
{
    ulonglong2 v = {0, 0};
    for (int64_t i = bytes / 16 * 16; i < bytes; i++) {
        const unsigned long long byte = (unsigned long long)data[i] << 8 * (i % 8);
        if (i % 16 < 8)
            v.x |= byte;
        else
            v.y |= byte;
    }
    return v;
}

/* ---------------------------------------------------------------- hash */

#define PLACE 0x9e3779b97f4a7c15ull /* word n is mixed with (n + 1) * PLACE */

/* For each place a bijection of the word, so that a change of one word always changes the sum. The function
 * is not linear, so that swapping two words changes the sum too. */
__device__ inline uint64_t mix(uint64_t word, uint64_t place)
{
    uint64_t x = (word ^ place) * 0xff51afd7ed558ccdull;
    x ^= x >> 32;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ x >> 29;
}
__device__ inline uint64_t mix_pair(ulonglong2 v, uint64_t place)
{
    return mix(v.x, place) + mix(v.y, place + PLACE);
}

template <bool ALIGNED>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    hash_kernel(const uint8_t *data, int64_t bytes, unsigned long long *sum)
{
    const int64_t whole = bytes / 16, stride = (int64_t)gridDim.x * THREADS * AHEAD;
    int64_t i = (int64_t)blockIdx.x * THREADS * AHEAD + threadIdx.x;
    uint64_t place = (uint64_t)(2 * i + 1) * PLACE, total = 0;
    for (; i < whole; i += stride, place += 2 * (uint64_t)stride * PLACE) {
        ulonglong2 v[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            v[j] = i + j * THREADS < whole ? load<ALIGNED>(data, i + j * THREADS) : make_ulonglong2(0, 0);
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (i + j * THREADS < whole)
                total += mix_pair(v[j], place + (uint64_t)(2 * j * THREADS) * PLACE);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0 && bytes % 16)
        total += mix_pair(load_tail(data, bytes), (uint64_t)(2 * whole + 1) * PLACE);
#pragma unroll
    for (int lane = 16; lane; lane /= 2)
        total += __shfl_xor_sync(0xffffffffu, total, lane);
    if (threadIdx.x % 32 == 0)
        atomicAdd(sum, (unsigned long long)total);
}

/* ---------------------------------------------------------------- differs */

/* First byte in which two different 8-byte words differ. */
__device__ inline int first_byte(unsigned long long a, unsigned long long b)
{
    return (__ffsll((long long)(a ^ b)) - 1) / 8;
}

/* Reads the minimum found so far first, so that most bytes after the first difference need no atomic
 * operation. */
__device__ inline void lower(unsigned long long *first, int64_t at)
{
    if ((unsigned long long)at < *(volatile unsigned long long *)first)
        atomicMin(first, (unsigned long long)at);
}

__device__ inline void compare(ulonglong2 a, ulonglong2 b, int64_t at, unsigned long long *first)
{
    if (a.x != b.x)
        lower(first, at + first_byte(a.x, b.x));
    else if (a.y != b.y)
        lower(first, at + 8 + first_byte(a.y, b.y));
}

template <bool ALIGNED>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    differs_kernel(const uint8_t *a, const uint8_t *b, int64_t bytes, unsigned long long *first)
{
    const int64_t whole = bytes / 16, stride = (int64_t)gridDim.x * THREADS * AHEAD / 2;
    for (int64_t i = (int64_t)blockIdx.x * THREADS * AHEAD / 2 + threadIdx.x; i < whole; i += stride) {
        ulonglong2 x[AHEAD / 2], y[AHEAD / 2];
#pragma unroll
        for (int j = 0; j < AHEAD / 2; j++) {
            const bool in = i + j * THREADS < whole;
            x[j] = in ? load<ALIGNED>(a, i + j * THREADS) : make_ulonglong2(0, 0);
            y[j] = in ? load<ALIGNED>(b, i + j * THREADS) : make_ulonglong2(0, 0);
        }
#pragma unroll
        for (int j = 0; j < AHEAD / 2; j++)
            compare(x[j], y[j], 16 * (i + j * THREADS), first);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0 && bytes % 16)
        compare(load_tail(a, bytes), load_tail(b, bytes), 16 * whole, first);
}

/* ---------------------------------------------------------------- pack */

/* A block copies one piece at a time. sizeof(T) divides the piece's bytes and both addresses. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    pack_kernel(T *to, const T *from, int64_t units, const int32_t *index, int64_t count)
{
    for (int64_t piece = blockIdx.x; piece < count; piece += gridDim.x) {
        const T *source = from + (int64_t)index[piece] * units;
        T *target = to + piece * units;
#pragma unroll 4
        for (int64_t i = threadIdx.x; i < units; i += THREADS)
            target[i] = source[i];
    }
}

/* ---------------------------------------------------------------- launchers */

static unsigned blocks_for(int64_t bytes, int ahead, int mp)
{
    const int64_t wanted = (bytes / 16 + THREADS * ahead - 1) / (THREADS * ahead), most = (int64_t)mp * 16;
    return (unsigned)(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

extern "C" cudaError_t kvg_launch_hash(const void *data, int64_t bytes, uint64_t *sum, int mp,
                                       cudaStream_t stream)
{
    const unsigned blocks = blocks_for(bytes, AHEAD, mp);
    unsigned long long *to = (unsigned long long *)sum;
    if ((uintptr_t)data % 16 == 0)
        hash_kernel<true><<<blocks, THREADS, 0, stream>>>((const uint8_t *)data, bytes, to);
    else
        hash_kernel<false><<<blocks, THREADS, 0, stream>>>((const uint8_t *)data, bytes, to);
    return cudaGetLastError();
}

extern "C" cudaError_t kvg_launch_differs(const void *a, const void *b, int64_t bytes, uint64_t *first,
                                          int mp, cudaStream_t stream)
{
    const unsigned blocks = blocks_for(bytes, AHEAD / 2, mp);
    const uint8_t *x = (const uint8_t *)a, *y = (const uint8_t *)b;
    unsigned long long *to = (unsigned long long *)first;
    if ((uintptr_t)a % 16 == 0 && (uintptr_t)b % 16 == 0)
        differs_kernel<true><<<blocks, THREADS, 0, stream>>>(x, y, bytes, to);
    else
        differs_kernel<false><<<blocks, THREADS, 0, stream>>>(x, y, bytes, to);
    return cudaGetLastError();
}

template <typename T>
static cudaError_t launch_pack(void *to, const void *from, int64_t bytes, const int32_t *index, int64_t count,
                               cudaStream_t stream)
{
    const unsigned blocks = (unsigned)(count < INT32_MAX ? count : INT32_MAX);
    pack_kernel<T>
        <<<blocks, THREADS, 0, stream>>>((T *)to, (const T *)from, bytes / (int64_t)sizeof(T), index, count);
    return cudaGetLastError();
}

extern "C" cudaError_t kvg_launch_pack(void *to, const void *from, int64_t bytes, const int32_t *index,
                                       int64_t count, cudaStream_t stream)
{
    if (bytes <= 0 || count <= 0)
        return cudaSuccess;
    if ((bytes | (int64_t)(uintptr_t)to | (int64_t)(uintptr_t)from) % 16 == 0)
        return launch_pack<uint4>(to, from, bytes, index, count, stream);
    return launch_pack<uint8_t>(to, from, bytes, index, count, stream);
}
