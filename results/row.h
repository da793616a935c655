/* SPDX-License-Identifier: Apache-2.0
 *
 * row.h: one row of results: one attempt at one case.
 *
 * columns.def lists every column once. The struct below, the HDF5 datasets, the journal and the exports are
 * made from that list; a test compares the table of columns in SCHEMA.md with it. The value of a missing
 * field is NaN for a float, -1 for an integer and "" for a string. No string is NULL after kvg_row_init.
 */
#ifndef KVG_RESULTS_ROW_H
#define KVG_RESULTS_ROW_H

#include <stddef.h>
#include <stdint.h>
#include "error.h"

/* Verdict of a row. Files store these numbers: they never change, and new verdicts are added at the end. */
enum kvg_status {
    KVG_PASSED = 0,
    KVG_INCORRECT = 1,  /* a check failed */
    KVG_SUSPECT = 2,    /* faster than the roof allows: the times are kept, the throughput is missing */
    KVG_MISTRUSTED = 3, /* the check could not tell right from wrong */
    KVG_SKIPPED = 4,    /* unsupported or meaningless; the column reason says why */
    KVG_TIMEOUT = 5,
    KVG_CRASHED = 6, /* a signal ended the worker */
    KVG_OUT_OF_MEMORY = 7,
    KVG_INVALID = 8, /* the case contradicts itself or its input: bad scale, context too long */
    KVG_STATUS_COUNT
};
const char *kvg_status_name(enum kvg_status status); /* "passed", ...; "unknown" for any other number */
/* Exit code for a run that has a row of this status; KVG_EXIT_TROUBLE for an unknown status. */
int kvg_status_exit_code(enum kvg_status status);

#define KVG_MAX_SAMPLES 256 /* samples kept per row */

struct kvg_row {
#define KVG_STRING(name, long_name) char *name;
#define KVG_INT(name, units, long_name) int64_t name;
#define KVG_FLOAT(name, units, long_name) double name;
#include "columns.def"
    float *time_samples;    /* [n_samples_kept], in seconds, owned by the row; NULL when not timed */
    int64_t n_samples_kept; /* <= KVG_MAX_SAMPLES */
};

enum kvg_column_type { KVG_COLUMN_STRING, KVG_COLUMN_INT, KVG_COLUMN_FLOAT };
struct kvg_column {
    const char *name;
    enum kvg_column_type type;
    const char *units;     /* UDUNITS text: "s", "B", "B/s", "1", "percent"; "" for strings */
    const char *long_name; /* meaning, in a few words */
    size_t offset;         /* into struct kvg_row */
};
extern const struct kvg_column kvg_columns[];
extern const int64_t kvg_columns_count;
const struct kvg_column *kvg_column_find(const char *name); /* NULL if unknown */

int kvg_row_init(struct kvg_row *row);  /* sets every field to missing; -1 on out of memory */
void kvg_row_free(struct kvg_row *row); /* also zeroes the row, so that a second call is harmless */
/* Replaces *field by a copy of value (NULL counts as ""). Bytes that are not UTF-8 become U+FFFD. -1 on out
 * of memory. */
int kvg_row_set_string(char **field, const char *value);
/* Replaces the samples by the first KVG_MAX_SAMPLES of n times, in seconds. -1 on out of memory. */
int kvg_row_set_samples(struct kvg_row *row, const double *seconds, int64_t n);
/* A malloc'ed copy in which every byte that is not part of well-formed UTF-8 is U+FFFD. NULL: out of
 * memory. */
char *kvg_utf8_copy(const char *text);

/* One row as one line of JSON without the newline (malloc'ed; NULL on out of memory), and back. The journal
 * and the pipe from worker to parent use it. Implemented in encode.c. */
char *kvg_row_to_json(const struct kvg_row *row);
int kvg_row_from_json(const char *line, struct kvg_row *row, struct kvg_error *error);

#endif
