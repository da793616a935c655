/* SPDX-License-Identifier: Apache-2.0
 *
 * common.c: for every axis, find the condition that all failed rows meet: one value, or "above 0" where the
 * values differ. The answer is the first condition that no passed row meets, or else the first pair of
 * conditions that no passed row meets together.
 */
#include "common.h"

#include <stdio.h>
#include <string.h>

/* Axes, the most informative ones first. */
static const char *const axes[] = {"phase",       "path",   "kv_cache_dtype", "layout",   "scheme",
                                   "calibration", "window", "soft_cap",       "head_dim", "block_size",
                                   "lengths",     "input",  "q_heads",        "kv_heads", "batch",
                                   "context",     "q_len",  "cache_state"};
enum { AXES = sizeof axes / sizeof axes[0] };

/* A row meets it if its value is this text, or, with above_0, a number above 0. */
struct condition {
    const struct kvg_column *column; /* NULL: no condition on this axis */
    int above_0;
    char value[96];
};

static double number_of(const struct kvg_row *row, const struct kvg_column *column)
{
    const void *field = (const char *)row + column->offset;
    return column->type == KVG_COLUMN_INT ? (double)*(const int64_t *)field : *(const double *)field;
}

static void value_of(const struct kvg_row *row, const struct kvg_column *column, char *text, size_t size)
{
    if (column->type == KVG_COLUMN_STRING)
        snprintf(text, size, "%s", *(char *const *)((const char *)row + column->offset));
    else
        snprintf(text, size, "%g", number_of(row, column));
}

static int meets(const struct kvg_row *row, const struct condition *c)
{
    char text[sizeof c->value];
    if (c->above_0)
        return number_of(row, c->column) > 0.0;
    value_of(row, c->column, text, sizeof text);
    return strcmp(text, c->value) == 0;
}

static int is_of(const struct kvg_row *row, const char *kernel, enum kvg_status status)
{
    return row->status == (int64_t)status && strcmp(row->kernel, kernel) == 0;
}

/* The condition that all failed rows meet on an axis. */
static void find_condition(const struct kvg_results *results, const char *kernel, const char *axis,
                           struct condition *c)
{
    int same = 1, above_0 = 1, seen = 0;
    *c = (struct condition){.column = kvg_column_find(axis)};
    for (int64_t i = 0; i < results->count && c->column; i++) {
        const struct kvg_row *row = &results->rows[i];
        char text[sizeof c->value];
        if (!is_of(row, kernel, KVG_INCORRECT))
            continue;
        value_of(row, c->column, text, sizeof text);
        if (!seen++)
            memcpy(c->value, text, sizeof text);
        same = same && strcmp(c->value, text) == 0;
        above_0 = above_0 && c->column->type != KVG_COLUMN_STRING && number_of(row, c->column) > 0.0;
    }
    c->above_0 = !same && above_0;
    if (!seen || (!same && !above_0))
        c->column = NULL;
}

/* Sets bit b of together[a] if some passed row meets both a and b. Returns the number of passed rows. */
static int64_t check_passed(const struct kvg_results *results, const char *kernel, const struct condition *c,
                            uint32_t together[AXES])
{
    int64_t passed = 0;
    memset(together, 0, AXES * sizeof *together);
    for (int64_t i = 0; i < results->count; i++) {
        uint32_t met = 0;
        if (!is_of(&results->rows[i], kernel, KVG_PASSED))
            continue;
        passed++;
        for (int a = 0; a < AXES; a++)
            met |= c[a].column && meets(&results->rows[i], &c[a]) ? UINT32_C(1) << a : 0;
        for (int a = 0; a < AXES; a++)
            together[a] |= met >> a & 1u ? met : 0;
    }
    return passed;
}

static void words_of(const struct condition *c, char *text, size_t size)
{
    snprintf(text, size, c->above_0 ? "%s>0" : "%s=%s", c->column->name, c->value);
}

int kvg_common_of_failures(const struct kvg_results *results, const char *kernel, char *text, size_t size)
{
    struct condition c[AXES];
    char first[160], second[160];
    uint32_t together[AXES];
    text[0] = '\0';
    for (int a = 0; a < AXES; a++)
        find_condition(results, kernel, axes[a], &c[a]);
    if (check_passed(results, kernel, c, together) == 0)
        return 0;
    for (int a = 0; a < AXES; a++)
        if (c[a].column && !(together[a] >> a & 1u)) {
            words_of(&c[a], text, size);
            return 1;
        }
    for (int a = 0; a < AXES; a++)
        for (int b = a + 1; b < AXES; b++)
            if (c[a].column && c[b].column && !(together[a] >> b & 1u)) {
                words_of(&c[a], first, sizeof first);
                words_of(&c[b], second, sizeof second);
                snprintf(text, size, "%s and %s", first, second);
                return 1;
            }
    return 0;
}
