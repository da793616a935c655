/* SPDX-License-Identifier: Apache-2.0
 *
 * test_expand.c: lists and ranges of axis values, compared with values computed by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/case/expand.h"

static void lists_and_ranges(void **unused)
{
    static const struct {
        enum kvg_axis axis;
        const char *text, *wanted; /* values with '|' between */
    } table[] = {
        {KVG_AXIS_CONTEXT, "8k", "8k"},
        {KVG_AXIS_CONTEXT, "1k,8k,32k", "1k|8k|32k"},
        {KVG_AXIS_CONTEXT, " 1k , 8k ", "1k|8k"},
        {KVG_AXIS_CONTEXT, "1k:8k:*2", "1024|2048|4096|8192"},
        {KVG_AXIS_CONTEXT, "1k:9k:*2", "1024|2048|4096|8192"}, /* the next value would exceed the end */
        {KVG_AXIS_CONTEXT, "1k:128k:*2", "1024|2048|4096|8192|16384|32768|65536|131072"},
        {KVG_AXIS_CONTEXT, "7:7:*2", "7"},
        {KVG_AXIS_CONTEXT, "16:64:+16", "16|32|48|64"},
        {KVG_AXIS_CONTEXT, "1k:3k:+1k", "1024|2048|3072"},
        {KVG_AXIS_CONTEXT, "15:17:+1,1k", "15|16|17|1k"},
        {KVG_AXIS_CONTEXT, "1:2147483647:*1000", "1|1000|1000000|1000000000"}, /* no overflow */
        {KVG_AXIS_CONTEXT, "1:2147483647:*2147483647", "1|2147483647"},
        {KVG_AXIS_WINDOW, "0:32:+16", "0|16|32"},
        {KVG_AXIS_LAYER, "-1:2:+1", "-1|0|1|2"},
        {KVG_AXIS_LAYER, "all", "all"},
        {KVG_AXIS_LAYER, "0,all", "0|all"},
        {KVG_AXIS_SEED, "9223372036854775806:9223372036854775807:+1",
         "9223372036854775806|9223372036854775807"}, /* stops where int64 ends */
        {KVG_AXIS_Q_LEN, "2:16:*2", "2|4|8|16"},
        {KVG_AXIS_HEADS, "32/8,28/4", "32/8|28/4"},
        {KVG_AXIS_SCHEME, "per_tensor,per_head", "per_tensor|per_head"},
        {KVG_AXIS_INPUT, "normal,needle:0.25", "normal|needle:0.25"}, /* this colon does not make a range */
        {KVG_AXIS_KERNEL, "cpu/*,best", "cpu/*|best"},
        {KVG_AXIS_SOFT_CAP, "0,30", "0|30"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct kvg_values values = {0};
        struct kvg_error error = {0};
        char joined[512] = "";
        if (kvg_values_expand(table[i].axis, table[i].text, &values, &error))
            fail_msg("%s", error.text);
        for (int64_t v = 0; v < values.count; v++) {
            if (v)
                strcat(joined, "|");
            strcat(joined, values.text[v]);
        }
        assert_string_equal(joined, table[i].wanted);
        kvg_values_free(&values);
        assert_int_equal(values.count, 0);
    }
}

static void bad_lists_are_refused(void **unused)
{
    static const struct {
        enum kvg_axis axis;
        const char *text, *says;
    } table[] = {
        {KVG_AXIS_CONTEXT, "", "empty value"},
        {KVG_AXIS_CONTEXT, ",", "empty value"},
        {KVG_AXIS_CONTEXT, "1k,", "empty value"},
        {KVG_AXIS_CONTEXT, "1k,,2k", "empty value"},
        {KVG_AXIS_CONTEXT, "1k:2k", "no step"},
        {KVG_AXIS_CONTEXT, "1k:2k:2", "neither *FACTOR nor +STEP"},
        {KVG_AXIS_CONTEXT, "1k:2k:*", "neither *FACTOR nor +STEP"},
        {KVG_AXIS_CONTEXT, "1k:2k:*2:*2", "neither *FACTOR nor +STEP"},
        {KVG_AXIS_CONTEXT, "1k:2k:*1", "never end"},
        {KVG_AXIS_CONTEXT, "1k:2k:*0", "never end"},
        {KVG_AXIS_CONTEXT, "1k:2k:+0", "never end"},
        {KVG_AXIS_CONTEXT, "1k:2k:+-1", "never end"},
        {KVG_AXIS_WINDOW, "0:8:*2", "never end"},
        {KVG_AXIS_CONTEXT, "2k:1k:*2", "ends before it begins"},
        {KVG_AXIS_CONTEXT, "a:2k:*2", "not whole numbers"},
        {KVG_AXIS_CONTEXT, "1k::*2", "not whole numbers"},
        {KVG_AXIS_CONTEXT, ":::", "neither"},
        {KVG_AXIS_CONTEXT, "1:2147483647:+1", "more than 100000"},
        {KVG_AXIS_CONTEXT, "0:4:+2", "from 1"}, /* context is at least 1 */
        {KVG_AXIS_CONTEXT, "all", "'all'"},
        {KVG_AXIS_SCHEME, "per_tensor,per_hed", "did you mean 'per_head'?"},
        {KVG_AXIS_SOFT_CAP, "1:2:*2", "soft_cap"}, /* not whole numbers: no ranges */
    };
    (void)unused;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct kvg_values values = {0};
        struct kvg_error error = {0};
        if (kvg_values_expand(table[i].axis, table[i].text, &values, &error) != -1)
            fail_msg("took '%s'", table[i].text);
        assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
        if (!strstr(error.text, table[i].says))
            fail_msg("'%s' does not say '%s'", error.text, table[i].says);
        kvg_values_free(&values);
    }
}

/* Random strings of significant characters: no crash, and every accepted value is valid for the axis. */
static void noise_is_taken_or_refused(void **unused)
{
    static const char letters[] = "0123456789kKM:,*+- /all";
    uint64_t state = 1;
    (void)unused;
    for (int i = 0; i < 20000; i++) {
        char text[24];
        struct kvg_values values = {0};
        struct kvg_error error = {0};
        size_t length = 0;
        for (; length < sizeof text - 1; length++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
            if ((state >> 60) == 0)
                break;
            text[length] = letters[(state >> 33) % (sizeof letters - 1)];
        }
        text[length] = '\0';
        if (kvg_values_expand(KVG_AXIS_CONTEXT, text, &values, &error) == 0) {
            assert_true(values.count > 0);
            for (int64_t v = 0; v < values.count; v++) {
                struct kvg_case c;
                kvg_case_default(&c);
                assert_int_equal(kvg_case_set(&c, KVG_AXIS_CONTEXT, values.text[v], NULL), 0);
                assert_true(c.context >= 1);
            }
        } else {
            assert_true(*error.text != '\0');
        }
        kvg_values_free(&values);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_and_ranges),
        cmocka_unit_test(bad_lists_are_refused),
        cmocka_unit_test(noise_is_taken_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
