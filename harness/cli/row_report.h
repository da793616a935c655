/* SPDX-License-Identifier: Apache-2.0
 *
 * row_report.h: every column of one row, for people to read.
 */
#ifndef KVG_HARNESS_ROW_REPORT_H
#define KVG_HARNESS_ROW_REPORT_H

#include <stdio.h>
#include "results/row.h"

/* Prints the verdict, for a failed row the block of failure.h, and then each column that holds a value, in
 * the order of columns.def: name, value with its unit ("1.234 ms") and meaning. */
void kvg_row_print_report(FILE *out, const struct kvg_row *row);

#endif
