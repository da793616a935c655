/* SPDX-License-Identifier: Apache-2.0
 *
 * figures.h: the kinds of figure. Private to plots/. Each function draws one picture for every group of rows
 * that fits its kind. 0, or -1 with the error in the plotter.
 */
#ifndef KVG_PLOTS_FIGURES_H
#define KVG_PLOTS_FIGURES_H

#include "draw.h"

int draw_error(struct plotter *p);      /* figures_quality.c */
int draw_heatmap(struct plotter *p);    /* figures_quality.c */
int draw_gain(struct plotter *p);       /* figures_gain.c */
int draw_throughput(struct plotter *p); /* figures_speed.c */
int draw_footprint(struct plotter *p);  /* figures_speed.c */
int draw_roofline(struct plotter *p);   /* figures_speed.c */

#endif
