/* SPDX-License-Identifier: Apache-2.0
 *
 * missing.c: outputs that still hold what lay there before the call, and rows that see no key.
 */
#include <string.h>

#include "parts.h"
#include "harness/prepare/prepared.h"

#define UNWRITTEN 0xffffu /* the harness fills outputs with it before a call */

struct unwritten {
    int64_t rows, rows_whole;       /* rows with an element, and with all elements, that were not written */
    int64_t rows_empty;             /* rows with such an element that see no key */
    int64_t first_query, first_dim; /* smallest query and dim of such elements */
    int64_t lse, elements;          /* numbers of lse and elements that were not written */
    int64_t total_rows;
};

static void find_unwritten(const struct kvg_failure *f, struct unwritten *u)
{
    const struct kvg_prepared *p = f->expectation->p;
    const int64_t dim = p->problem.head_dim, heads = p->problem.q_heads;
    *u = (struct unwritten){.first_query = INT64_MAX, .first_dim = dim};
    for (int64_t b = 0; b < p->problem.batch; b++)
        for (int64_t i = 0; i < p->cu_q_lens[b + 1] - p->cu_q_lens[b]; i++) {
            const int empty = kvg_sample_visible(p, b, i) == 0;
            for (int64_t h = 0; h < heads; h++) {
                const struct kvg_ref_row at = {(int32_t)b, (int32_t)i, (int32_t)h};
                const int64_t place = kvg_sample_place(p, &at);
                int64_t count = 0;
                for (int64_t d = 0; d < dim; d++)
                    if (f->out[place * dim + d] == UNWRITTEN && count++ == 0 && d < u->first_dim)
                        u->first_dim = d;
                uint32_t bits = 0;
                if (f->lse)
                    memcpy(&bits, &f->lse[place], sizeof bits);
                u->lse += bits == 0xffffffffu;
                u->total_rows++;
                u->elements += count;
                u->rows += count > 0;
                u->rows_whole += count == dim;
                u->rows_empty += count > 0 && empty;
                if (count > 0 && i < u->first_query)
                    u->first_query = i;
            }
        }
}

int kvg_diagnose_missing(const struct kvg_failure *f, struct kvg_diagnosis *d)
{
    const int64_t dim = f->expectation->p->problem.head_dim;
    struct unwritten u;
    find_unwritten(f, &u);
    if (u.rows == 0 && u.lse > 0)
        kvg_diagnosis_say(d, KVG_FAULT_CAP_OR_LSE, "the lse of %lld of %lld rows is not written",
                          (long long)u.lse, (long long)u.total_rows);
    else if (u.rows == 0)
        return 0;
    else if (u.rows == u.rows_empty)
        kvg_diagnosis_say(d, KVG_FAULT_SPLIT, "rows that see no key are not written");
    else if (u.rows_whole == 0 && u.first_dim > 0 && u.elements == u.rows * (dim - u.first_dim))
        kvg_diagnosis_say(d, KVG_FAULT_HEAD_DIM, "dims from %lld on are not written", (long long)u.first_dim);
    else
        kvg_diagnosis_say(
            d, KVG_FAULT_NOT_WRITTEN,
            "%lld of %lld rows hold elements that are not written, none before query %lld of its sequence",
            (long long)u.rows, (long long)u.total_rows, (long long)u.first_query);
    return 1;
}

int kvg_diagnose_empty(const struct kvg_failure *f, const struct kvg_check *checks, struct kvg_diagnosis *d)
{
    const struct kvg_expectation *e = f->expectation;
    const struct kvg_check *nonfinite = &checks[KVG_CHECK_NONFINITE];
    if (checks[KVG_CHECK_EMPTY].failures == 0)
        return 0;
    for (int id = 0; id < KVG_CHECKS; id++)
        if (id != KVG_CHECK_EMPTY && id != KVG_CHECK_NONFINITE && checks[id].failures > 0)
            return 0;
    if (nonfinite->failures > 0 && kvg_sample_visible(e->p, nonfinite->row.seq, nonfinite->row.q_index) > 0)
        return 0;
    kvg_diagnosis_say(
        d, KVG_FAULT_SPLIT,
        e->p->sinks ? "only rows that see no key are wrong: they must be zero with the lse of their sink"
                    : "only rows that see no key are wrong: they must be zero with an lse of -infinity");
    return 1;
}
