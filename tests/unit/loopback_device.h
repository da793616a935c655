/* SPDX-License-Identifier: Apache-2.0
 *
 * loopback_device.h: a device in ordinary memory, for tests without a GPU.
 *
 * Device addresses are in a range without access rights (PROT_NONE). The memory itself is in another
 * mapping, at the same offsets. So code of the harness that reads or writes a device address ends with
 * SIGSEGV, and loopback_inside detects a host pointer that is passed as a device address. A test can make
 * operations fail as a driver would.
 *
 * Every operation is executed at once, with one exception: while the stream is held, a fill waits until
 * later work is executed, as on a busy stream. A kernel that does not wait for its stream then runs before
 * the fill.
 */
#ifndef KVG_TESTS_LOOPBACK_DEVICE_H
#define KVG_TESTS_LOOPBACK_DEVICE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "harness/device/device.h"
#include "harness/memory/guard.h"
#include "harness/inputs/generator.h"
#include "harness/machine/clock.h"
#include "harness/machine/nvtx.h"
#include "harness/prepare/prepared.h"

enum { LOOPBACK_BLOCKS = 256, LOOPBACK_FILLS = 16 };
#define LOOPBACK_SPACE (INT64_C(96) << 30) /* bytes of address space */
#define LOOPBACK_PAGE 4096

struct loopback_block {
    int64_t offset, bytes;
};

struct loopback_waiting_fill {
    void *to;
    int byte;
    int64_t bytes;
};

struct loopback {
    struct kvg_device device;
    char *inside, *outside;                        /* the memory, and the device addresses for it */
    struct loopback_block blocks[LOOPBACK_BLOCKS]; /* sorted by offset */
    int count;
    int64_t used, capacity;
    double started;
    int held; /* 1: fills wait */
    struct loopback_waiting_fill waiting[LOOPBACK_FILLS];
    int n_waiting;
    /* counts of calls */
    int64_t flushes, holds, starts, replays, records, generated, roofs, gathers;
    int64_t in_range; /* operations on memory while an NVTX range is open */
    int bad_gather;   /* 1: gather_roof got a wrong argument */
    /* faults that a test asks for */
    int lose_next_finish; /* the next finish reports that the device is lost */
    int fail_next_finish; /* the next finish reports a failed launch */
    int refuse_record;    /* no call can be recorded */
    int spoil_sequence;   /* generate makes one wrong value in this sequence; -1: in none */
    int no_device;        /* loopback_open fails */
};

static inline struct loopback *loopback_of(struct kvg_device *d)
{
    return (struct loopback *)d;
}

/* ---------------------------------------------------------------- addresses */

/* The block that contains an address; NULL if none does. */
static inline const struct loopback_block *loopback_find_block(const struct loopback *l, const void *address)
{
    const int64_t offset = (const char *)address - l->outside;
    for (int i = 0; i < l->count; i++)
        if (offset >= l->blocks[i].offset && offset <= l->blocks[i].offset + l->blocks[i].bytes)
            return &l->blocks[i];
    return NULL;
}

/* The memory of a device address. Ends the program when the address is not in a block. NULL stays NULL. */
static inline void *loopback_inside(const struct loopback *l, const void *address)
{
    if (!address)
        return NULL;
    if (!loopback_find_block(l, address)) {
        fprintf(stderr, "loopback: %p is not a device address\n", address);
        abort();
    }
    return l->inside + ((const char *)address - l->outside);
}

/* ---------------------------------------------------------------- memory */

static inline int loopback_fail(struct loopback *l, const char *text)
{
    snprintf(l->device.error, sizeof l->device.error, "%s", text);
    return -1;
}

/* Executes the fills that wait on the stream. */
static inline void loopback_drain(struct loopback *l)
{
    for (int i = 0; i < l->n_waiting; i++)
        memset(l->waiting[i].to, l->waiting[i].byte, (size_t)l->waiting[i].bytes);
    l->n_waiting = l->held = 0;
}

/* -1 with the error when the device is lost. Executes the fills that wait. */
static inline int loopback_check_lost(struct loopback *l)
{
    loopback_drain(l);
    return l->device.lost ? loopback_fail(l, "the loopback device was lost earlier") : 0;
}

