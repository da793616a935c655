/* SPDX-License-Identifier: Apache-2.0
 *
 * test_device_failures.c: failures of a device: a kernel that loses it, too little memory, no device. Each
 * affects only the rows that it must.
 */
#include "tests/unit/loopback_case.h"
#include "harness/execute/execute.h"

static int loses_device(const struct kvg_attention_args *args)
{
    (void)args;
    device.lose_next_finish = 1;
    return KVG_OK;
}

static int fails_to_launch(const struct kvg_attention_args *args)
{
    (void)args;
    device.fail_next_finish = 1;
    return KVG_EDEVICE;
}

/* Right until it is timed. Then its launch fails. */
static int fails_when_timed(const struct kvg_attention_args *args)
{
    device.fail_next_finish = device.starts > 0;
    return dequant(args);
}

static const struct kvg_kernel kernels[] = {DEQUANT("loses_device", loses_device),
                                            DEQUANT("fails_to_launch", fails_to_launch),
                                            DEQUANT("fails_when_timed", fails_when_timed)};

static int set_up(void **state)
{
    (void)state;
    return loopback_set_up(kernels, (int)(sizeof kernels / sizeof kernels[0]));
}

static void a_lost_device_costs_a_row(void **state)
{
    struct setting s;
    (void)state;
    for (int there = 0; there < 2; there++) {
        begin_where(&s, there);
        expect(&s, "loses_device", "", KVG_CRASHED, "attention: an illegal memory access was encountered");
        assert_int_equal(kvg_session_tainted(s.session), 1);
        end(&s);
    }
    begin(&s);
    expect(&s, "fails_to_launch", "", KVG_INCORRECT,
           "KVG_EDEVICE (-4), although the kernel says it supports the case; invalid configuration argument");
    assert_int_equal(kvg_session_tainted(s.session), 0);
    expect(&s, "fails_when_timed", "cache_state=cold", KVG_INCORRECT,
           "a timed call: invalid configuration argument");
    expect(&s, "dequant", "", KVG_PASSED, "");
    end(&s);
}

static void a_full_device_costs_a_row(void **state)
{
    struct setting s;
    (void)state;
    begin(&s);
    device.capacity = 8 << 20;
    expect(&s, "dequant", "context=40000", KVG_OUT_OF_MEMORY, "cache: cannot allocate");
    expect(&s, "dequant", "", KVG_PASSED, "");
    assert_int_equal(kvg_session_tainted(s.session), 0);
    end(&s);
    begin_where(&s, 1);
    device.capacity = 8 << 20;
    expect(&s, "dequant", "context=40000", KVG_OUT_OF_MEMORY, "on Loopback 1");
    end(&s);
}

static void without_a_device_rows_are_skipped(void **state)
{
    struct setting s;
    struct kvg_row row;
    (void)state;
    begin(&s);
    device.no_device = 1;
    expect(&s, "dequant", "", KVG_SKIPPED, "no NVIDIA driver is loaded");
    expect(&s, "unknown", "", KVG_SKIPPED, "no NVIDIA driver is loaded");
    run(&s, "store", "phase=store path=none", &row);
    expect_row(&row, KVG_SKIPPED, "no NVIDIA driver is loaded");
    assert_string_equal(row.device, "");
    kvg_row_free(&row);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_device_costs_a_row),
        cmocka_unit_test(a_full_device_costs_a_row),
        cmocka_unit_test(without_a_device_rows_are_skipped),
    };
    return cmocka_run_group_tests_name("device failures", tests, set_up, NULL);
}
