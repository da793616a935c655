/* SPDX-License-Identifier: Apache-2.0
 *
 * test_stopwatch.c: the times of the activities add up to the time between the start of the stopwatch and its
 * reading. An activity that never began has no time (NaN). The test assumes only that a sleep takes at least
 * the time asked for.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

#include "harness/machine/clock.h"
#include "harness/execute/stopwatch.h"

static void wait_ms(long ms)
{
    const struct timespec t = {0, ms * 1000000};
    nanosleep(&t, NULL);
}

static void accounts_add_up(void **state)
{
    (void)state;
    struct kvg_stopwatch w;
    struct kvg_row row;
    assert_int_equal(kvg_row_init(&row), 0);
    const double before = kvg_now();
    kvg_stopwatch_start(&w, KVG_PREPARING);
    const double started = kvg_now();
    wait_ms(3);
    assert_int_equal(kvg_stopwatch_turn(&w, KVG_VERIFYING), KVG_PREPARING);
    wait_ms(2);
    assert_int_equal(kvg_stopwatch_turn(&w, KVG_QUANTISATION), KVG_VERIFYING);
    wait_ms(4);
    assert_int_equal(kvg_stopwatch_turn(&w, KVG_VERIFYING), KVG_QUANTISATION);
    wait_ms(2);
    const double read = kvg_now();
    kvg_stopwatch_tell(&w, &row);
    const double after = kvg_now();
    const double sum = row.seconds_prepare + row.seconds_verify + row.seconds_quantise;
    assert_true(row.seconds_prepare >= 0.003 && row.seconds_verify >= 0.004 && row.seconds_quantise >= 0.004);
    assert_true(sum >= read - started && sum <= after - before + 1e-9);
    assert_true(isnan(row.seconds_timing));
    kvg_stopwatch_turn(&w, KVG_TIMING); /* the watch continues to run */
    kvg_stopwatch_tell(&w, &row);
    assert_true(row.seconds_timing >= 0);
    kvg_row_free(&row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(accounts_add_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
