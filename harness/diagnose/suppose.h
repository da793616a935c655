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
#include "suppositions.h"

/* Scales of earlier calls in this process, which a kernel may have kept. */
enum { KVG_PAST_HEADS = 256, KVG_PAST_CALLS = 6 };
struct kvg_past_scales {
    int64_t kv_heads;
    float q[KVG_PAST_HEADS], k[KVG_PAST_HEADS], v[KVG_PAST_HEADS]; /* [kv_heads]; per tensor: all equal */
};
/* The first scales of the process, and the last ones. */
struct kvg_past {
    int64_t count; /* of all scales that were added */
    struct kvg_past_scales scales[KVG_PAST_CALLS];
};
/* Adds the scales of a case, unless they are kept already. */
void kvg_past_add(struct kvg_past *past, const struct kvg_prepared *p);
/* Number of entries of `scales`. */
int64_t kvg_past_kept(const struct kvg_past *past);

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

/* Attention for the row that the supposed kernel computes and writes where `at` should be; NaN if there is
 * none. Nothing is changed after it. */
void kvg_suppose_attend(const struct kvg_suppose_case *s, enum kvg_supposition what,
                        const struct kvg_ref_row *at, const struct kvg_suppose_room *room, float *out,
                        float *lse);
/* The row as supposed. out[head_dim] is in FP32, before the rounding to the output format. */
void kvg_suppose_row(const struct kvg_suppose_case *s, enum kvg_supposition what,
                     const struct kvg_ref_row *at, const struct kvg_suppose_room *room, float *out,
                     float *lse);

#endif
