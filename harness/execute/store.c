/* SPDX-License-Identifier: Apache-2.0
 *
 * store.c: executes a case of store: its checks in their order, and its timing. Every stored code must be
 * exact.
 */
#include "store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "buffers.h"
#include "device_calls.h"
#include "edges.h"
#include "explain.h"
#include "far.h"
#include "harness/machine/nvtx.h"
#include "harness/measure/evict.h"
#include "harness/measure/roofs.h"
#include "harness/prepare/special.h"
#include "harness/verify/verify.h"
#include "harness/verify/whole.h"
#include "inputs.h"
#include "options.h"
#include "session_state.h"
#include "timing.h"
#include "verdict.h"
#include "kernels/scales.h"

/* With more elements in a cache, special values are stored under fewer scales. */
#define LARGE_ELEMENTS (INT64_C(1) << 20)

struct store {
    struct kvg_execution *x;
    struct kvg_store_args args;
    void *k_cache, *v_cache;  /* buffers of the caches; the same one where views are shared */
    int64_t k_bytes, v_bytes; /* of the buffers; v_bytes is 0 where they are the same */
    void *dense_k, *dense_v;  /* the caches as dense tensors, where views are not dense; owned */
    uint64_t k_hash, v_hash;
};

static int allocate(struct store *s)
{
    struct kvg_execution *x = s->x;
    const struct kvg_views *v = &x->prepared.views;
    const int64_t bytes = kvg_dtype_bytes(x->prepared.problem.kv_dtype);
    s->k_bytes = v->k_cache.elements * bytes;
    s->v_bytes = v->shared ? 0 : v->v_cache.elements * bytes;
    s->k_cache =
        kvg_buffer_alloc(x, v->shared ? "caches of the kernel" : "k_cache of the kernel", s->k_bytes);
    s->v_cache =
        v->shared || !s->k_cache ? s->k_cache : kvg_buffer_alloc(x, "v_cache of the kernel", s->v_bytes);
    return s->v_cache ? 0 : -1;
}

static void fill_args(struct store *s)
{
    struct kvg_execution *x = s->x;
    const struct kvg_prepared *p = &x->prepared;
    const struct kvg_views *v = &p->views;
    int quantised = p->problem.kv_dtype != KVG_BF16;
    s->args = (struct kvg_store_args){
        .problem = &p->problem,
        .k = kvg_rows_begin(&v->k, sizeof(uint16_t), x->seen.k),
        .v = kvg_rows_begin(&v->v, sizeof(uint16_t), x->seen.v),
        .k_stride_token = v->k.stride_token,
        .k_stride_head = v->k.stride_head,
        .v_stride_token = v->v.stride_token,
        .v_stride_head = v->v.stride_head,
        .slot_mapping = x->seen.slot_mapping,
        .tokens = p->store_tokens,
        .k_cache = kvg_prepared_pages(p, 0, s->k_cache),
        .v_cache = kvg_prepared_pages(p, 1, s->v_cache),
        .num_blocks = p->num_blocks,
        .scales = kvg_scales_of(NULL, quantised ? x->seen.k_scale : NULL, quantised ? x->seen.v_scale : NULL,
                                p->scale_stride),
        .workspace = x->site.workspace,
        .workspace_bytes = x->site.workspace_bytes,
        .stream = x->site.device ? x->site.device->ops->stream(x->site.device) : NULL,
    };
}

static int poison_cache(struct kvg_execution *x, void *cache, int64_t bytes)
{
    return kvg_buffer_fill(x, cache, kvg_poison_byte(x->prepared.problem.kv_dtype), bytes);
}

static int poison_caches(struct store *s)
{
    return poison_cache(s->x, s->k_cache, s->k_bytes) ||
                   (s->v_bytes && poison_cache(s->x, s->v_cache, s->v_bytes))
               ? -1
               : 0;
}

