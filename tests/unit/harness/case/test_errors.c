/* SPDX-License-Identifier: Apache-2.0
 *
 * test_errors.c: the text of an error, and the suggestion for a mistyped word.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "harness/case/words.h"
#include "results/error.h"

static void errors_are_cut_and_may_be_unwanted(void **unused)
{
    struct {
        struct kvg_error error;
        char fence[8];
    } box;
    char long_text[2000];
    (void)unused;
    memset(long_text, 'e', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    memset(&box, '#', sizeof box);
    assert_int_equal(kvg_fail(&box.error, KVG_EXIT_TROUBLE, "%s", long_text), -1);
    assert_int_equal(box.error.exit_code, KVG_EXIT_TROUBLE);
    assert_int_equal(strlen(box.error.text), sizeof box.error.text - 1);
    assert_memory_equal(box.fence, "########", 8);
    assert_int_equal(kvg_fail(NULL, KVG_EXIT_USAGE, "%d", 3), -1);
}

/* ------------------------------------------------------------------------------------------ words */

/* Distances computed by hand (optimal string alignment). */
static void edit_distance_counts_edits(void **unused)
{
    static const char *const words[] = {"decode", "prefill", "append"};
    char deep[400];
    (void)unused;
    assert_int_equal(kvg_word_distance("", ""), 0);
    assert_int_equal(kvg_word_distance("", "abc"), 3);
    assert_int_equal(kvg_word_distance("abc", ""), 3);
    assert_int_equal(kvg_word_distance("kitten", "sitting"), 3);
    assert_int_equal(kvg_word_distance("ab", "ba"), 1);
    assert_int_equal(kvg_word_distance("ca", "abc"), 3); /* 2 if a swapped pair could be edited again */
    assert_int_equal(kvg_word_distance("Kv-Cache", "kv_cache"), 0);
    assert_string_equal(kvg_word_nearest("perfill", words, 3), "prefill");
    assert_null(kvg_word_nearest("zzzzzzzz", words, 3));
    assert_null(kvg_word_nearest("x", words, 3));
    memset(deep, 'a', sizeof deep);
    deep[sizeof deep - 1] = '\0';
    assert_int_equal(kvg_word_distance(deep, ""), 127); /* longer words count by their first 127 letters */
    assert_int_equal(kvg_word_distance(deep, deep), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_cut_and_may_be_unwanted),
        cmocka_unit_test(edit_distance_counts_edits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
