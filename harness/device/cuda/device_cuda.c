/* SPDX-License-Identifier: Apache-2.0
 *
 * device_cuda.c: opens and closes the CUDA device, and records errors. The runtime is linked statically and
 * opens the driver itself, so on a machine without a driver kvg_cuda_open returns NULL with a reason.
 */
#include "gpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- errors */

/* 1 for errors after which every further CUDA call in this process fails. */
static int is_final(cudaError_t e)
{
    switch (e) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorUnknown:
        return 1;
    default:
        return 0;
    }
}

int kvg_gpu_fail(struct kvg_gpu *g, cudaError_t e, const char *format, ...)
{
    char what[256];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    snprintf(g->device.error, sizeof g->device.error, "%s: %s: %s", what, cudaGetErrorName(e),
             cudaGetErrorString(e));
    (void)cudaGetLastError(); /* clears an error that is not final */
    cudaError_t still = g->stream ? cudaStreamQuery(g->stream) : cudaSuccess;
    if (still != cudaSuccess && still != cudaErrorNotReady)
        (void)cudaGetLastError();
    if (is_final(e) || is_final(still))
        g->device.lost = 1;
    return -1;
}

int kvg_gpu_refuse(struct kvg_gpu *g, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(g->device.error, sizeof g->device.error, format, list);
    va_end(list);
    return -1;
}

/* ---------------------------------------------------------------- open and close */

static void close_device(struct kvg_device *d)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    kvg_gpu_nvml_close(g);
    /* On a lost device all of these calls fail; its memory is already gone. */
    if (g->stream)
        (void)cudaStreamSynchronize(g->stream);
    for (int i = 0; i < 2; i++) {
        if (g->staged[i])
            (void)cudaEventDestroy(g->staged[i]);
        (void)cudaFreeHost(g->staging[i]);
    }
    if (g->begin)
        (void)cudaEventDestroy(g->begin);
    if (g->end)
        (void)cudaEventDestroy(g->end);
    (void)cudaFree(g->vectors.data);
    (void)cudaFree(g->table);
    (void)cudaFree(g->flush);
    (void)cudaFree(g->word);
    (void)cudaFreeHost(g->word_host);
    if (g->stream)
        (void)cudaStreamDestroy(g->stream);
    (void)cudaGetLastError();
    free(g);
}

static const struct kvg_device_ops ops = {
    .name = "cuda",
    .clock = "CUDA events",
    .close = close_device,
    .allocate = kvg_gpu_allocate,
    .release = kvg_gpu_release,
    .memory = kvg_gpu_memory,
    .upload = kvg_gpu_upload,
    .download = kvg_gpu_download,
    .fill = kvg_gpu_fill,
    .hash = kvg_gpu_hash,
    .differs = kvg_gpu_differs,
    .pack = kvg_gpu_pack,
    .generate = kvg_gpu_generate,
    .store = kvg_gpu_store,
    .stream = kvg_gpu_stream,
    .finish = kvg_gpu_finish,
    .flush = kvg_gpu_flush,
    .start = kvg_gpu_start,
    .stop = kvg_gpu_stop,
    .record = kvg_gpu_record,
    .replay = kvg_gpu_replay,
    .forget = kvg_gpu_forget,
    .roofs = kvg_gpu_roofs,
    .linear_roofs = kvg_gpu_linear_roofs,
    .gather_roof = kvg_gpu_gather_roof,
    .conditions_begin = kvg_gpu_conditions_begin,
    .conditions_end = kvg_gpu_conditions_end,
    .fact = kvg_gpu_get_fact,
};

/* Creates what lives as long as the device. The stream is a blocking one (cudaStreamCreate): it waits for
 * the default stream, so a kernel that is launched there by mistake still runs in order. */
static int make_parts(struct kvg_gpu *g)
{
    const size_t table_bytes = KVG_NORMAL_SEGMENTS * sizeof *g->table;
    cudaError_t e = cudaStreamCreate(&g->stream);
    if (e == cudaSuccess)
        e = cudaEventCreate(&g->begin);
    if (e == cudaSuccess)
        e = cudaEventCreate(&g->end);
    for (int i = 0; i < 2 && e == cudaSuccess; i++) {
        e = cudaEventCreateWithFlags(&g->staged[i], cudaEventDisableTiming);
        if (e == cudaSuccess)
            e = cudaHostAlloc(&g->staging[i], KVG_GPU_STAGING, cudaHostAllocDefault);
    }
    if (e == cudaSuccess)
        e = cudaHostAlloc((void **)&g->word_host, sizeof *g->word_host, cudaHostAllocDefault);
    if (e == cudaSuccess)
        e = cudaMalloc((void **)&g->word, 64);
    if (e == cudaSuccess)
        e = cudaMalloc((void **)&g->table, table_bytes);
    if (e == cudaSuccess)
        e = cudaMemcpy(g->table, kvg_normal_table, table_bytes, cudaMemcpyHostToDevice);
    g->flush_written = g->l2_bytes * 2 > 128 << 20 ? (g->l2_bytes * 2 + 255) / 256 * 256 : 128 << 20;
    g->flush_read = 2 * g->flush_written;
    if (e == cudaSuccess)
        e = cudaMalloc(&g->flush, (size_t)(g->flush_written + g->flush_read));
    if (e == cudaSuccess)
        e = cudaMemset(g->flush, 0x5a, (size_t)(g->flush_written + g->flush_read));
    if (e == cudaSuccess) /* a first kernel: it fails when the binary has no code for this GPU */
        e = kvg_launch_nothing(g->stream);
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(g->stream);
    return e == cudaSuccess ? 0 : kvg_gpu_fail(g, e, "opening CUDA device %d", g->index);
}

static int find(int index, char *why, size_t size)
{
    int count = 0;
    const cudaError_t e = cudaGetDeviceCount(&count);
    if (e != cudaSuccess)
        (void)cudaGetLastError();
    if (e == cudaErrorInsufficientDriver)
        snprintf(why, size, "no NVIDIA driver here, or one too old for CUDA %d.%d", CUDART_VERSION / 1000,
                 CUDART_VERSION % 1000 / 10);
    else if (e == cudaErrorNoDevice || (e == cudaSuccess && !count))
        snprintf(why, size, "no NVIDIA GPU here, or CUDA_VISIBLE_DEVICES hides it");
    else if (e != cudaSuccess)
        snprintf(why, size, "no usable CUDA device: %s: %s", cudaGetErrorName(e), cudaGetErrorString(e));
    else if (index < 0 || index >= count)
        snprintf(why, size, "no CUDA device %d: there are %d, counted from 0", index, count);
    else
        return 0;
    return -1;
}

struct kvg_device *kvg_cuda_open(int index, char *why, size_t size)
{
    if (find(index, why, size))
        return NULL;
    struct kvg_gpu *g = calloc(1, sizeof *g);
    if (!g) {
        snprintf(why, size, "out of memory");
        return NULL;
    }
    g->device.ops = &ops;
    g->index = index;
    const cudaError_t e = cudaSetDevice(index);
    if (e != cudaSuccess)
        (void)kvg_gpu_fail(g, e, "selecting CUDA device %d", index);
    if (e != cudaSuccess || kvg_gpu_read_facts(g) || make_parts(g)) {
        snprintf(why, size, "%s", g->device.error);
        close_device(&g->device);
        return NULL;
    }
    kvg_gpu_nvml_open(g);
    return &g->device;
}
