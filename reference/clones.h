/* SPDX-License-Identifier: Apache-2.0
 *
 * clones.h: KVG_REF_CLONES compiles a hot loop three times: for plain x86-64, for AVX2 (x86-64-v3) and for
 * AVX-512 (x86-64-v4). The loader picks one of them. All copies return the same bits: the build switches
 * contraction off, so no copy fuses a multiply with an add, and the compiler does not reorder sums.
 *
 * Use it on functions that
 *   - are leaves and hold no OpenMP region: the compiler moves the body of such a region into a function of
 *     its own, which is not cloned;
 *   - are loops that the compiler vectorises by itself. A vector type that is wider than the machine's
 *     registers is split into parts that go through memory.
 * Loops that must keep their sums in registers are in attention_tiles.h.
 */
#ifndef KVG_REFERENCE_CLONES_H
#define KVG_REFERENCE_CLONES_H

/* Clang 14 gives the resolver of a static function a global name, so two files cannot have clones of the same
 * name: it compiles each loop once. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) &&                       \
    !defined(__clang__) && !defined(KVG_REF_ONE_CLONE)
#define KVG_REF_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define KVG_REF_CLONES
#endif

#endif
