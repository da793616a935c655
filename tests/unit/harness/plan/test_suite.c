/* SPDX-License-Identifier: Apache-2.0
 *
 * test_suite.c: suite files: the axes of right ones, and line and column in the errors for wrong ones. Lines
 * and columns are counted by hand, from 1.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/plan/suite.h"

static const char right[] = "# a comment\n"
                            "name: mine\n"
                            "description: 'two sweeps: one of them long'\n"
                            "defaults:\n"
                            "  context: [1k, 8k]\n"
                            "  batch: 2\n"
                            "sweeps:\n"
                            "  - phase: decode\n"
                            "    kv-cache-dtype: [auto, fp8]\n"
                            "  - name: the second\n"
                            "    context: 1k:4k:*2, 6k\n"
                            "    kernel: \"cpu/*\"\n"
                            "    heads: [32/8]\n"
                            "  - {like: the second, batch: 8}\n";

static void expect_values(const struct kvg_values *values, const char *wanted)
{
    char joined[256] = "";
    for (int64_t i = 0; i < values->count; i++)
        snprintf(joined + strlen(joined), sizeof joined - strlen(joined), "%s%s", i ? "|" : "",
                 values->text[i]);
    assert_string_equal(joined, wanted);
}

static void a_right_suite_is_read(void **unused)
{
    struct kvg_suite suite;
    struct kvg_error error = {0};
    (void)unused;
    if (kvg_suite_parse("dir/file.yaml", right, strlen(right), &suite, &error))
        fail_msg("%s", error.text);
    assert_string_equal(suite.name, "mine");
    assert_string_equal(suite.description, "two sweeps: one of them long");
    assert_int_equal(suite.count, 3);
    assert_int_equal(suite.sweeps[0].line, 8);
    assert_null(suite.sweeps[0].name);
    expect_values(&suite.sweeps[0].axis[KVG_AXIS_PHASE], "decode");
    expect_values(&suite.sweeps[0].axis[KVG_AXIS_KV_CACHE_DTYPE], "auto|fp8");
    expect_values(&suite.sweeps[0].axis[KVG_AXIS_CONTEXT], "1k|8k"); /* text: libcyaml would read 1 and 8 */
    expect_values(&suite.sweeps[0].axis[KVG_AXIS_BATCH], "2");
    assert_int_equal(suite.sweeps[0].axis[KVG_AXIS_HEADS].count, 0);
    assert_int_equal(suite.sweeps[1].line, 10);
    assert_string_equal(suite.sweeps[1].name, "the second");
    expect_values(&suite.sweeps[1].axis[KVG_AXIS_CONTEXT], "1024|2048|4096|6k"); /* not the defaults too */
    expect_values(&suite.sweeps[1].axis[KVG_AXIS_KERNEL], "cpu/*");
    expect_values(&suite.sweeps[1].axis[KVG_AXIS_BATCH], "2");
    kvg_suite_free(&suite);
    kvg_suite_free(&suite); /* harmless */
}

static void the_file_names_a_nameless_suite(void **unused)
{
    static const char text[] = "sweeps: [{context: 8}]";
    struct kvg_suite suite;
    (void)unused;
    assert_int_equal(kvg_suite_parse("some/where/night.yaml", text, strlen(text), &suite, NULL), 0);
    assert_string_equal(suite.name, "night");
    kvg_suite_free(&suite);
}

static void anchors_and_aliases_work(void **unused)
{
    static const char text[] = "sweeps:\n"
                               "  - context: &lengths [1k, 2k]\n"
                               "  - context: *lengths\n";
    struct kvg_suite suite;
    struct kvg_error error = {0};
    (void)unused;
    if (kvg_suite_parse("x.yaml", text, strlen(text), &suite, &error))
        fail_msg("%s", error.text);
    expect_values(&suite.sweeps[1].axis[KVG_AXIS_CONTEXT], "1k|2k");
    kvg_suite_free(&suite);
}

/* Own axes, then those of the sweep above, to any depth, then the defaults. */
static void a_sweep_is_like_one_above(void **unused)
{
    static const char text[] = "defaults: {heads: 8/2, batch: 3}\n"
                               "sweeps:\n"
                               "  - {name: first, phase: decode, context: [1k, 2k], batch: 4}\n"
                               "  - {name: 'the second', like: first, context: 8k, head_dim: 64}\n"
                               "  - {like: the second, batch: 1}\n"
                               "  - {context: 4k}\n";
    struct kvg_suite suite;
    struct kvg_error error = {0};
    (void)unused;
    if (kvg_suite_parse("x.yaml", text, strlen(text), &suite, &error))
        fail_msg("%s", error.text);
    assert_int_equal(suite.count, 4);
    static const char *const wanted[4][5] = {{"decode", "1k|2k", "4", "", "8/2"},
                                             {"decode", "8k", "4", "64", "8/2"},
                                             {"decode", "8k", "1", "64", "8/2"},
                                             {"", "4k", "3", "", "8/2"}};
    static const enum kvg_axis axes[5] = {KVG_AXIS_PHASE, KVG_AXIS_CONTEXT, KVG_AXIS_BATCH, KVG_AXIS_HEAD_DIM,
                                          KVG_AXIS_HEADS};
    for (int s = 0; s < 4; s++)
        for (int a = 0; a < 5; a++)
            expect_values(&suite.sweeps[s].axis[axes[a]], wanted[s][a]);
    assert_string_equal(suite.sweeps[1].name, "the second");
    assert_null(suite.sweeps[2].name); /* a name is not inherited */
    kvg_suite_free(&suite);
}

