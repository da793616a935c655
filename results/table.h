/* SPDX-License-Identifier: Apache-2.0
 *
 * table.h: what a person wants to know of a run, at most 100 columns wide; the speed table is as wide as the
 * terminal: a narrow one shows fewer columns, a wide one more.
 *
 * First the verdict, then what each calibration is worth on real tensors, what scale 1.0 does to others,
 * speed against the roofs, memory, the kernels' correctness, and every row that is not passed with its reason
 * and the command that repeats it; last, in a line, where the time of the run went. Sentences are derived
 * from the numbers above them. Each table names a command that lists the rows behind it.
 */
#ifndef KVG_RESULTS_TABLE_H
#define KVG_RESULTS_TABLE_H

#include <stdio.h>
#include "journal.h"

struct kvg_table_options {
    const char *path; /* result file as a shell takes it, for the commands that list rows; NULL = FILE */
    int all;          /* every row after the sections, and every skipped row by itself */
    int width;        /* columns; 0 = those of the terminal, or of COLUMNS, or 100 */
    int colour;       /* 1 yes, 0 no, -1 if `out` is a terminal, TERM is not dumb and NO_COLOR is not set */
};

/* `colour` of the options, settled. */
int kvg_wants_colour(FILE *out, int asked);

/* 0, or -1 when `out` takes no more or memory ran out. */
int kvg_table_print(FILE *out, const struct kvg_results *results, const struct kvg_table_options *options);

/* Chosen columns of every row, aligned, floats with 5 significant digits. Same return value. */
int kvg_table_print_columns(FILE *out, const struct kvg_results *results,
                            const struct kvg_column *const *columns, int64_t n_columns);

#endif