/* A call must not write between the rows of its caches. */
static int check_gaps(struct store *s, const void *k_buffer, const void *v_buffer)
{
    struct kvg_execution *x = s->x;
    const struct kvg_prepared *p = &x->prepared;
    const struct kvg_views_sizes sizes = kvg_prepared_sizes(p);
    const int64_t bytes = kvg_dtype_bytes(p->problem.kv_dtype);
    int is_v = 0;
    const int64_t at = kvg_caches_gap_written(&p->views, &sizes, bytes, kvg_poison_byte(p->problem.kv_dtype),
                                              k_buffer, v_buffer, &is_v);
    if (at == -2)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a copy of a cache");
    if (at < 0)
        return 0;
    const struct kvg_cache_view *view = is_v ? &p->views.v_cache : &p->views.k_cache;
    kvg_verdict_suspect(x, KVG_FAULT_LAYOUT,
                        "a stride of the cache is computed from the shape, or a row is too long");
    return kvg_verdict(x, KVG_INCORRECT,
                       "%s was written between its rows, at element %lld of its buffer (strides: block %lld, "
                       "slot %lld, head %lld; first element %lld)",
                       p->views.shared ? "the buffer of both caches"
                       : is_v          ? "v_cache"
                                       : "k_cache",
                       (long long)(at / bytes), (long long)view->stride_block, (long long)view->stride_slot,
                       (long long)view->stride_head, (long long)view->first);
}

/* The kernel's caches as dense tensors in host memory, which the caller may change. -1 with the verdict, also
 * if the gaps were written. */
static int bring_caches(struct store *s, void **k, void **v)
{
    struct kvg_execution *x = s->x;
    const struct kvg_prepared *p = &x->prepared;
    const struct kvg_views_sizes sizes = kvg_prepared_sizes(p);
    const int64_t bytes = kvg_dtype_bytes(p->problem.kv_dtype), dense = p->cache_elements * bytes;
    void *k_here = kvg_buffer_fetch(x, KVG_FETCHED_K, s->k_cache, s->k_bytes);
    void *v_here = k_here && s->v_bytes ? kvg_buffer_fetch(x, KVG_FETCHED_V, s->v_cache, s->v_bytes) : k_here;
    *k = k_here;
    *v = v_here;
    if (!v_here)
        return -1;
    if (p->views.dense)
        return 0;
    s->dense_k = s->dense_k ? s->dense_k : malloc((size_t)dense + 1);
    s->dense_v = s->dense_v ? s->dense_v : malloc((size_t)dense + 1);
    if (!s->dense_k || !s->dense_v)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a dense cache");
    if (check_gaps(s, k_here, v_here))
        return -1;
    kvg_cache_pick(&p->views.k_cache, &sizes, bytes, k_here, s->dense_k);
    kvg_cache_pick(&p->views.v_cache, &sizes, bytes, v_here, s->dense_v);
    *k = s->dense_k;
    *v = s->dense_v;
    return 0;
}

static int prepare_store(struct store *s)
{
    struct kvg_execution *x = s->x;
    return poison_caches(s) || kvg_buffer_poison(x, x->site.workspace, x->site.workspace_bytes) ? -1 : 0;
}

/* One call, without the check of memory. */
static int call_store(struct store *s)
{
    struct kvg_execution *x = s->x;
    return prepare_store(s) || kvg_call_finish(x, "store", x->kernel->store(&s->args)) ? -1 : 0;
}

static int run_once(struct store *s)
{
    return call_store(s) || kvg_buffers_check(s->x) ? -1 : 0;
}

/* Number of elements in the pages that the host checked when the case was prepared (kvg_seen_compare). */
static int64_t verified_elements(const struct kvg_prepared *part)
{
    int64_t pages = 0;
    for (int64_t i = 0; i < part->problem.batch; i++)
        pages += (part->seq_lens[i] + part->problem.block_size - 1) / part->problem.block_size;
    return 2 * pages * part->k_pages.stride_block;
}

/* Compares the caches of a frame with those that the device's own plain store made. */
static int compare_there(struct store *s, struct kvg_row *row)
{
    struct kvg_execution *x = s->x;
    struct kvg_device *d = x->site.device;
    struct kvg_error error;
    const void *const want[2] = {x->seen.k_cache, x->seen.v_cache}, *const got[2] = {s->k_cache, s->v_cache};
    int64_t first[2];
    for (int t = 0; t < 2; t++) /* the views of a frame are dense */
        if (d->ops->differs(d, want[t], got[t], s->k_bytes, &first[t]))
            return kvg_verdict_of_device(x, "comparing caches", NULL);
    uint8_t codes[2][2][4] = {{{0}}};
    const int64_t e = kvg_dtype_bytes(x->prepared.problem.kv_dtype);
    for (int t = 0; t < 2; t++)
        if (first[t] >= 0 && (d->ops->download(d, codes[t][0], (const char *)want[t] + first[t] / e * e, e) ||
                              d->ops->download(d, codes[t][1], (const char *)got[t] + first[t] / e * e, e)))
            return kvg_verdict_of_device(x, "copying a code to the host", NULL);
    if (kvg_report_store(&x->prepared, first, codes, row, &error))
        return kvg_verdict_of_error(x, &error);
    row->n_checked = verified_elements(&x->part);
    row->n_device_checked = 2 * x->prepared.cache_elements;
    return row->status == KVG_PASSED ? 0 : -1;
}

