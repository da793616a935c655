/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_tiles.c: the inner loops for vectors of 16, 32 and 64 bytes.
 *
 * target_clones would not do here. It compiles one source with one vector type, and values of a type that is
 * wider than the machine's registers are kept in memory.
 */
#include "attention_tiles.h"

#include <stddef.h>
#include <string.h>

#define NAME(x) x##_16
#define ISA "baseline"
#define VEC 16
#define WIDE 2
#define WIDEN(x) __builtin_convertvector((x), f64_16)
#define MULTIPLY_ADD(sum, x, y) ((sum) + (x) * (y))
#include "attention_tiles_body.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(KVG_REF_ONE_CLONE)
#define HAVE_WIDE_VECTORS 1
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define NAME(x) x##_32
#define ISA "avx2"
#define VEC 32
#define WIDE 2
#define WIDEN(x) _mm256_cvtps_pd(x)
#define MULTIPLY_ADD(sum, x, y) (_mm256_fmadd_pd(_mm256_set1_pd(x), (y), (sum)))
#include "attention_tiles_body.h"
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,fma,prefer-vector-width=512")
#define NAME(x) x##_64
#define ISA "avx512"
#define VEC 64
#define WIDE 4
#define WIDEN(x) _mm512_cvtps_pd(x)
#define MULTIPLY_ADD(sum, x, y) (_mm512_fmadd_pd(_mm512_set1_pd(x), (y), (sum)))
#include "attention_tiles_body.h"
#pragma GCC pop_options
#endif

const struct kvg_tiles *kvg_tiles_of(int n)
{
    const struct kvg_tiles *found[3];
    int count = 0;
#ifdef HAVE_WIDE_VECTORS
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("fma"))
        found[count++] = &tiles_64;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        found[count++] = &tiles_32;
#endif
    found[count++] = &tiles_16;
    return n >= 0 && n < count ? found[n] : NULL;
}
