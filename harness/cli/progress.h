/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.h: how far a run is. One line that rewrites itself on a terminal; silence in a pipe.
 */
#ifndef KVG_HARNESS_PROGRESS_H
#define KVG_HARNESS_PROGRESS_H

#include <stdint.h>
#include <stdio.h>

struct kvg_progress {
    FILE *out; /* usually stderr */
    int live;  /* 1: a terminal, and not silenced */
    int64_t total, done;
    double total_weight, done_weight; /* the same, each case counted by what it is likely to cost */
    int64_t troubled;                 /* rows so far that are neither passed nor skipped */
    double start;                     /* kvg_now */
};

void kvg_progress_begin(struct kvg_progress *p, FILE *out, int64_t total, double total_weight, int quiet);
/* Before a case: `label` is cut to the width of the terminal. */
void kvg_progress_case(struct kvg_progress *p, const char *label);
/* After it. */
void kvg_progress_done(struct kvg_progress *p, double weight, int troubled);
/* Takes the line away. */
void kvg_progress_end(struct kvg_progress *p);

/* The line itself, for a terminal of `width` columns, `elapsed` seconds into the run. The time left follows
 * from the weights done and to come; it is left out before the first case is done. */
void kvg_progress_line(const struct kvg_progress *p, const char *label, double elapsed, int width, char *text,
                       size_t size);

#endif
