/* SPDX-License-Identifier: Apache-2.0
 *
 * inputs_fixture.h: small synthetic tensors as floats, for the tests of the inputs, and Philox in plain
 * integers as an independent source.
 */
#ifndef KVG_TESTS_INPUTS_FIXTURE_H
#define KVG_TESTS_INPUTS_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/inputs/generator.h"
#include "harness/inputs/inputs.h"

static inline float bf16(uint16_t bits)
{
    return kvg_bits_float((uint32_t)bits << 16);
}

static inline struct kvg_input_shape shape_of(const char *input)
{
    return (struct kvg_input_shape){.input = input,
                                    .seed = 1,
                                    .layer = -1,
                                    .context = 512,
                                    .q_len = 512,
                                    .q_heads = 8,
                                    .kv_heads = 4,
                                    .head_dim = 64};
}

/* A tensor as floats; the caller frees it. */
static inline float *fill(const struct kvg_input_shape *s, enum kvg_tensor tensor, int threads)
{
    int64_t tokens = tensor == KVG_TENSOR_Q ? s->q_len : s->context;
    int64_t n = tokens * (tensor == KVG_TENSOR_Q ? s->q_heads : s->kv_heads) * s->head_dim;
    uint16_t *bits = malloc((size_t)n * sizeof *bits);
    float *x = malloc((size_t)n * sizeof *x);
    struct kvg_error error = {0};
    assert_true(bits && x);
    if (kvg_input_fill(s, tensor, threads, bits, &error))
        fail_msg("%s", error.text);
    for (int64_t i = 0; i < n; i++)
        x[i] = bf16(bits[i]);
    free(bits);
    return x;
}

/* Root mean square of a head over `tokens` tokens: for a normal tensor about the factor of the head. */
static inline double rms(const float *x, int64_t heads, int64_t head_dim, int64_t tokens, int64_t head)
{
    double sum = 0;
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t d = 0; d < head_dim; d++)
            sum += pow(x[(t * heads + head) * head_dim + d], 2);
    return sqrt(sum / (double)(tokens * head_dim));
}

/* One block of Philox4x32-10 in plain integer arithmetic, from the paper (Salmon et al., SC11). */
static inline void plain_philox(const uint32_t counter[4], uint64_t seed, uint32_t out[4])
{
    uint32_t c[4], k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    memcpy(c, counter, sizeof c);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)c[0] * 0xD2511F53u, b = (uint64_t)c[2] * 0xCD9E8D57u;
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k1,
                            (uint32_t)a};
        memcpy(c, next, sizeof c);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

#endif
