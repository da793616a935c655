/* SPDX-License-Identifier: Apache-2.0
 *
 * inputs.c: prepares the inputs of a case in the memory that its kernel reads.
 */
#include "inputs.h"

#include "buffers.h"
#include "harness/inputs/inputs.h"
#include "harness/prepare/prepare.h"
#include "options.h"
#include "session_state.h"
#include "verdict.h"

int kvg_inputs_use_device(struct kvg_execution *x)
{
    struct kvg_session *s = x->session;
    if (!s->device.tried) {
        s->device.tried = 1;
        s->device.opened =
            s->device.source.open(s->device.source.context, s->device.why, sizeof s->device.why);
    }
    if (!s->device.opened)
        return kvg_verdict(x, KVG_SKIPPED, "%s", s->device.why[0] ? s->device.why : "there is no device");
    x->site.device = s->device.opened;
    x->site.device->error[0] = '\0';
    kvg_row_set_string(&x->row->device, x->site.device->name);
    if (x->site.device->lost) /* not in a worker, which is replaced when its device fails */
        return kvg_verdict_of_device(x, "before the case began", NULL);
    return 0;
}

static int64_t host_bytes(const struct kvg_case *c)
{
    const int64_t row = kvg_sequence_bytes(c, 1);
    int64_t bytes;
    return __builtin_mul_overflow(c->batch * c->context, row, &bytes) ? INT64_MAX : bytes;
}

/* Does the device make K and V? Not for a batch of one: the host would prepare that sequence as the part that
 * it verifies. Not for views that are not dense: the host places their elements. */
static int is_made_there(const struct kvg_execution *x)
{
    return x->site.device && x->c->batch > 1 && x->c->views == KVG_VIEWS_DENSE &&
           kvg_input_is_synthetic(x->c->input) && host_bytes(x->c) > x->session->device.source.mirror_bytes;
}

/* 1 if the part may hold the sequence: it has a key and, in attention, a query. */
static int is_eligible(const struct kvg_prepared *frame, int64_t seq)
{
    return frame->seq_lens[seq] > 0 &&
           (frame->problem.phase == KVG_PHASE_STORE || frame->cu_q_lens[seq + 1] > frame->cu_q_lens[seq]);
}

/* Adds a sequence to the part if it is eligible, is not in the part yet, and fits into *left or is the
 * first. */
static void take(const struct kvg_prepared *frame, int64_t seq, int64_t *left, int64_t *chosen, int64_t *n)
{
    const int64_t bytes = kvg_sequence_bytes(&frame->c, frame->seq_lens[seq]);
    for (int64_t i = 0; i < *n; i++)
        if (chosen[i] == seq)
            return;
    if (!is_eligible(frame, seq) || *n == KVG_PART_MOST || (*n > 0 && bytes > *left))
        return;
    chosen[(*n)++] = seq;
    *left -= bytes;
}

/* Chooses the sequences of a part, in this order: the first always, the others if they fit into limit bytes:
 *   - one that depends on the seed, or the longest if that one is shorter than half of the longest
 *   - sequence 0, which is the longest until a renewal rotates the lengths
 *   - the shortest, and of several the last
 *   - another one that depends on the seed */
static int64_t choose(const struct kvg_prepared *frame, int64_t limit, int64_t chosen[KVG_PART_MOST])
{
    const int64_t batch = frame->problem.batch;
    int64_t n = 0, shortest = -1, longest = -1;
    for (int64_t i = 0; i < batch; i++) {
        if (!is_eligible(frame, i))
            continue;
        if (shortest < 0 || frame->seq_lens[i] <= frame->seq_lens[shortest])
            shortest = i;
        if (longest < 0 || frame->seq_lens[i] > frame->seq_lens[longest])
            longest = i;
    }
    if (shortest < 0)
        return 0;
    const int64_t turn = (int64_t)(frame->c.seed % (uint64_t)batch);
    const int long_enough = is_eligible(frame, turn) && 2 * frame->seq_lens[turn] >= frame->seq_lens[longest];
    take(frame, long_enough ? turn : longest, &limit, chosen, &n);
    take(frame, 0, &limit, chosen, &n);
    take(frame, shortest, &limit, chosen, &n);
    take(frame, (turn + batch / 2) % batch, &limit, chosen, &n);
    return n;
}

/* Prepares the part of the frame and compares it with the caches that the device made. `limit` is the
 * part_bytes of session.h. */
static int make_part(struct kvg_execution *x, int64_t limit)
{
    int64_t chosen[KVG_PART_MOST];
    struct kvg_error error;
    kvg_prepared_free(&x->part);
    const int64_t n = choose(&x->prepared, limit, chosen);
    if (n == 0)
        return kvg_verdict(x, KVG_MISTRUSTED, "no sequence has a key, so nothing can be verified");
    if (kvg_prepared_make_part(&x->prepared, chosen, n, &x->part, &error))
        return kvg_verdict_of_error(x, &error);
    if (kvg_seen_compare(x->site.device, x->site.memory, &x->prepared, &x->part, &x->seen, &error) == 0)
        return 0;
    return error.exit_code == KVG_EXIT_INCORRECT
               ? kvg_verdict(x, KVG_MISTRUSTED,
                             "the device made other inputs than the host, so the kernel cannot be judged: %s",
                             error.text)
               : kvg_verdict_of_device(x, "comparing inputs made on the device", &error);
}

const struct kvg_prepared *kvg_inputs_verified(const struct kvg_execution *x)
{
    return x->part.part_of ? &x->part : &x->prepared;
}

static int fill_device(struct kvg_execution *x)
{
    struct kvg_error error;
    return kvg_seen_fill(x->site.device, x->site.memory, &x->prepared, &x->seen, &error)
               ? kvg_verdict_of_device(x, "copying the inputs to the device", &error)
               : 0;
}

int kvg_inputs_prepare(struct kvg_execution *x)
{
    const struct kvg_prepare_options constants = {x->options->random_tokens_q, x->options->random_tokens_k,
                                                  x->options->random_tokens_v, x->session->inputs};
    struct kvg_error error;
    const int made = is_made_there(x);
    if (made ? kvg_prepared_make_frame(x->c, &constants, &x->prepared, &error)
             : kvg_prepared_make(x->c, &constants, &x->prepared, &error))
        return kvg_verdict_of_error(x, &error);
    if (!x->site.device) {
        kvg_seen_host(&x->prepared, &x->seen);
        return 0;
    }
    x->site.memory = kvg_device_memory_new(x->site.device);
    if (!x->site.memory)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for the list of buffers");
    if (kvg_seen_allocate(x->site.memory, &x->prepared, &x->seen, &error))
        return kvg_verdict_of_device(x, NULL, &error);
    if (fill_device(x))
        return -1;
    return made && !x->options->profile ? make_part(x, x->session->device.source.part_bytes) : 0;
}

/* After a renewal a part of one sequence (limit 0) is enough: a kernel that caches its answer caches all of
 * it. */
int kvg_inputs_renew(struct kvg_execution *x, uint64_t seed)
{
    struct kvg_error error;
    if (!x->site.device && kvg_buffers_check_all(x))
        return -1;
    if (kvg_prepared_renew(&x->prepared, seed, &error))
        return kvg_verdict_of_error(x, &error);
    if (!x->site.device)
        return 0;
    if (fill_device(x))
        return -1;
    return x->prepared.frame ? make_part(x, 0) : 0;
}
