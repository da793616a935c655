/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.h: launchers of the harness's own CUDA kernels, callable from C. Each queues one kernel on `stream`
 * and returns the launch's error code. Pointers are device addresses, sizes 64-bit; `mp` is the number of
 * multiprocessors.
 */
#ifndef KVG_HARNESS_CUDA_LAUNCH_H
#define KVG_HARNESS_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stdint.h>
#include "harness/inputs/generate.h"
#include "kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- memory.cu ---- */
/* Adds to *sum one 64-bit word for every 8 bytes, made from the bytes and their place. The last 8 bytes are
 * padded with zeros. */
cudaError_t kvg_launch_hash(const void *data, int64_t bytes, uint64_t *sum, int mp, cudaStream_t stream);
/* Lowers *first (unsigned) to the index of the first byte in which a and b differ. */
cudaError_t kvg_launch_differs(const void *a, const void *b, int64_t bytes, uint64_t *first, int mp,
                               cudaStream_t stream);
/* Copies piece i, `bytes` bytes at from + index[i] * bytes, to to + i * bytes. */
cudaError_t kvg_launch_pack(void *to, const void *from, int64_t bytes, const int32_t *index, int64_t count,
                            cudaStream_t stream);

/* ---- generate.cu ---- */
/* kvg_generator_value for tokens 0 .. tokens - 1, rounded to bf16. The arrays of `g` and the table are device
 * addresses; heads < 65536. */
cudaError_t kvg_launch_generate(const struct kvg_generator *g, const struct kvg_normal_segment *table,
                                int64_t tokens, uint16_t *out, int mp, cudaStream_t stream);

/* ---- quantise.cu ---- */
struct kvg_gpu_store_work {
    const uint16_t *source; /* [tokens, heads, head_dim] */
    const int64_t *slots;   /* [tokens] */
    int64_t tokens, heads, head_dim, block_size;
    const float *scale; /* [heads] or [1]; NULL: 1 */
    int64_t scale_stride;
    struct kvg_pages pages;
    enum kvg_dtype dtype; /* of the cache: bf16, e4m3, e5m2 or e4m3fnuz; else cudaErrorInvalidValue */
};
cudaError_t kvg_launch_store(const struct kvg_gpu_store_work *s, int mp, cudaStream_t stream);
/* Random values close to N(0,1) in bf16 or e4m3: operands of matrix products, whose speed depends on their
 * bits. */
cudaError_t kvg_launch_noise(enum kvg_dtype dtype, void *out, int64_t elements, uint32_t seed, int mp,
                             cudaStream_t stream);

/* ---- stream.cu ---- */
/* Kernels that only move bytes. Buffers are 16-byte aligned. `sink` has 16 bytes that nothing reads. blocks
 * 0: one block for each piece of work. */
cudaError_t kvg_launch_read(const void *data, int64_t bytes, int64_t blocks, void *sink, cudaStream_t stream);
cudaError_t kvg_launch_copy(void *to, const void *from, int64_t bytes, int64_t blocks, cudaStream_t stream);
/* Reads `bytes` bytes `times` times through the last cache, bypassing the first-level caches. */
cudaError_t kvg_launch_read_cached(const void *data, int64_t bytes, int times, int64_t blocks, void *sink,
                                   cudaStream_t stream);
/* Writes the first `written` bytes, then reads the `read` bytes behind them. */
cudaError_t kvg_launch_flush(void *data, int64_t written, int64_t read, void *sink, int mp,
                             cudaStream_t stream);
cudaError_t kvg_launch_nothing(cudaStream_t stream);
/* One thread that waits for `ticks` clock ticks. */
cudaError_t kvg_launch_spin(int64_t ticks, cudaStream_t stream);
/* One thread that writes to an address; tests use it with an illegal one. */
cudaError_t kvg_launch_poke(void *address, cudaStream_t stream);

/* A run is a contiguous piece of K and the piece of V at the same offset, as one word: offset << 16 |
 * length, both in units of `unit` (16, 4 or 1) bytes. wide = 1: a block of 256 threads reads a run of up to
 * KVG_GPU_RUN_WIDE units; wide = 0: a warp reads a run of up to KVG_GPU_RUN_NARROW units. */
enum { KVG_GPU_RUN_WIDE = 1024, KVG_GPU_RUN_NARROW = 128 };
struct kvg_gpu_runs {
    const void *k, *v;
    const uint64_t *runs;
    int64_t count;
    int unit, wide;
};
cudaError_t kvg_launch_gather(const struct kvg_gpu_runs *r, int64_t blocks, void *sink, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
