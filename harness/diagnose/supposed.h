/* SPDX-License-Identifier: Apache-2.0
 *
 * supposed.h: the state of one row while attention is computed as supposed. Private to the room.
 */
#ifndef KVG_HARNESS_DIAGNOSE_SUPPOSED_H
#define KVG_HARNESS_DIAGNOSE_SUPPOSED_H

#include "harness/prepare/prepared.h"
#include "suppositions.h"

struct kvg_suppose_case;

struct row {
    const struct kvg_suppose_case *s;
    const struct kvg_prepared *p;
    const struct kvg_arithmetic *declared;
    enum kvg_supposition what;
    int64_t b, i, h, g; /* sequence, query, query head, KV head */
    int64_t token;      /* whose Q is read */
    int64_t q_len, n, dim, first, last, tile, split, base;
    double k_scale, v_scale, logit_scale;
    enum kvg_ref_format p_format;
    int p_offset, row_sum_of_rounded_p;
    int moved; /* how often the running maximum has moved */
    float *q, *key, *value;
    double *acc, *total;
    double max, sum; /* running maximum and row sum of the split */
    double sink;     /* -infinity without sinks */
};

#define is(id) (r->what == KVG_SUPPOSE_##id)

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- suppose_keys.c ---- */
/* Finds the visible keys: first and last. Sequence, query and length are set. */
void kvg_supposed_keys(struct row *r);
/* Number of pages that the row's sequence shares with the first one. */
int64_t kvg_supposed_common_pages(const struct row *r);

#endif
