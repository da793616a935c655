/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.c: executes a case of attention: its checks in their order, and its timing.
 *
 * The output must be right
 *   1. in the first run
 *   2. in a second run, with the same bits if the kernel declares that it is deterministic
 *   3. in the timed calls
 *   4. in further runs (again.c)
 *   5. after Q, K and V have changed in place, in far pages (far.c), in another order (reorder.c), and
 *      with other sequences and query rows in the call (company.c), with NaN in a visible key (nan_keys.c),
 *      and with inputs that touch memory without access (edges.c)
 *   6. on a cache that holds special codes (special_codes.c)
 * On path fp8 the quantising of Q is checked too (quantize.c).
 */
#include "attention.h"

#include <stdio.h>

#include "again.h"
#include "buffers.h"
#include "call.h"
#include "company.h"
#include "device_calls.h"
#include "edges.h"
#include "explain.h"
#include "far.h"
#include "harness/machine/caches.h"
#include "harness/machine/nvtx.h"
#include "harness/measure/evict.h"
#include "harness/measure/roofs.h"
#include "inputs.h"
#include "nan_keys.h"
#include "options.h"
#include "outputs.h"
#include "quantize.h"
#include "reorder.h"
#include "session_state.h"
#include "special_codes.h"
#include "timing.h"
#include "verdict.h"
#include "kernels/scales.h"

/* The buffers of one attention case. */
struct attention {
    struct kvg_execution *x;
    struct kvg_attention_args args;
    void *out, *lse;              /* their buffers; args points to the first element of each */
    int64_t out_bytes, lse_bytes; /* of the buffers */
    struct kvg_arithmetic arithmetic;
    struct kvg_expectation *expectation;
    uint64_t out_hash, lse_hash; /* of the verified output */
    int check_each;              /* 1: poison the output before each timed call and compare its hash after */
};

static int allocate(struct attention *a)
{
    struct kvg_execution *x = a->x;
    const struct kvg_prepared *p = &x->prepared;
    a->out_bytes = kvg_out_buffer_bytes(p);
    a->lse_bytes = kvg_lse_buffer_bytes(p);
    a->out = kvg_buffer_alloc(x, "out", a->out_bytes);
    a->lse = a->out ? kvg_buffer_alloc(x, "lse", a->lse_bytes) : NULL;
    return a->lse ? 0 : -1;
}

static void fill_args(struct attention *a)
{
    struct kvg_execution *x = a->x;
    const struct kvg_prepared *p = &x->prepared;
    const struct kvg_seen *seen = &x->seen;
    const struct kvg_views *v = &p->views;
    const struct kvg_rows_view *q = p->q8 ? &v->q8 : &v->q;
    int quantised = p->problem.kv_dtype != KVG_BF16;
    a->args = (struct kvg_attention_args){
        .problem = &p->problem,
        .q = p->q8 ? kvg_rows_begin(q, 1, seen->q8) : kvg_rows_begin(q, 2, seen->q),
        .q_stride_token = q->stride_token,
        .q_stride_head = q->stride_head,
        .k_cache = kvg_prepared_pages(p, 0, seen->k_cache),
        .v_cache = kvg_prepared_pages(p, 1, seen->v_cache),
        .num_blocks = p->num_blocks,
        .block_table = seen->block_table,
        .block_table_stride = p->block_table_stride,
        .seq_lens = seen->seq_lens,
        .cu_q_lens = seen->cu_q_lens,
        .scales = kvg_scales_of(p->q8 ? seen->q_scale : NULL, quantised ? seen->k_scale : NULL,
                                quantised ? seen->v_scale : NULL, p->scale_stride),
        .softmax_scale = p->softmax_scale,
        .out = kvg_rows_begin(&v->out, sizeof(uint16_t), a->out),
        .out_stride_token = v->out.stride_token,
        .out_stride_head = v->out.stride_head,
        .lse = kvg_rows_begin(&v->lse, sizeof(float), a->lse),
        .lse_stride_token = v->lse.stride_token,
        .workspace = x->site.workspace,
        .workspace_bytes = x->site.workspace_bytes,
        .stream = x->site.device ? x->site.device->ops->stream(x->site.device) : NULL,
        .prefix_lens = seen->prefix_lens,
        .sinks = seen->sinks,
    };
    x->calls->gathered = a->args;
}

static int poison_outputs(struct attention *a)
{
    return kvg_poison_outputs(a->x, &a->args);
}

static int run_once(struct attention *a)
{
    return kvg_call_attention(a->x, &a->args);
}

