/* SPDX-License-Identifier: Apache-2.0
 *
 * execute_again.c: an attention kernel that is right once is asked again, in ways that an engine uses and a
 * single call does not show:
 *   repeats  many times the same: a race shows rarely, and then in few bits;
 *   no lse   `lse` may be NULL, and often that is a path of its own;
 *   far      the same pages, but 2^32 elements into the cache: page number times stride no longer fits 32
 * bits (nor do byte offsets, nor the significand of a float). The cache is sparse: address space, but no
 *            memory, lies before it.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "execute.h"

enum { REPEATS = 300, COMPARED_REPEATS = 20 };
#define REPEAT_SECONDS 0.3
#define FAR_ELEMENTS (INT64_C(1) << 32)

/* ---------------------------------------------------------------- a cache far away */

int kvg_far_cache(const struct kvg_prepared *p, struct kvg_far_cache *far)
{
    const int64_t stride = p->k_pages.stride_block, bytes = kvg_dtype_bytes(p->problem.kv_dtype);
    memset(far, 0, sizeof *far);
    far->first_block = (FAR_ELEMENTS + stride - 1) / stride;
    far->bytes = p->cache_elements * bytes;
    far->mapping_bytes = (size_t)((far->first_block * stride + p->cache_elements) * bytes);
    if (far->first_block + p->num_blocks > INT32_MAX || p->v_pages.stride_block != stride)
        return -1;
    for (int t = 0; t < 2; t++) {
        void *mapping = mmap(NULL, far->mapping_bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapping == MAP_FAILED) { /* limited address space: no such caches either */
            kvg_far_cache_free(far);
            return -1;
        }
        far->mapping[t] = mapping;
        far->pages[t] = t == 0 ? p->k_pages : p->v_pages;
        far->pages[t].data = mapping;
        far->filled[t] = (char *)mapping + far->first_block * stride * bytes;
    }
    return 0;
}

void kvg_far_cache_free(struct kvg_far_cache *far)
{
    for (int t = 0; t < 2; t++)
        if (far->mapping[t])
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

int kvg_call_attention(struct kvg_execution *x, const struct kvg_attention_args *args)
{
    kvg_poison(args->out, out_bytes(&x->prepared));
    if (args->lse)
        kvg_poison(args->lse, lse_bytes(&x->prepared));
    kvg_poison(x->workspace, x->workspace_bytes);
    if (x->clear_workspace)
        memset(x->workspace, 0, (size_t)x->workspace_bytes);
    if (x->kernel->prepare) {
        int code = x->kernel->prepare(args);
        if (code)
            return kvg_verdict_of_call(x, "prepare", code);
    }
    int code = x->kernel->attention(args);
    return code ? kvg_verdict_of_call(x, "attention", code) : kvg_check_memory(x);
}

/* The output against the expectation, `when` said first where it is wrong. */
static int compare_again(struct kvg_execution *x, const struct kvg_attention_args *args,
                         const struct kvg_expectation *e, enum kvg_run_kind run, const char *when)
{
    struct kvg_row other;
    struct kvg_error error;
    int failed = 0;
    if (kvg_row_init(&other))
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a row");
    if (kvg_compare_attention(e, args->out, args->lse, &other, &error))
        failed = kvg_verdict_of_error(x, &error);
    else if (other.status == KVG_INCORRECT) {
        failed = kvg_verdict(x, KVG_INCORRECT, "%s: %s", when, other.reason);
        kvg_explain_attention(x, args, e, args->out, args->lse, run);
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

static int repeat(struct kvg_execution *x, const struct kvg_attention_args *args,
                  const struct kvg_expectation *e, int deterministic)
{
    const double until = seconds_now() + REPEAT_SECONDS;
    const int64_t bytes[2] = {out_bytes(&x->prepared), lse_bytes(&x->prepared)};
    const uint64_t out = kvg_hash_bytes(args->out, bytes[0]), lse = kvg_hash_bytes(args->lse, bytes[1]);
    for (int i = 0; i < (deterministic ? REPEATS : COMPARED_REPEATS) && seconds_now() < until; i++) {
        if (kvg_call_attention(x, args))
            return -1;
        if (!deterministic) {
            if (compare_again(x, args, e, KVG_RUN_REPEAT, "in one of many runs"))
                return -1;
            continue;
        }
        const int out_differs = kvg_hash_bytes(args->out, bytes[0]) != out;
        if (!out_differs && kvg_hash_bytes(args->lse, bytes[1]) == lse)
            continue;
        kvg_suspect(x, KVG_FAULT_RACE, "%d calls gave the same bits, then one gave others", i + 2);
        return kvg_verdict(x, KVG_INCORRECT,
                           "run %d and the runs before it on the same inputs differ in %s, although the "
                           "kernel declares that it is deterministic",
                           i + 3, out_differs ? "out" : "lse");
    }
    return 0;
}

static int run_without_lse(struct kvg_execution *x, struct kvg_attention_args args,
                           const struct kvg_expectation *e)
{
    args.lse = NULL;
    return kvg_call_attention(x, &args) || compare_again(x, &args, e, KVG_RUN_NO_LSE, "without an lse");
}

static int run_on(struct kvg_execution *x, struct kvg_attention_args args, const struct kvg_expectation *e,
                  const struct kvg_far_cache *far)
{
    const struct kvg_prepared *p = &x->prepared;
    const int64_t entries = p->problem.batch * p->block_table_stride;
    int32_t *table = malloc((size_t)entries * sizeof *table);
    if (!table)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a block table");
    for (int64_t i = 0; i < entries; i++)
        table[i] = (int32_t)(p->block_table[i] + far->first_block);
    memcpy(far->filled[0], p->k_cache, (size_t)far->bytes);
    memcpy(far->filled[1], p->v_cache, (size_t)far->bytes);
    args.k_cache = far->pages[0];
    args.v_cache = far->pages[1];
    args.block_table = table;
    args.num_blocks += far->first_block;
    int failed =
        kvg_call_attention(x, &args) ||
        compare_again(x, &args, e, KVG_RUN_FAR, "in pages far into the cache (beyond 2^32 elements)");
    free(table);
    return failed;
}

int kvg_attend_again(struct kvg_execution *x, const struct kvg_attention_args *args,
                     const struct kvg_expectation *e, int deterministic)
{
    return repeat(x, args, e, deterministic) || run_without_lse(x, *args, e) ? -1 : 0;
}

int kvg_attend_far(struct kvg_execution *x, const struct kvg_attention_args *args,
                   const struct kvg_expectation *e)
{
    struct kvg_far_cache far;
    if (kvg_far_cache(&x->prepared, &far))
        return 0;
    kvg_announce(x, KVG_RUN_FAR);
    int failed = run_on(x, *args, e, &far);
    kvg_announce(x, KVG_RUN_FIRST);
    kvg_far_cache_free(&far);
    return failed;
}
