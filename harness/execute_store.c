/* SPDX-License-Identifier: Apache-2.0
 *
 * execute_store.c: a case of store, and the quantising of Q: both are right bit by bit or not at all.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/registry.h"
#include "execute.h"
#include "nvtx.h"

struct store {
    struct kvg_execution *x;
    struct kvg_store_args args;
    void *k_cache, *v_cache;
    int64_t cache_bytes; /* of each */
    uint64_t k_hash, v_hash;
};

static int allocate(struct store *s)
{
    struct kvg_execution *x = s->x;
    struct kvg_error error;
    s->cache_bytes = x->prepared.cache_elements * kvg_dtype_bytes(x->prepared.problem.kv_dtype);
    s->k_cache = kvg_guard_alloc(x->guards, "k_cache of the kernel", s->cache_bytes, &error);
    s->v_cache =
        s->k_cache ? kvg_guard_alloc(x->guards, "v_cache of the kernel", s->cache_bytes, &error) : NULL;
    return s->v_cache ? 0 : kvg_verdict_of_error(x, &error);
}

static void fill_args(struct store *s)
{
    struct kvg_execution *x = s->x;
    const struct kvg_prepared *p = &x->prepared;
    int64_t dim = p->problem.head_dim, heads = p->problem.kv_heads;
    int quantised = p->problem.kv_dtype != KVG_BF16;
    s->args = (struct kvg_store_args){
        .problem = &p->problem,
        .k = p->k,
        .v = p->v,
        .k_stride_token = heads * dim,
        .k_stride_head = dim,
        .v_stride_token = heads * dim,
        .v_stride_head = dim,
        .slot_mapping = p->slot_mapping,
        .tokens = p->store_tokens,
        .k_cache = {s->k_cache, p->k_pages.stride_block, p->k_pages.stride_slot, p->k_pages.stride_head},
        .v_cache = {s->v_cache, p->v_pages.stride_block, p->v_pages.stride_slot, p->v_pages.stride_head},
        .num_blocks = p->num_blocks,
        .scales = {NULL, quantised ? p->k_scale : NULL, quantised ? p->v_scale : NULL, p->scale_stride},
        .workspace = x->workspace,
        .workspace_bytes = x->workspace_bytes,
    };
}

static void poison_caches(struct store *s)
{
    const struct kvg_prepared *p = &s->x->prepared;
    kvg_poison_cache(p->problem.kv_dtype, s->k_cache, p->cache_elements);
    kvg_poison_cache(p->problem.kv_dtype, s->v_cache, p->cache_elements);
}

static int run_once(struct store *s)
{
    struct kvg_execution *x = s->x;
    poison_caches(s);
    kvg_poison(x->workspace, x->workspace_bytes);
    int code = x->kernel->store(&s->args);
    if (code)
        return kvg_verdict_of_call(x, "store", code);
    return kvg_check_memory(x);
}

static int compare(struct store *s, struct kvg_row *row, enum kvg_run_kind run)
{
    struct kvg_error error;
    if (kvg_compare_store(&s->x->prepared, s->k_cache, s->v_cache, row, &error))
        return kvg_verdict_of_error(s->x, &error);
    if (row->status == KVG_PASSED)
        return 0;
    kvg_explain_store(s->x, s->k_cache, s->v_cache, run);
    return -1;
}

static int timed_call(void *context)
{
    struct store *s = context;
    return s->x->kernel->store(&s->args);
}

/* The caches are not poisoned between timed calls: that would write all of their lines. */
static void before_cold(void *context)
{
    struct store *s = context;
    const struct kvg_prepared *p = &s->x->prepared;
    int64_t source = p->store_tokens * p->problem.kv_heads * p->problem.head_dim * (int64_t)sizeof(uint16_t);
    kvg_evict_range(p->k, source);
    kvg_evict_range(p->v, source);
    kvg_evict_range(s->k_cache, s->cache_bytes);
    kvg_evict_range(s->v_cache, s->cache_bytes);
    kvg_evict_range(p->slot_mapping, p->store_tokens * (int64_t)sizeof(int64_t));
    kvg_meter_sweep(s->x->session->meter);
    kvg_wake_team(p->problem.threads);
}

