/* SPDX-License-Identifier: Apache-2.0
 *
 * check_rules.c: cases that a check leaves out.
 */
#include "check_rules.h"

#include <string.h>

#include "plugins.h"

/* Multiplications of one call, and elements of a cache, above which a case takes a plain kernel too long. */
#define MOST_PRODUCTS (INT64_C(1) << 24)
#define MOST_ELEMENTS (INT64_C(5) << 20)

/* Additions of a logit's longest chain in FP32 up to which input far_logits is used. Its logits are 5.6e4;
 * an output of zeros has 2.4 times the allowed error at 64 additions, 1.3 at 96 and 0.8 at 128, and less with
 * longer contexts. Below 1 a case shows nothing. */
#define FAR_CHAIN 48

const char *kvg_check_conflict(const struct kvg_case *c)
{
    const int store = c->phase == KVG_PHASE_STORE;
    if (store && (c->window > 0 || c->soft_cap > 0 || c->softmax_scale > 0 || c->mask != KVG_MASK_CAUSAL))
        return "a store has no window, soft cap, softmax scale or mask";
    if (!strcmp(c->input, "far_logits") && c->sinks != KVG_SINKS_OFF)
        return "beside logits so far below zero a sink leaves nothing of the output";
    if (c->batch == 1 && c->lengths != KVG_LENGTHS_UNIFORM)
        return "one sequence has one length";
    if (!strcmp(c->input, "far_logits") && (c->path == KVG_PATH_FP8 || c->softmax_scale > 0))
        return "such large logits have rounding errors beside which zeros would pass";
    if (!strcmp(c->input, "faint") && (c->context < 65 || c->window > 0 || c->mask == KVG_MASK_CHUNKED ||
                                       c->batch > 1 || c->softmax_scale > 0))
        return "without other keys in sight the output of input faint is zero";
    return NULL;
}

/* Rounding errors of a logit grow with the chain and with the unit of the sum. */
static struct kvg_arithmetic declared(const struct kvg_kernel *kernel, const struct kvg_case *c)
{
    struct kvg_arithmetic a = {.qk_accumulator_bits = 24, .pv_accumulator_bits = 24};
    struct kvg_problem problem;
    kvg_case_problem(c, &problem);
    if (kernel->arithmetic && c->phase != KVG_PHASE_STORE)
        kvg_plugins_arithmetic(kernel, &problem, problem.max_seq_len, &a);
    return a;
}

static int has_narrow_sums(const struct kvg_arithmetic *a)
{
    return a->qk_accumulator_bits < 24 || a->pv_accumulator_bits < 24;
}

static int has_coarse_logits(const struct kvg_kernel *kernel, const struct kvg_case *c)
{
    const struct kvg_arithmetic a = declared(kernel, c);
    return has_narrow_sums(&a) ||
           (c->phase != KVG_PHASE_STORE && (a.qk_chain > 0 ? a.qk_chain : c->head_dim) > FAR_CHAIN);
}

static int is_small(const struct kvg_case *c)
{
    const int64_t keys = c->batch * c->context, rows = c->phase == KVG_PHASE_STORE ? 0 : c->q_len;
    return keys * c->kv_heads * c->head_dim <= MOST_ELEMENTS &&
           keys * (rows > 1 ? rows : 1) * c->q_heads * c->head_dim <= MOST_PRODUCTS;
}

const char *kvg_check_unfit(const struct kvg_kernel *kernel, const struct kvg_case *c)
{
    if (!strcmp(c->input, "far_logits") && has_coarse_logits(kernel, c))
        return "sums of fewer than 24 bits or of more than 48 additions have larger errors than such logits "
               "allow";
    if (!strcmp(c->input, "k_wide")) {
        const struct kvg_arithmetic a = declared(kernel, c);
        if (a.qk_accumulator_bits < 24 && a.qk_smallest_normal > 0.0)
            return "with such scales of K, what sums lose below their smallest normal number is more than a "
                   "logit";
    }
    if (c->sinks == KVG_SINKS_LARGE) {
        const struct kvg_arithmetic a = declared(kernel, c);
        if (has_narrow_sums(&a))
            return "beside large sinks an output is smaller than the errors of sums of fewer than 24 bits";
    }
    return is_small(c) ? NULL : "too large for a check";
}
