/* SPDX-License-Identifier: Apache-2.0
 *
 * test_rates.c: rates and shares of the roofs, with times and roofs set by hand. A time that no machine can
 * reach makes the row suspect.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/execute/rates.h"
#include "harness/measure/work.h"
#include "harness/prepare/prepare.h"

#define assert_near(a, b) assert_true(fabs((a) - (b)) <= 1e-9 * fabs((double)(b)))

/* A row after timing: 64 keys, 2 KV heads of 32, 4 query heads, e4m3 (or a store of them). */
struct fixture {
    struct kvg_case c;
    struct kvg_row row;
    struct kvg_rating rating;
    double roof_again; /* the value of every roof when it is measured again */
    int taken;         /* how often the roofs were measured again */
};

/* As in the harness, the higher of two measurements counts. */
static void take_roofs(void *context, int again)
{
    struct fixture *f = context;
    double *const roofs[] = {&f->row.read_roof, &f->row.gather_roof, &f->row.copy_roof, &f->row.cache_roof,
                             &f->row.flop_roof};
    (void)again;
    f->taken++;
    for (size_t i = 0; i < sizeof roofs / sizeof roofs[0]; i++)
        *roofs[i] = fmax(*roofs[i], f->roof_again);
}

static void set_up(struct fixture *f, const char *phase, const char *cache_state, int measure_roofs)
{
    char text[KVG_CASE_STRING_MAX];
    struct kvg_prepared prepared;
    struct kvg_error error;
    memset(f, 0, sizeof *f);
    snprintf(text, sizeof text,
             "kernel=none phase=%s path=%s kv_cache_dtype=fp8_e4m3 scheme=per_tensor calibration=none "
             "input=normal "
             "batch=1 context=64 heads=4/2 head_dim=32 block_size=16 layout=NHD threads=1 cache_state=%s",
             phase, strcmp(phase, "store") == 0 ? "none" : "dequant", cache_state);
    if (kvg_case_parse(text, &f->c, &error))
        fail_msg("%s", error.text);
    assert_int_equal(kvg_row_init(&f->row), 0);
    f->row.status = KVG_PASSED;
    f->rating = (struct kvg_rating){.c = &f->c,
                                    .row = &f->row,
                                    .cache_bytes = 1 << 20,
                                    .take_roofs = measure_roofs ? take_roofs : NULL,
                                    .context = f};
    if (kvg_prepared_make(&f->c, NULL, &prepared, &error))
        fail_msg("%s", error.text);
    kvg_work_count(&prepared, &f->row);
    kvg_prepared_free(&prepared);
}

static void tear_down(struct fixture *f)
{
    kvg_row_free(&f->row);
}

static void set_roofs(struct kvg_row *row)
{
    row->read_roof = 10e9;
    row->gather_roof = 8e9;
    row->copy_roof = 16e9;
    row->cache_roof = 100e9;
    row->flop_roof = 50e9;
}

static void shares_of_a_cold_decode(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f, "decode", "cold", 0);
    assert_int_equal(f.row.bytes_moved, 2 * 64 * 2 * 32);
    assert_int_equal(f.row.flops, 4 * 64 * 4 * 32);
    set_roofs(&f.row);
    f.row.time_median = 8192 / 4e9; /* 4 GB/s, and 32768 flops in the same time: 16 GFLOP/s */
    kvg_rates_fill(&f.rating);
    assert_int_equal(f.row.status, KVG_PASSED);
    assert_near(f.row.kv_bytes_per_second, 4e9);
    assert_near(f.row.flops_per_second, 16e9);
    assert_near(f.row.pct_read_roof, 40);
    assert_near(f.row.pct_gather_roof, 50);
    assert_near(f.row.pct_flop_roof, 32);
    assert_near(f.row.pct_roofline, 40); /* the bytes take longer than the operations */
    f.row.flop_roof = 20e9;
    kvg_rates_fill(&f.rating);
    assert_near(f.row.pct_roofline, 80); /* now the operations take longer */
    tear_down(&f);
}

static void shares_of_a_hot_decode(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f, "decode", "hot", 0);
    set_roofs(&f.row);
    f.row.time_median = 8192 / 40e9;
    f.row.flop_roof = 1e15;
    kvg_rates_fill(&f.rating);
    assert_near(f.row.pct_roofline, 40); /* of the cache roof: 8 KiB fit into the cache */
    assert_true(isnan(f.row.pct_read_roof) && isnan(f.row.pct_gather_roof));
    tear_down(&f);
}

