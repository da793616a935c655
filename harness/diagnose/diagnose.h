/* SPDX-License-Identifier: Apache-2.0
 *
 * diagnose.h: what does a wrong output look like, and what fault is that?
 *
 * Only rows that have failed come here. Facts go first (the same inputs give other bits; elements still hold
 * what lay there before the call), then suppositions: attention is computed once more for some twenty rows as
 * if a scale were missing, a window one key too wide, ... (suppose.h), and the one that turns wrong rows into
 * right ones is what is suspected. What no supposition explains is told by its size and shape, or not at all.
 */
#ifndef KVG_HARNESS_DIAGNOSE_DIAGNOSE_H
#define KVG_HARNESS_DIAGNOSE_DIAGNOSE_H

#include "results/evidence.h"
#include "failure.h"

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
