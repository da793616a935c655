/* SPDX-License-Identifier: Apache-2.0
 *
 * measure.h: time a call, and the roofs it is held against.
 *
 * Google Benchmark drives the repetitions (bench_shim.cc is the one C++ file of the project); every sample is
 * kept. Cold: the caches are evicted outside the timed region before each sample. Hot: they are not.
 */
#ifndef KVG_HARNESS_MEASURE_H
#define KVG_HARNESS_MEASURE_H

#include <stdint.h>
#include "harness/prepare/prepare.h"
#include "harness/execute/run.h"

/* A clock that is not the host's: `start` before the calls of a sample, `stop` behind them waits for their
 * end. Both give 0 or -1. */
struct kvg_clock {
    char name[64];
    double floor; /* s: what it measures around nothing */
    int (*start)(void *context, int hold);
    int (*stop)(void *context, double *seconds);
    void *context;
};

/* What a measurement tells besides its samples. */
struct kvg_measured {
    int64_t calls; /* all of them, warm-up included */
    int64_t batch; /* calls a sample */
    double launch; /* s: median time until a call returned on the host; NaN without a clock of its own */
};

/* One timed thing. `call` returns 0 or KVG_E*. `evict` (may be NULL) runs before each sample, untimed.
 *
 * A sample is one call between two readings of CLOCK_MONOTONIC_RAW, or of `clock`. Where `batch` allows it
 * (the cache is hot) and one call is shorter than KVG_TRUSTED_FLOORS times the cost of reading the clock, a
 * sample is as many calls as it takes to be longer, divided by their number.
 *
 * Number of samples: at least min_samples; then until their sum reaches min_time, or there are max_samples,
 * or the wall time of all (evictions included) would pass KVG_WALL_PER_MIN_TIME times min_time. The number is
 * settled by warm-up calls, which are not samples; where the samples turn out shorter than foreseen they are
 * dropped and taken anew, more of them. */
struct kvg_measurement {
    const char *name; /* the case string: benchmark name and NVTX range */
    int (*call)(void *context);
    void (*evict)(void *context);
    void *context;
    double min_time;
    int64_t min_samples, max_samples;
    int (*after)(void *context);   /* NULL, or runs after each sample, untimed; not 0 ends the measurement:
                                      the error then says "the check after a timed call failed" */
    int batch;                     /* 1: short calls may be batched */
    const struct kvg_clock *clock; /* NULL: CLOCK_MONOTONIC_RAW */
    int hold;                      /* handed to clock->start */
    struct kvg_measured *measured; /* NULL, or receives the rest */
    const char *const *flags;      /* --benchmark_* flags, NULL-terminated, or NULL */
    char **report;                 /* NULL, or receives Google Benchmark's JSON (malloc'ed) */
};
#define KVG_TRUSTED_FLOORS 100.0  /* a sample this many clock readings long is off by 1 % at most */
#define KVG_WALL_PER_MIN_TIME 3.0 /* see above */

/* samples[max_samples] seconds; *n taken. -1 with the error when a call failed. */
int kvg_measure(const struct kvg_measurement *m, double *samples, int64_t *n, struct kvg_error *error);
/* The same, and how the samples were taken ("CLOCK_MONOTONIC_RAW, one call a sample, ..."). */
int kvg_measure_described(const struct kvg_measurement *m, double *samples, int64_t *n, char *method,
                          size_t size, struct kvg_error *error);

/* What reading the clock twice costs, in seconds: the median of a thousand tries. */
double kvg_timer_floor(void);
/* Seconds of CLOCK_MONOTONIC_RAW. */
double kvg_now(void);

/* --benchmark_* flags a user may give. Each is checked; those that kvgauge itself answers (min_time,
 * repetitions, out) are taken into options and *out_path. -1 with the error (exit code 4). */
int kvg_benchmark_flags(const char *const *flags, struct kvg_run_options *options, const char **out_path,
                        struct kvg_error *error);

struct kvg_summary {
    double median, min, q1, q3, mad;
};
void kvg_summarise(const double *samples, int64_t n, struct kvg_summary *out); /* GSL */

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
void kvg_measure_roofs(int64_t threads, struct kvg_roofs *out);
/* Best of a few plain kernels that read exactly the K and V slots the case owns, B/s; cold. With a window
 * only the slots that some query sees. NaN where there is nothing to read. */
double kvg_measure_gather_roof(const struct kvg_prepared *p, int64_t threads);

/* Bytes of K and V that the case's queries see: what the gather roof reads and the least an attention call
 * must read. */
int64_t kvg_visible_kv_bytes(const struct kvg_prepared *p);
/* Multiplications and additions of QK and PV over the pairs that are visible, counted exactly. */
int64_t kvg_visible_flops(const struct kvg_prepared *p);

/* The instruction set the roofs use on this CPU: "avx512", "avx2" or "generic". */
const char *kvg_roof_isa(void);

/* Evicts memory from all caches: the lines of [data, data + bytes) one by one (CLFLUSHOPT, which acts on
 * every cache of the machine), or, on a CPU without it, by reading twice the last-level cache. */
void kvg_evict_range(const void *data, int64_t bytes);

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

/* Bytes of the data or unified cache of CPU 0 at a level (0: the highest there is), as the kernel reports
 * them; 0 if unknown. A virtual machine's last level may be a part of it, or more than it gets. */
int64_t kvg_cache_bytes(int level);
/* Of the last level and of one L2. */
int64_t kvg_llc_bytes(void);
int64_t kvg_l2_bytes(void);

#endif
