/* SPDX-License-Identifier: Apache-2.0
 *
 * device_calls.h: timed calls on a device: recording, clock, flush, conditions and energy.
 */
#ifndef KVG_HARNESS_DEVICE_CALLS_H
#define KVG_HARNESS_DEVICE_CALLS_H

#include "execution.h"
#include "harness/device/device.h"
#include "harness/measure/measure.h"

struct kvg_device_calls {
    void *recording;                    /* what a timed call replays; NULL: it calls the kernel */
    struct kvg_attention_args gathered; /* whose pages the gather roof reads */
    int failed;                         /* 1: an operation failed where no verdict could be given */
};

/* Records call(context) once, where the run asks for graphs: timed calls then replay the recording, until
 * kvg_calls_forget. -1 with the verdict. */
int kvg_calls_record(struct kvg_execution *x, int (*call)(void *), void *context);
void kvg_calls_forget(struct kvg_execution *x);
/* Queues the recording. 0 or KVG_EDEVICE. */
int kvg_calls_replay(struct kvg_execution *x);

/* The device's clock. 0, or -1 where the kernel runs on the CPU: the clock is CLOCK_MONOTONIC_RAW there. */
int kvg_calls_clock(struct kvg_execution *x, struct kvg_clock *clock);
/* Flushes the device's cache before a cold sample. A failure is kept in x->calls->failed. */
void kvg_calls_flush(struct kvg_execution *x);

/* Linear roofs and the clock's floor, not older than KVG_ROOF_AGE seconds; with `any`, of any age. */
const struct kvg_device_roofs *kvg_calls_linear_roofs(struct kvg_execution *x, int any);
/* All NaN: what stands where nothing could be measured. */
extern const struct kvg_device_roofs kvg_no_device_roofs;

/* Energy of one call in J, where `calls` calls filled the share `busy` of the time in which `energy` J were
 * drawn. NaN below KVG_ENERGY_SHARE: too much of the energy then went into flushes and pauses. */
double kvg_energy_of_call(double energy, int64_t calls, double busy);
#define KVG_ENERGY_SHARE 0.8
/* Fills the condition columns (clocks, power, energy, temperature) for the time since conditions_begin;
 * `calls` and `busy` as above. */
void kvg_calls_conditions(struct kvg_execution *x, int64_t calls, double busy);

/* Bytes of the cache that a hot case may fit: of the device, or the last level of the CPU. */
int64_t kvg_last_cache_bytes(const struct kvg_execution *x);

#endif
