/* SPDX-License-Identifier: Apache-2.0
 *
 * fp_control.c: the registers that control floating-point arithmetic.
 */
#include "fp_control.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__) || defined(__cppcheck__)
#include <xmmintrin.h>
#define FLAGS UINT64_C(0x3f) /* of MXCSR: exceptions that have happened */
#define ROUNDING 13          /* first of two bits */
#define FLUSHES UINT64_C(0x8040)
#define TRAPS UINT64_C(0x1f80)
static const char *const modes[4] = {"to nearest", "downward", "upward", "towards zero"};

void kvg_fp_control_get(struct kvg_fp_control *control)
{
    uint16_t x87;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    control->main = _mm_getcsr() & ~FLAGS;
    control->x87 = x87;
}

void kvg_fp_control_set(const struct kvg_fp_control *control)
{
    const uint16_t x87 = (uint16_t)control->x87;
    _mm_setcsr((unsigned)control->main);
    __asm__ volatile("fldcw %0" : : "m"(x87));
}
#elif defined(__aarch64__)
#define ROUNDING 22
#define FLUSHES UINT64_C(0x1080003) /* FZ, FZ16, FIZ, AH */
#define TRAPS UINT64_C(0x9f00)
static const char *const modes[4] = {"to nearest", "upward", "downward", "towards zero"};

void kvg_fp_control_get(struct kvg_fp_control *control)
{
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    *control = (struct kvg_fp_control){.main = fpcr};
}

void kvg_fp_control_set(const struct kvg_fp_control *control)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(control->main));
}
#else
#error "fp_control.c knows x86-64 and AArch64"
#endif

int kvg_fp_control_differs(const struct kvg_fp_control *a, const struct kvg_fp_control *b)
{
    return a->main != b->main || a->x87 != b->x87;
}

void kvg_fp_control_describe(const struct kvg_fp_control *before, const struct kvg_fp_control *now,
                             char *text, size_t size)
{
    const uint64_t changed = before->main ^ now->main;
    char mode[64] = "", flush[64] = "", trap[64] = "",
         x87[64] = "", *const parts[] = {mode, flush, trap, x87};
    if (changed >> ROUNDING & 3)
        snprintf(mode, sizeof mode, "the rounding mode (%s)", modes[now->main >> ROUNDING & 3]);
    if (changed & FLUSHES)
        snprintf(flush, sizeof flush, "the flushing of subnormals (%s)", now->main & FLUSHES ? "on" : "off");
    if (changed & TRAPS)
        snprintf(trap, sizeof trap, "the traps of floating-point exceptions");
    /* The rounding of both units is usually set together; it is then said once. */
    if (((before->x87 ^ now->x87) & ~(mode[0] ? UINT64_C(0xc00) : 0)) != 0)
        snprintf(x87, sizeof x87, "the x87 control word (0x%04x)", (unsigned)now->x87);
    text[0] = '\0';
    for (int i = 0; i < 4; i++)
        if (parts[i][0]) {
            const size_t used = strlen(text);
            snprintf(text + used, size - used, "%s%s", used ? ", " : "", parts[i]);
        }
    if (!text[0])
        snprintf(text, size, "the floating-point control register (0x%llx)", (unsigned long long)now->main);
}

/* 1 if this thread had another control. */
static int restore_here(const struct kvg_fp_control *control, struct kvg_fp_control *found)
{
    struct kvg_fp_control now;
    kvg_fp_control_get(&now);
    if (!kvg_fp_control_differs(control, &now))
        return 0;
    kvg_fp_control_set(control);
    *found = now;
    return 1;
}

int kvg_fp_control_restore(const struct kvg_fp_control *control, int64_t threads,
                           struct kvg_fp_control *found)
{
    int wrong = restore_here(control, found);
    if (threads > 1) {
#pragma omp parallel num_threads((int)threads)
        {
            struct kvg_fp_control one;
            if (restore_here(control, &one)) {
#pragma omp critical
                {
                    wrong = 1;
                    *found = one;
                }
            }
        }
    }
    return wrong;
}
