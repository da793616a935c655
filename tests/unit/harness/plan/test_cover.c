/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cover.c: pairs of values, counted by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/plan/check_space.h"
#include "harness/plan/cover.h"
#include "kernels/registry.h"

enum { AXES = 7 };
static const int sizes[AXES] = {4, 2, 3, 5, 2, 6, 3};

static int anything(void *context, const int *values)
{
    (void)context;
    (void)values;
    return 1;
}

/* Value 1 of axis 1 only with value 2 of axis 2; values 4 of axis 3 and 5 of axis 5 never together; axis 4 must be 0
 * unless axis 0 is 3. */
static int with_rules(void *context, const int *values)
{
    (void)context;
    return (values[1] != 1 || values[2] == 2) && !(values[3] == 4 && values[5] == 5) &&
           (values[4] == 0 || values[0] == 3);
}

/* 1 if some combination at all holds the pair: by trying all 4 * 2 * 3 * 5 * 2 * 6 * 3 of them. */
static int exists(int (*allowed)(void *, const int *), int a, int u, int b, int v)
{
    int values[AXES] = {0};
    for (;;) {
        if (values[a] == u && values[b] == v && allowed(NULL, values))
            return 1;
        int k = 0;
        while (k < AXES && ++values[k] == sizes[k])
            values[k++] = 0;
        if (k == AXES)
            return 0;
    }
}

static void check(int (*allowed)(void *, const int *))
{
    const struct kvg_cover_space space = {AXES, sizes, allowed, NULL};
    struct kvg_cover cover;
    int64_t possible = 0, impossible = 0;
    assert_int_equal(kvg_cover_make(&space, &cover), 0);
    for (int64_t i = 0; i < cover.count; i++)
        assert_true(allowed(NULL, cover.combinations + i * AXES));
    for (int a = 0; a < AXES; a++)
        for (int b = a + 1; b < AXES; b++)
            for (int u = 0; u < sizes[a]; u++)
                for (int v = 0; v < sizes[b]; v++) {
                    int held = 0;
                    for (int64_t i = 0; i < cover.count; i++)
                        held |=
                            cover.combinations[i * AXES + a] == u && cover.combinations[i * AXES + b] == v;
                    assert_int_equal(held, exists(allowed, a, u, b, v));
                    assert_int_equal(kvg_cover_pair(&cover, a, u, b, v),
                                     held ? KVG_PAIR_COVERED : KVG_PAIR_IMPOSSIBLE);
                    assert_int_equal(kvg_cover_holds(&cover, cover.count, b, v, a, u), held);
                    possible += held;
                    impossible += !held;
                }
    assert_int_equal(kvg_cover_count(&cover, KVG_PAIR_COVERED), possible);
    assert_int_equal(kvg_cover_count(&cover, KVG_PAIR_IMPOSSIBLE), impossible);
    assert_int_equal(kvg_cover_count(&cover, KVG_PAIR_MISSING), 0);
    assert_in_range(cover.count, 30, 60); /* 30 = 5 * 6 is the least possible; all combinations are 4320 */
    kvg_cover_free(&cover);
}

static void every_pair_is_in_a_combination(void **state)
{
    (void)state;
    check(anything);
}

static void rules_are_kept(void **state)
{
    (void)state;
    check(with_rules);
}

static int nothing(void *context, const int *values)
{
    (void)context;
    (void)values;
    return 0;
}

static void one_value_each_is_one_combination(void **state)
{
    const int one[2] = {1, 1};
    const struct kvg_cover_space single = {2, one, anything, NULL}, none = {2, one, nothing, NULL};
    struct kvg_cover cover;
    (void)state;
    assert_int_equal(kvg_cover_make(&single, &cover), 0);
    assert_int_equal(cover.count, 1);
    kvg_cover_free(&cover);
    assert_int_equal(kvg_cover_make(&none, &cover), 0);
    assert_int_equal(cover.count, 0);
    assert_int_equal(kvg_cover_count(&cover, KVG_PAIR_IMPOSSIBLE), 1);
    kvg_cover_free(&cover);
}

/* ---------------------------------------------------------------- the space of a kernel */

