/* SPDX-License-Identifier: Apache-2.0
 *
 * expectation.h: inside of verify: what verify.c computes and verify_compare.c reads.
 */
#ifndef KVG_HARNESS_VERIFY_EXPECTATION_H
#define KVG_HARNESS_VERIFY_EXPECTATION_H

#include "bounds.h"
#include "checks.h"
#include "sample.h"
#include "harness/prepare/prepared.h"

struct kvg_shares;

/* What limits are held to. In earnest {KVG_CHECK_ALPHA, 0, KVG_GAIN_ALLOWANCE}. */
struct kvg_limit_rule {
    double alpha;     /* chance that a right kernel fails a random check */
    int each;         /* 1: each number of a check by itself; 0: all of a case together */
    double allowance; /* of gain and offset, beside their tails */
};

struct kvg_expectation {
    const struct kvg_prepared *p;
    struct kvg_sample sample;
    int64_t *order; /* sample indices by sequence, query head, query: groups for the systematic tests */
    int64_t groups; /* (sequence, query head) pairs sampled */
    int64_t empty;  /* rows of the whole output that see no key */
    float *exact, *emulated; /* [rows, head_dim] */
    float *
        unquantised; /* the same; NULL until kvg_expectation_add_unquantised; `exact` where that is the same */
    float *lse_exact, *lse_emulated; /* [rows] */
    double *worst, *probable;        /* [rows, head_dim] allowed errors */
    struct kvg_bound_noise *noise;   /* [rows, head_dim] */
    float *loss;                     /* [rows, head_dim] that the gain forgives, see systematic.h; or zeros */
    double *lse_worst, *lse_probable; /* [rows] */
    struct kvg_shares *shares;        /* verify_shares.h; may be NULL */
    struct kvg_limit_rule rule;       /* what the limits are for */
    struct kvg_bound_tail element_tail, lse_tail, group_tail, case_tail;
    int keep;                           /* 1: parts stay, for kvg_expectation_set_limits */
    struct kvg_expectation_part *parts; /* what the limits of each sequence are made of, or NULL */
    int64_t part_count;
};

/* kvg_expectation_make that can be held to other false-alarm rates: it keeps some ten numbers per element more. */
int kvg_expectation_make_kept(const struct kvg_prepared *p, const struct kvg_kernel *kernel,
                              int64_t rows_limit, struct kvg_expectation **out, struct kvg_error *error);
/* All limits anew: what the tails promise can be counted at rates that show. e from kvg_expectation_make_kept. 0, or -1
 * when out of memory. */
int kvg_expectation_set_limits(struct kvg_expectation *e, const struct kvg_limit_rule *to);

/* Number of rows of the group that begins at order[from]. */
int64_t kvg_expectation_group_size(const struct kvg_expectation *e, int64_t from);

/* The checks of kvg_compare_attention once more, for a row that failed. */
void kvg_compare_checks(const struct kvg_expectation *e, const uint16_t *out, const float *lse,
                        struct kvg_check checks[KVG_CHECKS]);

#endif
