/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_cuda.c: device memory. Copies between host and device go through two pinned buffers: the CPU fills
 * or empties one while the other is transferred. The driver alone copies pageable memory at a fraction of
 * the bus bandwidth.
 */
#include "gpu.h"

#include <omp.h>
#include <string.h>

void *kvg_gpu_allocate(struct kvg_device *d, int64_t bytes)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    void *data = NULL;
    if (bytes < 0) {
        (void)kvg_gpu_refuse(g, "allocation of %lld bytes: a size is not negative", (long long)bytes);
        return NULL;
    }
    const cudaError_t e = cudaMalloc(&data, (size_t)(bytes ? bytes : 1));
    if (e == cudaSuccess)
        return data;
    (void)kvg_gpu_fail(g, e, "allocation of %lld bytes of device memory", (long long)bytes);
    return NULL;
}

void kvg_gpu_release(struct kvg_device *d, void *data)
{
    const cudaError_t e = cudaFree(data);
    if (e != cudaSuccess)
        (void)kvg_gpu_fail(kvg_gpu_of(d), e, "release of device memory");
}

int kvg_gpu_memory(struct kvg_device *d, int64_t *available, int64_t *total)
{
    size_t some = 0, all = 0;
    const cudaError_t e = cudaMemGetInfo(&some, &all);
    if (e != cudaSuccess)
        return kvg_gpu_fail(kvg_gpu_of(d), e, "asking for free device memory");
    *available = (int64_t)some;
    *total = (int64_t)all;
    return 0;
}

int kvg_gpu_reserve_scratch(struct kvg_gpu *g, struct kvg_gpu_scratch *s, int64_t bytes)
{
    if (bytes <= s->bytes)
        return 0;
    const int64_t rounded = (bytes + 65535) / 65536 * 65536;
    void *data = kvg_gpu_allocate(&g->device, rounded);
    if (!data)
        return -1;
    kvg_gpu_release(&g->device, s->data); /* waits for work that uses it */
    s->data = data;
    s->bytes = rounded;
    return 0;
}

/* ---------------------------------------------------------------- copies */

/* One core copies at 5 to 10 GB/s, less than the bus, so large copies use up to 4 threads. */
static void copy(void *to, const void *from, int64_t bytes)
{
    enum { PART = 1 << 20 };
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(omp_get_num_procs() < 4 ? omp_get_num_procs() : 4) if (bytes >= 4 * PART)
    for (int64_t at = 0; at < bytes; at += PART)
        memcpy((char *)to + at, (const char *)from + at, (size_t)(bytes - at < PART ? bytes - at : PART));
}

static int64_t chunk(int64_t bytes, int64_t at)
{
    return bytes - at < KVG_GPU_STAGING ? bytes - at : KVG_GPU_STAGING;
}

int kvg_gpu_upload(struct kvg_device *d, void *to, const void *from, int64_t bytes)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    for (int64_t at = 0; at < bytes; at += KVG_GPU_STAGING) {
        const int side = g->side;
        g->side = !side;
        const int64_t n = chunk(bytes, at);
        cudaError_t e = cudaEventSynchronize(g->staged[side]); /* its previous transfer has ended */
        if (e == cudaSuccess) {
            copy(g->staging[side], (const char *)from + at, n);
            e = cudaMemcpyAsync((char *)to + at, g->staging[side], (size_t)n, cudaMemcpyHostToDevice,
                                g->stream);
        }
        if (e == cudaSuccess)
            e = cudaEventRecord(g->staged[side], g->stream);
        if (e != cudaSuccess)
            return kvg_gpu_fail(g, e, "upload of %lld bytes", (long long)bytes);
    }
    return 0;
}

/* Queues the transfer of the piece that begins at `at`. */
static cudaError_t fetch(struct kvg_gpu *g, const void *from, int64_t bytes, int64_t at)
{
    const int side = at / KVG_GPU_STAGING % 2;
    const cudaError_t e = cudaMemcpyAsync(g->staging[side], (const char *)from + at, (size_t)chunk(bytes, at),
                                          cudaMemcpyDeviceToHost, g->stream);
    return e == cudaSuccess ? cudaEventRecord(g->staged[side], g->stream) : e;
}

int kvg_gpu_download(struct kvg_device *d, void *to, const void *from, int64_t bytes)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    cudaError_t e = bytes > 0 ? fetch(g, from, bytes, 0) : cudaStreamSynchronize(g->stream);
    for (int64_t at = 0; at < bytes && e == cudaSuccess; at += KVG_GPU_STAGING) {
        const int side = at / KVG_GPU_STAGING % 2;
        if (at + KVG_GPU_STAGING < bytes)
            e = fetch(g, from, bytes, at + KVG_GPU_STAGING);
        if (e == cudaSuccess)
            e = cudaEventSynchronize(g->staged[side]);
        if (e == cudaSuccess)
            copy((char *)to + at, g->staging[side], chunk(bytes, at));
    }
    return e == cudaSuccess ? 0 : kvg_gpu_fail(g, e, "download of %lld bytes", (long long)bytes);
}

int kvg_gpu_fill(struct kvg_device *d, void *to, int byte, int64_t bytes)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    if (bytes <= 0)
        return 0;
    const cudaError_t e = cudaMemsetAsync(to, byte, (size_t)bytes, g->stream);
    return e == cudaSuccess ? 0 : kvg_gpu_fail(g, e, "fill of %lld bytes", (long long)bytes);
}

/* ---------------------------------------------------------------- hash and differs */

static cudaError_t fetch_word(struct kvg_gpu *g)
{
    cudaError_t e =
        cudaMemcpyAsync(g->word_host, g->word, sizeof *g->word_host, cudaMemcpyDeviceToHost, g->stream);
    return e == cudaSuccess ? cudaStreamSynchronize(g->stream) : e;
}

int kvg_gpu_hash(struct kvg_device *d, const void *data, int64_t bytes, uint64_t *hash)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    cudaError_t e = cudaMemsetAsync(g->word, 0, sizeof *g->word, g->stream);
    if (e == cudaSuccess && bytes > 0)
        e = kvg_launch_hash(data, bytes, g->word, g->multiprocessors, g->stream);
    if (e == cudaSuccess)
        e = fetch_word(g);
    if (e != cudaSuccess)
        return kvg_gpu_fail(g, e, "hash of %lld bytes", (long long)bytes);
    *hash =
        *g->word_host + (uint64_t)bytes * 0xd6e8feb86659fd93u; /* the length, since the tail is zero-padded */
    return 0;
}

int kvg_gpu_differs(struct kvg_device *d, const void *a, const void *b, int64_t bytes, int64_t *first)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    cudaError_t e = cudaMemsetAsync(g->word, 0xff, sizeof *g->word, g->stream);
    if (e == cudaSuccess && bytes > 0)
        e = kvg_launch_differs(a, b, bytes, g->word, g->multiprocessors, g->stream);
    if (e == cudaSuccess)
        e = fetch_word(g);
    if (e != cudaSuccess)
        return kvg_gpu_fail(g, e, "comparison of %lld bytes", (long long)bytes);
    *first = (int64_t)*g->word_host; /* still all ones (-1) when none differs */
    return 0;
}

int kvg_gpu_pack(struct kvg_device *d, void *to, const void *from, int64_t bytes, const int32_t *index,
                 int64_t count)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    const cudaError_t e = kvg_launch_pack(to, from, bytes, index, count, g->stream);
    return e == cudaSuccess
               ? 0
               : kvg_gpu_fail(g, e, "packing %lld pieces of %lld bytes", (long long)count, (long long)bytes);
}
