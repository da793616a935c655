/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.h: how far a run is: one line that is rewritten in place on a terminal. Where `out` is no
 * terminal, a line is printed every 30 seconds.
 */
#ifndef KVG_HARNESS_PROGRESS_H
#define KVG_HARNESS_PROGRESS_H

#include <stdint.h>
#include <stdio.h>

struct kvg_progress {
    FILE *out; /* usually stderr */
    int live;  /* 1: `out` is a terminal, and not --quiet */
    int64_t total, done;
    double total_weight, done_weight; /* sums over all and done cases of their likely cost */
    int64_t troubled;                 /* rows so far that are neither passed nor skipped */
    double start;                     /* kvg_now */
    int quiet;
    double said; /* kvg_now when the last line was printed where `out` is no terminal */
};

void kvg_progress_begin(struct kvg_progress *p, FILE *out, int64_t total, double total_weight, int quiet);
/* Before a case: `label` is cut to the width of the terminal. */
void kvg_progress_show_case(struct kvg_progress *p, const char *label);
/* After the case. */
void kvg_progress_end_case(struct kvg_progress *p, double weight, int troubled);
/* Erases the line. */
void kvg_progress_end(struct kvg_progress *p);

/* The text of the line for a terminal of `width` columns (0: not cut), `elapsed` seconds after the start. The
 * time left is computed from the weights; it is left out until the first case is done. */
void kvg_progress_format_line(const struct kvg_progress *p, const char *label, double elapsed, int width,
                              char *text, size_t size);

#endif
