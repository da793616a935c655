/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu.h: the CPU kernels by name, and what all of them need to know about the machine and the problem.
 */
#ifndef KVG_KERNELS_CPU_H
#define KVG_KERNELS_CPU_H

#include <stddef.h>
#include "../kernel.h"

/* Instruction sets that a kernel is built for. Their ranks are in kernels.c. */
enum kvg_isa {
    KVG_ISA_SCALAR = 0,
    KVG_ISA_AVX2,
    KVG_ISA_AVX512,
    KVG_ISA_AVX512VBMI,
    KVG_ISA_AVX512FP16,
    KVG_ISA_AMX,
    KVG_ISA_NEON
};

/* 1 if this CPU and this operating system run `isa`; else 0 and one sentence in why[0..size). */
int kvg_cpu_has(enum kvg_isa isa, char *why, size_t size);

/* Writes the reason to why[0..size) and returns 0, so that a `supports` can `return kvg_cpu_no(...)`. */
int kvg_cpu_no(char *why, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Bytes of one element. */
static inline int64_t kvg_dtype_bytes(enum kvg_dtype dtype)
{
    return dtype == KVG_F32 ? 4 : dtype == KVG_F16 || dtype == KVG_BF16 ? 2 : 1;
}
const char *kvg_dtype_name(enum kvg_dtype dtype);

/* Defined where the architecture has the instruction set. */
extern const struct kvg_kernel kvg_cpu_store_scalar, kvg_cpu_store_avx2, kvg_cpu_store_avx512,
    kvg_cpu_store_neon;
extern const struct kvg_kernel kvg_cpu_dequant_scalar, kvg_cpu_dequant_avx2, kvg_cpu_dequant_avx512,
    kvg_cpu_dequant_avx512fp16, kvg_cpu_dequant_amx, kvg_cpu_dequant_neon;
extern const struct kvg_kernel kvg_cpu_fp8_scalar, kvg_cpu_fp8_avx2, kvg_cpu_fp8_avx512,
    kvg_cpu_fp8_avx512fp16, kvg_cpu_fp8_amx, kvg_cpu_fp8_neon;

#endif
