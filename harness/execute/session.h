/* SPDX-License-Identifier: Apache-2.0
 *
 * session.h: the state that a process keeps from case to case.
 */
#ifndef KVG_HARNESS_SESSION_H
#define KVG_HARNESS_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "results/facts.h"

struct kvg_session;
struct kvg_session *kvg_session_new(void); /* NULL on out of memory */
void kvg_session_free(struct kvg_session *session);
/* 1 after a kernel wrote outside its buffers or the device failed. The process must not execute further
 * cases. */
int kvg_session_tainted(const struct kvg_session *session);
/* Exit code of a process that a kernel of a plug-in has forked, and in which its call returned too. */
#define KVG_RETURNED_TWICE 86
/* Sets `tell`. It is called at the beginning of a run whose crash has a special meaning, with the kind of the
 * run (enum kvg_run_kind of diagnose/failure.h), and at the end of that run with KVG_RUN_FIRST. */
void kvg_session_announce(struct kvg_session *session, void (*tell)(void *context, int run), void *context);

/* Adds the roofs of the CPU with `threads` threads (read_roof, copy_roof, cache_roof, flop_roof; NaN unless
 * `measure`) and roof_isa, the instruction set of their loops. 0, or -1 on out of memory. */
int kvg_session_add_roofs(struct kvg_session *session, int64_t threads, int measure, struct kvg_facts *facts);

/* How a session opens its device, and how cases on a device are prepared. */
struct kvg_device_source {
    struct kvg_device *(*open)(void *context, char *why, size_t size); /* NULL with the reason */
    void *context;
    const char *plain;    /* name of the FP32 kernel that is used as reference for all rows of large cases */
    int64_t mirror_bytes; /* a synthetic case of several sequences, whose K, V and caches would take more host
                             bytes than this, is made on the device */
    int64_t part_bytes;   /* of such a case the host prepares one sequence, and others as long as all of them
                             take at most this many bytes */
};
/* The first visible GPU; cuda/naive_f32; 1 GiB; 0.5 GiB. */
extern const struct kvg_device_source kvg_device_source_cuda;
/* As kvg_session_new, which uses kvg_device_source_cuda. The session opens the device for the first case that
 * needs it. kvg_session_free closes it. */
struct kvg_session *kvg_session_new_on(const struct kvg_device_source *source);

#endif
