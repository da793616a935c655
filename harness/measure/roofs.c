/* SPDX-License-Identifier: Apache-2.0
 *
 * roofs.c: measures the limits of this machine, with as many threads as the case has.
 *
 * Each roof is the best of the passes that fit into about 50 ms, and of all earlier measurements with as many
 * threads. The best pass counts because noise can only make a pass slower: a limit that was reached once
 * exists. The buffer of the memory roofs is flushed out of the caches before each pass. Without
 * that, parts of the buffer stay in the last-level cache, although the buffer is four times as large, and the
 * memory roofs come out too high.
 */
#include "roofs.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "harness/machine/clock.h"
#include "harness/machine/caches.h"
#include "evict.h"
#include "loops.h"

#define PASS_SECONDS 0.05

/* A buffer in huge pages, where the system has them. Each part is first touched by the thread that will read
 * it, so that it is in the memory of that thread's NUMA node. */
static char *allocate(int64_t bytes, int64_t threads)
{
    void *memory;
    if (posix_memalign(&memory, 2 << 20, (size_t)bytes))
        return NULL;
    char *data = memory;
    madvise(data, (size_t)bytes, MADV_HUGEPAGE); /* without huge pages the roof is measured too */
#pragma omp parallel num_threads((int)threads)
    {
        int64_t n = omp_get_num_threads(), me = omp_get_thread_num();
        memset(data + bytes / n * me, 1, (size_t)(me == n - 1 ? bytes - bytes / n * me : bytes / n));
    }
    return data;
}

/* First byte of the part of thread `me` of `n`, in whole 4 KiB pages. */
static int64_t part_begin(int64_t bytes, int64_t me, int64_t n)
{
    return me == n ? bytes : bytes / 4096 * me / n * 4096;
}

static int64_t memory_buffer_bytes(void)
{
    int64_t bytes = 4 * kvg_llc_bytes(), least = INT64_C(64) << 20, most = INT64_C(1) << 30;
    bytes = bytes < least ? least : bytes > most ? most : bytes;
    return bytes / (4 << 20) * (4 << 20);
}

enum pass { PASS_READ, PASS_READ_STREAMS, PASS_COPY, PASS_COPY_STREAMING };

static void flush_all(const char *data, int64_t bytes, int64_t threads)
{
#pragma omp parallel num_threads((int)threads)
    {
        int64_t n = omp_get_num_threads(), me = omp_get_thread_num();
        int64_t begin = part_begin(bytes, me, n);
        kvg_evict_range(data + begin, part_begin(bytes, me + 1, n) - begin);
    }
}

/* One thread's part of a pass: `length` bytes from `begin` on. A copy goes from the first half of the buffer
 * to the second, which starts at `half`. */
static uint64_t pass_part(enum pass pass, char *data, int64_t half, int64_t begin, int64_t length)
{
    const struct kvg_roof_loops *loops = kvg_roof_loops_choose();
    const char *streams[KVG_STREAMS];
    switch (pass) {
    case PASS_READ:
        return loops->read(data + begin, length);
    case PASS_READ_STREAMS:
        for (int s = 0; s < KVG_STREAMS; s++)
            streams[s] = data + begin + length / KVG_STREAMS * s;
        return loops->read_streams(streams, length / KVG_STREAMS);
    case PASS_COPY:
        loops->copy(data + half + begin, data + begin, length);
        return 0;
    case PASS_COPY_STREAMING:
        loops->copy_streaming(data + half + begin, data + begin, length);
        return 0;
    }
    return 0;
}

/* Seconds of one pass over the buffer. The clock starts when all threads are running. */
static double memory_pass(enum pass pass, char *data, int64_t bytes, int64_t threads)
{
    uint64_t sink = 0;
    double start = 0, end = 0;
    int64_t half = bytes / 2, size = pass == PASS_COPY || pass == PASS_COPY_STREAMING ? half : bytes;
#pragma omp parallel num_threads((int)threads) reduction(+ : sink)
    {
        int64_t n = omp_get_num_threads(), me = omp_get_thread_num();
        int64_t begin = part_begin(size, me, n), length = part_begin(size, me + 1, n) - begin;
#pragma omp barrier
#pragma omp master
        start = kvg_now();
        sink += pass_part(pass, data, half, begin, length);
#pragma omp barrier
#pragma omp master
        end = kvg_now();
    }
    volatile uint64_t keep = sink;
    (void)keep;
    return end - start;
}

/* Best rate, in B/s, of the passes over the first `bytes` that fit into `budget` seconds; at least two
 * passes. */
static double pass_rate(enum pass pass, char *data, int64_t bytes, int64_t threads, double budget)
{
    double best = INFINITY, spent = 0;
    for (int i = 0; i < 2 || spent < budget; i++) {
        flush_all(data, bytes, threads);
        double t = memory_pass(pass, data, bytes, threads);
        best = fmin(best, t);
        spent += t;
    }
    return (double)bytes / best;
}

/* The highest rate over several sizes. A short pass is faster than a long one: the limits of a virtual machine
 * and of the memory controller let a burst through, a written line need not have reached the memory at the end
 * of the pass, and on a busy machine a pass of 50 us is more likely to run undisturbed on all threads than one of
 * 3 ms. A case may be as short as that, so the roof must be as high. */
