/* SPDX-License-Identifier: Apache-2.0
 *
 * device_cuda.c: opens and closes the CUDA device, and says what went wrong on it. The runtime is linked in
 * and opens the driver itself, so on a machine without one kvg_cuda_open gives NULL and a reason.
 */
#include "gpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- errors */

/* Errors after which every further call in this process fails. */
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
    (void)cudaGetLastError(); /* an error that is not final is over with this */
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

/* ---------------------------------------------------------------- facts */

void kvg_gpu_fact(struct kvg_gpu *g, const char *key, const char *format, ...)
{
    int i = 0;
    while (i < g->n_facts && strcmp(g->facts[i].key, key))
        i++;
    if (i == KVG_GPU_FACTS)
        return;
    g->n_facts = i == g->n_facts ? i + 1 : g->n_facts;
    snprintf(g->facts[i].key, sizeof g->facts[i].key, "%s", key);
    va_list list;
    va_start(list, format);
    vsnprintf(g->facts[i].value, sizeof g->facts[i].value, format, list);
    va_end(list);
}

static int fact(struct kvg_device *d, int64_t i, const char **key, const char **value)
{
    const struct kvg_gpu *g = kvg_gpu_of(d);
    if (i < 0 || i >= g->n_facts)
        return -1;
    *key = g->facts[i].key;
    *value = g->facts[i].value;
    return 0;
}

static int attribute(const struct kvg_gpu *g, enum cudaDeviceAttr which)
{
    int value = 0;
    if (cudaDeviceGetAttribute(&value, which, g->index) != cudaSuccess)
        (void)cudaGetLastError();
    return value;
}

static int gather_facts(struct kvg_gpu *g)
{
    struct cudaDeviceProp p;
    int driver = 0, runtime = 0;
    cudaError_t e = cudaGetDeviceProperties(&p, g->index);
    if (e == cudaSuccess)
        e = cudaDriverGetVersion(&driver);
    if (e == cudaSuccess)
        e = cudaRuntimeGetVersion(&runtime);
    if (e == cudaSuccess)
        e = cudaDeviceGetPCIBusId(g->bus_id, (int)sizeof g->bus_id, g->index);
    if (e != cudaSuccess)
        return kvg_gpu_fail(g, e, "properties of device %d", g->index);
    g->major = p.major;
    g->minor = p.minor;
    g->multiprocessors = p.multiProcessorCount;
    g->l2_bytes = g->device.cache_bytes = p.l2CacheSize;
    snprintf(g->device.name, sizeof g->device.name, "%.127s", p.name);
    kvg_gpu_fact(g, "gpu", "%s", p.name);
    kvg_gpu_fact(g, "gpu_compute_capability", "%d.%d", p.major, p.minor);
    kvg_gpu_fact(g, "gpu_multiprocessors", "%d", p.multiProcessorCount);
    kvg_gpu_fact(g, "gpu_memory_bytes", "%zu", p.totalGlobalMem);
    kvg_gpu_fact(g, "gpu_l2_bytes", "%d", p.l2CacheSize);
    kvg_gpu_fact(g, "gpu_memory_bus_bits", "%d", p.memoryBusWidth);
    kvg_gpu_fact(g, "gpu_ecc", "%s", p.ECCEnabled ? "on" : "off");
    const int sm_khz = attribute(g, cudaDevAttrClockRate),
              memory_khz = attribute(g, cudaDevAttrMemoryClockRate);
    if (sm_khz)
        kvg_gpu_fact(g, "gpu_max_sm_clock_hz", "%lld", sm_khz * 1000LL);
    if (memory_khz)
        kvg_gpu_fact(g, "gpu_max_memory_clock_hz", "%lld", memory_khz * 1000LL);
    kvg_gpu_fact(g, "cuda_driver", "%d.%d", driver / 1000, driver % 1000 / 10);
    kvg_gpu_fact(g, "cuda_runtime", "%d.%d", runtime / 1000, runtime % 1000 / 10);
    g->hold_ticks = (sm_khz ? sm_khz : 1500000) / 50; /* kHz / 50 = ticks in 20 us */
    return 0;
}

/* ---------------------------------------------------------------- open and close */

static void close_device(struct kvg_device *d)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    kvg_gpu_nvml_close(g);
    /* On a lost device all of these fail, and there is nothing left to give back. */
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
    .hash = kvg_gpu_hash_of,
    .differs = kvg_gpu_first_difference,
    .pack = kvg_gpu_pack_pages,
    .generate = kvg_gpu_generate_tensor,
    .store = kvg_gpu_store_pages,
    .stream = kvg_gpu_stream,
    .finish = kvg_gpu_finish,
    .flush = kvg_gpu_evict,
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
    .fact = fact,
};

/* What lasts as long as the device. The stream is one that waits for work on the default stream: a kernel
 * that was queued there by mistake is then late, not lost. */
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
    if (e == cudaSuccess) /* also: is there code for this GPU in the binary? */
        e = kvg_gpu_nothing(g->stream);
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
    if (e != cudaSuccess || gather_facts(g) || make_parts(g)) {
        snprintf(why, size, "%s", g->device.error);
        close_device(&g->device);
        return NULL;
    }
    kvg_gpu_nvml_open(g);
    return &g->device;
}
