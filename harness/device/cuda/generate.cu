/* SPDX-License-Identifier: Apache-2.0
 *
 * generate.cu: synthetic tensors on the device, with the bits that harness/inputs/generate.h defines. A
 * thread makes the four values of one Philox counter (dims 16 apart); the 16 threads of half a warp write 16
 * consecutive values. The quantile table is copied to shared memory.
 */
#include "launch.h"

enum { LANES = 16, TOKENS = 16, THREADS = LANES * TOKENS };

__device__ static philox4x32_ctr_t random_words(const struct kvg_generator &g, uint32_t stream,
                                                uint32_t token, uint32_t place)
{
    philox4x32_ctr_t counter = {{token, place, g.sequence, stream}};
    philox4x32_key_t key = {{(uint32_t)g.seed, (uint32_t)(g.seed >> 32)}};
    return philox4x32_R(10, counter, key);
}

/* The deviates z of dims dim, dim + 16, dim + 32 and dim + 48 of one row, as in kvg_generator_value. */
__device__ static void four(const struct kvg_generator &g, const struct kvg_normal_segment *table,
                            uint32_t token, uint32_t head, uint32_t dim, float (&x)[4])
{
    const uint32_t place = (head << 16) + dim / 64 * 16 + dim % 16;
    const philox4x32_ctr_t words = random_words(g, g.stream, token, place);
#pragma unroll
    for (int w = 0; w < 4; w++)
        x[w] = kvg_normal(table, words.v[w]);
    if (g.outliers) {
        const philox4x32_ctr_t is = random_words(g, g.stream + KVG_STREAM_OUTLIER, token, place);
#pragma unroll
        for (int w = 0; w < 4; w++)
            if (is.v[w] < KVG_OUTLIER_THRESHOLD)
                x[w] = kvg_with_outlier(&g, table, x[w], token, head, dim + 16 * w);
    }
    if (g.absolute) {
#pragma unroll
        for (int w = 0; w < 4; w++)
            x[w] = kvg_bits_float(kvg_float_bits(x[w]) & 0x7fffffffu);
    }
}

__global__ void __launch_bounds__(THREADS)
    generate_kernel(const struct kvg_generator g, const struct kvg_normal_segment *table, int64_t tokens,
                    uint16_t *out)
{
    __shared__ struct kvg_normal_segment segments[KVG_NORMAL_SEGMENTS];
    for (int i = threadIdx.y * LANES + threadIdx.x; i < KVG_NORMAL_SEGMENTS; i += THREADS)
        segments[i] = table[i];
    __syncthreads();
    const uint32_t head = blockIdx.y;
    for (int64_t dim = threadIdx.x; dim < g.head_dim; dim += 64)
        for (int64_t t = (int64_t)blockIdx.x * TOKENS + threadIdx.y; t < tokens;
             t += (int64_t)gridDim.x * TOKENS) {
            const bool special = t == g.special_token;
            const float *a = (special ? g.special_multiply : g.multiply) + head * g.head_dim;
            const float *b = (special ? g.special_add : g.add) + head * g.head_dim;
            uint16_t *row = out + (t * g.heads + head) * g.head_dim;
            float x[4];
            four(g, segments, (uint32_t)t, head, (uint32_t)dim, x);
#pragma unroll
            for (int w = 0; w < 4; w++) {
                const int64_t d = dim + 16 * w;
                if (d < g.head_dim)
                    row[d] = kvg_bf16_bits(kvg_add_rn(kvg_mul_rn(x[w], a[d]), b[d]));
            }
        }
}

extern "C" cudaError_t kvg_launch_generate(const struct kvg_generator *g,
                                           const struct kvg_normal_segment *table, int64_t tokens,
                                           uint16_t *out, int mp, cudaStream_t stream)
{
    if (g->heads < 0 || g->heads > 65535 || tokens < 0)
        return cudaErrorInvalidValue;
    if (!g->heads || !tokens || g->head_dim <= 0)
        return cudaSuccess;
    const int64_t needed = (tokens + TOKENS - 1) / TOKENS,
                  share = ((int64_t)mp * 32 + g->heads - 1) / g->heads;
    const dim3 grid((unsigned)(needed < share ? needed : share), (unsigned)g->heads);
    generate_kernel<<<grid, dim3(LANES, TOKENS), 0, stream>>>(*g, table, tokens, out);
    return cudaGetLastError();
}
