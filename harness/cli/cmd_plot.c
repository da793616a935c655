/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_plot.c: `kvgauge plot`: draw a result file or a journal.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "plots/plot.h"
#include "results/file.h"
#include "results/group.h"
#include "commands.h"
#include "options.h"
#include "harness/machine/paths.h"

enum { KEY_OUT = 'o', KEY_ONLY = 'n', KEY_FORMAT = 'f', KEY_FILTER = 'F' };

struct plot_options {
    const char *file, *filter;
    struct kvg_plot_options plot;
};

static const struct argp_option options[] = {
    {"out", KEY_OUT, "DIR", 0,
     "folder for the pictures and their data tables (default: plots/out of the source tree, "
     "else ./kvgauge-plots)",
     0},
    {"only", KEY_ONLY, "FIGURE", 0, "one of error, gain, throughput, footprint, heatmap, roofline", 0},
    {"format", KEY_FORMAT, "LIST", 0, "svg, png or svg,png (default)", 0},
    {"filter", KEY_FILTER, "REGEX", 0,
     "only rows whose case string matches the POSIX extended REGEX; a leading - negates", 0},
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
            argp_error(state, "--format %s: not a comma list of svg and png", list);
        at += n + (at[n] == ',');
    }
    if (!o->svg && !o->png)
        argp_error(state, "--format names no format; svg, png or svg,png");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct plot_options *o = state->input;
    switch (key) {
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
    case KEY_FILTER:
        o->filter = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (o->file)
            argp_error(state, "one file at a time: '%s' is a second one", arg);
        o->file = arg;
        return 0;
    case ARGP_KEY_SUCCESS:
        if (!o->file)
            argp_error(state, "name a result file, as in kvgauge plot run.h5");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {options,
                                 parse,
                                 "FILE",
                                 "Draw a result file (run.h5) or a journal with gnuplot.\v"
                                 "Every picture has its data beside it, as a table NAME.tsv.",
                                 NULL,
                                 NULL,
                                 NULL};

static int plot(struct plot_options *o, struct kvg_error *error)
{
    struct kvg_results results;
    char scripts[PATH_MAX], folder[PATH_MAX];
    if (kvg_data_dir(KVG_DATA_PLOT, scripts, sizeof(scripts)))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "the plot scripts are not found: %.500s", scripts);
    if (!o->plot.out_dir) {
        kvg_default_plot_dir(folder, sizeof(folder));
        o->plot.out_dir = folder;
    }
    o->plot.script_dir = scripts;
    if (kvg_results_read(o->file, &results, error))
        return -1;
    int64_t all = results.count;
    int failed = o->filter ? kvg_results_filter(&results, o->filter, error) : 0;
    if (!failed && o->filter && results.count == 0)
        failed =
            kvg_fail(error, KVG_EXIT_TROUBLE, "--filter '%.300s' matches none of the %lld rows of %.300s",
                     o->filter, (long long)all, o->file);
    if (!failed)
        failed = kvg_plot_all(&results, &o->plot, error);
    kvg_results_free(&results);
    return failed;
}

int kvg_cmd_plot(int argc, char **argv)
{
    struct plot_options o = {.plot = {.svg = 1, .png = 1, .report = stdout}};
    struct kvg_error error = {0};
    kvg_options_parse(&argp, argc, argv, &o);
    return plot(&o, &error) ? kvg_report_error(&error) : KVG_EXIT_OK;
}