static void wrong_suites_say_where(void **unused)
{
    static const struct {
        const char *text, *where, *says;
    } table[] = {
        {"", "x.yaml:1:1:", "empty"},
        {"# nothing\n", "x.yaml:1:1:", "empty"},
        {"sweeps:\n  - phase: [decode\n", "x.yaml:3:1:", "expected ',' or ']'"},
        {"sweeps:\n  - phase: decode\n    context: 1k\n   batch: 2\n",
         "x.yaml:4:4:", "expected '-' indicator"},
        {"sweeps:\n\t- phase: decode\n", "x.yaml:2:1:", "cannot start any token"},
        {"- a\n- b\n", "x.yaml:1:1:", "a suite is a map"},
        {"just text\n", "x.yaml:1:1:", "a suite is a map"},
        {"name: x\n", "x.yaml:1:1:", "sweeps is missing"},
        {"sweeps:\n", "x.yaml:1:8:", "sweeps: a list would be right"},
        {"sweeps: []\n", "x.yaml:1:9:", "nothing would run"},
        {"sweeps: 8k\n", "x.yaml:1:9:", "sweeps: a list would be right"},
        {"sweep:\n  - context: 1k\n", "x.yaml:1:1:", "did you mean 'sweeps'?"},
        {"Sweeps:\n  - context: 1k\n", "x.yaml:1:1:", "did you mean 'sweeps'?"},
        {"sweeps:\n  - contxt: 1k\n", "x.yaml:2:5:", "did you mean 'context'?"},
        {"sweeps:\n  - zzzzzzzzzzz: 1k\n", "x.yaml:2:5:", "no key of a sweep"},
        {"defaults: {nme: 1k}\nsweeps: [{context: 1k}]\n", "x.yaml:1:12:", "no key of defaults"},
        {"defaults: {name: x}\nsweeps: [{context: 1k}]\n", "x.yaml:1:12:", "no key of defaults"},
        {"defaults: 3\nsweeps: [{context: 1k}]\n", "x.yaml:1:11:", "a map of axes"},
        {"sweeps:\n  - decode\n", "x.yaml:2:5:", "a map of axes"},
        {"sweeps:\n  - context: 1k\n    context: 2k\n", "x.yaml:3:5:", "twice in this map, first in line 2"},
        {"sweeps:\n  - kv_cache_dtype: auto\n    kv-cache-dtype: fp8\n", "x.yaml:3:5:", "twice"},
        {"name: a\nname: b\nsweeps: [{context: 1k}]\n", "x.yaml:2:1:", "twice"},
        {"sweeps:\n  - context: 1q\n", "x.yaml:2:14:", "'1q' is not a whole number"},
        {"sweeps:\n  - context:\n      - 1k\n      - 1q\n", "x.yaml:4:9:", "'1q'"},
        {"sweeps:\n  - context: [1k, 8kk]\n", "x.yaml:2:19:", "'8kk'"},
        {"sweeps:\n  - context: []\n", "x.yaml:2:14:", "list is empty"},
        {"sweeps:\n  - context:\n    batch: 2\n", "x.yaml:2:13:", "context: one value"},
        {"sweeps:\n  - context: {a: b}\n", "x.yaml:2:14:", "not a map"},
        {"sweeps:\n  - context: [[1k]]\n", "x.yaml:2:15:", "context: one value"},
        {"sweeps:\n  - [context]: 1k\n", "x.yaml:2:5:", "a key: one value"},
        {"sweeps:\n  - scheme: per_hed\n", "x.yaml:2:13:", "did you mean 'per_head'?"},
        {"sweeps:\n  - input: nromal\n", "x.yaml:2:12:", "did you mean 'normal'?"},
        {"sweeps: [{context: 1k}]\n---\nsweeps: [{context: 1k}]\n", "x.yaml:2:1:", "second document"},
        {"sweeps: [{context: 1k}]\n---\nname: [\n", "x.yaml:4:1:", "node content"},
        {"name: \"0123456789012345678901234567890123456789012345678901234567890123\"\n",
         "x.yaml:1:7:", "longer"},
        {"name: [a]\n", "x.yaml:1:7:", "name: one value"},
        {"sweeps:\n  - name: \"a\\0b\"\n", "x.yaml:2:11:", "NUL"},
        {"sweeps:\n  - context: *nowhere\n", "x.yaml:2:14:", "undefined alias"},
        {"sweeps:\n  - {name: a, context: 1k}\n  - {like: b, context: 2k}\n",
         "x.yaml:3:12:", "no sweep above this one is called 'b'"},
        {"sweeps:\n  - {name: decode, context: 1k}\n  - {like: decod, context: 2k}\n",
         "x.yaml:3:12:", "did you mean 'decode'?"},
        {"sweeps:\n  - {name: a, like: a, context: 1k}\n",
         "x.yaml:2:21:", "no sweep above this one is called 'a'"},
        {"sweeps:\n  - {name: a, like: b}\n  - {name: b, like: a}\n", "x.yaml:2:21:", "no sweep above"},
        {"sweeps:\n  - {name: a, context: 1k}\n  - {name: a, context: 2k}\n",
         "x.yaml:3:12:", "the sweep in line 2 is called 'a' already"},
        {"sweeps:\n  - {like: [a], context: 1k}\n", "x.yaml:2:12:", "like: one value"},
        {"sweeps:\n  - {lik: a, context: 1k}\n", "x.yaml:2:6:", "did you mean 'like'?"},
        {"defaults: {like: a}\nsweeps: [{context: 1k}]\n", "x.yaml:1:12:", "no key of defaults"},
        {"sweeps: &a\n  - *a\n", "x.yaml:1:9:", "a map of axes"}, /* a list that holds itself */
        {"sweeps:\n  - context: \xff\n", "x.yaml:2:14:", "UTF-8"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct kvg_suite suite;
        struct kvg_error error = {0};
        if (kvg_suite_parse("x.yaml", table[i].text, strlen(table[i].text), &suite, &error) == 0)
            fail_msg("taken:\n%s", table[i].text);
        assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
        if (strncmp(error.text, table[i].where, strlen(table[i].where)) || !strstr(error.text, table[i].says))
            fail_msg("'%s' is not '%s ... %s' for:\n%s", error.text, table[i].where, table[i].says,
                     table[i].text);
    }
}

/* Cut at any byte, or with any byte changed: no crash, no leak (under sanitizers), and an error or a suite.
 */
static void damaged_suites_are_taken_or_refused(void **unused)
{
    (void)unused;
    for (size_t cut = 0; cut < sizeof right; cut++) {
        struct kvg_suite suite;
        struct kvg_error error = {0};
        if (kvg_suite_parse("x.yaml", right, cut, &suite, &error) == 0)
            kvg_suite_free(&suite);
        else
            assert_true(*error.text != '\0');
    }
    static const char bytes[] = "\0\n\t:-[]{},&*#!|>'\"%@`\xc3\xff";
    for (size_t at = 0; at < sizeof right - 1; at++)
        for (size_t b = 0; b < sizeof bytes - 1; b++) {
            char text[sizeof right];
            struct kvg_suite suite;
            struct kvg_error error = {0};
            memcpy(text, right, sizeof right);
            text[at] = bytes[b];
            if (kvg_suite_parse("x.yaml", text, sizeof right - 1, &suite, &error) == 0)
                kvg_suite_free(&suite);
            else
                assert_true(*error.text != '\0');
        }
}

static void files_are_read(void **unused)
{
    char path[] = "/tmp/kvg-suite-XXXXXX";
    struct kvg_suite suite;
    struct kvg_error error = {0};
    (void)unused;
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, right, sizeof right - 1), sizeof right - 1);
    close(file);
    assert_int_equal(kvg_suite_read(path, &suite, &error), 0);
    assert_int_equal(suite.count, 3);
    kvg_suite_free(&suite);
    assert_int_equal(truncate(path, 2 << 20), 0);
    assert_int_equal(kvg_suite_read(path, &suite, &error), -1);
    assert_non_null(strstr(error.text, "longer than"));
    unlink(path);
    assert_int_equal(kvg_suite_read(path, &suite, &error), -1);
    assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
    assert_non_null(strstr(error.text, "No such file"));
    assert_int_equal(kvg_suite_read("/tmp", &suite, &error), -1);
    assert_non_null(strstr(error.text, "folder"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_right_suite_is_read),    cmocka_unit_test(the_file_names_a_nameless_suite),
        cmocka_unit_test(anchors_and_aliases_work), cmocka_unit_test(a_sweep_is_like_one_above),
        cmocka_unit_test(wrong_suites_say_where),   cmocka_unit_test(damaged_suites_are_taken_or_refused),
        cmocka_unit_test(files_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
