/* SPDX-License-Identifier: Apache-2.0
 *
 * plot.h: results as pictures, drawn by gnuplot.
 *
 * For every figure a data table NAME.tsv is written, and gnuplot turns it into NAME.svg and NAME.png with one
 * of the scripts in this folder. Figures: error       kernel and quantisation error against context, a line
 * per scheme and calibration gain  share of the output that a predicted accumulator keeps, against context
 * throughput  KV bytes (prefill: flops) per second against context, with the
 * measured roofs footprint   bytes and bytes per token against context, a line per dtype heatmap quantisation
 * error over scheme x calibration x layer, on captured tensors roofline    flops per second against
 * arithmetic intensity, under the measured roofs
 */
#ifndef KVG_PLOTS_PLOT_H
#define KVG_PLOTS_PLOT_H

#include <stdio.h>
#include "results/journal.h"

struct kvg_plot_options {
    const char *script_dir; /* folder of the *.gp files */
    const char *out_dir;    /* created, with its parents, when missing */
    const char *only;       /* one of the figures above; NULL = all */
    int svg, png;           /* formats wanted */
    FILE *report; /* one line a file written and a figure left out, with the reason; NULL = silent */
};

/* 1 if `name` is a figure. The names, comma-separated, for messages: kvg_plot_names. */
int kvg_plot_is_figure(const char *name);
extern const char kvg_plot_names[];

/* Draws what the results have data for. 0, or -1 with the error: gnuplot missing or failing, a file that
 * cannot be written, or nothing to draw at all (exit code 3). */
int kvg_plot_all(const struct kvg_results *results, const struct kvg_plot_options *options,
                 struct kvg_error *error);

#endif
