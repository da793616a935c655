/* SPDX-License-Identifier: Apache-2.0
 *
 * checks.h: the checks of an output (checks.def), and what each of them found.
 */
#ifndef KVG_HARNESS_VERIFY_CHECKS_H
#define KVG_HARNESS_VERIFY_CHECKS_H

#include <stddef.h>
#include <stdint.h>
#include "sample.h"

enum kvg_check_id {
#define CHECK(id, name, of, counted, column) KVG_CHECK_##id,
#include "checks.def"
#undef CHECK
    KVG_CHECKS
};

enum kvg_check_of {
    KVG_CHECK_OF_VALUES, /* elements of the output or lse, one by one */
    KVG_CHECK_OF_GROUPS, /* (sequence, query head) */
    KVG_CHECK_OF_WHOLE,  /* one number of a case */
    KVG_CHECK_OF_KEYS    /* classes of keys, shares.h */
};

/* What the table says of a check. */
struct kvg_check_entry {
    const char *name;
    enum kvg_check_of of;
    const char *counted;
    ptrdiff_t column; /* offset of a double in struct kvg_row; -1: no column takes the ratio */
};
extern const struct kvg_check_entry kvg_check_table[KVG_CHECKS];

/* What a check found: how many of its numbers failed, and the worst of them. Starts from zeros. */
struct kvg_check {
    const char *name;       /* as in the table */
    int64_t failures, of;   /* numbers that failed, numbers that were checked */
    struct kvg_ref_row row; /* of the worst; -1 where a class of keys is meant */
    int64_t dim;            /* of the worst; -1: the check has no dimension */
    char where[32];         /* class of keys ("slot 3 of a page"), or "" */
    double got, reference, allowed;
    double ratio; /* largest error over allowed error, see kvg_bound_ratio; 0 when of = 0 */
};

/* One more number of a check. */
void kvg_check_note(struct kvg_check *check, double ratio, const struct kvg_ref_row *row, int64_t dim,
                    double got, double reference, double allowed);
/* The sentence of a check that failed, for the reason: "bound: 3 of 4096 elements, worst at ...". Sequences
 * are numbered as in the whole case where p is a part. */
void kvg_check_describe(const struct kvg_prepared *p, enum kvg_check_id id, const struct kvg_check *check,
                        char *text, size_t size);

#endif