static inline void *loopback_allocate(struct kvg_device *d, int64_t bytes)
{
    struct loopback *l = loopback_of(d);
    const int64_t size = (bytes + LOOPBACK_PAGE) / LOOPBACK_PAGE * LOOPBACK_PAGE + LOOPBACK_PAGE;
    int64_t at = 0;
    int i = 0;
    if (loopback_check_lost(l) || l->count == LOOPBACK_BLOCKS || l->used + size > l->capacity)
        return NULL;
    while (i < l->count && l->blocks[i].offset - at < size) {
        at = l->blocks[i].offset + (l->blocks[i].bytes + LOOPBACK_PAGE) / LOOPBACK_PAGE * LOOPBACK_PAGE +
             LOOPBACK_PAGE;
        i++;
    }
    if (at + size > LOOPBACK_SPACE)
        return NULL;
    memmove(&l->blocks[i + 1], &l->blocks[i], (size_t)(l->count - i) * sizeof l->blocks[0]);
    l->blocks[i] = (struct loopback_block){at, bytes};
    l->count++;
    l->used += size;
    return l->outside + at;
}

static inline void loopback_release(struct kvg_device *d, void *data)
{
    struct loopback *l = loopback_of(d);
    for (int i = 0; data && i < l->count; i++)
        if (l->outside + l->blocks[i].offset == data) {
            const int64_t size =
                (l->blocks[i].bytes + LOOPBACK_PAGE) / LOOPBACK_PAGE * LOOPBACK_PAGE + LOOPBACK_PAGE;
            madvise(l->inside + l->blocks[i].offset, (size_t)size, MADV_DONTNEED);
            l->used -= size;
            l->count--;
            memmove(&l->blocks[i], &l->blocks[i + 1], (size_t)(l->count - i) * sizeof l->blocks[0]);
            return;
        }
    if (data) {
        fprintf(stderr, "loopback: %p was never allocated\n", data);
        abort();
    }
}

static inline int loopback_memory(struct kvg_device *d, int64_t *available, int64_t *total)
{
    struct loopback *l = loopback_of(d);
    *total = l->capacity;
    *available = l->capacity - l->used;
    return loopback_check_lost(l);
}

static inline int loopback_upload(struct kvg_device *d, void *to, const void *from, int64_t bytes)
{
    loopback_of(d)->in_range += kvg_nvtx_depth() > 0;
    struct loopback *l = loopback_of(d);
    if (loopback_check_lost(l))
        return -1;
    memcpy(loopback_inside(l, to), from, (size_t)bytes);
    return 0;
}

static inline int loopback_download(struct kvg_device *d, void *to, const void *from, int64_t bytes)
{
    loopback_of(d)->in_range += kvg_nvtx_depth() > 0;
    struct loopback *l = loopback_of(d);
    if (loopback_check_lost(l))
        return -1;
    memcpy(to, loopback_inside(l, from), (size_t)bytes);
    return 0;
}

static inline int loopback_fill(struct kvg_device *d, void *to, int byte, int64_t bytes)
{
    loopback_of(d)->in_range += kvg_nvtx_depth() > 0;
    struct loopback *l = loopback_of(d);
    if (l->held && l->n_waiting < LOOPBACK_FILLS && !l->device.lost) {
        l->waiting[l->n_waiting++] = (struct loopback_waiting_fill){loopback_inside(l, to), byte, bytes};
        return 0;
    }
    if (loopback_check_lost(l))
        return -1;
    memset(loopback_inside(l, to), byte, (size_t)bytes);
    return 0;
}

static inline int loopback_hash(struct kvg_device *d, const void *data, int64_t bytes, uint64_t *hash)
{
    loopback_of(d)->in_range += kvg_nvtx_depth() > 0;
    struct loopback *l = loopback_of(d);
    if (loopback_check_lost(l))
        return -1;
    *hash = kvg_hash_bytes(loopback_inside(l, data), bytes);
    return 0;
}

static inline int loopback_differs(struct kvg_device *d, const void *a, const void *b, int64_t bytes,
                                   int64_t *first)
{
    loopback_of(d)->in_range += kvg_nvtx_depth() > 0;
    struct loopback *l = loopback_of(d);
    if (loopback_check_lost(l))
        return -1;
    const unsigned char *x = loopback_inside(l, a), *y = loopback_inside(l, b);
    *first = -1;
    for (int64_t i = 0; i < bytes && *first < 0; i++)
        if (x[i] != y[i])
            *first = i;
    return 0;
}

static inline int loopback_pack(struct kvg_device *d, void *to, const void *from, int64_t bytes,
                                const int32_t *index, int64_t count)
{
    struct loopback *l = loopback_of(d);
    if (loopback_check_lost(l))
        return -1;
    const int32_t *at = loopback_inside(l, index);
    for (int64_t i = 0; i < count; i++)
        memcpy((char *)loopback_inside(l, to) + i * bytes,
               (const char *)loopback_inside(l, from) + at[i] * bytes, (size_t)bytes);
    return 0;
}

