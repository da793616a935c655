/* SPDX-License-Identifier: Apache-2.0
 *
 * table.h: the summary of a run, as text for a terminal.
 *
 * Its parts, in this order:
 *   the verdict and the machine
 *   quantisation error of each calibration on real tensors
 *   effect of scale 1.0 on synthetic input
 *   speed, compared with the roofs
 *   memory
 *   correctness of the kernels
 *   predictions
 *   every row that did not pass, with the reason and the command that repeats it
 *   where the time of the run went, in one line
 * The sentences are derived from the numbers above them. Most parts name a command that lists their rows.
 *
 * No line but a command is longer than the terminal is wide: parts leave out columns on a narrow one. On a wide
 * one there are more columns, more layers and whole names of kernels. Paragraphs are at most 100 columns wide.
 */
#ifndef KVG_RESULTS_TABLE_H
#define KVG_RESULTS_TABLE_H

#include <stdio.h>
#include "results.h"

struct kvg_table_options {
    const char *path; /* result file, quoted for a shell, for the commands that list rows; NULL = FILE */
    int most;         /* failed rows that are printed with a command; the others are counted. 0 = every one */
    int all;          /* 1: also print every row, every shape, and every skipped row by itself */
    int width;        /* in columns; 0 = $COLUMNS, or the width of the terminal, or 100 */
    int colour;       /* 1 yes, 0 no, -1 if `out` is a terminal, TERM is not dumb and NO_COLOR is not set */
};

/* 1 for colour, 0 for none; `asked` is the `colour` of the options. */
int kvg_wants_colour(FILE *out, int asked);

/* Columns of a table on `out`; `asked` is the `width` of the options. */
int kvg_table_width(FILE *out, int asked);

/* 0, or -1 when writing to `out` failed or memory ran out. */
int kvg_table_print(FILE *out, const struct kvg_results *results, const struct kvg_table_options *options);

/* The part on rows that did not pass alone. Same return value. */
int kvg_table_print_problems(FILE *out, const struct kvg_results *results,
                             const struct kvg_table_options *options);

/* Chosen columns of every row, aligned, floats with 5 significant digits. Same return value. Implemented in
 * table_columns.c. */
int kvg_table_print_columns(FILE *out, const struct kvg_results *results,
                            const struct kvg_column *const *columns, int64_t n_columns);

#endif
