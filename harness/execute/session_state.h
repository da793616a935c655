/* SPDX-License-Identifier: Apache-2.0
 *
 * session_state.h: what is in a session: the device, the last roofs, inputs, and what is known about the
 * kernels. Private to this room.
 */
#ifndef KVG_HARNESS_SESSION_STATE_H
#define KVG_HARNESS_SESSION_STATE_H

#include <stdint.h>

#include "execution.h"
#include "harness/device/device.h"
#include "harness/diagnose/diagnose.h"
#include "harness/inputs/input_cache.h"
#include "harness/measure/roofs.h"
#include "session.h"

/* Kernels, phases, paths and dtypes that followed changed inputs. */
enum { KVG_FOLLOWERS = 256, KVG_FOLLOWED_ENOUGH = 2, KVG_RIGHT_OUTPUTS = 512 };
struct kvg_follower {
    const struct kvg_kernel *kernel;
    enum kvg_phase phase;
    enum kvg_path path;
    enum kvg_cache_dtype dtype;
    int renewals;     /* runs on changed inputs */
    int again;        /* rounds of further runs */
    int reordered[4]; /* runs in another order, of each kind */
};

/* What the process knows of earlier cases. */
struct kvg_history {
    struct kvg_follower followers[KVG_FOLLOWERS];
    struct kvg_past_scales past; /* the first scales: a kernel may have kept them */
    uint64_t
        right_outputs[KVG_RIGHT_OUTPUTS]; /* hashes of outputs that were right: a kernel may repeat one */
    int64_t right_count;                  /* of all; the last KVG_RIGHT_OUTPUTS are kept */
};

/* The session's device. */
struct kvg_session_device {
    struct kvg_device_source source;
    struct kvg_device *opened;      /* NULL until a case needs it, or where there is none; owned */
    int tried;                      /* 1: source.open was called */
    char why[256];                  /* why there is no device */
    struct kvg_device_roofs linear; /* the last ones, measured at linear_taken (kvg_now) */
    double linear_taken;            /* 0 = none yet */
    struct kvg_device_roofs roofs;  /* measured once a session */
    int roofs_taken;
};

struct kvg_session {
    struct kvg_meter *meter;        /* roofs of the CPU; owned */
    struct kvg_input_cache *inputs; /* of the last cases; owned */
    struct kvg_history history;
    struct kvg_session_device device;
    int tainted;                          /* see kvg_session_tainted */
    void (*tell)(void *context, int run); /* NULL, or kvg_session_announce's */
    void *tell_context;
};

/* What the session knows of the case's kernel, phase, path and dtype; NULL when it has no room for more. */
struct kvg_follower *kvg_session_follower(struct kvg_execution *x);
/* Shall the inputs of this case change in place once more? Always where it is timed; else twice for each
 * kernel, phase, path and dtype. Without a clock there is nothing to gain by caching an answer, and a cached
 * answer would be wrong in the next case that finds its buffers at the same place. */
int kvg_session_wants_renewal(struct kvg_execution *x);
/* The same for further runs (again.h, far.h): twice for each kernel, phase, path and dtype, timed or not. */
int kvg_session_wants_again(struct kvg_execution *x);
/* Tells the listener of kvg_session_announce that a run of this kind begins. */
void kvg_session_tell(const struct kvg_execution *x, enum kvg_run_kind run);

#endif
