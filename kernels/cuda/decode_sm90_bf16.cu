/* SPDX-License-Identifier: Apache-2.0
 *
 * decode_sm90_bf16.cu: kernels for a bf16 cache. 4 segments of 128 bytes are enough for head_dim 256. Each
 * dtype has its own file, so that a change compiles in seconds.
 */
#include "decode_sm90_lean.cuh"
#include "decode_sm90_launch.h"

cudaError_t kvg_sm90_launch_bf16(const struct kvg_sm90_params *p, int segments, int probe, int64_t blocks,
                                 int64_t smem, cudaStream_t stream)
{
    switch (segments) {
    case 1:
        return kvg_sm90_launch<KVG_BF16, 0, 1>(*p, probe, blocks, smem, stream);
    case 2:
        return kvg_sm90_launch<KVG_BF16, 0, 2>(*p, probe, blocks, smem, stream);
    case 3:
        return kvg_sm90_launch<KVG_BF16, 0, 3>(*p, probe, blocks, smem, stream);
    case 4:
        return kvg_sm90_launch<KVG_BF16, 0, 4>(*p, probe, blocks, smem, stream);
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t kvg_sm90_lean_bf16(const struct kvg_sm90_lean_params *p, int segments, int64_t smem,
                               cudaStream_t stream)
{
    switch (segments) {
    case 1:
        return kvg_sm90_launch_lean<KVG_BF16, 0, 1>(*p, smem, stream);
    case 2:
        return kvg_sm90_launch_lean<KVG_BF16, 0, 2>(*p, smem, stream);
    default:
        return cudaErrorInvalidValue;
    }
}
