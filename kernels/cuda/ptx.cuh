/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx.cuh: one thin function for each instruction that CUDA C has no name for.
 *
 * Accumulation on Hopper (read from the SASS of ptxas 13.0 for sm_90a, and from arXiv 2511.10909):
 *   - mma.sync.m16n8k32 e4m3 does not use the FP8 units. ptxas emits F2FP.F16.E4M3.UNPACK_B for every operand
 *     register and two HMMA.16816.F32. Every e4m3 and e5m2 value is exact in f16, so the products are exact,
 *     and the sum is that of HMMA: FP32, 25 bits inside one instruction.
 *   - wgmma e4m3 (QGMMA) uses the FP8 units and keeps 14 significand bits.
 * The kernels here write the first form by hand, so that Q and P are unpacked once and not once per product.
 */
#ifndef KVG_CUDA_PTX_CUH
#define KVG_CUDA_PTX_CUH

#include <stdint.h>
#include <cuda.h>
#include "fp8_integer.h"

#define KVG_DEV static __device__ __forceinline__
#define KVG_MEMBER __device__ __forceinline__

KVG_DEV uint32_t kvg_smem(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- mbarrier: a phase ends when all arrivals and all announced bytes are there */
KVG_DEV void kvg_bar_init(uint32_t bar, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
KVG_DEV void kvg_bar_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
KVG_DEV void kvg_bar_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
KVG_DEV void kvg_bar_expect(uint32_t bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
KVG_DEV void kvg_bar_wait(uint32_t bar, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "LOOP:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1, 0x989680;\n"
                 "@p bra DONE;\n"
                 "bra LOOP;\n"
                 "DONE:\n"
                 "}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
}
KVG_DEV void kvg_named_barrier_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
KVG_DEV void kvg_named_barrier(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- bulk tensor copy of one box [block][head][slot][128 bytes], written with the 128-byte swizzle */
KVG_DEV void kvg_tma_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"((uint64_t)map) : "memory");
}
KVG_DEV uint64_t kvg_policy_stream()
{
    uint64_t p;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
    return p;
}
KVG_DEV void kvg_tma_box(uint32_t dst, const CUtensorMap *map, uint32_t bar, int byte, int slot, int head,
                         int block, uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(dst),
                 "l"((uint64_t)map), "r"(bar), "r"(byte), "r"(slot), "r"(head), "r"(block), "l"(policy)
                 : "memory");
}

/* ---- programmatic dependent launch */
KVG_DEV void kvg_launch_dependents()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
KVG_DEV void kvg_wait_for_primary()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* ---- shared memory */
KVG_DEV uint4 kvg_lds128(uint32_t a)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(a));
    return v;
}
KVG_DEV uint32_t kvg_lds32(uint32_t a)
{
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(a));
    return v;
}
KVG_DEV uint2 kvg_lds64(uint32_t a)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(a));
    return v;
}

/* ---- global memory */
/* Prefetches into the L2, for a later load. */
KVG_DEV void kvg_prefetch(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* ---- conversions */
KVG_DEV float kvg_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* From compute capability 8.9 on, FP8 conversions are instructions. Below, integer arithmetic gives the
 * same codes. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
#define KVG_FP8_INSTRUCTIONS 1
#else
#define KVG_FP8_INSTRUCTIONS 0
#endif
/* Four e4m3 codes as f16: lo gets the two low codes, hi the two high codes. */
KVG_DEV void kvg_unpack_e4m3(uint32_t x, uint32_t &lo, uint32_t &hi)
{
#if !KVG_FP8_INSTRUCTIONS
    lo = kvg_fp8_integer_e4m3_to_f16(x & 0xff) | kvg_fp8_integer_e4m3_to_f16(x >> 8 & 0xff) << 16;
    hi = kvg_fp8_integer_e4m3_to_f16(x >> 16 & 0xff) | kvg_fp8_integer_e4m3_to_f16(x >> 24) << 16;
#else
    asm("{\n.reg .b16 a, b;\nmov.b32 {a, b}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, a;\ncvt.rn.f16x2.e4m3x2 %1, b;\n}"
        : "=r"(lo), "=r"(hi)
        : "r"(x));
#endif
}
/* An e5m2 code is the upper byte of its f16. */
KVG_DEV void kvg_unpack_e5m2(uint32_t x, uint32_t &lo, uint32_t &hi)
{
    lo = __byte_perm(x, 0, 0x1404);
    hi = __byte_perm(x, 0, 0x3424);
}
KVG_DEV uint32_t kvg_pack_f16(float lo, float hi)
{
    uint32_t d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
    return d;
}
KVG_DEV uint32_t kvg_pack_bf16(float lo, float hi)
{
    uint32_t d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
    return d;
}
KVG_DEV uint16_t kvg_pack_e4m3(float lo, float hi)
{
#if !KVG_FP8_INSTRUCTIONS
    return (uint16_t)(kvg_fp8_integer_e4m3(__float_as_uint(lo)) | kvg_fp8_integer_e4m3(__float_as_uint(hi))
                                                                      << 8);
#else
    uint16_t d;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(d) : "f"(hi), "f"(lo));
    return d;
#endif
}
KVG_DEV uint16_t kvg_pack_e5m2(float lo, float hi)
{
#if !KVG_FP8_INSTRUCTIONS
    return (uint16_t)(kvg_fp8_integer_e5m2(__float_as_uint(lo)) | kvg_fp8_integer_e5m2(__float_as_uint(hi))
                                                                      << 8);
#else
    uint16_t d;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(d) : "f"(hi), "f"(lo));
    return d;
#endif
}
/* Rounds two values to e4m3 and returns them as f16, in which they are exact. */
KVG_DEV uint32_t kvg_round_e4m3(float lo, float hi)
{
    uint32_t d;
#if !KVG_FP8_INSTRUCTIONS
    uint32_t none;
    kvg_unpack_e4m3(kvg_pack_e4m3(lo, hi), d, none);
#else
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(d) : "h"(kvg_pack_e4m3(lo, hi)));
#endif
    return d;
}

/* ---- matrix products with an FP32 accumulator; c holds the sum so far */
template <bool BF16>
KVG_DEV void kvg_mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                     uint32_t b1)
{
    if (BF16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
/* Transposes an 8 x 8 matrix of 16-bit values. Each lane holds two of them. */
KVG_DEV uint32_t kvg_transpose8(uint32_t x)
{
    uint32_t y;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

#endif
