/* SPDX-License-Identifier: Apache-2.0
 *
 * failure.h: the report on a failed row: the failed checks with their worst errors, the elements with the
 * largest errors, a map of the error over heads and positions, and the suspected kind of fault.
 */
#ifndef KVG_RESULTS_FAILURE_H
#define KVG_RESULTS_FAILURE_H

#include <stdio.h>
#include "row.h"

struct kvg_failure_style {
    int colour;
    int unicode; /* 1: the map has blocks of different height; 0: digits */
};
/* 1 if the first that is set of LC_ALL, LC_CTYPE and LANG names UTF-8, and TERM is not dumb. */
int kvg_failure_unicode(void);

/* The names of the failed checks ("bound, gain"), for use instead of a reason that has all numbers. Returns 0
 * and an empty text if the row has none. */
int kvg_failure_checks(const struct kvg_row *row, char *text, size_t size);

/* Prints everything but status and reason; lines are indented by four columns. Prints nothing if the row has
 * no evidence and no suspicion. */
void kvg_failure_print(FILE *out, const struct kvg_row *row, const struct kvg_failure_style *style);

#endif
