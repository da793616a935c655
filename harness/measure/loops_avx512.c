/* SPDX-License-Identifier: Apache-2.0
 *
 * loops_avx512.c: the loops of the roofs with 64-byte vectors, one cache line each.
 */
#include <immintrin.h>
#include <stdint.h>

typedef uint64_t vector64 __attribute__((vector_size(64)));
typedef float floats64 __attribute__((vector_size(64)));
#define VECTOR vector64
#define VECTOR_STREAM(p, v) _mm512_stream_si512((void *)(p), (__m512i)(v))
#define STREAM_FENCE() _mm_sfence()
#define FLOATS floats64
#define FLOATS_FMA(a, b, c) ((floats64)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define FMA_CHAINS 20
#define NAME "avx512"
#define SUPPORTED                                                                                            \
    (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&                              \
     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
#define LOOPS kvg_roof_loops_avx512
#include "loops_body.h"
