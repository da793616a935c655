/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h: the operations of a device whose memory the CPU cannot read.
 *
 * Each kind of device is one struct of functions. harness/device/cuda/ has the one for CUDA. The unit tests
 * have one whose "device memory" is ordinary memory, so that the whole harness runs without a GPU. Kernels
 * of KVG_DEVICE_CPU need no device: they work on host buffers.
 *
 * Conventions:
 *   Addresses  The host never reads a pointer that a comment calls a device address. The harness adds byte
 *              offsets to the addresses that `allocate` returns, and passes ranges that start and end at any
 *              byte (guard regions start directly after the last byte of a buffer).
 *   Errors     A function that returns int returns 0, or -1 with a sentence in device->error that names the
 *              operation and the driver's message.
 *   Lost       An operation that fails for good (an illegal address corrupts the context) sets `lost`. This
 *              process cannot use the device any more, so the worker process must be replaced. Every later
 *              operation fails at once; `release` and `close` remain safe.
 *   Order      All work is queued on one stream, in order. Only `finish`, `download`, `hash`, `differs` and
 *              `stop` wait for it. `upload` has read its source when it returns.
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

/* Rates of the device, measured by the harness's own kernels and the vendor's library, never by a kernel
 * under test. NaN where a rate cannot be measured. */
struct kvg_device_roofs {
    double read;  /* B/s, linear read of a buffer many times larger than the last cache */
    double copy;  /* B/s, bytes read plus bytes written */
    double cache; /* B/s, read of a buffer that fits the last cache */
    /* Dense matrix products by the vendor's library, operations per second (a multiplication and an addition
     * are two operations). Burst: the best of short runs on a cool device. Sustained: the median over a run
     * of some tenths of a second. */
    double bf16_burst, bf16_sustained;
    double fp8_burst, fp8_sustained; /* e4m3, fast accumulation */
    double fp8_promoted;             /* e4m3, partial sums promoted to FP32; burst */
    double floor;                    /* s, the time between two events around an empty kernel */
    char why[256];                   /* why a rate is missing; "" when none is */
};

/* State of the device while a row's samples ran. NaN or "" where the driver does not say. */
struct kvg_device_conditions {
    double sm_clock, memory_clock; /* Hz, in the middle of the samples */
    double power;                  /* W, mean over the samples */
    double energy;                 /* J since `conditions_begin` */
    double temperature;            /* degrees Celsius */
    char throttle[128];            /* reasons that limited the clocks, comma-separated; "none" */
    char why[128];                 /* why nothing is known; "" otherwise */
};

/* The keys that the gather roof of a case reads. */
struct kvg_device_gather {
    const struct kvg_attention_args *args; /* host struct that holds device addresses */
    const int32_t *seq_lens;               /* [batch], host */
    const int32_t *first_key;              /* [batch], host: first key that any query of the sequence sees */
};

struct kvg_device_ops {
    const char *name;                    /* "cuda" */
    const char *clock;                   /* clock of start and stop: "CUDA events" */
    void (*close)(struct kvg_device *d); /* frees d; every buffer must have been released */

    /* ---- memory ---- */
    void *(*allocate)(struct kvg_device *d, int64_t bytes); /* NULL when memory is exhausted (lost stays 0) */
    void (*release)(struct kvg_device *d, void *data);      /* NULL is fine */
    int (*memory)(struct kvg_device *d, int64_t *available, int64_t *total); /* bytes, from the driver */
    int (*upload)(struct kvg_device *d, void *to, const void *from, int64_t bytes);
    int (*download)(struct kvg_device *d, void *to, const void *from, int64_t bytes);
    int (*fill)(struct kvg_device *d, void *to, int byte, int64_t bytes);
    /* 64-bit hash of device bytes that depends on every byte and its place. Within a process equal bytes
     * have equal hashes. */
    int (*hash)(struct kvg_device *d, const void *data, int64_t bytes, uint64_t *hash);
    /* Index of the first byte in which two device buffers differ, -1 when none does. */
    int (*differs)(struct kvg_device *d, const void *a, const void *b, int64_t bytes, int64_t *first);
    /* Packs scattered pages of a cache: copies piece i, `bytes` bytes at from + index[i] * bytes, to
     * to + i * bytes. index [count] is a device address (part of a block table). */
    int (*pack)(struct kvg_device *d, void *to, const void *from, int64_t bytes, const int32_t *index,
                int64_t count);

