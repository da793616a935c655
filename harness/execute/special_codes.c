/* SPDX-License-Identifier: Apache-2.0
 *
 * special_codes.c: a run of attention on a cache that holds special codes.
 */
#include "special_codes.h"

#include "call.h"
#include "explain.h"
#include "harness/prepare/special.h"
#include "inputs.h"
#include "verdict.h"

enum { CHECKED_ROWS = 8 };
/* Greatest number of elements of a cache. Larger ones are copied and hashed for too long. */
#define MOST_ELEMENTS (INT64_C(1) << 22)

int kvg_special_codes_wanted(const struct kvg_execution *x)
{
    const struct kvg_prepared *p = &x->prepared;
    return !p->frame && p->problem.kv_dtype != KVG_BF16 && p->cache_elements <= MOST_ELEMENTS;
}

static int run_on(struct kvg_execution *x, const struct kvg_attention_args *args,
                  enum kvg_special_codes which, const char *when)
{
    const struct kvg_prepared *p = &x->prepared;
    struct kvg_expectation *e = NULL;
    struct kvg_error error;
    kvg_prepared_special_codes(&x->prepared, which);
    if (x->site.device && kvg_seen_fill(x->site.device, x->site.memory, p, &x->seen, &error))
        return kvg_verdict_of_device(x, "copying special codes to the device", &error);
    if (kvg_expectation_make(p, x->kernel, CHECKED_ROWS, &e, &error))
        return kvg_verdict_of_error(x, &error);
    const int failed =
        kvg_call_attention(x, args) || kvg_output_hold(x, args, e, KVG_RUN_SPECIAL, when, NULL);
    kvg_expectation_free(e);
    return failed ? -1 : 0;
}

/* 1 if logits of subnormal codes lie below the smallest normal number of the sums that the kernel declares. They
 * have next to no bits there, so the run would show nothing. */
static int loses_subnormals(const struct kvg_execution *x)
{
    const struct kvg_problem *problem = &x->prepared.problem;
    struct kvg_arithmetic a = {.qk_smallest_normal = 0.0};
    x->kernel->arithmetic(problem, problem->max_seq_len, &a);
    return a.qk_accumulator_bits < 24 && a.accumulator_rounding == KVG_ROUND_NEAREST &&
           a.qk_smallest_normal > 0.0;
}

int kvg_attention_special_codes(struct kvg_execution *x, const struct kvg_attention_args *args)
{
    if (!kvg_special_codes_wanted(x))
        return 0;
    return run_on(x, args, KVG_CODES_LARGEST,
                  "with special codes in visible keys (zeros, subnormals, largest codes)") ||
                   (!loses_subnormals(x) && run_on(x, args, KVG_CODES_SUBNORMALS,
                                                   "with special codes in all keys (subnormals, zeros)"))
               ? -1
               : 0;
}
