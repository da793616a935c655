/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu.h: the CUDA device behind device.h, as its files know it. Private to harness/cuda/.
 *
 * device_cuda.c opens and closes it; memory_cuda.c moves and compares bytes; case_cuda.c makes tensors and
 * caches; time_cuda.c has stream, events and graphs; roofs_cuda.c and gather_cuda.c measure the memory,
 * matrix_roof.c the matrix unit; conditions_nvml.c asks the driver how the GPU fares. The kernels are in the
 * .cu files (launch.h).
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

/* Device memory that grows when more is needed, for small arrays that travel with a call. */
struct kvg_gpu_scratch {
    void *data;
    int64_t bytes;
};

struct kvg_nvml; /* conditions_nvml.c */

struct kvg_gpu {
    struct kvg_device device; /* first: what the ops are handed */
    int index, multiprocessors, major, minor;
    int64_t l2_bytes;
    int64_t hold_ticks; /* clock ticks of some 20 us */
    char bus_id[32];
    cudaStream_t stream;
    cudaEvent_t begin, end;
    void *staging[2]; /* pinned, KVG_GPU_STAGING bytes each */
    cudaEvent_t staged[2];
    int side;            /* of staging, that the next upload begins with */
    uint64_t *word;      /* device: result of hash and differs, and a sink for reads (64 bytes) */
    uint64_t *word_host; /* pinned */
    void *flush;         /* device: flush_written bytes to write, then flush_read to read */
    int64_t flush_written, flush_read;
    struct kvg_normal_segment *table; /* device: kvg_normal_table */
    struct kvg_gpu_scratch vectors;   /* of a generator, or scales */
    struct kvg_nvml *nvml;            /* NULL when conditions are not known; then nvml_why says why */
    char nvml_why[128];
    struct kvg_gpu_fact facts[KVG_GPU_FACTS];
    int n_facts;
};

static inline struct kvg_gpu *kvg_gpu_of(struct kvg_device *d)
{
    return (struct kvg_gpu *)d;
}

/* -1, with "<what>: <name of the error>: <its text>" in device.error. A device that will not recover is lost.
 */
int kvg_gpu_fail(struct kvg_gpu *g, cudaError_t e, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* -1, with a sentence that has no CUDA error in it. */
int kvg_gpu_refuse(struct kvg_gpu *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds a fact, or replaces the one of that key. */
void kvg_gpu_fact(struct kvg_gpu *g, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* memory_cuda.c */
void *kvg_gpu_allocate(struct kvg_device *d, int64_t bytes);
void kvg_gpu_release(struct kvg_device *d, void *data);
int kvg_gpu_memory(struct kvg_device *d, int64_t *available, int64_t *total);
int kvg_gpu_upload(struct kvg_device *d, void *to, const void *from, int64_t bytes);
int kvg_gpu_download(struct kvg_device *d, void *to, const void *from, int64_t bytes);
int kvg_gpu_fill(struct kvg_device *d, void *to, int byte, int64_t bytes);
int kvg_gpu_hash_of(struct kvg_device *d, const void *data, int64_t bytes, uint64_t *hash);
int kvg_gpu_first_difference(struct kvg_device *d, const void *a, const void *b, int64_t bytes,
                             int64_t *first);
int kvg_gpu_pack_pages(struct kvg_device *d, void *to, const void *from, int64_t bytes, const int32_t *index,
                       int64_t count);
/* At least so many bytes in s->data, or -1. What queued work still reads there stays valid until it is done.
 */
int kvg_gpu_scratch(struct kvg_gpu *g, struct kvg_gpu_scratch *s, int64_t bytes);

/* case_cuda.c */
int kvg_gpu_generate_tensor(struct kvg_device *d, const struct kvg_generator *generator, int64_t tokens,
                            uint16_t *out);
int kvg_gpu_store_pages(struct kvg_device *d, const struct kvg_problem *problem, const uint16_t *source,
                        const int64_t *slots, int64_t tokens, const float *scale, int64_t scale_stride,
                        const struct kvg_pages *pages);

/* time_cuda.c */
void *kvg_gpu_stream(struct kvg_device *d);
int kvg_gpu_finish(struct kvg_device *d);
int kvg_gpu_evict(struct kvg_device *d);
int kvg_gpu_start(struct kvg_device *d, int hold);
int kvg_gpu_stop(struct kvg_device *d, double *seconds);
int kvg_gpu_record(struct kvg_device *d, int (*call)(void *), void *context, void **recording);
int kvg_gpu_replay(struct kvg_device *d, void *recording);
void kvg_gpu_forget(struct kvg_device *d, void *recording);
/* Seconds of one launch, cold (after a flush) or with the launch hidden; NaN with the error. */
double kvg_gpu_time(struct kvg_gpu *g, int cold, cudaError_t (*launch)(struct kvg_gpu *, void *),
                    void *context);

/* roofs_cuda.c, gather_cuda.c */
int kvg_gpu_roofs(struct kvg_device *d, struct kvg_device_roofs *out);
int kvg_gpu_linear_roofs(struct kvg_device *d, struct kvg_device_roofs *out);
double kvg_gpu_gather_roof(struct kvg_device *d, const struct kvg_device_gather *gather);

/* matrix_roof.c: fills the five matrix rates; those that cannot be had stay NaN and out->why says why. -1
 * when the device failed. */
int kvg_gpu_matrix_roofs(struct kvg_gpu *g, struct kvg_device_roofs *out);

/* conditions_nvml.c */
void kvg_gpu_conditions_begin(struct kvg_device *d);
void kvg_gpu_conditions_end(struct kvg_device *d, struct kvg_device_conditions *out);
void kvg_gpu_nvml_open(struct kvg_gpu *g); /* and what it says about driver and board, as facts */
void kvg_gpu_nvml_close(struct kvg_gpu *g);

#endif
