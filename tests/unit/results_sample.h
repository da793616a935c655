/* SPDX-License-Identifier: Apache-2.0
 *
 * results_sample.h: rows with awkward values, and an exact comparison, for the tests of results/.
 */
#ifndef KVG_TESTS_RESULTS_SAMPLE_H
#define KVG_TESTS_RESULTS_SAMPLE_H

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "results/file.h"

/* Values that are hard to write and read. Columns and rows take them in turn. */
static const double sample_floats[] = {0.0,     -0.0,   1.0 / 3.0, NAN, INFINITY, -INFINITY,    DBL_MAX,
                                       DBL_MIN, 5e-324, -1e-300,   0.1, 1e22,     123456789.125};
static const int64_t sample_ints[] = {-1, 0, 1, INT64_MAX, INT64_MIN, (INT64_C(1) << 53) + 1, 131072};
static const char *const sample_texts[] = {
    "",           "plain", "Größe: 5 µs → \xf0\x9f\x98\x80", "a,b;\"c\"\tand\nnew line", "back\\slash | pipe",
    "  spaces  ", "0"};
#define SAMPLE_COUNT(a) ((int64_t)(sizeof(a) / sizeof((a)[0])))

static inline void sample_row(struct kvg_row *row, int64_t number)
{
    assert_int_equal(kvg_row_init(row), 0);
    for (int64_t c = 0; c < kvg_columns_count; c++) {
        void *field = (char *)row + kvg_columns[c].offset;
        int64_t turn = number * 7 + c;
        if (kvg_columns[c].type == KVG_COLUMN_STRING)
            assert_int_equal(kvg_row_set_string(field, sample_texts[turn % SAMPLE_COUNT(sample_texts)]), 0);
        else if (kvg_columns[c].type == KVG_COLUMN_INT)
            *(int64_t *)field = sample_ints[turn % SAMPLE_COUNT(sample_ints)];
        else
            *(double *)field = sample_floats[turn % SAMPLE_COUNT(sample_floats)];
    }
    row->status = number % KVG_STATUS_COUNT;
    int64_t lengths[] = {0, 1, 255, KVG_MAX_SAMPLES};
    double samples[KVG_MAX_SAMPLES];
    for (int64_t i = 0; i < KVG_MAX_SAMPLES; i++)
        samples[i] = (double)(1e-6f * (float)(i + 1));
    assert_int_equal(kvg_row_set_samples(row, samples, lengths[number % 4]), 0);
}

static inline void sample_results(struct kvg_results *results, int64_t rows)
{
    memset(results, 0, sizeof(*results));
    struct kvg_facts *run = &results->run, *machine = &results->machine;
    assert_int_equal(kvg_facts_set_text(run, "schema_name", KVG_SCHEMA_NAME), 0);
    assert_int_equal(kvg_facts_set_text(run, "schema_version", KVG_SCHEMA_VERSION), 0);
    assert_int_equal(kvg_facts_set_text(run, "run_uuid", "9f2c7f0e-8d4b-4c55-9d6c-2f1f2b7d9a10"), 0);
    assert_int_equal(kvg_facts_set_text(run, "argv", "kvgauge run --suite 'größe.yaml'"), 0);
    assert_int_equal(kvg_facts_set_number(run, "seed", 1), 0);
    assert_int_equal(kvg_facts_set_number(run, "complete", 1), 0);
    assert_int_equal(kvg_facts_set_text(machine, "cpu", "A CPU @ 3.00GHz"), 0);
    assert_int_equal(kvg_facts_set_text(machine, "empty", ""), 0);
    assert_int_equal(kvg_facts_set_text(machine, "looks_like_a_number", "NaN"), 0);
    assert_int_equal(kvg_facts_set_number(machine, "read_roof", 42.6e9), 0);
    assert_int_equal(kvg_facts_set_number(machine, "flop_roof_bf16", NAN), 0);
    assert_int_equal(kvg_facts_set_number(machine, "third", 1.0 / 3.0), 0);
    results->rows = calloc((size_t)(rows ? rows : 1), sizeof(*results->rows));
    assert_non_null(results->rows);
    for (int64_t i = 0; i < rows; i++)
        sample_row(&results->rows[i], i);
    results->count = rows;
}

/* The same bits; any NaN equals any other NaN. */
static inline void assert_same_float(double a, double b)
{
    if (isnan(a) && isnan(b))
        return;
    assert_memory_equal(&a, &b, sizeof(a));
}

static inline void assert_same_row(const struct kvg_row *a, const struct kvg_row *b)
{
    for (int64_t c = 0; c < kvg_columns_count; c++) {
        const void *fa = (const char *)a + kvg_columns[c].offset,
                   *fb = (const char *)b + kvg_columns[c].offset;
        if (kvg_columns[c].type == KVG_COLUMN_STRING)
            assert_string_equal(*(char *const *)fa, *(char *const *)fb);
        else if (kvg_columns[c].type == KVG_COLUMN_INT)
            assert_true(*(const int64_t *)fa == *(const int64_t *)fb);
        else
            assert_same_float(*(const double *)fa, *(const double *)fb);
    }
    assert_int_equal(a->n_samples_kept, b->n_samples_kept);
    if (a->n_samples_kept)
        assert_memory_equal(a->time_samples, b->time_samples, (size_t)a->n_samples_kept * sizeof(float));
}

static inline void assert_same_facts(const struct kvg_facts *a, const struct kvg_facts *b)
{
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++) {
        assert_string_equal(a->facts[i].name, b->facts[i].name);
        assert_int_equal(a->facts[i].text == NULL, b->facts[i].text == NULL);
        if (a->facts[i].text)
            assert_string_equal(a->facts[i].text, b->facts[i].text);
        else
            assert_same_float(a->facts[i].number, b->facts[i].number);
    }
}

static inline void assert_same_results(const struct kvg_results *a, const struct kvg_results *b)
{
    assert_same_facts(&a->run, &b->run);
    assert_same_facts(&a->machine, &b->machine);
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++)
        assert_same_row(&a->rows[i], &b->rows[i]);
}

/* A new folder under /tmp, which the teardown of the test removes. */
static inline char *sample_folder(void)
{
    static char folder[64];
    snprintf(folder, sizeof(folder), "/tmp/kvg-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    return folder;
}

static inline void remove_folder(const char *folder)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* The content of a file, malloc'ed and with a NUL after it. */
static inline char *sample_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long length = ftell(file);
    rewind(file);
    char *text = malloc((size_t)length + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)length, file), length);
    text[length] = '\0';
    fclose(file);
    *size = (size_t)length;
    return text;
}

static inline void sample_write(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

#endif
