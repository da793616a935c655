/* SPDX-License-Identifier: Apache-2.0
 *
 * again.h: further runs of an attention kernel that was right once.
 */
#ifndef KVG_HARNESS_EXECUTE_AGAIN_H
#define KVG_HARNESS_EXECUTE_AGAIN_H

#include "execution.h"
#include "harness/verify/verify.h"

/* Many repeats, a run queued behind other work (on a device), and a run without lse. `args` as for the run
 * before, whose outputs are still in place. -1 with the verdict. */
int kvg_attention_again(struct kvg_execution *x, const struct kvg_attention_args *args,
                        const struct kvg_expectation *e, int deterministic);

#endif
