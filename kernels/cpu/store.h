/* SPDX-License-Identifier: Apache-2.0
 *
 * store.h: the contract between the driver of the CPU store (store.c: slots, heads, threads) and the row
 * converters of one instruction set.
 */
#ifndef KVG_KERNELS_CPU_STORE_H
#define KVG_KERNELS_CPU_STORE_H

#include "cpu.h"

/* How a value is scaled: true FP32 division (K and V), or the product with 1 / scale (Q). */
enum kvg_scale_rule { KVG_DIVIDE = 0, KVG_RECIPROCAL = 1 };

/* Converts `count` consecutive elements. A bf16 destination ignores the scale. */
typedef void (*kvg_convert_row)(const void *source, int64_t count, float scale, void *destination);

struct kvg_store_ops {
    enum kvg_isa isa;
    /* The converter of a pair of formats; NULL = none. Sources: bf16, f16, f32. Destinations: e4m3, e5m2,
     * e4m3fnuz, bf16. The driver copies bf16 to bf16 itself. */
    kvg_convert_row (*convert)(enum kvg_dtype from, enum kvg_dtype to, enum kvg_scale_rule rule);
};

int kvg_store_supports(const struct kvg_store_ops *ops, const struct kvg_problem *problem, char *why,
                       size_t size);
int kvg_store_run(const struct kvg_store_ops *ops, const struct kvg_store_args *args);
int kvg_quantize_q_run(const struct kvg_store_ops *ops, const struct kvg_quantize_q_args *args);

extern const struct kvg_store_ops kvg_store_scalar, kvg_store_avx2, kvg_store_avx512, kvg_store_neon;

#endif
