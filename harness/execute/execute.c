/* SPDX-License-Identifier: Apache-2.0
 *
 * execute.c: executes one case and fills its row.
 *
 * Finds the kernel, prepares the inputs, and verifies and times the phase of the case (attention.c, store.c)
 * or predicts it (predict.c).
 */
#include "execute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "attention.h"
#include "buffers.h"
#include "device_calls.h"
#include "execution.h"
#include "harness/machine/clock.h"
#include "harness/measure/account.h"
#include "harness/measure/work.h"
#include "inputs.h"
#include "kernels/registry.h"
#include "options.h"
#include "outputs.h"
#include "predict.h"
#include "rates.h"
#include "roofs_beside.h"
#include "session_state.h"
#include "store.h"
#include "verdict.h"

/* The verdict when no kernel was found: the name is unknown, or it is a pattern or "best" and no kernel
 * supports the case. For "best" the reason comes from the simplest kernel, the one of lowest rank for the
 * default case of this phase and path. */
static int no_kernel(struct kvg_execution *x)
{
    const struct kvg_kernel *plainest = NULL, *kernel;
    struct kvg_problem problem, usual;
    struct kvg_case c;
    char why[512] = "", unused[512];
    if (kvg_case_on_gpu(x->c) && kvg_inputs_use_device(x))
        return -1;
    if (strpbrk(x->c->kernel, "*?["))
        return kvg_verdict(x, KVG_SKIPPED, "no kernel that matches '%s' takes this case", x->c->kernel);
    if (strcmp(x->c->kernel, "best") != 0)
        return kvg_verdict(x, KVG_SKIPPED, "there is no kernel '%s'%s", x->c->kernel,
                           kvg_registry_has_cuda() || strncmp(x->c->kernel, "cuda/", 5)
                               ? ""
                               : ": this kvgauge was built without CUDA");
    kvg_case_default(&c);
    c.phase = x->c->phase;
    c.path = x->c->path;
    kvg_case_problem(&c, &usual);
    usual.threads = 1;
    kvg_case_problem(x->c, &problem);
    for (int64_t i = 0; (kernel = kvg_registry_get(i)) != NULL; i++)
        if (kvg_kernel_has_entry(kernel, c.phase) &&
            (!plainest || kvg_kernel_rank(kernel, &usual) < kvg_kernel_rank(plainest, &usual)) &&
            kvg_kernel_takes(kernel, &usual, unused, sizeof unused))
            plainest = kernel;
    if (!plainest || kvg_kernel_takes(plainest, &problem, why, sizeof why) || !why[0])
        return kvg_verdict(x, KVG_SKIPPED, "no kernel takes this case");
    return kvg_verdict(x, KVG_SKIPPED, "no kernel takes this case; %s: %s", plainest->name, why);
}

/* Finds the kernel of the case. -1 with the verdict if there is nothing to run. */
static int find_kernel(struct kvg_execution *x)
{
    char why[512] = "";
    struct kvg_problem problem;
    if (kvg_case_without_meaning(x->c, why, sizeof why))
        return kvg_verdict(x, KVG_SKIPPED, "%s", why);
    if (kvg_case_predicts(x->c)) {
        x->kernel = &kvg_prediction;
        return 0;
    }
    x->kernel = kvg_registry_find(x->c->kernel);
    if (!x->kernel)
        return no_kernel(x);
    x->foreign = !kvg_registry_is_builtin(x->kernel);
    if (x->kernel->device == KVG_DEVICE_CUDA && kvg_inputs_use_device(x))
        return -1;
    kvg_case_problem(x->c, &problem);
    int is_store = x->c->phase == KVG_PHASE_STORE;
    if (is_store ? !x->kernel->store : !x->kernel->attention)
        return kvg_verdict(x, KVG_SKIPPED, "kernel %s has no %s", x->kernel->name,
                           is_store ? "store" : "attention");
    if (!kvg_kernel_takes(x->kernel, &problem, why, sizeof why))
        return kvg_verdict(x, KVG_SKIPPED, "%s", why[0] ? why : "the kernel does not support the case");
    return 0;
}

static void scale_range(const float *scale, int64_t count, double *low, double *high)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (int64_t i = 0; i < count; i++) {
        *low = fmin(*low, (double)scale[i]);
        *high = fmax(*high, (double)scale[i]);
    }
}

static void describe_scales(struct kvg_execution *x)
{
    const struct kvg_prepared *p = kvg_inputs_verified(x);
    struct kvg_row *row = x->row;
    int64_t count = p->scale_stride ? p->problem.kv_heads : 1;
    if (p->q_scale)
        scale_range(p->q_scale, count, &row->q_scale_min, &row->q_scale_max);
    if (p->k_scale)
        scale_range(p->k_scale, count, &row->k_scale_min, &row->k_scale_max);
    if (p->v_scale)
        scale_range(p->v_scale, count, &row->v_scale_min, &row->v_scale_max);
    row->k_saturated = p->k_saturated;
    row->v_saturated = p->v_saturated;
    row->k_flushed = p->k_flushed;
    row->v_flushed = p->v_flushed;
}

