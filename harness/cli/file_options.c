/* SPDX-License-Identifier: Apache-2.0
 *
 * file_options.c: see file_options.h.
 */
#include "file_options.h"

#include "results/file.h"
#include "results/group.h"

enum { KEY_FILTER = 'F' };

static const struct argp_option file_options[] = {
    {"filter", KEY_FILTER, "REGEX", 0,
     "Only the rows whose case string matches the POSIX extended regular expression; after a leading -, only "
     "those that do not match. 8 or more digits of a case_id choose that case. Given again: both must agree.",
     0},
    {0}};

static error_t parse_file(int key, char *arg, struct argp_state *state)
{
    struct kvg_file_options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        *o = (struct kvg_file_options){0};
        return 0;
    case KEY_FILTER:
        if (o->n_filters == KVG_FILE_FILTERS)
            argp_error(state, "more than %d filters", KVG_FILE_FILTERS);
        o->filters[o->n_filters++] = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (o->file)
            argp_error(state, "one file at a time: '%s' is a second one", arg);
        o->file = arg;
        return 0;
    case ARGP_KEY_SUCCESS:
        if (!o->file)
            argp_error(state, "name a result file, as in %s run.h5", state->name);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp kvg_file_argp = {file_options, parse_file, NULL, NULL, NULL, NULL, NULL};

int kvg_file_options_read(const struct kvg_file_options *options, struct kvg_results *results,
                          struct kvg_error *error)
{
    if (kvg_results_read(options->file, results, error))
        return -1;
    int64_t all = results->count;
    int failed = 0;
    for (int i = 0; i < options->n_filters && !failed; i++) {
        failed = kvg_results_filter(results, options->filters[i], error);
        if (!failed && results->count == 0)
            failed =
                kvg_fail(error, KVG_EXIT_TROUBLE,
                         "--filter '%.300s'%s matches none of the %lld rows of %.300s", options->filters[i],
                         i > 0 ? " after the filters before it" : "", (long long)all, options->file);
    }
    if (failed)
        kvg_results_free(results);
    return failed;
}
