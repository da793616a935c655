/* SPDX-License-Identifier: Apache-2.0
 *
 * trial.c: how near each supposition comes to the output, and which is suspected.
 */
#include "look.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 5 };     /* every fifth row is enough to rule suppositions out */
#define FARTHEST 10.0 /* log2 of a distance: larger ones count as this */
#define MATCHES 0.5   /* log2: a row that is not farther matches */
#define SAME 0.02     /* log2: distances that differ by less are the same */
#define RULED_OUT 1.5 /* log2: a supposition this much farther than the nearest, on a few rows, is dropped */

/* ---------------------------------------------------------------- distance from the output */

/* log2 of an error over what is allowed; 0 where it is allowed. */
static double steps(double distance)
{
    return distance <= 1.0 ? 0.0 : fmin(FARTHEST, isfinite(distance) ? log2(distance) : FARTHEST);
}

/* Distance between a row as supposed and the row of the output, the larger of two: all elements together, and
 * the worst element. Together, an error of half the root of the summed squares of the probable bounds is
 * allowed. Where the supposed output is larger than the right one, its rounding errors are larger too, and so
 * is what is allowed. */
static double row_distance(const struct kvg_look *k, int64_t i, const float *supposed, double lse)
{
    const struct kvg_expectation *e = k->f->expectation;
    const int64_t place = kvg_sample_place(k->p, &e->sample.rows[i]);
    double off = 0.0, allowed = 0.0, size = 0.0, right = 0.0, largest = 0.0;
    int64_t odd = 0;
    for (int64_t d = 0; d < k->dim; d++) {
        const double got = (double)kvg_ref_bf16_decode(k->f->out[place * k->dim + d]);
        const double want = (double)kvg_ref_round(KVG_REF_BF16, supposed[d]);
        const double bound = e->probable[i * k->dim + d], emulated = (double)e->emulated[i * k->dim + d];
        if (isfinite(got) != isfinite(want))
            odd++;
        if (!isfinite(got) || !isfinite(want))
            continue;
        off += (got - want) * (got - want);
        largest = fmax(largest, kvg_bound_ratio(got, want, bound));
        allowed += bound * bound;
        size += want * want;
        right += emulated * emulated;
    }
    const double scale = size > right && right > 0.0 ? sqrt(size / right) : 1.0;
    double distance = off == 0.0 ? 0.0 : steps(fmax(2.0 * sqrt(off / allowed), largest) / scale);
    if (odd)
        distance = FARTHEST;
    if (!k->f->lse)
        return distance;
    const double got = (double)k->f->lse[place];
    if (isnan(got) && isnan(lse))
        return distance;
    /* Larger logits have larger rounding errors. */
    const double larger = fmax(1.0, fabs(lse) / fmax(1.0, fabs((double)e->lse_emulated[i])));
    return distance + (got == lse ? 0.0 : steps(kvg_bound_ratio(got, lse, e->lse_probable[i] * larger)));
}

/* Mean distance over every `step`-th of the chosen rows, and how many of them match. */
static int measure(const struct kvg_look *k, const struct kvg_suppose_case *s, enum kvg_supposition what,
                   int step, double *mean, int *explained)
{
    double total = 0.0;
    int fine = 0, failed = 0;
#pragma omp parallel for schedule(dynamic) reduction(+ : total, fine, failed) num_threads(k->p->problem.threads)
    for (int r = 0; r < k->count; r += step) {
        struct kvg_suppose_room room;
        float *out = malloc((size_t)k->dim * sizeof *out), lse = NAN;
        if (!out || kvg_suppose_room_make(s, &room)) {
            free(out);
            failed++;
            continue;
        }
        kvg_suppose_row(s, what, &k->f->expectation->sample.rows[k->chosen[r]], &room, out, &lse);
        const double distance = row_distance(k, k->chosen[r], out, (double)lse);
        total += distance;
        fine += distance < MATCHES;
        kvg_suppose_room_free(&room);
        free(out);
    }
    *mean = k->count > 0 ? total / ((k->count + step - 1) / step) : 0.0;
    *explained = fine;
    return failed ? -1 : 0;
}

