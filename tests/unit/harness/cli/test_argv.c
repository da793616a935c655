/* SPDX-License-Identifier: Apache-2.0
 *
 * test_argv.c: arguments to a line and back, compared with a POSIX shell.
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

#include "harness/cli/argv.h"

static void command_lines_come_back(void **state)
{
    char *argv[] = {"kvgauge",
                    "--suite",
                    "quick",
                    "--filter",
                    "-smollm2|(a b)$",
                    "it's",
                    "$HOME `id`",
                    "back\\slash \"q\"",
                    "",
                    "*.so",
                    "a;b&c<d>e#f~",
                    "new\nline",
                    "--heads=32/8",
                    "{x,y}",
                    NULL};
    int n = (int)(sizeof argv / sizeof argv[0]) - 1, back = 0;
    (void)state;
    char *line = kvg_argv_quote(n, argv);
    assert_non_null(line);
    assert_memory_equal(line, "kvgauge --suite quick --filter '-smollm2|(a b)$' ", 49);
    char **again = kvg_argv_unquote(line, &back);
    assert_non_null(again);
    assert_int_equal(back, n);
    for (int i = 0; i < n; i++)
        assert_string_equal(again[i], argv[i]);
    assert_null(again[n]);
    kvg_argv_free(again);
    free(line);
}

static void no_command_runs_out_of_a_journal(void **state)
{
    int n;
    (void)state;
    assert_null(kvg_argv_unquote("kvgauge run $(touch /tmp/kvg_was_here)", &n));
    assert_null(kvg_argv_unquote("kvgauge run `touch /tmp/kvg_was_here`", &n));
    assert_int_equal(access("/tmp/kvg_was_here", F_OK), -1);
}

/* Each word is one that wordexp(3) refuses or changes. */
static void nothing_is_expanded(void **state)
{
    char *argv[] = {"'lead", "$HOME", "${x:-y}", "~", "a\nb", "\"", "\\", NULL};
    const int n = (int)(sizeof argv / sizeof argv[0]) - 1;
    (void)state;
    for (int json = 0; json < 2; json++) {
        int back = -1;
        char *text = json ? kvg_argv_to_json(n, argv) : kvg_argv_quote(n, argv);
        assert_non_null(text);
        if (json)
            assert_string_equal(text, "[\"'lead\",\"$HOME\",\"${x:-y}\",\"~\",\"a\\nb\",\"\\\"\",\"\\\\\"]");
        char **again = kvg_argv_from_text(text, &back);
        assert_non_null(again);
        assert_int_equal(back, n);
        for (int i = 0; i < n; i++)
            assert_string_equal(again[i], argv[i]);
        kvg_argv_free(again);
        free(text);
    }
}

static void what_is_no_list_of_words_is_refused(void **state)
{
    static const char *const texts[] = {"[\"run\"", "[1]",  "[\"a\", null]", "a 'b",
                                        "a\\",      "a $b", "a;b",           "*.so"};
    int n;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_null(kvg_argv_from_text(texts[i], &n));
    char *latin1[] = {"caf\xe9", NULL};
    assert_null(kvg_argv_to_json(1, latin1));
}

/* printf of a POSIX shell prints the word between brackets. */
static void a_shell_reads_a_quoted_word(void **state)
{
    static const char *const words[] = {"plain-1.so", "a b",      "it's",  "''",    "",           "$HOME",
                                        "`id`",       "a\\b",     "\"q\"", "~",     "*?[x]",      "new\nline",
                                        "tab\there",  "!history", "#no",   "a;b&c", "{x,y}=(1|2)"};
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        char command[256], wanted[64], got[64] = "";
        char *quoted = kvg_argv_quote_word(words[i]);
        assert_non_null(quoted);
        snprintf(command, sizeof command, "printf '[%%s]' %s", quoted);
        snprintf(wanted, sizeof wanted, "[%s]", words[i]);
        FILE *shell = popen(command, "r");
        assert_non_null(shell);
        got[fread(got, 1, sizeof got - 1, shell)] = '\0';
        assert_int_equal(pclose(shell), 0);
        assert_string_equal(got, wanted);
        free(quoted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_lines_come_back),
        cmocka_unit_test(a_shell_reads_a_quoted_word),
        cmocka_unit_test(no_command_runs_out_of_a_journal),
        cmocka_unit_test(nothing_is_expanded),
        cmocka_unit_test(what_is_no_list_of_words_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
