/* SPDX-License-Identifier: Apache-2.0
 *
 * diagnose.c: from a wrong output of attention to a kind of fault.
 */
#include "diagnose.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"

enum {
    FAILED_ROWS = 16, /* failed rows that are looked at, at most */
    PASSED_ROWS = 8,  /* rows that passed, at most: a supposition must explain these too */
    FEW = 5           /* every fifth row is enough to rule suppositions out */
};
#define COST_LIMIT 2e9 /* keys * dims of all suppositions and rows */
#define TOO_LONG 0.5   /* no supposition is tried where the limit allows less than this part of a row */
#define FARTHEST 10.0  /* log2 of a distance: larger ones count as this */
#define RULED_OUT 1.5  /* log2: a supposition this much farther than the nearest, on a few rows, is dropped */
#define EXPLAINED 0.2  /* an explanation leaves at most this part of the distance */
#define RESEMBLES 0.5  /* the same for a weaker statement */

/* ---------------------------------------------------------------- which rows are looked at */

struct look {
    const struct kvg_failure *f;
    const struct kvg_prepared *p;
    int64_t dim;
    struct kvg_arithmetic *declared; /* [batch] */
    int64_t chosen[FAILED_ROWS + PASSED_ROWS];
    int too_long;                              /* 1: too many keys for suppositions, even on a few rows */
    int count, failed;                         /* rows chosen, and how many of them failed */
    double distance[KVG_SUPPOSITIONS];         /* mean over the rows; HUGE_VAL: not tried */
    int explained[KVG_SUPPOSITIONS];           /* rows in which the supposed output matches the output */
    double rel[FAILED_ROWS + PASSED_ROWS];     /* of the chosen rows: relative L2 against the emulation */
    double lse_off[FAILED_ROWS + PASSED_ROWS]; /* their lse error over what is allowed; 0 without an lse */
};

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
static void choose(struct look *k, const char *state, int64_t total, char failed, int most)
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

static int choose_rows(struct look *k)
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
    const int most = afford < FAILED_ROWS ? (int)fmax(afford, 2.0) : FAILED_ROWS;
    k->too_long = afford < TOO_LONG;
    choose(k, state, failed, 1, most);
    k->failed = k->count;
    choose(k, state, rows - failed, 0, most / 2);
    free(state);
    return 0;
}

/* ---------------------------------------------------------------- distance of a supposition from the output
 * */

/* log2 of an error over what is allowed; 0 where it is allowed. */
static double steps(double distance)
{
    return distance <= 1.0 ? 0.0 : fmin(FARTHEST, isfinite(distance) ? log2(distance) : FARTHEST);
}

/* Distance between a row as supposed and the row of the output, the larger of two: all elements together, and
 * the worst element. Together, an error of half the root of the summed squares of the probable bounds is
 * allowed. Where the supposed output is larger than the right one, its rounding errors are larger too, and so
 * is what is allowed. */
static double row_distance(const struct look *k, int64_t i, const float *supposed, double lse)
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
    return distance + (got == lse ? 0.0 : steps(kvg_bound_ratio(got, lse, e->lse_probable[i])));
}

/* Mean distance over every `step`-th of the chosen rows, and how many of them match. */
static int measure(const struct look *k, const struct kvg_suppose_case *s, enum kvg_supposition what,
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
        fine += distance < 0.5;
        kvg_suppose_room_free(&room);
        free(out);
    }
    *mean = k->count > 0 ? total / ((k->count + step - 1) / step) : 0.0;
    *explained = fine;
    return failed ? -1 : 0;
}

/* Tries all suppositions on a few rows, then the near ones on all chosen rows. */
static int suppose_all(struct look *k)
{
    const struct kvg_suppose_case s = {.p = k->p, .declared = k->declared, .past = k->f->past};
    double best = HUGE_VAL, few[KVG_SUPPOSITIONS];
    for (int w = 0; w < KVG_SUPPOSITIONS; w++) {
        few[w] = k->distance[w] = HUGE_VAL;
        if (kvg_supposition_fits(&s, (enum kvg_supposition)w) &&
            measure(k, &s, (enum kvg_supposition)w, FEW, &few[w], &k->explained[w]))
            return -1;
        best = fmin(best, few[w]);
    }
    for (int w = 0; w < KVG_SUPPOSITIONS; w++)
        if ((w == KVG_SUPPOSE_RIGHT || few[w] <= best + RULED_OUT) && few[w] < HUGE_VAL &&
            measure(k, &s, (enum kvg_supposition)w, 1, &k->distance[w], &k->explained[w]))
            return -1;
    return 0;
}

