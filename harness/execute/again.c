/* SPDX-License-Identifier: Apache-2.0
 *
 * execute_again.c: an attention kernel that is right once is asked again, in ways that an engine uses and a
 * single call does not show:
 *   repeats  many times the same: a race shows rarely, and then in few bits;
 *   no lse   `lse` may be NULL, and often that is a path of its own;
 *   queued   on a device: behind work that keeps the stream busy, so that what does not wait for the stream
 *            runs before its outputs and workspace are poisoned, and is poisoned after;
 *   far      the same pages, but 2^32 elements into the cache: page number times stride no longer fits 32
 * bits (nor do byte offsets, nor the significand of a float). The cache is sparse: address space, but no
 *            memory, lies before it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "execute.h"

enum { REPEATS = 300, COMPARED_REPEATS = 20 };
#define REPEAT_SECONDS 0.3
#define FAR_ELEMENTS (INT64_C(1) << 32)

/* ---------------------------------------------------------------- a cache far away */

static int map_far_cache(struct kvg_far_cache *far, int t)
{
    void *mapping = mmap(NULL, far->mapping_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    far->mapping[t] = mapping == MAP_FAILED ? NULL : mapping;
    return far->mapping[t] ? 0 : -1;
}

/* Not through kvg_device_alloc: most of it is never touched, and its guards would be far from where anything
 * is written. A device that has no room for both has no such caches. */
static int allocate_far_cache(struct kvg_execution *x, struct kvg_far_cache *far, int t)
{
    int64_t available, total, left = (2 - t) * (int64_t)far->mapping_bytes;
    if (x->device->ops->memory(x->device, &available, &total) || available < left + (left >> 3))
        return -1;
    far->mapping[t] = x->device->ops->allocate(x->device, (int64_t)far->mapping_bytes);
    return far->mapping[t] ? 0 : -1;
}

int kvg_far_cache(struct kvg_execution *x, struct kvg_far_cache *far)
{
    const struct kvg_prepared *p = &x->prepared;
    const int64_t stride = p->k_pages.stride_block, bytes = kvg_dtype_bytes(p->problem.kv_dtype);
    memset(far, 0, sizeof *far);
    far->first_block = (FAR_ELEMENTS + stride - 1) / stride;
    far->bytes = p->cache_elements * bytes;
    far->mapping_bytes = (size_t)((far->first_block * stride + p->cache_elements) * bytes);
    if (p->frame || far->first_block + p->num_blocks > INT32_MAX || p->v_pages.stride_block != stride)
        return -1;
    for (int t = 0; t < 2; t++) {
        if (x->device ? allocate_far_cache(x, far, t) : map_far_cache(far, t)) {
            kvg_far_cache_free(x, far); /* limited address space or memory: no such caches */
            return -1;
        }
        far->pages[t] = t == 0 ? p->k_pages : p->v_pages;
        far->pages[t].data = far->mapping[t];
        far->filled[t] = (char *)far->mapping[t] + far->first_block * stride * bytes;
    }
    return 0;
}

void kvg_far_cache_free(struct kvg_execution *x, struct kvg_far_cache *far)
{
    for (int t = 0; t < 2; t++)
        if (far->mapping[t] && x->device)
            x->device->ops->release(x->device, far->mapping[t]);
        else if (far->mapping[t])
            munmap(far->mapping[t], far->mapping_bytes);
    memset(far, 0, sizeof *far);
}

/* ---------------------------------------------------------------- attention */

static int64_t out_bytes(const struct kvg_prepared *p)
{
    return p->total_q * p->problem.q_heads * p->problem.head_dim * (int64_t)sizeof(uint16_t);
}

static int64_t lse_bytes(const struct kvg_prepared *p)
{
    return p->total_q * p->problem.q_heads * (int64_t)sizeof(float);
}

/* One call; nobody has looked at the memory yet. */
static int call_attention(struct kvg_execution *x, const struct kvg_attention_args *args)
{
    if (kvg_poison(x, args->out, out_bytes(&x->prepared)) ||
        (args->lse && kvg_poison(x, args->lse, lse_bytes(&x->prepared))) ||
        kvg_fill_bytes(x, x->workspace, x->clear_workspace ? 0 : 0xff, x->workspace_bytes))
        return -1;
    if (x->kernel->prepare && kvg_called(x, "prepare", x->kernel->prepare(args)))
        return -1;
    return kvg_called(x, "attention", x->kernel->attention(args));
}

int kvg_call_attention(struct kvg_execution *x, const struct kvg_attention_args *args)
{
    return call_attention(x, args) || kvg_check_memory(x) ? -1 : 0;
}

/* The output against the expectation, `when` said first where it is wrong. */
static int compare_again(struct kvg_execution *x, const struct kvg_attention_args *args,
                         const struct kvg_expectation *e, enum kvg_run_kind run, const char *when)
{
    struct kvg_row other;
    if (kvg_row_init(&other))
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a row");
    int failed = kvg_compare_outputs(x, args, e, 1, &other);
    if (!failed && other.status == KVG_INCORRECT) {
        failed = kvg_verdict(x, KVG_INCORRECT, "%s: %s", when, other.reason);
        kvg_explain_attention(x, args, e, run);
    }
    kvg_row_free(&other);
    return failed;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* What no one repairs stays broken, so the memory is looked at once at the end; and before another output is
 * called a race, for who writes where he must not changes outputs too. */
static int repeat(struct kvg_execution *x, const struct kvg_attention_args *args,
                  const struct kvg_expectation *e, int deterministic)
{
    const int64_t asked = x->options->repeats, most = asked           ? asked
                                                      : deterministic ? REPEATS
                                                                      : COMPARED_REPEATS;
    const double until = seconds_now() + (asked ? INFINITY : REPEAT_SECONDS);
    const int64_t bytes[2] = {out_bytes(&x->prepared), lse_bytes(&x->prepared)};
    uint64_t out, lse, out_now, lse_now;
    if (kvg_digest(x, args->out, bytes[0], &out) || kvg_digest(x, args->lse, bytes[1], &lse))
        return -1;
    for (int64_t i = 0; i < most && seconds_now() < until; i++) {
        if (call_attention(x, args))
            return -1;
        x->row->n_repeats = i + 1;
        if (!deterministic) {
            if (kvg_check_memory(x) || compare_again(x, args, e, KVG_RUN_REPEAT, "in one of many runs"))
                return -1;
            continue;
        }
        if (kvg_digest(x, args->out, bytes[0], &out_now) || kvg_digest(x, args->lse, bytes[1], &lse_now))
            return -1;
        if (out_now == out && lse_now == lse)
            continue;
        if (kvg_check_memory(x))
            return -1;
        kvg_suspect(x, KVG_FAULT_RACE, "%lld calls gave the same bits, then one gave others",
                    (long long)i + 2);
        return kvg_verdict(x, KVG_INCORRECT,
                           "run %lld and the runs before it on the same inputs differ in %s, although the "
                           "kernel declares that it is deterministic",
                           (long long)i + 3, out_now != out ? "out" : "lse");
    }
    return kvg_check_memory(x);
}

static int run_without_lse(struct kvg_execution *x, struct kvg_attention_args args,
                           const struct kvg_expectation *e)
{
    args.lse = NULL;
    return kvg_call_attention(x, &args) || compare_again(x, &args, e, KVG_RUN_NO_LSE, "without an lse");
}

enum { HOLDS = 20 }; /* some 400 us: far longer than it takes to queue the call */

static int run_queued(struct kvg_execution *x, const struct kvg_attention_args *args,
                      const struct kvg_expectation *e)
{
    struct kvg_row other;
    if (!x->device)
        return 0;
    for (int i = 0; i < HOLDS; i++)
        if (x->device->ops->start(x->device, 1))
            return kvg_verdict_of_device(x, "keeping the stream busy", NULL);
    if (kvg_call_attention(x, args))
        return -1;
    if (kvg_row_init(&other))
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a row");
    int failed = kvg_compare_outputs(x, args, e, 1, &other);
    if (!failed && other.status == KVG_INCORRECT) {
        kvg_suspect(x, KVG_FAULT_RACE,
                    "right when the stream is idle, wrong when the call is queued behind other "
                    "work: part of it does not wait for the caller's stream");
        failed = kvg_verdict(x, KVG_INCORRECT, "queued behind other work on its stream: %s", other.reason);
    }
    kvg_row_free(&other);
    return failed;
}

/* A table whose pages lie that much further on, where the kernel sees it; NULL with the verdict. */
static int32_t *far_table(struct kvg_execution *x, int64_t first_block)
{
    const struct kvg_prepared *p = &x->prepared;
    const int64_t entries = p->problem.batch * p->block_table_stride;
    int32_t *table = malloc((size_t)entries * sizeof *table), *seen = NULL;
    if (!table) {
        kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a block table");
        return NULL;
    }
    for (int64_t i = 0; i < entries; i++)
        table[i] = (int32_t)(p->block_table[i] + first_block);
    seen = kvg_place(x, "block_table of far pages", entries * (int64_t)sizeof *table);
    if (seen && kvg_send(x, seen, table, entries * (int64_t)sizeof *table))
        seen = NULL;
    free(table);
    return seen;
}

static int run_on(struct kvg_execution *x, struct kvg_attention_args args, const struct kvg_expectation *e,
                  const struct kvg_far_cache *far)
{
    const struct kvg_prepared *p = &x->prepared;
    int32_t *table = far_table(x, far->first_block);
    if (!table || kvg_send(x, far->filled[0], p->k_cache, far->bytes) ||
        kvg_send(x, far->filled[1], p->v_cache, far->bytes))
        return -1;
    args.k_cache = far->pages[0];
    args.v_cache = far->pages[1];
    args.block_table = table;
    args.num_blocks += far->first_block;
    return kvg_call_attention(x, &args) || compare_again(x, &args, e, KVG_RUN_FAR,
                                                         "in pages far into the cache (beyond 2^32 elements)")
               ? -1
               : 0;
}

int kvg_attend_again(struct kvg_execution *x, const struct kvg_attention_args *args,
                     const struct kvg_expectation *e, int deterministic)
{
    return repeat(x, args, e, deterministic) || run_queued(x, args, e) || run_without_lse(x, *args, e) ? -1
                                                                                                       : 0;
}

int kvg_attend_far(struct kvg_execution *x, const struct kvg_attention_args *args,
                   const struct kvg_expectation *e)
{
    struct kvg_far_cache far;
    if (kvg_far_cache(x, &far))
        return 0;
    kvg_announce(x, KVG_RUN_FAR);
    int failed = run_on(x, *args, e, &far);
    kvg_announce(x, KVG_RUN_FIRST);
    kvg_far_cache_free(x, &far);
    return failed;
}