static int time_calls(struct store *s)
{
    struct kvg_execution *x = s->x;
    int cold = x->c->cache_state == KVG_STATE_COLD;
    struct kvg_measurement m = {
        .call = timed_call, .evict = cold ? before_cold : NULL, .batch = !cold, .context = s};
    poison_caches(s);
    if (kvg_time(x, &m))
        return -1;
    return compare(s, x->row, KVG_RUN_TIMED) ? -1 : kvg_check_memory(x);
}

static int run_renewed(struct store *s)
{
    struct kvg_execution *x = s->x;
    struct kvg_error error;
    struct kvg_row other;
    if (kvg_prepared_renew(&x->prepared, x->c->seed + 1000003, &error))
        return kvg_verdict_of_error(x, &error);
    if (run_once(s))
        return -1;
    if (kvg_row_init(&other))
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a row");
    int failed = compare(s, &other, KVG_RUN_RENEWED);
    if (failed && other.status != KVG_PASSED)
        kvg_verdict(x, KVG_INCORRECT, "after its inputs changed in place: %s", other.reason);
    kvg_row_free(&other);
    return failed;
}

static int run_twice(struct store *s)
{
    uint64_t k = kvg_hash_bytes(s->k_cache, s->cache_bytes), v = kvg_hash_bytes(s->v_cache, s->cache_bytes);
    if (run_once(s))
        return -1;
    if (kvg_hash_bytes(s->k_cache, s->cache_bytes) == k && kvg_hash_bytes(s->v_cache, s->cache_bytes) == v)
        return 0;
    kvg_explain_store(s->x, s->k_cache, s->v_cache, KVG_RUN_REPEAT);
    return kvg_verdict(s->x, KVG_INCORRECT, "two runs on the same inputs store different bits");
}

/* A race shows rarely. */
static int run_often(struct store *s)
{
    enum { REPEATS = 50 };
    for (int i = 0; i < REPEATS; i++)
        if (run_twice(s))
            return -1;
    return 0;
}

/* Slots so far into the cache that slot times stride takes more than 32 bits. */
static int run_far(struct store *s)
{
    const struct kvg_prepared *p = &s->x->prepared;
    const struct kvg_store_args near = s->args;
    struct kvg_far_cache far;
    if (kvg_far_cache(p, &far))
        return 0;
    int64_t *slots = malloc((size_t)(p->store_tokens + 1) * sizeof *slots);
    int failed = slots ? 0 : kvg_verdict(s->x, KVG_OUT_OF_MEMORY, "no memory for a slot mapping");
    for (int64_t i = 0; !failed && i < p->store_tokens; i++)
        slots[i] = p->slot_mapping[i] < 0 ? p->slot_mapping[i]
                                          : p->slot_mapping[i] + far.first_block * p->problem.block_size;
    if (!failed) {
        s->args.k_cache = far.pages[0];
        s->args.v_cache = far.pages[1];
        s->args.slot_mapping = slots;
        s->args.num_blocks += far.first_block;
        kvg_poison_cache(p->problem.kv_dtype, far.filled[0], p->cache_elements);
        kvg_poison_cache(p->problem.kv_dtype, far.filled[1], p->cache_elements);
        kvg_poison(s->x->workspace, s->x->workspace_bytes);
        kvg_announce(s->x, KVG_RUN_FAR);
        int code = s->x->kernel->store(&s->args);
        kvg_announce(s->x, KVG_RUN_FIRST);
        failed = code ? kvg_verdict_of_call(s->x, "store", code) : kvg_check_memory(s->x);
    }
    if (!failed && (memcmp(far.filled[0], p->k_cache, (size_t)far.bytes) != 0 ||
                    memcmp(far.filled[1], p->v_cache, (size_t)far.bytes) != 0)) {
        kvg_explain_store(s->x, far.filled[0], far.filled[1], KVG_RUN_FAR);
        failed = kvg_verdict(s->x, KVG_INCORRECT,
                             "in pages far into the cache (beyond 2^32 elements): store: codes differ");
    }
    s->args = near;
    free(slots);
    kvg_far_cache_free(&far);
    return failed;
}

