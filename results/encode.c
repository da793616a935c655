/* SPDX-License-Identifier: Apache-2.0
 *
 * encode.c: rows and facts to JSON and back, with the columns of columns.def.
 *
 * A column that a line lacks is missing in the row: an older minor schema wrote the line. A member that is no
 * column is ignored: a newer minor schema wrote it. A member of the wrong type is an error.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "encode.h"

json_t *kvg_json_number(double value)
{
    if (isnan(value))
        return json_string("NaN");
    if (isinf(value))
        return json_string(value > 0 ? "Infinity" : "-Infinity");
    return json_real(value);
}

int kvg_json_to_number(const json_t *value, double *out)
{
    const char *text = json_string_value(value);
    if (json_is_number(value))
        *out = json_number_value(value);
    else if (text && strcmp(text, "NaN") == 0)
        *out = NAN;
    else if (text && strcmp(text, "Infinity") == 0)
        *out = INFINITY;
    else if (text && strcmp(text, "-Infinity") == 0)
        *out = -INFINITY;
    else
        return -1;
    return 0;
}

/* kvg_row_set_string makes UTF-8. A field that was set in another way may need repair. */
static json_t *text_to_json(const char *text)
{
    json_t *value = json_string(text ? text : "");
    if (value)
        return value;
    char *clean = kvg_utf8_copy(text);
    value = clean ? json_string(clean) : NULL;
    free(clean);
    return value;
}

/* ---------------------------------------------------------------- rows */

static json_t *column_to_json(const struct kvg_row *row, const struct kvg_column *column)
{
    const void *field = (const char *)row + column->offset;
    switch (column->type) {
    case KVG_COLUMN_STRING:
        return text_to_json(*(char *const *)field);
    case KVG_COLUMN_INT:
        return json_integer(*(const int64_t *)field);
    case KVG_COLUMN_FLOAT:
        break;
    }
    return kvg_json_number(*(const double *)field);
}

