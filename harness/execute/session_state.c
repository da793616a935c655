/* SPDX-License-Identifier: Apache-2.0
 *
 * session_state.c: the state that a process keeps from case to case.
 */
#include "session_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct kvg_device *open_cuda(void *context, char *why, size_t size)
{
    (void)context;
    if (kvg_cuda_open)
        return kvg_cuda_open(0, why, size);
    snprintf(why, size, "this kvgauge was built without CUDA");
    return NULL;
}

const struct kvg_device_source kvg_device_source_cuda = {.open = open_cuda,
                                                         .plain = "cuda/naive_f32",
                                                         .mirror_bytes = INT64_C(1) << 30,
                                                         .part_bytes = INT64_C(1) << 29};

struct kvg_session *kvg_session_new_on(const struct kvg_device_source *source)
{
    struct kvg_session *session = calloc(1, sizeof *session);
    if (!session)
        return NULL;
    session->device.source = *source;
    session->process = getpid();
    kvg_fp_control_get(&session->fp);
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
    if (session->device.opened)
        session->device.opened->ops->close(session->device.opened);
    kvg_meter_free(session->meter);
    kvg_input_cache_free(session->inputs);
    free(session);
}

int kvg_session_tainted(const struct kvg_session *session)
{
    return session->tainted;
}

int kvg_session_add_roofs(struct kvg_session *session, int64_t threads, int measure, struct kvg_facts *facts)
{
    static const struct kvg_roofs none = {.read = NAN, .copy = NAN, .cache = NAN, .flops = NAN};
    const struct kvg_roofs *roofs = measure ? kvg_meter_roofs(session->meter, threads) : &none;
    return kvg_facts_set_number(facts, "read_roof", roofs->read) ||
                   kvg_facts_set_number(facts, "copy_roof", roofs->copy) ||
                   kvg_facts_set_number(facts, "cache_roof", roofs->cache) ||
                   kvg_facts_set_number(facts, "flop_roof", roofs->flops) ||
                   kvg_facts_set_text(facts, "roof_isa", kvg_roof_isa())
               ? -1
               : 0;
}

void kvg_session_announce(struct kvg_session *session, void (*tell)(void *context, int run), void *context)
{
    session->tell = tell;
    session->tell_context = context;
}

struct kvg_follower *kvg_session_follower(struct kvg_execution *x)
{
    for (int i = 0; i < KVG_FOLLOWERS; i++) {
        struct kvg_follower *f = &x->session->history.followers[i];
        if (!f->kernel)
            *f = (struct kvg_follower){
                .kernel = x->kernel, .phase = x->c->phase, .path = x->c->path, .dtype = x->c->kv_cache_dtype};
        if (f->kernel == x->kernel && f->phase == x->c->phase && f->path == x->c->path &&
            f->dtype == x->c->kv_cache_dtype)
            return f;
    }
    return NULL;
}

int kvg_session_wants_renewal(struct kvg_execution *x)
{
    struct kvg_follower *f = x->timed ? NULL : kvg_session_follower(x);
    return !f || f->renewals++ < KVG_FOLLOWED_ENOUGH;
}

int kvg_session_wants_again(struct kvg_execution *x)
{
    struct kvg_follower *f = kvg_session_follower(x);
    if (f && x->prepared.frame) /* does not count: some further runs are left out for a frame */
        return f->again < KVG_FOLLOWED_ENOUGH;
    return !f || f->again++ < KVG_FOLLOWED_ENOUGH;
}

void kvg_session_tell(const struct kvg_execution *x, enum kvg_run_kind run)
{
    if (x->session->tell)
        x->session->tell(x->session->tell_context, (int)run);
}