/* Every bf16 value as a source, and scales that make ties of some. Which NaN stands for NaN is the kernel's
 * choice. */
static int run_special(struct store *s)
{
    struct kvg_execution *x = s->x;
    const struct kvg_prepared *p = &x->prepared;
    const enum kvg_ref_format format = kvg_ref_format_of(p->problem.kv_dtype);
    struct kvg_row other;
    kvg_prepared_special(&x->prepared);
    if (run_once(s))
        return -1;
    if (p->problem.kv_dtype != KVG_BF16)
        for (int64_t i = 0; i < p->cache_elements; i++) {
            uint8_t *k = (uint8_t *)s->k_cache + i, *v = (uint8_t *)s->v_cache + i;
            if (isnan(kvg_ref_load(format, k, 0)) && isnan(kvg_ref_load(format, p->k_cache, i)))
                *k = ((const uint8_t *)p->k_cache)[i];
            if (isnan(kvg_ref_load(format, v, 0)) && isnan(kvg_ref_load(format, p->v_cache, i)))
                *v = ((const uint8_t *)p->v_cache)[i];
        }
    if (kvg_row_init(&other))
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a row");
    int failed = compare(s, &other, KVG_RUN_SPECIAL);
    if (failed && other.status != KVG_PASSED)
        kvg_verdict(x, KVG_INCORRECT, "with special values (NaN, infinities, zeros of both signs, ties): %s",
                    other.reason);
    kvg_row_free(&other);
    return failed;
}

void kvg_execute_store(struct kvg_execution *x)
{
    struct store s = {.x = x};
    char name[KVG_CASE_STRING_MAX];
    if (allocate(&s))
        return;
    fill_args(&s);
    if (x->options->profile) {
        kvg_case_format(x->c, name);
        kvg_nvtx_push(name);
        int failed = run_once(&s);
        kvg_nvtx_pop();
        if (!failed)
            kvg_verdict(x, KVG_SKIPPED, "profiled: run once, neither verified nor timed");
        return;
    }
    if (run_once(&s) || compare(&s, x->row, KVG_RUN_FIRST) || run_twice(&s))
        return;
    if (x->timed && time_calls(&s))
        return;
    const int again = kvg_wants_again(x);
    if (again && (run_often(&s) || run_far(&s) || run_special(&s)))
        return;
    if (again || kvg_wants_renewal(x)) /* which also ends the special values */
        run_renewed(&s);
}

/* ---- Q ---- */

/* What stands behind the last underscore of a kernel's name: its instruction set. */
static const char *suffix(const char *name)
{
    const char *last = strrchr(name, '_');
    return last ? last : "";
}

/* The kernel that quantises Q for this one: itself, else one of the same device, of the same instruction set
 * if there is, else of the highest rank. */
static const struct kvg_kernel *find_quantizer(const struct kvg_execution *x)
{
    const struct kvg_kernel *best = NULL, *candidate;
    struct kvg_problem problem = x->prepared.problem;
    char why[256];
    problem.phase = KVG_PHASE_STORE;
    problem.path = KVG_PATH_NONE;
    problem.q_dtype = KVG_BF16;
    if (x->kernel->quantize_q)
        return x->kernel;
    for (int64_t i = 0; (candidate = kvg_registry_get(i)); i++) {
        if (!candidate->quantize_q || candidate->device != x->kernel->device ||
            !candidate->supports(&problem, why, sizeof why))
            continue;
        if (strcmp(suffix(candidate->name), suffix(x->kernel->name)) == 0)
            return candidate;
        if (!best || candidate->rank > best->rank)
            best = candidate;
    }
    return best;
}

struct quantize {
    const struct kvg_kernel *kernel;
    struct kvg_quantize_q_args args;
};

static int timed_quantize(void *context)
{
    struct quantize *q = context;
    return q->kernel->quantize_q(&q->args);
}

/* Values of both signs, all mantissas and 16 binades around 1, under scales with ties: the reciprocal rule
 * and the division differ there and hardly anywhere else. */
