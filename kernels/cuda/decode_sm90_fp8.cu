/* SPDX-License-Identifier: Apache-2.0
 *
 * decode_sm90_fp8.cu: kernels for path fp8: Q, K, V and P in e4m3. Each dtype has its own file, so that a
 * change compiles in seconds.
 */
#include "decode_sm90_lean.cuh"
#include "decode_sm90_launch.h"

cudaError_t kvg_sm90_launch_fp8(const struct kvg_sm90_params *p, int segments, int probe, int64_t blocks,
                                int64_t smem, cudaStream_t stream)
{
    switch (segments) {
    case 1:
        return kvg_sm90_launch<KVG_E4M3, 1, 1>(*p, probe, blocks, smem, stream);
    case 2:
        return kvg_sm90_launch<KVG_E4M3, 1, 2>(*p, probe, blocks, smem, stream);
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t kvg_sm90_lean_fp8(const struct kvg_sm90_lean_params *p, int segments, int64_t smem,
                              cudaStream_t stream)
{
    switch (segments) {
    case 1:
        return kvg_sm90_launch_lean<KVG_E4M3, 1, 1>(*p, smem, stream);
    case 2:
        return kvg_sm90_launch_lean<KVG_E4M3, 1, 2>(*p, smem, stream);
    default:
        return cudaErrorInvalidValue;
    }
}
