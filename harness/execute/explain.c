/* SPDX-License-Identifier: Apache-2.0
 *
 * explain.c: evidence and suspected kind of fault for a wrong output. It runs after the verdict and does not
 * change it.
 */
#include "explain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffers.h"
#include "call.h"
#include "harness/diagnose/dump.h"
#include "harness/machine/clock.h"
#include "inputs.h"
#include "options.h"
#include "outputs.h"
#include "session_state.h"
#include "verdict.h"

enum { CALLS_AGAIN = 3, MOST_CALLS = 60 };
#define SECONDS_AGAIN 2.0 /* no further call begins after this time */

static void put_evidence(struct kvg_execution *x, const struct kvg_evidence *evidence)
{
    char *text = kvg_evidence_to_text(evidence);
    kvg_row_set_string(&x->row->evidence, text);
    free(text);
}

/* ---------------------------------------------------------------- earlier cases of the process */

/* Bytes of the output that was compared last. */
static int64_t compared_bytes(const struct kvg_execution *x)
{
    return kvg_out_bytes(kvg_inputs_verified(x));
}

void kvg_explain_remember(struct kvg_execution *x)
{
    struct kvg_session *s = x->session;
    kvg_past_add(&s->history.past, &x->prepared);
    s->history.right_outputs[s->history.right_count++ % KVG_RIGHT_OUTPUTS] =
        kvg_hash_bytes(x->outputs->compared_out, compared_bytes(x));
}

static int was_right_before(const struct kvg_execution *x, uint64_t hash)
{
    const struct kvg_session *s = x->session;
    for (int64_t i = 0; i < s->history.right_count && i < KVG_RIGHT_OUTPUTS; i++)
        if (s->history.right_outputs[i] == hash)
            return 1;
    return 0;
}

/* ---------------------------------------------------------------- the kernel once more */

/* State that a call for the diagnosis must not change. */
struct saved {
    int64_t status;
    char *reason, *suspected, *suspicion;
    int tainted;
};

static int save(const struct kvg_execution *x, struct saved *s)
{
    *s = (struct saved){x->row->status, strdup(x->row->reason), strdup(x->row->suspected),
                        strdup(x->row->suspicion), x->session->tainted};
    return s->reason && s->suspected && s->suspicion ? 0 : -1;
}

static void restore(struct kvg_execution *x, struct saved *s)
{
    x->row->status = s->status;
    if (s->reason && s->suspected && s->suspicion) {
        kvg_row_set_string(&x->row->reason, s->reason);
        kvg_row_set_string(&x->row->suspected, s->suspected);
        kvg_row_set_string(&x->row->suspicion, s->suspicion);
    }
    free(s->reason);
    free(s->suspected);
    free(s->suspicion);
}

/* Calls the kernel again and finds out whether it gives other bits on the same inputs, and whether it is
 * right with a workspace of zeros. Slow kernels are called less often. */
static void call_again(struct kvg_execution *x, const struct kvg_attention_args *args, struct kvg_failure *f)
{
    const struct kvg_prepared *p = &x->prepared; /* the whole case, also where the host verifies a part */
    const int64_t bytes = kvg_out_buffer_bytes(p);
    const void *out = kvg_out_buffer(p, args);
    const double begin = kvg_now();
    uint64_t before, after;
    struct saved saved;
    struct kvg_row other;
    if (save(x, &saved) == 0 && kvg_buffer_hash(x, out, bytes, &before) == 0) {
        for (int i = 0; i < CALLS_AGAIN && !f->unstable && kvg_now() - begin < SECONDS_AGAIN; i++) {
            if (kvg_call_attention(x, args) || kvg_buffer_hash(x, out, bytes, &after))
                break;
            f->unstable = after != before;
        }
        x->site.clear_workspace = 1;
        if (!f->unstable && x->site.workspace_bytes > 0 && kvg_now() - begin < SECONDS_AGAIN &&
            kvg_call_attention(x, args) == 0 && kvg_row_init(&other) == 0) {
            f->workspace =
                kvg_outputs_compare(x, args, f->expectation, 0, &other) == 0 && other.status == KVG_PASSED;
            kvg_row_free(&other);
        }
        x->site.clear_workspace = 0;
    }
    restore(x, &saved);
}

