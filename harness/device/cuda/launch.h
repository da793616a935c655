/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.h: the harness's own kernels, as the host side in C sees them. A launcher queues on `stream` and
 * gives what the launch said; `mp` is the number of multiprocessors. Pointers are device addresses, sizes
 * 64-bit.
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
/* Adds a 64-bit word for every 8 bytes and their place to *sum; the last word is filled up with zeros. */
cudaError_t kvg_gpu_hash(const void *data, int64_t bytes, uint64_t *sum, int mp, cudaStream_t stream);
/* Lowers *first (unsigned) to the first byte in which a and b differ. */
cudaError_t kvg_gpu_differs(const void *a, const void *b, int64_t bytes, uint64_t *first, int mp,
                            cudaStream_t stream);

/* Piece i, `bytes` at from + index[i] * bytes, to to + i * bytes. */
cudaError_t kvg_gpu_pack(void *to, const void *from, int64_t bytes, const int32_t *index, int64_t count,
                         cudaStream_t stream);

/* ---- generate.cu ---- */
/* kvg_generator_value for tokens 0 .. tokens - 1. g's arrays and table are device addresses; heads < 65536. */
cudaError_t kvg_gpu_generate(const struct kvg_generator *g, const struct kvg_normal_segment *table,
                             int64_t tokens, uint16_t *out, int mp, cudaStream_t stream);

/* ---- quantise.cu ---- */
struct kvg_gpu_store {
    const uint16_t *source; /* [tokens, heads, head_dim] */
    const int64_t *slots;   /* [tokens] */
    int64_t tokens, heads, head_dim, block_size;
    const float *scale; /* [heads] or [1]; NULL: 1 */
    int64_t scale_stride;
    struct kvg_pages pages;
    enum kvg_dtype dtype; /* of the cache: bf16, e4m3, e5m2 or e4m3fnuz; else cudaErrorInvalidValue */
};
cudaError_t kvg_gpu_store(const struct kvg_gpu_store *s, int mp, cudaStream_t stream);
/* Random values near N(0,1) in bf16 or e4m3: operands of matrix products whose speed depends on their bits.
 */
cudaError_t kvg_gpu_noise(enum kvg_dtype dtype, void *out, int64_t elements, uint32_t seed, int mp,
                          cudaStream_t stream);

/* ---- stream.cu: kernels that move bytes and do nothing else. Buffers are 16-byte aligned; `sink` is 16
 * bytes that nobody reads. blocks 0: as many as there are pieces of work. ---- */
cudaError_t kvg_gpu_read(const void *data, int64_t bytes, int64_t blocks, void *sink, cudaStream_t stream);
cudaError_t kvg_gpu_copy(void *to, const void *from, int64_t bytes, int64_t blocks, cudaStream_t stream);
/* Reads `bytes` `times` over through the last cache (the first-level ones are passed by). */
cudaError_t kvg_gpu_read_cached(const void *data, int64_t bytes, int times, int64_t blocks, void *sink,
                                cudaStream_t stream);
/* Writes the first `written` bytes, then reads the `read` bytes behind them. */
cudaError_t kvg_gpu_flush(void *data, int64_t written, int64_t read, void *sink, int mp, cudaStream_t stream);
cudaError_t kvg_gpu_nothing(cudaStream_t stream);
/* One thread that waits for so many clock ticks. */
cudaError_t kvg_gpu_spin(int64_t ticks, cudaStream_t stream);
/* For checks: one thread that writes to an address. */
cudaError_t kvg_gpu_poke(void *address, cudaStream_t stream);

/* A run is a contiguous piece of K and the piece of V at the same offset: offset << 16 | length, both in
 * units of 16, 4 or 1 bytes. wide: a block of 256 threads takes a run of up to KVG_GPU_RUN_WIDE units; else a
 * warp takes one of up to KVG_GPU_RUN_NARROW. */
enum { KVG_GPU_RUN_WIDE = 1024, KVG_GPU_RUN_NARROW = 128 };
struct kvg_gpu_runs {
    const void *k, *v;
    const uint64_t *runs;
    int64_t count;
    int unit, wide;
};
cudaError_t kvg_gpu_gather(const struct kvg_gpu_runs *r, int64_t blocks, void *sink, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
