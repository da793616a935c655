/* SPDX-License-Identifier: Apache-2.0
 *
 * plugin.c: one struct kvg_kernel for each line of faults.def, named mutant/NAME.
 *
 * The ABI passes no context to an entry point, so each mutant has its own functions, which pass its fault on.
 */
#include <stdio.h>

#include "mutant.h"

static int supports(const struct mutant *m, const struct kvg_problem *p, char *why, size_t size)
{
    const int where = p->phase == KVG_PHASE_STORE   ? WHERE_STORE
                      : p->path == KVG_PATH_DEQUANT ? WHERE_DEQUANT
                                                    : WHERE_FP8 | WHERE_TWO_LEVEL;
    if ((m->where & where) && p->head_dim <= MUTANT_MAX_DIM && p->head_dim % 8 == 0)
        return 1;
    snprintf(why, size, "the fault of this mutant is in another part of the kernel");
    return 0;
}

static void arithmetic(const struct mutant *m, const struct kvg_problem *p, struct kvg_arithmetic *out)
{
    const int fp8 = p->path == KVG_PATH_FP8, two_level = m->where == WHERE_TWO_LEVEL;
    *out = (struct kvg_arithmetic){.qk_operand = fp8 ? KVG_E4M3 : KVG_F32,
                                   .qk_accumulator_bits = two_level ? 14 : 24,
                                   .qk_chain = two_level ? 0 : p->head_dim / 8 + 8,
                                   .exp2_rel_error = 0x1p-22,
                                   .p_format = fp8 ? KVG_E4M3 : KVG_F32,
                                   .p_offset_log2 = fp8 ? MUTANT_P_OFFSET : 0,
                                   .pv_operand = fp8 ? KVG_E4M3 : KVG_F32,
                                   .pv_accumulator_bits = two_level ? 14 : 24,
                                   .pv_flush_interval = two_level ? MUTANT_TILE : 0,
                                   .accumulator_rounding = KVG_ROUND_TRUNCATE,
                                   .tile = MUTANT_TILE,
                                   .tile_last_first = fp8,
                                   .split_tokens = mutant_split(m, p),
                                   .deterministic = 1,
                                   .same_bits_under = KVG_MOVE_PAGES | KVG_MOVE_HEADS | KVG_MOVE_SEQUENCES |
                                                      KVG_MOVE_WORK | KVG_MOVE_COMPANY | KVG_MOVE_CHUNKS};
}

#define MUTANT(id, part, fault_class, diagnosis, checks, shows, words)                                       \
    static const struct mutant mutant_##id = {FAULT_##id, part};                                             \
    static int supports_##id(const struct kvg_problem *p, char *why, size_t size)                            \
    {                                                                                                        \
        return supports(&mutant_##id, p, why, size);                                                         \
    }                                                                                                        \
    static void arithmetic_##id(const struct kvg_problem *p, int64_t seq_len, struct kvg_arithmetic *out)    \
    {                                                                                                        \
        (void)seq_len;                                                                                       \
        arithmetic(&mutant_##id, p, out);                                                                    \
    }                                                                                                        \
    static int store_##id(const struct kvg_store_args *a)                                                    \
    {                                                                                                        \
        return mutant_store(&mutant_##id, a);                                                                \
    }                                                                                                        \
    static int quantize_##id(const struct kvg_quantize_q_args *a)                                            \
    {                                                                                                        \
        return mutant_quantize_q(&mutant_##id, a);                                                           \
    }                                                                                                        \
    static int attention_##id(const struct kvg_attention_args *a)                                            \
    {                                                                                                        \
        return mutant_attention(&mutant_##id, a);                                                            \
    }                                                                                                        \
    static const struct kvg_kernel kernel_##id = {                                                           \
        .abi_version = KVG_KERNEL_ABI_VERSION,                                                               \
        .struct_size = sizeof(struct kvg_kernel),                                                            \
        .name = "mutant/" #id,                                                                               \
        .summary = words,                                                                                    \
        .device = KVG_DEVICE_CPU,                                                                            \
        .rank = -1,                                                                                          \
        .supports = supports_##id,                                                                           \
        .arithmetic = arithmetic_##id,                                                                       \
        .workspace_bytes = mutant_workspace,                                                                 \
        .store = store_##id,                                                                                 \
        .quantize_q = quantize_##id,                                                                         \
        .attention = attention_##id,                                                                         \
        .features = KVG_FEATURE_SHARED_PAGES | KVG_FEATURE_SMALL_PAGES | KVG_FEATURE_CHUNKED_MASK |          \
                    KVG_FEATURE_PREFIX_MASK | KVG_FEATURE_SINKS};
#include "faults.def"
#undef MUTANT

/* The slow kernels are the right kernel, on decode of path dequant only. */
#define SLOW(id, words)                                                                                      \
    static int supports_##id(const struct kvg_problem *p, char *why, size_t size)                            \
    {                                                                                                        \
        static const struct mutant right = {FAULT_none_attention, WHERE_DEQUANT};                            \
        return supports(&right, p, why, size);                                                               \
    }                                                                                                        \
    static int attention_##id(const struct kvg_attention_args *a)                                            \
    {                                                                                                        \
        return mutant_slow_attention(SLOW_##id, a);                                                          \
    }                                                                                                        \
    static const struct kvg_kernel kernel_##id = {.abi_version = KVG_KERNEL_ABI_VERSION,                     \
                                                  .struct_size = sizeof(struct kvg_kernel),                  \
                                                  .name = "mutant/" #id,                                     \
                                                  .summary = words,                                          \
                                                  .device = KVG_DEVICE_CPU,                                  \
                                                  .rank = -1,                                                \
                                                  .supports = supports_##id,                                 \
                                                  .arithmetic = arithmetic_none_attention,                   \
                                                  .workspace_bytes = mutant_workspace,                       \
                                                  .attention = attention_##id};
#include "slow.def"
#undef SLOW

const struct kvg_kernel *const *kvg_plugin_kernels(int64_t *count);
const struct kvg_kernel *const *kvg_plugin_kernels(int64_t *count)
{
#define MUTANT(id, part, fault_class, diagnosis, checks, shows, words) &kernel_##id,
#define SLOW(id, words) &kernel_##id,
    static const struct kvg_kernel *const kernels[] = {
#include "faults.def"
#include "slow.def"
    };
#undef MUTANT
#undef SLOW
    *count = (int64_t)(sizeof kernels / sizeof kernels[0]);
    return kernels;
}
