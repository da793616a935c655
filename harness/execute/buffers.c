/* SPDX-License-Identifier: Apache-2.0
 *
 * buffers.c: operations on the memory that a kernel writes. A failure gives the case its verdict.
 */
#include "buffers.h"

#include <unistd.h>

#include "session_state.h"
#include "verdict.h"

void *kvg_buffer_alloc(struct kvg_execution *x, const char *name, int64_t bytes)
{
    struct kvg_error error;
    void *data = kvg_site_alloc(&x->site, name, bytes, &error);
    if (!data)
        kvg_verdict_of_site(x, &error);
    return data;
}

int kvg_buffer_fill(struct kvg_execution *x, void *data, int byte, int64_t bytes)
{
    struct kvg_error error;
    return kvg_site_fill(&x->site, data, byte, bytes, &error) ? kvg_verdict_of_site(x, &error) : 0;
}

int kvg_buffer_poison(struct kvg_execution *x, void *data, int64_t bytes)
{
    return kvg_buffer_fill(x, data, 0xff, bytes);
}

int kvg_buffer_hash(struct kvg_execution *x, const void *data, int64_t bytes, uint64_t *hash)
{
    struct kvg_error error;
    return kvg_site_hash(&x->site, data, bytes, hash, &error) ? kvg_verdict_of_site(x, &error) : 0;
}

void *kvg_buffer_fetch(struct kvg_execution *x, enum kvg_fetched slot, void *data, int64_t bytes)
{
    struct kvg_error error;
    void *here = kvg_site_fetch(&x->site, slot, data, bytes, &error);
    if (!here)
        kvg_verdict_of_site(x, &error);
    return here;
}

int kvg_buffer_send(struct kvg_execution *x, void *to, const void *from, int64_t bytes)
{
    struct kvg_error error;
    return kvg_site_send(&x->site, to, from, bytes, &error) ? kvg_verdict_of_site(x, &error) : 0;
}

static int check(struct kvg_execution *x,
                 int (*check_inputs)(const struct kvg_prepared *, struct kvg_error *))
{
    struct kvg_error error;
    if (kvg_site_check(&x->site, &error) == 0 && (x->site.device || check_inputs(&x->prepared, &error) == 0))
        return 0;
    return kvg_verdict_of_site(x, &error);
}

int kvg_buffers_check(struct kvg_execution *x)
{
    return check(x, kvg_prepared_check_shown);
}

int kvg_buffers_check_all(struct kvg_execution *x)
{
    return check(x, kvg_prepared_check);
}

int kvg_call_restore(struct kvg_execution *x, const char *what)
{
    struct kvg_fp_control found;
    char words[256];
    if (!x->foreign)
        return 0;
    if (getpid() != x->session->process)
        _exit(KVG_RETURNED_TWICE); /* the row is that of the other process */
    if (!kvg_fp_control_restore(&x->session->fp, x->prepared.problem.threads, &found))
        return 0;
    kvg_fp_control_describe(&x->session->fp, &found, words, sizeof words);
    return kvg_verdict(x, KVG_INCORRECT, "%s left %s changed; a kernel must restore it", what, words);
}

static int finish(struct kvg_execution *x, const char *what, int code)
{
    struct kvg_device *d = x->site.device;
    if (!d)
        return code ? kvg_verdict_of_call(x, what, code) : 0;
    d->error[0] = '\0';
    const int failed = d->ops->finish(d);
    if (d->lost)
        return kvg_verdict_of_device(x, what, NULL);
    if (code)
        kvg_verdict_of_call(x, what, code);
    if (code && failed)
        kvg_verdict_remark(x, "%s", d->error);
    else if (failed)
        kvg_verdict(x, KVG_INCORRECT, "%s: %s", what, d->error);
    return code || failed ? -1 : 0;
}

int kvg_call_finish(struct kvg_execution *x, const char *what, int code)
{
    const int failed = finish(x, what, code);
    return kvg_call_restore(x, what) || failed ? -1 : 0;
}
