/* SPDX-License-Identifier: Apache-2.0
 *
 * suppose.h: one row of attention, computed as if something were wrong.
 *
 * The best explanation of a wrong output is a wrong computation that gives exactly this output. Each
 * supposition (suppositions.def) changes one thing in plain code that otherwise does what the kernel
 * declares: operands and P rounded, tiles in order, splits merged. It is slow, and only used for rows that
 * failed.
 */
#ifndef KVG_HARNESS_DIAGNOSE_SUPPOSE_H
#define KVG_HARNESS_DIAGNOSE_SUPPOSE_H

#include "harness/prepare/prepared.h"

/* Kinds of fault. Their names are the values of the column `suspected`. */
enum kvg_fault_class {
    KVG_FAULT_UNKNOWN = 0,
    KVG_FAULT_SCALE_DROPPED,
    KVG_FAULT_SCALE_MISAPPLIED,
    KVG_FAULT_STALE_STATE,
    KVG_FAULT_ENCODING,
    KVG_FAULT_PAGE_TAIL,
    KVG_FAULT_NARROW_OFFSET,
    KVG_FAULT_LAYOUT,
    KVG_FAULT_SPLIT,
    KVG_FAULT_MASK,
    KVG_FAULT_CAP_OR_LSE,
    KVG_FAULT_HEAD_MAPPING,
    KVG_FAULT_HEAD_DIM,
    KVG_FAULT_ACCUMULATION,
    KVG_FAULT_RACE,
    KVG_FAULT_MEMORY,
    KVG_FAULT_NOT_WRITTEN,
    KVG_FAULT_REFUSED,
    KVG_FAULT_GROSS,
    KVG_FAULT_TIMING,
    KVG_FAULT_CLASSES
};
const char *kvg_fault_class_name(enum kvg_fault_class fault); /* "scale dropped", ... */

enum kvg_supposition {
#define SUPPOSE(id, fault, needs, words) KVG_SUPPOSE_##id,
#include "suppositions.def"
#undef SUPPOSE
    KVG_SUPPOSITIONS
};
enum kvg_fault_class kvg_supposition_class(enum kvg_supposition s);
const char *kvg_supposition_words(enum kvg_supposition s); /* "v_scale is taken as 1", ... */

/* Scales of the first case in this process, which a kernel may have kept. */
enum { KVG_PAST_HEADS = 256 };
struct kvg_past_scales {
    int known;
    int64_t kv_heads, stride;
    float q[KVG_PAST_HEADS], k[KVG_PAST_HEADS], v[KVG_PAST_HEADS];
};

/* The case that suppositions are made about. */
struct kvg_suppose_case {
    const struct kvg_prepared *p;
    const struct kvg_arithmetic *declared; /* [batch] */
    const struct kvg_past_scales *past;    /* or NULL */
    double factor;                         /* of LOGITS_SCALED; 0: not tried */
};

/* 1 if the supposition changes the output of the case. */
int kvg_supposition_fits(const struct kvg_suppose_case *s, enum kvg_supposition what);

/* Buffers for one row. */
struct kvg_suppose_room {
    double *doubles; /* accumulator and total [head_dim], logits [longest tile] */
    float *floats;   /* query, key, value, another output [head_dim] */
};
int kvg_suppose_room_make(const struct kvg_suppose_case *s,
                          struct kvg_suppose_room *room); /* -1: out of memory */
void kvg_suppose_room_free(struct kvg_suppose_room *room);

/* out[head_dim] is in FP32, before the rounding to the output format. */
void kvg_suppose_row(const struct kvg_suppose_case *s, enum kvg_supposition what,
                     const struct kvg_ref_row *at, const struct kvg_suppose_room *room, float *out,
                     float *lse);

#endif
