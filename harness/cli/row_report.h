/* SPDX-License-Identifier: Apache-2.0
 *
 * row_report.h: one row, whole, for a person.
 */
#ifndef KVG_HARNESS_ROW_REPORT_H
#define KVG_HARNESS_ROW_REPORT_H

#include <stdio.h>
#include "results/row.h"

/* The verdict, for a row that failed the block of failure.h, and then every column that holds something, with
 * a prefix of its unit where that reads better
 * ("1.234 ms"), and what it means, in the order of columns.def. */
void kvg_row_report(FILE *out, const struct kvg_row *row);

#endif