/* Room for one supposed row. */
struct trial {
    struct kvg_suppose_case s;
    struct kvg_suppose_room room;
    float *out, lse;
};

static int trial_make(const struct kvg_look *k, struct trial *t)
{
    t->s = (struct kvg_suppose_case){.p = k->p, .declared = k->declared};
    t->out = malloc((size_t)k->dim * sizeof *t->out);
    if (t->out && kvg_suppose_room_make(&t->s, &t->room) == 0)
        return 0;
    free(t->out);
    return -1;
}

static void trial_free(struct trial *t)
{
    kvg_suppose_room_free(&t->room);
    free(t->out);
}

/* 1 if the supposition gives a failed row of which some elements are finite. A row of NaN would match too
 * easily. */
static int restores_a_row(const struct kvg_look *k, enum kvg_supposition what)
{
    struct trial t;
    int restores = 0;
    if (trial_make(k, &t))
        return 0;
    for (int r = 0; r < k->failed && !restores; r++) {
        const struct kvg_ref_row *at = &k->f->expectation->sample.rows[k->chosen[r]];
        const uint16_t *got = k->f->out + kvg_sample_place(k->p, at) * k->dim;
        int finite = 0;
        for (int64_t d = 0; d < k->dim; d++)
            finite |= (got[d] & 0x7f80u) != 0x7f80u;
        if (!finite)
            continue;
        kvg_suppose_row(&t.s, what, at, &t.room, t.out, &t.lse);
        restores = row_distance(k, k->chosen[r], t.out, (double)t.lse) < MATCHES;
    }
    trial_free(&t);
    return restores;
}

/* 1 unless the output is zero in all failed rows, and the supposition gives only small numbers there. */
static int gives_its_zeros(const struct kvg_look *k, enum kvg_supposition what)
{
    struct kvg_diagnosis unused = {0};
    struct trial t;
    int gives = 1;
    if (!kvg_diagnose_zero(k, &unused))
        return 1;
    if (trial_make(k, &t))
        return 0;
    for (int r = 0; r < k->failed && gives; r++) {
        kvg_suppose_row(&t.s, what, &k->f->expectation->sample.rows[k->chosen[r]], &t.room, t.out, &t.lse);
        for (int64_t d = 0; d < k->dim; d++)
            gives &= !(fabsf(t.out[d]) > 0.0f);
    }
    trial_free(&t);
    return gives;
}

/* 1 for a supposition about the places to which rows are written. */
static int is_about_places(enum kvg_supposition s)
{
    return (s >= KVG_SUPPOSE_OUT_STRIDES_OF_SHAPE && s <= KVG_SUPPOSE_OUT_STRIDES_OF_Q) ||
           s == KVG_SUPPOSE_ROW_IS_SEQUENCE || s == KVG_SUPPOSE_ROWS_OF_LONGEST ||
           s == KVG_SUPPOSE_LSE_STRIDE_OF_SHAPE;
}

/* The distance of one supposition; HUGE_VAL where it does not fit the case. Of earlier scales the nearest are
 * taken. */
static int measure_one(struct kvg_look *k, enum kvg_supposition what, int step, double *mean, int *explained)
{
    struct kvg_suppose_case s = {.p = k->p, .declared = k->declared};
    const int64_t kept = what == KVG_SUPPOSE_SCALES_OF_THE_PAST && k->f->past ? kvg_past_kept(k->f->past) : 1;
    *mean = HUGE_VAL;
    for (int64_t i = 0; i < kept; i++) {
        double distance;
        int matches;
        s.past = k->f->past ? &k->f->past->scales[i] : NULL;
        if (!kvg_supposition_fits(&s, what))
            continue;
        if (measure(k, &s, what, step, &distance, &matches))
            return -1;
        if (distance < *mean) {
            *mean = distance;
            *explained = matches;
        }
    }
    return 0;
}

