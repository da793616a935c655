/* SPDX-License-Identifier: Apache-2.0
 *
 * test_export.c: the exports, compared with text written by hand after RFC 4180, RFC 8259 and the Markdown
 * table syntax. Every float must come back from CSV and JSON with the same bits.
 */
#include <jansson.h>
#include "tests/unit/results_sample.h"

static char *export(const struct kvg_results *results, enum kvg_export format, const char *names)
{
    const struct kvg_column *columns[8];
    int64_t n = 0;
    char list[256];
    snprintf(list, sizeof(list), "%s", names ? names : "");
    for (char *save = NULL, *name = strtok_r(list, ",", &save); name; name = strtok_r(NULL, ",", &save))
        assert_non_null(columns[n++] = kvg_column_find(name));
    char *text = NULL;
    size_t size = 0;
    struct kvg_error error = {0};
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(kvg_results_export(out, results, format, names ? columns : NULL, n, &error), 0);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void two_rows(struct kvg_results *results)
{
    sample_results(results, 2);
    struct kvg_row *r = results->rows;
    kvg_row_set_string(&r[0].kernel, "cpu/decode");
    kvg_row_set_string(&r[1].kernel, "a \"quoted\", kernel\nin two lines | \\");
    r[0].status = KVG_PASSED;
    r[1].status = KVG_OUT_OF_MEMORY;
    r[0].context = 8192;
    r[1].context = -1;
    r[0].time_median = 0.1;
    r[1].time_median = NAN;
    r[0].quant_rel_l2 = 1.0 / 3.0;
    r[1].quant_rel_l2 = -INFINITY;
}

#define COLUMNS "kernel,status,context,time_median,quant_rel_l2"

static void csv_is_rfc_4180(void **state)
{
    (void)state;
    struct kvg_results results;
    two_rows(&results);
    char *text = export(&results, KVG_EXPORT_CSV, COLUMNS);
    assert_string_equal(text, "kernel,status,context,time_median,quant_rel_l2\r\n"
                              "cpu/decode,passed,8192,0.1,0.3333333333333333\r\n"
                              "\"a \"\"quoted\"\", kernel\nin two lines | \\\",out_of_memory,-1,,-inf\r\n");
    free(text);
    kvg_results_free(&results);
}

static void markdown_escapes_and_aligns(void **state)
{
    (void)state;
    struct kvg_results results;
    two_rows(&results);
    char *text = export(&results, KVG_EXPORT_MARKDOWN, COLUMNS);
    assert_string_equal(text,
                        "| kernel | status | context | time_median (s) | quant_rel_l2 |\n"
                        "|---|---:|---:|---:|---:|\n"
                        "| cpu/decode | passed | 8192 | 0.1 | 0.33333 |\n"
                        "| a \"quoted\", kernel in two lines \\| \\\\ | out_of_memory | -1 |  | -inf |\n");
    free(text);
    kvg_results_free(&results);
}

static void json_of_chosen_columns(void **state)
{
    (void)state;
    struct kvg_results results;
    two_rows(&results);
    char *text = export(&results, KVG_EXPORT_JSON, COLUMNS);
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(json_object_get(root, "machine"), "cpu")),
                        "A CPU @ 3.00GHz");
    const json_t *rows = json_object_get(root, "rows"), *row = json_array_get(rows, 1);
    assert_int_equal(json_array_size(rows), 2);
    assert_int_equal(json_object_size(row), 5);
    assert_true(json_is_null(json_object_get(row, "time_median")));
    assert_string_equal(json_string_value(json_object_get(row, "quant_rel_l2")), "-Infinity");
    assert_string_equal(json_string_value(json_object_get(row, "status")), "out_of_memory");
    assert_int_equal(json_integer_value(json_object_get(row, "context")), -1);
    json_decref(root);
    free(text);
    kvg_results_free(&results);
}

static void json_of_all_columns_has_samples_and_every_bit(void **state)
{
    (void)state;
    struct kvg_results results;
    sample_results(&results, 13);
    char *text = export(&results, KVG_EXPORT_JSON, NULL);
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    for (int64_t r = 0; r < results.count; r++) {
        const json_t *row = json_array_get(json_object_get(root, "rows"), (size_t)r);
        for (int64_t c = 0; c < kvg_columns_count; c++) {
            const json_t *value = json_object_get(row, kvg_columns[c].name);
            const void *field = (const char *)&results.rows[r] + kvg_columns[c].offset;
            assert_non_null(value);
            if (kvg_columns[c].type == KVG_COLUMN_FLOAT && isfinite(*(const double *)field))
                assert_same_float(json_real_value(value), *(const double *)field);
        }
        assert_int_equal(json_array_size(json_object_get(row, "time_samples")),
                         results.rows[r].n_samples_kept);
    }
    json_decref(root);
    free(text);
    kvg_results_free(&results);
}

static void csv_floats_come_back_as_the_same_bits(void **state)
{
    (void)state;
    struct kvg_results results;
    sample_results(&results, 1);
    uint64_t random = 42;
    for (int i = 0; i < 2000; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(&results.rows[0].time_median, &random, sizeof(double));
        if (!isfinite(results.rows[0].time_median))
            continue;
        char *text = export(&results, KVG_EXPORT_CSV, "time_median");
        assert_same_float(strtod(strchr(text, '\n') + 1, NULL), results.rows[0].time_median);
        free(text);
    }
    kvg_results_free(&results);
}

static void a_full_disk_is_an_error(void **state)
{
    (void)state;
    struct kvg_results results;
    struct kvg_error error = {0};
    sample_results(&results, 2);
    FILE *out = fopen("/dev/full", "w");
    assert_non_null(out);
    assert_int_equal(kvg_results_export(out, &results, KVG_EXPORT_CSV, NULL, 0, &error), -1);
    assert_int_equal(error.exit_code, KVG_EXIT_TROUBLE);
    fclose(out);
    kvg_results_free(&results);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_is_rfc_4180),
        cmocka_unit_test(markdown_escapes_and_aligns),
        cmocka_unit_test(json_of_chosen_columns),
        cmocka_unit_test(json_of_all_columns_has_samples_and_every_bit),
        cmocka_unit_test(csv_floats_come_back_as_the_same_bits),
        cmocka_unit_test(a_full_disk_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