static json_t *samples_to_json(const struct kvg_row *row)
{
    json_t *array = json_array();
    for (int64_t i = 0; array && row->time_samples && i < row->n_samples_kept; i++) {
        if (json_array_append_new(array, kvg_json_number((double)row->time_samples[i]))) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

char *kvg_row_to_json(const struct kvg_row *row)
{
    json_t *object = json_object();
    int failed = !object;
    for (int64_t i = 0; !failed && i < kvg_columns_count; i++)
        failed = json_object_set_new(object, kvg_columns[i].name, column_to_json(row, &kvg_columns[i]));
    if (!failed && row->n_samples_kept > 0)
        failed = json_object_set_new(object, "time_samples", samples_to_json(row));
    char *text = failed ? NULL : json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(object);
    return text;
}

static int column_from_json(const json_t *value, const struct kvg_column *column, struct kvg_row *row,
                            struct kvg_error *error)
{
    void *field = (char *)row + column->offset;
    switch (column->type) {
    case KVG_COLUMN_STRING:
        if (!json_is_string(value))
            return kvg_fail(error, KVG_EXIT_USAGE, "%s is not a string", column->name);
        if (kvg_row_set_string(field, json_string_value(value)))
            return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
        return 0;
    case KVG_COLUMN_INT:
        if (!json_is_integer(value))
            return kvg_fail(error, KVG_EXIT_USAGE, "%s is not an integer", column->name);
        *(int64_t *)field = json_integer_value(value);
        return 0;
    case KVG_COLUMN_FLOAT:
        if (kvg_json_to_number(value, field))
            return kvg_fail(error, KVG_EXIT_USAGE,
                            "%s is neither a number nor \"NaN\", \"Infinity\" or \"-Infinity\"",
                            column->name);
        return 0;
    }
    return 0;
}

static int samples_from_json(const json_t *array, struct kvg_row *row, struct kvg_error *error)
{
    double samples[KVG_MAX_SAMPLES];
    size_t n = json_array_size(array);
    if (!json_is_array(array) || n > KVG_MAX_SAMPLES)
        return kvg_fail(error, KVG_EXIT_USAGE, "time_samples is not an array of at most %d numbers",
                        KVG_MAX_SAMPLES);
    for (size_t i = 0; i < n; i++)
        if (kvg_json_to_number(json_array_get(array, i), &samples[i]))
            return kvg_fail(error, KVG_EXIT_USAGE, "time_samples[%zu] is not a number", i);
    if (kvg_row_set_samples(row, samples, (int64_t)n))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
    return 0;
}

/* Parses one line that must hold one JSON object. NULL with the error. */
static json_t *parse_object(const char *line, size_t length, struct kvg_error *error)
{
    json_error_t why;
    json_t *object = json_loadb(line, length, JSON_REJECT_DUPLICATES, &why);
    if (!object) {
        kvg_fail(error, KVG_EXIT_USAGE, "not JSON: %s (column %d)", why.text, why.column);
        return NULL;
    }
    if (!json_is_object(object)) {
        json_decref(object);
        kvg_fail(error, KVG_EXIT_USAGE, "not a JSON object");
        return NULL;
    }
    return object;
}

int kvg_row_from_json_bytes(const char *line, size_t length, struct kvg_row *row, struct kvg_error *error)
{
    memset(row, 0, sizeof(*row));
    json_t *object = parse_object(line, length, error);
    if (!object)
        return -1;
    int failed = 0;
    if (kvg_row_init(row))
        failed = kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
    if (!failed && !json_object_get(object, "case_id"))
        failed = kvg_fail(error, KVG_EXIT_USAGE, "not a row: case_id is missing");
    for (int64_t i = 0; !failed && i < kvg_columns_count; i++) {
        const json_t *value = json_object_get(object, kvg_columns[i].name);
        if (value)
            failed = column_from_json(value, &kvg_columns[i], row, error);
    }
    const json_t *samples = json_object_get(object, "time_samples");
    if (!failed && samples)
        failed = samples_from_json(samples, row, error);
    json_decref(object);
    if (failed)
        kvg_row_free(row);
    return failed ? -1 : 0;
}

int kvg_row_from_json(const char *line, struct kvg_row *row, struct kvg_error *error)
{
    return kvg_row_from_json_bytes(line, strlen(line), row, error);
}

/* ---------------------------------------------------------------- header */

json_t *kvg_json_facts(const struct kvg_facts *facts)
{
    json_t *object = json_object();
    for (int64_t i = 0; object && i < facts->count; i++) {
        const struct kvg_fact *fact = &facts->facts[i];
        json_t *value = fact->text ? text_to_json(fact->text) : NULL;
        /* NaN and infinities are objects of one member, because a text may be "NaN" as well. */
        if (!fact->text)
            value = isfinite(fact->number) ? json_real(fact->number)
                                           : json_pack("{s:o}", "number", kvg_json_number(fact->number));
        if (json_object_set_new(object, fact->name, value)) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

char *kvg_header_to_json(const struct kvg_facts *run, const struct kvg_facts *machine)
{
    json_t *object = json_pack("{s:i, s:o, s:o}", "kvgauge_journal", KVG_JOURNAL_FORMAT, "run",
                               kvg_json_facts(run), "machine", kvg_json_facts(machine));
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(object);
    return text;
}

static int facts_from_json(json_t *object, const char *which, struct kvg_facts *facts,
                           struct kvg_error *error)
{
    if (!json_is_object(object))
        return kvg_fail(error, KVG_EXIT_USAGE, "the object \"%s\" is missing", which);
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(object, name, value)
    {
        const json_t *wrapped = json_object_get(value, "number");
        double number = 0.0;
        int failed = 0;
        if (json_is_string(value))
            failed = kvg_facts_set_text(facts, name, json_string_value(value));
        else if (kvg_json_to_number(wrapped ? wrapped : value, &number) == 0)
            failed = kvg_facts_set_number(facts, name, number);
        else
            return kvg_fail(error, KVG_EXIT_USAGE, "%s.%.80s is neither text nor a number", which, name);
        if (failed)
            return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
    }
    return 0;
}

int kvg_header_from_json(const char *line, size_t length, struct kvg_facts *run, struct kvg_facts *machine,
                         struct kvg_error *error)
{
    json_t *object = parse_object(line, length, error);
    if (!object)
        return -1;
    const json_t *format = json_object_get(object, "kvgauge_journal");
    int failed = 0;
    if (!json_is_integer(format))
        failed =
            kvg_fail(error, KVG_EXIT_USAGE, "the member \"kvgauge_journal\" is missing or is no integer");
    else if (json_integer_value(format) > KVG_JOURNAL_FORMAT)
        failed = kvg_fail(error, KVG_EXIT_USAGE,
                          "journal format %lld; this kvgauge reads formats up to %d: use a newer kvgauge",
                          (long long)json_integer_value(format), KVG_JOURNAL_FORMAT);
    if (!failed)
        failed = facts_from_json(json_object_get(object, "run"), "run", run, error) ||
                 facts_from_json(json_object_get(object, "machine"), "machine", machine, error);
    json_decref(object);
    return failed ? -1 : 0;
}

char *kvg_facts_to_json(const struct kvg_facts *facts)
{
    json_t *object = kvg_json_facts(facts);
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(object);
    return text;
}

int kvg_facts_from_json(const char *line, struct kvg_facts *facts, struct kvg_error *error)
{
    json_t *object = parse_object(line, strlen(line), error);
    if (!object)
        return -1;
    const int failed = facts_from_json(object, "facts", facts, error);
    json_decref(object);
    return failed ? -1 : 0;
}
