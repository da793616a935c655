/* SPDX-License-Identifier: Apache-2.0
 *
 * test_common.c: the condition that failed rows meet and passed rows do not, on rows made by hand.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "results/common.h"

static void set(struct kvg_row *row, const char *kernel, const char *layout, const char *path, int64_t window,
                enum kvg_status status)
{
    assert_int_equal(kvg_row_init(row), 0);
    kvg_row_set_string(&row->kernel, kernel);
    kvg_row_set_string(&row->layout, layout);
    kvg_row_set_string(&row->path, path);
    row->window = window;
    row->status = status;
}

static void expect(struct kvg_row *rows, int64_t count, const char *wanted)
{
    const struct kvg_results results = {.rows = rows, .count = count};
    char text[340];
    assert_int_equal(kvg_common_of_failures(&results, "a", text, sizeof text), wanted[0] != 0);
    assert_string_equal(text, wanted);
    for (int64_t i = 0; i < count; i++)
        kvg_row_free(&rows[i]);
}

static void test_common(void **state)
{
    (void)state;
    struct kvg_row rows[5];
    /* rows of another kernel and rows with other verdicts do not count */
    set(&rows[0], "a", "HND", "fp8", 0, KVG_INCORRECT);
    set(&rows[1], "a", "HND", "dequant", 40, KVG_INCORRECT);
    set(&rows[2], "a", "NHD", "fp8", 0, KVG_PASSED);
    set(&rows[3], "b", "HND", "fp8", 0, KVG_PASSED);
    set(&rows[4], "a", "HND", "fp8", 0, KVG_SKIPPED);
    expect(rows, 5, "layout=HND");
    /* different windows, none of them 0 */
    set(&rows[0], "a", "HND", "fp8", 24, KVG_INCORRECT);
    set(&rows[1], "a", "NHD", "dequant", 40, KVG_INCORRECT);
    set(&rows[2], "a", "NHD", "fp8", 0, KVG_PASSED);
    set(&rows[3], "a", "HND", "dequant", 0, KVG_PASSED);
    expect(rows, 4, "window>0");
    /* two conditions at once */
    set(&rows[0], "a", "HND", "fp8", 0, KVG_INCORRECT);
    set(&rows[1], "a", "HND", "dequant", 0, KVG_PASSED);
    set(&rows[2], "a", "NHD", "fp8", 0, KVG_PASSED);
    expect(rows, 3, "path=fp8 and layout=HND");
    /* all rows fail; or a failed row like a passed one */
    set(&rows[0], "a", "HND", "fp8", 0, KVG_INCORRECT);
    set(&rows[1], "a", "NHD", "fp8", 0, KVG_INCORRECT);
    expect(rows, 2, "");
    set(&rows[0], "a", "HND", "fp8", 0, KVG_INCORRECT);
    set(&rows[1], "a", "HND", "fp8", 0, KVG_PASSED);
    expect(rows, 2, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
