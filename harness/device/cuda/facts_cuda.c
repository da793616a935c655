/* SPDX-License-Identifier: Apache-2.0
 *
 * facts_cuda.c: key and value pairs that describe GPU and runtime for result files, and the properties of
 * the device that the other files need. conditions_nvml.c adds the driver's version and the power limit.
 */
#include "gpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void kvg_gpu_add_fact(struct kvg_gpu *g, const char *key, const char *format, ...)
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

int kvg_gpu_get_fact(struct kvg_device *d, int64_t i, const char **key, const char **value)
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

int kvg_gpu_read_facts(struct kvg_gpu *g)
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
    g->multiprocessors = p.multiProcessorCount;
    g->l2_bytes = g->device.cache_bytes = p.l2CacheSize;
    snprintf(g->device.name, sizeof g->device.name, "%.127s", p.name);
    kvg_gpu_add_fact(g, "gpu", "%s", p.name);
    kvg_gpu_add_fact(g, "gpu_compute_capability", "%d.%d", p.major, p.minor);
    kvg_gpu_add_fact(g, "gpu_multiprocessors", "%d", p.multiProcessorCount);
    kvg_gpu_add_fact(g, "gpu_memory_bytes", "%zu", p.totalGlobalMem);
    kvg_gpu_add_fact(g, "gpu_l2_bytes", "%d", p.l2CacheSize);
    kvg_gpu_add_fact(g, "gpu_memory_bus_bits", "%d", p.memoryBusWidth);
    kvg_gpu_add_fact(g, "gpu_ecc", "%s", p.ECCEnabled ? "on" : "off");
    const int sm_khz = attribute(g, cudaDevAttrClockRate),
              memory_khz = attribute(g, cudaDevAttrMemoryClockRate);
    if (sm_khz)
        kvg_gpu_add_fact(g, "gpu_max_sm_clock_hz", "%lld", sm_khz * 1000LL);
    if (memory_khz)
        kvg_gpu_add_fact(g, "gpu_max_memory_clock_hz", "%lld", memory_khz * 1000LL);
    kvg_gpu_add_fact(g, "cuda_driver", "%d.%d", driver / 1000, driver % 1000 / 10);
    kvg_gpu_add_fact(g, "cuda_runtime", "%d.%d", runtime / 1000, runtime % 1000 / 10);
    g->hold_ticks = (sm_khz ? sm_khz : 1500000) / 50; /* kHz / 50 = ticks in 20 us */
    return 0;
}