static int64_t peak_resident_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? -1 : (int64_t)usage.ru_maxrss * 1024;
}

#define WORKSPACE_ALIGNMENT 16 /* bytes; the ABI promises it */

static int make_workspace(struct kvg_execution *x)
{
    x->site.workspace_bytes =
        x->kernel->workspace_bytes ? x->kernel->workspace_bytes(&x->prepared.problem) : 0;
    if (x->site.workspace_bytes < 0)
        return kvg_verdict(x, KVG_INCORRECT, "workspace_bytes returned %lld",
                           (long long)x->site.workspace_bytes);
    x->site.guards = kvg_guard_new();
    if (!x->site.guards)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for the outputs");
    /* If views are not dense, the workspace too is aligned to no more than kernel.h promises. */
    const int64_t offset = x->prepared.views.dense ? 0 : WORKSPACE_ALIGNMENT;
    char *buffer = kvg_buffer_alloc(x, "workspace", x->site.workspace_bytes + offset);
    if (!buffer || kvg_buffer_poison(x, buffer, offset))
        return -1;
    x->site.workspace = buffer + offset;
    x->site.workspace_before = offset;
    return 0;
}

static void take_roofs(void *context, int again)
{
    kvg_roofs_take(context, again);
}

static void fill_rates(struct kvg_execution *x)
{
    const struct kvg_rating rating = {.c = x->c,
                                      .row = x->row,
                                      .on_device = x->site.device != NULL,
                                      .cache_bytes = kvg_last_cache_bytes(x),
                                      .take_roofs = x->options->measure_roofs ? take_roofs : NULL,
                                      .context = x};
    kvg_rates_fill(&rating);
}

static void execute_phase(struct kvg_execution *x)
{
    if (kvg_case_predicts(x->c))
        kvg_execute_prediction(x);
    else if (x->c->phase == KVG_PHASE_STORE)
        kvg_execute_store(x);
    else
        kvg_execute_attention(x);
}

static void execute_prepared(struct kvg_execution *x)
{
    const struct kvg_site *site = &x->site;
    describe_scales(x);
    kvg_work_count(&x->prepared, x->row);
    if (make_workspace(x))
        return;
    kvg_account_fill_row(&x->prepared, site->workspace_bytes, x->row);
    kvg_stopwatch_turn(&x->watch, KVG_VERIFYING);
    execute_phase(x);
    if (!site->device && !x->session->tainted)
        kvg_buffers_check_all(x);
    if (site->device)
        x->row->device_bytes = kvg_device_memory_taken(site->memory);
    if (site->device && site->device->lost && !x->session->tainted)
        kvg_verdict_of_device(x, "timing prepare or quantize_q, or measuring roofs", NULL);
    if (x->timed)
        kvg_stopwatch_turn(&x->watch, KVG_TIMING);
    fill_rates(x);
}

static void release(struct kvg_execution *x)
{
    kvg_site_free(&x->site);
    kvg_outputs_free(x->outputs);
    kvg_prepared_free(&x->part);
    kvg_prepared_free(&x->prepared);
}

enum kvg_ended kvg_execute_in(struct kvg_session *session, const struct kvg_case *c,
                              const struct kvg_run_options *options, struct kvg_row *row, char **report)
{
    struct kvg_device_calls calls = {0};
    struct kvg_outputs outputs = {0};
    struct kvg_execution x = {.session = session,
                              .c = c,
                              .options = options,
                              .row = row,
                              .report = report,
                              .calls = &calls,
                              .outputs = &outputs};
    char started[KVG_UTC_MAX];
    if (report)
        *report = NULL;
    kvg_utc_now(started);
    kvg_row_set_string(&row->started_utc, started);
    row->attempt = 1;
    row->status = KVG_PASSED;
    kvg_stopwatch_start(&x.watch, KVG_PREPARING);
    x.timed = c->cache_state != KVG_STATE_NONE && !options->verify_only && !options->profile;
    if (!kvg_case_on_gpu(c))
        kvg_row_set_string(&row->device, "cpu");
    if (kvg_case_to_row(c, row))
        kvg_verdict(&x, KVG_OUT_OF_MEMORY, "no memory for the row");
    else if (find_kernel(&x) == 0) {
        if (kvg_inputs_prepare(&x) == 0)
            execute_prepared(&x);
        kvg_stopwatch_tell(&x.watch, row);
    }
    release(&x);
    row->peak_resident_bytes = peak_resident_bytes();
    return x.profiled ? KVG_ENDED_PROFILED : KVG_ENDED_ROW;
}