/* Fills the error columns and the status. 0 when the row may go on: passed, or mistrusted. */
static int compare(struct attention *a, enum kvg_run_kind run)
{
    struct kvg_execution *x = a->x;
    if (kvg_outputs_compare(x, &a->args, a->expectation, 1, x->row))
        return -1;
    if (x->row->status == KVG_PASSED || x->row->status == KVG_MISTRUSTED) {
        kvg_explain_remember(x);
        return 0;
    }
    kvg_explain_attention(x, &a->args, a->expectation, run);
    return -1;
}

static int hash_outputs(struct attention *a, uint64_t *out, uint64_t *lse)
{
    return kvg_hash_outputs(a->x, &a->args, out, lse);
}

/* The same inputs a second time. A deterministic kernel must give the same bits, any other a right output. */
static int run_twice(struct attention *a)
{
    uint64_t out_hash, lse_hash;
    if (hash_outputs(a, &out_hash, &lse_hash) || run_once(a) || hash_outputs(a, &a->out_hash, &a->lse_hash))
        return -1;
    if (!a->arithmetic.deterministic)
        return compare(a, KVG_RUN_SECOND);
    if (a->out_hash == out_hash && a->lse_hash == lse_hash)
        return 0;
    kvg_verdict_suspect(a->x, KVG_FAULT_RACE, "the same call on the same inputs gives other bits");
    return kvg_verdict(a->x, KVG_INCORRECT,
                       "two runs on the same inputs differ in %s, although the kernel declares that it is "
                       "deterministic",
                       a->out_hash != out_hash ? "out" : "lse");
}

/* ---- timing ---- */

static int call(void *context)
{
    struct attention *a = context;
    return a->x->kernel->attention(&a->args);
}

static int timed_call(void *context)
{
    struct attention *a = context;
    return a->x->calls->recording ? kvg_calls_replay(a->x) : a->x->kernel->attention(&a->args);
}

static int timed_prepare(void *context)
{
    struct attention *a = context;
    return a->x->kernel->prepare(&a->args);
}

static void before_hot(void *context)
{
    struct attention *a = context;
    if (a->check_each && poison_outputs(a))
        a->x->calls->failed = 1;
    if (!a->x->site.device)
        kvg_team_wake(a->x->prepared.problem.threads);
}

/* Evicts what the call reads and writes from all caches of a CPU. */
static void evict(struct attention *a)
{
    const struct kvg_prepared *p = &a->x->prepared;
    const struct kvg_views *v = &p->views;
    const int64_t bytes = kvg_dtype_bytes(p->problem.kv_dtype);
    kvg_evict_range(p->shown.k_cache, v->k_cache.elements * bytes);
    if (!v->shared)
        kvg_evict_range(p->shown.v_cache, v->v_cache.elements * bytes);
    kvg_evict_range(p->q8 ? p->shown.q8 : p->shown.q, p->q8 ? v->q8.elements : 2 * v->q.elements);
    kvg_evict_range(p->block_table, p->problem.batch * p->block_table_stride * (int64_t)sizeof(int32_t));
    kvg_evict_range(a->out, a->out_bytes);
    kvg_evict_range(a->lse, a->lse_bytes);
    kvg_evict_range(a->x->site.workspace, a->x->site.workspace_bytes);
    kvg_meter_sweep(a->x->session->meter);
    kvg_team_wake(p->problem.threads);
}

static void before_cold(void *context)
{
    struct attention *a = context;
    if (poison_outputs(a))
        a->x->calls->failed = 1;
    if (a->x->site.device)
        kvg_calls_flush(a->x);
    else
        evict(a);
}

/* 1 if the output of the timed call differs from the verified one. */
static int differs(void *context)
{
    struct attention *a = context;
    uint64_t out, lse;
    return hash_outputs(a, &out, &lse) || out != a->out_hash || lse != a->lse_hash;
}

static int take_times(struct attention *a)
{
    struct kvg_execution *x = a->x;
    int cold = x->c->cache_state == KVG_STATE_COLD;
    /* Hashing a large output between hot calls would push K and V out of the cache. */
    a->check_each =
        cold || a->out_bytes * 8 <= (x->site.device ? x->site.device->cache_bytes : kvg_l2_bytes());
    struct kvg_measurement m = {
        .call = timed_call,
        .evict = cold ? before_cold : before_hot,
        .after = a->check_each && a->arithmetic.deterministic ? differs : NULL,
        .batch = !cold,
        .hold = !cold,
        .context = a,
    };
    if (!cold && poison_outputs(a))
        return -1;
    if (x->kernel->prepare)
        x->row->time_prepare = kvg_calls_time_apart(x, timed_prepare, a);
    return kvg_calls_record(x, call, a) || kvg_calls_time(x, &m) ? -1 : 0;
}

