/* SPDX-License-Identifier: Apache-2.0
 *
 * buffers.h: the operations of site.h for a case that is being executed. A failure gives the case its
 * verdict. The functions return 0, or -1 (NULL) with the verdict.
 */
#ifndef KVG_HARNESS_EXECUTE_BUFFERS_H
#define KVG_HARNESS_EXECUTE_BUFFERS_H

#include "execution.h"

void *kvg_buffer_alloc(struct kvg_execution *x, const char *name, int64_t bytes);
int kvg_buffer_fill(struct kvg_execution *x, void *data, int byte, int64_t bytes);
int kvg_buffer_poison(struct kvg_execution *x, void *data, int64_t bytes); /* with 0xff */
int kvg_buffer_hash(struct kvg_execution *x, const void *data, int64_t bytes, uint64_t *hash);
void *kvg_buffer_fetch(struct kvg_execution *x, enum kvg_fetched slot, void *data, int64_t bytes);
int kvg_buffer_send(struct kvg_execution *x, void *to, const void *from, int64_t bytes);

/* After calls: checks that no byte was written outside outputs and workspace, and that no input was changed.
 * A stray write makes the row incorrect and taints the session. */
int kvg_buffers_check(struct kvg_execution *x);
/* The same, and checks the inputs that the kernel is not given. Called before inputs change and at the end of
 * a case. */
int kvg_buffers_check_all(struct kvg_execution *x);

/* After an entry point returned `code`: waits for the work that it queued on a device. `what` is the name of
 * the entry point. */
int kvg_call_finish(struct kvg_execution *x, const char *what, int code);
/* After calls of a plug-in's kernel: restores the floating-point control of this thread and its team, before the
 * harness computes. Another control makes the row incorrect. Ends the process if it is one that the kernel has forked.
 * kvg_call_finish calls it; timed calls need it in addition. */
int kvg_call_restore(struct kvg_execution *x, const char *what);

#endif
