/* SPDX-License-Identifier: Apache-2.0
 *
 * test_device_loopback.c: the harness on a loopback device. Right kernels pass in every phase, whether the
 * host or the device made the case, and the row has the right number of checked elements. CPU kernels run in
 * the memory of the device. Host code that accesses a device address ends the program.
 */
#include "harness/memory/guard.h"
#include "tests/unit/loopback_case.h"

static int depth_in_call; /* NVTX ranges that are open when the kernel is called */

static int in_range(const struct kvg_attention_args *args)
{
    depth_in_call = kvg_nvtx_depth();
    return dequant(args);
}

static const struct kvg_kernel more[] = {DEQUANT("in_range", in_range)};

static int set_up(void **state)
{
    (void)state;
    return loopback_set_up(more, 1);
}

static const char *const attention_cases[][2] = {
    {"dequant", "kv_cache_dtype=fp8_e4m3"},
    {"dequant", "kv_cache_dtype=fp8_e5m2 scheme=per_tensor layout=HND"},
    {"dequant", "kv_cache_dtype=auto scheme=per_tensor calibration=none lengths=ragged"},
    {"dequant", "phase=append q_len=5 lengths=ragged window=40"},
    {"dequant", "phase=prefill context=40 soft_cap=20 batch=3"},
    {"dequant", "input=v_nonneg lengths=ragged block_size=32"},
    {"fp8", "path=fp8"},
    {"fp8", "path=fp8 scheme=per_tensor phase=append q_len=3 lengths=ragged"},
    {"dequant", "phase=prefill context=40 mask=prefix:20 batch=6 lengths=ragged"},
    {"fp8", "path=fp8 phase=append q_len=9 mask=chunked:7 lengths=ragged"},
    {"loose", ""},
    {"dequant", "block_size=5 layout=HND"},
    {"dequant", "shared_pages=4 lengths=ragged block_size=7"},
    {"dequant", "shared_pages=9 phase=append q_len=5 input=needle:0.1"},
    {"fp8", "path=fp8 phase=append lengths=1x30+20x150+7x7+2*1x64+9x40 batch=6 q_len=20 shared_pages=2"},
};

static void right_kernels_pass(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof attention_cases / sizeof attention_cases[0]; i++) {
        struct setting s;
        struct kvg_row row;
        begin(&s);
        run(&s, attention_cases[i][0], attention_cases[i][1], &row);
        expect_row(&row, KVG_PASSED, "");
        assert_string_equal(row.reason, "");
        assert_string_equal(row.device, "Loopback 1");
        assert_true(row.device_bytes >= row.kv_cache_bytes + 8 * 2 * KVG_GUARD_BYTES);
        assert_int_equal(row.n_device_checked, -1);
        assert_true(isnan(row.device_rel_l2) && isnan(row.time_floor) && isnan(row.sm_clock));
        assert_int_equal(plain_calls, 0);
        assert_int_equal(device.generated, 0);
        kvg_row_free(&row);
        end(&s);
    }
}

/* The whole output is compared, and a part of it with the reference on the host. */
static void right_kernels_pass_where_the_device_makes_the_case(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof attention_cases / sizeof attention_cases[0]; i++) {
        struct setting s;
        struct kvg_row row;
        begin_where(&s, 1);
        s.source.part_bytes = 0; /* one sequence */
        run(&s, attention_cases[i][0], attention_cases[i][1], &row);
        expect_row(&row, KVG_PASSED, "");
        assert_string_equal(row.reason, "");
        assert_true(plain_calls == 1 && device.generated >= 4);
        const int64_t tokens = strstr(attention_cases[i][1], "lengths") ? -1 : row.n_total;
        if (tokens >= 0)
            assert_int_equal(row.n_device_checked, row.n_total);
        assert_true(row.n_device_checked > row.n_checked && row.n_device_checked <= row.n_total);
        assert_true(row.n_checked > 0 && row.n_checked < row.n_total);
        assert_true(row.device_rel_l2 > 0 && row.device_rel_l2 < 0.1);
        assert_true(row.k_saturated >= 0 && row.k_flushed >= 0);
        kvg_row_free(&row);
        end(&s);
    }
}

/* No false alarm, for any input distribution, when the host verifies the smallest part: one sequence of few
 * keys. The allowances for the other sequences are estimated from it, so this is the hardest case. */
