/* SPDX-License-Identifier: Apache-2.0
 *
 * test_group.c: which rows are plain attention, and what kvg_pick_plain takes and counts.
 */
#include "results/group.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* Plain attention: a context of 256, head_dim 64, softmax scale 1/8. */
static struct kvg_row plain_row(void)
{
    struct kvg_row row;
    assert_int_equal(kvg_row_init(&row), 0);
    row.context = 256;
    row.head_dim = 64;
    row.softmax_scale = 0.125;
    return row;
}

static void each_departure_counts(void **state)
{
    (void)state;
    struct kvg_row row = plain_row();
    assert_true(kvg_is_plain(&row));
    row.window = 16;
    assert_false(kvg_is_plain(&row));
    row.window = 0;
    row.soft_cap = 30.0;
    assert_false(kvg_is_plain(&row));
    row.soft_cap = 0.0;
    row.softmax_scale = 0.1;
    assert_false(kvg_is_plain(&row));
    row.softmax_scale = (double)(1.0f / 8.0f);
    assert_int_equal(kvg_row_set_string(&row.mask, "full"), 0);
    assert_false(kvg_is_plain(&row));
    assert_int_equal(kvg_row_set_string(&row.mask, "causal"), 0);
    assert_true(kvg_is_plain(&row));
    row.context = 255;
    assert_false(kvg_is_plain(&row));
    kvg_row_free(&row);
}

/* A file of an earlier version has neither mask nor softmax scale, and they were the usual ones. */
static void what_an_older_file_lacks_is_usual(void **state)
{
    (void)state;
    struct kvg_row row = plain_row();
    row.softmax_scale = NAN;
    assert_int_equal(kvg_row_set_string(&row.mask, ""), 0);
    assert_true(kvg_is_plain(&row));
    kvg_row_free(&row);
}

static void captured_rows_may_be_short(void **state)
{
    (void)state;
    struct kvg_row row = plain_row();
    row.context = 128;
    assert_false(kvg_is_plain(&row));
    row.layer = 0;
    assert_true(kvg_is_plain(&row));
    kvg_row_free(&row);
}

/* Rows with and without sinks are never compared, and the words say which they are. */
static void sinks_are_a_shape(void **state)
{
    (void)state;
    struct kvg_row row = plain_row();
    char without[KVG_SHAPE_MAX], with[KVG_SHAPE_MAX], words[256];
    kvg_shape_key(&row, without, sizeof without);
    assert_int_equal(kvg_row_set_string(&row.sinks, "normal"), 0);
    kvg_shape_key(&row, with, sizeof with);
    assert_string_not_equal(with, without);
    kvg_shape_words(&row, words, sizeof words);
    assert_non_null(strstr(words, ", normal sinks"));
    assert_false(kvg_is_plain(&row));
    kvg_row_free(&row);
}

/* Sorts by context; rows with an odd layer have no key. */
static int key_of_context(const struct kvg_row *row, char *text, size_t size)
{
    snprintf(text, size, "%012lld", (long long)row->context);
    return row->layer % 2 == 0 || row->layer < 0;
}

/* Contexts 512, 64, 256 and one row without a key. */
static void four_rows(struct kvg_row rows[4], struct kvg_results *results)
{
    const int64_t contexts[] = {512, 64, 256, 1024};
    for (int i = 0; i < 4; i++) {
        rows[i] = plain_row();
        rows[i].context = contexts[i];
    }
    rows[3].layer = 1;
    *results = (struct kvg_results){.rows = rows, .count = 4};
}

static void rows_that_are_not_plain_are_counted(void **state)
{
    (void)state;
    struct kvg_row rows[4];
    struct kvg_results results;
    struct kvg_picks picks;
    four_rows(rows, &results);
    assert_int_equal(kvg_pick_plain(&results, key_of_context, &picks), 0);
    assert_int_equal(picks.count, 2);
    assert_int_equal(picks.left_out, 1);
    assert_ptr_equal(picks.picks[0].row, &rows[2]);
    assert_ptr_equal(picks.picks[1].row, &rows[0]);
    kvg_picks_free(&picks);
    assert_int_equal(kvg_pick_rows(&results, key_of_context, &picks), 0);
    assert_int_equal(picks.count, 3);
    assert_int_equal(picks.left_out, 0);
    assert_ptr_equal(picks.picks[0].row, &rows[1]);
    kvg_picks_free(&picks);
    for (int i = 0; i < 4; i++)
        kvg_row_free(&rows[i]);
}

static void all_rows_if_none_is_plain(void **state)
{
    (void)state;
    struct kvg_row rows[4];
    struct kvg_results results;
    struct kvg_picks picks;
    four_rows(rows, &results);
    for (int i = 0; i < 4; i++)
        rows[i].window = 100;
    assert_int_equal(kvg_pick_plain(&results, key_of_context, &picks), 0);
    assert_int_equal(picks.count, 3);
    assert_int_equal(picks.left_out, 0);
    assert_ptr_equal(picks.picks[0].row, &rows[1]);
    kvg_picks_free(&picks);
    results.count = 0;
    assert_int_equal(kvg_pick_plain(&results, key_of_context, &picks), 0);
    assert_int_equal(picks.count, 0);
    kvg_picks_free(&picks);
    for (int i = 0; i < 4; i++)
        kvg_row_free(&rows[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_departure_counts),
        cmocka_unit_test(what_an_older_file_lacks_is_usual),
        cmocka_unit_test(captured_rows_may_be_short),
        cmocka_unit_test(sinks_are_a_shape),
        cmocka_unit_test(rows_that_are_not_plain_are_counted),
        cmocka_unit_test(all_rows_if_none_is_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
