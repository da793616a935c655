/* SPDX-License-Identifier: Apache-2.0
 *
 * test_row_report.c: the report of one row: values and meanings are aligned for names of any length.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/cli/row_report.h"

/* The offset of a text in the line of the column; fails where there is no such line. */
static long place_in_line(const char *report, const char *column, const char *text)
{
    char start[80];
    snprintf(start, sizeof start, "\n  %s ", column);
    const char *line = strstr(report, start);
    if (!line)
        fail_msg("no line of %s in:\n%s", column, report);
    const char *end = strchr(line + 1, '\n'), *at = strstr(line, text);
    if (!at || at > end)
        fail_msg("the line of %s lacks '%s' in:\n%s", column, text, report);
    return (long)(at - line - 1);
}

static char *report_of(const struct kvg_row *row)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    kvg_row_print_report(out, row);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void values_and_meanings_are_aligned(void **state)
{
    struct kvg_row row;
    (void)state;
    assert_int_equal(kvg_row_init(&row), 0);
    row.status = KVG_PASSED;
    row.read_roof = 4e12;
    row.matrix_bf16_sustained_roof = 6e14; /* 26 characters, the longest name */
    row.batch = 3;
    char *report = report_of(&row);
    const long value = 2 + (long)strlen("matrix_bf16_sustained_roof") + 1;
    assert_int_equal(place_in_line(report, "matrix_bf16_sustained_roof", "600 T"), value);
    assert_int_equal(place_in_line(report, "read_roof", "4 TB/s"), value);
    assert_int_equal(place_in_line(report, "batch", "3"), value);
    static const char *const names[] = {"matrix_bf16_sustained_roof", "read_roof", "batch"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) /* "%-17s " of the value, then the meaning */
        assert_int_equal(place_in_line(report, names[i], kvg_column_find(names[i])->long_name), value + 18);
    free(report);

    /* Without long names the column of names is narrower. */
    kvg_row_free(&row);
    assert_int_equal(kvg_row_init(&row), 0);
    row.status = KVG_PASSED;
    row.read_roof = 4e12;
    report = report_of(&row);
    assert_true(place_in_line(report, "read_roof", "4 TB/s") < value);
    free(report);
    kvg_row_free(&row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_meanings_are_aligned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