    /* ---- preparing a case on the device ---- */
    /* out[tokens, heads, head_dim] in bf16 of one sequence: kvg_generator_value for tokens 0 .. tokens - 1,
     * the same bits as on the host. The arrays that `g` points to are host memory, and have been read on
     * return. */
    int (*generate)(struct kvg_device *d, const struct kvg_generator *g, int64_t tokens, uint16_t *out);
    /* The reference's paged store (division by the scale, saturating), in code of its own. source has the
     * form that `generate` writes; slots [tokens] is a device address; scale [kv_heads] or [1] is host
     * memory (scale_stride 1 or 0). */
    int (*store)(struct kvg_device *d, const struct kvg_problem *problem, const uint16_t *source,
                 const int64_t *slots, int64_t tokens, const float *scale, int64_t scale_stride,
                 const struct kvg_pages *pages);

    /* ---- calls and their times ---- */
    void *(*stream)(struct kvg_device *d); /* value for kvg_*_args.stream */
    int (*finish)(struct kvg_device *d);   /* waits; reports errors of the calls since the last wait */
    /* Replaces the content of the device's caches (queued; call it outside a timed region). */
    int (*flush)(struct kvg_device *d);
    /* A timed region. hold = 1 keeps the device busy for about 20 us before the region, so that the host's
     * launch cost is not measured; a cold sample needs no hold, since its flush does the same. `stop` waits,
     * writes the seconds, and reports errors of the region's calls as `finish` does. */
    int (*start)(struct kvg_device *d, int hold);
    int (*stop)(struct kvg_device *d, double *seconds);
    /* Records the work that `call` queues, for replay (a CUDA graph). `call` returns 0 or KVG_E*. A code
     * other than 0, or work that cannot be recorded, is an error after which the device remains usable. */
    int (*record)(struct kvg_device *d, int (*call)(void *), void *context, void **recording);
    int (*replay)(struct kvg_device *d, void *recording); /* queued */
    void (*forget)(struct kvg_device *d, void *recording);

    /* ---- roofs and conditions ---- */
    /* All roofs: 1 to 2 s, called once in a worker. */
    int (*roofs)(struct kvg_device *d, struct kvg_device_roofs *out);
    /* Only read, copy, cache and floor; the others become NaN. Tens of ms, called next to a case. */
    int (*linear_roofs)(struct kvg_device *d, struct kvg_device_roofs *out);
    /* B/s of reading exactly the keys that the case's queries see, from cold caches; NaN with the error. */
    double (*gather_roof)(struct kvg_device *d, const struct kvg_device_gather *g);
    void (*conditions_begin)(struct kvg_device *d);
    void (*conditions_end)(struct kvg_device *d, struct kvg_device_conditions *out);
    /* Pair i of the key and value pairs that describe device, driver and runtime; -1 past the last. */
    int (*fact)(struct kvg_device *d, int64_t i, const char **key, const char **value);
};

struct kvg_device {
    const struct kvg_device_ops *ops;
    char name[128];      /* "NVIDIA H200" */
    int64_t cache_bytes; /* size of the last cache; 0 unknown */
    char error[512];
    int lost;
};

/* Opens CUDA device number `index` of those visible; NULL with the reason when there is no driver or no GPU.
 * The symbol is weak: in a build without CUDA its address is NULL. */
struct kvg_device *kvg_cuda_open(int index, char *why, size_t size) __attribute__((weak));

#ifdef __cplusplus
}
#endif
#endif
