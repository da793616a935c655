/* SPDX-License-Identifier: Apache-2.0
 *
 * draw.h: one figure from table to picture. Private to plots/.
 */
#ifndef KVG_PLOTS_DRAW_H
#define KVG_PLOTS_DRAW_H

#include "results/group.h"
#include "plot.h"

struct plotter {
    const struct kvg_results *results;
    const struct kvg_plot_options *options;
    struct kvg_error *error;
    int64_t figures; /* drawn so far */
};

/* What a script is given: ARG1 data, ARG2 output, ARG3 format (svg or png), then these. */
#define FIGURE_EXTRAS 4
struct figure {
    char name[160];                     /* file name without suffix; made safe by figure_name */
    char title[256];                    /* ARG4 */
    char detail[200];                   /* ARG5, second line of the title */
    char series[4096];                  /* ARG6, names of the lines, separated by spaces */
    char extra[FIGURE_EXTRAS - 1][640]; /* ARG7 to ARG9 */
    FILE *data;
};

/* Opens NAME.tsv; anything but letters, digits, '.', '_' and '-' in the name becomes '-'. */
int figure_begin(struct plotter *p, struct figure *f);
/* Closes the table and has gnuplot draw it with `script` in every format wanted. */
int figure_end(struct plotter *p, struct figure *f, const char *script);
/* Appends a word to a list of words; blanks, quotes and '%' in it become '_'. Nothing happens when it does
 * not fit. */
void figure_add_word(char *list, size_t size, const char *word);
/* "left out: ..." on the report. */
void figure_left_out(struct plotter *p, const char *figure, const char *why);

/* The figures, each for every group of rows it fits. 0, or -1 with the error. */
int draw_error(struct plotter *p);
int draw_gain(struct plotter *p);
int draw_throughput(struct plotter *p);
int draw_footprint(struct plotter *p);
int draw_heatmap(struct plotter *p);
int draw_roofline(struct plotter *p);

#endif