int kvg_explain_unstable(struct kvg_execution *x, const struct kvg_attention_args *args)
{
    const int64_t bytes = kvg_out_buffer_bytes(&x->prepared);
    const void *out = kvg_out_buffer(&x->prepared, args);
    const double begin = kvg_now();
    uint64_t before = 0, after = 0;
    int unstable = 0;
    struct saved saved;
    if (save(x, &saved) == 0)
        for (int i = 0; i < MOST_CALLS && !unstable && kvg_now() - begin < 1.0; i++) {
            if (kvg_call_attention(x, args) || kvg_buffer_hash(x, out, bytes, &after))
                break;
            unstable = i > 0 && after != before;
            before = after;
        }
    restore(x, &saved);
    return unstable;
}

/* Fills the gaps of views and every slot that no token owns with zeros (zero = 1), or with NaN as before
 * (zero = 0). -1: out of memory, or the kernel has changed its inputs, which must stay visible. */
static int fill_unowned(struct kvg_prepared *p, int zero)
{
    struct kvg_error unused;
    if (zero && kvg_prepared_check_shown(p, &unused))
        return -1;
    const struct kvg_pages pages[2] = {kvg_prepared_pages(p, 0, p->shown.k_cache),
                                       kvg_prepared_pages(p, 1, p->shown.v_cache)};
    const int64_t size = p->problem.block_size, slots = p->num_blocks * size, dim = p->problem.head_dim;
    const int64_t bytes = kvg_dtype_bytes(p->problem.kv_dtype);
    char *owned = calloc((size_t)slots + 1, 1);
    if (!owned)
        return -1;
    kvg_shown_fill_gaps(p, zero);
    for (int64_t i = 0; i < p->total_kv; i++)
        if (p->slot_mapping[i] >= 0)
            owned[p->slot_mapping[i]] = 1;
    for (int64_t slot = 0; slot < slots; slot++)
        for (int64_t t = 0; t < 2 && !owned[slot]; t++)
            for (int64_t h = 0; h < p->problem.kv_heads; h++) {
                char *at = (char *)pages[t].data +
                           bytes * (slot / size * pages[t].stride_block + slot % size * pages[t].stride_slot +
                                    h * pages[t].stride_head);
                if (zero)
                    memset(at, 0, (size_t)(dim * bytes));
                else
                    kvg_poison_cache(p->problem.kv_dtype, at, dim);
            }
    free(owned);
    return 0;
}

static int has_nonfinite(const uint16_t *out, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if ((out[i] & 0x7f80u) == 0x7f80u)
            return 1;
    return 0;
}

/* An output of NaN shows that something is wrong, but not what. So the kernel runs once more with zeros in the
 * slots that no token owns and in the gaps of views. Its output then shows the fault. The zeros stay until the
 * end of the diagnosis. */
static void call_on_zeros(struct kvg_execution *x, const struct kvg_attention_args *args,
                          struct kvg_failure *f, uint16_t *out, float *lse)
{
    const struct kvg_prepared *p = &x->prepared;
    const int64_t heads = p->problem.q_heads, dim = p->problem.head_dim;
    struct kvg_row other;
    struct kvg_error error;
    kvg_poison_outputs(x, args);
    kvg_buffer_poison(x, x->site.workspace, x->site.workspace_bytes);
    if ((x->kernel->prepare && x->kernel->prepare(args)) || x->kernel->attention(args))
        return;
    kvg_rows_pick(&p->views.out, p->total_q, heads, dim, sizeof *out, kvg_out_buffer(p, args), out);
    if (args->lse)
        kvg_rows_pick(&p->views.lse, p->total_q, heads, 1, sizeof *lse, kvg_lse_buffer(p, args), lse);
    if (kvg_row_init(&other))
        return;
    f->on_zeros = 1;
    f->tail =
        kvg_compare_attention(f->expectation, out, f->lse, &other, &error) == 0 && other.status == KVG_PASSED;
    kvg_row_free(&other);
}

