/* SPDX-License-Identifier: Apache-2.0
 *
 * evidence.c: evidence to JSON and back. Unknown members are ignored; missing members leave their fields
 * empty.
 */
#include "evidence.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "encode.h"

char kvg_heat_level(double ratio)
{
    if (!isfinite(ratio))
        return 'N';
    if (ratio <= 1.0)
        return '0';
    const double level = 1.0 + floor(log2(ratio));
    return (char)('0' + (level < 9.0 ? (int)level : 9));
}

/* ---------------------------------------------------------------- out */

/* [sequence, query, head, dim, got, reference, allowed, ratio] */
static json_t *numbers(const struct kvg_evidence_place *at, double got, double reference, double allowed,
                       double ratio)
{
    return json_pack("[I,I,I,I,o,o,o,o]", (json_int_t)at->sequence, (json_int_t)at->query,
                     (json_int_t)at->head, (json_int_t)at->dim, kvg_json_number(got),
                     kvg_json_number(reference), kvg_json_number(allowed), kvg_json_number(ratio));
}

static json_t *checks_to_json(const struct kvg_evidence *e)
{
    json_t *array = json_array();
    for (int i = 0; i < e->n_checks && array; i++) {
        const struct kvg_evidence_check *c = &e->checks[i];
        json_t *item = json_pack("{s:s,s:I,s:I,s:s,s:o}", "name", c->name, "failed", (json_int_t)c->failed,
                                 "of", (json_int_t)c->of, "where", c->where, "worst",
                                 numbers(&c->at, c->got, c->reference, c->allowed, c->ratio));
        if (json_array_append_new(array, item)) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

static json_t *elements_to_json(const struct kvg_evidence *e)
{
    json_t *array = json_array();
    for (int i = 0; i < e->n_worst && array; i++) {
        const struct kvg_evidence_element *w = &e->worst[i];
        if (json_array_append_new(array, numbers(&w->at, w->got, w->reference, w->allowed, w->ratio))) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

static json_t *heat_to_json(const struct kvg_evidence_heat *heat)
{
    json_t *cells = json_array();
    for (int i = 0; i < heat->down && cells; i++)
        if (json_array_append_new(cells, json_stringn(heat->cell[i], (size_t)heat->across))) {
            json_decref(cells);
            cells = NULL;
        }
    return cells ? json_pack("{s:I,s:s,s:o}", "heads", (json_int_t)heat->heads, "across", heat->across_words,
                             "cells", cells)
                 : NULL;
}

char *kvg_evidence_to_text(const struct kvg_evidence *e)
{
    json_t *root = json_pack("{s:s,s:s,s:o,s:o,s:o}", "run", e->run, "dump", e->dump, "checks",
                             checks_to_json(e), "worst", elements_to_json(e), "heat", heat_to_json(&e->heat));
    /* evidence is only read by people: seven digits are enough */
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(7)) : NULL;
    json_decref(root);
    return text;
}

/* ---------------------------------------------------------------- in */

static double number_at(const json_t *array, size_t i)
{
    double number = NAN;
    kvg_json_to_number(json_array_get(array, i), &number);
    return number;
}

static int64_t index_at(const json_t *array, size_t i)
{
    const json_t *value = json_array_get(array, i);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static void read_numbers(const json_t *array, struct kvg_evidence_element *out)
{
    out->at = (struct kvg_evidence_place){index_at(array, 0), index_at(array, 1), index_at(array, 2),
                                          index_at(array, 3)};
    out->got = number_at(array, 4);
    out->reference = number_at(array, 5);
    out->allowed = number_at(array, 6);
    out->ratio = number_at(array, 7);
}

static void copy_text(char *to, size_t size, const json_t *value)
{
    const char *text = json_string_value(value);
    snprintf(to, size, "%s", text ? text : "");
}

static void read_checks(const json_t *array, struct kvg_evidence *e)
{
    for (size_t i = 0; i < json_array_size(array) && e->n_checks < KVG_EVIDENCE_CHECKS; i++) {
        const json_t *item = json_array_get(array, i);
        struct kvg_evidence_check *c = &e->checks[e->n_checks++];
        struct kvg_evidence_element worst;
        copy_text(c->name, sizeof c->name, json_object_get(item, "name"));
        c->failed = json_integer_value(json_object_get(item, "failed"));
        c->of = json_integer_value(json_object_get(item, "of"));
        copy_text(c->where, sizeof c->where, json_object_get(item, "where"));
        read_numbers(json_object_get(item, "worst"), &worst);
        c->at = worst.at;
        c->got = worst.got;
        c->reference = worst.reference;
        c->allowed = worst.allowed;
        c->ratio = worst.ratio;
    }
}

static void read_heat(const json_t *object, struct kvg_evidence_heat *heat)
{
    const json_t *cells = json_object_get(object, "cells");
    heat->heads = json_integer_value(json_object_get(object, "heads"));
    copy_text(heat->across_words, sizeof heat->across_words, json_object_get(object, "across"));
    for (size_t i = 0; i < json_array_size(cells) && i < KVG_HEAT_DOWN; i++) {
        copy_text(heat->cell[i], sizeof heat->cell[i], json_array_get(cells, i));
        const int across = (int)strlen(heat->cell[i]);
        heat->across = i == 0 || across < heat->across ? across : heat->across;
        heat->down = (int)i + 1;
    }
}

int kvg_evidence_from_text(const char *text, struct kvg_evidence *e)
{
    json_t *root = json_loads(text, 0, NULL);
    memset(e, 0, sizeof *e);
    if (!json_is_object(root)) {
        json_decref(root);
        return -1;
    }
    const json_t *worst = json_object_get(root, "worst");
    copy_text(e->run, sizeof e->run, json_object_get(root, "run"));
    copy_text(e->dump, sizeof e->dump, json_object_get(root, "dump"));
    read_checks(json_object_get(root, "checks"), e);
    for (size_t i = 0; i < json_array_size(worst) && e->n_worst < KVG_EVIDENCE_WORST; i++)
        read_numbers(json_array_get(worst, i), &e->worst[e->n_worst++]);
    read_heat(json_object_get(root, "heat"), &e->heat);
    json_decref(root);
    return 0;
}