static int quantize_ties(struct kvg_execution *x, const struct quantize *q)
{
    const struct kvg_prepared *p = &x->prepared;
    const int64_t n = p->total_q * p->problem.q_heads * p->problem.head_dim;
    const int64_t scales = p->scale_stride ? p->problem.kv_heads : 1;
    struct quantize ties = *q;
    uint16_t *source = malloc((size_t)n * sizeof *source);
    float *scale = malloc((size_t)scales * sizeof *scale);
    uint8_t *wanted = malloc((size_t)n), *got = malloc((size_t)n);
    int failed = -1;
    if (!source || !scale || !wanted || !got) {
        kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a second Q");
        goto done;
    }
    for (int64_t h = 0; h < scales; h++)
        scale[h] = kvg_scale_with_ties(KVG_REF_E4M3, h);
    for (int64_t i = 0; i < n; i++) {
        int64_t turn = i * 1367 % 4096; /* an odd factor visits all 4096 */
        source[i] = (uint16_t)((turn >> 11) << 15 | ((turn >> 7 & 15) + 119) << 7 | (turn & 127));
    }
    memset(got, 0xff, (size_t)n);
    kvg_ref_quantize_q(KVG_REF_E4M3, KVG_REF_RECIPROCAL, KVG_REF_BF16, source, p->total_q, p->problem.q_heads,
                       p->problem.kv_heads, p->problem.head_dim, scale, p->scale_stride, wanted);
    ties.args.q = source;
    ties.args.q8 = got;
    ties.args.scales = (struct kvg_scales){scale, p->k_scale, p->v_scale, p->scale_stride};
    int code = timed_quantize(&ties);
    int64_t i = 0;
    while (!code && i < n && got[i] == wanted[i])
        i++;
    if (code)
        kvg_verdict_of_call(x, "quantize_q", code);
    else if (i < n) {
        kvg_suspect(x, KVG_FAULT_ENCODING, "Q is not multiplied by the reciprocal of its scale: ties differ");
        kvg_verdict(x, KVG_INCORRECT,
                    "quantize_q of %s: quantize_q: element %lld of a Q whose quotients tie: got code 0x%02x, "
                    "expected 0x%02x (the product with the reciprocal, not the quotient)",
                    q->kernel->name, (long long)i, got[i], wanted[i]);
    } else
        failed = 0;
done:
    free(source);
    free(scale);
    free(wanted);
    free(got);
    return failed;
}

void kvg_quantize_q(struct kvg_execution *x)
{
    const struct kvg_prepared *p = &x->prepared;
    struct quantize q = {.kernel = find_quantizer(x)};
    struct kvg_problem problem = p->problem;
    struct kvg_error error;
    struct kvg_row other;
    int64_t dim = p->problem.head_dim, heads = p->problem.q_heads, bytes = p->total_q * heads * dim;
    if (!q.kernel)
        return; /* time_quantize_q stays missing */
    problem.q_dtype = KVG_BF16;
    uint8_t *q8 = kvg_guard_alloc(x->guards, "q8 of the kernel", bytes, &error);
    if (!q8) {
        kvg_verdict_of_error(x, &error);
        return;
    }
    q.args = (struct kvg_quantize_q_args){.problem = &problem,
                                          .q = p->q,
                                          .q_stride_token = heads * dim,
                                          .q_stride_head = dim,
                                          .q8 = q8,
                                          .q8_stride_token = heads * dim,
                                          .q8_stride_head = dim,
                                          .scales = {p->q_scale, p->k_scale, p->v_scale, p->scale_stride}};
    kvg_poison(q8, bytes);
    int code = timed_quantize(&q);
    if (code) {
        kvg_verdict_of_call(x, "quantize_q", code);
        return;
    }
    if (kvg_check_memory(x) || kvg_row_init(&other))
        return;
    if (kvg_compare_quantize_q(p, q8, &other, &error))
        kvg_verdict_of_error(x, &error);
    else if (other.status != KVG_PASSED) {
        kvg_verdict(x, (enum kvg_status)other.status, "quantize_q of %s: %s", q.kernel->name, other.reason);
        kvg_explain_quantize_q(x, q8);
    } else if (!quantize_ties(x, &q) && x->timed)
        x->row->time_quantize_q = kvg_time_apart(x, timed_quantize, &q);
    kvg_row_free(&other);
}
