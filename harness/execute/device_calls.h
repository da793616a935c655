/* SPDX-License-Identifier: Apache-2.0
 *
 * device_calls.h: what timed calls on a device need: recording, clock, flush, conditions and energy.
 */
#ifndef KVG_HARNESS_DEVICE_CALLS_H
#define KVG_HARNESS_DEVICE_CALLS_H

#include "execution.h"
#include "harness/device/device.h"
#include "harness/measure/measure.h"

struct kvg_device_calls {
    void *recording;                    /* a timed call replays it; NULL: a timed call calls the kernel */
    struct kvg_attention_args gathered; /* the gather roof reads the pages of this call */
    int failed;                         /* 1: an operation failed in a callback that cannot give a verdict */
};

/* If the run asks for graphs, records call(context) once. Timed calls then replay the recording, until
 * kvg_calls_forget. -1 with the verdict. */
int kvg_calls_record(struct kvg_execution *x, int (*call)(void *), void *context);
void kvg_calls_forget(struct kvg_execution *x);
/* Queues the recording on the stream. 0 or KVG_EDEVICE. */
int kvg_calls_replay(struct kvg_execution *x);

/* Fills the clock of the device. 0, or -1 if the kernel runs on the CPU (timed by CLOCK_MONOTONIC_RAW). */
int kvg_calls_clock(struct kvg_execution *x, struct kvg_clock *clock);
/* Flushes the device's cache before a cold sample. A failure is kept in x->calls->failed. */
void kvg_calls_flush(struct kvg_execution *x);

/* Linear roofs and the floor of the clock, at most KVG_ROOF_AGE seconds old; with `any`, of any age. */
const struct kvg_device_roofs *kvg_calls_linear_roofs(struct kvg_execution *x, int any);
/* All NaN: for a device whose roofs could not be measured. */
extern const struct kvg_device_roofs kvg_no_device_roofs;

/* Energy of one call, in J. `energy` J were used in a time of which `calls` calls took the share `busy`. NaN
 * if busy is below KVG_ENERGY_SHARE, because flushes and pauses then used too much of the energy. */
double kvg_energy_of_call(double energy, int64_t calls, double busy);
#define KVG_ENERGY_SHARE 0.8
/* Fills the condition columns (clocks, power, energy, temperature) for the time since conditions_begin;
 * `calls` and `busy` as above. */
void kvg_calls_conditions(struct kvg_execution *x, int64_t calls, double busy);

/* Bytes of the cache that can hold a hot case: the device's cache, or the last level of the CPU. */
int64_t kvg_last_cache_bytes(const struct kvg_execution *x);

#endif
