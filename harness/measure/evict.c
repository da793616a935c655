/* SPDX-License-Identifier: Apache-2.0
 *
 * evict.c: evicts memory from the caches, line by line.
 *
 * The usual way, reading a large buffer, is not reliable: the replacement policy of a last-level cache is not
 * known, the cache is shared with other programs, and a virtual machine may report a wrong size. CLFLUSHOPT
 * evicts a given line from every cache. On a CPU without it, twice the size of the last-level cache is read.
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

/* Reads `bytes` of fresh memory, which replace other lines in the caches. Without memory for the buffer
 * nothing is evicted; a machine that short of memory could not hold the case either. */
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
