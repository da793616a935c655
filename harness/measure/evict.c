/* SPDX-License-Identifier: Apache-2.0
 *
 * evict.c: make memory cold.
 *
 * Reading a large buffer is the usual way, and not a sure one: a last-level cache keeps lines by rules of its
 * own, is shared with neighbours one does not see, and in a virtual machine its size is hearsay. CLFLUSHOPT
 * names the line and throws it out of every cache. Where a CPU lacks it, twice the last-level cache is read.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#include <immintrin.h>
#define KVG_X86 1
#endif

#include "harness/machine/caches.h"
#include "evict.h"
#include "loops.h"

enum { LINE = 64 };

/* Reads `bytes` of fresh memory, so that they take the place of others. Out of memory: nothing is evicted by
 * this buffer, but then nothing of the case would have fitted either. */
static void read_fresh(int64_t bytes)
{
    void *buffer;
    if (posix_memalign(&buffer, 4096, (size_t)bytes))
        return;
    memset(buffer, 1, (size_t)bytes);
    volatile uint64_t sink = kvg_roof_loops_choose()->read(buffer, bytes);
    (void)sink;
    free(buffer);
}

#ifdef KVG_X86
__attribute__((target("clflushopt"))) static void flush_lines(const char *first, const char *end)
{
    for (const char *line = first; line < end; line += LINE)
        _mm_clflushopt((void *)line);
    _mm_mfence();
}

static int can_flush(void)
{
    static int answer = -1; /* clang's __builtin_cpu_supports does not know this feature */
    unsigned a, b, c, d;
    if (answer < 0)
        answer = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_CLFLUSHOPT);
    return answer;
}
#else
static void flush_lines(const char *first, const char *end)
{
    (void)first;
    (void)end;
}

static int can_flush(void)
{
    return 0;
}
#endif

void kvg_evict_range(const void *data, int64_t bytes)
{
    if (bytes <= 0 || !data)
        return;
    if (can_flush()) {
        const char *first = (const char *)((uintptr_t)data & ~(uintptr_t)(LINE - 1));
        flush_lines(first, (const char *)data + bytes);
        return;
    }
    int64_t llc = kvg_llc_bytes();
    read_fresh(llc > 0 ? 2 * llc : INT64_C(256) << 20);
}
