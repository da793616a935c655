/* SPDX-License-Identifier: Apache-2.0
 *
 * loops_generic.c: the loops of the roofs for a CPU without AVX2, with 16-byte vectors. They need no FMA
 * instruction, so the arithmetic roof is that of a multiplication and an addition.
 */
#include <stdint.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

typedef uint64_t vector16 __attribute__((vector_size(16)));
typedef float floats16 __attribute__((vector_size(16)));
#define VECTOR vector16
#ifdef __SSE2__
#define VECTOR_STREAM(p, v) _mm_stream_si128((__m128i *)(p), (__m128i)(v))
#define STREAM_FENCE() _mm_sfence()
#else
#define VECTOR_STREAM(p, v) (*(vector16 *)(p) = (v))
#define STREAM_FENCE() (void)0
#endif
#define FLOATS floats16
#define FLOATS_FMA(a, b, c) ((a) * (b) + (c))
#define FMA_CHAINS 10
#define NAME "generic"
#define SUPPORTED 1
#define LOOPS kvg_roof_loops_generic
#include "loops_body.h"
