/* SPDX-License-Identifier: Apache-2.0
 *
 * explain.h: explains a failure: evidence and suspected kind of fault, which the row has besides its reason.
 */
#ifndef KVG_HARNESS_EXPLAIN_H
#define KVG_HARNESS_EXPLAIN_H

#include "execution.h"
#include "harness/diagnose/diagnose.h"
#include "harness/verify/verify.h"

/* Adds evidence and suspicion for a wrong output, the one that kvg_outputs_compare compared last. Calls the
 * kernel again with `args`. The verdict stays. */
void kvg_explain_attention(struct kvg_execution *x, const struct kvg_attention_args *args,
                           const struct kvg_expectation *e, enum kvg_run_kind run);
/* The same for wrong caches (host copies) after a store, and for a Q with wrong codes. */
void kvg_explain_store(struct kvg_execution *x, const void *k_cache, const void *v_cache,
                       enum kvg_run_kind run);
void kvg_explain_quantize_q(struct kvg_execution *x, const uint8_t *q8);
/* Keeps the hash of a right output, the one that was compared last, so that a kernel that repeats it later is
 * recognised. */
void kvg_explain_remember(struct kvg_execution *x);

/* A suspicion that is known without a diagnosis. */
struct kvg_suspicion {
    enum kvg_fault_class fault;
    const char *why;
};
/* Compares the output of a further run with the expectation. A wrong output gives the verdict "WHEN: REASON",
 * and the suspicion `known` or, where that is NULL, an explanation. -1 with the verdict. */
int kvg_output_hold(struct kvg_execution *x, const struct kvg_attention_args *args,
                    const struct kvg_expectation *e, enum kvg_run_kind run, const char *when,
                    const struct kvg_suspicion *known);
/* The same for an output in host memory. */
int kvg_host_output_hold(struct kvg_execution *x, const uint16_t *out, const float *lse,
                         const struct kvg_expectation *e, const char *when,
                         const struct kvg_suspicion *known);
/* Calls the kernel up to 60 times, for at most a second. 1 if a call gives other bits than the one before. */
int kvg_explain_unstable(struct kvg_execution *x, const struct kvg_attention_args *args);
/* 1 if an output in host memory is right by the bounds. */
int kvg_host_output_is_right(const uint16_t *out, const float *lse, const struct kvg_expectation *e);

#endif
