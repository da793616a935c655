/* SPDX-License-Identifier: Apache-2.0
 *
 * diagnose.h: what does a wrong output look like, and what fault is that?
 *
 * Only rows that have failed come here. Facts go first (the same inputs give other bits; elements still hold
 * what lay there before the call), then suppositions: attention is computed once more for some twenty rows as
 * if a scale were missing, a window one key too wide, ... (suppose.h), and the one that turns wrong rows into
 * right ones is what is suspected. What no supposition explains is told by its size and shape, or not at all.
 */
#ifndef KVG_HARNESS_DIAGNOSE_H
#define KVG_HARNESS_DIAGNOSE_H

#include "results/evidence.h"
#include "harness/verify/expectation.h"
#include "suppose.h"
#include "harness/prepare/prepared.h"

/* Which run of the kernel failed. */
enum kvg_run_kind {
    KVG_RUN_FIRST = 0,
    KVG_RUN_SECOND,  /* the same inputs again */
    KVG_RUN_TIMED,   /* the last timed one */
    KVG_RUN_REPEAT,  /* one of many on the same inputs */
    KVG_RUN_NO_LSE,  /* no lse is asked for */
    KVG_RUN_FAR,     /* the same pages 2^32 elements into the cache */
    KVG_RUN_RENEWED, /* other values in the same buffers */
    KVG_RUN_SPECIAL, /* store: NaN, infinities, ties */
    KVG_RUN_QUEUED   /* on a device: behind work that keeps its stream busy */
};
const char *kvg_run_words(enum kvg_run_kind run); /* "the first run", ... */

struct kvg_diagnosis {
    enum kvg_fault_class suspected;
    char why[600];
};

/* An output that did not hold. Host copies, as kvg_compare_attention takes them. */
struct kvg_failure {
    const struct kvg_expectation *expectation;
    const struct kvg_kernel *kernel;
    const uint16_t *out;
    const float *lse; /* NULL: none was asked for */
    enum kvg_run_kind run;
    const struct kvg_past_scales *past; /* or NULL */
    int unstable;                       /* 1: the same call again gave other bits */
    int workspace;                      /* 1: the call is right once the workspace is zero */
    int tail;                           /* 1: it is right once slots that no sequence owns are zero */
    int old_output;                     /* 1: these are the bits of an earlier call with other inputs */
};
/* Both always fill what they are given. */
void kvg_diagnose_attention(const struct kvg_failure *f, struct kvg_diagnosis *out);
void kvg_evidence_attention(const struct kvg_failure *f, struct kvg_evidence *out);

/* The caches after a store against p->k_cache and p->v_cache. */
void kvg_diagnose_store(const struct kvg_prepared *p, const void *k_cache, const void *v_cache,
                        enum kvg_run_kind run, struct kvg_diagnosis *out);
void kvg_evidence_store(const struct kvg_prepared *p, const void *k_cache, const void *v_cache,
                        enum kvg_run_kind run, struct kvg_evidence *out);
/* Quantised Q against p->q8. */
void kvg_diagnose_quantize_q(const struct kvg_prepared *p, const uint8_t *q8, struct kvg_diagnosis *out);

#endif
