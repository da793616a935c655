/* SPDX-License-Identifier: Apache-2.0
 *
 * state.h: the state of the worker process that a kernel of a plug-in may change by accident, and that would change
 * the rows after it.
 */
#ifndef KVG_HARNESS_STATE_H
#define KVG_HARNESS_STATE_H

#include <stdint.h>

struct kvg_state;

/* What a kernel left changed. */
struct kvg_state_changes {
    char text[768]; /* "the umask, 2 child processes"; empty: nothing */
    int forbidden; /* 1: among them is what makes a row incorrect: the floating-point control, a second return */
    int lasting; /* 1: not all could be put back, so the process must not execute further cases */
};

/* The state now; NULL on out of memory. */
struct kvg_state *kvg_state_take(void);
void kvg_state_free(struct kvg_state *state);
/* Compares with the state now, puts back what can be put back, and says what had changed. `threads`: as many threads
 * may have been added, if they sleep; < 0: neither threads nor new descriptors are looked at (a GPU's driver has its
 * own). */
void kvg_state_mend(const struct kvg_state *state, int64_t threads, struct kvg_state_changes *changes);

#endif
