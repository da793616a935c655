/* SPDX-License-Identifier: Apache-2.0
 *
 * test_run_command.c: the command line of `kvgauge run`: which flags of Google Benchmark it takes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/cli/commands.h"
#include "harness/cli/run_command.h"

/* The error for an unknown flag lists those that are taken; --help describes the same ones (but for
 * out_format, which has one value). */
static void help_and_error_list_the_same_flags(void **state)
{
    char *argv[] = {"kvgauge run", "--benchmark_unknown=1", NULL};
    struct kvg_run_command command;
    struct kvg_error error = {0};
    int64_t described = 0, taken = 0;
    (void)state;
    assert_int_equal(kvg_run_command_read(2, argv, &command, &error), -1);
    assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
    const char *list = strstr(error.text, "those are ");
    assert_non_null(list);
    for (const char *at = list; (at = strchr(at, '=')); at++)
        taken += at[1] != 'V'; /* "_context=KEY=VALUE" is one */
    for (const struct argp_option *o = kvg_run_argp.options; o->name || o->doc; o++) {
        static const char start[] = "--benchmark";
        char name[64];
        if (!o->name || strncmp(o->name, start, sizeof start - 1) != 0)
            continue;
        const char *rest = o->name + sizeof start - 1; /* "_out=FILE.json" */
        snprintf(name, sizeof name, "%.*s=", (int)strcspn(rest, "="), rest);
        if (!strstr(list, name))
            fail_msg("'%s' lacks %s", list, name);
        described++;
    }
    assert_int_equal(described + 1, taken);
    kvg_run_command_free(&command);
}

static void flags_are_options_of_the_run(void **state)
{
    char *argv[] = {"kvgauge run", "--benchmark_repetitions=7", "--context",
                    "1k",          "--benchmark_min_time=0.5s", "--benchmark_out=a b.json",
                    NULL};
    struct kvg_run_command command;
    struct kvg_error error = {0};
    (void)state;
    assert_int_equal(kvg_run_command_read(6, argv, &command, &error), 0);
    assert_int_equal(command.run.min_samples, 7);
    assert_int_equal(command.run.max_samples, 7);
    assert_true(command.run.min_time == 0.5);
    assert_string_equal(command.benchmark_out, "a b.json");
    assert_string_equal(command.plan.request.axis[KVG_AXIS_CONTEXT], "1k");
    kvg_run_command_free(&command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_and_error_list_the_same_flags),
        cmocka_unit_test(flags_are_options_of_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
