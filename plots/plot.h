/* SPDX-License-Identifier: Apache-2.0
 *
 * plot.h: results as pictures, drawn by gnuplot.
 *
 * For every figure a data table NAME.tsv is written. gnuplot turns it into NAME.svg and NAME.png with one of
 * the scripts in this folder. The figures:
 *   error       kernel and quantisation error against context, one line per scheme and calibration
 *   gain        factor between the output and the reference against context, one line per accumulator;
 *               drawn where there are predictions
 *   throughput  KV bytes (where arithmetic is the limit: flops) per second against context, with the measured
 *               roofs
 *   footprint   MiB and bytes per token against context, one line per dtype
 *   heatmap     quantisation error over scheme and calibration (down) and layer (across), on captured tensors
 *   roofline    flops per second against arithmetic intensity, with the measured roofs
 */
#ifndef KVG_PLOTS_PLOT_H
#define KVG_PLOTS_PLOT_H

#include <stdio.h>
#include "results/results.h"

struct kvg_plot_options {
    const char *script_dir; /* folder of the *.gp files */
    const char *out_dir;    /* made, with the folders above it, when missing */
    const char *only;       /* one of the figures above; NULL = all */
    int svg, png;           /* formats wanted */
    FILE *report; /* a line for each picture, and for each figure left out with the reason; NULL: none */
};

/* 1 if `name` is a figure. */
int kvg_plot_is_figure(const char *name);
extern const char kvg_plot_names[]; /* the names, comma-separated, for messages */

/* Draws every figure that the results have data for. 0, or -1 with the error: gnuplot missing or failing, a
 * file that cannot be written, or no figure at all (exit code 3). */
int kvg_plot_all(const struct kvg_results *results, const struct kvg_plot_options *options,
                 struct kvg_error *error);

#endif
