/* SPDX-License-Identifier: Apache-2.0
 *
 * execute_attention.c: a case of attention. Right once, right twice with the same bits, right while timed,
 * right after that, right when asked in other ways (execute_again.c), and right again once Q, K and V have
 * changed: a number is only worth having from a kernel that is all of these.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "execute.h"
#include "harness/machine/nvtx.h"

/* The buffers of one attention case. */
struct attention {
    struct kvg_execution *x;
    struct kvg_attention_args args;
    uint16_t *out;
    float *lse;
    int64_t out_bytes, lse_bytes;
    struct kvg_arithmetic arithmetic;
    struct kvg_expectation *expectation;
    uint64_t out_hash, lse_hash; /* of the verified output */
    int check_each;              /* hash and poison the output around each timed call */
};

static int allocate(struct attention *a)
{
    struct kvg_execution *x = a->x;
    const struct kvg_prepared *p = &x->prepared;
    a->out_bytes = p->total_q * p->problem.q_heads * p->problem.head_dim * (int64_t)sizeof *a->out;
    a->lse_bytes = p->total_q * p->problem.q_heads * (int64_t)sizeof *a->lse;
    a->out = kvg_place(x, "out", a->out_bytes);
    a->lse = a->out ? kvg_place(x, "lse", a->lse_bytes) : NULL;
    return a->lse ? 0 : -1;
}

static void fill_args(struct attention *a)
{
    struct kvg_execution *x = a->x;
    const struct kvg_prepared *p = &x->prepared;
    const struct kvg_seen *seen = &x->seen;
    int64_t dim = p->problem.head_dim, heads = p->problem.q_heads;
    int quantised = p->problem.kv_dtype != KVG_BF16;
    a->args = (struct kvg_attention_args){
        .problem = &p->problem,
        .q = p->q8 ? seen->q8 : seen->q,
        .q_stride_token = heads * dim,
        .q_stride_head = dim,
        .k_cache = p->k_pages,
        .v_cache = p->v_pages,
        .num_blocks = p->num_blocks,
        .block_table = seen->block_table,
        .block_table_stride = p->block_table_stride,
        .seq_lens = seen->seq_lens,
        .cu_q_lens = seen->cu_q_lens,
        .scales = {p->q8 ? seen->q_scale : NULL, quantised ? seen->k_scale : NULL,
                   quantised ? seen->v_scale : NULL, p->scale_stride},
        .softmax_scale = p->softmax_scale,
        .out = a->out,
        .out_stride_token = heads * dim,
        .out_stride_head = dim,
        .lse = a->lse,
        .lse_stride_token = heads,
        .workspace = x->workspace,
        .workspace_bytes = x->workspace_bytes,
        .stream = x->device ? x->device->ops->stream(x->device) : NULL,
    };
    a->args.k_cache.data = seen->k_cache;
    a->args.v_cache.data = seen->v_cache;
    x->gathered = a->args;
}

static int poison_outputs(struct attention *a)
{
    return kvg_poison(a->x, a->out, a->out_bytes) || kvg_poison(a->x, a->lse, a->lse_bytes) ? -1 : 0;
}

static int run_once(struct attention *a)
{
    return kvg_call_attention(a->x, &a->args);
}

/* Fills the error columns and the status. 0 when the row may go on: passed, or mistrusted. */
static int compare(struct attention *a, enum kvg_run_kind run)
{
    struct kvg_execution *x = a->x;
    if (kvg_compare_outputs(x, &a->args, a->expectation, 1, x->row))
        return -1;
    if (x->row->status == KVG_PASSED || x->row->status == KVG_MISTRUSTED) {
        kvg_remember_output(x);
        return 0;
    }
    kvg_explain_attention(x, &a->args, a->expectation, run);
    return -1;
}

static int hash_outputs(struct attention *a, uint64_t *out, uint64_t *lse)
{
    return kvg_digest(a->x, a->out, a->out_bytes, out) || kvg_digest(a->x, a->lse, a->lse_bytes, lse) ? -1
                                                                                                      : 0;
}

/* The same inputs a second time: the same bits, or at least right again where the kernel declares no more. */
static int run_twice(struct attention *a)
{
    uint64_t out_hash, lse_hash;
    if (hash_outputs(a, &out_hash, &lse_hash) || run_once(a) || hash_outputs(a, &a->out_hash, &a->lse_hash))
        return -1;
    if (!a->arithmetic.deterministic)
        return compare(a, KVG_RUN_SECOND);
    if (a->out_hash == out_hash && a->lse_hash == lse_hash)
        return 0;
    kvg_suspect(a->x, KVG_FAULT_RACE, "the same call on the same inputs gives other bits");
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
    return a->x->recording ? kvg_replay(a->x) : a->x->kernel->attention(&a->args);
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
        a->x->device_failed = 1;
    if (!a->x->device)
        kvg_wake_team(a->x->prepared.problem.threads);
}