/* ---------------------------------------------------------------- preparing a case */

static inline int loopback_generate(struct kvg_device *d, const struct kvg_generator *g, int64_t tokens,
                                    uint16_t *out)
{
    struct loopback *l = loopback_of(d);
    if (loopback_check_lost(l))
        return -1;
    uint16_t *here = loopback_inside(l, out);
    kvg_generator_fill(g, 0, tokens, 1, here);
    if ((int64_t)g->sequence == l->spoil_sequence)
        here[tokens * g->heads * g->head_dim / 2] ^= 0x0080u; /* twice or half the value */
    l->generated++;
    return 0;
}

static inline int loopback_store(struct kvg_device *d, const struct kvg_problem *problem,
                                 const uint16_t *source, const int64_t *slots, int64_t tokens,
                                 const float *scale, int64_t scale_stride, const struct kvg_pages *pages)
{
    struct loopback *l = loopback_of(d);
    if (loopback_check_lost(l))
        return -1;
    void *cache = loopback_inside(l, pages->data);
    const struct kvg_ref_kv view = {.format = kvg_ref_format_of(problem->kv_dtype),
                                    .data = cache,
                                    .stride_block = pages->stride_block,
                                    .stride_slot = pages->stride_slot,
                                    .stride_head = pages->stride_head,
                                    .block_size = problem->block_size,
                                    .scale = scale,
                                    .scale_stride = scale_stride};
    kvg_ref_paged_store(&view, cache, KVG_REF_BF16, loopback_inside(l, source),
                        problem->kv_heads * problem->head_dim, problem->head_dim, loopback_inside(l, slots),
                        tokens, problem->kv_heads, problem->head_dim);
    return 0;
}

/* ---------------------------------------------------------------- calls */

static inline void *loopback_stream(struct kvg_device *d)
{
    return d; /* anything that is not NULL */
}

static inline int loopback_finish(struct kvg_device *d)
{
    struct loopback *l = loopback_of(d);
    if (loopback_check_lost(l))
        return -1;
    if (l->lose_next_finish) {
        d->lost = 1;
        return loopback_fail(l, "an illegal memory access was encountered");
    }
    if (l->fail_next_finish) {
        l->fail_next_finish = 0;
        return loopback_fail(l, "invalid configuration argument");
    }
    return 0;
}

static inline int loopback_flush(struct kvg_device *d)
{
    loopback_of(d)->flushes++;
    return loopback_check_lost(loopback_of(d));
}

static inline int loopback_start(struct kvg_device *d, int hold)
{
    struct loopback *l = loopback_of(d);
    l->starts++;
    l->holds += hold != 0;
    l->started = kvg_now();
    if (loopback_check_lost(l))
        return -1;
    l->held = hold;
    return 0;
}

static inline int loopback_stop(struct kvg_device *d, double *seconds)
{
    *seconds = kvg_now() - loopback_of(d)->started;
    return loopback_finish(d);
}

struct loopback_recording {
    int (*call)(void *);
    void *context;
};

static inline int loopback_record(struct kvg_device *d, int (*call)(void *), void *context, void **recording)
{
    struct loopback *l = loopback_of(d);
    struct loopback_recording *r = malloc(sizeof *r);
    l->records++;
    if (!r || l->refuse_record) {
        free(r);
        return loopback_fail(l, "operation not permitted when stream is capturing");
    }
    *r = (struct loopback_recording){call, context};
    *recording = r;
    return 0;
}

static inline int loopback_replay(struct kvg_device *d, void *recording)
{
    struct loopback_recording *r = recording;
    loopback_of(d)->replays++;
    return r->call(r->context);
}

static inline void loopback_forget(struct kvg_device *d, void *recording)
{
    (void)d;
    free(recording);
}

/* ---------------------------------------------------------------- roofs and conditions */

/* Invented numbers, far above those of a CPU. */

#define LOOPBACK_FLOOR 1e-7
static inline int loopback_linear(struct kvg_device *d, struct kvg_device_roofs *out)
{
    *out = (struct kvg_device_roofs){.read = 4e12, .copy = 3e12, .cache = 9e12, .floor = LOOPBACK_FLOOR};
    return loopback_check_lost(loopback_of(d));
}

