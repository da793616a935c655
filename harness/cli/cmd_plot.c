/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_plot.c: `kvgauge plot`: draws a result file or a journal.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "plots/plot.h"
#include "commands.h"
#include "file_options.h"
#include "options.h"
#include "harness/machine/paths.h"

enum { KEY_OUT = 'o', KEY_ONLY = 'n', KEY_FORMAT = 'f' };

struct plot_options {
    struct kvg_file_options file;
    struct kvg_plot_options plot;
};

static const struct argp_option options[] = {
    {"out", KEY_OUT, "DIR", 0,
     "Folder for the pictures and their data tables (default: plots/out of the source tree, elsewhere "
     "./kvgauge-plots).",
     0},
    {"only", KEY_ONLY, "FIGURE", 0,
     "Draw one kind of figure: error, gain, throughput, footprint, heatmap or roofline (default: all).", 0},
    {"format", KEY_FORMAT, "LIST", 0, "Formats of the pictures: svg, png or svg,png (default svg,png).", 0},
    {0}};

static void parse_formats(const char *list, struct kvg_plot_options *o, struct argp_state *state)
{
    o->svg = o->png = 0;
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ",");
        if (n == 3 && strncmp(at, "svg", 3) == 0)
            o->svg = 1;
        else if (n == 3 && strncmp(at, "png", 3) == 0)
            o->png = 1;
        else
            argp_error(state, "--format %s: svg, png or svg,png would be right", list);
        at += n + (at[n] == ',');
    }
    if (!o->svg && !o->png)
        argp_error(state, "--format names no format; svg, png or svg,png would be right");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct plot_options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->file;
        return 0;
    case KEY_OUT:
        o->plot.out_dir = arg;
        return 0;
    case KEY_ONLY:
        if (!kvg_plot_is_figure(arg))
            argp_error(state, "--only %s: not one of %s", arg, kvg_plot_names);
        o->plot.only = arg;
        return 0;
    case KEY_FORMAT:
        parse_formats(arg, &o->plot, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&kvg_file_argp, 0, NULL, 0}, {0}};
const struct argp kvg_plot_argp = {options,
                                   parse,
                                   "FILE",
                                   "Draw a result file (run.h5) or a journal (run.jsonl) with gnuplot.\v"
                                   "The data of each picture are written beside it, as a table NAME.tsv.",
                                   children,
                                   NULL,
                                   NULL};

static int plot(struct plot_options *o, struct kvg_error *error)
{
    struct kvg_results results;
    char scripts[PATH_MAX], folder[PATH_MAX];
    if (kvg_data_dir(KVG_DATA_PLOT, scripts, sizeof(scripts)))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "the plot scripts are in none of these folders: %.500s",
                        scripts);
    if (!o->plot.out_dir) {
        kvg_default_plot_dir(folder, sizeof(folder));
        o->plot.out_dir = folder;
    }
    o->plot.script_dir = scripts;
    if (kvg_file_options_read(&o->file, &results, error))
        return -1;
    int failed = kvg_plot_all(&results, &o->plot, error);
    kvg_results_free(&results);
    return failed;
}

int kvg_cmd_plot(int argc, char **argv)
{
    struct plot_options o = {.plot = {.svg = 1, .png = 1, .report = stdout}};
    struct kvg_error error = {0};
    kvg_options_parse(&kvg_plot_argp, argc, argv, &o);
    return plot(&o, &error) ? kvg_error_report(&error) : KVG_EXIT_OK;
}
