/* SPDX-License-Identifier: Apache-2.0
 *
 * generator.c: the values of a generator in runs of 64 dims, so that the compiler makes vector code. The
 * bits are those of kvg_generator_value (generate.h), which defines them one value at a time.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "reference/clones.h"
#include "generator.h"

void kvg_generator_free(struct kvg_generator *g)
{
    free((void *)g->multiply);
    memset(g, 0, sizeof *g);
}

/* The functions *_run are leaf functions with restrict arrays, so that the compiler vectorises them. */

/* The 64 random words of dims [dim, dim + 64): 16 consecutive counters. */
KVG_REF_CLONES
static void random_run(uint32_t token, uint32_t head_block, uint32_t sequence, uint32_t stream, uint32_t key0,
                       uint32_t key1, uint32_t *restrict bits)
{
    for (uint32_t j = 0; j < 16; j++) {
        philox4x32_key_t key = {{key0, key1}};
        philox4x32_ctr_t counter = {{token, head_block + j, sequence, stream}};
        philox4x32_ctr_t words = philox4x32_R(10, counter, key);
        bits[j] = words.v[0];
        bits[16 + j] = words.v[1];
        bits[32 + j] = words.v[2];
        bits[48 + j] = words.v[3];
    }
}

KVG_REF_CLONES
static void normal_run(const uint32_t *restrict bits, float *restrict x)
{
    for (int j = 0; j < 64; j++)
        x[j] = kvg_normal(kvg_normal_table, bits[j]);
}

KVG_REF_CLONES
static void scale_run(float *restrict x, const float *restrict a, const float *restrict b, int64_t count)
{
    for (int64_t j = 0; j < count; j++)
        x[j] = kvg_add_rn(kvg_mul_rn(x[j], a[j]), b[j]);
}

KVG_REF_CLONES
static void round_run(const float *restrict x, uint16_t *restrict out, int64_t count)
{
    for (int64_t j = 0; j < count; j++)
        out[j] = kvg_bf16_bits(x[j]);
}

/* Dims [dim, dim + 64) of one row, before rounding to bf16. */
static void generate_run(const struct kvg_generator *g, uint32_t token, uint32_t head, uint32_t dim,
                         float x[64])
{
    const uint32_t block = (head << 16) + dim / 4, key0 = (uint32_t)g->seed, key1 = (uint32_t)(g->seed >> 32);
    uint32_t bits[64];
    random_run(token, block, g->sequence, g->stream, key0, key1, bits);
    normal_run(bits, x);
    if (g->outliers) {
        random_run(token, block, g->sequence, g->stream + KVG_STREAM_OUTLIER, key0, key1, bits);
        for (uint32_t j = 0; j < 64; j++)
            if (bits[j] < KVG_OUTLIER_THRESHOLD)
                x[j] = kvg_with_outlier(g, kvg_normal_table, x[j], token, head, dim + j);
    }
    if (g->absolute)
        for (uint32_t j = 0; j < 64; j++)
            x[j] = fabsf(x[j]);
    int64_t i = (int64_t)head * g->head_dim + dim;
    int special = (int64_t)token == g->special_token;
    const float *a = (special ? g->special_multiply : g->multiply) + i;
    const float *b = (special ? g->special_add : g->add) + i;
    int64_t count = g->head_dim - dim < 64 ? g->head_dim - dim : 64;
    scale_run(x, a, b, count);
}

void kvg_generator_fill(const struct kvg_generator *g, int64_t first, int64_t tokens, int threads,
                        uint16_t *out)
{
    int64_t rows = tokens * g->heads;
#pragma omp parallel for schedule(static) num_threads(threads) if (rows * g->head_dim > 65536)
    for (int64_t row = 0; row < rows; row++) {
        uint32_t token = (uint32_t)(first + row / g->heads), head = (uint32_t)(row % g->heads);
        for (int64_t dim = 0; dim < g->head_dim; dim += 64) {
            float x[64];
            generate_run(g, token, head, (uint32_t)dim, x);
            int64_t count = g->head_dim - dim < 64 ? g->head_dim - dim : 64;
            round_run(x, out + row * g->head_dim + dim, count);
        }
    }
}

/* Rounding to bf16 is monotonic, so the largest rounded value is the rounded largest value. */
void kvg_generator_absmax(const struct kvg_generator *g, int64_t tokens, float *absmax)
{
    for (int64_t head = 0; head < g->heads; head++) {
        float largest = 0;
        for (int64_t token = 0; token < tokens; token++)
            for (int64_t dim = 0; dim < g->head_dim; dim += 64) {
                float x[64];
                generate_run(g, (uint32_t)token, (uint32_t)head, (uint32_t)dim, x);
                int64_t count = g->head_dim - dim < 64 ? g->head_dim - dim : 64;
                for (int64_t j = 0; j < count; j++)
                    largest = fabsf(x[j]) > largest ? fabsf(x[j]) : largest;
            }
        absmax[head] = kvg_bits_float((uint32_t)kvg_bf16_bits(largest) << 16);
    }
}
