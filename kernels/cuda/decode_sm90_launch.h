/* SPDX-License-Identifier: Apache-2.0
 *
 * decode_sm90_launch.h: launchers of the sm_90 decode kernels, one per cache dtype and path, each in its own
 * source file.
 *
 *   segments  128-byte segments of a K or V row
 *   blocks    size of the grid
 *   smem      dynamic shared memory of a block, in bytes
 *
 * They return cudaErrorInvalidValue if there is no kernel for that number of segments.
 */
#ifndef KVG_CUDA_DECODE_SM90_LAUNCH_H
#define KVG_CUDA_DECODE_SM90_LAUNCH_H

#include <stdint.h>
#include <cuda_runtime_api.h>

struct kvg_sm90_params;
struct kvg_sm90_lean_params;

cudaError_t kvg_sm90_launch_bf16(const struct kvg_sm90_params *p, int segments, int probe, int64_t blocks,
                                 int64_t smem, cudaStream_t stream);
cudaError_t kvg_sm90_launch_e4m3(const struct kvg_sm90_params *p, int segments, int probe, int64_t blocks,
                                 int64_t smem, cudaStream_t stream);
cudaError_t kvg_sm90_launch_e5m2(const struct kvg_sm90_params *p, int segments, int probe, int64_t blocks,
                                 int64_t smem, cudaStream_t stream);
cudaError_t kvg_sm90_launch_fp8(const struct kvg_sm90_params *p, int segments, int probe, int64_t blocks,
                                int64_t smem, cudaStream_t stream);

/* The launchers of the kernel for short work (decode_sm90_lean.cuh). */
cudaError_t kvg_sm90_lean_bf16(const struct kvg_sm90_lean_params *p, int segments, int64_t smem,
                               cudaStream_t stream);
cudaError_t kvg_sm90_lean_e4m3(const struct kvg_sm90_lean_params *p, int segments, int64_t smem,
                               cudaStream_t stream);
cudaError_t kvg_sm90_lean_e5m2(const struct kvg_sm90_lean_params *p, int segments, int64_t smem,
                               cudaStream_t stream);
cudaError_t kvg_sm90_lean_fp8(const struct kvg_sm90_lean_params *p, int segments, int64_t smem,
                              cudaStream_t stream);

#endif
