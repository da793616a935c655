/* SPDX-License-Identifier: Apache-2.0
 *
 * edges.h: runs of a CPU kernel whose inputs end at memory without access, and begin after it
 * (harness/memory/edge.h). A read outside an input ends the process; the kind of the run is announced
 * before.
 *
 * The output must be right too. They are made twice for each kernel, phase, path and dtype, and twice more
 * where the last sequence is a longest one. 0, or -1 with the verdict. On a device nothing is done. If the
 * system has no memory for the buffers, the runs are left out.
 */
#ifndef KVG_HARNESS_EXECUTE_EDGES_H
#define KVG_HARNESS_EXECUTE_EDGES_H

#include "execution.h"
#include "harness/verify/expectation.h"

int kvg_attention_edges(struct kvg_execution *x, const struct kvg_attention_args *args,
                        const struct kvg_expectation *e);
/* Moves the inputs in *args to an edge and calls `call`, which calls the kernel with *args and compares the
 * result; its return value is returned. In the end *args is as before. */
int kvg_store_edges(struct kvg_execution *x, struct kvg_store_args *args, int (*call)(void *context),
                    void *context);
int kvg_quantize_edges(struct kvg_execution *x, struct kvg_quantize_q_args *args, int (*call)(void *context),
                       void *context);

#endif
