/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda.h: the CUDA kernels of this library. All functions and kernels can be called without a GPU or a
 * driver. On such a machine every `supports` returns 0 and gives the reason.
 */
#ifndef KVG_CUDA_KERNELS_H
#define KVG_CUDA_KERNELS_H

#include "../kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

const struct kvg_kernel *const *kvg_cuda_kernels(int64_t *count);

extern const struct kvg_kernel kvg_cuda_store;        /* "cuda/store": store and quantize_q */
extern const struct kvg_kernel kvg_cuda_dequant_sm90; /* "cuda/dequant_sm90" */
extern const struct kvg_kernel kvg_cuda_fp8_sm90;     /* "cuda/fp8_sm90" */
extern const struct kvg_kernel kvg_cuda_naive_f32;    /* "cuda/naive_f32" */

/* For the kernels themselves: properties of the current device. Returns 0, or -1 with the reason in
 * why[0..size). */
struct kvg_cuda_device {
    int major, minor, multiprocessors;
    int64_t smem_per_block; /* bytes, opt-in limit */
};
int kvg_cuda_device_here(struct kvg_cuda_device *device, char *why, size_t size);

#ifdef __cplusplus
}
#endif
#endif