static int compare(struct store *s, struct kvg_row *row, enum kvg_run_kind run)
{
    struct kvg_execution *x = s->x;
    struct kvg_error error;
    if (x->prepared.frame)
        return compare_there(s, row);
    void *k, *v;
    if (bring_caches(s, &k, &v))
        return -1;
    if (kvg_compare_store(&x->prepared, k, v, row, &error))
        return kvg_verdict_of_error(x, &error);
    if (row->status == KVG_PASSED)
        return 0;
    kvg_explain_store(x, k, v, run);
    return -1;
}

static int call(void *context)
{
    struct store *s = context;
    return s->x->kernel->store(&s->args);
}

static int timed_call(void *context)
{
    struct store *s = context;
    return s->x->calls->recording ? kvg_calls_replay(s->x) : s->x->kernel->store(&s->args);
}

/* The caches are not poisoned between timed calls, because that would write all of their lines. */
static void before_cold(void *context)
{
    struct store *s = context;
    const struct kvg_prepared *p = &s->x->prepared;
    if (s->x->site.device) {
        kvg_calls_flush(s->x);
        return;
    }
    const int64_t source = (int64_t)sizeof(uint16_t);
    kvg_evict_range(p->shown.k, p->views.k.elements * source);
    if (!p->views.shared)
        kvg_evict_range(p->shown.v, p->views.v.elements * source);
    kvg_evict_range(s->k_cache, s->k_bytes);
    kvg_evict_range(s->v_cache, s->v_bytes);
    kvg_evict_range(p->slot_mapping, p->store_tokens * (int64_t)sizeof(int64_t));
    kvg_meter_sweep(s->x->session->meter);
    kvg_team_wake(p->problem.threads);
}

static int time_calls(struct store *s)
{
    struct kvg_execution *x = s->x;
    int cold = x->c->cache_state == KVG_STATE_COLD;
    struct kvg_measurement m = {
        .call = timed_call, .evict = cold ? before_cold : NULL, .batch = !cold, .hold = !cold, .context = s};
    kvg_stopwatch_turn(&x->watch, KVG_TIMING);
    if (poison_caches(s))
        return -1;
    int failed = kvg_calls_record(x, call, s) || kvg_calls_time(x, &m);
    kvg_calls_forget(x);
    if (failed)
        return -1;
    return compare(s, x->row, KVG_RUN_TIMED) ? -1 : kvg_buffers_check(x);
}

static int run_renewed(struct store *s)
{
    struct kvg_execution *x = s->x;
    struct kvg_row other;
    if (kvg_inputs_renew(x, x->c->seed + 1000003) || run_once(s))
        return -1;
    if (kvg_row_init(&other))
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a row");
    int failed = compare(s, &other, KVG_RUN_RENEWED);
    if (failed && other.status != KVG_PASSED)
        kvg_verdict(x, KVG_INCORRECT, "after its inputs changed in place: %s", other.reason);
    kvg_row_free(&other);
    return failed;
}

static int hash_caches(struct store *s, uint64_t *k, uint64_t *v)
{
    return kvg_buffer_hash(s->x, s->k_cache, s->k_bytes, k) ||
                   kvg_buffer_hash(s->x, s->v_cache, s->v_bytes, v)
               ? -1
               : 0;
}

/* One more run, which must give caches with the hashes k and v. */
static int run_again(struct store *s, uint64_t k, uint64_t v)
{
    uint64_t k_now, v_now;
    if (call_store(s) || hash_caches(s, &k_now, &v_now))
        return -1;
    if (k_now == k && v_now == v)
        return 0;
    if (kvg_buffers_check(s->x)) /* a stray write can change the caches too */
        return -1;
    if (!s->x->prepared.frame) {
        void *k_here, *v_here;
        if (bring_caches(s, &k_here, &v_here) == 0)
            kvg_explain_store(s->x, k_here, v_here, KVG_RUN_REPEAT);
    }
    return kvg_verdict(s->x, KVG_INCORRECT, "two runs on the same inputs store different bits");
}

static int run_twice(struct store *s)
{
    uint64_t k, v;
    return hash_caches(s, &k, &v) || run_again(s, k, v) || kvg_buffers_check(s->x) ? -1 : 0;
}

