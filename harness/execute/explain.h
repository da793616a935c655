/* SPDX-License-Identifier: Apache-2.0
 *
 * explain.h: what a row says of a failure beside its reason: evidence and suspected kind of fault.
 */
#ifndef KVG_HARNESS_EXPLAIN_H
#define KVG_HARNESS_EXPLAIN_H

#include "execution.h"
#include "harness/diagnose/diagnose.h"
#include "harness/verify/verify.h"

/* The output that kvg_outputs_compare last compared is wrong: adds evidence and suspicion. Calls the kernel
 * again with `args`. The verdict stays. */
void kvg_explain_attention(struct kvg_execution *x, const struct kvg_attention_args *args,
                           const struct kvg_expectation *e, enum kvg_run_kind run);
/* The same for caches (host copies) that a store left wrong, and for a Q quantised wrong. */
void kvg_explain_store(struct kvg_execution *x, const void *k_cache, const void *v_cache,
                       enum kvg_run_kind run);
void kvg_explain_quantize_q(struct kvg_execution *x, const uint8_t *q8);
/* The output that was last compared is right: keeps its hash, so that a later repetition of it is
 * recognised. */
void kvg_explain_remember(struct kvg_execution *x);

/* A suspicion that needs no diagnosis. */
struct kvg_suspicion {
    enum kvg_fault_class fault;
    const char *why;
};
/* Compares the output of a further run with the expectation. A wrong output gives the verdict "WHEN: REASON",
 * and the suspicion `known` or, where that is NULL, an explanation. -1 with the verdict. */
int kvg_output_hold(struct kvg_execution *x, const struct kvg_attention_args *args,
                    const struct kvg_expectation *e, enum kvg_run_kind run, const char *when,
                    const struct kvg_suspicion *known);
/* The same for an output that lies on the host. */
int kvg_host_output_hold(struct kvg_execution *x, const uint16_t *out, const float *lse,
                         const struct kvg_expectation *e, const char *when,
                         const struct kvg_suspicion *known);

#endif
