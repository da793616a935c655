/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checks.c: the ratio of an error to what is allowed, where numbers are missing or infinite; the table
 * of checks; and the sentences of checks that failed.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "harness/prepare/own.h"
#include "harness/verify/bounds.h"
#include "harness/verify/checks.h"
#include "harness/verify/shares.h"
#include "results/evidence.h"

static void test_ratio(void **state)
{
    (void)state;
    static const struct {
        double got, reference, allowed, ratio;
    } expected[] = {
        {1.5, 1.0, 0.25, 2.0},
        {1.0, 1.5, 0.25, 2.0},
        {1.25, 1.0, 0.25, 1.0},
        {0.0, 0.0, 0.0, 0.0}, /* 0/0 */
        {3.0, 3.0, 0.0, 0.0},
        {3.0, 2.0, 0.0, INFINITY}, /* x/0 */
        {3.0, 2.0, INFINITY, 0.0}, /* x/infinity */
        {3.0, INFINITY, INFINITY, 0.0},
        {3.0, -INFINITY, 1.0, INFINITY},
        {NAN, 1.0, 1.0, INFINITY},
        {NAN, 1.0, INFINITY, INFINITY},
        {NAN, NAN, 0.0, INFINITY},
        {1.0, NAN, 1.0, INFINITY},
        {1.0, NAN, INFINITY, INFINITY},
        {1.0, 1.0, NAN, INFINITY},
        {1.0, 2.0, NAN, INFINITY},
        {INFINITY, 1.0, 1.0, INFINITY},
        {INFINITY, 1.0, INFINITY, INFINITY},
        {INFINITY, INFINITY, 1.0, INFINITY},
        {-INFINITY, -INFINITY, 0.0, INFINITY},
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const double ratio = kvg_bound_ratio(expected[i].got, expected[i].reference, expected[i].allowed);
        if (!(ratio == expected[i].ratio))
            fail_msg("%g against %g, allowed %g: %g, expected %g", expected[i].got, expected[i].reference,
                     expected[i].allowed, ratio, expected[i].ratio);
    }
}

/* Names differ and fit the evidence, ratio columns belong to their checks, and the checks of classes of keys
 * have the order of enum kvg_share_kind. */
static void test_table(void **state)
{
    (void)state;
    struct kvg_row row;
    struct kvg_evidence_check evidence;
    for (int i = 0; i < KVG_CHECKS; i++) {
        assert_true(strlen(kvg_check_table[i].name) < sizeof evidence.name);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(kvg_check_table[i].name, kvg_check_table[j].name);
    }
    const struct {
        enum kvg_check_id id;
        const double *column;
    } columns[] = {{KVG_CHECK_LSE, &row.lse_ratio_max},
                   {KVG_CHECK_BOUND, &row.bound_ratio_max},
                   {KVG_CHECK_PROBABLE, &row.prob_ratio_max}};
    int with_column = 0;
    for (int i = 0; i < KVG_CHECKS; i++)
        with_column += kvg_check_table[i].column >= 0;
    assert_int_equal(with_column, 3);
    for (int i = 0; i < 3; i++)
        assert_ptr_equal((const char *)&row + kvg_check_table[columns[i].id].column, columns[i].column);
    assert_string_equal(kvg_check_table[KVG_CHECK_SLOT + KVG_SHARE_SLOT].name, "slot");
    assert_string_equal(kvg_check_table[KVG_CHECK_SLOT + KVG_SHARE_PAGE].name, "page");
    assert_string_equal(kvg_check_table[KVG_CHECK_SLOT + KVG_SHARE_SPLIT].name, "split");
    assert_int_equal(KVG_CHECK_SLOT + KVG_SHARE_KINDS, KVG_CHECKS);
}

/* The worst of several numbers is kept, and those that fail are counted. */
static void test_note(void **state)
{
    (void)state;
    struct kvg_check check = {.name = "bound"};
    const struct kvg_ref_row rows[3] = {{0, 0, 1}, {1, 2, 3}, {2, 0, 0}};
    kvg_check_note(&check, 0.5, &rows[0], 4, 1.0, 1.5, 1.0);
    kvg_check_note(&check, 3.0, &rows[1], 5, 1.0, 4.0, 1.0);
    kvg_check_note(&check, 2.0, &rows[2], 6, 1.0, 3.0, 1.0);
    assert_int_equal(check.of, 3);
    assert_int_equal(check.failures, 2);
    assert_int_equal(check.row.q_head, 3);
    assert_true(check.ratio == 3.0 && check.dim == 5 && check.reference == 4.0);
    kvg_check_note(&check, INFINITY, &rows[0], 7, NAN, 1.0, 1.0);
    assert_true(check.failures == 3 && check.dim == 7);
}

static void expect_sentence(enum kvg_check_id id, struct kvg_check check, const char *words)
{
    struct kvg_prepared_own own = {.sequence = {0, 8}};
    struct kvg_prepared p;
    char text[512];
    memset(&p, 0, sizeof p);
    p.part_of = 9; /* sequence 1 of the part is number 8 of the whole case */
    p.own = &own;
    check.name = kvg_check_table[id].name;
    kvg_check_describe(&p, id, &check, text, sizeof text);
    assert_string_equal(text, words);
}

static void test_sentences(void **state)
{
    (void)state;
    const struct kvg_ref_row row = {1, 2, 3};
    expect_sentence(
        KVG_CHECK_NONFINITE,
        (struct kvg_check){.failures = 1, .of = 1, .row = row, .dim = 7, .got = INFINITY, .reference = NAN},
        "nonfinite: 1 NaN or infinite where the right value is finite, first at sequence 8 query 2 "
        "head 3 dim 7: got inf");
    expect_sentence(
        KVG_CHECK_LSE,
        (struct kvg_check){.failures = 2,
                           .of = 9,
                           .row = row,
                           .dim = -1,
                           .got = 1.5,
                           .reference = 1.0,
                           .allowed = 0.25,
                           .ratio = 2.0},
        "lse: 2 of 9 rows, worst at sequence 8 query 2 head 3: got 1.5, reference 1, allowed error "
        "0.25 (2 times)");
    expect_sentence(
        KVG_CHECK_GAIN,
        (struct kvg_check){
            .failures = 2, .of = 9, .row = row, .dim = -1, .got = 0.5, .reference = 1.0, .allowed = 0.25},
        "gain: 2 of 9 (sequence, head) groups, worst at sequence 8 head 3: 0.5, expected 1 +- 0.25");
    expect_sentence(
        KVG_CHECK_RMS,
        (struct kvg_check){
            .failures = 1, .of = 1, .got = 0.5, .reference = 0.125, .allowed = 0.25, .ratio = 2.0},
        "rms: the root mean square error is 0.5, predicted 0.125, allowed 0.25 (2 times)");
    expect_sentence(
        KVG_CHECK_SLOT,
        (struct kvg_check){
            .failures = 1, .of = 16, .where = "slot 3 of a page", .got = 0.01, .allowed = 0.0025},
        "slot: the output is off by 1 % of the contribution of slot 3 of a page, allowed 0.25 % (1 of "
        "16 slots of a page fail)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ratio), cmocka_unit_test(test_table),
                                       cmocka_unit_test(test_note), cmocka_unit_test(test_sentences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
