/* SPDX-License-Identifier: Apache-2.0
 *
 * execute_device.c: what differs where the kernel runs on a device: the session's device, how a case gets
 * there, the clock of its calls, and the roofs and conditions beside them. Nothing here runs in the process
 * that only plans: a device is opened for the first case that needs it, in the worker that executes it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "execute.h"
#include "harness/inputs/inputs.h"

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

int kvg_use_device(struct kvg_execution *x)
{
    struct kvg_session *s = x->session;
    if (!s->device_tried) {
        s->device_tried = 1;
        s->device = s->source.open(s->source.context, s->device_why, sizeof s->device_why);
    }
    if (!s->device)
        return kvg_verdict(x, KVG_SKIPPED, "%s", s->device_why[0] ? s->device_why : "there is no device");
    x->device = s->device;
    x->device->error[0] = '\0';
    kvg_row_set_string(&x->row->device, x->device->name);
    if (x->device->lost) /* a worker is replaced before it comes to this */
        return kvg_verdict_of_device(x, "before the case began", NULL);
    return 0;
}

int kvg_verdict_of_device(struct kvg_execution *x, const char *what, const struct kvg_error *error)
{
    const struct kvg_device *d = x->device;
    if (error && error->exit_code == KVG_EXIT_INCORRECT) { /* a buffer was written that must not be */
        x->session->tainted = 1;
        kvg_suspect(x, KVG_FAULT_MEMORY, "bytes changed that a kernel must leave alone");
        return kvg_verdict(x, KVG_INCORRECT, "%s", error->text);
    }
    if (d->lost || d->error[0] || !error) {
        x->session->tainted = 1; /* nobody knows what else the device will not do */
        return kvg_verdict(x, KVG_CRASHED, "%s%s%s", what ? what : "", what ? ": " : "",
                           d->error[0] ? d->error : "the device is lost");
    }
    return kvg_verdict_of_error(x, error);
}

/* ---------------------------------------------------------------- inputs */

static int64_t host_bytes(const struct kvg_case *c)
{
    const int64_t row = kvg_sequence_bytes(c, 1);
    int64_t bytes;
    return __builtin_mul_overflow(c->batch * c->context, row, &bytes) ? INT64_MAX : bytes;
}

/* A single sequence would be prepared by the host in any case: as the part that it verifies. */
static int is_made_there(const struct kvg_execution *x)
{
    return x->device && x->c->batch > 1 && kvg_input_is_synthetic(x->c->input) &&
           host_bytes(x->c) > x->session->source.mirror_bytes;
}

/* Takes a sequence into the part if it has a key, is new, and is the first or fits. */
static void take(const struct kvg_prepared *frame, int64_t seq, int64_t *left, int64_t *chosen, int64_t *n)
{
    const int64_t bytes = kvg_sequence_bytes(&frame->c, frame->seq_lens[seq]);
    for (int64_t i = 0; i < *n; i++)
        if (chosen[i] == seq)
            return;
    if (frame->seq_lens[seq] < 1 || *n == KVG_PART_MOST || (*n > 0 && bytes > *left))
        return;
    chosen[(*n)++] = seq;
    *left -= bytes;
}

/* One that moves with the seed (but is not short), the first, which is the longest until the lengths are
 * moved on, the shortest (of equals the last), another that moves. */
static int64_t choose(const struct kvg_prepared *frame, int64_t limit, int64_t chosen[KVG_PART_MOST])
{
    const int64_t batch = frame->problem.batch;
    int64_t n = 0, shortest = -1, longest = 0;
    for (int64_t i = 0; i < batch; i++) {
        if (frame->seq_lens[i] > 0 && (shortest < 0 || frame->seq_lens[i] <= frame->seq_lens[shortest]))
            shortest = i;
        if (frame->seq_lens[i] > frame->seq_lens[longest])
            longest = i;
    }
    if (shortest < 0)
        return 0;
    const int64_t turn = (int64_t)(frame->c.seed % (uint64_t)batch);
    take(frame, 2 * frame->seq_lens[turn] >= frame->seq_lens[longest] ? turn : longest, &limit, chosen, &n);
    take(frame, 0, &limit, chosen, &n);
    take(frame, shortest, &limit, chosen, &n);
    take(frame, (turn + batch / 2) % batch, &limit, chosen, &n);
    return n;
}