static void shares_of_a_store(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f, "store", "cold", 0);
    /* 64 tokens, K and V, 2 heads of 32: two bytes read and one written; padding tokens move nothing */
    assert_int_equal(f.row.bytes_moved, 2 * 64 * 2 * 32 * 3);
    assert_int_equal(f.row.flops, -1);
    set_roofs(&f.row);
    f.row.time_median = 24576 / 4e9;
    kvg_rates_fill(&f.rating);
    assert_near(f.row.kv_bytes_per_second, 4e9);
    assert_near(f.row.pct_roofline, 25); /* of the copy roof */
    assert_true(isnan(f.row.flops_per_second) && isnan(f.row.pct_read_roof) && isnan(f.row.pct_flop_roof));
    tear_down(&f);
}

static void no_throughput_unless_passed(void **state)
{
    struct fixture f;
    (void)state;
    for (int status = KVG_INCORRECT; status < KVG_STATUS_COUNT; status++) {
        set_up(&f, "decode", "cold", 0);
        set_roofs(&f.row);
        f.row.time_median = 1e-3;
        f.row.status = status;
        kvg_rates_fill(&f.rating);
        assert_true(isnan(f.row.kv_bytes_per_second) && isnan(f.row.flops_per_second));
        assert_true(isnan(f.row.pct_read_roof) && isnan(f.row.pct_gather_roof) &&
                    isnan(f.row.pct_flop_roof) && isnan(f.row.pct_roofline));
        assert_near(f.row.time_median, 1e-3);
        tear_down(&f);
    }
}

/* 8 KiB in a picosecond is more than any memory or cache can deliver. The row keeps the time and has no
 * rates. */
static void faster_than_the_machine_is_suspect(void **state)
{
    static const char *const states[] = {"cold", "hot"}, *const phases[] = {"decode", "store"};
    struct fixture f;
    (void)state;
    for (int i = 0; i < 4; i++) {
        set_up(&f, phases[i / 2], states[i % 2], 1);
        set_roofs(&f.row);
        f.row.time_median = 1e-12;
        kvg_rates_fill(&f.rating);
        assert_int_equal(f.row.status, KVG_SUSPECT);
        assert_non_null(strstr(f.row.reason, "times the highest roof for "));
        assert_true(strtod(f.row.reason, NULL) > 1000); /* the ratio is stated */
        assert_true(isnan(f.row.kv_bytes_per_second) && isnan(f.row.pct_roofline));
        assert_near(f.row.time_median, 1e-12);
        assert_int_equal(f.taken, 2); /* before the row became suspect */
        tear_down(&f);
    }
}

/* A hot case that does not fit into the cache is compared with the memory roof. */
static void a_hot_case_beyond_the_cache(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f, "decode", "hot", 0);
    set_roofs(&f.row);
    f.rating.cache_bytes = 8191; /* one byte too few */
    f.row.time_median = 8192 / 4e9;
    f.row.flop_roof = 1e15;
    kvg_rates_fill(&f.rating);
    assert_near(f.row.pct_roofline, 40); /* 4 of 10 GB/s */
    tear_down(&f);
}

/* A gather roof below the rate of a cold case is measured again, and the higher value counts. */
static void low_roofs_are_measured_again(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f, "decode", "cold", 1);
    f.row.read_roof = f.row.gather_roof = f.row.copy_roof = f.row.cache_roof = f.row.flop_roof = 1;
    f.roof_again = 1e6;
    f.row.time_median = 0.1; /* 81.92 kB/s and 327.68 kflop/s: beyond 1, below 1e6 */
    kvg_rates_fill(&f.rating);
    assert_int_equal(f.row.status, KVG_PASSED);
    assert_int_equal(f.taken, 1);
    assert_near(f.row.pct_read_roof, 8.192);
    assert_near(f.row.pct_flop_roof, 32.768);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_of_a_cold_decode),
        cmocka_unit_test(shares_of_a_hot_decode),
        cmocka_unit_test(shares_of_a_store),
        cmocka_unit_test(no_throughput_unless_passed),
        cmocka_unit_test(faster_than_the_machine_is_suspect),
        cmocka_unit_test(a_hot_case_beyond_the_cache),
        cmocka_unit_test(low_roofs_are_measured_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
