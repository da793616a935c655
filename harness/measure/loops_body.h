/* SPDX-License-Identifier: Apache-2.0
 *
 * loops_body.h: the loops themselves, included by one file for each instruction set. That file defines
 *
 *   VECTOR              the vector type, 64-bit integer lanes
 *   VECTOR_STREAM(p, v) non-temporal store of v to the aligned address p
 *   STREAM_FENCE()      makes such stores visible
 *   FLOATS              the vector type of FP32 lanes
 *   FLOATS_FMA(a, b, c) a * b + c on FLOATS
 *   FMA_CHAINS          number of independent accumulators: at least latency times units, and fewer than the
 *                       registers
 *   NAME                name of the instruction set, a string
 *   SUPPORTED           expression: does this CPU support the set?
 *   LOOPS               name of the struct kvg_roof_loops to define
 *
 * The reading loops use eight accumulators. That is enough: an addition takes one cycle, and two vectors are
 * loaded per cycle.
 */
#include <string.h>

#include "loops.h"

typedef VECTOR unaligned_vector __attribute__((aligned(1), may_alias));
enum { LANES = sizeof(VECTOR) / 8, UNROLL = 8, STEP = UNROLL * (int)sizeof(VECTOR) };

static uint64_t fold(VECTOR v)
{
    uint64_t sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += (uint64_t)v[i];
    return sum;
}

/* The rest, shorter than one STEP: vectors, then words of 8 bytes, then single bytes. */
static inline uint64_t read_rest(const char *data, int64_t bytes)
{
    VECTOR sum = {0};
    uint64_t rest = 0, word;
    int64_t i = 0;
    for (; i + (int64_t)sizeof(VECTOR) <= bytes; i += (int64_t)sizeof(VECTOR))
        sum += *(const unaligned_vector *)(data + i);
    for (; i + 8 <= bytes; i += 8) {
        memcpy(&word, data + i, 8);
        rest += word;
    }
    for (; i < bytes; i++)
        rest += (unsigned char)data[i];
    return rest + fold(sum);
}

static inline uint64_t read_linear(const char *data, int64_t bytes)
{
    VECTOR sum[UNROLL] = {{0}};
    int64_t i = 0;
    for (; i + STEP <= bytes; i += STEP)
        for (int u = 0; u < UNROLL; u++)
            sum[u] += *(const unaligned_vector *)(data + i + u * (int)sizeof(VECTOR));
    for (int u = 1; u < UNROLL; u++)
        sum[0] += sum[u];
    return fold(sum[0]) + (i < bytes ? read_rest(data + i, bytes - i) : 0);
}

static uint64_t loop_read(const void *data, int64_t bytes)
{
    return read_linear(data, bytes);
}

static uint64_t loop_read_prefetching(const void *data, int64_t bytes, const void *next)
{
    const char *p = data, *n = next;
    VECTOR sum[UNROLL] = {{0}};
    int64_t i = 0;
    for (; i + STEP <= bytes; i += STEP) {
        for (int line = 0; line < STEP; line += 64)
            __builtin_prefetch(n + i + line, 0, 2);
        for (int u = 0; u < UNROLL; u++)
            sum[u] += *(const unaligned_vector *)(p + i + u * (int)sizeof(VECTOR));
    }
    for (int u = 1; u < UNROLL; u++)
        sum[0] += sum[u];
    return fold(sum[0]) + (i < bytes ? read_rest(p + i, bytes - i) : 0);
}

static uint64_t loop_read_streams(const char *const data[], int64_t bytes)
{
    VECTOR sum[UNROLL] = {{0}};
    uint64_t rest = 0;
    int64_t i = 0;
    for (; i + STEP <= bytes; i += STEP)
        for (int stream = 0; stream < KVG_STREAMS; stream++)
            for (int u = 0; u < UNROLL; u++)
                sum[u] += *(const unaligned_vector *)(data[stream] + i + u * (int)sizeof(VECTOR));
    for (int u = 1; u < UNROLL; u++)
        sum[0] += sum[u];
    for (int stream = 0; stream < KVG_STREAMS && i < bytes; stream++)
        rest += read_rest(data[stream] + i, bytes - i);
    return fold(sum[0]) + rest;
}

static uint64_t loop_read_span(const struct kvg_span *span)
{
    uint64_t sum = 0;
    const char *row = span->data;
    if (span->row_bytes >= STEP) {
        for (int64_t r = 0; r < span->rows; r++, row += span->stride)
            sum += read_linear(row, span->row_bytes);
        return sum;
    }
    /* Rows shorter than a STEP share one horizontal sum. */
    VECTOR total = {0};
    int64_t whole = span->row_bytes / (int64_t)sizeof(VECTOR) * (int64_t)sizeof(VECTOR);
    for (int64_t r = 0; r < span->rows; r++, row += span->stride) {
        for (int64_t i = 0; i < whole; i += (int64_t)sizeof(VECTOR))
            total += *(const unaligned_vector *)(row + i);
        if (whole < span->row_bytes)
            sum += read_rest(row + whole, span->row_bytes - whole);
    }
    return sum + fold(total);
}

static void loop_copy(void *to, const void *from, int64_t bytes)
{
    char *t = to;
    const char *f = from;
    int64_t i = 0;
    for (; i + STEP <= bytes; i += STEP)
        for (int u = 0; u < UNROLL; u++)
            *(unaligned_vector *)(t + i + u * (int)sizeof(VECTOR)) =
                *(const unaligned_vector *)(f + i + u * (int)sizeof(VECTOR));
    memcpy(t + i, f + i, (size_t)(bytes - i));
}

static void loop_copy_streaming(void *to, const void *from, int64_t bytes)
{
    char *t = to;
    const char *f = from;
    int64_t i = 0;
    for (; i + STEP <= bytes; i += STEP)
        for (int u = 0; u < UNROLL; u++)
            VECTOR_STREAM(t + i + u * (int)sizeof(VECTOR),
                          *(const unaligned_vector *)(f + i + u * (int)sizeof(VECTOR)));
    memcpy(t + i, f + i, (size_t)(bytes - i));
    STREAM_FENCE();
}

static float loop_fma(int64_t steps, int64_t *operations)
{
    enum { FLOAT_LANES = sizeof(FLOATS) / 4 };
    FLOATS sum[FMA_CHAINS], factor = {0}, addend = {0};
    volatile float one = 1.0f, tiny = 1e-8f; /* volatile: unknown to the compiler */
    for (int i = 0; i < FLOAT_LANES; i++) {
        factor[i] = one;
        addend[i] = tiny;
    }
    for (int c = 0; c < FMA_CHAINS; c++)
        sum[c] = addend * (float)c;
    for (int64_t s = 0; s < steps; s++)
        for (int c = 0; c < FMA_CHAINS; c++)
            sum[c] = FLOATS_FMA(sum[c], factor, addend);
    float result = 0;
    for (int c = 0; c < FMA_CHAINS; c++)
        for (int i = 0; i < FLOAT_LANES; i++)
            result += sum[c][i];
    *operations += steps * FMA_CHAINS * FLOAT_LANES * 2;
    return result;
}

static int supported(void)
{
    return SUPPORTED;
}

const struct kvg_roof_loops LOOPS = {
    .name = NAME,
    .supported = supported,
    .read = loop_read,
    .read_prefetching = loop_read_prefetching,
    .read_span = loop_read_span,
    .read_streams = loop_read_streams,
    .copy = loop_copy,
    .copy_streaming = loop_copy_streaming,
    .fma = loop_fma,
};
