/* SPDX-License-Identifier: Apache-2.0
 *
 * expectation.h: the inside of an expectation (rows, references, allowed errors), and the single checks of an
 * output, for diagnosis and tests.
 */
#ifndef KVG_HARNESS_VERIFY_EXPECTATION_H
#define KVG_HARNESS_VERIFY_EXPECTATION_H

#include "bounds.h"
#include "checks.h"
#include "sample.h"
#include "harness/prepare/prepared.h"

struct kvg_shares;

/* What limits are made for: {KVG_CHECK_ALPHA, 0, KVG_GAIN_ALLOWANCE}, except in tests of the tails. */
struct kvg_limit_rule {
    double alpha;     /* chance that a right kernel fails a check */
    int each;         /* 1: alpha is for each number of a check, 0: for all numbers of a case together */
    double allowance; /* of gain and offset, in addition to their tails */
};

struct kvg_expectation {
    const struct kvg_prepared *p;
    struct kvg_sample sample;        /* the rows that are compared with a reference */
    int64_t *order;                  /* sample indices by sequence, query head, query: groups lie together */
    int64_t groups;                  /* (sequence, query head) pairs in the sample */
    int64_t empty;                   /* rows of the whole output that see no key */
    float *exact, *emulated;         /* [rows, head_dim] */
    float *unquantised;              /* [rows, head_dim]; NULL until kvg_expectation_add_unquantised; the same
                                        pointer as `exact` where the values are the same */
    float *lse_exact, *lse_emulated; /* [rows] */
    double *worst, *probable;        /* [rows, head_dim] allowed errors against exact and emulated */
    struct kvg_bound_noise *noise;   /* [rows, head_dim] */
    float *loss;                     /* [rows, head_dim] loss that gain and offset forgive, systematic.h */
    double *lse_worst, *lse_probable; /* [rows] allowed errors against lse_exact and lse_emulated */
    struct kvg_shares *shares;        /* shares.h; NULL where the sample is empty */
    struct kvg_limit_rule rule;
    struct kvg_bound_tail element_tail, lse_tail, group_tail, case_tail;
    int keep;                           /* 1: parts are kept, for kvg_expectation_set_limits */
    struct kvg_expectation_part *parts; /* the terms that the limits of each sequence are made of, or NULL */
    int64_t part_count;
};

/* kvg_expectation_make for tests of the tails: it keeps about ten more numbers per element. */
int kvg_expectation_make_kept(const struct kvg_prepared *p, const struct kvg_kernel *kernel,
                              int64_t rows_limit, struct kvg_expectation **out, struct kvg_error *error);
/* Computes all limits anew, e.g. for a false-alarm rate that is large enough to be counted. e comes from
 * kvg_expectation_make_kept. 0, or -1 when out of memory. */
int kvg_expectation_set_limits(struct kvg_expectation *e, const struct kvg_limit_rule *to);

/* Number of rows of the group that begins at order[from]. */
int64_t kvg_expectation_group_size(const struct kvg_expectation *e, int64_t from);

/* Runs the checks of kvg_compare_attention once more, for the diagnosis of a row that failed. */
void kvg_compare_checks(const struct kvg_expectation *e, const uint16_t *out, const float *lse,
                        struct kvg_check checks[KVG_CHECKS]);

#endif
