/* SPDX-License-Identifier: Apache-2.0
 *
 * features.c: which instruction sets this CPU can run. __builtin_cpu_supports reads CPUID and, for AVX and
 * AVX-512, also asks XGETBV whether the operating system saves the wide registers. Where it does not know a
 * feature (Clang 14: F16C and AVX512-FP16), CPUID is read here, and the check of AVX2 or AVX-512 covers the
 * registers.
 */
#include "cpu.h"

#include <stdarg.h>
#include <stdio.h>

int kvg_cpu_no(char *why, size_t size, const char *format, ...)
{
    va_list args;

    if (size > 0) {
        va_start(args, format);
        vsnprintf(why, size, format, args);
        va_end(args);
    }
    return 0;
}

const char *kvg_dtype_name(enum kvg_dtype dtype)
{
    static const char *const names[] = {"f32", "f16", "bf16", "e4m3", "e5m2", "e4m3fnuz"};
    return (unsigned)dtype < sizeof names / sizeof *names ? names[dtype] : "unknown dtype";
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Bits of CPUID: of leaf 1, ECX, and of leaf 7, EDX. */
enum { ECX1_F16C = 1 << 29, EDX7_AMX_BF16 = 1 << 22, EDX7_AVX512FP16 = 1 << 23, EDX7_AMX_TILE = 1 << 24 };

static unsigned ecx1(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) ? c : 0;
}

static unsigned edx7(void)
{
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 0, &a, &b, &c, &d) ? d : 0;
}

#define NEED_IF(holds, feature)                                                                              \
    if (!(holds))                                                                                            \
        return kvg_cpu_no(why, size, "this CPU (or its operating system) does not offer %s", feature);
#define NEED(feature) NEED_IF(__builtin_cpu_supports(feature), feature)

static int has_avx2(char *why, size_t size)
{
    NEED("avx2");
    NEED("fma");
    NEED_IF(ecx1() & ECX1_F16C, "f16c");
    NEED("bmi2");
    return 1;
}

static int has_avx512(char *why, size_t size)
{
    NEED("avx512f");
    NEED("avx512bw");
    NEED("avx512vl");
    NEED("avx512dq");
    return has_avx2(why, size);
}

static int has_avx512vbmi(char *why, size_t size)
{
    NEED("avx512vbmi");
    NEED("avx512bf16");
    return has_avx512(why, size);
}

static int has_avx512fp16(char *why, size_t size)
{
    NEED_IF(edx7() & EDX7_AVX512FP16, "avx512fp16");
    return has_avx512(why, size);
}

/* The tile registers are 8 KiB of state, so Linux saves them only for a process that has asked. */
static int has_amx(char *why, size_t size)
{
    enum { TILE_DATA = 18 }; /* state component */
    const unsigned both = EDX7_AMX_BF16 | EDX7_AMX_TILE;

    if ((edx7() & both) != both)
        return kvg_cpu_no(why, size, "this CPU does not offer AMX with bf16");
    NEED("avx512vbmi2");
    if (!has_avx512vbmi(why, size))
        return 0;
    if (syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, (long)TILE_DATA) != 0)
        return kvg_cpu_no(why, size, "the operating system does not let this process use AMX");
    return 1;
}

int kvg_cpu_has(enum kvg_isa isa, char *why, size_t size)
{
    switch (isa) {
    case KVG_ISA_SCALAR:
        return 1;
    case KVG_ISA_AVX2:
        return has_avx2(why, size);
    case KVG_ISA_AVX512:
        return has_avx512(why, size);
    case KVG_ISA_AVX512VBMI:
        return has_avx512vbmi(why, size);
    case KVG_ISA_AVX512FP16:
        return has_avx512fp16(why, size);
    case KVG_ISA_AMX:
        return has_amx(why, size);
    case KVG_ISA_NEON:
        break;
    }
    return kvg_cpu_no(why, size, "unknown instruction set %d", (int)isa);
}
#else
int kvg_cpu_has(enum kvg_isa isa, char *why, size_t size)
{
#if defined(__aarch64__)
    if (isa == KVG_ISA_NEON) /* part of every AArch64 CPU that runs Linux */
        return 1;
#endif
    return isa == KVG_ISA_SCALAR ? 1 : kvg_cpu_no(why, size, "the kernel is for another CPU architecture");
}
#endif