/* ---------------------------------------------------------------- facts of the run */

static int by_the_run(const struct kvg_failure *f, struct kvg_diagnosis *d)
{
    if (f->workspace)
        kvg_diagnosis_say(d, KVG_FAULT_RACE,
                          "the output is right when the workspace is zero before the call: the kernel reads "
                          "workspace that it has not written");
    else if (f->tail)
        kvg_diagnosis_say(d, KVG_FAULT_PAGE_TAIL,
                          "the output is right when the slots that no sequence owns hold zeros instead "
                          "of NaN: the kernel reads them");
    else if (f->unstable)
        kvg_diagnosis_say(d, KVG_FAULT_RACE, "a repeated call on the same inputs gives other bits");
    else if (f->run == KVG_RUN_FAR)
        kvg_diagnosis_say(d, KVG_FAULT_NARROW_OFFSET,
                          "the output is right in low pages and wrong where page number times stride needs "
                          "more than 32 bits");
    else if (f->run == KVG_RUN_REPEAT || f->run == KVG_RUN_SECOND)
        kvg_diagnosis_say(d, KVG_FAULT_RACE,
                          "an earlier run on the same inputs was right, this one is wrong");
    else
        return 0;
    return 1;
}

/* ---------------------------------------------------------------- shapes of the error */

static int all_zero(const struct look *k)
{
    const struct kvg_expectation *e = k->f->expectation;
    for (int r = 0; r < k->failed; r++) {
        const int64_t place = kvg_sample_place(k->p, &e->sample.rows[k->chosen[r]]);
        for (int64_t d = 0; d < k->dim; d++)
            if ((k->f->out[place * k->dim + d] & 0x7fffu) != 0)
                return 0;
    }
    return k->failed > 0;
}

#define LSE_FAR_OFF 64.0 /* times the allowed lse error: more than rounding in the loop over keys can cause */
#define FAR_OFF 8.0 /* times the allowed error: an element is wrong by itself, not just the worst of many */

/* 1 when one or two elements of each failed row are far off and the rest is right. */
static int single_elements(const struct look *k)
{
    const struct kvg_expectation *e = k->f->expectation;
    for (int r = 0; r < k->failed; r++) {
        const int64_t i = k->chosen[r], place = kvg_sample_place(k->p, &e->sample.rows[i]);
        int wrong = 0, far = 0;
        for (int64_t d = 0; d < k->dim; d++) {
            const double got = (double)kvg_ref_bf16_decode(k->f->out[place * k->dim + d]);
            const double off = fabs(got - (double)e->emulated[i * k->dim + d]);
            wrong += !(off <= e->probable[i * k->dim + d]);
            far += !(off <= FAR_OFF * e->probable[i * k->dim + d]);
        }
        if (wrong == 0 || wrong > 2 || far < wrong || k->dim < 16)
            return 0;
    }
    return k->failed > 0;
}

/* Least-squares factor between the output and the emulated output, over the chosen rows of one KV head and
 * one sequence (-1: of all). *left: the part of the output that it leaves unexplained, 0 to 1. */
