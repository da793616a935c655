/* SPDX-License-Identifier: Apache-2.0
 *
 * table_parts.h: the sections of the table. Private to results/. Each prints nothing when there is nothing to
 * say; each returns 0, or -1 on out of memory (a failed write shows in ferror).
 */
#ifndef KVG_RESULTS_TABLE_PARTS_H
#define KVG_RESULTS_TABLE_PARTS_H

#include "group.h"
#include "table.h"

struct kvg_table {
    FILE *out;
    const struct kvg_results *results; /* superseded attempts left out */
    const char *path;
    int all, colour, width;
    int section; /* number of the last one printed */
};

int kvg_table_real_quality(struct kvg_table *t);      /* scheme x calibration on captured input */
int kvg_table_synthetic_quality(struct kvg_table *t); /* what scale 1.0 does to synthetic input */
int kvg_table_speed(struct kvg_table *t);
int kvg_table_memory(struct kvg_table *t);
int kvg_table_correctness(struct kvg_table *t);
int kvg_table_predictions(struct kvg_table *t); /* rows that no kernel computed */
int kvg_table_problems(struct kvg_table *t);

/* A numbered heading. */
void kvg_table_heading(struct kvg_table *t, const char *title);
/* "rows: kvgauge show FILE --all --filter 'REGEX'", given the regex. */
void kvg_table_trace(struct kvg_table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A paragraph, indented by two and broken at 100 columns, or at the width where that is less. */
void kvg_table_say(struct kvg_table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Numbers for people; "-" for NaN. */
#define KVG_CELL 24
const char *kvg_cell_time(double seconds, char text[KVG_CELL]); /* "1.21 ms" */
const char *kvg_cell_digits(double value, int digits,
                            char text[KVG_CELL]); /* significant digits, no exponent where avoidable */
const char *kvg_cell_fixed(double value, int decimals, char text[KVG_CELL]);
/* Names longer than `width` lose their middle: both ends tell kernels apart. */
const char *kvg_fit_name(const char *name, int width, char text[64]);
/* Width of the column of dtypes, as the file needs it. */
int kvg_dtype_width(const struct kvg_results *results);
/* First 8 digits of a case id: --filter takes them. */
const char *kvg_cell_case(const struct kvg_row *row, char text[KVG_CELL]);
/* Columns a UTF-8 text takes on a terminal (one each; good for what stands in our tables). */
int kvg_text_width(const char *text);

#endif
