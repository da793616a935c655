/* SPDX-License-Identifier: Apache-2.0
 *
 * test_benchmark_flags.c: which --benchmark_* flags are taken, and what is said of the others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "harness/cli/benchmark_flags.h"

static void good_flags(void **state)
{
    const char *flags[] = {"--benchmark_out=a.json",
                           "--benchmark_out_format=json",
                           "--benchmark_min_time=0.5s",
                           "--benchmark_repetitions=9",
                           "--benchmark_time_unit=us",
                           "--benchmark_context=a=b",
                           "--benchmark_min_warmup_time=0.1",
                           "--benchmark_report_aggregates_only=true",
                           NULL};
    struct kvg_run_options options;
    const char *out;
    (void)state;
    kvg_run_options_default(&options);
    assert_int_equal(kvg_benchmark_flags(flags, &options, &out, NULL), 0);
    assert_string_equal(out, "a.json");
    assert_true(options.min_time == 0.5);
    assert_int_equal(options.min_samples, 9);
    assert_int_equal(options.max_samples, 9);
    assert_int_equal(kvg_benchmark_flags(NULL, &options, &out, NULL), 0);
    assert_null(out);
}

static void bad_flags(void **state)
{
    static const struct {
        const char *flag, *said;
    } bad[] = {{"--benchmark_filter=x", "use --filter"},
               {"--benchmark_list_tests", "kvgauge list"},
               {"--benchmark_enable_random_interleaving=true", "one case at a time"},
               {"--benchmark_nonsense=1", "not a flag that is passed on"},
               {"--benchmark_out=", "name of a file"},
               {"--benchmark_out_format=csv", "json"},
               {"--benchmark_min_time=soon", "a number from 0"},
               {"--benchmark_min_time=-1", "a number from 0"},
               {"--benchmark_min_time=nan", "a number from 0"},
               {"--benchmark_repetitions=0", "a number from 1 to 256"},
               {"--benchmark_repetitions=257", "a number from 1 to 256"},
               {"--benchmark_time_unit=h", "ns, us, ms or s"},
               {"--benchmark_context=a", "KEY=VALUE"},
               {"--benchmark_report_aggregates_only=maybe", "true or false"}};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *flags[] = {bad[i].flag, NULL}, *out;
        struct kvg_run_options options;
        struct kvg_error error;
        kvg_run_options_default(&options);
        assert_int_equal(kvg_benchmark_flags(flags, &options, &out, &error), -1);
        assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
        assert_non_null(strstr(error.text, bad[i].said));
        assert_non_null(strstr(error.text, bad[i].flag));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_flags),
        cmocka_unit_test(bad_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