int kvg_look_scaled(const struct kvg_look *k, double factor, int step, double *mean, int *explained)
{
    const struct kvg_suppose_case s = {.p = k->p, .declared = k->declared, .factor = factor};
    return measure(k, &s, KVG_SUPPOSE_LOGITS_SCALED, step, mean, explained);
}

/* On a few rows first (those about places: on all), then the near ones on all chosen rows. */
int kvg_look_suppose(struct kvg_look *k, int only_places)
{
    const int step = only_places ? 1 : FEW;
    double best = HUGE_VAL, few[KVG_SUPPOSITIONS];
    for (int w = 0; w < KVG_SUPPOSITIONS; w++) {
        const enum kvg_supposition what = (enum kvg_supposition)w;
        few[w] = k->distance[w] = HUGE_VAL;
        if ((!only_places || w == KVG_SUPPOSE_RIGHT || is_about_places(what)) &&
            measure_one(k, what, step, &few[w], &k->explained[w]))
            return -1;
        best = fmin(best, few[w]);
    }
    for (int w = 0; w < KVG_SUPPOSITIONS; w++)
        if ((w == KVG_SUPPOSE_RIGHT || few[w] <= best + RULED_OUT) && few[w] < HUGE_VAL &&
            measure_one(k, (enum kvg_supposition)w, 1, &k->distance[w], &k->explained[w]))
            return -1;
    return 0;
}

/* ---------------------------------------------------------------- suppositions */

static enum kvg_supposition nearest(const struct kvg_look *k)
{
    int best = KVG_SUPPOSE_RIGHT;
    for (int w = 1; w < KVG_SUPPOSITIONS; w++)
        if (k->distance[w] < k->distance[best] - SAME)
            best = w;
    /* Scales of an earlier call explain more than a wrong use of the present ones, where the first run was
     * right. */
    if (k->f->run != KVG_RUN_FIRST &&
        kvg_supposition_class((enum kvg_supposition)best) == KVG_FAULT_SCALE_MISAPPLIED &&
        k->distance[KVG_SUPPOSE_SCALES_OF_THE_PAST] <= k->distance[best] + SAME)
        best = KVG_SUPPOSE_SCALES_OF_THE_PAST;
    return (enum kvg_supposition)best;
}

/* The nearest supposition of another kind of fault that fits as well, or RIGHT where there is none. */
static enum kvg_supposition rival_of(const struct kvg_look *k, enum kvg_supposition best)
{
    int rival = KVG_SUPPOSE_RIGHT;
    for (int w = 1; w < KVG_SUPPOSITIONS; w++)
        if (kvg_supposition_class((enum kvg_supposition)w) != kvg_supposition_class(best) &&
            k->distance[w] <= k->distance[best] + 0.1 &&
            (rival == KVG_SUPPOSE_RIGHT || k->distance[w] < k->distance[rival]))
            rival = w;
    return (enum kvg_supposition)rival;
}

int kvg_diagnose_by_supposition(const struct kvg_look *k, double share, struct kvg_diagnosis *d)
{
    const enum kvg_supposition best = nearest(k), rival = rival_of(k, best);
    const double right = k->distance[KVG_SUPPOSE_RIGHT];
    char also[200] = "";
    if (best == KVG_SUPPOSE_RIGHT || k->distance[best] > share * right ||
        (is_about_places(best) && !restores_a_row(k, best)) || !gives_its_zeros(k, best))
        return 0;
    if (rival != KVG_SUPPOSE_RIGHT || k->f->old_output)
        snprintf(also, sizeof also, "; this fits as well: %s",
                 rival != KVG_SUPPOSE_RIGHT ? kvg_supposition_words(rival)
                                            : "the output is that of an earlier call with other inputs");
    kvg_diagnosis_say(
        d, kvg_supposition_class(best),
        "%s: attention computed that way matches %d of %d rows looked at (computed as declared: %d)%s%s",
        kvg_supposition_words(best), k->explained[best], k->count, k->explained[KVG_SUPPOSE_RIGHT],
        share > KVG_EXPLAINED ? " and is closer to the others" : "", also);
    return 1;
}
