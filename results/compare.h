/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.h: is one row faster than another? Decided from the samples that rows keep.
 *
 * The interval of a ratio of medians needs no assumption on the distribution of the samples. Each median lies
 * between two of its sorted samples with a probability that follows from the binomial distribution; the ratio
 * lies between the quotients of the ends.
 *
 * Samples of one run say little about the next run. So a ratio counts as known only if its interval is farther
 * from 1 than runs differ: KVG_QUIET_MARGIN, or KVG_NOISY_MARGIN where one of the rows is noisy.
 */
#ifndef KVG_RESULTS_COMPARE_H
#define KVG_RESULTS_COMPARE_H

#include "row.h"

#define KVG_NOISY 0.25        /* (third - first quartile) / median, above which a row is noisy */
#define KVG_QUIET_MARGIN 0.02 /* runs of one program on a quiet machine differ by about this much */
#define KVG_NOISY_MARGIN                                                                                     \
    0.30                    /* medians of eight equal runs on a busy machine of two cores differed by 26 % */
#define KVG_CONFIDENCE 0.99 /* of the interval of a ratio */

int kvg_is_noisy(const struct kvg_row *row);
/* Seconds of a call with all that it needs: on path fp8 the time to quantise Q is added, where it was
 * measured. NaN if the row was not timed. */
double kvg_whole_time(const struct kvg_row *row);

/* How often `fast` fits into the time of `slow`, by whole times. */
struct kvg_ratio {
    double times;     /* ratio of the medians */
    double low, high; /* it lies between them with a probability of KVG_CONFIDENCE; NaN with fewer than nine
                         samples of a row */
    double margin;    /* one of the margins above */
};
/* 0, or -1 on out of memory. */
int kvg_ratio_make(const struct kvg_row *slow, const struct kvg_row *fast, struct kvg_ratio *out);

enum kvg_than { KVG_FASTER, KVG_SLOWER, KVG_EQUALLY_FAST, KVG_NOT_KNOWN };
/* Whether `fast` is faster than `slow`. Equally fast only within KVG_QUIET_MARGIN. */
enum kvg_than kvg_ratio_says(const struct kvg_ratio *ratio);

/* How far a figure of the row moves between the quarters of its samples, in the order in which they were
 * taken: (largest - smallest) / smallest. NaN with fewer than eight samples. */
double kvg_median_moves(const struct kvg_row *row);
double kvg_minimum_moves(const struct kvg_row *row);

#endif
