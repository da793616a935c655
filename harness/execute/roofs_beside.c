/* SPDX-License-Identifier: Apache-2.0
 *
 * roofs_beside.c: measures the roofs next to a timed case, on the CPU or on a device.
 */
#include "roofs_beside.h"

#include <math.h>
#include <stdlib.h>

#include "device_calls.h"
#include "harness/measure/roofs.h"
#include "harness/measure/work.h"
#include "session_state.h"
#include "verdict.h"

/* The first key of each sequence that at least one query sees, and no query of an earlier sequence. */
static void first_keys(const struct kvg_prepared *p, int32_t *first_key)
{
    for (int64_t b = 0; b < p->problem.batch; b++) {
        int64_t first, last;
        kvg_unread_range(p, b, &first, &last);
        first_key[b] = (int32_t)first;
    }
}

static double gather_roof(struct kvg_execution *x)
{
    const struct kvg_prepared *p = &x->prepared;
    int32_t *first_key = malloc((size_t)p->problem.batch * sizeof *first_key);
    if (!first_key)
        return NAN;
    first_keys(p, first_key);
    const struct kvg_device_gather gather = {
        .args = &x->calls->gathered, .seq_lens = p->seq_lens, .first_key = first_key};
    const double roof = x->site.device->ops->gather_roof(x->site.device, &gather);
    free(first_key);
    return roof;
}

static void session_roofs(struct kvg_execution *x)
{
    struct kvg_session *s = x->session;
    if (s->device.roofs_taken)
        return;
    s->device.roofs_taken = 1;
    if (x->site.device->ops->roofs(x->site.device, &s->device.roofs))
        s->device.roofs = kvg_no_device_roofs;
    if (s->device.roofs.why[0])
        kvg_verdict_remark(x, "roofs: %s", s->device.roofs.why);
}

void kvg_roofs_take_gather(struct kvg_execution *x)
{
    if (x->calls->gathered.problem && !x->site.device->lost)
        x->row->gather_roof = fmax(x->row->gather_roof, gather_roof(x));
}

/* The higher of two measurements counts. If one of them is NaN, fmax returns the other. */
static void take_on_device(struct kvg_execution *x, int again)
{
    struct kvg_row *row = x->row;
    struct kvg_session *s = x->session;
    if (x->site.device->lost)
        return;
    session_roofs(x);
    if (again)
        s->device.linear_taken = 0;
    const struct kvg_device_roofs *linear = kvg_calls_linear_roofs(x, 0);
    row->read_roof = fmax(row->read_roof, linear->read);
    row->copy_roof = fmax(row->copy_roof, linear->copy);
    row->cache_roof = fmax(row->cache_roof, linear->cache);
    row->matrix_bf16_roof = s->device.roofs.bf16_burst;
    row->matrix_bf16_sustained_roof = s->device.roofs.bf16_sustained;
    row->matrix_fp8_roof = s->device.roofs.fp8_burst;
    row->matrix_fp8_sustained_roof = s->device.roofs.fp8_sustained;
    row->matrix_fp8_promoted_roof = s->device.roofs.fp8_promoted;
    row->flop_roof = x->c->path == KVG_PATH_FP8 ? s->device.roofs.fp8_burst : s->device.roofs.bf16_burst;
    kvg_roofs_take_gather(x);
    if (x->site.device->lost)
        x->session->tainted = 1; /* the row stays valid: its calls had already ended */
}

void kvg_roofs_take(struct kvg_execution *x, int again)
{
    struct kvg_row *row = x->row;
    if (x->site.device) {
        take_on_device(x, again);
        return;
    }
    int64_t threads = x->prepared.problem.threads;
    if (again)
        kvg_meter_forget(x->session->meter);
    const struct kvg_roofs *roofs = kvg_meter_roofs(x->session->meter, threads);
    row->read_roof = fmax(row->read_roof, roofs->read);
    row->copy_roof = fmax(row->copy_roof, roofs->copy);
    row->cache_roof = fmax(row->cache_roof, roofs->cache);
    row->flop_roof = fmax(row->flop_roof, roofs->flops);
    if (x->c->phase != KVG_PHASE_STORE)
        row->gather_roof = fmax(row->gather_roof, kvg_measure_gather_roof(&x->prepared, threads));
    /* A gather reads memory too: a machine that did it can read that fast. */
    row->read_roof = fmax(row->read_roof, row->gather_roof);
}
