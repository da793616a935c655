/* SPDX-License-Identifier: Apache-2.0
 *
 * table_parts.h: the parts of the table, one function each. Private to results/.
 *
 * A part prints nothing when no row belongs to it. Each function returns 0, or -1 on out of memory. A failed
 * write shows in ferror.
 */
#ifndef KVG_RESULTS_TABLE_PARTS_H
#define KVG_RESULTS_TABLE_PARTS_H

#include "compare.h"
#include "table_text.h"

int kvg_table_real_quality(struct kvg_table *t);      /* scheme and calibration on captured input */
int kvg_table_synthetic_quality(struct kvg_table *t); /* what scale 1.0 does to synthetic input */
int kvg_table_speed(struct kvg_table *t);             /* times and rates, compared with the roofs */
int kvg_table_memory(struct kvg_table *t);            /* bytes per token */
int kvg_table_correctness(struct kvg_table *t);       /* errors of each kernel, compared with their bounds */
void kvg_table_bits(struct kvg_table *t); /* end of that part: do bits depend on the batch, or on chunks? */
int kvg_table_predictions(struct kvg_table *t); /* rows that no kernel computed */
int kvg_table_problems(struct kvg_table *t);    /* rows that did not pass */

/* The sentences below a speed table. */
enum { KVG_MAX_GAINS = 8 };
struct kvg_gain {
    char name[48];          /* dtype and path */
    int64_t faster_from;    /* smallest context from which on it is always faster; -1 for none */
    int64_t longest;        /* context of `ratio` */
    struct kvg_ratio ratio; /* against bf16 */
};
struct kvg_gains {
    struct kvg_gain list[KVG_MAX_GAINS];
    int count;
};
/* Contexts come in rising order. 0, or -1 on out of memory. */
int kvg_gains_note(struct kvg_gains *gains, const struct kvg_row *bf16, const struct kvg_row *row);
void kvg_gains_say(struct kvg_table *t, const struct kvg_gains *gains);
/* Says which figure to compare: the one that moves least within the rows. */
void kvg_advise_figure(struct kvg_table *t, const struct kvg_picks *picks, int64_t begin, int64_t end);

#endif
