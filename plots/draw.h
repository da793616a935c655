/* SPDX-License-Identifier: Apache-2.0
 *
 * draw.h: one figure, from its data table to its pictures. Private to plots/.
 */
#ifndef KVG_PLOTS_DRAW_H
#define KVG_PLOTS_DRAW_H

#include <stdio.h>
#include "results/group.h"

struct plotter {
    const struct kvg_results *results;
    const char *script_dir, *out_dir; /* folders of the *.gp files and of the figures */
    int svg, png;                     /* formats wanted */
    FILE *report;                     /* a line for each picture and each figure left out; NULL: none */
    struct kvg_error *error;
    int64_t figures; /* drawn so far */
};

/* The arguments of a script: ARG1 data, ARG2 picture, ARG3 its format (svg or png), then those below. */
enum { FIGURE_EXTRAS = 3 };
struct figure {
    char name[160];                 /* file name without suffix */
    char title[256];                /* ARG4 */
    char detail[200];               /* ARG5, second line of the title */
    char series[4096];              /* ARG6, names of the lines, separated by blanks */
    char extra[FIGURE_EXTRAS][640]; /* ARG7 to ARG9 */
    FILE *data;                     /* NAME.tsv, open between figure_begin and figure_end */
};

/* Opens NAME.tsv. Each character of the name that is no letter, digit, '.', '_' or '-' becomes '-'. 0, or -1
 * with the error. */
int figure_begin(struct plotter *p, struct figure *f);
/* Closes the data and has gnuplot draw it with `script` in every format wanted. 0, or -1 with the error. */
int figure_end(struct plotter *p, struct figure *f, const char *script);
/* Appends a word to a list of words, if it fits. Blanks, double quotes and '%' in it become '_'. */
void figure_add_word(char *list, size_t size, const char *word);
/* Reports that a figure is left out, with the reason. */
void figure_left_out(struct plotter *p, const char *figure, const char *why);

/* Different words, in the order in which they came. */
enum { WORDS_MAX = 128 };
struct words {
    char text[WORDS_MAX][96];
    int n;
};
/* Adds a word that is not there yet. Returns its index, or -1 when the list already holds `most` words or
 * WORDS_MAX. */
int words_add(struct words *list, const char *word, int most);

/* Number of different contexts among the rows of a group. */
int64_t count_contexts(const struct kvg_picks *picks, int64_t begin, int64_t end);

#endif
