/* SPDX-License-Identifier: Apache-2.0
 *
 * look.h: the rows of a wrong output of attention that are looked at, and what was found out about them.
 * Private to the room.
 */
#ifndef KVG_HARNESS_DIAGNOSE_LOOK_H
#define KVG_HARNESS_DIAGNOSE_LOOK_H

#include "parts.h"

enum {
    KVG_FAILED_ROWS = 16, /* failed rows that are looked at, at most */
    KVG_PASSED_ROWS = 8,  /* rows that passed, at most: a supposition must explain these too */
    KVG_LOOKED_AT = KVG_FAILED_ROWS + KVG_PASSED_ROWS
};
#define KVG_EXPLAINED 0.2     /* an explanation leaves at most this part of the distance */
#define KVG_NEARLY_RIGHT 0.15 /* relative L2 error that rounding can cause */
#define KVG_LSE_FAR_OFF                                                                                      \
    64.0 /* times the allowed lse error: more than rounding in the loop over keys can cause */
#define KVG_RESEMBLES 0.5 /* the same for a weaker statement */

struct kvg_look {
    const struct kvg_failure *f;
    const struct kvg_prepared *p;
    int64_t dim;
    struct kvg_arithmetic *declared; /* [batch] */
    int64_t chosen[KVG_LOOKED_AT];   /* numbers of sampled rows */
    int too_long;      /* 1: no supposition can be computed: too many keys, or no cache on the host */
    int count, failed; /* rows chosen, and how many of them failed: the first ones */

    /* Filled by kvg_look_suppose. */
    double distance[KVG_SUPPOSITIONS]; /* mean over the rows; HUGE_VAL: not tried */
    int explained[KVG_SUPPOSITIONS];   /* rows in which the supposed output matches the output */

    /* Filled by kvg_look_at_errors. */
    double rel[KVG_LOOKED_AT];     /* relative L2 error against the emulation */
    double lse_off[KVG_LOOKED_AT]; /* lse error over what is allowed; 0 without an lse */
};

/* ---- look.c ---- */
/* Chooses the rows; f, p, dim and declared are set. -1: out of memory. */
int kvg_look_choose(struct kvg_look *k);
void kvg_look_at_errors(struct kvg_look *k);
/* Relative L2 distance of a sampled row of the output from the emulated row times a factor; infinity where
 * the output is not finite. */
double kvg_look_rel(const struct kvg_look *k, int64_t i, double factor);
/* 1 if a failed row is farther off than rounding can cause. */
int kvg_look_is_far_off(const struct kvg_look *k);

/* ---- trial.c ---- */
/* Tries the suppositions, or only those about the places to which rows are written. -1: out of memory. */
int kvg_look_suppose(struct kvg_look *k, int only_places);
/* Distance of the output from LOGITS_SCALED with a factor, over every `step`-th row. -1: out of memory. */
int kvg_look_scaled(const struct kvg_look *k, double factor, int step, double *mean, int *explained);
/* Suspects the nearest supposition if it leaves at most `share` of the distance. 1 if so. */
int kvg_diagnose_by_supposition(const struct kvg_look *k, double share, struct kvg_diagnosis *d);

/* ---- shape.c ---- */
/* From size and shape of the error, where no supposition explains it. */
void kvg_diagnose_by_shape(struct kvg_look *k, struct kvg_diagnosis *d);
/* 1 and *d if the output is zero where it must not be. */
int kvg_diagnose_zero(const struct kvg_look *k, struct kvg_diagnosis *d);

#endif
