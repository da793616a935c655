/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cover.c: pairs of values, counted by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/plan/check_missing.h"
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

/* Value 1 of axis 1 only with value 2 of axis 2; values 4 of axis 3 and 5 of axis 5 never together; axis 4
 * must be 0 unless axis 0 is 3. */
static int with_rules(void *context, const int *values)
{
    (void)context;
    return (values[1] != 1 || values[2] == 2) && !(values[3] == 4 && values[5] == 5) &&
           (values[4] == 0 || values[0] == 3);
}

/* Value 1 of axis 0 needs three other values; value 2 of it needs four. */
static int with_rare_values(void *context, const int *values)
{
    (void)context;
    return (values[0] != 1 || (values[1] == 1 && values[2] == 2 && values[3] == 4)) &&
           (values[0] != 2 || (values[2] == 1 && values[3] == 3 && values[4] == 1 && values[5] == 5));
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

static void check(int (*allowed)(void *, const int *), const int *starts, int64_t n_starts)
{
    const struct kvg_cover_space space = {AXES, sizes, allowed, NULL, starts, n_starts};
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
    check(anything, NULL, 0);
}

static void rules_are_kept(void **state)
{
    (void)state;
    check(with_rules, NULL, 0);
}

static void rare_values_are_found(void **state)
{
    static const int starts[2 * AXES] = {1, 1, 2, 4, 0, 0, 0, 2, 0, 1, 3, 1, 5, 0};
    (void)state;
    check(with_rare_values, NULL, 0);
    check(with_rare_values, starts, 2);
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
    const struct kvg_cover_space single = {2, one, anything, NULL, NULL, 0},
                                 none = {2, one, nothing, NULL, NULL, 0};
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

static const struct kvg_check_axis *line_of(const struct kvg_check_space *s, enum kvg_axis axis)
{
    for (int i = 0; i < s->n; i++)
        if (s->axes[i].axis == axis)
            return &s->axes[i];
    fail_msg("axis %d is not varied", axis);
    return NULL;
}

static enum kvg_pair pair_of(const struct kvg_check_space *s, enum kvg_axis a, const char *u, enum kvg_axis b,
                             const char *v)
{
    const struct kvg_check_axis *x = line_of(s, a), *y = line_of(s, b);
    for (int64_t i = 0; i < x->values.count; i++)
        for (int64_t j = 0; j < y->values.count; j++)
            if (strcmp(x->values.text[i], u) == 0 && strcmp(y->values.text[j], v) == 0)
                return kvg_cover_pair(&s->cover, (int)(x - s->axes), (int)i, (int)(y - s->axes), (int)j);
    fail_msg("%s or %s is not tried", u, v);
    return KVG_PAIR_MISSING;
}

static int has_value(const struct kvg_case *c, const struct kvg_check_axis *x, int64_t i)
{
    char text[128];
    kvg_case_get(c, x->axis, text, sizeof text);
    return strcmp(text, x->values.text[i]) == 0;
}

/* The complete cases hold the pairs that the cover promises. A complete case has no q_len=auto. */
static void cases_hold_the_pairs(void **state)
{
    struct kvg_plan_request request = {0};
    struct kvg_check_space s;
    struct kvg_error error;
    (void)state;
    assert_int_equal(kvg_check_space_make("cpu/dequant_scalar", &request, &s, &error), 0);
    for (int a = 0; a < s.n; a++)
        for (int b = a + 1; b < s.n; b++) {
            const struct kvg_check_axis *x = &s.axes[a], *y = &s.axes[b];
            for (int64_t u = 0; u < x->values.count; u++)
                for (int64_t v = 0; v < y->values.count; v++) {
                    int held = 0;
                    if (x->axis == KVG_AXIS_Q_LEN || y->axis == KVG_AXIS_Q_LEN)
                        continue;
                    for (int64_t i = 0; i < s.n_pairs; i++)
                        held |= has_value(&s.cases[i], x, u) && has_value(&s.cases[i], y, v);
                    assert_int_equal(kvg_cover_pair(&s.cover, a, (int)u, b, (int)v) == KVG_PAIR_COVERED,
                                     held);
                }
        }
    /* possible with one or two other values away from the usual ones */
    assert_int_equal(pair_of(&s, KVG_AXIS_PHASE, "decode", KVG_AXIS_INPUT, "faint"), KVG_PAIR_COVERED);
    assert_int_equal(pair_of(&s, KVG_AXIS_PHASE, "prefill", KVG_AXIS_INPUT, "faint"), KVG_PAIR_COVERED);
    assert_int_equal(pair_of(&s, KVG_AXIS_PHASE, "prefill", KVG_AXIS_CONTEXT, "300"), KVG_PAIR_COVERED);
    /* a bf16 cache has no scales; one sequence has one length */
    assert_int_equal(pair_of(&s, KVG_AXIS_KV_CACHE_DTYPE, "auto", KVG_AXIS_SCHEME, "per_head"),
                     KVG_PAIR_IMPOSSIBLE);
    assert_int_equal(pair_of(&s, KVG_AXIS_BATCH, "1", KVG_AXIS_LENGTHS, "ragged"), KVG_PAIR_IMPOSSIBLE);
    kvg_check_space_free(&s);
}

/* Far from every usual value: bf16, head_dim 64, HND pages of 64, one sequence, and many queries with 8/2
 * heads only. */
static int takes_little(const struct kvg_problem *p, char *why, size_t size)
{
    if (p->path == KVG_PATH_DEQUANT && p->kv_dtype == KVG_BF16 && p->head_dim == 64 && p->block_size == 64 &&
        p->layout == KVG_HND && p->batch == 1 && (p->max_q_len <= 2 || (p->q_heads == 8 && p->kv_heads == 2)))
        return 1;
    snprintf(why, size, "too narrow");
    return 0;
}

static int takes_none(const struct kvg_problem *p, char *why, size_t size)
{
    (void)p;
    snprintf(why, size, "no such machine");
    return 0;
}

/* FP32 sums over the whole head_dim, one key a tile, splits of 96 keys. */
static void plain_sums(const struct kvg_problem *p, int64_t seq_len, struct kvg_arithmetic *out)
{
    (void)p;
    (void)seq_len;
    *out = (struct kvg_arithmetic){
        .qk_accumulator_bits = 24, .pv_accumulator_bits = 24, .tile = 8, .split_tokens = 96};
}

static int attend_nothing(const struct kvg_attention_args *args)
{
    (void)args;
    return KVG_OK;
}

static int takes_dequant(const struct kvg_problem *p, char *why, size_t size)
{
    snprintf(why, size, "path fp8");
    return p->path == KVG_PATH_DEQUANT;
}

#define KERNEL(id, takes)                                                                                    \
    {                                                                                                        \
        .abi_version = KVG_KERNEL_ABI_VERSION, .struct_size = sizeof(struct kvg_kernel), .name = id,         \
        .summary = "of this test", .supports = takes, .arithmetic = plain_sums, .attention = attend_nothing  \
    }
static const struct kvg_kernel little = KERNEL("test/little", takes_little),
                               none = KERNEL("test/none", takes_none),
                               plain = KERNEL("test/plain", takes_dequant);

static int add_kernels(void **state)
{
    static const struct kvg_kernel *const list[] = {&little, &none, &plain};
    char why[200];
    (void)state;
    return kvg_registry_add("this test", list, 3, why, sizeof why);
}

static int64_t refusals_with(const struct kvg_check_space *s, int n, int by_kernel, const char *why)
{
    int64_t found = 0;
    for (int64_t i = 0; i < s->n_refusals; i++)
        found += s->refusals[i].n == n && s->refusals[i].by_kernel == by_kernel &&
                 strstr(s->refusals[i].why, why) != NULL;
    return found;
}

static void a_narrow_kernel_is_found(void **state)
{
    struct kvg_plan_request request = {0};
    struct kvg_check_space s;
    struct kvg_error error;
    (void)state;
    assert_int_equal(kvg_check_space_make("test/little", &request, &s, &error), 0);
    assert_true(s.n_pairs > 50);
    assert_int_equal(with(&s, KVG_AXIS_KV_CACHE_DTYPE, "auto"), s.count);
    assert_int_equal(with(&s, KVG_AXIS_LAYOUT, "HND"), s.count);
    assert_int_equal(with(&s, KVG_AXIS_HEAD_DIM, "64"), s.count);
    assert_int_equal(with(&s, KVG_AXIS_BATCH, "1"), s.count);
    assert_true(with(&s, KVG_AXIS_PHASE, "prefill") > 0 && with(&s, KVG_AXIS_PHASE, "append") > 0);
    assert_int_equal(s.refusals[0].axis[0], KVG_AXIS_PHASE);
    assert_string_equal(s.refusals[0].value[0], "store");
    assert_string_equal(s.refusals[0].why, "the kernel has no store");
    /* 3 dtypes (one of them is the reason of path fp8 too), 3 batches, 4 head_dims, 4 page sizes, NHD */
    assert_int_equal(refusals_with(&s, 1, 1, "too narrow"), 3 + 3 + 4 + 4 + 1);
    /* q_len 5 and 17 with each of the 11 other heads */
    int64_t with_heads = 0;
    for (int64_t i = 0; i < s.n_refusals; i++)
        with_heads += s.refusals[i].n == 2 && s.refusals[i].axis[0] == KVG_AXIS_Q_LEN &&
                      s.refusals[i].axis[1] == KVG_AXIS_HEADS;
    assert_int_equal(with_heads, 2 * 11);
    kvg_check_space_free(&s);
}

static void a_kernel_that_takes_nothing_has_no_cases(void **state)
{
    struct kvg_plan_request request = {0};
    struct kvg_check_space s;
    struct kvg_error error;
    (void)state;
    assert_int_equal(kvg_check_space_make("test/none", &request, &s, &error), 0);
    assert_int_equal(s.count, 0);
    assert_true(refusals_with(&s, 1, 1, "no such machine") > 0);
    kvg_check_space_free(&s);
}

static int64_t with_context(const struct kvg_check_space *s, int64_t context, int64_t window, int ragged)
{
    int64_t n = 0;
    for (int64_t i = s->n_pairs; i < s->count; i++)
        n += s->cases[i].context == context && s->cases[i].window == window &&
             (s->cases[i].lengths == KVG_LENGTHS_RAGGED) == ragged;
    return n;
}

/* plain_sums: tiles of 8, splits of 96 keys. */
static void lengths_follow_the_declaration(void **state)
{
    static const int64_t lengths[] = {7, 8, 9, 17, 96, 97, 2 * 96 + 8 + 1};
    struct kvg_plan_request request = {0};
    struct kvg_check_space s;
    struct kvg_error error;
    (void)state;
    assert_int_equal(kvg_check_space_make("test/plain", &request, &s, &error), 0);
    assert_int_equal(s.n_lengths, 3 * 7);
    /* more than 65,536 keys, more than 256 sequences, more than 256 heads */
    int64_t keys = 0, sequences = 0, heads = 0;
    for (int64_t i = s.n_pairs + s.n_lengths; i < s.count; i++) {
        keys += s.cases[i].context > 65536;
        sequences += s.cases[i].batch > 256;
        heads += s.cases[i].q_heads > 256;
    }
    assert_true(keys >= 1 && sequences >= 1 && heads >= 1);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        assert_int_equal(with_context(&s, lengths[i], 0, 0), 1);
        assert_int_equal(with_context(&s, lengths[i], 40, 0), 1);
        assert_int_equal(with_context(&s, lengths[i], 0, 1), 1);
    }
    for (int64_t i = 0; i < s.count; i++) /* sums over head_dim: too long for far logits from 80 on */
        assert_true(strcmp(s.cases[i].input, "far_logits") != 0 || s.cases[i].head_dim == 64);
    kvg_check_space_free(&s);
    request.axis[KVG_AXIS_CONTEXT] = "33"; /* an option restricts its axis */
    request.axis[KVG_AXIS_INPUT] = "normal";
    assert_int_equal(kvg_check_space_make("test/plain", &request, &s, &error), 0);
    assert_int_equal(with(&s, KVG_AXIS_CONTEXT, "33"), s.count);
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
    struct kvg_case c[3] = {case_of("kernel=cpu/dequant_scalar context=1k"),
                            case_of("kernel=cpu/dequant_scalar context=8k")};
    assert_int_equal(kvg_check_missing("cpu/dequant_scalar", c, 2, text, sizeof text, &error), 0);
    assert_non_null(strstr(text, "batch above 1"));
    assert_non_null(strstr(text, "scales other than 1"));
    assert_non_null(strstr(text, "HND"));
    assert_null(strstr(text, "KV heads")); /* 32/8 are several */
    c[1] =
        case_of("kernel=cpu/dequant_scalar context=201 batch=3 calibration=random_tokens scheme=per_head "
                "layout=HND views=padded lengths=ragged window=9 soft_cap=2 softmax_scale=0.1 phase=append "
                "q_len=4 mask=causal block_size=5 sinks=normal");
    c[2] = case_of("kernel=cpu/dequant_scalar lengths=1x65+17x65");
    assert_int_equal(kvg_check_missing("cpu/dequant_scalar", c, 3, text, sizeof text, &error), 0);
    assert_string_equal(text, "chunked masks"); /* in decode the prefix mask is the causal one */
    c[0] = case_of("kernel=cpu/dequant_scalar context=1k mask=chunked:100");
    assert_int_equal(kvg_check_missing("cpu/dequant_scalar", c, 3, text, sizeof text, &error), 0);
    assert_string_equal(text, "");
    assert_int_equal(kvg_check_missing("cpu/dequant_scalar", c + 1, 1, text, sizeof text, &error), 0);
    assert_non_null(strstr(text, "chunked masks"));
    assert_non_null(strstr(text, "prefix masks"));
    assert_int_equal(kvg_check_missing("cpu/dequant_scalar", c, 1, text, 50, &error), 0);
    assert_string_equal(text, "batch above 1, scales other than 1, and 12 more");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_is_in_a_combination),
        cmocka_unit_test(rules_are_kept),
        cmocka_unit_test(rare_values_are_found),
        cmocka_unit_test(cases_hold_the_pairs),
        cmocka_unit_test(a_narrow_kernel_is_found),
        cmocka_unit_test(a_kernel_that_takes_nothing_has_no_cases),
        cmocka_unit_test(lengths_follow_the_declaration),
        cmocka_unit_test(one_value_each_is_one_combination),
        cmocka_unit_test(a_kernel_gets_what_it_takes),
        cmocka_unit_test(wrong_requests_are_errors),
        cmocka_unit_test(a_run_says_what_it_leaves_out),
    };
    return cmocka_run_group_tests(tests, add_kernels, NULL);
}
