/* SPDX-License-Identifier: Apache-2.0
 *
 * diagnose.h: from a wrong output to a suspected kind of fault and its evidence. Only rows that failed a
 * check are diagnosed. For attention the steps are:
 *
 *   1. facts of the run: the same inputs give other bits, elements still hold what lay there before the call;
 *   2. suppositions (suppose.h): attention is computed again for about twenty rows as if a scale were
 *      missing, the window were one key too wide, and so on. What turns wrong rows into right ones is
 *      suspected;
 *   3. where no supposition explains the output: the size and shape of the error.
 */
#ifndef KVG_HARNESS_DIAGNOSE_DIAGNOSE_H
#define KVG_HARNESS_DIAGNOSE_DIAGNOSE_H

#include "results/evidence.h"
#include "failure.h"

/* Both always fill *out. */
void kvg_diagnose_attention(const struct kvg_failure *f, struct kvg_diagnosis *out);
void kvg_evidence_attention(const struct kvg_failure *f, struct kvg_evidence *out);

/* The caches after a store, compared with p->k_cache and p->v_cache. */
void kvg_diagnose_store(const struct kvg_prepared *p, const void *k_cache, const void *v_cache,
                        enum kvg_run_kind run, struct kvg_diagnosis *out);
void kvg_evidence_store(const struct kvg_prepared *p, const void *k_cache, const void *v_cache,
                        enum kvg_run_kind run, struct kvg_evidence *out);
/* Quantised Q, compared with p->q8. */
void kvg_diagnose_quantize_q(const struct kvg_prepared *p, const uint8_t *q8, struct kvg_diagnosis *out);

#endif
