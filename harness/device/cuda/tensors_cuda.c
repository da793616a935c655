/* SPDX-License-Identifier: Apache-2.0
 *
 * tensors_cuda.c: generates tensors and fills caches on the device. The small arrays that describe them
 * (vectors of a generator, scales) are host memory; they are uploaded on the same stream before the kernel.
 */
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

/* Uploads the vectors of a generator to g->vectors, one after the other in a single transfer, and sets the
 * pointers. */
static int upload_vectors(struct kvg_gpu *g, struct kvg_generator *there)
{
    const int64_t n = there->heads * there->head_dim, bytes = n * (int64_t)sizeof(float);
    const float **part[4] = {&there->multiply, &there->add, &there->special_multiply, &there->special_add};
    const int count = there->special_token < 0 ? 2 : 4;
    if (kvg_gpu_reserve_scratch(g, &g->vectors, 4 * bytes))
        return -1;
    float *all = malloc((size_t)(4 * bytes));
    if (!all)
        return kvg_gpu_refuse(g, "generating a tensor: out of host memory for %lld bytes",
                              (long long)(4 * bytes));
    for (int i = 0; i < count; i++) {
        memcpy(all + i * n, *part[i], (size_t)bytes);
        *part[i] = (const float *)g->vectors.data + i * n;
    }
    const int failed = kvg_gpu_upload(&g->device, g->vectors.data, all, count * bytes);
    free(all);
    return failed;
}

int kvg_gpu_generate(struct kvg_device *d, const struct kvg_generator *generator, int64_t tokens,
                     uint16_t *out)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    struct kvg_generator there = *generator;
    if (tokens <= 0 || generator->heads <= 0 || generator->head_dim <= 0)
        return 0;
    if (upload_vectors(g, &there))
        return -1;
    const cudaError_t e = kvg_launch_generate(&there, g->table, tokens, out, g->multiprocessors, g->stream);
    return e == cudaSuccess
               ? 0
               : kvg_gpu_fail(g, e, "generating %lld tokens of %lld heads and %lld dims", (long long)tokens,
                              (long long)generator->heads, (long long)generator->head_dim);
}

int kvg_gpu_store(struct kvg_device *d, const struct kvg_problem *problem, const uint16_t *source,
                  const int64_t *slots, int64_t tokens, const float *scale, int64_t scale_stride,
                  const struct kvg_pages *pages)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    struct kvg_gpu_store_work s = {.source = source,
                                   .slots = slots,
                                   .tokens = tokens,
                                   .heads = problem->kv_heads,
                                   .head_dim = problem->head_dim,
                                   .block_size = problem->block_size,
                                   .scale = NULL,
                                   .scale_stride = scale_stride,
                                   .pages = *pages,
                                   .dtype = problem->kv_dtype};
    const int64_t n = scale_stride ? problem->kv_heads : 1;
    if (scale) {
        if (kvg_gpu_reserve_scratch(g, &g->vectors, n * (int64_t)sizeof *scale) ||
            kvg_gpu_upload(d, g->vectors.data, scale, n * (int64_t)sizeof *scale))
            return -1;
        s.scale = g->vectors.data;
    }
    const cudaError_t e = kvg_launch_store(&s, g->multiprocessors, g->stream);
    return e == cudaSuccess ? 0
                            : kvg_gpu_fail(g, e, "storing %lld tokens in a cache of dtype %d",
                                           (long long)tokens, (int)problem->kv_dtype);
}