static double factor_of(const struct look *k, int64_t kv_head, int64_t sequence, double *left)
{
    const struct kvg_expectation *e = k->f->expectation;
    const int64_t group = k->p->problem.q_heads / k->p->problem.kv_heads;
    double xy = 0.0, xx = 0.0, yy = 0.0;
    for (int r = 0; r < k->count; r++) {
        const struct kvg_ref_row *at = &e->sample.rows[k->chosen[r]];
        const int64_t place = kvg_sample_place(k->p, at);
        if ((kv_head >= 0 && at->q_head / group != kv_head) || (sequence >= 0 && at->seq != sequence))
            continue;
        for (int64_t d = 0; d < k->dim; d++) {
            const double y = (double)kvg_ref_bf16_decode(k->f->out[place * k->dim + d]);
            const double x = (double)e->emulated[k->chosen[r] * k->dim + d];
            if (!isfinite(y))
                continue;
            xy += x * y;
            xx += x * x;
            yy += y * y;
        }
    }
    *left = yy > 0.0 && xx > 0.0 ? sqrt(fmax(0.0, 1.0 - xy * xy / (xx * yy))) : 1.0;
    return xx > 0.0 ? xy / xx : NAN;
}

/* 1 when the factor of each KV head is the same in all sequences. 0 for a single sequence. */
static int same_for_all_sequences(const struct look *k)
{
    double left;
    int seen = 0;
    for (int64_t g = 0; g < k->p->problem.kv_heads; g++)
        for (int64_t b = 0; b < k->p->problem.batch; b++) {
            const double all = factor_of(k, g, -1, &left), one = factor_of(k, g, b, &left);
            if (isnan(one))
                continue;
            if (fabs(one - all) > 0.02 * fabs(all))
                return 0;
            seen++;
        }
    return seen > k->p->problem.kv_heads;
}

/* Relative L2 distance of a sampled row of the output from the emulated row times a factor; infinity where
 * the output is not finite. */
static double rel_to(const struct look *k, int64_t i, double factor)
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

static void measure_rows(struct look *k)
{
    const struct kvg_expectation *e = k->f->expectation;
    for (int r = 0; r < k->count; r++) {
        const int64_t i = k->chosen[r], place = kvg_sample_place(k->p, &e->sample.rows[i]);
        k->rel[r] = rel_to(k, i, 1.0);
        k->lse_off[r] = k->f->lse ? kvg_bound_ratio((double)k->f->lse[place], (double)e->lse_emulated[i],
                                                    e->lse_probable[i])
                                  : 0.0;
    }
}

/* 1 when each output is the right one divided by the factor by which its row sum is too large, as its lse
 * shows. */
static int row_sum_is_off(const struct look *k)
{
    const struct kvg_expectation *e = k->f->expectation;
    int seen = 0;
    for (int r = 0; r < k->failed && k->f->lse; r++) {
        const int64_t i = k->chosen[r], place = kvg_sample_place(k->p, &e->sample.rows[i]);
        const double shrink = exp((double)e->lse_emulated[i] - (double)k->f->lse[place]);
        if (k->lse_off[r] <= 1.0)
            continue;
        if (!(rel_to(k, i, shrink) < 0.3 * k->rel[r]))
            return 0;
        seen++;
    }
    return seen > 0;
}

/* Searches one factor on all logits, on a few rows: first in powers of two, then in smaller steps. */
static int by_a_factor_on_logits(struct look *k, struct kvg_diagnosis *d)
{
    struct kvg_suppose_case s = {.p = k->p, .declared = k->declared, .past = k->f->past};
    double best = HUGE_VAL, at = 0.0, mean;
    int explained;
    for (double step = 1.0; step >= 0x1p-16; step /= 4.0) {
        const double middle = at;
        const int reach = step == 1.0 ? 12 : 4;
        for (int n = -reach; n <= reach; n++) {
            s.factor = exp2(middle + n * step);
            if (measure(k, &s, KVG_SUPPOSE_LOGITS_SCALED, FEW, &mean, &explained))
                return 0;
            if (mean < best) {
                best = mean;
                at = middle + n * step;
            }
        }
        if (best > 0.9 * k->distance[KVG_SUPPOSE_RIGHT] && step < 0.1)
            return 0; /* no factor comes near */
    }
    s.factor = exp2(at);
    if (fabs(at) < 0.001 || measure(k, &s, KVG_SUPPOSE_LOGITS_SCALED, 1, &mean, &explained) ||
        mean > RESEMBLES * k->distance[KVG_SUPPOSE_RIGHT])
        return 0;
    kvg_diagnosis_say(d, KVG_FAULT_SCALE_MISAPPLIED,
                      "all logits are multiplied by about %.5g: attention computed that way matches %d of %d "
                      "rows",
                      s.factor, explained, k->count);
    return 1;
}