static void right_kernels_raise_no_alarm(void **state)
{
    static const char *const inputs[] = {"normal",   "outlier",    "channel_outlier", "sink",
                                         "v_nonneg", "v_shift",    "v_small",         "k_wide",
                                         "q_wide",   "far_logits", "faint",           "needle"};
    struct setting s;
    (void)state;
    begin_where(&s, 1);
    s.source.part_bytes = 0;
    s.options.verify_rows = 2; /* one query head of each KV head */
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
        for (int seed = 0; seed < 2; seed++)
            for (int on_fp8 = 0; on_fp8 < 2; on_fp8++) {
                struct kvg_row row;
                char text[200];
                snprintf(text, sizeof text,
                         "input=%s seed=%d lengths=ragged batch=12 context=%d head_dim=%d%s", inputs[i],
                         1000 * (int)i + seed, seed ? 700 : 60, i % 2 ? 128 : 64, on_fp8 ? " path=fp8" : "");
                run(&s, on_fp8 ? "fp8" : "dequant", text, &row);
                if (row.status != KVG_PASSED && row.status != KVG_MISTRUSTED)
                    fail_msg("%s: %s", row.case_string, row.reason);
                assert_true(row.n_device_checked > row.n_checked);
                kvg_row_free(&row);
            }
    end(&s);
}

/* Numbers of output elements, counted by hand: six sequences of one query, eight heads of 64. The part has
 * sequences 1 (seed mod 6), 0, 5 (the last of those of equal length) and 4. */
static void elements_are_counted(void **state)
{
    struct setting s;
    struct kvg_row row;
    (void)state;
    begin_where(&s, 1);
    run(&s, "dequant", "", &row);
    expect_row(&row, KVG_PASSED, "");
    assert_int_equal(row.n_total, 6 * 8 * 64);
    assert_int_equal(row.n_device_checked, 6 * 8 * 64);
    assert_int_equal(row.n_checked, 4 * 8 * 64);
    assert_true(row.worst_index >= 0 && row.worst_index < row.n_total);
    const int64_t seq = row.worst_index / (8 * 64);
    assert_true(seq == 0 || seq == 1 || seq == 4 || seq == 5);
    kvg_row_free(&row);
    end(&s);
}

static void stores_pass(void **state)
{
    static const char *const cases[] = {"kv_cache_dtype=fp8_e4m3", "kv_cache_dtype=fp8_e5m2 layout=HND",
                                        "kv_cache_dtype=auto scheme=per_tensor calibration=none",
                                        "lengths=ragged scheme=per_tensor"};
    (void)state;
    for (int there = 0; there < 2; there++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            struct setting s;
            struct kvg_row row;
            char text[256];
            begin_where(&s, there);
            snprintf(text, sizeof text, "phase=store path=none %s", cases[i]);
            run(&s, "store", text, &row);
            expect_row(&row, KVG_PASSED, "");
            assert_int_equal(row.n_device_checked, there ? row.n_total : -1);
            assert_true(there ? row.n_checked < row.n_total : row.n_checked == row.n_total);
            kvg_row_free(&row);
            end(&s);
        }
}

static void captured_input_is_mirrored(void **state)
{
    struct setting s;
    (void)state;
    begin_where(&s, 1);
    expect(&s, "dequant", "input=smollm2 layer=0 heads=9/3 batch=2", KVG_PASSED, "");
    assert_int_equal(device.generated, 0);
    end(&s);
}

static void a_profiled_kernel_runs_once(void **state)
{
    struct setting s;
    (void)state;
    begin(&s);
    s.options.profile = 1;
    expect(&s, "dequant", "", KVG_SKIPPED, "profiled: run once");
    make_there(&s);
    end(&s);
    begin(&s);
    s.options.profile = 1;
    make_there(&s);
    expect(&s, "dequant", "", KVG_SKIPPED, "profiled: run once");
    assert_int_equal(plain_calls, 0);
    end(&s);
}

/* A profiler sees what the kernel launches, and not the kernels that fill, hash and compare memory. */
static void only_the_kernel_is_in_the_range(void **state)
{
    char name[32];
    struct setting s;
    (void)state;
    begin(&s);
    s.options.profile = 1;
    depth_in_call = -1;
    expect(&s, "in_range", "", KVG_SKIPPED, "profiled: run once");
    expect(&s, "store", "phase=store", KVG_SKIPPED, "profiled: run once");
    assert_int_equal(depth_in_call, 1);
    assert_int_equal(device.in_range, 0);
    assert_int_equal(kvg_nvtx_depth(), 0);
    end(&s);
    kvg_nvtx_name("kernel=a/b heads=[4]@*", name, sizeof name);
    assert_string_equal(name, "kernel=a:b heads=:4:::");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_kernels_pass),
        cmocka_unit_test(right_kernels_pass_where_the_device_makes_the_case),
        cmocka_unit_test(right_kernels_raise_no_alarm),
        cmocka_unit_test(elements_are_counted),
        cmocka_unit_test(stores_pass),
        cmocka_unit_test(captured_input_is_mirrored),
        cmocka_unit_test(a_profiled_kernel_runs_once),
        cmocka_unit_test(only_the_kernel_is_in_the_range),
    };
    return cmocka_run_group_tests_name("device loopback", tests, set_up, NULL);
}
