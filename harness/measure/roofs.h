/* SPDX-License-Identifier: Apache-2.0
 *
 * roofs.h: what this machine could do at best: measured limits of memory, caches and arithmetic.
 */
#ifndef KVG_HARNESS_ROOFS_H
#define KVG_HARNESS_ROOFS_H

#include <stdint.h>

#include "harness/prepare/prepared.h"

/* Roofs of this machine with `threads` threads; NaN where it cannot be measured. Each takes about 50 ms.
 *   read   linear reads of a buffer four times the last-level cache, in one stream or in eight a thread,
 *          whichever is faster, with the widest loads of this CPU; flushed before each pass
 *   copy   the same buffer, one half to the other; the better of ordinary and non-temporal stores. Bytes read
 *          plus bytes written; the read that an ordinary store causes is not counted
 *   cache  linear reads of a buffer of half the L2 cache, one for each thread
 *   flops  independent FP32 FMAs in registers, two operations each
 * Each is the best of several passes. */
struct kvg_roofs {
    double read, copy, cache; /* B/s; copy counts bytes read plus written */
    double flops;             /* FP32 FMA, 1/s */
};
/* Best of a few plain kernels that read exactly the K and V slots the case owns, B/s; cold. With a window
 * only the slots that some query sees. NaN where there is nothing to read. */
double kvg_measure_gather_roof(const struct kvg_prepared *p, int64_t threads);

/* What a worker keeps between cases: the buffers of the roofs (to fault them in takes longer than to read
 * them) and the last roofs. */
struct kvg_meter;
struct kvg_meter *kvg_meter_new(void); /* NULL on out of memory */
void kvg_meter_free(struct kvg_meter *meter);
/* The roofs with so many threads: those measured last while they are younger than KVG_ROOF_AGE seconds (a
 * small shared machine changes its state within seconds), else fresh ones. */
const struct kvg_roofs *kvg_meter_roofs(struct kvg_meter *meter, int64_t threads);
#define KVG_ROOF_AGE 2.0
void kvg_meter_forget(struct kvg_meter *meter); /* the next roofs are fresh ones */
/* kvg_evict_range leaves warm TLBs and a warm everything else behind: this reads a buffer of KVG_SWEEP_BYTES,
 * and so replaces both. */
void kvg_meter_sweep(struct kvg_meter *meter);
#define KVG_SWEEP_BYTES (16 << 20) /* more than the reach of the TLBs (2048 x 4 KiB) and than any L2 */

/* The instruction set the roofs use on this CPU: "avx512", "avx2" or "generic". */
const char *kvg_roof_isa(void);

#endif
