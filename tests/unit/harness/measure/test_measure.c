/* SPDX-License-Identifier: Apache-2.0
 *
 * test_measure.c: number, order and report of timed calls. Expectations depend on times in two places only:
 * sleeps are much longer than their time budget, and an empty call is much shorter than 100 clock readings.
 *
 * alone: an empty call that is interrupted is not short
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#include "harness/machine/clock.h"
#include "harness/measure/measure.h"
#include "kernels/kernel.h"

#define assert_near(a, b, within) assert_true(fabs((a) - (b)) <= (within))

/* numpy: np.median, np.quantile (linear) and np.median(|x - median|) of these ten. */
static void summary_of_ten(void **state)
{
    const double x[] = {7, 1, 100, 3, 2, 9, 4, 8, 6, 5};
    struct kvg_summary s;
    (void)state;
    kvg_summary_make(x, 10, &s);
    assert_near(s.median, 5.5, 1e-12);
    assert_near(s.min, 1, 0);
    assert_near(s.q1, 3.25, 1e-12);
    assert_near(s.q3, 7.75, 1e-12);
    assert_near(s.mad, 2.5, 1e-12);
    assert_near(x[2], 100, 0); /* the order of the samples is unchanged */
}

static void summary_of_few(void **state)
{
    const double one[] = {3};
    struct kvg_summary s;
    (void)state;
    kvg_summary_make(one, 1, &s);
    assert_near(s.median, 3, 0);
    assert_near(s.q1, 3, 0);
    assert_near(s.mad, 0, 0);
    kvg_summary_make(one, 0, &s);
    assert_true(isnan(s.median) && isnan(s.min) && isnan(s.q1) && isnan(s.q3) && isnan(s.mad));
}

/* Counts the calls, and detects a wrong order of evict, call and after. */
struct counter {
    int64_t evicted, called, checked, fail_at, reject_at;
    int out_of_order;
    int sleep_ms;
};

static void evict(void *context)
{
    struct counter *c = context;
    c->out_of_order |= c->evicted != c->called || c->called != c->checked;
    c->evicted++;
}

static int call(void *context)
{
    struct counter *c = context;
    struct timespec pause = {0, 1000000L * c->sleep_ms};
    if (c->sleep_ms)
        nanosleep(&pause, NULL);
    return ++c->called == c->fail_at ? KVG_EDEVICE : KVG_OK;
}

static int check(void *context)
{
    struct counter *c = context;
    c->out_of_order |= c->checked + 1 != c->called;
    return ++c->checked == c->reject_at;
}

static struct kvg_measurement measurement(struct counter *c)
{
    return (struct kvg_measurement){.name = "a name=with {odd} characters (and) /slashes",
                                    .call = call,
                                    .evict = evict,
                                    .after = check,
                                    .context = c,
                                    .min_time = 100,
                                    .min_samples = 5,
                                    .max_samples = 20};
}

static void no_more_than_the_most(void **state)
{
    struct counter c = {0};
    struct kvg_measurement m = measurement(&c);
    double samples[20];
    int64_t n = 0;
    (void)state;
    assert_int_equal(kvg_measure_calls(&m, samples, &n, NULL), 0);
    assert_int_equal(n, 20); /* min_time (100 s) would need many more */
    assert_int_equal(c.out_of_order, 0);
    assert_int_equal(c.evicted, c.called);
    assert_int_equal(c.checked, c.called);
    assert_true(c.called >= n + 1); /* warm-up calls are not samples */
    for (int64_t i = 0; i < n; i++)
        assert_true(samples[i] >= 0 && samples[i] < 1);
}

static void no_fewer_than_the_least(void **state)
{
    struct counter c = {.sleep_ms = 3};
    struct kvg_measurement m = measurement(&c);
    double samples[20];
    int64_t n = 0;
    (void)state;
    m.min_time = 1e-6;
    assert_int_equal(kvg_measure_calls(&m, samples, &n, NULL), 0);
    assert_int_equal(n, 5);
    for (int64_t i = 0; i < n; i++)
        assert_true(samples[i] >= 0.003);
}

static void contradicting_limits(void **state)
{
    struct counter c = {0};
    struct kvg_measurement m = measurement(&c);
    struct kvg_error error;
    double samples[20];
    int64_t n = 0;
    (void)state;
    m.min_samples = 21;
    assert_int_equal(kvg_measure_calls(&m, samples, &n, &error), -1);
    assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
    assert_int_equal(c.called, 0);
}

static void failing_call(void **state)
{
    double samples[20];
    (void)state;
    for (int64_t at = 1; at <= 12; at += 11) { /* in the warm-up, and in the samples */
        struct counter c = {.fail_at = at};
        struct kvg_measurement m = measurement(&c);
        struct kvg_error error;
        int64_t n = 0;
        assert_int_equal(kvg_measure_calls(&m, samples, &n, &error), -1);
        assert_non_null(strstr(error.text, "returned error -4"));
        assert_int_equal(c.called, at); /* no further call */
    }
}

static void failing_check(void **state)
{
    double samples[20];
    (void)state;
    for (int64_t at = 1; at <= 12; at += 11) {
        struct counter c = {.reject_at = at};
        struct kvg_measurement m = measurement(&c);
        struct kvg_error error;
        int64_t n = 0;
        assert_int_equal(kvg_measure_calls(&m, samples, &n, &error), -1);
        assert_int_equal(error.exit_code, KVG_EXIT_INCORRECT);
        assert_int_equal(c.called, at);
    }
}