/* The part of a frame as it is now, held against what the device made. `limit` as part_bytes. */
static int make_part(struct kvg_execution *x, int64_t limit)
{
    int64_t chosen[KVG_PART_MOST];
    struct kvg_error error;
    kvg_prepared_free(&x->part);
    const int64_t n = choose(&x->prepared, limit, chosen);
    if (n == 0)
        return kvg_verdict(x, KVG_MISTRUSTED, "no sequence has a key, so nothing can be verified");
    if (kvg_prepare_part(&x->prepared, chosen, n, &x->part, &error))
        return kvg_verdict_of_error(x, &error);
    if (kvg_seen_compare(x->device, x->memory, &x->prepared, &x->part, &x->seen, &error) == 0)
        return 0;
    return error.exit_code == KVG_EXIT_INCORRECT
               ? kvg_verdict(x, KVG_MISTRUSTED,
                             "the case is not what it should be, whatever the kernel does: %s", error.text)
               : kvg_verdict_of_device(x, "comparing what the device made", &error);
}

const struct kvg_prepared *kvg_verified(const struct kvg_execution *x)
{
    return x->part.part_of ? &x->part : &x->prepared;
}

static int fill_device(struct kvg_execution *x)
{
    struct kvg_error error;
    return kvg_seen_fill(x->device, x->memory, &x->prepared, &x->seen, &error)
               ? kvg_verdict_of_device(x, "bringing the inputs to the device", &error)
               : 0;
}

int kvg_prepare_inputs(struct kvg_execution *x)
{
    const struct kvg_prepare_options constants = {x->options->random_tokens_q, x->options->random_tokens_k,
                                                  x->options->random_tokens_v, x->session->inputs};
    struct kvg_error error;
    const int made = is_made_there(x);
    if (made ? kvg_prepare_frame(x->c, &constants, &x->prepared, &error)
             : kvg_prepare(x->c, &constants, &x->prepared, &error))
        return kvg_verdict_of_error(x, &error);
    if (!x->device) {
        kvg_seen_host(&x->prepared, &x->seen);
        return 0;
    }
    x->memory = kvg_device_memory_new(x->device);
    if (!x->memory)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for the list of buffers");
    if (kvg_seen_allocate(x->memory, &x->prepared, &x->seen, &error))
        return kvg_verdict_of_device(x, NULL, &error);
    if (fill_device(x))
        return -1;
    return made && !x->options->profile ? make_part(x, x->session->source.part_bytes) : 0;
}

/* Of a renewed case one sequence is enough: who remembers an answer remembers all of it. */
int kvg_renew_inputs(struct kvg_execution *x, uint64_t seed)
{
    struct kvg_error error;
    if (!x->device && kvg_check_all_memory(x))
        return -1;
    if (kvg_prepared_renew(&x->prepared, seed, &error))
        return kvg_verdict_of_error(x, &error);
    if (!x->device)
        return 0;
    if (fill_device(x))
        return -1;
    return x->prepared.frame ? make_part(x, 0) : 0;
}

/* ---------------------------------------------------------------- calls */

int kvg_record(struct kvg_execution *x, int (*call)(void *), void *context)
{
    x->recording = NULL;
    if (!x->device || !x->options->graph)
        return 0;
    if (x->device->ops->record(x->device, call, context, &x->recording) == 0)
        return 0;
    x->recording = NULL;
    if (x->device->lost)
        return kvg_verdict_of_device(x, "recording a call", NULL);
    return kvg_verdict(x, KVG_INCORRECT, "the call cannot be recorded for replay: %s", x->device->error);
}

void kvg_forget(struct kvg_execution *x)
{
    if (x->recording)
        x->device->ops->forget(x->device, x->recording);
    x->recording = NULL;
}

int kvg_replay(struct kvg_execution *x)
{
    return x->device->ops->replay(x->device, x->recording) ? KVG_EDEVICE : KVG_OK;
}

static int start_clock(void *context, int hold)
{
    struct kvg_execution *x = context;
    return x->device_failed || x->device->ops->start(x->device, hold) ? -1 : 0;
}

static int stop_clock(void *context, double *seconds)
{
    struct kvg_execution *x = context;
    return x->device->ops->stop(x->device, seconds);
}

static const struct kvg_device_roofs no_roofs = {.read = NAN,
                                                 .copy = NAN,
                                                 .cache = NAN,
                                                 .bf16_burst = NAN,
                                                 .bf16_sustained = NAN,
                                                 .fp8_burst = NAN,
                                                 .fp8_sustained = NAN,
                                                 .fp8_promoted = NAN,
                                                 .floor = NAN};

