/* SPDX-License-Identifier: Apache-2.0
 *
 * again.c: further runs of an attention kernel that was right once.
 *
 *   repeats  The same call many times. A race changes the output in few calls, and then in few bits.
 *   queued   On a device: a call queued behind work that keeps the stream busy. Outputs and workspace are
 *            poisoned on the same stream. Work of the kernel that does not wait for the stream therefore runs
 *            before the poison, which overwrites its results.
 *   no lse   A call with args.lse = NULL, which often selects another path of the kernel.
 */
#include "again.h"

#include <math.h>

#include "buffers.h"
#include "call.h"
#include "explain.h"
#include "harness/machine/clock.h"
#include "options.h"
#include "session_state.h"
#include "verdict.h"

enum { REPEATS = 300, COMPARED_REPEATS = 20 };
#define REPEAT_SECONDS 0.3

/* A stray write stays visible, so memory is checked once, after the last repeat. It is also checked before
 * other bits are called a race, since a stray write may change outputs. */
static int repeat(struct kvg_execution *x, const struct kvg_attention_args *args,
                  const struct kvg_expectation *e, int deterministic)
{
    const int64_t asked = x->options->repeats, most = asked           ? asked
                                                      : deterministic ? REPEATS
                                                                      : COMPARED_REPEATS;
    const double until = kvg_now() + (asked ? INFINITY : REPEAT_SECONDS);
    uint64_t out, lse, out_now, lse_now;
    if (kvg_hash_outputs(x, args, &out, &lse))
        return -1;
    for (int64_t i = 0; i < most && kvg_now() < until; i++) {
        if (kvg_call_attention_unchecked(x, args))
            return -1;
        x->row->n_repeats = i + 1;
        if (!deterministic) {
            if (kvg_buffers_check(x) ||
                kvg_output_hold(x, args, e, KVG_RUN_REPEAT, "in one of many runs", NULL))
                return -1;
            continue;
        }
        if (kvg_hash_outputs(x, args, &out_now, &lse_now))
            return -1;
        if (out_now == out && lse_now == lse)
            continue;
        if (kvg_buffers_check(x))
            return -1;
        kvg_verdict_suspect(x, KVG_FAULT_RACE, "%lld calls gave the same bits, then one gave others",
                            (long long)i + 2);
        return kvg_verdict(x, KVG_INCORRECT,
                           "run %lld and the runs before it on the same inputs differ in %s, although the "
                           "kernel declares that it is deterministic",
                           (long long)i + 3, out_now != out ? "out" : "lse");
    }
    return kvg_buffers_check(x);
}

static int run_without_lse(struct kvg_execution *x, struct kvg_attention_args args,
                           const struct kvg_expectation *e)
{
    args.lse = NULL;
    return kvg_call_attention(x, &args) ||
           kvg_output_hold(x, &args, e, KVG_RUN_NO_LSE, "without an lse", NULL);
}

enum { HOLDS = 20 }; /* together about 400 us, much longer than queueing the call takes */

static int run_queued(struct kvg_execution *x, const struct kvg_attention_args *args,
                      const struct kvg_expectation *e)
{
    static const struct kvg_suspicion known = {
        KVG_FAULT_RACE,
        "right when the stream is idle, wrong when the call is queued behind other work: part of "
        "it does not wait for the caller's stream"};
    if (!x->site.device)
        return 0;
    for (int i = 0; i < HOLDS; i++)
        if (x->site.device->ops->start(x->site.device, 1))
            return kvg_verdict_of_device(x, "keeping the stream busy", NULL);
    return kvg_call_attention(x, args) || kvg_output_hold(x, args, e, KVG_RUN_REPEAT,
                                                          "queued behind other work on its stream", &known)
               ? -1
               : 0;
}

int kvg_attention_again(struct kvg_execution *x, const struct kvg_attention_args *args,
                        const struct kvg_expectation *e, int deterministic)
{
    return repeat(x, args, e, deterministic) || run_queued(x, args, e) || run_without_lse(x, *args, e) ? -1
                                                                                                       : 0;
}