static inline int loopback_roofs(struct kvg_device *d, struct kvg_device_roofs *out)
{
    loopback_linear(d, out);
    out->bf16_burst = 8e14;
    out->bf16_sustained = 6e14;
    out->fp8_burst = 16e14;
    out->fp8_sustained = 12e14;
    out->fp8_promoted = 13e14;
    loopback_of(d)->roofs++;
    return loopback_check_lost(loopback_of(d));
}

static inline double loopback_gather(struct kvg_device *d, const struct kvg_device_gather *g)
{
    struct loopback *l = loopback_of(d);
    const struct kvg_problem *p = g->args->problem;
    l->bad_gather |=
        !loopback_find_block(l, g->args->k_cache.data) || !loopback_find_block(l, g->args->block_table);
    for (int64_t b = 0; b < p->batch; b++)
        l->bad_gather |=
            g->seq_lens[b] < 0 || g->seq_lens[b] > p->max_seq_len || g->first_key[b] < 0 ||
            (p->window == 0 && !(p->features & KVG_FEATURE_SHARED_PAGES) && g->first_key[b] != 0);
    return l->gathers++ % 2 ? 3.5e12 : 3.0e12; /* a row measures twice; the first time is slower */
}

static inline void loopback_conditions_begin(struct kvg_device *d)
{
    (void)d;
}

static inline void loopback_conditions_end(struct kvg_device *d, struct kvg_device_conditions *out)
{
    (void)d;
    *out = (struct kvg_device_conditions){.sm_clock = 1.98e9,
                                          .memory_clock = 3.2e9,
                                          .power = 450,
                                          .energy = 12,
                                          .temperature = 41,
                                          .throttle = "none"};
}

static inline int loopback_fact(struct kvg_device *d, int64_t i, const char **key, const char **value)
{
    (void)d;
    *key = "kind";
    *value = "loopback";
    return i == 0 ? 0 : -1;
}

/* ---------------------------------------------------------------- open and close */

static inline void loopback_close(struct kvg_device *d)
{
    struct loopback *l = loopback_of(d);
    if (l->count) {
        fprintf(stderr, "loopback: %d buffers were not released\n", l->count);
        abort();
    }
}

static const struct kvg_device_ops loopback_ops = {
    .name = "loopback",
    .clock = "loopback clock",
    .close = loopback_close,
    .allocate = loopback_allocate,
    .release = loopback_release,
    .memory = loopback_memory,
    .upload = loopback_upload,
    .download = loopback_download,
    .fill = loopback_fill,
    .hash = loopback_hash,
    .differs = loopback_differs,
    .pack = loopback_pack,
    .generate = loopback_generate,
    .store = loopback_store,
    .stream = loopback_stream,
    .finish = loopback_finish,
    .flush = loopback_flush,
    .start = loopback_start,
    .stop = loopback_stop,
    .record = loopback_record,
    .replay = loopback_replay,
    .forget = loopback_forget,
    .roofs = loopback_roofs,
    .linear_roofs = loopback_linear,
    .gather_roof = loopback_gather,
    .conditions_begin = loopback_conditions_begin,
    .conditions_end = loopback_conditions_end,
    .fact = loopback_fact,
};

/* Called once in a program. -1 when the address space cannot be reserved. */
static inline int loopback_make(struct loopback *l, int64_t capacity)
{
    memset(l, 0, sizeof *l);
    l->inside = mmap(NULL, (size_t)LOOPBACK_SPACE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    l->outside =
        mmap(NULL, (size_t)LOOPBACK_SPACE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    l->capacity = capacity;
    return l->inside == MAP_FAILED || l->outside == MAP_FAILED ? -1 : 0;
}

/* Sets everything but the mappings and the capacity to its initial state. */
static inline void loopback_reset(struct loopback *l)
{
    char *inside = l->inside, *outside = l->outside;
    const int64_t capacity = l->capacity;
    memset(l, 0, sizeof *l);
    l->inside = inside;
    l->outside = outside;
    l->capacity = capacity;
    l->spoil_sequence = -1;
    l->device.ops = &loopback_ops;
    l->device.cache_bytes = 1 << 20;
    snprintf(l->device.name, sizeof l->device.name, "Loopback 1");
}

/* The `open` of struct kvg_device_source; context is a struct loopback after loopback_reset. */
static inline struct kvg_device *loopback_open(void *context, char *why, size_t size)
{
    struct loopback *l = context;
    if (!l->no_device)
        return &l->device;
    snprintf(why, size, "no NVIDIA driver is loaded");
    return NULL;
}

#endif
