/* SPDX-License-Identifier: Apache-2.0
 *
 * plot.c: which figures there are, and the folder that they go to.
 */
#include "plot.h"

#include <limits.h>
#include <string.h>
#include "results/disk.h"
#include "figures.h"

static const struct {
    const char *name;
    int (*draw)(struct plotter *p);
} figures[] = {{"error", draw_error},         {"gain", draw_gain},       {"throughput", draw_throughput},
               {"footprint", draw_footprint}, {"heatmap", draw_heatmap}, {"roofline", draw_roofline}};
#define N_FIGURES (sizeof(figures) / sizeof(figures[0]))
const char kvg_plot_names[] = "error, gain, throughput, footprint, heatmap, roofline";

int kvg_plot_is_figure(const char *name)
{
    for (size_t i = 0; i < N_FIGURES; i++)
        if (strcmp(figures[i].name, name) == 0)
            return 1;
    return 0;
}

int kvg_plot_all(const struct kvg_results *results, const struct kvg_plot_options *options,
                 struct kvg_error *error)
{
    enum { NAME_ROOM = 300 }; /* bytes left in a path for the name of a figure */
    struct plotter p = {.results = results,
                        .script_dir = options->script_dir,
                        .out_dir = options->out_dir,
                        .svg = options->svg,
                        .png = options->png,
                        .report = options->report,
                        .error = error};
    if (!*p.out_dir)
        return kvg_fail(error, KVG_EXIT_USAGE, "the name of the folder for plots is empty");
    if (strlen(p.out_dir) >= PATH_MAX - NAME_ROOM)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%.200s...: name too long", p.out_dir);
    if (kvg_make_folders(p.out_dir, error))
        return -1;
    for (size_t i = 0; i < N_FIGURES; i++)
        if ((!options->only || strcmp(options->only, figures[i].name) == 0) && figures[i].draw(&p))
            return -1;
    if (p.figures == 0)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "nothing to draw: no row has the values that %s needs",
                        options->only ? options->only : "any figure");
    return 0;
}
