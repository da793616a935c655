/* SPDX-License-Identifier: Apache-2.0
 *
 * failure.h: a row that failed, in one block: what to run to see it again, which checks broke and by how
 * much, the elements farthest off, where the error lies, and what kind of fault it looks like.
 */
#ifndef KVG_RESULTS_FAILURE_H
#define KVG_RESULTS_FAILURE_H

#include <stdio.h>
#include "row.h"

struct kvg_failure_style {
    int colour;
    int unicode; /* blocks of different height in the map; else digits */
};
/* Blocks where LC_ALL, LC_CTYPE or LANG (the first that is set) says UTF-8 and TERM is not dumb. */
int kvg_failure_unicode(void);

/* The checks that broke, by name ("bound, gain"): short for a reason that names them with all numbers. 0
 * where the row has none. */
int kvg_failure_checks(const struct kvg_row *row, char *text, size_t size);

/* Everything but status and reason; lines are indented by four. Nothing where the row has no evidence and
 * nothing is suspected. */
void kvg_failure_print(FILE *out, const struct kvg_row *row, const struct kvg_failure_style *style);

#endif
