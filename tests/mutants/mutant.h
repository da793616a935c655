/* SPDX-License-Identifier: Apache-2.0
 *
 * mutant.h: one right kernel, and the places where it can be made wrong.
 *
 * The kernel is plain C and computes one query row at a time. A line that can be wrong tests FAULT(name),
 * which is true only in the mutant of that name. faults.def describes each fault and names the checks that
 * should find it.
 */
#ifndef KVG_TESTS_MUTANT_H
#define KVG_TESTS_MUTANT_H

#include "kernels/fp8.h"
#include "kernels/kernel.h"

/* The part of the kernel that a fault is in. The mutant supports only cases of that part. */
enum mutant_where {
    WHERE_STORE = 1,
    WHERE_DEQUANT = 2,   /* attention, path dequant */
    WHERE_FP8 = 4,       /* attention, path fp8, FP32 accumulators */
    WHERE_TWO_LEVEL = 8, /* attention, path fp8, 14-bit accumulators, flushed after each tile */
    WHERE_BOTH = WHERE_DEQUANT | WHERE_FP8
};

enum mutant_fault {
#define MUTANT(name, where, fault_class, diagnosis, checks, shows, words) FAULT_##name,
#include "faults.def"
#undef MUTANT
    FAULT_COUNT
};

/* Kernels that are right but slow (slow.def). */
enum mutant_slow {
#define SLOW(name, words) SLOW_##name,
#include "slow.def"
#undef SLOW
    SLOW_COUNT
};
int mutant_slow_attention(enum mutant_slow slow, const struct kvg_attention_args *a);

#define FAULT(name) (m->fault == FAULT_##name)

/* Keys of a tile and of a split of the attention kernel. The narrow accumulators have a longer split, so
 * that their chain is long. */
enum {
    MUTANT_TILE = 64,
    MUTANT_SPLIT = 256,
    MUTANT_LONG_SPLIT = 4096,
    MUTANT_MAX_DIM = 256,
    MUTANT_P_OFFSET = 8
};

/* The kernel of a fault. FAULT_none_... is a kernel without fault. */
struct mutant {
    enum mutant_fault fault;
    enum mutant_where where;
};

int mutant_attention(const struct mutant *m, const struct kvg_attention_args *a);
int64_t mutant_split(const struct mutant *m, const struct kvg_problem *p); /* keys of a split */
int64_t mutant_workspace(const struct kvg_problem *p);
int mutant_store(const struct mutant *m, const struct kvg_store_args *a);
int mutant_quantize_q(const struct mutant *m, const struct kvg_quantize_q_args *a);

/* A random number that is different in every run, for faults that behave like a race. */
uint64_t mutant_chance(void);
/* Hash of bytes (FNV-1a), for mutants with a memory. */
uint64_t mutant_hash(const void *data, int64_t bytes);

#endif
