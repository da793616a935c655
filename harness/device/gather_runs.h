/* SPDX-License-Identifier: Apache-2.0
 *
 * gather_runs.h: the keys that a case's queries see, as pieces of memory that lie together: what a device's
 * gather roof reads. Host arithmetic alone; nothing here touches the pages.
 */
#ifndef KVG_HARNESS_GATHER_RUNS_H
#define KVG_HARNESS_GATHER_RUNS_H

#include <stdint.h>
#include "kernels/kernel.h"

/* A run: `offset << 16 | length`, both in units of kvg_gather_shape.unit bytes, the offset from the first
 * byte of K and of V alike. */
#define KVG_RUN_OFFSET(run) ((int64_t)((run) >> 16))
#define KVG_RUN_LENGTH(run) ((int64_t)((run)&0xffff))

struct kvg_gather_shape {
    const struct kvg_problem *problem;
    const struct kvg_pages *pages; /* strides of K and V alike; data is not read */
    const int32_t *block_table;    /* [batch, block_table_stride], host */
    int64_t block_table_stride;
    const int32_t *seq_lens;  /* [batch], host */
    const int32_t *first_key; /* [batch], host: keys first_key .. seq_len - 1 are read */
    int unit;                 /* bytes; divides every stride and row: kvg_gather_unit */
};

/* Bytes of K and V that are read. */
int64_t kvg_gather_bytes(const struct kvg_gather_shape *shape);
/* The widest of 16, 4 and 1 that divides addresses, strides and rows of both caches. */
int kvg_gather_unit(const struct kvg_problem *problem, const struct kvg_pages *k, const struct kvg_pages *v);
/* Writes the runs, each of at most `longest` units (below 65536), to runs, unless that is NULL; the number of
 * them comes back. Sequence by sequence, key by key as far as the layout has them together. */
int64_t kvg_gather_runs(const struct kvg_gather_shape *shape, int64_t longest, uint64_t *runs);

#endif