/* An empty call is much shorter than 100 clock readings. So a sample is the mean of many calls. */
static void short_calls_are_batched(void **state)
{
    struct counter c = {0};
    struct kvg_measurement m = measurement(&c);
    char method[160];
    double samples[20];
    int64_t n = 0;
    (void)state;
    m.evict = NULL;
    m.after = NULL;
    m.batch = 1;
    assert_int_equal(kvg_measure_calls_described(&m, samples, &n, method, sizeof method, NULL), 0);
    assert_int_equal(n, 20);
    assert_true(c.called > 10 * n);
    assert_non_null(strstr(method, "CLOCK_MONOTONIC_RAW"));
    assert_null(strstr(method, " 1 call per sample"));
    assert_non_null(strstr(method, "calls per sample"));
}

static void single_calls_say_so(void **state)
{
    struct counter c = {.sleep_ms = 2};
    struct kvg_measurement m = measurement(&c);
    char method[160];
    double samples[20];
    int64_t n = 0;
    (void)state;
    m.min_time = 1e-6;
    m.batch = 1;
    assert_int_equal(kvg_measure_calls_described(&m, samples, &n, method, sizeof method, NULL), 0);
    assert_non_null(strstr(method, " 1 call per sample"));
    assert_int_equal(c.called, n + 1); /* one warm-up call, because it took longer than min_time */
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Works for at least 3 ms of CPU time. */
static int work(void *context)
{
    (void)context;
    for (const double end = cpu_seconds() + 3e-3; cpu_seconds() < end;)
        ;
    return KVG_OK;
}

/* A call that sleeps for 4 ms has nearly no CPU time; one that works for 3 ms has 3 ms and little more, also
 * where other processes make its wall time longer. */
static void cpu_time_is_that_of_the_call(void **state)
{
    struct counter c = {.sleep_ms = 4};
    struct kvg_measured measured;
    struct kvg_measurement m = measurement(&c);
    double samples[20];
    int64_t n = 0;
    (void)state;
    m.min_time = 1e-6;
    m.measured = &measured;
    assert_int_equal(kvg_measure_calls(&m, samples, &n, NULL), 0);
    assert_true(measured.cpu_median > 0 && measured.cpu_median < 1e-3);
    assert_true(measured.cpu_q1 <= measured.cpu_median && measured.cpu_median <= measured.cpu_q3);
    m.call = work;
    m.evict = NULL;
    m.after = NULL;
    assert_int_equal(kvg_measure_calls(&m, samples, &n, NULL), 0);
    assert_true(measured.cpu_q1 >= 3e-3 && measured.cpu_median < 5e-3);
}

/* The library's JSON has every sample, and its names do not depend on the number of samples. */
static void report_holds_every_sample(void **state)
{
    struct counter c = {.sleep_ms = 1};
    struct kvg_measurement m = measurement(&c);
    char *report = NULL;
    double samples[20];
    int64_t n = 0, found = 0;
    (void)state;
    m.min_time = 1e-6;
    m.report = &report;
    assert_int_equal(kvg_measure_calls(&m, samples, &n, NULL), 0);
    assert_non_null(report);
    json_error_t why;
    json_t *root = json_loads(report, 0, &why);
    if (!root)
        print_error("%s, line %d of:\n%s\n", why.text, why.line, report);
    assert_non_null(root);
    assert_true(json_is_object(json_object_get(root, "context")));
    json_t *all = json_object_get(root, "benchmarks"), *entry;
    size_t i;
    json_array_foreach(all, i, entry)
    {
        assert_string_equal(json_string_value(json_object_get(entry, "run_name")), m.name);
        if (strcmp(json_string_value(json_object_get(entry, "run_type")), "iteration") != 0)
            continue;
        assert_string_equal(json_string_value(json_object_get(entry, "name")), m.name);
        assert_string_equal(json_string_value(json_object_get(entry, "time_unit")), "ns");
        assert_int_equal(json_integer_value(json_object_get(entry, "iterations")), 1);
        double t = 1e-9 * json_number_value(json_object_get(entry, "real_time"));
        assert_near(t, samples[found], 1e-6 * samples[found]);
        found++;
    }
    assert_int_equal(found, n);
    json_decref(root);
    free(report);
}

/* One benchmark after the other in one process, as in a worker. */
static void many_benchmarks_in_a_row(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        struct counter c = {0};
        struct kvg_measurement m = measurement(&c);
        double samples[20];
        int64_t n = 0;
        assert_int_equal(kvg_measure_calls(&m, samples, &n, NULL), 0);
        assert_int_equal(n, 20);
    }
}

static void clock_goes_forward(void **state)
{
    double last = kvg_now();
    (void)state;
    for (int i = 0; i < 1000; i++) {
        double now = kvg_now();
        assert_true(now >= last);
        last = now;
    }
    assert_true(kvg_timer_floor() >= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(summary_of_ten),
        cmocka_unit_test(summary_of_few),
        cmocka_unit_test(no_more_than_the_most),
        cmocka_unit_test(no_fewer_than_the_least),
        cmocka_unit_test(contradicting_limits),
        cmocka_unit_test(failing_call),
        cmocka_unit_test(failing_check),
        cmocka_unit_test(short_calls_are_batched),
        cmocka_unit_test(single_calls_say_so),
        cmocka_unit_test(cpu_time_is_that_of_the_call),
        cmocka_unit_test(report_holds_every_sample),
        cmocka_unit_test(many_benchmarks_in_a_row),
        cmocka_unit_test(clock_goes_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
