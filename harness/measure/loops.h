/* SPDX-License-Identifier: Apache-2.0
 *
 * loops.h: the plain loops behind the measured roofs, one set for each instruction set.
 */
#ifndef KVG_HARNESS_LOOPS_H
#define KVG_HARNESS_LOOPS_H

#include <stdint.h>

#define KVG_STREAMS 8

/* A piece of memory to read: `rows` rows of row_bytes, `stride` bytes apart. */
struct kvg_span {
    const char *data;
    int64_t rows, row_bytes, stride;
};

/* Each read returns something that depends on every byte, so that no load can be left out. */
struct kvg_roof_loops {
    const char *name;
    int (*supported)(void); /* by this CPU */
    uint64_t (*read)(const void *data, int64_t bytes);
    /* as read, touching the same offset of `next` ahead of its turn (software prefetch into L2) */
    uint64_t (*read_prefetching)(const void *data, int64_t bytes, const void *next);
    uint64_t (*read_span)(const struct kvg_span *span);
    /* KVG_STREAMS pieces of so many bytes side by side: eight streams keep more requests under way than one
     */
    uint64_t (*read_streams)(const char *const data[], int64_t bytes);
    void (*copy)(void *to, const void *from, int64_t bytes); /* ordinary stores */
    void (*copy_streaming)(void *to, const void *from,
                           int64_t bytes); /* non-temporal stores, 64-byte aligned */
    /* `steps` steps of independent FMAs; the number of operations (two an FMA and lane) is added to
     * *operations */
    float (*fma)(int64_t steps, int64_t *operations);
};
extern const struct kvg_roof_loops kvg_roof_loops_avx512, kvg_roof_loops_avx2, kvg_roof_loops_generic;
const struct kvg_roof_loops *kvg_roof_loops_choose(void); /* the widest that this CPU has */

#endif
