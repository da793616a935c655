/* SPDX-License-Identifier: Apache-2.0
 *
 * gather_runs.h: the keys that a case's queries see, as a list of contiguous pieces of memory. The gather
 * roof of a device reads these. Pure arithmetic on the host; the pages themselves are not read.
 */
#ifndef KVG_HARNESS_GATHER_RUNS_H
#define KVG_HARNESS_GATHER_RUNS_H

#include <stdint.h>
#include "kernels/kernel.h"

/* A run is one word, offset << 16 | length, both in units of kvg_gather_shape.unit bytes. The offset counts
 * from the first byte of K, and equally from the first byte of V. */
#define KVG_RUN_OFFSET(run) ((int64_t)((run) >> 16))
#define KVG_RUN_LENGTH(run) ((int64_t)((run)&0xffff))

struct kvg_gather_shape {
    const struct kvg_problem *problem;
    const struct kvg_pages *pages; /* strides, the same for K and V; data is not read */
    const int32_t *block_table;    /* [batch, block_table_stride], host */
    int64_t block_table_stride;
    const int32_t *seq_lens;  /* [batch], host */
    const int32_t *first_key; /* [batch], host: keys first_key .. seq_len - 1 are read */
    int unit;                 /* bytes, from kvg_gather_unit: divides every stride and row */
};

/* Bytes of K and V that are read. */
int64_t kvg_gather_bytes(const struct kvg_gather_shape *shape);
/* The widest of 16, 4 and 1 that divides addresses, strides and rows of both caches. */
int kvg_gather_unit(const struct kvg_problem *problem, const struct kvg_pages *k, const struct kvg_pages *v);
/* Writes runs of at most `longest` units each (below 65536), sequence by sequence, keys rising. Runs are as
 * long as the layout allows. Returns the number of runs; runs = NULL only counts them. */
int64_t kvg_gather_runs(const struct kvg_gather_shape *shape, int64_t longest, uint64_t *runs);

#endif
