/* SPDX-License-Identifier: Apache-2.0
 *
 * clones.h: KVG_REF_CLONES compiles a hot loop three times, for plain x86-64, for AVX2 (x86-64-v3) and for
 * AVX-512 (x86-64-v4), and picks one at load time. The build switches contraction off, so no copy fuses a
 * multiply with an add, and the compiler reorders no sum: all copies return the same bits. Put it on leaf
 * functions that hold no OpenMP region (the compiler moves the body of such a region into a function of its
 * own, which is not cloned), and on loops that the compiler turns into vectors by itself: the halves of a
 * vector type that is wider than the machine's go through memory. Loops that need their sums held in
 * registers are in attention_tiles.h.
 */
#ifndef KVG_REFERENCE_CLONES_H
#define KVG_REFERENCE_CLONES_H

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) &&                       \
    !defined(KVG_REF_ONE_CLONE)
#define KVG_REF_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define KVG_REF_CLONES
#endif

#endif
