/* SPDX-License-Identifier: Apache-2.0
 *
 * expand.c: splits at commas, expands ranges, and checks each value.
 */
#include "expand.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANGE 100000 /* values of one range; more are assumed to be a mistake */

void kvg_values_free(struct kvg_values *values)
{
    for (int64_t i = 0; i < values->count; i++)
        free(values->text[i]);
    free(values->text);
    *values = (struct kvg_values){0};
}

int kvg_values_add(struct kvg_values *values, const char *text, int64_t length)
{
    if ((values->count & (values->count - 1)) == 0) { /* full at every power of two */
        int64_t room = values->count ? values->count * 2 : 1;
        char **grown = realloc(values->text, (size_t)room * sizeof *grown);
        if (!grown)
            return -1;
        values->text = grown;
    }
    char *copy = strndup(text, (size_t)length);
    if (!copy)
        return -1;
    values->text[values->count++] = copy;
    return 0;
}

static int out_of_memory(struct kvg_error *error)
{
    return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory while reading axis values");
}

static int add_value(enum kvg_axis axis, const char *value, struct kvg_values *values,
                     struct kvg_error *error)
{
    /* kvg_case_set checks an axis alone; kvg_case_complete checks combinations later. */
    struct kvg_case scratch = {0};
    int all_layers = axis == KVG_AXIS_LAYER && strcmp(value, "all") == 0;
    if (!all_layers && kvg_case_set(&scratch, axis, value, error))
        return -1;
    return kvg_values_add(values, value, (int64_t)strlen(value)) ? out_of_memory(error) : 0;
}

static int bad_range(enum kvg_axis axis, const char *item, const char *why, struct kvg_error *error)
{
    return kvg_fail(error, KVG_EXIT_USAGE,
                    "%s: range '%s' %s; a range is FIRST:LAST:*FACTOR or FIRST:LAST:+STEP, "
                    "as in 1k:128k:*2",
                    kvg_axis_get_info(axis)->name, item, why);
}

static int add_range(enum kvg_axis axis, const char *item, int64_t first, int64_t last, char sign, int64_t by,
                     struct kvg_values *values, struct kvg_error *error)
{
    int64_t n = 0;
    for (int64_t value = first; value <= last; n++) {
        char text[32];
        snprintf(text, sizeof text, "%" PRId64, value);
        if (n == MAX_RANGE)
            return bad_range(axis, item, "has more than 100000 values", error);
        if (add_value(axis, text, values, error))
            return -1;
        if (sign == '*' ? __builtin_mul_overflow(value, by, &value)
                        : __builtin_add_overflow(value, by, &value))
            break;
    }
    return 0;
}

/* item is FIRST:LAST:*FACTOR or FIRST:LAST:+STEP. */
static int expand_range(enum kvg_axis axis, const char *item, struct kvg_values *values,
                        struct kvg_error *error)
{
    char copy[128];
    int64_t first, last, by;
    if (strlen(item) >= sizeof copy)
        return bad_range(axis, "...", "is too long", error);
    strcpy(copy, item);
    char *second = strchr(copy, ':');
    *second++ = '\0';
    char *third = strchr(second, ':');
    if (!third)
        return bad_range(axis, item, "has no step", error);
    *third++ = '\0';
    char sign = *third;
    if ((sign != '*' && sign != '+') || kvg_parse_size(third + 1, &by))
        return bad_range(axis, item, "has a step that is neither *FACTOR nor +STEP", error);
    if (kvg_parse_size(copy, &first) || kvg_parse_size(second, &last))
        return bad_range(axis, item, "has ends that are not whole numbers", error);
    if (first > last)
        return bad_range(axis, item, "ends before it begins", error);
    if (by < (sign == '*' ? 2 : 1) || (sign == '*' && first < 1))
        return bad_range(axis, item, "would never end", error);
    return add_range(axis, item, first, last, sign, by, values, error);
}

static int expand_item(enum kvg_axis axis, char *item, const char *whole, struct kvg_values *values,
                       struct kvg_error *error)
{
    while (isspace((unsigned char)*item))
        item++;
    size_t length = strlen(item);
    while (length > 0 && isspace((unsigned char)item[length - 1]))
        item[--length] = '\0';
    if (length == 0)
        return kvg_fail(error, KVG_EXIT_USAGE, "%s: '%s' has an empty value", kvg_axis_get_info(axis)->name,
                        whole);
    if (kvg_axis_is_integer(axis) && strchr(item, ':'))
        return expand_range(axis, item, values, error);
    return add_value(axis, item, values, error);
}

int kvg_values_expand(enum kvg_axis axis, const char *text, struct kvg_values *values,
                      struct kvg_error *error)
{
    char *copy = strdup(text);
    if (!copy)
        return out_of_memory(error);
    int failed = 0;
    for (char *item = copy; item && !failed;) {
        char *comma = strchr(item, ',');
        if (comma)
            *comma = '\0';
        failed = expand_item(axis, item, text, values, error);
        item = comma ? comma + 1 : NULL;
    }
    free(copy);
    return failed ? -1 : 0;
}
