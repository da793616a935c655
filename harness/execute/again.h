/* SPDX-License-Identifier: Apache-2.0
 *
 * again.h: further runs of an attention kernel that was right once.
 */
#ifndef KVG_HARNESS_EXECUTE_AGAIN_H
#define KVG_HARNESS_EXECUTE_AGAIN_H

#include "execution.h"
#include "harness/verify/verify.h"

/* Many repeats, on a device a run queued behind other work, and a run without lse. `args` are those of the
 * previous run, and its outputs must still be in the buffers. -1 with the verdict. */
int kvg_attention_again(struct kvg_execution *x, const struct kvg_attention_args *args,
                        const struct kvg_expectation *e, int deterministic);

#endif
