/* SPDX-License-Identifier: Apache-2.0
 *
 * device.cu: properties of the current device for the kernels, and the table of CUDA kernels.
 */
#include "cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

extern "C" int kvg_cuda_device_here(struct kvg_cuda_device *d, char *why, size_t size)
{
    int id = 0, smem = 0;
    cudaError_t e = cudaGetDevice(&id);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&d->major, cudaDevAttrComputeCapabilityMajor, id);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&d->minor, cudaDevAttrComputeCapabilityMinor, id);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&d->multiprocessors, cudaDevAttrMultiProcessorCount, id);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&smem, cudaDevAttrMaxSharedMemoryPerBlockOptin, id);
    d->smem_per_block = smem;
    if (e == cudaSuccess)
        return 0;
    (void)cudaGetLastError();
    if (e == cudaErrorInsufficientDriver)
        snprintf(why, size, "no NVIDIA driver here, or one too old for CUDA %d.%d", CUDART_VERSION / 1000,
                 CUDART_VERSION % 1000 / 10);
    else
        snprintf(why, size, "no usable CUDA device: %s", cudaGetErrorString(e));
    return -1;
}

static const struct kvg_kernel *const kernels[] = {
    &kvg_cuda_store,
    &kvg_cuda_dequant_sm90,
    &kvg_cuda_fp8_sm90,
    &kvg_cuda_naive_f32,
};

extern "C" const struct kvg_kernel *const *kvg_cuda_kernels(int64_t *count)
{
    *count = (int64_t)(sizeof kernels / sizeof kernels[0]);
    return kernels;
}
