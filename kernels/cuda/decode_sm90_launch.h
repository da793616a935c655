/* SPDX-License-Identifier: Apache-2.0
 *
 * decode_sm90_launch.h: one launcher per cache dtype and path, one source file each. segments: 128-byte
 * segments of a K or V row; cudaErrorInvalidValue if there is no kernel for that many.
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

/* The same for short work (decode_sm90_lean.cuh). */
cudaError_t kvg_sm90_lean_bf16(const struct kvg_sm90_lean_params *p, int segments, int64_t smem,
                               cudaStream_t stream);
cudaError_t kvg_sm90_lean_e4m3(const struct kvg_sm90_lean_params *p, int segments, int64_t smem,
                               cudaStream_t stream);
cudaError_t kvg_sm90_lean_e5m2(const struct kvg_sm90_lean_params *p, int segments, int64_t smem,
                               cudaStream_t stream);
cudaError_t kvg_sm90_lean_fp8(const struct kvg_sm90_lean_params *p, int segments, int64_t smem,
                              cudaStream_t stream);

#endif
