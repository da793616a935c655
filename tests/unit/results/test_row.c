/* SPDX-License-Identifier: Apache-2.0
 *
 * test_row.c: rows, columns, verdicts, facts, UTF-8; and SCHEMA.md, compared with columns.def and the
 * verdicts.
 */
#include "tests/unit/results_sample.h"

#ifndef KVG_TEST_SOURCE
#define KVG_TEST_SOURCE "."
#endif

static void missing_is_nan_minus_one_and_empty(void **state)
{
    (void)state;
    struct kvg_row row;
    assert_int_equal(kvg_row_init(&row), 0);
    for (int64_t c = 0; c < kvg_columns_count; c++) {
        const void *field = (const char *)&row + kvg_columns[c].offset;
        if (kvg_columns[c].type == KVG_COLUMN_STRING)
            assert_string_equal(*(char *const *)field, "");
        else if (kvg_columns[c].type == KVG_COLUMN_INT)
            assert_true(*(const int64_t *)field == -1);
        else
            assert_true(isnan(*(const double *)field));
    }
    assert_null(row.time_samples);
    kvg_row_free(&row);
    kvg_row_free(&row);
}

static void columns_are_found_by_name_and_unique(void **state)
{
    (void)state;
    for (int64_t c = 0; c < kvg_columns_count; c++)
        assert_ptr_equal(kvg_column_find(kvg_columns[c].name), &kvg_columns[c]);
    assert_null(kvg_column_find("no_such_column"));
    assert_int_equal(kvg_column_find("time_median")->type, KVG_COLUMN_FLOAT);
    assert_string_equal(kvg_column_find("time_median")->units, "s");
    assert_int_equal(kvg_column_find("time_median")->offset, offsetof(struct kvg_row, time_median));
}

/* Only units that xarray does not decode to time differences, which would lose fractions of a nanosecond. */
static void units_are_short(void **state)
{
    (void)state;
    static const char *const allowed[] = {"s", "B", "B/s", "1/s", "1", "percent", "Hz", "W", "J", "degC"};
    for (int64_t c = 0; c < kvg_columns_count; c++) {
        int found = kvg_columns[c].type == KVG_COLUMN_STRING && kvg_columns[c].units[0] == '\0';
        for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
            found |= strcmp(kvg_columns[c].units, allowed[i]) == 0;
        if (!found)
            fail_msg("column %s has units '%s'", kvg_columns[c].name, kvg_columns[c].units);
        assert_true(strlen(kvg_columns[c].long_name) > 4);
        assert_null(strchr(kvg_columns[c].long_name, '|')); /* it is a cell of a Markdown table */
    }
}

static void samples_are_capped(void **state)
{
    (void)state;
    struct kvg_row row;
    double many[300];
    for (int i = 0; i < 300; i++)
        many[i] = i;
    assert_int_equal(kvg_row_init(&row), 0);
    assert_int_equal(kvg_row_set_samples(&row, many, 300), 0);
    assert_int_equal(row.n_samples_kept, 256);
    assert_true(row.time_samples[255] == 255.0f);
    assert_int_equal(kvg_row_set_samples(&row, NULL, 0), 0);
    assert_null(row.time_samples);
    kvg_row_free(&row);
}

/* Expected results from Unicode 15, table 3-7 and section 3.9: here one U+FFFD per bad byte. */
static void bad_bytes_become_replacement_characters(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain", "plain"},
        {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"a\xff"
         "b",
         "a\xef\xbf\xbd"
         "b"},
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},                                 /* overlong NUL */
        {"\xe0\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},                 /* overlong */
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},                 /* surrogate */
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* beyond U+10FFFF */
        {"cut \xe2\x82", "cut \xef\xbf\xbd\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *field = NULL;
        assert_int_equal(kvg_row_set_string(&field, cases[i].in), 0);
        assert_string_equal(field, cases[i].out);
        free(field);
    }
}

static void verdicts_have_names_and_exit_codes(void **state)
{
    (void)state;
    static const struct {
        enum kvg_status status;
        const char *name;
        int exit_code;
    } expected[] = {{KVG_PASSED, "passed", 0},   {KVG_INCORRECT, "incorrect", 2},
                    {KVG_SUSPECT, "suspect", 3}, {KVG_MISTRUSTED, "mistrusted", 3},
                    {KVG_SKIPPED, "skipped", 0}, {KVG_TIMEOUT, "timeout", 3},
                    {KVG_CRASHED, "crashed", 3}, {KVG_OUT_OF_MEMORY, "out_of_memory", 3},
                    {KVG_INVALID, "invalid", 4}};
    assert_int_equal(sizeof(expected) / sizeof(expected[0]), KVG_STATUS_COUNT);
    for (int i = 0; i < KVG_STATUS_COUNT; i++) {
        assert_int_equal(expected[i].status, i); /* files store these numbers */
        assert_string_equal(kvg_status_name((enum kvg_status)i), expected[i].name);
        assert_int_equal(kvg_status_exit_code((enum kvg_status)i), expected[i].exit_code);
    }
    assert_string_equal(kvg_status_name((enum kvg_status) - 1), "unknown");
    assert_int_equal(kvg_status_exit_code((enum kvg_status)99), 3);
}

