/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lengths.c: lists of lengths, written and as files, what follows from them, and the cases that are refused.
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

#include "tests/unit/random_case.h"

#define BASE "kernel=best kv_cache_dtype=fp8_e4m3 heads=4/2 head_dim=64 cache_state=none threads=1 "

static void lists_have_one_text(void **unused)
{
    static const char *const table[][2] = {
        {"1x4096", "1x4096"},
        {"1x4k+512x8k", "1x4096+512x8192"},
        {"1x4096+1x4096+1x4096", "3*1x4096"},
        {"2*1x5+1x5+0x0", "3*1x5+0x0"},
        {"01x007+1x7", "2*1x7"},
        {"1x1M", "1x1048576"},
        {"1x2+1x3+1x2", "1x2+1x3+1x2"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char list[KVG_LIST_MAX], again[KVG_LIST_MAX];
        struct kvg_error error = {0};
        if (kvg_list_parse(table[i][0], list, &error))
            fail_msg("%s", error.text);
        assert_string_equal(list, table[i][1]);
        assert_int_equal(kvg_list_parse(list, again, &error), 0);
        assert_string_equal(again, list);
    }
}

static void entries_and_sums(void **unused)
{
    static const int64_t want[][2] = {{1, 10}, {1, 10}, {1, 10}, {7, 20}, {0, 0}, {5, 5}, {0, 0}};
    struct kvg_list_sums sums;
    (void)unused;
    for (int64_t i = 0; i < 7; i++) {
        int64_t q_len = -1, context = -1;
        kvg_list_entry("3*1x10+7x20+0x0+5x5", i, &q_len, &context);
        assert_int_equal(q_len, want[i][0]);
        assert_int_equal(context, want[i][1]);
    }
    kvg_list_sum("3*1x10+7x20+0x0+5x5", &sums);
    assert_int_equal(sums.sequences, 6);
    assert_int_equal(sums.total_q, 15);
    assert_int_equal(sums.total_kv, 55);
    assert_int_equal(sums.max_q_len, 7);
    assert_int_equal(sums.max_context, 20);
    assert_int_equal(sums.whole, 0);
}

static void a_list_sets_the_case(void **unused)
{
    static const struct {
        const char *list;
        enum kvg_phase phase;
        int64_t batch, q_len, context, total_q, total_kv;
    } table[] = {
        {"1x100+2*1x50", KVG_PHASE_DECODE, 3, 1, 100, 3, 200},
        {"1x100+0x7", KVG_PHASE_DECODE, 2, 1, 100, 1, 107},
        {"20x20+9x9", KVG_PHASE_PREFILL, 2, 20, 20, 29, 29},
        {"1x100+20x20", KVG_PHASE_APPEND, 2, 20, 100, 21, 120},
        {"64x64+1x10", KVG_PHASE_APPEND, 2, 64, 64, 65, 74},
        {"5x9", KVG_PHASE_APPEND, 1, 5, 9, 5, 9},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char text[KVG_CASE_STRING_MAX], again[KVG_CASE_STRING_MAX];
        struct kvg_case c, back;
        struct kvg_error error = {0};
        struct kvg_problem p;
        snprintf(text, sizeof text, BASE "lengths=%s", table[i].list);
        if (complete_case(text, &c, &error))
            fail_msg("%s", error.text);
        assert_int_equal(c.phase, table[i].phase);
        assert_int_equal(c.batch, table[i].batch);
        assert_int_equal(c.q_len, table[i].q_len);
        assert_int_equal(c.context, table[i].context);
        kvg_case_problem(&c, &p);
        assert_int_equal(p.total_q, table[i].total_q);
        assert_int_equal(p.total_kv, table[i].total_kv);
        assert_int_equal(p.max_q_len, table[i].q_len);
        assert_int_equal(p.max_seq_len, table[i].context);
        assert_int_equal(p.features, 0);
        kvg_case_format(&c, text);
        assert_int_equal(complete_case(text, &back, &error), 0);
        kvg_case_format(&back, again);
        assert_string_equal(again, text);
        assert_true(same_case(&c, &back));
    }
}

/* Writes a file and reads it as a list. */
static int read_file(const char *content, size_t size, char *list, struct kvg_error *error)
{
    char path[] = "/tmp/kvg_lengths_XXXXXX", value[64];
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, size), (ssize_t)size);
    close(fd);
    snprintf(value, sizeof value, "@%s", path);
    memset(error, 0, sizeof *error);
    const int failed = kvg_list_parse(value, list, error);
    unlink(path);
    return failed;
}

