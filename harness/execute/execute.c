/* SPDX-License-Identifier: Apache-2.0
 *
 * execute.c: one case, from its name to its row: has it a meaning, is there a kernel, does the kernel take
 * it, prepare, and then what its phase asks for (execute_attention.c, execute_store.c), or the
 * prediction of it (execute_predict.c).
 */
#include "execute.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "kernels/registry.h"
#include "harness/measure/account.h"

int kvg_verdict(struct kvg_execution *x, enum kvg_status status, const char *format, ...)
{
    char reason[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    x->row->status = status;
    kvg_row_set_string(&x->row->reason, reason);
    return -1;
}

void kvg_remark(struct kvg_execution *x, const char *format, ...)
{
    char remark[512], reason[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(remark, sizeof remark, format, args);
    va_end(args);
    snprintf(reason, sizeof reason, "%s%s%s", x->row->reason, x->row->reason[0] ? "; " : "", remark);
    kvg_row_set_string(&x->row->reason, reason);
}

int kvg_verdict_of_error(struct kvg_execution *x, const struct kvg_error *error)
{
    enum kvg_status status = error->exit_code == KVG_EXIT_USAGE       ? KVG_INVALID
                             : error->exit_code == KVG_EXIT_INCORRECT ? KVG_INCORRECT
                                                                      : KVG_OUT_OF_MEMORY;
    return kvg_verdict(x, status, "%s", error->text);
}

int kvg_verdict_of_call(struct kvg_execution *x, const char *what, int code)
{
    static const char *const names[] = {"KVG_OK", "KVG_EINVAL", "KVG_EUNSUPPORTED", "KVG_ENOMEM",
                                        "KVG_EDEVICE"};
    const char *name = code <= 0 && code >= -4 ? names[-code] : "no KVG_E* code";
    kvg_suspect(x, KVG_FAULT_REFUSED, "supports() takes the case, %s() does not", what);
    if (code == KVG_ENOMEM)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "%s returned %s (%d)", what, name, code);
    return kvg_verdict(x, KVG_INCORRECT, "%s returned %s (%d), although the kernel says it supports the case",
                       what, name, code);
}

struct kvg_follower *kvg_follower_of(struct kvg_execution *x)
{
    for (int i = 0; i < KVG_FOLLOWERS; i++) {
        struct kvg_follower *f = &x->session->followers[i];
        if (!f->kernel)
            *f = (struct kvg_follower){
                .kernel = x->kernel, .phase = x->c->phase, .path = x->c->path, .dtype = x->c->kv_cache_dtype};
        if (f->kernel == x->kernel && f->phase == x->c->phase && f->path == x->c->path &&
            f->dtype == x->c->kv_cache_dtype)
            return f;
    }
    return NULL;
}

int kvg_wants_renewal(struct kvg_execution *x)
{
    struct kvg_follower *f = x->timed ? NULL : kvg_follower_of(x);
    return !f || f->times++ < KVG_FOLLOWED_ENOUGH;
}

int kvg_wants_again(struct kvg_execution *x)
{
    struct kvg_follower *f = kvg_follower_of(x);
    if (f && x->prepared.frame) /* which is not asked for everything: others must still be */
        return f->again < KVG_FOLLOWED_ENOUGH;
    return !f || f->again++ < KVG_FOLLOWED_ENOUGH;
}

struct kvg_session *kvg_session_new_on(const struct kvg_device_source *source)
{
    struct kvg_session *session = calloc(1, sizeof *session);
    if (!session)
        return NULL;
    session->source = *source;
    session->meter = kvg_meter_new();
    session->inputs = kvg_input_cache_new(kvg_input_cache_usual_bytes());
    if (session->meter && session->inputs)
        return session;
    kvg_session_free(session);
    return NULL;
}

struct kvg_session *kvg_session_new(void)
{
    return kvg_session_new_on(&kvg_device_source_cuda);
}

void kvg_session_free(struct kvg_session *session)
{
    if (!session)
        return;
    if (session->device)
        session->device->ops->close(session->device);
    kvg_meter_free(session->meter);
    kvg_input_cache_free(session->inputs);
    free(session);
}

int kvg_session_tainted(const struct kvg_session *session)
{
    return session->tainted;
}

/* No kernel has the case's name: an unknown one, or "best" and none takes the case. Then the plainest kernel,
 * the one of lowest rank for the usual case of this phase and path, says why. */
static int no_kernel(struct kvg_execution *x)
{
    const struct kvg_kernel *plainest = NULL, *kernel;
    struct kvg_problem problem, usual;
    struct kvg_case c;
    char why[512] = "", unused[512];
    if (kvg_case_on_gpu(x->c) && kvg_use_device(x))
        return -1;
    if (strpbrk(x->c->kernel, "*?["))
        return kvg_verdict(x, KVG_SKIPPED, "none of the kernels '%s' takes this case", x->c->kernel);
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
            kernel->supports(&usual, unused, sizeof unused))
            plainest = kernel;
    if (!plainest || plainest->supports(&problem, why, sizeof why) || !why[0])
        return kvg_verdict(x, KVG_SKIPPED, "no kernel takes this case");
    return kvg_verdict(x, KVG_SKIPPED, "no kernel takes this case; %s: %s", plainest->name, why);
}

