/* SPDX-License-Identifier: Apache-2.0
 *
 * clones.h: KVG_REF_CLONES compiles a hot loop twice, for plain x86-64 and for AVX2, and picks one at load
 * time. AVX2 alone brings wider vectors and no fused multiply-add, and the build switches contraction off, so
 * both copies return the same bits. Put it on leaf functions that hold no OpenMP region: the compiler moves
 * the body of such a region into a function of its own, which is not cloned.
 */
#ifndef KVG_REFERENCE_CLONES_H
#define KVG_REFERENCE_CLONES_H

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__)
#define KVG_REF_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define KVG_REF_CLONES
#endif

#endif