/* Many runs, because a race shows rarely. A stray write stays visible, so memory is checked once, after the
 * last repeat. */
static int run_often(struct store *s)
{
    enum { REPEATS = 50 };
    const int64_t asked = s->x->options->repeats, most = asked ? asked : REPEATS;
    uint64_t k, v;
    if (hash_caches(s, &k, &v))
        return -1;
    for (int64_t i = 0; i < most; i++) {
        if (run_again(s, k, v))
            return -1;
        s->x->row->n_repeats = i + 1;
    }
    return kvg_buffers_check(s->x);
}

/* The slot mapping with first_block added to every page, in memory that the kernel reads. NULL with the
 * verdict. */
static int64_t *far_slots(struct kvg_execution *x, int64_t first_block)
{
    const struct kvg_prepared *p = &x->prepared;
    const int64_t bytes = p->store_tokens * (int64_t)sizeof(int64_t);
    int64_t *slots = malloc((size_t)bytes + 1), *seen = NULL;
    if (!slots) {
        kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a slot mapping");
        return NULL;
    }
    for (int64_t i = 0; i < p->store_tokens; i++)
        slots[i] = p->slot_mapping[i] < 0 ? p->slot_mapping[i]
                                          : p->slot_mapping[i] + first_block * p->problem.block_size;
    seen = kvg_buffer_alloc(x, "slot_mapping of far pages", bytes);
    if (seen && kvg_buffer_send(x, seen, slots, bytes))
        seen = NULL;
    free(slots);
    return seen;
}

static int run_in(struct store *s, const struct kvg_far_cache *far)
{
    struct kvg_execution *x = s->x;
    const struct kvg_prepared *p = &x->prepared;
    int64_t *slots = far_slots(x, far->first_block);
    if (!slots)
        return -1;
    s->args.k_cache = far->pages[0];
    s->args.v_cache = far->pages[1];
    s->args.slot_mapping = slots;
    s->args.num_blocks += far->first_block;
    if (poison_cache(x, far->filled[0], far->bytes) || poison_cache(x, far->filled[1], far->bytes) ||
        kvg_buffer_poison(x, x->site.workspace, x->site.workspace_bytes))
        return -1;
    kvg_session_tell(x, KVG_RUN_FAR);
    int failed = kvg_call_finish(x, "store", x->kernel->store(&s->args));
    kvg_session_tell(x, KVG_RUN_FIRST);
    if (failed || kvg_buffers_check(x))
        return -1;
    const void *k = kvg_buffer_fetch(x, KVG_FETCHED_K, far->filled[0], far->bytes),
               *v = k ? kvg_buffer_fetch(x, KVG_FETCHED_V, far->filled[1], far->bytes) : NULL;
    if (!v)
        return -1;
    if (memcmp(k, p->k_cache, (size_t)far->bytes) == 0 && memcmp(v, p->v_cache, (size_t)far->bytes) == 0)
        return 0;
    kvg_explain_store(x, k, v, KVG_RUN_FAR);
    return kvg_verdict(x, KVG_INCORRECT,
                       "in pages far into the cache (beyond 2^32 elements): store: codes differ");
}

/* A run with slot numbers so high that slot times stride needs more than 32 bits. */
static int run_far(struct store *s)
{
    const struct kvg_store_args near = s->args;
    struct kvg_far_cache far;
    if (kvg_far_cache_make(s->x, &far))
        return 0;
    int failed = run_in(s, &far);
    s->args = near;
    kvg_far_cache_free(s->x, &far);
    return failed;
}

/* Replaces a NaN by the expected NaN: a kernel may choose which code of NaN it stores. */
static void forgive_nans(const struct kvg_prepared *p, const void *wanted, void *got)
{
    const enum kvg_ref_format format = kvg_ref_format_of(p->problem.kv_dtype);
    for (int64_t i = 0; i < p->cache_elements; i++)
        if (((const uint8_t *)got)[i] != ((const uint8_t *)wanted)[i] &&
            isnan(kvg_ref_load(format, got, i)) && isnan(kvg_ref_load(format, wanted, i)))
            ((uint8_t *)got)[i] = ((const uint8_t *)wanted)[i];
}

