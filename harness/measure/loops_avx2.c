/* SPDX-License-Identifier: Apache-2.0
 *
 * loops_avx2.c: the loops of the roofs with 32-byte vectors. Twelve chains of FMAs hide the latency of an FMA
 * (4 or 5 cycles on two units) and leave four of the sixteen registers for operands.
 */
#include <immintrin.h>
#include <stdint.h>

typedef uint64_t vector32 __attribute__((vector_size(32)));
typedef float floats32 __attribute__((vector_size(32)));
#define VECTOR vector32
#define VECTOR_STREAM(p, v) _mm256_stream_si256((__m256i *)(p), (__m256i)(v))
#define STREAM_FENCE() _mm_sfence()
#define FLOATS floats32
#define FLOATS_FMA(a, b, c) ((floats32)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define FMA_CHAINS 12
#define NAME "avx2"
#define SUPPORTED (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#define LOOPS kvg_roof_loops_avx2
#include "loops_body.h"
