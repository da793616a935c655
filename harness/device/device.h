/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h: what the harness asks of a device whose memory the CPU cannot read.
 *
 * One struct of functions for each kind of device (harness/cuda/ has the one for CUDA; the unit tests have
 * one whose "device memory" is ordinary memory, so that all of the harness runs without a GPU). Kernels of
 * KVG_DEVICE_CPU need no device: they work on the host buffers of struct kvg_prepared.
 *
 * Conventions: a pointer named in the comment as a device address is never read by the host. Every function
 * that returns int gives 0, or -1 with a sentence in device->error that names the operation and what the
 * driver said. A device on which an operation failed for good (an illegal address poisons its context) has
 * `lost` set: this process can use it no more, and the worker that holds it must be replaced; every operation
 * on it then fails at once, and `release` and `close` still do no harm. All work is queued on one stream, in
 * order; only `finish`, `download`, `hash`, `differs` and `stop` wait for it. `upload` has read its source
 * when it returns. The harness adds byte offsets to the addresses that `allocate` gives, and passes ranges
 * that start and end anywhere (guard regions lie right behind the last byte of a buffer).
 */
#ifndef KVG_HARNESS_DEVICE_H
#define KVG_HARNESS_DEVICE_H

#include <stdint.h>
#include "kernels/kernel.h"
#include "harness/inputs/generate.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kvg_device;

/* Rates of the device, all NaN where they cannot be measured (then why says so). Measured by the device's own
 * plain kernels, not by any kernel under test. */
struct kvg_device_roofs {
    double read;  /* B/s, linear read of a buffer many times the last cache */
    double copy;  /* B/s, bytes read plus bytes written */
    double cache; /* B/s, read of a buffer that fits the last cache */
    /* Dense matrix products by the vendor's library, 1/s (a multiplication and an addition are two). Burst:
     * the best of short runs on a cool device; sustained: the median of a run of some tenths of a second. */
    double bf16_burst, bf16_sustained;
    double fp8_burst, fp8_sustained; /* e4m3, fast accumulation */
    double fp8_promoted;             /* e4m3, partial sums promoted to FP32 (burst) */
    double floor;                    /* s: what two events around an empty kernel measure */
    char why[256];                   /* why a rate is missing; "" when none is */
};

/* What the device was doing, averaged or read over a row's samples. NaN / "" where the driver does not say.
 */
struct kvg_device_conditions {
    double sm_clock, memory_clock; /* Hz, in the middle of the samples */
    double power;                  /* W, mean over the samples */
    double energy;                 /* J since `conditions_begin` */
    double temperature;            /* degrees Celsius */
    char throttle[128];            /* reasons that held the clocks back, comma-separated; "none" */
    char why[128];                 /* why nothing is known; "" otherwise */
};

/* Reading exactly the pages of a case and nothing else. Device addresses in `args`; the lengths are the
 * host's. */
struct kvg_device_gather {
    const struct kvg_attention_args *args;
    const int32_t *seq_lens;  /* [batch], host */
    const int32_t *first_key; /* [batch], host: first key that any query of the sequence sees */
};

struct kvg_device_ops {
    const char *name;                    /* "cuda" */
    const char *clock;                   /* what start and stop read: "CUDA events" */
    void (*close)(struct kvg_device *d); /* frees d; buffers must have been released */

