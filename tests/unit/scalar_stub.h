/* SPDX-License-Identifier: Apache-2.0
 *
 * scalar_stub.h: the kernel of scalar_attention.h as a struct kvg_kernel, for code that reads its name and
 * its declaration and never calls it. A test sets scalar_declared before it asks for an expectation.
 */
#ifndef KVG_TESTS_SCALAR_STUB_H
#define KVG_TESTS_SCALAR_STUB_H

#include "scalar_attention.h"

static struct kvg_arithmetic scalar_declared;

static inline void scalar_declare(const struct kvg_problem *problem, int64_t seq_len,
                                  struct kvg_arithmetic *out)
{
    (void)problem;
    (void)seq_len;
    *out = scalar_declared;
}

#define SCALAR_NAME "test/scalar"
static const struct kvg_kernel scalar_stub = {.name = SCALAR_NAME, .arithmetic = scalar_declare};

/* A kernel without a fault: tiles of 64 keys, one split, FP32 accumulators. */
static inline struct scalar_kernel plain_kernel(enum kvg_path path)
{
    const int fp8 = path == KVG_PATH_FP8;
    struct scalar_kernel k;
    memset(&k, 0, sizeof k);
    k.lanes = 16;
    k.sum_per_tile = 1;
    k.declared.qk_operand = k.declared.pv_operand = fp8 ? KVG_E4M3 : KVG_BF16;
    k.declared.qk_accumulator_bits = k.declared.pv_accumulator_bits = 24;
    k.declared.exp2_rel_error = 0x1p-22;
    k.declared.p_format = fp8 ? KVG_E4M3 : KVG_F32;
    k.declared.p_offset_log2 = fp8 ? 8 : 0;
    k.declared.tile = 64;
    k.declared.deterministic = 1;
    return k;
}

#endif
