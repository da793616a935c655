/* SPDX-License-Identifier: Apache-2.0
 *
 * look.c: which rows of a wrong output are looked at, and how far they are off.
 */
#include "look.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COST_LIMIT 2e9 /* keys * dims of all suppositions and rows */
#define TOO_LONG 0.5   /* no supposition is tried where the limit allows less than this part of a row */

/* Largest error over allowed error of a sampled row. */
static double row_ratio(const struct kvg_failure *f, int64_t i)
{
    const struct kvg_expectation *e = f->expectation;
    const int64_t dim = e->p->problem.head_dim, place = kvg_sample_place(e->p, &e->sample.rows[i]);
    double ratio = 0.0;
    for (int64_t d = 0; d < dim; d++) {
        const double got = (double)kvg_ref_bf16_decode(f->out[place * dim + d]);
        ratio = fmax(ratio, kvg_bound_ratio(got, (double)e->exact[i * dim + d], e->worst[i * dim + d]));
        ratio = fmax(ratio, kvg_bound_ratio(got, (double)e->emulated[i * dim + d], e->probable[i * dim + d]));
    }
    if (f->lse)
        ratio = fmax(ratio,
                     kvg_bound_ratio((double)f->lse[place], (double)e->lse_emulated[i], e->lse_probable[i]));
    return ratio;
}

/* Up to `most` of those sampled rows whose state is `failed`, evenly from first to last. */
static void choose(struct kvg_look *k, const char *state, int64_t total, char failed, int most)
{
    const int64_t rows = k->f->expectation->sample.count;
    const int64_t take = total < most ? total : most;
    int64_t seen = 0, taken = 0;
    for (int64_t i = 0; i < rows && taken < take; i++) {
        if (state[i] != failed)
            continue;
        if (seen++ * take / total >= taken) {
            k->chosen[k->count++] = i;
            taken++;
        }
    }
}

int kvg_look_choose(struct kvg_look *k)
{
    const int64_t rows = k->f->expectation->sample.count;
    char *state = malloc((size_t)rows + 1);
    int64_t failed = 0;
    if (!state)
        return -1;
    for (int64_t i = 0; i < rows; i++) {
        state[i] = row_ratio(k->f, i) > 1.0;
        failed += state[i];
    }
    /* Each supposition costs a pass over the keys, so long contexts get fewer rows. */
    const double pass = (double)k->p->problem.max_seq_len * (double)k->dim * KVG_SUPPOSITIONS;
    const double afford = COST_LIMIT * k->p->problem.threads / pass;
    const int most = afford < KVG_FAILED_ROWS ? (int)fmax(afford, 2.0) : KVG_FAILED_ROWS;
    k->too_long =
        afford < TOO_LONG || !k->p->k_pages.data || !k->p->v_pages.data; /* or the cache is on a device */
    choose(k, state, failed, 1, most);
    k->failed = k->count;
    choose(k, state, rows - failed, 0, most / 2);
    free(state);
    return 0;
}

double kvg_look_rel(const struct kvg_look *k, int64_t i, double factor)
{
    const struct kvg_expectation *e = k->f->expectation;
    const int64_t place = kvg_sample_place(k->p, &e->sample.rows[i]);
    double off = 0.0, size = 0.0;
    for (int64_t d = 0; d < k->dim; d++) {
        const double got = (double)kvg_ref_bf16_decode(k->f->out[place * k->dim + d]);
        const double want = factor * (double)e->emulated[i * k->dim + d];
        off += (got - want) * (got - want);
        size += want * want;
    }
    return isfinite(off) ? sqrt(off / size) : INFINITY;
}

void kvg_look_at_errors(struct kvg_look *k)
{
    const struct kvg_expectation *e = k->f->expectation;
    for (int r = 0; r < k->count; r++) {
        const int64_t i = k->chosen[r], place = kvg_sample_place(k->p, &e->sample.rows[i]);
        k->rel[r] = kvg_look_rel(k, i, 1.0);
        k->lse_off[r] = k->f->lse ? kvg_bound_ratio((double)k->f->lse[place], (double)e->lse_emulated[i],
                                                    e->lse_probable[i])
                                  : 0.0;
    }
}

int kvg_look_is_far_off(const struct kvg_look *k)
{
    for (int r = 0; r < k->failed; r++)
        if (!(k->rel[r] < KVG_NEARLY_RIGHT) || k->lse_off[r] > KVG_LSE_FAR_OFF)
            return 1;
    return 0;
}