    /* ---- memory ---- */
    void *(*allocate)(struct kvg_device *d, int64_t bytes); /* NULL when there is none left (lost stays 0) */
    void (*release)(struct kvg_device *d, void *data);      /* NULL is fine */
    int (*memory)(struct kvg_device *d, int64_t *available, int64_t *total); /* bytes, as the driver says */
    int (*upload)(struct kvg_device *d, void *to, const void *from, int64_t bytes);
    int (*download)(struct kvg_device *d, void *to, const void *from, int64_t bytes);
    int (*fill)(struct kvg_device *d, void *to, int byte, int64_t bytes);
    /* 64-bit hash of device bytes; every byte and its place matter. Same bytes, same hash, within a process.
     */
    int (*hash)(struct kvg_device *d, const void *data, int64_t bytes, uint64_t *hash);
    /* First byte in which two device buffers differ, -1 when none. */
    int (*differs)(struct kvg_device *d, const void *a, const void *b, int64_t bytes, int64_t *first);
    /* Pages from all over a cache, side by side: piece i, `bytes` bytes at from + index[i] * bytes, goes to
     * to + i * bytes. index [count] is a device address (a piece of a block table). */
    int (*pack)(struct kvg_device *d, void *to, const void *from, int64_t bytes, const int32_t *index,
                int64_t count);

    /* ---- making a case on the device ---- */
    /* out[tokens, heads, head_dim] bf16 of one sequence: kvg_generator_value for tokens 0 .. tokens - 1, the same
     * bits as on the host. The arrays that `g` points to are the host's, and have been read on return. */
    int (*generate)(struct kvg_device *d, const struct kvg_generator *g, int64_t tokens, uint16_t *out);
    /* The reference's paged store (division rule, saturating), with plain code of its own: source as
     * `generate` leaves it, slots [tokens] a device address, scale [kv_heads] or [1] the host's (stride 1 or
     * 0). */
    int (*store)(struct kvg_device *d, const struct kvg_problem *problem, const uint16_t *source,
                 const int64_t *slots, int64_t tokens, const float *scale, int64_t scale_stride,
                 const struct kvg_pages *pages);

    /* ---- calls and their times ---- */
    void *(*stream)(struct kvg_device *d); /* what kvg_*_args.stream gets */
    int (*finish)(struct kvg_device *d);   /* waits; reports what calls since the last wait did wrong */
    /* Evict: what is in the device's caches is replaced (queued; outside any timed region). */
    int (*flush)(struct kvg_device *d);
    /* A timed region. `hold` keeps the device busy for some 20 us before the region, so that the host's
     * launch cost hides behind it; a cold sample has its flush there already. stop waits and gives seconds.
     * What the region's calls did wrong, `stop` reports as `finish` would. */
    int (*start)(struct kvg_device *d, int hold);
    int (*stop)(struct kvg_device *d, double *seconds);
    /* What `call` queues, recorded once, to be replayed (a CUDA graph). call returns KVG_E*; anything but 0,
     * or a call that cannot be recorded, is an error that leaves the device usable. */
    int (*record)(struct kvg_device *d, int (*call)(void *), void *context, void **recording);
    int (*replay)(struct kvg_device *d, void *recording); /* queued */
    void (*forget)(struct kvg_device *d, void *recording);

    /* ---- what the numbers are held against ---- */
    int (*roofs)(struct kvg_device *d, struct kvg_device_roofs *out); /* a second or two; once a worker */
    int (*linear_roofs)(struct kvg_device *d,
                        struct kvg_device_roofs *out); /* read, copy, cache, floor alone:
                                                         some tens of ms, next to a case */
    double (*gather_roof)(struct kvg_device *d, const struct kvg_device_gather *g); /* B/s, cold; NaN */
    void (*conditions_begin)(struct kvg_device *d);
    void (*conditions_end)(struct kvg_device *d, struct kvg_device_conditions *out);
    /* Key and value pairs that describe device, driver and runtime; -1 past the last. */
    int (*fact)(struct kvg_device *d, int64_t i, const char **key, const char **value);
};

struct kvg_device {
    const struct kvg_device_ops *ops;
    char name[128];      /* "NVIDIA H200" */
    int64_t cache_bytes; /* of its last cache; 0 unknown */
    char error[512];
    int lost;
};

/* The CUDA device (number `index` of those visible), or NULL with the reason: built without CUDA, no driver,
 * no GPU. Weak: a build without CUDA has no such function. */
struct kvg_device *kvg_cuda_open(int index, char *why, size_t size) __attribute__((weak));

#ifdef __cplusplus
}
#endif
#endif
