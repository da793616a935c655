/* SPDX-License-Identifier: Apache-2.0
 *
 * row.c: rows, the table of columns (made from columns.def) and the names of the verdicts.
 *
 * The text in a row comes from kernels, files and command lines, and JSON and HDF5 need UTF-8. So bytes that
 * are not UTF-8 become U+FFFD when a field is set, and all other code can rely on UTF-8.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "row.h"

/* ---------------------------------------------------------------- columns and verdicts */

const struct kvg_column kvg_columns[] = {
#define KVG_STRING(name, long_name) {#name, KVG_COLUMN_STRING, "", long_name, offsetof(struct kvg_row, name)},
#define KVG_INT(name, units, long_name)                                                                      \
    {#name, KVG_COLUMN_INT, units, long_name, offsetof(struct kvg_row, name)},
#define KVG_FLOAT(name, units, long_name)                                                                    \
    {#name, KVG_COLUMN_FLOAT, units, long_name, offsetof(struct kvg_row, name)},
#include "columns.def"
};
const int64_t kvg_columns_count = (int64_t)(sizeof(kvg_columns) / sizeof(kvg_columns[0]));

const struct kvg_column *kvg_column_find(const char *name)
{
    for (int64_t i = 0; i < kvg_columns_count; i++)
        if (strcmp(kvg_columns[i].name, name) == 0)
            return &kvg_columns[i];
    return NULL;
}

static const struct {
    const char *name;
    enum kvg_exit exit_code;
} verdicts[KVG_STATUS_COUNT] = {
    [KVG_PASSED] = {"passed", KVG_EXIT_OK},        [KVG_INCORRECT] = {"incorrect", KVG_EXIT_INCORRECT},
    [KVG_SUSPECT] = {"suspect", KVG_EXIT_TROUBLE}, [KVG_MISTRUSTED] = {"mistrusted", KVG_EXIT_TROUBLE},
    [KVG_SKIPPED] = {"skipped", KVG_EXIT_OK},      [KVG_TIMEOUT] = {"timeout", KVG_EXIT_TROUBLE},
    [KVG_CRASHED] = {"crashed", KVG_EXIT_TROUBLE}, [KVG_OUT_OF_MEMORY] = {"out_of_memory", KVG_EXIT_TROUBLE},
    [KVG_INVALID] = {"invalid", KVG_EXIT_USAGE},
};

const char *kvg_status_name(enum kvg_status status)
{
    return (int)status >= 0 && (int)status < KVG_STATUS_COUNT ? verdicts[status].name : "unknown";
}

int kvg_status_exit_code(enum kvg_status status)
{
    return (int)status >= 0 && (int)status < KVG_STATUS_COUNT ? verdicts[status].exit_code : KVG_EXIT_TROUBLE;
}

/* ---------------------------------------------------------------- text */

/* Length of the well-formed UTF-8 sequence at s (Unicode, table 3-7); 0 if there is none. */
static int sequence_length(const unsigned char *s)
{
    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf)
        return (s[1] & 0xc0) == 0x80 ? 2 : 0;
    if ((s[0] & 0xf0) == 0xe0) {
        unsigned char low = s[0] == 0xe0 ? 0xa0 : 0x80, high = s[0] == 0xed ? 0x9f : 0xbf;
        return s[1] >= low && s[1] <= high && (s[2] & 0xc0) == 0x80 ? 3 : 0;
    }
    if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        unsigned char low = s[0] == 0xf0 ? 0x90 : 0x80, high = s[0] == 0xf4 ? 0x8f : 0xbf;
        return s[1] >= low && s[1] <= high && (s[2] & 0xc0) == 0x80 && (s[3] & 0xc0) == 0x80 ? 4 : 0;
    }
    return 0;
}

char *kvg_utf8_copy(const char *text)
{
    size_t size = 1;
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        int n = sequence_length(s);
        size += n ? (size_t)n : 3;
        s += n ? n : 1;
    }
    char *copy = malloc(size), *to = copy;
    if (!copy)
        return NULL;
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        int n = sequence_length(s);
        memcpy(to, n ? (const char *)s : "\xef\xbf\xbd", n ? (size_t)n : 3);
        to += n ? n : 3;
        s += n ? n : 1;
    }
    *to = '\0';
    return copy;
}

/* ---------------------------------------------------------------- rows */

int kvg_row_set_string(char **field, const char *value)
{
    char *copy = kvg_utf8_copy(value ? value : "");
    if (!copy)
        return -1;
    free(*field);
    *field = copy;
    return 0;
}

int kvg_row_init(struct kvg_row *row)
{
    memset(row, 0, sizeof(*row));
    int failed = 0;
#define KVG_STRING(name, long_name) failed |= kvg_row_set_string(&row->name, "");
#define KVG_INT(name, units, long_name) row->name = -1;
#define KVG_FLOAT(name, units, long_name) row->name = NAN;
#include "columns.def"
    if (failed)
        kvg_row_free(row);
    return failed ? -1 : 0;
}

void kvg_row_free(struct kvg_row *row)
{
    if (!row)
        return;
#define KVG_STRING(name, long_name) free(row->name);
#include "columns.def"
    free(row->time_samples);
    memset(row, 0, sizeof(*row));
}

int kvg_row_set_samples(struct kvg_row *row, const double *seconds, int64_t n)
{
    int64_t kept = n < KVG_MAX_SAMPLES ? n : KVG_MAX_SAMPLES;
    float *samples = kept > 0 ? malloc((size_t)kept * sizeof(float)) : NULL;
    if (kept > 0 && !samples)
        return -1;
    for (int64_t i = 0; i < kept; i++)
        samples[i] = (float)seconds[i];
    free(row->time_samples);
    row->time_samples = samples;
    row->n_samples_kept = kept > 0 ? kept : 0;
    return 0;
}
