/* SPDX-License-Identifier: Apache-2.0
 *
 * bounds_fixture.h: a problem, plain FP32 arithmetic, and its bound, for tests of the bounds.
 */
#ifndef KVG_TESTS_BOUNDS_FIXTURE_H
#define KVG_TESTS_BOUNDS_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "harness/verify/bounds.h"
#include "scalar_attention.h" /* random numbers */

static inline struct kvg_problem problem_of(enum kvg_dtype q, enum kvg_dtype kv)
{
    struct kvg_problem p;
    memset(&p, 0, sizeof p);
    p.q_dtype = q;
    p.kv_dtype = kv;
    p.out_dtype = KVG_BF16;
    p.head_dim = 64;
    p.q_heads = p.kv_heads = 1;
    return p;
}

static inline struct kvg_arithmetic fp32_arithmetic(void)
{
    struct kvg_arithmetic a;
    memset(&a, 0, sizeof a);
    a.qk_operand = a.pv_operand = KVG_F32;
    a.qk_accumulator_bits = a.pv_accumulator_bits = 24;
    a.exp2_rel_error = 0x1p-22;
    a.p_format = KVG_F32;
    a.tile = 64;
    return a;
}

static inline struct kvg_bound bound_of(const struct kvg_problem *p, const struct kvg_arithmetic *a)
{
    struct kvg_bound b;
    struct kvg_error error = {0};
    if (kvg_bound_init(&b, p, a, 0, 0, "test", &error) != 0)
        fail_msg("%s", error.text);
    return b;
}

#endif