static int64_t with(const struct kvg_check_space *s, enum kvg_axis axis, const char *value)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->count; i++) {
        char text[128];
        kvg_case_get(&s->cases[i], axis, text, sizeof text);
        n += strcmp(text, value) == 0;
    }
    return n;
}

static void a_kernel_gets_what_it_takes(void **state)
{
    struct kvg_plan_request request = {0};
    struct kvg_check_space s;
    struct kvg_error error;
    (void)state;
    assert_int_equal(kvg_check_space_make("cpu/dequant_scalar", &request, &s, &error), 0);
    assert_true(s.n_pairs > 50 && s.count >= s.n_pairs);
    assert_int_equal(with(&s, KVG_AXIS_PATH, "dequant"), s.count); /* it has no path fp8 and no store */
    assert_int_equal(with(&s, KVG_AXIS_PHASE, "store"), 0);
    assert_int_equal(with(&s, KVG_AXIS_CACHE_STATE, "none"), s.count);
    assert_true(with(&s, KVG_AXIS_VIEWS, "paired") > 0 && with(&s, KVG_AXIS_LENGTHS, "gaps") > 0);
    assert_true(with(&s, KVG_AXIS_HEADS, "18/9") > 0 && with(&s, KVG_AXIS_BATCH, "34") > 0);
    kvg_check_space_free(&s);
    request.axis[KVG_AXIS_LAYOUT] = "HND";
    request.axis[KVG_AXIS_SEED] = "7";
    assert_int_equal(kvg_check_space_make("cpu/dequant_scalar", &request, &s, &error), 0);
    assert_int_equal(with(&s, KVG_AXIS_LAYOUT, "HND"), s.count);
    assert_int_equal(with(&s, KVG_AXIS_SEED, "7"), s.count);
    kvg_check_space_free(&s);
}

static void wrong_requests_are_errors(void **state)
{
    struct kvg_plan_request request = {0};
    struct kvg_check_space s;
    struct kvg_error error;
    (void)state;
    assert_int_equal(kvg_check_space_make("cpu/none", &request, &s, &error), -1);
    assert_non_null(strstr(error.text, "cpu/none"));
    request.axis[KVG_AXIS_HEAD_DIM] = "64,x";
    assert_int_equal(kvg_check_space_make("cpu/dequant_scalar", &request, &s, &error), -1);
    assert_non_null(strstr(error.text, "head_dim"));
    request = (struct kvg_plan_request){.axis = {[KVG_AXIS_ACCUMULATE] = "hopper"}};
    assert_int_equal(kvg_check_space_make("cpu/dequant_scalar", &request, &s, &error), -1);
    assert_non_null(strstr(error.text, "accumulate"));
}

static struct kvg_case case_of(const char *text)
{
    struct kvg_case c;
    struct kvg_error error;
    if (kvg_case_parse(text, &c, &error) || kvg_case_complete(&c, &error))
        fail_msg("%s: %s", text, error.text);
    return c;
}

static void a_run_says_what_it_leaves_out(void **state)
{
    struct kvg_error error;
    char text[400];
    (void)state;
    struct kvg_case c[2] = {case_of("kernel=cpu/dequant_scalar context=1k"),
                            case_of("kernel=cpu/dequant_scalar context=8k")};
    assert_int_equal(kvg_check_missing("cpu/dequant_scalar", c, 2, text, sizeof text, &error), 0);
    assert_non_null(strstr(text, "batch above 1"));
    assert_non_null(strstr(text, "scales other than 1"));
    assert_non_null(strstr(text, "HND"));
    assert_null(strstr(text, "KV heads")); /* 32/8 are several */
    c[1] =
        case_of("kernel=cpu/dequant_scalar context=201 batch=3 calibration=random_tokens scheme=per_head "
                "layout=HND views=padded lengths=ragged window=9 soft_cap=2 softmax_scale=0.1 phase=append "
                "q_len=4 mask=causal");
    assert_int_equal(kvg_check_missing("cpu/dequant_scalar", c, 2, text, sizeof text, &error), 0);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_is_in_a_combination),    cmocka_unit_test(rules_are_kept),
        cmocka_unit_test(one_value_each_is_one_combination), cmocka_unit_test(a_kernel_gets_what_it_takes),
        cmocka_unit_test(wrong_requests_are_errors),         cmocka_unit_test(a_run_says_what_it_leaves_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
