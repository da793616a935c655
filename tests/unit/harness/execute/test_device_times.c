/* SPDX-License-Identifier: Apache-2.0
 *
 * test_device_times.c: timing on a loopback device. A timed row has all numbers of the device's clock, roofs
 * and power meter. Calls can be recorded and replayed. The energy is divided by the number of calls.
 */
#include "tests/unit/loopback_case.h"
#include "harness/machine/clock.h"
#include "harness/execute/session_state.h"
#include "harness/execute/timing.h"
#include "harness/execute/device_calls.h"

/* Right when it is called, and wrong in replays after the third. */
static int wrong_when_replayed(const struct kvg_attention_args *args)
{
    const int code = dequant(args);
    const struct kvg_attention_args a = inside(args);
    if (device.replays > 3)
        ((uint16_t *)a.out)[0] ^= 0x0040;
    return code;
}

static const struct kvg_kernel kernels[] = {DEQUANT("wrong_when_replayed", wrong_when_replayed)};

static int set_up(void **state)
{
    (void)state;
    return loopback_set_up(kernels, (int)(sizeof kernels / sizeof kernels[0]));
}

static void timed(struct setting *s, const char *kernel, const char *rest, const char *method)
{
    struct kvg_row row;
    run(s, kernel, rest, &row);
    expect_row(&row, KVG_PASSED, "");
    assert_true(row.time_median > 0 && row.n_samples >= 3 && row.kv_bytes_per_second > 0);
    assert_non_null(strstr(row.timing_method, method));
    assert_true(row.time_launch > 0 && row.time_launch <= 2 * row.time_q3);
    assert_true(row.time_floor == LOOPBACK_FLOOR);
    assert_true(row.read_roof == 4e12 && row.copy_roof == 3e12 && row.cache_roof == 9e12);
    assert_true(row.matrix_bf16_roof == 8e14 && row.matrix_bf16_sustained_roof == 6e14);
    assert_true(row.matrix_fp8_roof == 16e14 && row.matrix_fp8_sustained_roof == 12e14);
    assert_true(row.matrix_fp8_promoted_roof == 13e14);
    assert_true(row.flop_roof == (strcmp(row.path, "fp8") == 0 ? 16e14 : 8e14));
    assert_true(row.sm_clock == 1.98e9 && row.memory_clock == 3.2e9 && row.power == 450);
    assert_true(row.temperature == 41 && strcmp(row.throttle, "none") == 0);
    assert_true(isnan(row.energy_per_call) || (row.energy_per_call > 0 && row.energy_per_call <= 12.0 / 3));
    if (strcmp(row.phase, "store") != 0)
        assert_true(row.gather_roof == 3.5e12);
    else
        assert_true(isnan(row.gather_roof));
    kvg_row_free(&row);
}

static void energy_belongs_to_calls(void **state)
{
    (void)state;
    assert_true(kvg_energy_of_call(12, 3, 1) == 4);
    assert_true(kvg_energy_of_call(12, 3, KVG_ENERGY_SHARE) == 4);
    assert_true(isnan(kvg_energy_of_call(12, 3, 0.79))); /* the flushes may have used too much of it */
    assert_true(isnan(kvg_energy_of_call(12, 3, NAN)));
    assert_true(isnan(kvg_energy_of_call(12, 0, 1)));
    assert_true(isnan(kvg_energy_of_call(NAN, 3, 1)));
}

static void timed_rows_are_complete(void **state)
{
    struct setting s;
    (void)state;
    begin(&s);
    timed(&s, "dequant", "cache_state=cold", "loopback clock (");
    assert_true(device.flushes >= 3 && device.starts >= device.flushes);
    const int64_t flushes = device.flushes;
    timed(&s, "dequant", "cache_state=hot", "loopback clock (");
    assert_true(device.flushes == flushes && device.holds >= 3);
    timed(&s, "fp8", "path=fp8 cache_state=cold window=32", "loopback clock (");
    timed(&s, "store", "phase=store path=none cache_state=cold", "loopback clock (");
    timed(&s, "store", "phase=store path=none cache_state=hot", "loopback clock (");
    assert_int_equal(device.roofs, 1); /* the slow roofs are measured once per session */
    assert_int_equal(device.replays, 0);
    make_there(&s);
    end(&s);
    assert_int_equal(device.bad_gather, 0);
    begin_where(&s, 1);
    timed(&s, "dequant", "cache_state=cold", "loopback clock (");
    timed(&s, "fp8", "path=fp8 cache_state=hot phase=append q_len=4", "loopback clock (");
    timed(&s, "store", "phase=store path=none cache_state=cold", "loopback clock (");
    end(&s);
    assert_int_equal(device.bad_gather, 0);
}

static void calls_are_recorded_and_replayed(void **state)
{
    struct setting s;
    (void)state;
    begin(&s);
    s.options.graph = 1;
    timed(&s, "dequant", "cache_state=cold", "loopback clock around a replayed graph");
    assert_true(device.records == 1 && device.replays >= 3);
    timed(&s, "store", "phase=store path=none cache_state=hot", "loopback clock around a replayed graph");
    assert_int_equal(device.records, 2);
    device.replays = 0;
    expect(&s, "wrong_when_replayed", "cache_state=cold", KVG_INCORRECT, KVG_TIMED_OUTPUT_DIFFERS);
    device.refuse_record = 1;
    expect(&s, "dequant", "cache_state=cold", KVG_INCORRECT,
           "cannot be recorded for replay: operation not permitted");
    end(&s);
}

/* The floor of the clock is set to an hour, so that every time is below it. */
static void a_time_below_the_floor_is_remarked(void **state)
{
    struct setting s;
    struct kvg_row row;
    (void)state;
    begin(&s);
    s.options.measure_roofs = 0;
    s.session = kvg_session_new_on(&s.source);
    s.session->device.linear = (struct kvg_device_roofs){.floor = 3600};
    s.session->device.linear_taken = kvg_now();
    run(&s, "dequant", "cache_state=cold", &row);
    expect_row(&row, KVG_PASSED, "the time is not reliable");
    assert_true(row.time_floor == 3600 && isnan(row.read_roof));
    kvg_row_free(&row);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(energy_belongs_to_calls),
        cmocka_unit_test(timed_rows_are_complete),
        cmocka_unit_test(calls_are_recorded_and_replayed),
        cmocka_unit_test(a_time_below_the_floor_is_remarked),
    };
    return cmocka_run_group_tests_name("device times", tests, set_up, NULL);
}
