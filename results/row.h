/* SPDX-License-Identifier: Apache-2.0
 *
 * row.h: one row of results: one case, one attempt.
 *
 * The columns are listed once, in columns.def; the struct below, the HDF5 datasets, the journal, the
 * exports and SCHEMA.md's table all come from that list. A float that was not measured is NaN, an integer
 * that has no meaning is -1, a string without content is "" (never NULL after kvg_row_init).
 */
#ifndef KVG_RESULTS_ROW_H
#define KVG_RESULTS_ROW_H

#include <stddef.h>
#include <stdint.h>

/* Verdict of a row. The numbers are stored; they never change, new ones are added at the end. */
enum kvg_status {
    KVG_PASSED = 0,
    KVG_INCORRECT = 1,  /* a check failed */
    KVG_SUSPECT = 2,    /* faster than the roof allows: times stay, throughput is blank */
    KVG_MISTRUSTED = 3, /* the check saw too little to tell right from wrong */
    KVG_SKIPPED = 4,    /* unsupported or without meaning; see reason */
    KVG_TIMEOUT = 5,
    KVG_CRASHED = 6, /* a signal ended the worker */
    KVG_OUT_OF_MEMORY = 7,
    KVG_INVALID = 8, /* the case contradicts itself or its input: bad scale, context too long */
    KVG_STATUS_COUNT
};
const char *kvg_status_name(enum kvg_status status); /* "passed", ... */
/* The exit code a row of this status asks for (results/error.h). */
int kvg_status_exit_code(enum kvg_status status);

#define KVG_MAX_SAMPLES 256 /* samples kept per row */

struct kvg_row {
#define KVG_STRING(name, long_name) char *name;
#define KVG_INT(name, units, long_name) int64_t name;
#define KVG_FLOAT(name, units, long_name) double name;
#include "columns.def"
    float *time_samples;    /* [n_samples_kept] seconds, owned; NULL when not timed */
    int64_t n_samples_kept; /* <= KVG_MAX_SAMPLES */
};

enum kvg_column_type { KVG_COLUMN_STRING, KVG_COLUMN_INT, KVG_COLUMN_FLOAT };
struct kvg_column {
    const char *name;
    enum kvg_column_type type;
    const char *units; /* UDUNITS text: "s", "B", "B/s", "1", "percent"; "" for strings */
    const char *long_name;
    size_t offset; /* into struct kvg_row */
};
extern const struct kvg_column kvg_columns[];
extern const int64_t kvg_columns_count;
const struct kvg_column *kvg_column_find(const char *name); /* NULL if unknown */

int kvg_row_init(struct kvg_row *row);  /* all missing; -1 on out of memory */
void kvg_row_free(struct kvg_row *row); /* and zeroes it: freeing twice is harmless */
/* Copies (NULL as ""); bytes that are not UTF-8 become U+FFFD. -1 on out of memory. */
int kvg_row_set_string(char **field, const char *value);
/* Overwrites *to without freeing it; on failure (-1, out of memory) *to is untouched. */
int kvg_row_copy(struct kvg_row *to, const struct kvg_row *from);
/* Keeps the first KVG_MAX_SAMPLES of n times; replaces earlier ones. -1 on out of memory. */
int kvg_row_set_samples(struct kvg_row *row, const double *seconds, int64_t n);
/* Malloc'ed copy in which every byte that is not part of well-formed UTF-8 is U+FFFD. NULL: out of memory. */
char *kvg_utf8_copy(const char *text);

#endif