/* The linear roofs and the clock's floor, not older than KVG_ROOF_AGE unless any will do. */
static const struct kvg_device_roofs *linear_roofs(struct kvg_execution *x, int any)
{
    struct kvg_session *s = x->session;
    if (s->linear_taken > 0 && (any || kvg_now() - s->linear_taken < KVG_ROOF_AGE))
        return &s->linear;
    if (x->device->ops->linear_roofs(x->device, &s->linear))
        s->linear = no_roofs;
    s->linear_taken = kvg_now();
    return &s->linear;
}

int kvg_device_clock(struct kvg_execution *x, struct kvg_clock *clock)
{
    if (!x->device)
        return -1;
    const double floor = linear_roofs(x, 1)->floor;
    *clock = (struct kvg_clock){
        .floor = floor > 0 ? floor : 0, .start = start_clock, .stop = stop_clock, .context = x};
    snprintf(clock->name, sizeof clock->name, "%s%s", x->device->ops->clock,
             x->recording ? " around a replayed graph" : "");
    return 0;
}

void kvg_device_flush(struct kvg_execution *x)
{
    if (x->device->ops->flush(x->device))
        x->device_failed = 1;
}

/* ---------------------------------------------------------------- roofs and conditions */

/* Where the first key lies that any query of a sequence sees. */
static void first_keys(const struct kvg_prepared *p, int32_t *first_key)
{
    for (int64_t b = 0; b < p->problem.batch; b++) {
        const int64_t q_len = p->cu_q_lens[b + 1] - p->cu_q_lens[b];
        int64_t first = 0, last = -1;
        if (q_len > 0 && p->seq_lens[b] > 0)
            kvg_ref_visible(p->seq_lens[b], q_len, 0, p->problem.window, p->problem.causal, &first, &last);
        first_key[b] = first > 0 ? (int32_t)first : 0;
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
        .args = &x->gathered, .seq_lens = p->seq_lens, .first_key = first_key};
    const double roof = x->device->ops->gather_roof(x->device, &gather);
    free(first_key);
    return roof;
}

static void session_roofs(struct kvg_execution *x)
{
    struct kvg_session *s = x->session;
    if (s->roofs_taken)
        return;
    s->roofs_taken = 1;
    if (x->device->ops->roofs(x->device, &s->roofs))
        s->roofs = no_roofs;
    if (s->roofs.why[0])
        kvg_remark(x, "roofs: %s", s->roofs.why);
}

void kvg_device_gather_roof(struct kvg_execution *x)
{
    if (x->gathered.problem && !x->device->lost)
        x->row->gather_roof = fmax(x->row->gather_roof, gather_roof(x));
}

/* Measured again, the higher of both counts: fmax takes the number where one is a NaN. */
void kvg_device_roofs(struct kvg_execution *x, int again)
{
    struct kvg_row *row = x->row;
    struct kvg_session *s = x->session;
    if (x->device->lost)
        return;
    session_roofs(x);
    if (again)
        s->linear_taken = 0;
    const struct kvg_device_roofs *linear = linear_roofs(x, 0);
    row->read_roof = fmax(row->read_roof, linear->read);
    row->copy_roof = fmax(row->copy_roof, linear->copy);
    row->cache_roof = fmax(row->cache_roof, linear->cache);
    row->matrix_bf16_roof = s->roofs.bf16_burst;
    row->matrix_bf16_sustained_roof = s->roofs.bf16_sustained;
    row->matrix_fp8_roof = s->roofs.fp8_burst;
    row->matrix_fp8_sustained_roof = s->roofs.fp8_sustained;
    row->matrix_fp8_promoted_roof = s->roofs.fp8_promoted;
    row->flop_roof = x->c->path == KVG_PATH_FP8 ? s->roofs.fp8_burst : s->roofs.bf16_burst;
    kvg_device_gather_roof(x);
    if (x->device->lost)
        x->session->tainted = 1; /* the row stands: its calls had ended well before */
}

double kvg_energy_of_call(double energy, int64_t calls, double busy)
{
    return calls > 0 && busy >= KVG_ENERGY_SHARE ? energy / (double)calls : NAN;
}

void kvg_conditions(struct kvg_execution *x, int64_t calls, double busy)
{
    struct kvg_device_conditions now;
    struct kvg_row *row = x->row;
    x->device->ops->conditions_end(x->device, &now);
    row->sm_clock = now.sm_clock;
    row->memory_clock = now.memory_clock;
    row->power = now.power;
    row->energy_per_call = kvg_energy_of_call(now.energy, calls, busy);
    row->temperature = now.temperature;
    kvg_row_set_string(&row->throttle, now.throttle);
}

int64_t kvg_last_cache_bytes(const struct kvg_execution *x)
{
    return x->device ? x->device->cache_bytes : kvg_llc_bytes();
}
