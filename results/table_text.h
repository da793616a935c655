/* SPDX-License-Identifier: Apache-2.0
 *
 * table_text.h: the pieces that every part of the table is printed with: headings, paragraphs and
 * cells. Private to results/.
 */
#ifndef KVG_RESULTS_TABLE_TEXT_H
#define KVG_RESULTS_TABLE_TEXT_H

#include <stdio.h>
#include "group.h"
#include "results.h"

/* Columns of text where the width of the screen is unknown, and the longest line of a paragraph. */
enum { KVG_USUAL_WIDTH = 100 };

/* The table while it is printed. */
struct kvg_table {
    FILE *out;
    const struct kvg_results *results; /* without attempts that a later one replaces */
    const char *path;                  /* result file, for the commands that list rows */
    int all, most, colour, width;      /* as in struct kvg_table_options, with the defaults resolved */
    int section;                       /* number of the last heading */
};

/* A heading with the next number. */
void kvg_table_heading(struct kvg_table *t, const char *title);
/* A paragraph, indented by two columns and broken at the width of the table, at most KVG_USUAL_WIDTH. */
void kvg_table_say(struct kvg_table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* After kvg_pick_plain: how many rows it left out, and why. Prints nothing if there are none. */
void kvg_table_say_left_out(struct kvg_table *t, const struct kvg_picks *picks);
/* The command that lists the rows of a part: "rows: kvgauge show FILE --all --filter 'REGEX'", given the
 * regex. The line is not broken, so that it can be copied. */
void kvg_table_trace(struct kvg_table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The words of a text, from column `indent` on, up to where the caller has printed. A word that would end
 * beyond `width` starts a new line, indented by `indent`. No newline at the end. */
void kvg_text_wrap(FILE *out, const char *text, int indent, int width);

/* A cell of `width` columns: aligned to the right, or to the left if the width is negative. Nothing for width 0,
 * which is a column that is left out. A longer text keeps a blank on its open side, so that two cells are never
 * glued. */
void kvg_put_cell(FILE *out, int width, const char *text);

/* Numbers as text; "-" for NaN. Each returns `text`. */
#define KVG_CELL 24
const char *kvg_cell_time(double seconds, char text[KVG_CELL]); /* with its unit: "1.21 ms" */
/* With so many significant digits, and without an exponent between 1e-4 and 1e9. */
const char *kvg_cell_digits(double value, int digits, char text[KVG_CELL]);
const char *kvg_cell_fixed(double value, int decimals, char text[KVG_CELL]);
/* First 8 digits of the case id, which --filter accepts. */
const char *kvg_cell_case(const struct kvg_row *row, char text[KVG_CELL]);
/* A name longer than `width` loses its middle, because both ends are needed to tell kernels apart. */
const char *kvg_fit_name(const char *name, int width, char text[64]);
/* Width of the column of dtypes: as wide as the longest dtype of the rows needs. */
int kvg_dtype_width(const struct kvg_results *results);
/* Columns that a UTF-8 text takes on a terminal, counted as one per character. */
int kvg_text_width(const char *text);

#endif