/* Is there anything to run? -1 with the verdict if not. */
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
    if (x->kernel->device == KVG_DEVICE_CUDA && kvg_use_device(x))
        return -1;
    kvg_case_problem(x->c, &problem);
    int is_store = x->c->phase == KVG_PHASE_STORE;
    if (is_store ? !x->kernel->store : !x->kernel->attention)
        return kvg_verdict(x, KVG_SKIPPED, "kernel %s has no %s", x->kernel->name,
                           is_store ? "store" : "attention");
    if (!x->kernel->supports(&problem, why, sizeof why))
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
    const struct kvg_prepared *p = kvg_verified(x);
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

static int make_workspace(struct kvg_execution *x)
{
    x->workspace_bytes = x->kernel->workspace_bytes ? x->kernel->workspace_bytes(&x->prepared.problem) : 0;
    if (x->workspace_bytes < 0)
        return kvg_verdict(x, KVG_INCORRECT, "workspace_bytes returned %lld", (long long)x->workspace_bytes);
    x->guards = kvg_guard_create();
    if (!x->guards)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for the outputs");
    x->workspace = kvg_place(x, "workspace", x->workspace_bytes);
    return x->workspace ? 0 : -1;
}

static void execute_prepared(struct kvg_execution *x)
{
    describe_scales(x);
    kvg_count_work(x);
    if (make_workspace(x))
        return;
    kvg_account(&x->prepared, x->workspace_bytes, x->row);
    kvg_stopwatch_turn(&x->watch, KVG_VERIFYING);
    if (kvg_case_predicts(x->c))
        kvg_execute_prediction(x);
    else if (x->c->phase == KVG_PHASE_STORE)
        kvg_execute_store(x);
    else
        kvg_execute_attention(x);
    if (!x->device && !x->session->tainted)
        kvg_check_all_memory(x);
    if (x->device)
        x->row->device_bytes = kvg_device_taken(x->memory);
    if (x->device && x->device->lost && !x->session->tainted)
        kvg_verdict_of_device(x, "something timed apart", NULL);
    if (x->timed)
        kvg_stopwatch_turn(&x->watch, KVG_TIMING);
    kvg_rate(x);
}

static void release(struct kvg_execution *x)
{
    kvg_guard_free(x->guards);
    kvg_device_memory_free(x->memory);
    kvg_whole_free(x);
    kvg_prepared_free(&x->part);
    kvg_prepared_free(&x->prepared);
    for (int i = 0; i < KVG_FETCHED_COUNT; i++)
        free(x->fetched[i]);
}

void kvg_execute_in(struct kvg_session *session, const struct kvg_case *c,
                    const struct kvg_run_options *options, struct kvg_row *row, char **report)
{
    struct kvg_execution x = {.session = session, .c = c, .options = options, .row = row, .report = report};
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
        if (kvg_prepare_inputs(&x) == 0)
            execute_prepared(&x);
        kvg_stopwatch_tell(&x.watch, row);
    }
    release(&x);
    row->peak_resident_bytes = peak_resident_bytes();
}

void kvg_execute(const struct kvg_case *c, const struct kvg_run_options *options, struct kvg_row *row)
{
    struct kvg_session *session = kvg_session_new();
    if (session) {
        kvg_execute_in(session, c, options, row, NULL);
        kvg_session_free(session);
        return;
    }
    kvg_case_to_row(c, row);
    row->status = KVG_OUT_OF_MEMORY;
    kvg_row_set_string(&row->reason, "no memory for the buffers of the measurement");
}
