/* SPDX-License-Identifier: Apache-2.0
 *
 * roofs_cuda.c: rates of reading and copying device memory and of reading the last cache, and the time
 * between two events around an empty kernel. Each rate is the best of several grid sizes and passes. The
 * data is not zero.
 */
#include "gpu.h"

#include <math.h>
#include <stdio.h>

enum { PASSES = 3, GRIDS = 4, FLOOR_SAMPLES = 31 };

struct stream_pass {
    void *to, *from;
    int64_t bytes, blocks;
    int times;
};

static cudaError_t launch_read(struct kvg_gpu *g, void *context)
{
    const struct stream_pass *p = context;
    return kvg_launch_read(p->from, p->bytes, p->blocks, g->word + 4, g->stream);
}
static cudaError_t launch_copy(struct kvg_gpu *g, void *context)
{
    const struct stream_pass *p = context;
    return kvg_launch_copy(p->to, p->from, p->bytes, p->blocks, g->stream);
}
static cudaError_t launch_engine_copy(struct kvg_gpu *g, void *context)
{
    const struct stream_pass *p = context;
    return cudaMemcpyAsync(p->to, p->from, (size_t)p->bytes, cudaMemcpyDeviceToDevice, g->stream);
}
static cudaError_t launch_cached(struct kvg_gpu *g, void *context)
{
    const struct stream_pass *p = context;
    return kvg_launch_read_cached(p->from, p->bytes, p->times, p->blocks, g->word + 4, g->stream);
}
static cudaError_t launch_nothing(struct kvg_gpu *g, void *context)
{
    (void)context;
    return kvg_launch_nothing(g->stream);
}

/* Shortest time over PASSES passes of each of the first `grids` grid sizes: one block for each piece of
 * work, then 4 (all that are resident at once), 8 and 32 blocks per multiprocessor. NaN when the device
 * failed. */
static double shortest(struct kvg_gpu *g, cudaError_t (*launch)(struct kvg_gpu *, void *),
                       struct stream_pass *p, int grids)
{
    static const int blocks[] = {0, 4, 8, 32};
    double best = INFINITY;
    for (int i = 0; i < grids; i++)
        for (int pass = 0; pass < PASSES; pass++) {
            p->blocks = (int64_t)blocks[i] * g->multiprocessors;
            const double t = kvg_gpu_time(g, 0, launch, p);
            if (isnan(t))
                return NAN;
            best = t > 0 && t < best ? t : best;
        }
    return best;
}

static double floor_of(struct kvg_gpu *g)
{
    double t[FLOOR_SAMPLES];
    for (int i = 0; i < FLOOR_SAMPLES; i++) {
        t[i] = kvg_gpu_time(g, 0, launch_nothing, NULL);
        if (isnan(t[i]))
            return NAN;
    }
    return kvg_gpu_median(t, FLOOR_SAMPLES);
}

/* A buffer of 4 GiB, or of the largest half, quarter, ... of it that can be allocated; else the flush
 * buffer. */
static void *stream_buffer(struct kvg_gpu *g, int64_t *bytes)
{
    for (*bytes = (int64_t)4 << 30; *bytes > g->flush_read; *bytes /= 2) {
        void *data = NULL;
        if (cudaMalloc(&data, (size_t)*bytes) == cudaSuccess)
            return data;
        (void)cudaGetLastError();
    }
    *bytes = g->flush_read;
    return g->flush;
}

static int measure(struct kvg_gpu *g, void *data, int64_t bytes, struct kvg_device_roofs *out)
{
    struct stream_pass read = {.from = data, .bytes = bytes};
    struct stream_pass copy = {.from = data, .to = (char *)data + bytes / 2, .bytes = bytes / 2};
    struct stream_pass cached = {.from = data, .bytes = g->l2_bytes / 4 / 65536 * 65536, .times = 64};
    const cudaError_t e = kvg_launch_noise(KVG_BF16, data, bytes / 2, 1, g->multiprocessors, g->stream);
    if (e != cudaSuccess)
        return kvg_gpu_fail(g, e, "filling the buffer of the roofs");
    out->floor = floor_of(g);
    out->read = (double)read.bytes / shortest(g, launch_read, &read, GRIDS);
    const double by_kernel = shortest(g, launch_copy, &copy, GRIDS),
                 by_engine = shortest(g, launch_engine_copy, &copy, 1);
    out->copy = 2.0 * (double)copy.bytes / (by_kernel < by_engine ? by_kernel : by_engine);
    if (cached.bytes > 0)
        out->cache = (double)cached.bytes * cached.times / shortest(g, launch_cached, &cached, GRIDS);
    return isnan(out->floor) || isnan(out->read) || isnan(out->copy) || (cached.bytes && isnan(out->cache))
               ? -1
               : 0;
}

static void unknown(struct kvg_device_roofs *out)
{
    out->read = out->copy = out->cache = out->floor = NAN;
    out->bf16_burst = out->bf16_sustained = out->fp8_burst = out->fp8_sustained = out->fp8_promoted = NAN;
    out->why[0] = 0;
}

int kvg_gpu_linear_roofs(struct kvg_device *d, struct kvg_device_roofs *out)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    int64_t bytes;
    unknown(out);
    void *data = stream_buffer(g, &bytes);
    int failed = measure(g, data, bytes, out);
    if (data != g->flush)
        kvg_gpu_release(d, data);
    if (failed)
        snprintf(out->why, sizeof out->why, "%.200s", d->error);
    else if (isnan(out->cache))
        snprintf(out->why, sizeof out->why, "cache: the driver reports no last cache");
    return failed;
}

int kvg_gpu_roofs(struct kvg_device *d, struct kvg_device_roofs *out)
{
    return kvg_gpu_linear_roofs(d, out) ? -1 : kvg_gpu_matrix_roofs(kvg_gpu_of(d), out);
}
