/* SPDX-License-Identifier: Apache-2.0
 *
 * session.h: what a process that runs many cases keeps from one to the next.
 */
#ifndef KVG_HARNESS_SESSION_H
#define KVG_HARNESS_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "results/facts.h"

/* What a process that runs many cases keeps from one to the next. */
struct kvg_session;
struct kvg_session *kvg_session_new(void); /* NULL on out of memory */
void kvg_session_free(struct kvg_session *session);
/* 1 once a kernel wrote outside its buffers, or its device failed: this process must run no further case. */
int kvg_session_tainted(const struct kvg_session *session);
/* `tell` is called at the beginning of a run (enum kvg_run_kind of diagnose/failure.h) in which a crash has a
 * meaning of its own, and at its end with KVG_RUN_FIRST. */
void kvg_session_announce(struct kvg_session *session, void (*tell)(void *context, int run), void *context);

/* Adds the roofs of the CPU with `threads` threads (read_roof, copy_roof, cache_roof, flop_roof; NaN unless
 * `measure`) and roof_isa, the instruction set of their loops. 0, or -1 on out of memory. */
int kvg_session_add_roofs(struct kvg_session *session, int64_t threads, int measure, struct kvg_facts *facts);

/* How a session opens its device, and how cases on a device are prepared. */
struct kvg_device_source {
    struct kvg_device *(*open)(void *context, char *why, size_t size); /* NULL with the reason */
    void *context;
    const char *plain;    /* name of the FP32 kernel that stands for the reference in large cases */
    int64_t mirror_bytes; /* a synthetic case of several sequences whose K, V and caches take more host
                             bytes is made on the device */
    int64_t part_bytes;   /* of such a case the host prepares one sequence, and more while they take less */
};
/* GPU 0 of those visible; 1 GiB; 0.5 GiB. */
extern const struct kvg_device_source kvg_device_source_cuda;
/* As kvg_session_new, which takes kvg_device_source_cuda. The session opens the device for the first case
 * that needs it, and closes it. */
struct kvg_session *kvg_session_new_on(const struct kvg_device_source *source);

#endif