/* Shapes of an error that no supposition has. */
static void by_shape(struct look *k, struct kvg_diagnosis *d)
{
    const int64_t heads = k->p->problem.kv_heads;
    double left, largest = 0.0, rel = 0.0, lse = 0.0;
    int infinite = 0, gains = k->failed > 0;
    for (int r = 0; r < k->failed; r++) {
        infinite += !isfinite(k->rel[r]);
        rel = fmax(rel, k->rel[r]);
        lse = fmax(lse, k->lse_off[r]);
    }
    for (int64_t g = 0; g < heads && gains; g++) {
        const double factor = factor_of(k, g, -1, &left);
        if (isnan(factor))
            continue;
        gains = left < 0.02 || (left < 0.1 && fabs(factor - 1.0) > 0.3);
        largest = fabs(factor - 1.0) > fabs(largest - 1.0) || g == 0 ? factor : largest;
    }
    if (single_elements(k))
        kvg_diagnosis_say(d, KVG_FAULT_GROSS, "single elements are wrong, in rows that are otherwise right");
    else if (infinite > 0)
        kvg_diagnosis_say(d, KVG_FAULT_PAGE_TAIL,
                          "NaN or infinity in %d of %d rows looked at, as if slots that no sequence owns "
                          "were read: they hold NaN",
                          infinite, k->count);
    else if (row_sum_is_off(k))
        kvg_diagnosis_say(d, KVG_FAULT_ACCUMULATION,
                          "output and lse are off by the same factor, so the row sum is wrong");
    else if (gains && lse <= 1.0 && k->p->problem.path == KVG_PATH_FP8 && largest > 0.3 && largest < 1.0 &&
             !same_for_all_sequences(k))
        kvg_diagnosis_say(
            d, KVG_FAULT_ACCUMULATION,
            "the lse is right, and the output is too small by a factor, down to %.4g, that differs between "
            "sequences: a sum of P V with few bits",
            largest);
    else if (gains && lse <= 1.0 && fabs(largest - 1.0) > 0.05)
        kvg_diagnosis_say(d, KVG_FAULT_SCALE_MISAPPLIED,
                          "the lse is right, and the output is the right one times a factor, up to %.4g: "
                          "v_scale",
                          largest);
    else if (!k->too_long && k->failed > 0 && (rel > 0.15 || lse > LSE_FAR_OFF) &&
             by_a_factor_on_logits(k, d))
        return;
    else if (rel < 0.15 && lse <= 1.0)
        kvg_diagnosis_say(
            d, KVG_FAULT_ACCUMULATION,
            "the lse is right and the output is nearly right (relative L2 error at most %.2g): rounding "
            "of P, sums of P V, or rounding of the output",
            rel);
    else if (rel < 0.15)
        kvg_diagnosis_say(
            d, KVG_FAULT_ACCUMULATION,
            "the output is nearly right (relative L2 error at most %.2g): rounding in the loop over "
            "keys",
            rel);
    else if (lse <= 1.0 && k->f->lse)
        kvg_diagnosis_say(
            d, KVG_FAULT_ACCUMULATION,
            "the lse is right, so Q, K and the mask are right too: V, P V or the output is wrong");
    else
        kvg_diagnosis_say(d, KVG_FAULT_UNKNOWN, "%s",
                          k->too_long
                              ? "the context is too long to try suppositions: a shorter case may show more"
                              : "no supposition explains the output");
}

/* ---------------------------------------------------------------- suppositions */

static enum kvg_supposition nearest(const struct look *k)
{
    int best = KVG_SUPPOSE_RIGHT;
    for (int w = 1; w < KVG_SUPPOSITIONS; w++)
        if (k->distance[w] < k->distance[best] - 0.02)
            best = w;
    return (enum kvg_supposition)best;
}