/* One run on special values. `special` is NULL for a bf16 cache. */
static int run_special_once(struct store *s, const struct kvg_special *special, int64_t round)
{
    struct kvg_execution *x = s->x;
    const struct kvg_prepared *p = &x->prepared;
    struct kvg_error error;
    struct kvg_row other;
    void *k, *v;
    kvg_prepared_special(&x->prepared, special, round);
    if (x->site.device && kvg_seen_fill(x->site.device, x->site.memory, p, &x->seen, &error))
        return kvg_verdict_of_device(x, "copying special values to the device", &error);
    if (run_once(s) || bring_caches(s, &k, &v))
        return -1;
    if (special) {
        forgive_nans(p, p->k_cache, k);
        forgive_nans(p, p->v_cache, v);
    }
    if (kvg_row_init(&other))
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a row");
    int failed = kvg_compare_store(p, k, v, &other, &error) ? kvg_verdict_of_error(x, &error) : 0;
    if (!failed && other.status != KVG_PASSED) {
        kvg_explain_store(x, k, v, KVG_RUN_SPECIAL);
        failed = kvg_verdict(
            x, KVG_INCORRECT,
            "with special values (midpoints, subnormals, largest codes, zeros of both signs, NaN, "
            "infinities): %s",
            other.reason);
    }
    kvg_row_free(&other);
    return failed;
}

/* Number of runs on special values. In half of KVG_SPECIAL_SCALES runs, K and V each have all kinds. */
static int64_t count_special(const struct kvg_prepared *p, const struct kvg_special *special)
{
    return !special                              ? 1
           : p->cache_elements <= LARGE_ELEMENTS ? kvg_prepared_special_rounds(p, special)
                                                 : KVG_SPECIAL_SCALES / 2;
}

/* Runs on special values, under several scales. */
static int run_special(struct store *s)
{
    const struct kvg_prepared *p = &s->x->prepared;
    struct kvg_special lists = {.telling = 0}, *special = p->problem.kv_dtype != KVG_BF16 ? &lists : NULL;
    int failed = 0;
    if (p->frame || p->total_kv < 1)
        return 0;
    if (special && kvg_special_make(kvg_ref_format_of(p->problem.kv_dtype), KVG_SPECIAL_DIVIDE, special))
        return kvg_verdict(s->x, KVG_OUT_OF_MEMORY, "no memory for special values");
    const int64_t rounds = count_special(p, special);
    for (int64_t round = 0; round < rounds && !failed; round++)
        failed = run_special_once(s, special, round);
    if (special)
        kvg_special_free(special);
    return failed;
}

/* The call of a run with inputs at an edge. */
static int call_at_edge(void *context)
{
    struct store *s = context;
    struct kvg_row other;
    int failed = run_once(s);
    if (failed)
        return -1;
    if (kvg_row_init(&other))
        return kvg_verdict(s->x, KVG_OUT_OF_MEMORY, "no memory for a row");
    failed = compare(s, &other, KVG_RUN_EDGE);
    if (failed && other.status != KVG_PASSED)
        kvg_verdict(s->x, KVG_INCORRECT, "with inputs that touch memory without access: %s", other.reason);
    kvg_row_free(&other);
    return failed;
}

/* As in attention.c. */
static void profile(struct store *s)
{
    struct kvg_execution *x = s->x;
    char name[KVG_CASE_STRING_MAX];
    kvg_case_format(x->c, name);
    if (prepare_store(s) || kvg_call_finish(x, "filling the caches", 0))
        return;
    kvg_nvtx_push(name);
    const int failed = kvg_call_finish(x, "store", x->kernel->store(&s->args));
    kvg_nvtx_pop();
    if (failed || kvg_buffers_check(x))
        return;
    x->profiled = 1;
    kvg_verdict(x, KVG_SKIPPED, "profiled: run once, neither verified nor timed");
}

static void verify_and_time(struct store *s)
{
    struct kvg_execution *x = s->x;
    if (run_once(s) || compare(s, x->row, KVG_RUN_FIRST) || run_twice(s))
        return;
    if (x->timed && time_calls(s))
        return;
    kvg_stopwatch_turn(&x->watch, KVG_VERIFYING);
    const int again = kvg_session_wants_again(x);
    if (again && (run_often(s) || kvg_store_edges(x, &s->args, call_at_edge, s) || run_far(s)))
        return;
    const int special = again || !x->timed;
    if (special && run_special(s))
        return;
    if (special || kvg_session_wants_renewal(x)) /* a renewal also ends the special values */
        run_renewed(s);
}

void kvg_execute_store(struct kvg_execution *x)
{
    struct store s = {.x = x};
    if (allocate(&s))
        return;
    fill_args(&s);
    if (x->options->profile)
        profile(&s);
    else
        verify_and_time(&s);
    free(s.dense_k);
    free(s.dense_v);
}