/* What the call reads and writes, out of all caches of a CPU. */
static void evict(struct attention *a)
{
    const struct kvg_prepared *p = &a->x->prepared;
    int64_t cache = p->cache_elements * kvg_dtype_bytes(p->problem.kv_dtype);
    kvg_evict_range(p->k_cache, cache);
    kvg_evict_range(p->v_cache, cache);
    kvg_evict_range(a->args.q, p->total_q * p->problem.q_heads * p->problem.head_dim * (p->q8 ? 1 : 2));
    kvg_evict_range(p->block_table, p->problem.batch * p->block_table_stride * (int64_t)sizeof(int32_t));
    kvg_evict_range(a->out, a->out_bytes);
    kvg_evict_range(a->lse, a->lse_bytes);
    kvg_evict_range(a->x->workspace, a->x->workspace_bytes);
    kvg_meter_sweep(a->x->session->meter);
    kvg_wake_team(p->problem.threads);
}

static void before_cold(void *context)
{
    struct attention *a = context;
    if (poison_outputs(a))
        a->x->device_failed = 1;
    if (a->x->device)
        kvg_device_flush(a->x);
    else
        evict(a);
}

/* Is the output of the timed call another than the one that was verified? */
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
    /* Looking at a large output between hot calls would push K and V out of the cache. */
    a->check_each = cold || a->out_bytes * 8 <= (x->device ? x->device->cache_bytes : kvg_l2_bytes());
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
        x->row->time_prepare = kvg_time_apart(x, timed_prepare, a);
    return kvg_record(x, call, a) || kvg_time(x, &m) ? -1 : 0;
}

static int time_calls(struct attention *a)
{
    struct kvg_execution *x = a->x;
    kvg_stopwatch_turn(&x->watch, KVG_TIMING);
    int failed = take_times(a);
    kvg_forget(x);
    if (failed)
        return -1;
    /* The last output, whole: the rounding of a kernel that is not deterministic has no hash. */
    if (a->arithmetic.deterministic && differs(a)) {
        if (x->row->status == KVG_CRASHED)
            return -1;
        kvg_suspect(x, KVG_FAULT_RACE, "right before, other bits while it was timed");
        return kvg_verdict(x, KVG_INCORRECT, KVG_TIMED_OUTPUT_DIFFERS);
    }
    if (!a->arithmetic.deterministic && compare(a, KVG_RUN_TIMED))
        return -1;
    return kvg_check_memory(x);
}

/* ---- changed inputs ---- */

enum { RENEWED_ROWS = 8 };

/* Other values in the same buffers: the output must follow. Checked on few rows. */
static int run_renewed(struct attention *a, int again)
{
    struct kvg_execution *x = a->x;
    struct kvg_row other;
    struct kvg_error error;
    struct kvg_expectation *expectation = NULL;
    kvg_expectation_free(a->expectation); /* it refers to the inputs as they were */
    a->expectation = NULL;
    if (kvg_renew_inputs(x, x->c->seed + 1000003))
        return -1;
    if (kvg_expectation_make(kvg_verified(x), x->kernel, RENEWED_ROWS, &expectation, &error))
        return kvg_verdict_of_error(x, &error);
    int failed = run_once(a);
    if (!failed && kvg_row_init(&other))
        failed = kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a row");
    if (!failed) {
        failed = kvg_compare_outputs(x, &a->args, expectation, 0, &other);
        if (!failed && other.status == KVG_INCORRECT) {
            failed = kvg_verdict(x, KVG_INCORRECT, "after its inputs changed in place: %s", other.reason);
            kvg_explain_attention(x, &a->args, expectation, KVG_RUN_RENEWED);
        }
        kvg_row_free(&other);
    }
    if (!failed && again)
        failed = kvg_attend_far(x, &a->args, expectation);
    if (!failed)
        failed = kvg_attend_permuted(x, &a->args, expectation);
    kvg_expectation_free(expectation);
    return failed;
}

static void profile(struct attention *a)
{
    char name[KVG_CASE_STRING_MAX];
    kvg_case_format(a->x->c, name);
    kvg_nvtx_push(name);
    int failed = run_once(a);
    kvg_nvtx_pop();
    if (!failed)
        kvg_verdict(a->x, KVG_SKIPPED, "profiled: run once, neither verified nor timed");
}

static void verify_and_time(struct attention *a)
{
    struct kvg_execution *x = a->x;
    if (kvg_expect_all(x, &a->expectation))
        return;
    if (kvg_make_plain(x, &a->args, a->expectation))
        return;
    if (run_once(a) || compare(a, KVG_RUN_FIRST) || run_twice(a))
        return;
    if (x->timed && x->row->status == KVG_PASSED && time_calls(a))
        return;
    kvg_stopwatch_turn(&x->watch, KVG_VERIFYING);
    kvg_remark_whole(x);
    const int again = kvg_wants_again(x);
    if (again && kvg_attend_again(x, &a->args, a->expectation, a->arithmetic.deterministic))
        return;
    if (x->prepared.q8)
        kvg_quantize_q(x);
    if ((x->row->status == KVG_PASSED || x->row->status == KVG_MISTRUSTED) && kvg_wants_renewal(x))
        run_renewed(a, again);
}

void kvg_execute_attention(struct kvg_execution *x)
{
    struct attention a = {.x = x};
    if (allocate(&a))
        return;
    fill_args(&a);
    if (!x->kernel->arithmetic) {
        kvg_verdict(x, KVG_INCORRECT, "kernel %s declares no arithmetic: there is nothing to hold it to",
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
