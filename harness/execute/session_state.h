/* SPDX-License-Identifier: Apache-2.0
 *
 * session_state.h: the fields of a session: the device, the last roofs, inputs, and facts about the kernels.
 * Private to harness/execute.
 */
#ifndef KVG_HARNESS_SESSION_STATE_H
#define KVG_HARNESS_SESSION_STATE_H

#include <stdint.h>
#include <sys/types.h>

#include "execution.h"
#include "harness/device/device.h"
#include "harness/diagnose/diagnose.h"
#include "harness/inputs/input_cache.h"
#include "harness/machine/fp_control.h"
#include "harness/measure/roofs.h"
#include "session.h"

/* How often further runs were made with a kernel, for each phase, path and dtype. */
enum { KVG_FOLLOWERS = 256, KVG_FOLLOWED_ENOUGH = 2, KVG_RIGHT_OUTPUTS = 512 };
struct kvg_follower {
    const struct kvg_kernel *kernel;
    enum kvg_phase phase;
    enum kvg_path path;
    enum kvg_cache_dtype dtype;
    int renewals;     /* runs on changed inputs */
    int again;        /* rounds of further runs */
    int reordered[4]; /* runs in another order, of each kind */
    int company
        [2][3]; /* runs with other sequences or rows (company.c): [context is split][batch 1, more, chunks] */
    int edges[2]; /* runs with inputs at an edge: [1] if the last sequence is a longest one */
};

/* What earlier cases of the process left. */
struct kvg_history {
    struct kvg_follower followers[KVG_FOLLOWERS];
    struct kvg_past past;                      /* earlier scales: a kernel may have kept them */
    uint64_t right_outputs[KVG_RIGHT_OUTPUTS]; /* hashes of right outputs: a kernel may repeat one */
    int64_t right_count;                       /* number of right outputs; the last hashes are kept */
};

/* The session's device. */
struct kvg_session_device {
    struct kvg_device_source source;
    struct kvg_device *opened;      /* NULL until a case needs it, or if there is none; owned */
    int tried;                      /* 1: source.open was called */
    char why[256];                  /* why there is no device */
    struct kvg_device_roofs linear; /* the last linear roofs */
    double linear_taken;            /* kvg_now() when they were measured; 0 = not measured yet */
    struct kvg_device_roofs roofs;  /* the matrix roofs, measured once per session */
    int roofs_taken;                /* 1: they were measured */
};

struct kvg_session {
    struct kvg_meter *meter;        /* roofs of the CPU; owned */
    struct kvg_input_cache *inputs; /* inputs of the last cases; owned */
    struct kvg_history history;
    struct kvg_session_device device;
    struct kvg_fp_control fp;             /* of the process when the session was made */
    pid_t process;                        /* that made the session */
    int tainted;                          /* see kvg_session_tainted */
    void (*tell)(void *context, int run); /* NULL, or the function given to kvg_session_announce */
    void *tell_context;
};

/* The entry of the case's kernel, phase, path and dtype. NULL when there is no room for another entry. */
struct kvg_follower *kvg_session_follower(struct kvg_execution *x);
/* 1 if the inputs of this case shall change in place: always for a timed case, otherwise twice for each
 * kernel, phase, path and dtype. Without a clock a kernel gains nothing by caching its answer, and the cached
 * answer would be wrong in the next case whose buffers have the same addresses. */
int kvg_session_wants_renewal(struct kvg_execution *x);
/* 1 if further runs shall be made (again.h, far.h): twice for each kernel, phase, path and dtype, timed or
 * not. */
int kvg_session_wants_again(struct kvg_execution *x);
/* Calls the function given to kvg_session_announce: a run of this kind begins. */
void kvg_session_tell(const struct kvg_execution *x, enum kvg_run_kind run);

#endif
