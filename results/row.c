/* SPDX-License-Identifier: Apache-2.0
 *
 * row.c: the life of a row: all missing, filled field by field, copied, freed.
 *
 * Text enters rows from kernels, files and command lines; JSON and HDF5 want UTF-8. So bytes that are not
 * UTF-8 become U+FFFD on the way in, and every later stage can rely on it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "row.h"

/* Length of the well-formed UTF-8 sequence at s (Unicode table 3-7), 0 if there is none. */
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

int kvg_row_copy(struct kvg_row *to, const struct kvg_row *from)
{
    struct kvg_row copy = *from;
    int failed = 0;
    copy.time_samples = NULL;
#define KVG_STRING(name, long_name)                                                                          \
    copy.name = NULL;                                                                                        \
    failed |= kvg_row_set_string(&copy.name, from->name);
#include "columns.def"
    if (from->time_samples && from->n_samples_kept > 0) {
        size_t size = (size_t)from->n_samples_kept * sizeof(float);
        copy.time_samples = malloc(size);
        if (copy.time_samples)
            memcpy(copy.time_samples, from->time_samples, size);
        failed |= !copy.time_samples;
    }
    if (failed) {
        kvg_row_free(&copy);
        return -1;
    }
    *to = copy;
    return 0;
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
