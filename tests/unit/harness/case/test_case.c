/* SPDX-License-Identifier: Apache-2.0
 *
 * test_case.c: random cases survive a round trip through their case strings, identifiers are FNV-1a as
 * published, and axes accept and reject the right values.
 */
#include <stdio.h>
#include <stdlib.h>

#include "harness/cli/options.h"
#include "tests/unit/random_case.h"

static void parsing_undoes_formatting(void **unused)
{
    (void)unused;
    for (int i = 0; i < 20000; i++) {
        struct kvg_case c, back;
        struct kvg_error error = {0};
        char text[KVG_CASE_STRING_MAX], again[KVG_CASE_STRING_MAX];
        random_case(&c);
        kvg_case_format(&c, text);
        if (kvg_case_parse(text, &back, &error))
            fail_msg("%s: %s", text, error.text);
        if (!same_case(&c, &back))
            fail_msg("not the same case after a round trip: %s", text);
        kvg_case_format(&back, again);
        assert_string_equal(text, again);
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void different_cases_have_different_ids(void **unused)
{
    enum { N = 20000 };
    (void)unused;
    char **lines = calloc(N, sizeof *lines);
    assert_non_null(lines);
    for (int i = 0; i < N; i++) { /* "id string", sorted: equal ids stand next to each other */
        struct kvg_case c;
        char text[KVG_CASE_STRING_MAX], id[17];
        random_case(&c);
        kvg_case_format(&c, text);
        kvg_case_id(&c, id);
        assert_int_equal(strlen(id), 16);
        lines[i] = malloc(strlen(text) + 18);
        assert_non_null(lines[i]);
        sprintf(lines[i], "%s %s", id, text);
    }
    qsort(lines, N, sizeof *lines, by_text);
    for (int i = 1; i < N; i++)
        if (strncmp(lines[i], lines[i - 1], 16) == 0)
            assert_string_equal(lines[i], lines[i - 1]);
    for (int i = 0; i < N; i++)
        free(lines[i]);
    free(lines);
}

/* Test vectors of the FNV specification (draft-eastlake-fnv, appendix C), 64-bit FNV-1a. */
static void ids_are_fnv_1a(void **unused)
{
    (void)unused;
    assert_true(kvg_fnv1a("") == UINT64_C(0xcbf29ce484222325));
    assert_true(kvg_fnv1a("a") == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(kvg_fnv1a("foobar") == UINT64_C(0x85944171f73967e8));
}

/* A case of a GPU kernel has the same name on hosts with different numbers of CPUs. */
static void gpu_cases_have_no_threads(void **unused)
{
    struct kvg_case c, back;
    struct kvg_error error = {0};
    char text[KVG_CASE_STRING_MAX], other[KVG_CASE_STRING_MAX];
    (void)unused;
    kvg_case_default(&c);
    strcpy(c.kernel, "cuda/decode_dequant");
    c.threads = 7;
    kvg_case_format(&c, text);
    assert_null(strstr(text, "threads"));
    assert_int_equal(kvg_case_parse(text, &back, &error), 0);
    assert_true(back.threads >= 1);
    kvg_case_format(&back, other);
    assert_string_equal(text, other);
    strcpy(c.kernel, "cpu/cuda/");
    kvg_case_format(&c, text);
    assert_non_null(strstr(text, "threads=7"));
}

static void the_longest_case_fits(void **unused)
{
    (void)unused;
    struct kvg_case c;
    char text[KVG_CASE_STRING_MAX];
    kvg_case_default(&c);
    memset(c.kernel, 'k', sizeof c.kernel - 1);
    memset(c.input, 'i', sizeof c.input - 1);
    c.kv_cache_dtype = KVG_CACHE_FP8_E4M3FNUZ;
    c.calibration = KVG_CALIBRATION_RANDOM_TOKENS;
    c.observer = KVG_REF_MEMORYLESS_MINMAX;
    c.layer = c.batch = c.q_len = c.context = c.q_heads = c.kv_heads = c.head_dim = c.block_size = INT64_MIN;
    c.window = c.threads = INT64_MIN;
    c.soft_cap = c.softmax_scale = -1.2345678901234567e-300;
    c.seed = UINT64_MAX;
    c.lengths = KVG_LENGTHS_LIST;
    memset(c.list, '9', sizeof c.list - 1);
    c.shared_pages = INT64_MIN;
    c.views = KVG_VIEWS_HEAD_MAJOR;
    c.mask = KVG_MASK_FULL;
    kvg_case_format(&c, text);
    assert_true(strlen(text) < KVG_CASE_STRING_MAX - 1);
    assert_non_null(strstr(text, "cache_state=cold")); /* the last axis is not cut off */
}

/* ------------------------------------------------------------------------------------------ axes */

static void every_option_is_named_like_its_axis(void **unused)
{
    (void)unused;
    for (int a = 0; a < KVG_AXIS_COUNT; a++) {
        const char *name = kvg_axis_get_info((enum kvg_axis)a)->name;
        int found = 0;
        for (const struct argp_option *o = kvg_plan_argp.options; o->name || o->doc || o->key; o++) {
            char column[64];
            if (!o->name || !o->arg)
                continue;
            snprintf(column, sizeof column, "%s", o->name);
            for (char *p = column; *p; p++)
                *p = *p == '-' ? '_' : *p;
            found += strcmp(column, name) == 0;
        }
        if (found != 1)
            fail_msg("axis %s has %d options", name, found);
    }
}

/* heads sets two columns; every other axis has a column of the same name. */
static void every_axis_is_a_column(void **unused)
{
    (void)unused;
    for (int a = 0; a < KVG_AXIS_COUNT; a++)
        if (a != KVG_AXIS_HEADS)
            assert_non_null(kvg_column_find(kvg_axis_get_info((enum kvg_axis)a)->name));
    assert_non_null(kvg_column_find("q_heads"));
    assert_non_null(kvg_column_find("kv_heads"));
}

static void defaults_are_valid_and_print_as_written(void **unused)
{
    (void)unused;
    struct kvg_case c;
    kvg_case_default(&c);
    for (int a = 0; a < KVG_AXIS_COUNT; a++) {
        struct kvg_error error = {0};
        char text[128];
        if (kvg_case_set(&c, (enum kvg_axis)a, kvg_axis_get_info((enum kvg_axis)a)->fallback, &error))
            fail_msg("%s", error.text);
        kvg_case_get(&c, (enum kvg_axis)a, text, sizeof text);
        assert_string_equal(text, kvg_axis_get_info((enum kvg_axis)a)->fallback);
    }
}

static void values_are_read_in_all_their_spellings(void **unused)
{
    static const struct {
        enum kvg_axis axis;
        const char *given, *canonical;
    } table[] = {
        {KVG_AXIS_CONTEXT, "128k", "131072"},
        {KVG_AXIS_CONTEXT, "128K", "131072"},
        {KVG_AXIS_CONTEXT, "1M", "1048576"},
        {KVG_AXIS_CONTEXT, "0017", "17"},
        {KVG_AXIS_KV_CACHE_DTYPE, "fp8", "fp8_e4m3"},
        {KVG_AXIS_KV_CACHE_DTYPE, "FP8_E5M2", "fp8_e5m2"},
        {KVG_AXIS_LAYOUT, "hnd", "HND"},
        {KVG_AXIS_INPUT, "needle:0.50", "needle"}, /* the default depth */
        {KVG_AXIS_INPUT, "needle:1e-1", "needle:0.1"},
        {KVG_AXIS_INPUT, "needle:-0", "needle:0"},
        {KVG_AXIS_HEADS, "32/8", "32/8"},
        {KVG_AXIS_SOFT_CAP, "30.0", "30"},
        {KVG_AXIS_SOFT_CAP, "-0", "0"},
        {KVG_AXIS_SOFT_CAP, "0.1", "0.1"}, /* although the ABI's float is 0.100000001490116 */
        {KVG_AXIS_SOFT_CAP, "1000000", "1000000"},
        {KVG_AXIS_ACCUMULATE, "hopper_two_level:1", "hopper_two_level"},
        {KVG_AXIS_ACCUMULATE, "Hopper_Two_Level:1k", "hopper_two_level:1024"},
        {KVG_AXIS_ACCUMULATE, "hopper", "hopper"},
        {KVG_AXIS_Q_LEN, "AUTO", "auto"},
        {KVG_AXIS_LAYER, "-1", "-1"},
        {KVG_AXIS_SEED, "9223372036854775807", "9223372036854775807"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct kvg_case c;
        struct kvg_error error = {0};
        char text[128];
        kvg_case_default(&c);
        if (kvg_case_set(&c, table[i].axis, table[i].given, &error))
            fail_msg("%s", error.text);
        kvg_case_get(&c, table[i].axis, text, sizeof text);
        assert_string_equal(text, table[i].canonical);
    }
}

static void bad_values_are_refused_and_change_nothing(void **unused)
{
    static const struct {
        enum kvg_axis axis;
        const char *value, *says;
    } table[] = {
        {KVG_AXIS_CONTEXT, "", "context"},
        {KVG_AXIS_CONTEXT, "0", "from 1 to 2147483647"},
        {KVG_AXIS_CONTEXT, "-1k", "from 1"},
        {KVG_AXIS_CONTEXT, "2147483648", "from 1"},
        {KVG_AXIS_CONTEXT, "9223372036854775807k", "from 1"},
        {KVG_AXIS_CONTEXT, "99999999999999999999", "from 1"},
        {KVG_AXIS_CONTEXT, "8 k", "'8 k'"},
        {KVG_AXIS_CONTEXT, "8kb", "'8kb'"},
        {KVG_AXIS_CONTEXT, "0x10", "'0x10'"},
        {KVG_AXIS_CONTEXT, " 8", "' 8'"},
        {KVG_AXIS_CONTEXT, "+8", "'+8'"},
        {KVG_AXIS_CONTEXT, "--8", "'--8'"},
        {KVG_AXIS_LENGTHS, "ragd", "did you mean 'ragged'?"},
        {KVG_AXIS_LENGTHS, "5", "entry 1, '5'"},
        {KVG_AXIS_LENGTHS, "1x4+", "entry 2, ''"},
        {KVG_AXIS_LENGTHS, "1x4++1x4", "entry 2, ''"},
        {KVG_AXIS_LENGTHS, "1x4+x5", "entry 2, 'x5'"},
        {KVG_AXIS_LENGTHS, "1x4+2x", "entry 2, '2x'"},
        {KVG_AXIS_LENGTHS, "1x4x4", "entry 1"},
        {KVG_AXIS_LENGTHS, "1 x4", "entry 1"},
        {KVG_AXIS_LENGTHS, "1x-4", "entry 1"},
        {KVG_AXIS_LENGTHS, "1X4", "entry 1"},
        {KVG_AXIS_LENGTHS, "0*1x4", "entry 1"},
        {KVG_AXIS_LENGTHS, "2*3*1x4", "entry 1"},
        {KVG_AXIS_LENGTHS, "1x2147483648", "entry 1"},
        {KVG_AXIS_LENGTHS, "1x99999999999999999999", "entry 1"},
        {KVG_AXIS_LENGTHS, "1x2147483647+1x1", "entry 2, '1x1': more than 2^31 - 1 keys"},
        {KVG_AXIS_LENGTHS, "65536*1x1+1x1", "entry 2, '1x1': more than 65536 sequences"},
        {KVG_AXIS_LENGTHS, "1x4+9x4", "entry 2, '9x4': q_len 9 is above its context 4"},
        {KVG_AXIS_LENGTHS, "0x4+0x0", "no sequence has a query"},
        {KVG_AXIS_LENGTHS, "@", "cannot be read"},
        {KVG_AXIS_LENGTHS, "@/nowhere/trace", "/nowhere/trace cannot be read: No such file"},
        {KVG_AXIS_LENGTHS, "@/", "/ cannot be read"},
        {KVG_AXIS_LENGTHS, "@/dev/zero", "line 1"},
        {KVG_AXIS_LENGTHS, "@/dev/null", "/dev/null holds no sequence"},
        {KVG_AXIS_SHARED_PAGES, "-1", "from 0"},
        {KVG_AXIS_BLOCK_SIZE, "0", "from 1"},
        {KVG_AXIS_LAYER, "-2", "from -1"},
        {KVG_AXIS_SEED, "-1", "from 0"},
        {KVG_AXIS_SEED, "9223372036854775808", "from 0"},
        {KVG_AXIS_PHASE, "decod", "did you mean 'decode'?"},
        {KVG_AXIS_SCHEME, "per-hed", "did you mean 'per_head'?"},
        {KVG_AXIS_CALIBRATION, "datset", "did you mean 'dataset'?"},
        {KVG_AXIS_KV_CACHE_DTYPE, "e4m3", "auto, fp8_e4m3, fp8_e5m2 or fp8_e4m3fnuz"},
        {KVG_AXIS_PATH, "", "none, dequant or fp8"},
        {KVG_AXIS_INPUT, "nromal", "did you mean 'normal'?"},
        {KVG_AXIS_INPUT, "smolm2", "did you mean 'smollm2'?"},
        {KVG_AXIS_INPUT, "needle:1.5", "from 0 to 1"},
        {KVG_AXIS_INPUT, "needle:", "from 0 to 1"},
        {KVG_AXIS_INPUT, "needle:nan", "from 0 to 1"},
        {KVG_AXIS_INPUT, "my file.h5", "blank"},
        {KVG_AXIS_INPUT, "it's.h5", "quote"},
        {KVG_AXIS_INPUT, ".h5", "not known"},
        {KVG_AXIS_INPUT, "0123456789012345678901234567890123456789012345678901234567890123.h5",
         "longer than 63"},
        {KVG_AXIS_KERNEL, "", "empty"},
        {KVG_AXIS_KERNEL, "a b", "blank"},
        {KVG_AXIS_KERNEL, "a\nb", "blank"},
        {KVG_AXIS_HEADS, "32", "32/8"},
        {KVG_AXIS_HEADS, "32/", "32/8"},
        {KVG_AXIS_HEADS, "/8", "32/8"},
        {KVG_AXIS_HEADS, "32/8/2", "32/8"},
        {KVG_AXIS_HEADS, "0/0", "32/8"},
        {KVG_AXIS_HEADS, "32/-8", "32/8"},
        {KVG_AXIS_HEADS, "11111111111111111111111111111111111111/8", "32/8"},
        {KVG_AXIS_SOFT_CAP, "nan", "soft_cap"},
        {KVG_AXIS_SOFT_CAP, "inf", "soft_cap"},
        {KVG_AXIS_SOFT_CAP, "-1", "soft_cap"},
        {KVG_AXIS_SOFT_CAP, "0x1p3", "soft_cap"},
        {KVG_AXIS_SOFT_CAP, "1e999", "soft_cap"},
        {KVG_AXIS_SOFT_CAP, "", "soft_cap"},
        {KVG_AXIS_ACCUMULATE, "hoper", "did you mean 'hopper'?"},
        {KVG_AXIS_ACCUMULATE, "", "fp32, hopper or hopper_two_level"},
        {KVG_AXIS_ACCUMULATE, "hopper:2", "only hopper_two_level takes a number"},
        {KVG_AXIS_ACCUMULATE, "hopper_two_level:0", "1 to 1048576"},
        {KVG_AXIS_ACCUMULATE, "hopper_two_level:", "1 to 1048576"},
        {KVG_AXIS_ACCUMULATE, "hopper_two_level:2:3", "1 to 1048576"},
        {KVG_AXIS_THREADS, "5000", "from 0 to 4096"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct kvg_case c, before;
        struct kvg_error error = {0};
        random_case(&c);
        before = c;
        if (kvg_case_set(&c, table[i].axis, table[i].value, &error) != -1)
            fail_msg("%s took '%s'", kvg_axis_get_info(table[i].axis)->name, table[i].value);
        assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
        if (!strstr(error.text, table[i].says))
            fail_msg("'%s' does not say '%s'", error.text, table[i].says);
        assert_memory_equal(&c, &before, sizeof c);
    }
}

static void axes_are_found_by_name(void **unused)
{
    struct kvg_error error = {0};
    (void)unused;
    assert_int_equal(kvg_axis_find("kv_cache_dtype", &error), KVG_AXIS_KV_CACHE_DTYPE);
    assert_int_equal(kvg_axis_find("kv-cache-dtype", &error), KVG_AXIS_KV_CACHE_DTYPE);
    assert_int_equal(kvg_axis_find("contxt", &error), -1);
    assert_non_null(strstr(error.text, "did you mean 'context'?"));
    assert_int_equal(kvg_axis_find("", &error), -1);
}

static void bad_strings_are_refused(void **unused)
{
    static const char *const bad[][2] = {
        {"", "empty"},
        {"   ", "empty"},
        {"decode", "not axis=value"},
        {"phase=decode phase=decode", "given twice"},
        {"fase=decode", "did you mean 'phase'?"},
        {"phase=", "phase"},
        {"=decode", "no axis"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kvg_case c;
        struct kvg_error error = {0};
        if (kvg_case_parse(bad[i][0], &c, &error) != -1)
            fail_msg("parsed '%s'", bad[i][0]);
        if (!strstr(error.text, bad[i][1]))
            fail_msg("'%s' does not say '%s'", error.text, bad[i][1]);
    }
    struct kvg_case c;
    struct kvg_error error = {0};
    char longer[2 * KVG_CASE_STRING_MAX];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(kvg_case_parse(longer, &c, &error), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parsing_undoes_formatting),
        cmocka_unit_test(different_cases_have_different_ids),
        cmocka_unit_test(ids_are_fnv_1a),
        cmocka_unit_test(gpu_cases_have_no_threads),
        cmocka_unit_test(the_longest_case_fits),
        cmocka_unit_test(every_option_is_named_like_its_axis),
        cmocka_unit_test(every_axis_is_a_column),
        cmocka_unit_test(defaults_are_valid_and_print_as_written),
        cmocka_unit_test(values_are_read_in_all_their_spellings),
        cmocka_unit_test(bad_values_are_refused_and_change_nothing),
        cmocka_unit_test(axes_are_found_by_name),
        cmocka_unit_test(bad_strings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
