/* SPDX-License-Identifier: Apache-2.0
 *
 * loops.h: the simple loops by which roofs are measured, one set for each instruction set.
 */
#ifndef KVG_HARNESS_LOOPS_H
#define KVG_HARNESS_LOOPS_H

#include <stdint.h>

#define KVG_STREAMS 8

/* A piece of memory to read: `rows` rows of row_bytes bytes, which start `stride` bytes apart. */
struct kvg_span {
    const char *data;
    int64_t rows, row_bytes, stride;
};

/* Each read returns a number that depends on every byte, so that the compiler cannot leave out a load. */
struct kvg_roof_loops {
    const char *name;
    int (*supported)(void); /* by this CPU */
    uint64_t (*read)(const void *data, int64_t bytes);
    /* the same, and prefetches the same offsets of `next` into L2 */
    uint64_t (*read_prefetching)(const void *data, int64_t bytes, const void *next);
    uint64_t (*read_span)(const struct kvg_span *span);
    /* reads KVG_STREAMS pieces of `bytes` bytes side by side: eight streams have more requests in flight */
    uint64_t (*read_streams)(const char *const data[], int64_t bytes);
    void (*copy)(void *to, const void *from, int64_t bytes); /* ordinary stores */
    /* non-temporal stores; `to` is 64-byte aligned */
    void (*copy_streaming)(void *to, const void *from, int64_t bytes);
    /* `steps` steps of independent FMAs. Adds the number of operations (two for each FMA and lane) to
     * *operations */
    float (*fma)(int64_t steps, int64_t *operations);
};
extern const struct kvg_roof_loops kvg_roof_loops_avx512, kvg_roof_loops_avx2, kvg_roof_loops_generic;
const struct kvg_roof_loops *kvg_roof_loops_choose(void); /* the set with the widest vectors on this CPU */

#endif
