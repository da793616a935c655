/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shares.c: kernels that get one class of keys slightly wrong, by less than any single element, gain or
 * lse shows.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>
#include "harness/prepare/prepare.h"
#include "harness/verify/shares.h"
#include "harness/verify/verify.h"
#include "tests/unit/scalar_stub.h"

static struct kvg_case case_of(enum kvg_path path, int64_t context, int64_t block)
{
    struct kvg_case c;
    memset(&c, 0, sizeof c);
    strcpy(c.kernel, SCALAR_NAME);
    strcpy(c.input, "normal");
    c.phase = KVG_PHASE_DECODE;
    c.path = path;
    c.kv_cache_dtype = KVG_CACHE_FP8_E4M3;
    c.calibration = KVG_CALIBRATION_NONE;
    c.layer = -1;
    c.batch = 3;
    c.q_len = 1;
    c.context = context;
    c.q_heads = 16;
    c.kv_heads = 4;
    c.head_dim = 128;
    c.block_size = block;
    c.lengths = KVG_LENGTHS_UNIFORM;
    c.threads = 1;
    c.seed = 4;
    return c;
}

static struct scalar_kernel kernel_of(enum kvg_path path, int64_t split)
{
    struct scalar_kernel k = plain_kernel(path);
    k.declared.split_tokens = split;
    return k;
}

/* Runs a kernel; fills row, results and checks from its output. */
static void judge(const struct kvg_prepared *p, const struct scalar_kernel *k, struct kvg_row *row,
                  struct kvg_share_result results[KVG_SHARE_KINDS], struct kvg_check checks[KVG_CHECKS])
{
    struct kvg_error error = {0};
    struct kvg_expectation *e;
    const int64_t rows = p->total_q * p->c.q_heads;
    uint16_t *out = malloc((size_t)(rows * p->c.head_dim) * sizeof *out);
    float *lse = malloc((size_t)rows * sizeof *lse);
    assert_non_null(out);
    assert_non_null(lse);
    scalar_attention(p, k, out, lse);
    scalar_declared = k->declared;
    if (kvg_expectation_make(p, &scalar_stub, 0, &e, &error) != 0 ||
        kvg_compare_attention(e, out, NULL, row, &error) != 0)
        fail_msg("%s", error.text);
    assert_int_equal(kvg_shares_compare(e->shares, out, results), 0);
    kvg_compare_checks(e, out, NULL, checks);
    kvg_expectation_free(e);
    free(out);
    free(lse);
}

struct wrong {
    const char *name;
    enum kvg_share_kind kind;
    int64_t class;
    struct scalar_wrong_keys wrong; /* of a page of 16, 1040 keys, splits of 260 */
    const char *where;              /* words for the class in a failed row */
};

static const struct wrong faults[] = {
    {"slot 5 of each page weighs more", KVG_SHARE_SLOT, 5, {0, 1, 16, 5, 1.0f, 1}, "slot 5 of a page"},
    {"values of slot 15 are smaller", KVG_SHARE_SLOT, 15, {0, 1, 16, 15, -1.0f, 0}, "slot 15 of a page"},
    {"odd pages weigh more", KVG_SHARE_PAGE, KVG_SHARE_ODD_PAGES, {0, 16, 2, 1, 0.7f, 1}, "odd pages"},
    {"values of odd pages are larger",
     KVG_SHARE_PAGE,
     KVG_SHARE_ODD_PAGES,
     {0, 16, 2, 1, 0.7f, 0},
     "odd pages"},
    {"the last page weighs less",
     KVG_SHARE_PAGE,
     KVG_SHARE_LAST_PAGE,
     {1024, 1, 1, 0, -3.0f, 1},
     "the last page"},
    {"the first page weighs more",
     KVG_SHARE_PAGE,
     KVG_SHARE_FIRST_PAGE,
     {0, 16, 1000, 0, 3.0f, 1},
     "the first page"},
    {"split 2 weighs more", KVG_SHARE_SPLIT, 2, {0, 260, 4, 2, 1.0f, 1}, "split 2"},
    {"values of split 0 are larger", KVG_SHARE_SPLIT, 0, {0, 260, 4, 0, 1.0f, 0}, "split 0"},
};
enum { FAULTS = sizeof faults / sizeof faults[0] };

/* A verdict on a kernel with a fault of the table, its excess multiplied by `times`, or with none. */
struct tried {
    struct kvg_row row;
    struct kvg_share_result results[KVG_SHARE_KINDS];
    struct kvg_check checks[KVG_CHECKS];
};

static void try_fault(const struct kvg_prepared *p, enum kvg_path path, const struct wrong *f, float times,
                      struct tried *t)
{
    struct scalar_kernel k = kernel_of(path, 260);
    assert_int_equal(kvg_row_init(&t->row), 0);
    if (f)
        k.wrong = f->wrong;
    k.wrong.excess *= times;
    judge(p, &k, &t->row, t->results, t->checks);
}

static void prepare(enum kvg_path path, enum v_pattern v, struct kvg_prepared *p)
{
    const struct kvg_case c = case_of(path, 1040, 16);
    const struct values values = {1.0, 1.0, 1.0, K_NORMAL, v, SCALE_ABSMAX_448};
    struct kvg_error error = {0};
    if (kvg_prepared_make(&c, NULL, p, &error) != 0)
        fail_msg("%s", error.text);
    give_values(p, &values, c.seed);
}