static void diagnose(struct kvg_execution *x, const struct kvg_attention_args *args, struct kvg_failure *f,
                     uint16_t *out, float *lse)
{
    struct kvg_prepared *p = &x->prepared;
    const int64_t count = p->total_q * p->problem.q_heads * p->problem.head_dim;
    struct kvg_diagnosis diagnosis;
    const int callable = f->run != KVG_RUN_FAR && f->run != KVG_RUN_REPEAT;
    const int on_cpu = callable && x->kernel->device == KVG_DEVICE_CPU;
    if (callable)
        call_again(x, args, f);
    const int zeros =
        on_cpu && !f->unstable && !f->workspace && has_nonfinite(out, count) && fill_unowned(p, 1) == 0;
    if (zeros)
        call_on_zeros(x, args, f, out, lse);
    kvg_diagnose_attention(f, &diagnosis);
    if (zeros && fill_unowned(p, 0))
        x->session->tainted = 1; /* the cache could not be restored */
    kvg_verdict_suspect(x, diagnosis.suspected, "%s", diagnosis.why);
}

/* ---------------------------------------------------------------- dumps */

/* Puts the name of the row's dump into the evidence. 0 if there will be no dump. */
static int name_dump(const struct kvg_execution *x, struct kvg_evidence *evidence)
{
    struct kvg_error error;
    if (!x->options->dump)
        return 0;
    if (kvg_dump_name(x->options->dump, x->row->case_id, evidence->dump, sizeof evidence->dump, &error) == 0)
        return 1;
    snprintf(evidence->dump, sizeof evidence->dump, "none: %.200s", error.text);
    return 0;
}

static void dump_attention(const struct kvg_execution *x, const struct kvg_failure *f,
                           struct kvg_evidence *evidence)
{
    struct kvg_error error;
    if (name_dump(x, evidence) && kvg_dump_attention(evidence->dump, f, x->row->reason, &error))
        snprintf(evidence->dump, sizeof evidence->dump, "none: %.200s", error.text);
}

static void dump_store(const struct kvg_execution *x, const void *k_cache, const void *v_cache,
                       enum kvg_run_kind run, struct kvg_evidence *evidence)
{
    struct kvg_error error;
    if (name_dump(x, evidence) && kvg_dump_store(evidence->dump, &x->prepared, x->kernel->name, k_cache,
                                                 v_cache, run, x->row->reason, &error))
        snprintf(evidence->dump, sizeof evidence->dump, "none: %.200s", error.text);
}

void kvg_explain_attention(struct kvg_execution *x, const struct kvg_attention_args *args,
                           const struct kvg_expectation *e, enum kvg_run_kind run)
{
    const struct kvg_prepared *p = kvg_inputs_verified(x);
    const int64_t rows = p->total_q * p->problem.q_heads, out_bytes = compared_bytes(x);
    const uint16_t *out = x->outputs->compared_out;
    const float *lse = x->outputs->compared_lse;
    if (x->outputs->whole_failed)
        return; /* the rows that the reference covers are right */
    uint16_t *out_copy = malloc((size_t)out_bytes + 1);
    float *lse_copy = malloc((size_t)rows * sizeof *lse_copy + 1);
    struct kvg_evidence *evidence = malloc(sizeof *evidence);
    if (out_copy && lse_copy && evidence) {
        memcpy(out_copy, out, (size_t)out_bytes); /* the calls below overwrite the outputs */
        if (lse)
            memcpy(lse_copy, lse, (size_t)rows * sizeof *lse_copy);
        struct kvg_failure f = {.expectation = e,
                                .kernel = x->kernel,
                                .out = out_copy,
                                .lse = lse ? lse_copy : NULL,
                                .run = run,
                                .past = &x->session->history.past,
                                .old_output = was_right_before(x, kvg_hash_bytes(out, out_bytes))};
        kvg_evidence_attention(&f, evidence);
        dump_attention(x, &f, evidence);
        put_evidence(x, evidence);
        diagnose(x, args, &f, out_copy, lse_copy);
        kvg_past_add(&x->session->history.past, &x->prepared);
    }
    free(out_copy);
    free(lse_copy);
    free(evidence);
}

