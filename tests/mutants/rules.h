/* SPDX-License-Identifier: Apache-2.0
 *
 * rules.h: what published test suites would have said of an output.
 */
#ifndef KVG_TESTS_RULES_H
#define KVG_TESTS_RULES_H

#include <stdint.h>

#include "harness/prepare/prepared.h"

/* The rules, as they stood in mid 2026. None of them looks at the LSE, but for rule FLASHINFER_BENCH, which
 * wants it finite. On store cases rule VLLM is the one of vLLM's cache test; the others have none.
 *   VLLM                |o - u| <= 0.15 + 0.15 |u|, u from unquantised tensors (test_flash_attn, FA3 with
 * FP8); store: |c - u| <= 1e-3 + 0.1 |u| on the dequantised cache (test_cache) FLASHINFER          |o - d| <=
 * 0.01 + 0.2 |d|, d from the dequantised cache (test_fp8_prefill) FLASH_ATTENTION_3   decode, append: max |o
 * - d| <= 4 max |b - d| + 1e-5 and mean |o - d| <= 3 mean |b - d|; prefill: max |o - d| <= 2 (3 with a soft
 * cap) max |b - d| + 2 max |((d + .3) - .3) - d|, the last in bf16. b is their baseline: normalised P cast to
 * e4m3 (path fp8) or bf16, output in bf16. Approximation: the rest of our baseline is FP32, theirs is bf16.
 *   FLASHINFER_BENCH    an element fails where |o - d| > 0.01 and |o - d| / |d| > 0.01
 *   BENCHDNN            |o - d| / |d| <= 8 (1 + keys) eps or |o - d| <= eps sum p |v|, eps = 2^-7 (bf16).
 *                       Approximation: its inputs are small integers; ours are what the case says. */
enum rule { RULE_VLLM, RULE_FLASHINFER, RULE_FLASH_ATTENTION_3, RULE_FLASHINFER_BENCH, RULE_BENCHDNN, RULES };
extern const char *const rule_names[RULES];

/* What the rules compare with, for every row of one case. */
struct rule_references {
    float *dequantised, *unquantised, *baseline; /* [rows, head_dim]; NULL in phase store */
    double *abs_pv;                              /* sum p |v| */
};
/* 0, or -1 when out of memory. */
int rule_references_make(const struct kvg_prepared *p, struct rule_references *r);

/* Bit `1 << rule` for each rule that the output breaks. */
unsigned rules_broken(const struct kvg_prepared *p, const struct rule_references *r, const uint16_t *out,
                      const float *lse);
unsigned rules_broken_by_store(const struct kvg_prepared *p, const void *k_cache, const void *v_cache);

#endif
