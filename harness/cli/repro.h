/* SPDX-License-Identifier: Apache-2.0
 *
 * repro.h: the command that repeats a row (column `repro`).
 *
 * Whether an option of `kvgauge run` is part of that command is said once, in kvg_repro_options. A test holds
 * the table against the options of the command line and against the fields of struct kvg_run_options: a new
 * one that is missing here fails it.
 */
#ifndef KVG_HARNESS_REPRO_H
#define KVG_HARNESS_REPRO_H

#include <stdint.h>
#include <stdio.h>
#include "harness/case/case.h"
#include "harness/execute/options.h"
#include "results/row.h"

struct kvg_repro_option {
    const char *option; /* long name of an option of `kvgauge run`; NULL where none sets the fields */
    const char *fields; /* of struct kvg_run_options that it sets, with a space between them; "" for none */
    /* Writes " --OPTION VALUE" where it changes the row of case c; `usual` holds the defaults. 0, or -1 on
     * out of memory. NULL: the option is never part of the command, and why_not says why. */
    int (*write)(FILE *out, const struct kvg_run_options *run, const struct kvg_run_options *usual,
                 const struct kvg_case *c);
    const char *why_not;
};
extern const struct kvg_repro_option kvg_repro_options[];
extern const int64_t kvg_repro_options_count;

/* "kvgauge run OPTION... --case 'STRING'", quoted for a POSIX shell: with the same build it repeats the row
 * from any folder. Names of files stand as they were given; if one is relative, "cd FOLDER && " comes first.
 * Variables of the environment that can change the row and are set come before "kvgauge". `row`, unless NULL,
 * is the row: if it failed by a race, the command asks for enough repeated calls. malloc'ed; NULL on out of
 * memory. */
char *kvg_repro_make(const struct kvg_case *c, const struct kvg_run_options *run, const struct kvg_row *row);

#endif