/* ---------------------------------------------------------------- further runs */

/* The verdict of a further run, whose comparison failed or filled `other`. */
static int judge(struct kvg_execution *x, int failed, const struct kvg_row *other, const char *when,
                 const struct kvg_suspicion *known)
{
    if (failed || other->status != KVG_INCORRECT)
        return failed;
    if (known)
        kvg_verdict_suspect(x, known->fault, "%s", known->why);
    return kvg_verdict(x, KVG_INCORRECT, "%s: %s", when, other->reason);
}

int kvg_output_hold(struct kvg_execution *x, const struct kvg_attention_args *args,
                    const struct kvg_expectation *e, enum kvg_run_kind run, const char *when,
                    const struct kvg_suspicion *known)
{
    struct kvg_row other;
    if (kvg_row_init(&other))
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a row");
    /* The plain kernel ran on the first values, not on renewed ones. */
    const int whole = run != KVG_RUN_RENEWED;
    const int failed = kvg_outputs_compare(x, args, e, whole, &other);
    const int judged = judge(x, failed, &other, when, known);
    if (!failed && judged && !known)
        kvg_explain_attention(x, args, e, run);
    else if (!failed && !judged)
        kvg_explain_remember(x);
    kvg_row_free(&other);
    return judged;
}

int kvg_host_output_hold(struct kvg_execution *x, const uint16_t *out, const float *lse,
                         const struct kvg_expectation *e, const char *when, const struct kvg_suspicion *known)
{
    struct kvg_row other;
    struct kvg_error error;
    if (kvg_row_init(&other))
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a row");
    const int failed =
        kvg_compare_attention(e, out, lse, &other, &error) ? kvg_verdict_of_error(x, &error) : 0;
    const int judged = judge(x, failed, &other, when, known);
    kvg_row_free(&other);
    return judged;
}

int kvg_host_output_is_right(const uint16_t *out, const float *lse, const struct kvg_expectation *e)
{
    struct kvg_row other;
    struct kvg_error error;
    if (kvg_row_init(&other))
        return 0;
    const int right =
        kvg_compare_attention(e, out, lse, &other, &error) == 0 && other.status != KVG_INCORRECT;
    kvg_row_free(&other);
    return right;
}

/* ---------------------------------------------------------------- store */

void kvg_explain_store(struct kvg_execution *x, const void *k_cache, const void *v_cache,
                       enum kvg_run_kind run)
{
    struct kvg_evidence *evidence = malloc(sizeof *evidence);
    struct kvg_diagnosis diagnosis;
    if (evidence) {
        kvg_evidence_store(&x->prepared, k_cache, v_cache, run, evidence);
        dump_store(x, k_cache, v_cache, run, evidence);
        put_evidence(x, evidence);
    }
    free(evidence);
    kvg_diagnose_store(&x->prepared, k_cache, v_cache, run, &diagnosis);
    kvg_verdict_suspect(x, diagnosis.suspected, "%s", diagnosis.why);
}

void kvg_explain_quantize_q(struct kvg_execution *x, const uint8_t *q8)
{
    struct kvg_diagnosis diagnosis;
    kvg_diagnose_quantize_q(&x->prepared, q8, &diagnosis);
    kvg_verdict_suspect(x, diagnosis.suspected, "%s", diagnosis.why);
}
