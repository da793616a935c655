/* SPDX-License-Identifier: Apache-2.0
 *
 * test_run_files.c: names of files, and the merged file of Google Benchmark.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/cli/run_files.h"

/* Two runs in the same second choose the same name before either has made a file. */
static void two_runs_of_one_second(void **state)
{
    struct kvg_run_files files[2] = {{.journal = NULL}};
    struct kvg_facts run = {0}, machine = {0};
    struct kvg_error error;
    char *argv[] = {"kvgauge", "run", NULL};
    (void)state;
    assert_int_equal(kvg_run_facts_add(&run, "run", 2, argv, "two_at_once", 0), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(kvg_run_files_name(&files[i], NULL, "two_at_once", &error), 0);
    snprintf(files[1].h5, sizeof files[1].h5, "%s", files[0].h5); /* in case a new second has begun */
    snprintf(files[1].journal_path, sizeof files[1].journal_path, "%s", files[0].journal_path);
    for (int i = 0; i < 2; i++)
        assert_int_equal(kvg_run_files_try(&files[i], 0, &error), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(kvg_run_files_create(&files[i], &run, &machine, &error), 0);
    assert_string_not_equal(files[0].journal_path, files[1].journal_path);
    assert_string_not_equal(files[0].h5, files[1].h5);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(access(files[i].journal_path, F_OK), 0);
        kvg_run_files_abandon(&files[i]);
        unlink(files[i].journal_path);
    }
    /* A name that the user chose is refused. */
    struct kvg_run_files named = {.journal = NULL};
    assert_int_equal(kvg_run_files_name(&named, "/dev/null/x.h5", "quick", &error), 0);
    assert_int_equal(kvg_run_files_try(&named, 0, &error), -1);
    kvg_facts_free(&run);
}

static void names_of_a_run(void **state)
{
    struct kvg_run_files files = {.journal = NULL};
    struct kvg_error error;
    char long_name[2 * KVG_PATH_MAX];
    (void)state;
    assert_int_equal(kvg_run_files_name(&files, "a/b.c.h5", "quick", &error), 0);
    assert_string_equal(files.h5, "a/b.c.h5");
    assert_string_equal(files.journal_path, "a/b.c.jsonl");
    assert_int_equal(kvg_run_files_name(&files, "x.jsonl", "quick", &error), 0);
    assert_string_equal(files.h5, "x.h5");
    assert_int_equal(kvg_run_files_name(&files, NULL, "quick", &error), 0);
    assert_non_null(strstr(files.h5, "-quick"));
    assert_int_equal(access(files.h5, F_OK), -1);
    static const char *const bad[] = {"a", "a.hdf5", ".h5", ""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(kvg_run_files_name(&files, bad[i], "quick", &error), -1);
        assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
    }
    memset(long_name, 'a', sizeof long_name);
    strcpy(long_name + sizeof long_name - 4, ".h5");
    assert_int_equal(kvg_run_files_name(&files, long_name, "quick", &error), -1);
    assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
}

static size_t named(const struct kvg_run_files *files, const char *name, double *time)
{
    size_t i, found = 0;
    json_t *entry;
    json_array_foreach(json_object_get(files->benchmarks, "benchmarks"), i, entry)
    {
        if (strcmp(json_string_value(json_object_get(entry, "run_name")), name) != 0)
            continue;
        *time = json_number_value(json_object_get(entry, "real_time"));
        found++;
    }
    return found;
}

/* A case that ran again replaces its earlier entries. */
static void reports_are_merged(void **state)
{
    struct kvg_run_files files = {.benchmark_path = "never written"};
    struct kvg_error error;
    double time = 0;
    (void)state;
    files.benchmarks = json_pack("{s:{}, s:[]}", "context", "benchmarks");
    const char *first =
        "{\"context\":{\"host_name\":\"h\"},\"benchmarks\":[{\"run_name\":\"a\",\"real_time\":1},"
        "{\"run_name\":\"a\",\"real_time\":1}]}";
    const char *second = "{\"context\":{},\"benchmarks\":[{\"run_name\":\"b\",\"real_time\":2}]}";
    const char *third =
        "{\"context\":{\"host_name\":\"i\"},\"benchmarks\":[{\"run_name\":\"a\",\"real_time\":3}]}";
    assert_int_equal(kvg_run_files_add_benchmark(&files, first, &error), 0);
    assert_int_equal(kvg_run_files_add_benchmark(&files, second, &error), 0);
    assert_int_equal(named(&files, "a", &time), 2);
    assert_int_equal(kvg_run_files_add_benchmark(&files, third, &error), 0);
    assert_int_equal(named(&files, "a", &time), 1);
    assert_true(time == 3);
    assert_int_equal(named(&files, "b", &time), 1);
    json_t *context = json_object_get(files.benchmarks, "context");
    assert_string_equal(json_string_value(json_object_get(context, "host_name")), "i");
    assert_int_equal(kvg_run_files_add_benchmark(&files, NULL, &error), 0); /* a case that was not timed */
    assert_int_equal(kvg_run_files_add_benchmark(&files, "no JSON", &error), -1);
    kvg_run_files_abandon(&files);
    assert_int_equal(kvg_run_files_add_benchmark(&files, first, &error), 0); /* without --benchmark_out */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_runs_of_one_second),
        cmocka_unit_test(names_of_a_run),
        cmocka_unit_test(reports_are_merged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
