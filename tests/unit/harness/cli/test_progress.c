/* SPDX-License-Identifier: Apache-2.0
 *
 * test_progress.c: the progress line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/cli/progress.h"

static void expect(const struct kvg_progress *p, double elapsed, int width, const char *right)
{
    char text[256];
    kvg_progress_format_line(p, "decode e4m3 8192", elapsed, width, text, sizeof text);
    assert_string_equal(text, right);
}

static void tells_the_time_left(void **state)
{
    struct kvg_progress p = {.total = 12, .total_weight = 30};
    (void)state;
    expect(&p, 0.2, 120, "[0/12] 0:00  decode e4m3 8192");
    kvg_progress_end_case(&p, 10, 0);
    expect(&p, 61, 120, "[1/12] 1:01, 2:02 left  decode e4m3 8192"); /* 20 of 30 weights to come */
    kvg_progress_end_case(&p, 5, 1);
    expect(&p, 4000, 120, "[2/12] 1:06:40, 1:06:40 left, 1 not passed  decode e4m3 8192");
}

static void fits_the_terminal(void **state)
{
    struct kvg_progress p = {.total = 12, .total_weight = 12};
    (void)state;
    expect(&p, 0, 21, "[0/12] 0:00  decode ");
    expect(&p, 0, 2, "[");
    expect(&p, 0, 0, "[0/12] 0:00  decode e4m3 8192"); /* unknown: not cut */
}

static void silent_in_a_pipe(void **state)
{
    struct kvg_progress p;
    FILE *f = tmpfile();
    (void)state;
    assert_non_null(f);
    kvg_progress_begin(&p, f, 3, 3, 0);
    kvg_progress_show_case(&p, "a case");
    kvg_progress_end_case(&p, 1, 0);
    kvg_progress_end(&p);
    assert_int_equal(ftell(f), 0);
    assert_int_equal(p.done, 1);
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_the_time_left),
        cmocka_unit_test(fits_the_terminal),
        cmocka_unit_test(silent_in_a_pipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