static void facts_keep_order_and_last_value(void **state)
{
    (void)state;
    struct kvg_facts facts = {0};
    assert_int_equal(kvg_facts_set_text(&facts, "b", "1"), 0);
    assert_int_equal(kvg_facts_set_number(&facts, "a", 2.5), 0);
    assert_int_equal(kvg_facts_set_number(&facts, "b", 7), 0);
    assert_int_equal(facts.count, 2);
    assert_string_equal(facts.facts[0].name, "b");
    assert_null(facts.facts[0].text);
    assert_true(facts.facts[0].number == 7);
    assert_true(kvg_facts_find(&facts, "a")->number == 2.5);
    assert_null(kvg_facts_find(&facts, "c"));
    kvg_facts_free(&facts);
    assert_int_equal(facts.count, 0);
}

/* The text between two marks of SCHEMA.md, malloc'ed. */
static char *part_of_schema_md(const char *after, const char *before)
{
    const char *source = getenv("KVG_SOURCE");
    char path[4096];
    snprintf(path, sizeof(path), "%s/results/SCHEMA.md", source ? source : KVG_TEST_SOURCE);
    size_t size = 0;
    char *text = sample_read(path, &size);
    const char *start = strstr(text, after), *end = start ? strstr(start, before) : NULL;
    if (!end)
        fail_msg("%s has no '%s' with '%s' after it", path, after, before);
    start += strlen(after);
    char *part = strndup(start, (size_t)(end - start));
    assert_non_null(part);
    free(text);
    return part;
}

/* SCHEMA.md must have the table that columns.def gives: the failure prints that table, to be copied. */
static void schema_md_agrees_with_columns(void **state)
{
    (void)state;
    static const char *const types[] = {"text", "int64", "float64"};
    char *expected = NULL, *part = part_of_schema_md("<!-- columns -->\n", "<!-- end of columns -->");
    size_t size = 0;
    FILE *out = open_memstream(&expected, &size);
    assert_non_null(out);
    fputs("| column | type | units | meaning |\n|---|---|---|---|\n", out);
    for (int64_t c = 0; c < kvg_columns_count; c++)
        fprintf(out, "| `%s` | %s | %s | %s |\n", kvg_columns[c].name,
                strcmp(kvg_columns[c].name, "status") == 0 ? "int8" : types[kvg_columns[c].type],
                kvg_columns[c].units, kvg_columns[c].long_name);
    assert_int_equal(fclose(out), 0);
    if (strcmp(part, expected) != 0)
        fail_msg("the table of columns in SCHEMA.md differs from columns.def; it should be:\n%s", expected);
    free(part);
    free(expected);
}

static void schema_md_names_the_verdicts(void **state)
{
    (void)state;
    char *part = part_of_schema_md("\n## Verdicts\n", "\n## ");
    const char *at = part;
    for (int i = 0; i < KVG_STATUS_COUNT; i++) {
        char line[64];
        snprintf(line, sizeof(line), "\n| %d | `%s` | ", i, kvg_status_name((enum kvg_status)i));
        at = strstr(at, line);
        if (!at)
            fail_msg("SCHEMA.md lacks, or has out of order:%s", line);
    }
    free(part);
}

static void schema_md_has_the_version(void **state)
{
    (void)state;
    free(part_of_schema_md("# Schema of a result file, version " KVG_SCHEMA_VERSION "\n", "\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_is_nan_minus_one_and_empty),
        cmocka_unit_test(columns_are_found_by_name_and_unique),
        cmocka_unit_test(units_are_short),
        cmocka_unit_test(samples_are_capped),
        cmocka_unit_test(bad_bytes_become_replacement_characters),
        cmocka_unit_test(verdicts_have_names_and_exit_codes),
        cmocka_unit_test(facts_keep_order_and_last_value),
        cmocka_unit_test(schema_md_agrees_with_columns),
        cmocka_unit_test(schema_md_names_the_verdicts),
        cmocka_unit_test(schema_md_has_the_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
