/* SPDX-License-Identifier: Apache-2.0
 *
 * device_calls.c: what timed calls on a device need: recording, clock, flush, conditions and energy.
 */
#include "device_calls.h"

#include <math.h>
#include <stdio.h>

#include "harness/machine/caches.h"
#include "harness/machine/clock.h"
#include "options.h"
#include "session_state.h"
#include "verdict.h"

int kvg_calls_record(struct kvg_execution *x, int (*call)(void *), void *context)
{
    x->calls->recording = NULL;
    if (!x->site.device || !x->options->graph)
        return 0;
    if (x->site.device->ops->record(x->site.device, call, context, &x->calls->recording) == 0)
        return 0;
    x->calls->recording = NULL;
    if (x->site.device->lost)
        return kvg_verdict_of_device(x, "recording a call", NULL);
    return kvg_verdict(x, KVG_INCORRECT, "the call cannot be recorded for replay: %s", x->site.device->error);
}

void kvg_calls_forget(struct kvg_execution *x)
{
    if (x->calls->recording)
        x->site.device->ops->forget(x->site.device, x->calls->recording);
    x->calls->recording = NULL;
}

int kvg_calls_replay(struct kvg_execution *x)
{
    return x->site.device->ops->replay(x->site.device, x->calls->recording) ? KVG_EDEVICE : KVG_OK;
}

static int start_clock(void *context, int hold)
{
    struct kvg_execution *x = context;
    return x->calls->failed || x->site.device->ops->start(x->site.device, hold) ? -1 : 0;
}

static int stop_clock(void *context, double *seconds)
{
    struct kvg_execution *x = context;
    return x->site.device->ops->stop(x->site.device, seconds);
}

const struct kvg_device_roofs kvg_no_device_roofs = {.read = NAN,
                                                     .copy = NAN,
                                                     .cache = NAN,
                                                     .bf16_burst = NAN,
                                                     .bf16_sustained = NAN,
                                                     .fp8_burst = NAN,
                                                     .fp8_sustained = NAN,
                                                     .fp8_promoted = NAN,
                                                     .floor = NAN};

const struct kvg_device_roofs *kvg_calls_linear_roofs(struct kvg_execution *x, int any)
{
    struct kvg_session *s = x->session;
    if (s->device.linear_taken > 0 && (any || kvg_now() - s->device.linear_taken < KVG_ROOF_AGE))
        return &s->device.linear;
    if (x->site.device->ops->linear_roofs(x->site.device, &s->device.linear))
        s->device.linear = kvg_no_device_roofs;
    s->device.linear_taken = kvg_now();
    return &s->device.linear;
}

int kvg_calls_clock(struct kvg_execution *x, struct kvg_clock *clock)
{
    if (!x->site.device)
        return -1;
    const double floor = kvg_calls_linear_roofs(x, 1)->floor;
    *clock = (struct kvg_clock){
        .floor = floor > 0 ? floor : 0, .start = start_clock, .stop = stop_clock, .context = x};
    snprintf(clock->name, sizeof clock->name, "%s%s", x->site.device->ops->clock,
             x->calls->recording ? " around a replayed graph" : "");
    return 0;
}

void kvg_calls_flush(struct kvg_execution *x)
{
    if (x->site.device->ops->flush(x->site.device))
        x->calls->failed = 1;
}

double kvg_energy_of_call(double energy, int64_t calls, double busy)
{
    return calls > 0 && busy >= KVG_ENERGY_SHARE ? energy / (double)calls : NAN;
}

void kvg_calls_conditions(struct kvg_execution *x, int64_t calls, double busy)
{
    struct kvg_device_conditions now;
    struct kvg_row *row = x->row;
    x->site.device->ops->conditions_end(x->site.device, &now);
    row->sm_clock = now.sm_clock;
    row->memory_clock = now.memory_clock;
    row->power = now.power;
    row->energy_per_call = kvg_energy_of_call(now.energy, calls, busy);
    row->temperature = now.temperature;
    kvg_row_set_string(&row->throttle, now.throttle);
}

int64_t kvg_last_cache_bytes(const struct kvg_execution *x)
{
    return x->site.device ? x->site.device->cache_bytes : kvg_llc_bytes();
}
