/* SPDX-License-Identifier: Apache-2.0
 *
 * roofs.h: roofs, the measured limits of this machine: memory, caches and arithmetic.
 */
#ifndef KVG_HARNESS_ROOFS_H
#define KVG_HARNESS_ROOFS_H

#include <stdint.h>

#include "harness/prepare/prepared.h"

/* Roofs of this machine with `threads` threads. NaN where a roof cannot be measured. Each takes about 50 ms
 * and is the best of several passes, in this and in earlier measurements with as many threads: the highest
 * that the machine was seen to do.
 *   read   linear reads of a buffer four times the last-level cache (at least 64 MiB, at most 1 GiB), or of
 *          its first 256 KiB to 16 MiB, with the widest loads of this CPU, in one or in eight streams per
 *          thread, whichever is fastest. The bytes are flushed out of the caches before each pass
 *   copy   one half of the same buffer to the other, with ordinary or non-temporal stores, whichever are
 *          faster. Bytes read plus bytes written. The read that an ordinary store causes does not count
 *   cache  linear reads of a buffer of half the L2 cache, one buffer for each thread
 *   flops  independent FP32 FMAs in registers, two operations each */
struct kvg_roofs {
    double read, copy, cache; /* B/s */
    double flops;             /* operations per second */
};
/* Gather roof in B/s: the fastest of four simple loops that read exactly the slots of K and V that the case's
 * queries see, from a cold cache. NaN where there is nothing to read. */
double kvg_measure_gather_roof(const struct kvg_prepared *p, int64_t threads);

/* A worker keeps a meter from case to case. It holds the last roofs and the buffers, because the page faults
 * of a new buffer take longer than reading it. */
struct kvg_meter;
struct kvg_meter *kvg_meter_new(void); /* NULL on out of memory */
void kvg_meter_free(struct kvg_meter *meter);
/* The roofs with `threads` threads. The last ones are used again until they are KVG_ROOF_AGE seconds old;
 * then they are measured again, because a small shared machine may have been slow before. A higher value
 * replaces a lower one, never the other way. */
const struct kvg_roofs *kvg_meter_roofs(struct kvg_meter *meter, int64_t threads);
#define KVG_ROOF_AGE 2.0
void kvg_meter_forget(struct kvg_meter *meter); /* the next call measures again */
/* Reads a buffer of KVG_SWEEP_BYTES, which replaces the contents of the TLBs and of the private caches.
 * Called after kvg_evict_range, which evicts one range from the caches and leaves the TLBs warm. */
void kvg_meter_sweep(struct kvg_meter *meter);
#define KVG_SWEEP_BYTES (16 << 20) /* more than TLBs reach (2048 pages of 4 KiB) and than any L2 cache */

/* The instruction set the roofs use on this CPU: "avx512", "avx2" or "generic". */
const char *kvg_roof_isa(void);

#endif