static void files_are_read(void **unused)
{
    static const char *const good[][2] = {
        {"1 4096\n512 8192\n", "1x4096+512x8192"},
        {"1 4096\n512 8192", "1x4096+512x8192"},
        {"# q_len context\n\n1\t4k # decode\r\n 1,4096 \n", "2*1x4096"},
    };
    static const char *const bad[][2] = {
        {"", "holds no sequence"},
        {"\n# only a comment\n", "holds no sequence"},
        {"1\n", ", line 1: a line holds two whole numbers"},
        {"1 2\n1 2 3\n", ", line 2: a line holds two"},
        {"q_len context\n", ", line 1: a line holds two"},
        {"1 5\n\n7 5\n", ", line 3: q_len 7 is above its context 5"},
        {"1 -5\n", ", line 1: a line holds two"},
        {"1 2.5\n", ", line 1: a line holds two"},
        {"0 5\n", "no sequence has a query"},
        {"1 5000000000\n", ", line 1"},
        {"1                                                                                                  "
         "5\n",
         ", line 1"},
    };
    char list[KVG_LIST_MAX];
    struct kvg_error error;
    (void)unused;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (read_file(good[i][0], strlen(good[i][0]), list, &error))
            fail_msg("%s", error.text);
        assert_string_equal(list, good[i][1]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(read_file(bad[i][0], strlen(bad[i][0]), list, &error), -1);
        assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
        if (!strstr(error.text, bad[i][1]))
            fail_msg("'%s' does not say '%s'", error.text, bad[i][1]);
    }
    assert_int_equal(read_file("1 2\0 3\n", 7, list, &error), -1);
}

/* 1000 lines of nine characters as text with their '+' ("1x100000+"): 1023 characters hold 113 of them and
 * "1x100113", 8 more. Equal neighbours take no room. */
static void too_long_a_file_says_what_fits(void **unused)
{
    char *text = calloc(20, 1000), list[KVG_LIST_MAX];
    struct kvg_error error;
    (void)unused;
    assert_non_null(text);
    for (int i = 0; i < 1000; i++)
        sprintf(text + strlen(text), "1 %d\n", 100000 + i);
    assert_int_equal(read_file(text, strlen(text), list, &error), -1);
    assert_non_null(strstr(error.text, "1000 sequences are too many"));
    assert_non_null(strstr(error.text, "the first 113 of them"));
    text[0] = '\0';
    for (int i = 0; i < 1000; i++)
        strcat(text, "1 77777\n");
    assert_int_equal(read_file(text, strlen(text), list, &error), 0);
    assert_string_equal(list, "1000*1x77777");
    free(text);
}

static void contradictions_are_refused(void **unused)
{
    static const char *const bad[][2] = {
        {"phase=store path=none lengths=1x5+3x4", "phase store has none"},
        {"phase=store path=none shared_pages=1 batch=2 context=64", "phase store writes each slot once"},
        {"shared_pages=1 batch=1 context=64", "batch must be 2 or more"},
        {"shared_pages=1 lengths=1x64", "batch must be 2 or more"},
        {"shared_pages=5 batch=2 context=64 block_size=16", "fills 4 pages"},
        {"shared_pages=4 batch=2 context=64 block_size=17", "fills 3 pages"},
    };
    struct kvg_problem p;
    struct kvg_case c;
    struct kvg_error error;
    (void)unused;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, BASE "%s", bad[i][0]);
        assert_int_equal(complete_case(text, &c, &error), -1);
        if (!strstr(error.text, bad[i][1]))
            fail_msg("'%s' does not say '%s'", error.text, bad[i][1]);
    }
    assert_int_equal(complete_case(BASE "shared_pages=4 batch=2 context=64 block_size=16", &c, &error), 0);
    kvg_case_problem(&c, &p);
    assert_true(p.features == KVG_FEATURE_SHARED_PAGES);
    assert_int_equal(complete_case(BASE "shared_pages=4 batch=2 context=64 block_size=7", &c, &error), 0);
    kvg_case_problem(&c, &p);
    assert_true(p.features == (KVG_FEATURE_SHARED_PAGES | KVG_FEATURE_SMALL_PAGES));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_have_one_text),
        cmocka_unit_test(entries_and_sums),
        cmocka_unit_test(a_list_sets_the_case),
        cmocka_unit_test(files_are_read),
        cmocka_unit_test(too_long_a_file_says_what_fits),
        cmocka_unit_test(contradictions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
