/* SPDX-License-Identifier: Apache-2.0
 *
 * rules.h: the acceptance rules of published test suites, applied to our outputs.
 */
#ifndef KVG_TESTS_RULES_H
#define KVG_TESTS_RULES_H

#include <stdint.h>

#include "harness/prepare/prepared.h"

/* The rules as they were in mid 2026.
 *   o  output of the kernel
 *   u  attention on the unquantised tensors
 *   d  attention on the dequantised cache
 *   b  baseline of FlashAttention-3 on the dequantised cache
 *
 *   VLLM               |o - u| <= 0.15 + 0.15 |u| (test_flash_attn, FA3 with FP8). Store: |c - u| <= 1e-3
 *                      + 0.1 |u|, c the dequantised cache and u the source (test_cache).
 *   FLASHINFER         |o - d| <= 0.01 + 0.2 |d| (test_fp8_prefill).
 *   FLASH_ATTENTION_3  decode, append: max |o - d| <= 4 max |b - d| + 1e-5 and
 *                      mean |o - d| <= 3 mean |b - d|.
 *                      prefill: max |o - d| <= 2 max |b - d| + 2 max |((d + .3) - .3) - d|, the last term in
 *                      bf16; with a soft cap 3 instead of the first 2.
 *                      b has P normalised and cast to e4m3 (path fp8) or bf16, and its output in bf16.
 *                      Approximation: the rest of our baseline is FP32, theirs is bf16.
 *   FLASHINFER_BENCH   An element fails if |o - d| > 0.01 and |o - d| / |d| > 0.01, or its LSE is not
 *                      finite.
 *   BENCHDNN           |o - d| / |d| <= 8 (1 + keys) eps or |o - d| <= eps sum p |v|, eps = 2^-7 (bf16).
 *                      Approximation: its inputs are small integers; ours are those of the case.
 *
 * Only FLASHINFER_BENCH looks at the LSE. On store cases VLLM is the rule of vLLM's cache test, and the
 * others have no rule. */
enum rule { RULE_VLLM, RULE_FLASHINFER, RULE_FLASH_ATTENTION_3, RULE_FLASHINFER_BENCH, RULE_BENCHDNN, RULES };
extern const char *const rule_names[RULES];

/* The references of the rules, for every row of one case. */
struct rule_references {
    float *dequantised, *unquantised, *baseline; /* [rows, head_dim]; NULL in phase store */
    double *abs_pv;                              /* sum p |v| */
};
/* 0, or -1 if out of memory. Phase store needs no references. */
int rule_references_make(const struct kvg_prepared *p, struct rule_references *r);

/* A set of bits: 1 << rule for each rule that rejects the output. */
unsigned rules_broken(const struct kvg_prepared *p, const struct rule_references *r, const uint16_t *out,
                      const float *lse);
unsigned rules_broken_by_store(const struct kvg_prepared *p, const void *k_cache, const void *v_cache);

#endif
