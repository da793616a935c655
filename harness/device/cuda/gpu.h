/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu.h: the CUDA device behind device.h. Private to harness/device/cuda/.
 *
 *   device_cuda.c      opens and closes the device; errors
 *   facts_cuda.c       key and value pairs that describe it
 *   memory_cuda.c      allocates, copies, hashes and compares device memory
 *   tensors_cuda.c     generates tensors and fills caches
 *   time_cuda.c        stream, events, graphs
 *   roofs_cuda.c       roofs of the memory
 *   gather_cuda.c      gather roof of a case
 *   matrix_roof.c      roofs of the matrix unit
 *   conditions_nvml.c  clocks, power, energy, temperature
 *
 * The kernels are in the .cu files; launch.h declares their launchers.
 */
#ifndef KVG_HARNESS_CUDA_GPU_H
#define KVG_HARNESS_CUDA_GPU_H

#include <cuda_runtime_api.h>
#include "harness/device/device.h"
#include "launch.h"

enum { KVG_GPU_STAGING = 16 << 20, KVG_GPU_FACTS = 24 };

struct kvg_gpu_fact {
    char key[32], value[128];
};

/* Device memory that grows on demand, for small arrays that a call needs. */
struct kvg_gpu_scratch {
    void *data;
    int64_t bytes;
};

struct kvg_nvml; /* conditions_nvml.c */

struct kvg_gpu {
    struct kvg_device device; /* first, so that a kvg_device pointer is a kvg_gpu pointer (kvg_gpu_of) */
    int index, multiprocessors;
    int64_t l2_bytes;
    int64_t hold_ticks; /* clock ticks of about 20 us */
    char bus_id[32];
    cudaStream_t stream;
    cudaEvent_t begin, end;
    void *staging[2]; /* pinned, KVG_GPU_STAGING bytes each */
    cudaEvent_t staged[2];
    int side;            /* index of the staging buffer that the next upload uses first */
    uint64_t *word;      /* device, 64 bytes: result of hash and differs, then a sink for reads */
    uint64_t *word_host; /* pinned */
    void *flush;         /* device: flush_written bytes to write, then flush_read bytes to read */
    int64_t flush_written, flush_read;
    struct kvg_normal_segment *table; /* device: kvg_normal_table */
    struct kvg_gpu_scratch vectors;   /* vectors of a generator, or scales */
    struct kvg_nvml *nvml;            /* NULL: NVML cannot be used, and nvml_why says why */
    char nvml_why[128];
    struct kvg_gpu_fact facts[KVG_GPU_FACTS];
    int n_facts;
};

static inline struct kvg_gpu *kvg_gpu_of(struct kvg_device *d)
{
    return (struct kvg_gpu *)d;
}

/* Both return -1 and write device.error. kvg_gpu_fail: "<what>: <name of the error>: <its text>"; sets
 * `lost` when the device will not recover. kvg_gpu_refuse: the sentence alone, for a failure that is no CUDA
 * error. */
int kvg_gpu_fail(struct kvg_gpu *g, cudaError_t e, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int kvg_gpu_refuse(struct kvg_gpu *g, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The functions below that take a struct kvg_device are operations of struct kvg_device_ops, which describes
 * them. */

/* ---- facts_cuda.c ---- */
/* Adds a fact, or replaces the one with this key. */
void kvg_gpu_add_fact(struct kvg_gpu *g, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Reads the properties of device g->index: fills the fields from `multiprocessors` to `bus_id`, device.name
 * and device.cache_bytes, and adds the facts. 0, or -1 with the error. */
int kvg_gpu_read_facts(struct kvg_gpu *g);
int kvg_gpu_get_fact(struct kvg_device *d, int64_t i, const char **key, const char **value);

/* ---- memory_cuda.c ---- */
void *kvg_gpu_allocate(struct kvg_device *d, int64_t bytes);
void kvg_gpu_release(struct kvg_device *d, void *data);
int kvg_gpu_memory(struct kvg_device *d, int64_t *available, int64_t *total);
int kvg_gpu_upload(struct kvg_device *d, void *to, const void *from, int64_t bytes);
int kvg_gpu_download(struct kvg_device *d, void *to, const void *from, int64_t bytes);
int kvg_gpu_fill(struct kvg_device *d, void *to, int byte, int64_t bytes);
int kvg_gpu_hash(struct kvg_device *d, const void *data, int64_t bytes, uint64_t *hash);
int kvg_gpu_differs(struct kvg_device *d, const void *a, const void *b, int64_t bytes, int64_t *first);
int kvg_gpu_pack(struct kvg_device *d, void *to, const void *from, int64_t bytes, const int32_t *index,
                 int64_t count);
/* Makes s->data hold at least `bytes` bytes; their content is undefined. 0, or -1 with the error. Queued
 * work that reads the old memory finishes first. */
int kvg_gpu_reserve_scratch(struct kvg_gpu *g, struct kvg_gpu_scratch *s, int64_t bytes);

/* ---- tensors_cuda.c ---- */
int kvg_gpu_generate(struct kvg_device *d, const struct kvg_generator *generator, int64_t tokens,
                     uint16_t *out);
int kvg_gpu_store(struct kvg_device *d, const struct kvg_problem *problem, const uint16_t *source,
                  const int64_t *slots, int64_t tokens, const float *scale, int64_t scale_stride,
                  const struct kvg_pages *pages);

/* ---- time_cuda.c ---- */
void *kvg_gpu_stream(struct kvg_device *d);
int kvg_gpu_finish(struct kvg_device *d);
int kvg_gpu_flush(struct kvg_device *d);
int kvg_gpu_start(struct kvg_device *d, int hold);
int kvg_gpu_stop(struct kvg_device *d, double *seconds);
int kvg_gpu_record(struct kvg_device *d, int (*call)(void *), void *context, void **recording);
int kvg_gpu_replay(struct kvg_device *d, void *recording);
void kvg_gpu_forget(struct kvg_device *d, void *recording);
/* Seconds of one launch: after a flush of the caches (cold = 1), or with the host's launch cost hidden (cold
 * = 0). NaN with the error. */
double kvg_gpu_time(struct kvg_gpu *g, int cold, cudaError_t (*launch)(struct kvg_gpu *, void *),
                    void *context);
/* Median of count >= 1 values (the upper one of an even count); sorts them. */
double kvg_gpu_median(double *values, int count);

/* ---- roofs_cuda.c, gather_cuda.c, matrix_roof.c ---- */
int kvg_gpu_roofs(struct kvg_device *d, struct kvg_device_roofs *out);
int kvg_gpu_linear_roofs(struct kvg_device *d, struct kvg_device_roofs *out);
double kvg_gpu_gather_roof(struct kvg_device *d, const struct kvg_device_gather *gather);
/* Fills the five matrix rates. A rate that cannot be measured stays NaN, and the reason is appended to
 * out->why. 0, or -1 when the device failed. */
int kvg_gpu_matrix_roofs(struct kvg_gpu *g, struct kvg_device_roofs *out);

/* ---- conditions_nvml.c ---- */
void kvg_gpu_conditions_begin(struct kvg_device *d);
void kvg_gpu_conditions_end(struct kvg_device *d, struct kvg_device_conditions *out);
/* Opens NVML and adds driver version and power limit as facts; on failure g->nvml stays NULL. */
void kvg_gpu_nvml_open(struct kvg_gpu *g);
void kvg_gpu_nvml_close(struct kvg_gpu *g);

#endif