/* The nearest supposition of another kind of fault that fits as well, or RIGHT where there is none. */
static enum kvg_supposition rival_of(const struct look *k, enum kvg_supposition best)
{
    int rival = KVG_SUPPOSE_RIGHT;
    for (int w = 1; w < KVG_SUPPOSITIONS; w++)
        if (kvg_supposition_class((enum kvg_supposition)w) != kvg_supposition_class(best) &&
            k->distance[w] <= k->distance[best] + 0.1 &&
            (rival == KVG_SUPPOSE_RIGHT || k->distance[w] < k->distance[rival]))
            rival = w;
    return (enum kvg_supposition)rival;
}

static int by_supposition(struct look *k, double share, struct kvg_diagnosis *d)
{
    const enum kvg_supposition best = nearest(k), rival = rival_of(k, best);
    const double right = k->distance[KVG_SUPPOSE_RIGHT];
    char also[160] = "";
    if (best == KVG_SUPPOSE_RIGHT || k->distance[best] > share * right)
        return 0;
    if (rival != KVG_SUPPOSE_RIGHT)
        snprintf(also, sizeof also, "; this fits as well: %s", kvg_supposition_words(rival));
    kvg_diagnosis_say(
        d, kvg_supposition_class(best),
        "%s: attention computed that way matches %d of %d rows looked at (computed as declared: %d)%s%s",
        kvg_supposition_words(best), k->explained[best], k->count, k->explained[KVG_SUPPOSE_RIGHT],
        share > EXPLAINED ? " and is closer to the others" : "", also);
    return 1;
}

static void by_computing(struct look *k, struct kvg_diagnosis *d)
{
    measure_rows(k);
    if (!k->too_long && suppose_all(k)) {
        kvg_diagnosis_say(d, KVG_FAULT_UNKNOWN, "out of memory for the diagnosis");
        return;
    }
    if (!k->too_long && by_supposition(k, EXPLAINED, d))
        return;
    /* After the suppositions: a kernel that ignores the window may give the output of an earlier case. */
    if (k->f->old_output)
        kvg_diagnosis_say(d, KVG_FAULT_STALE_STATE,
                          "the output is, bit by bit, that of an earlier call with other inputs");
    else if (k->f->run == KVG_RUN_RENEWED)
        kvg_diagnosis_say(d, KVG_FAULT_STALE_STATE,
                          "the output was right until other values lay in the same buffers: the kernel keeps "
                          "something from an earlier call");
    else if (k->too_long || !by_supposition(k, RESEMBLES, d))
        by_shape(k, d);
}

static struct kvg_arithmetic *declarations(const struct kvg_failure *f)
{
    const struct kvg_prepared *p = f->expectation->p;
    struct kvg_arithmetic *declared = calloc((size_t)p->problem.batch, sizeof *declared);
    for (int64_t b = 0; declared && b < p->problem.batch; b++)
        f->kernel->arithmetic(p->part_of ? &p->whole : &p->problem, p->seq_lens[b], &declared[b]);
    return declared;
}

void kvg_diagnose_attention(const struct kvg_failure *f, struct kvg_diagnosis *d)
{
    struct look k = {.f = f, .p = f->expectation->p, .dim = f->expectation->p->problem.head_dim};
    struct kvg_check checks[KVG_CHECKS];
    *d = (struct kvg_diagnosis){0};
    kvg_compare_checks(f->expectation, f->out, f->lse, checks);
    if (by_the_run(f, d) || kvg_diagnose_missing(f, d) || kvg_diagnose_empty(f, checks, d))
        return;
    k.declared = declarations(f);
    if (!k.declared || choose_rows(&k)) {
        kvg_diagnosis_say(d, KVG_FAULT_UNKNOWN, "out of memory for the diagnosis");
    } else if (all_zero(&k)) {
        kvg_diagnosis_say(d, KVG_FAULT_GROSS, "the output is zero in all rows that failed");
    } else if (!k.p->k_pages.data || !k.p->v_pages.data) {
        k.too_long = 1; /* the cache lies on the device, so no supposition can be computed */
        by_computing(&k, d);
    } else {
        by_computing(&k, d);
    }
    free(k.declared);
}