static enum kvg_check_id check_of(enum kvg_share_kind kind)
{
    return (enum kvg_check_id)(KVG_CHECK_SLOT + (int)kind);
}

static int says(const struct kvg_row *row, enum kvg_check_id check)
{
    char word[32];
    snprintf(word, sizeof word, "%s: ", kvg_check_table[check].name);
    return strstr(row->reason, word) != NULL;
}

/* 3e-4 of the excess in the table is found and named, and no other check breaks. */
static void test_small_faults(void **state)
{
    (void)state;
    const float times = 3e-4f;
    for (int path = KVG_PATH_DEQUANT; path <= KVG_PATH_FP8; path++) {
        struct kvg_prepared p;
        struct tried t;
        prepare((enum kvg_path)path, V_NORMAL, &p);
        for (int i = 0; i < FAULTS; i++) {
            const struct wrong *f = &faults[i];
            const double excess = (double)(times * f->wrong.excess);
            try_fault(&p, (enum kvg_path)path, f, times, &t);
            const struct kvg_share_result *found = &t.results[f->kind];
            if (t.row.status != KVG_INCORRECT || !says(&t.row, check_of(f->kind)))
                fail_msg("path %d, %s: %s; effect %g, limit %g", path, f->name, t.row.reason, found->effect,
                         found->limit);
            if (says(&t.row, KVG_CHECK_BOUND) || says(&t.row, KVG_CHECK_PROBABLE) ||
                says(&t.row, KVG_CHECK_GAIN) || says(&t.row, KVG_CHECK_OFFSET))
                fail_msg("path %d, %s is large enough for others: %s", path, f->name, t.row.reason);
            assert_int_equal(found->worst, f->class);
            const struct kvg_check *check = &t.checks[check_of(f->kind)];
            assert_string_equal(check->where, f->where);
            assert_true(check->failures > 0 && check->ratio > 1 && check->got == found->effect &&
                        check->allowed == found->limit);
            assert_int_equal(t.checks[KVG_CHECK_BOUND].failures, 0);
            if (!(fabs(found->effect / excess - 1.0) < 0.35))
                fail_msg("path %d, %s: effect %g, put in %g", path, f->name, found->effect, excess);
            kvg_row_free(&t.row);
        }
        try_fault(&p, (enum kvg_path)path, NULL, 0.0f, &t);
        assert_int_equal(t.row.status, KVG_PASSED);
        assert_int_equal(t.results[KVG_SHARE_SLOT].of, 16);
        assert_int_equal(t.results[KVG_SHARE_PAGE].of, 3);
        assert_int_equal(t.results[KVG_SHARE_SPLIT].of, 4);
        for (int kind = 0; kind < KVG_SHARE_KINDS; kind++)
            assert_true(fabs(t.results[kind].effect) < 0.2 * t.results[kind].limit);
        kvg_row_free(&t.row);
        kvg_prepared_free(&p);
    }
}

/* Where V has a mean, a share is nearly a multiple of the output, so only larger faults are found: 3 %. */
static void test_values_with_a_mean(void **state)
{
    (void)state;
    for (int path = KVG_PATH_DEQUANT; path <= KVG_PATH_FP8; path++) {
        struct kvg_prepared p;
        struct tried t;
        prepare((enum kvg_path)path, V_NONNEG, &p);
        for (int i = 0; i < FAULTS; i++) {
            try_fault(&p, (enum kvg_path)path, &faults[i], 0.03f, &t);
            if (!says(&t.row, check_of(faults[i].kind)))
                fail_msg("path %d, %s: %s", path, faults[i].name, t.row.reason);
            assert_int_equal(t.results[faults[i].kind].worst, faults[i].class);
            kvg_row_free(&t.row);
        }
        kvg_prepared_free(&p);
    }
}

/* Numbers of classes: no class for a single split, groups of two for a page of 96 slots, fewer keys than a
 * page of 8 has slots. */
static void test_classes(void **state)
{
    (void)state;
    static const struct {
        int64_t block, context, slots, split;
    } shapes[] = {{96, 500, 48, 0}, {128, 500, 64, 64}, {8, 5, 5, 0}, {16, 1, 0, 0}};
    for (int i = 0; i < 4; i++) {
        const struct kvg_case c = case_of(KVG_PATH_DEQUANT, shapes[i].context, shapes[i].block);
        const struct values values = {1.0, 1.0, 1.0, K_NORMAL, V_NORMAL, SCALE_ABSMAX_448};
        struct kvg_error error = {0};
        struct kvg_prepared p;
        struct tried t;
        if (kvg_prepared_make(&c, NULL, &p, &error) != 0)
            fail_msg("%s", error.text);
        give_values(&p, &values, c.seed);
        const struct scalar_kernel k = kernel_of(KVG_PATH_DEQUANT, shapes[i].split);
        assert_int_equal(kvg_row_init(&t.row), 0);
        judge(&p, &k, &t.row, t.results, t.checks);
        assert_int_equal(t.row.status, KVG_PASSED);
        assert_int_equal(t.results[KVG_SHARE_SLOT].of, shapes[i].slots);
        assert_int_equal(t.results[KVG_SHARE_SPLIT].of, shapes[i].split ? 8 : 0);
        kvg_row_free(&t.row);
        kvg_prepared_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_small_faults),
                                       cmocka_unit_test(test_values_with_a_mean),
                                       cmocka_unit_test(test_classes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
