/* SPDX-License-Identifier: Apache-2.0
 *
 * failure.h: an output that failed a check, and the kind of fault that is suspected. diagnose.h goes from one
 * to the other.
 */
#ifndef KVG_HARNESS_DIAGNOSE_FAILURE_H
#define KVG_HARNESS_DIAGNOSE_FAILURE_H

#include "harness/verify/expectation.h"
#include "suppose.h"

/* Which run of the kernel failed. */
enum kvg_run_kind {
    KVG_RUN_FIRST = 0,
    KVG_RUN_SECOND,  /* the same inputs again */
    KVG_RUN_TIMED,   /* the last timed run */
    KVG_RUN_REPEAT,  /* one of many runs on the same inputs */
    KVG_RUN_NO_LSE,  /* the caller asks for no lse */
    KVG_RUN_FAR,     /* the same pages 2^32 elements into the cache */
    KVG_RUN_RENEWED, /* other values in the same buffers */
    KVG_RUN_SPECIAL, /* store: NaN, infinities, ties */
    KVG_RUN_QUEUED,  /* on a device: queued behind work that keeps its stream busy */
    KVG_RUN_EDGE     /* on a CPU: inputs that touch memory without access */
};
const char *kvg_run_words(enum kvg_run_kind run); /* "the first run", ... */

struct kvg_diagnosis {
    enum kvg_fault_class suspected;
    char why[600]; /* column `suspicion` */
};
/* Fills a diagnosis. */
void kvg_diagnosis_say(struct kvg_diagnosis *d, enum kvg_fault_class suspected, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* An output that failed. out and lse are host copies, as kvg_compare_attention takes them. */
struct kvg_failure {
    const struct kvg_expectation *expectation;
    const struct kvg_kernel *kernel;
    const uint16_t *out;
    const float *lse; /* NULL: the caller asked for none */
    enum kvg_run_kind run;
    const struct kvg_past *past; /* or NULL */
    int unstable;                /* 1: the same call gave other bits when it was repeated */
    int workspace;               /* 1: the output is right when the workspace is zero before the call */
    int on_zeros;   /* 1: out and lse come from a run with zeros where a call has NaN: slots that no sequence
                       owns, gaps of views */
    int tail;       /* 1: the output is right with these zeros */
    int old_output; /* 1: the output has the bits of an earlier call with other inputs */
};

#endif
