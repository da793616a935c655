/* SPDX-License-Identifier: Apache-2.0
 *
 * file_options.h: the argument FILE and the option --filter, shared by the commands that read a result file.
 * Used as options.h says of kvg_plan_argp.
 */
#ifndef KVG_HARNESS_FILE_OPTIONS_H
#define KVG_HARNESS_FILE_OPTIONS_H

#include <argp.h>
#include "results/journal.h"

#define KVG_FILE_FILTERS 16
/* Text points into argv. */
struct kvg_file_options {
    const char *file;                      /* FILE: a result file or a journal; never NULL after parsing */
    const char *filters[KVG_FILE_FILTERS]; /* each --filter; a row must pass all */
    int n_filters;
};

/* FILE and --filter. Initialises its struct kvg_file_options itself; no FILE or a second one is an error. */
extern const struct argp kvg_file_argp;

/* Reads the file and drops the rows that the filter rejects. -1 with the error, also where no row is left;
 * then there is nothing to free. */
int kvg_file_options_read(const struct kvg_file_options *options, struct kvg_results *results,
                          struct kvg_error *error);

#endif