static double memory_roof(enum pass pass, char *data, int64_t bytes, int64_t threads, double budget)
{
    static const int64_t sizes[] = {INT64_C(1) << 18, INT64_C(1) << 20, INT64_C(1) << 22, INT64_C(1) << 24};
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    double best = pass_rate(pass, data, bytes, threads, budget / 2);
    for (int i = 0; i < SIZES; i++)
        best = fmax(best, pass_rate(pass, data, sizes[i], threads, budget / 2 / SIZES));
    return best;
}

/* Each thread reads its own buffer, of half an L2 cache, again and again. */
static double cache_roof(int64_t threads)
{
    const struct kvg_roof_loops *loops = kvg_roof_loops_choose();
    int64_t l2 = kvg_l2_bytes();
    int64_t bytes = l2 > 0 ? l2 / 2 : INT64_C(128) << 10;
    char *data = allocate(bytes * threads, threads);
    if (!data)
        return NAN;
    enum { TIMES = 64, PASSES = 16 };
    double best = 0;
#pragma omp parallel num_threads((int)threads)
    {
        const char *mine = data + bytes * omp_get_thread_num();
        volatile uint64_t sink = loops->read(mine, bytes);
        double begin = kvg_now();
        for (int pass = 0; pass < PASSES || kvg_now() - begin < PASS_SECONDS; pass++) {
            double start = kvg_now();
            for (int i = 0; i < TIMES; i++)
                sink = sink + loops->read(mine, bytes);
            double rate = (double)bytes * TIMES / (kvg_now() - start);
#pragma omp critical
            best = fmax(best, rate);
        }
    }
    free(data);
    return best * (double)threads;
}

static double fma_roof(int64_t threads)
{
    const struct kvg_roof_loops *loops = kvg_roof_loops_choose();
    double total = 0;
#pragma omp parallel num_threads((int)threads) reduction(+ : total)
    {
        double begin = kvg_now(), best = 0;
        volatile float sink = 0;
        while (kvg_now() - begin < PASS_SECONDS) {
            int64_t operations = 0;
            double start = kvg_now();
            sink = sink + loops->fma(20000, &operations);
            best = fmax(best, (double)operations / (kvg_now() - start));
        }
        total += best;
    }
    return total;
}

struct kvg_meter {
    char *memory; /* [memory_bytes], or NULL until the first roof */
    int64_t memory_bytes;
    char *sweep; /* [KVG_SWEEP_BYTES] */
    struct kvg_roofs roofs;
    int64_t threads; /* number of threads of `roofs`; 0 = not measured yet */
    double measured; /* kvg_now() when `roofs` was measured */
};

struct kvg_meter *kvg_meter_new(void)
{
    struct kvg_meter *meter = calloc(1, sizeof *meter);
    if (!meter)
        return NULL;
    meter->sweep = allocate(KVG_SWEEP_BYTES, 1);
    if (!meter->sweep) {
        free(meter);
        return NULL;
    }
    return meter;
}

void kvg_meter_free(struct kvg_meter *meter)
{
    if (!meter)
        return;
    free(meter->memory);
    free(meter->sweep);
    free(meter);
}

void kvg_meter_sweep(struct kvg_meter *meter)
{
    volatile uint64_t sink = kvg_roof_loops_choose()->read(meter->sweep, KVG_SWEEP_BYTES);
    (void)sink;
}

/* There are two ways to read and two to copy. Each gets half of the time. */
static void memory_roofs(struct kvg_meter *meter, int64_t threads, struct kvg_roofs *out)
{
    if (!meter->memory) {
        meter->memory_bytes = memory_buffer_bytes();
        meter->memory = allocate(meter->memory_bytes, threads);
        if (!meter->memory)
            return;
    }
    const double half = PASS_SECONDS / 2;
    char *data = meter->memory;
    int64_t bytes = meter->memory_bytes;
    out->read = fmax(memory_roof(PASS_READ, data, bytes, threads, half),
                     memory_roof(PASS_READ_STREAMS, data, bytes, threads, half));
    out->copy = fmax(memory_roof(PASS_COPY, data, bytes, threads, half),
                     memory_roof(PASS_COPY_STREAMING, data, bytes, threads, half));
}

static void keep_highest(struct kvg_roofs *all, const struct kvg_roofs *now)
{
    all->read = fmax(all->read, now->read);
    all->copy = fmax(all->copy, now->copy);
    all->cache = fmax(all->cache, now->cache);
    all->flops = fmax(all->flops, now->flops);
}

const struct kvg_roofs *kvg_meter_roofs(struct kvg_meter *meter, int64_t threads)
{
    if (meter->threads == threads && kvg_now() - meter->measured < KVG_ROOF_AGE)
        return &meter->roofs;
    const struct kvg_roofs none = {NAN, NAN, NAN, NAN};
    struct kvg_roofs now = none;
    if (meter->threads != threads)
        meter->roofs = none;
    if (threads >= 1) {
        memory_roofs(meter, threads, &now);
        now.cache = cache_roof(threads);
        now.flops = fma_roof(threads);
    }
    keep_highest(&meter->roofs, &now);
    meter->threads = threads;
    meter->measured = kvg_now();
    return &meter->roofs;
}

void kvg_meter_forget(struct kvg_meter *meter)
{
    meter->measured = -INFINITY;
}

const char *kvg_roof_isa(void)
{
    return kvg_roof_loops_choose()->name;
}