static int time_calls(struct attention *a)
{
    struct kvg_execution *x = a->x;
    kvg_stopwatch_turn(&x->watch, KVG_TIMING);
    int failed = take_times(a);
    kvg_calls_forget(x);
    if (failed)
        return -1;
    /* The whole last output. A kernel that is not deterministic has no hash to compare with. */
    if (a->arithmetic.deterministic && differs(a)) {
        if (x->row->status == KVG_CRASHED)
            return -1;
        kvg_verdict_suspect(x, KVG_FAULT_RACE, "the output was right before and has other bits when timed");
        return kvg_verdict(x, KVG_INCORRECT, KVG_TIMED_OUTPUT_DIFFERS);
    }
    if (!a->arithmetic.deterministic && compare(a, KVG_RUN_TIMED))
        return -1;
    return kvg_buffers_check(x);
}

/* ---- changed inputs ---- */

enum { RENEWED_ROWS = 8 };

/* A run after other values were put into the same buffers. Few rows of its output are checked. */
static int run_renewed(struct attention *a, int again)
{
    struct kvg_execution *x = a->x;
    struct kvg_error error;
    struct kvg_expectation *expectation = NULL;
    kvg_expectation_free(a->expectation); /* it refers to the first inputs */
    a->expectation = NULL;
    if (kvg_inputs_renew(x, x->c->seed + 1000003))
        return -1;
    if (kvg_expectation_make(kvg_inputs_verified(x), x->kernel, RENEWED_ROWS, &expectation, &error))
        return kvg_verdict_of_error(x, &error);
    int failed = run_once(a) || kvg_output_hold(x, &a->args, expectation, KVG_RUN_RENEWED,
                                                "after its inputs changed in place", NULL);
    if (!failed && again)
        failed = kvg_attention_far(x, &a->args, expectation);
    if (!failed)
        failed = kvg_attention_reorder(x, &a->args, expectation);
    if (!failed)
        failed = kvg_attention_company(x, &a->args, expectation);
    if (!failed && again)
        failed = kvg_attention_nan_keys(x, &a->args, expectation);
    if (!failed)
        failed = kvg_attention_edges(x, &a->args, expectation);
    kvg_expectation_free(expectation);
    return failed ? -1 : 0;
}

/* Only what the kernel launches is in the range: outputs are filled before it, and memory is checked after it. */
static void profile(struct attention *a)
{
    struct kvg_execution *x = a->x;
    char name[KVG_CASE_STRING_MAX];
    kvg_case_format(x->c, name);
    if (kvg_call_prepare(x, &a->args) || kvg_call_finish(x, "filling the outputs", 0))
        return;
    kvg_nvtx_push(name);
    const int failed = kvg_call_prepared(x, &a->args);
    kvg_nvtx_pop();
    if (failed || kvg_buffers_check(x))
        return;
    x->profiled = 1;
    kvg_verdict(x, KVG_SKIPPED, "profiled: run once, neither verified nor timed");
}

static void verify_and_time(struct attention *a)
{
    struct kvg_execution *x = a->x;
    if (kvg_outputs_expect(x, &a->expectation))
        return;
    if (kvg_outputs_make_plain(x, &a->args, a->expectation))
        return;
    if (run_once(a) || compare(a, KVG_RUN_FIRST) || run_twice(a))
        return;
    if (x->timed && x->row->status == KVG_PASSED && time_calls(a))
        return;
    kvg_stopwatch_turn(&x->watch, KVG_VERIFYING);
    kvg_outputs_remark(x);
    const int again = kvg_session_wants_again(x);
    if (again && kvg_attention_again(x, &a->args, a->expectation, a->arithmetic.deterministic))
        return;
    if (x->prepared.q8)
        kvg_execute_quantize_q(x);
    if (x->row->status != KVG_PASSED && x->row->status != KVG_MISTRUSTED)
        return;
    const int renewed = kvg_session_wants_renewal(x);
    if (renewed ? run_renewed(a, again) : kvg_attention_edges(x, &a->args, a->expectation))
        return;
    /* The last run: it leaves other values. It starts from the values of the case, whether they were renewed
     * or not, so that the row can be repeated alone. */
    if ((!x->timed || again) && kvg_special_codes_wanted(x) && !(renewed && kvg_inputs_renew(x, x->c->seed)))
        kvg_attention_special_codes(x, &a->args);
}

void kvg_execute_attention(struct kvg_execution *x)
{
    struct attention a = {.x = x};
    if (allocate(&a))
        return;
    fill_args(&a);
    if (!x->kernel->arithmetic) {
        kvg_verdict(x, KVG_INCORRECT, "kernel %s declares no arithmetic, so no bound can be computed",
                    x->kernel->name);
        return;
    }
    x->kernel->arithmetic(&x->prepared.problem, x->prepared.problem.max_seq_len, &a.arithmetic);
    if (x->options->profile)
        profile(&a);
    else
        verify_and_time(&a);
    kvg_expectation_free(a.expectation);
}
