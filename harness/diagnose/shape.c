/* SPDX-License-Identifier: Apache-2.0
 *
 * shape.c: kinds of fault that show in the size and shape of an error.
 */
#include "look.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int kvg_diagnose_zero(const struct kvg_look *k, struct kvg_diagnosis *d)
{
    const struct kvg_expectation *e = k->f->expectation;
    int not_zero = 0, as_empty = k->f->lse != NULL;
    for (int r = 0; r < k->failed; r++) {
        const int64_t i = k->chosen[r], place = kvg_sample_place(k->p, &e->sample.rows[i]);
        as_empty = as_empty && k->f->lse[place] == -INFINITY;
        for (int64_t j = 0; j < k->dim; j++) {
            if ((k->f->out[place * k->dim + j] & 0x7fffu) != 0)
                return 0;
            not_zero |= e->emulated[i * k->dim + j] != 0.0f;
        }
    }
    if (k->failed == 0 || !not_zero)
        return 0;
    if (as_empty)
        kvg_diagnosis_say(d, KVG_FAULT_SPLIT,
                          "zero with an lse of -infinity in all rows that failed, as if they saw no key");
    else
        kvg_diagnosis_say(d, KVG_FAULT_GROSS, "the output is zero in all rows that failed");
    return 1;
}

enum { FEW = 5 };   /* every fifth row is enough for a search */
#define FAR_OFF 8.0 /* times the allowed error: an element is wrong by itself, not just the worst of many */

/* 1 when one or two elements of each failed row are far off and the rest is right. */
static int single_elements(const struct kvg_look *k)
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
static double factor_of(const struct kvg_look *k, int64_t kv_head, int64_t sequence, double *left)
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
static int same_for_all_sequences(const struct kvg_look *k)
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

/* 1 when each output is the right one divided by the factor by which its row sum is too large, as its lse
 * shows. */
static int row_sum_is_off(const struct kvg_look *k)
{
    const struct kvg_expectation *e = k->f->expectation;
    int seen = 0;
    for (int r = 0; r < k->failed && k->f->lse; r++) {
        const int64_t i = k->chosen[r], place = kvg_sample_place(k->p, &e->sample.rows[i]);
        const double shrink = exp((double)e->lse_emulated[i] - (double)k->f->lse[place]);
        if (k->lse_off[r] <= 1.0)
            continue;
        if (!(kvg_look_rel(k, i, shrink) < 0.3 * k->rel[r]))
            return 0;
        seen++;
    }
    return seen > 0;
}

/* Searches one factor on all logits, on a few rows: first in powers of two, then in smaller steps. */
static int by_a_factor_on_logits(struct kvg_look *k, struct kvg_diagnosis *d)
{
    double best = HUGE_VAL, at = 0.0, mean;
    int explained;
    for (double step = 1.0; step >= 0x1p-16; step /= 4.0) {
        const double middle = at;
        const int reach = step == 1.0 ? 12 : 4;
        for (int n = -reach; n <= reach; n++) {
            if (kvg_look_scaled(k, exp2(middle + n * step), FEW, &mean, &explained))
                return 0;
            if (mean < best) {
                best = mean;
                at = middle + n * step;
            }
        }
        if (best > 0.9 * k->distance[KVG_SUPPOSE_RIGHT] && step < 0.1)
            return 0; /* no factor comes near */
    }
    if (fabs(at) < 0.001 || kvg_look_scaled(k, exp2(at), 1, &mean, &explained) ||
        mean > KVG_RESEMBLES * k->distance[KVG_SUPPOSE_RIGHT])
        return 0;
    kvg_diagnosis_say(d, KVG_FAULT_SCALE_MISAPPLIED,
                      "all logits are multiplied by about %.5g: attention computed that way matches %d of %d "
                      "rows",
                      exp2(at), explained, k->count);
    return 1;
}

/* Shapes of an error that no supposition has. */
void kvg_diagnose_by_shape(struct kvg_look *k, struct kvg_diagnosis *d)
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
    if (kvg_diagnose_zero(k, d))
        return;
    if (single_elements(k))
        kvg_diagnosis_say(d, KVG_FAULT_GROSS, "single elements are wrong, in rows that are otherwise right");
    else if (infinite > 0 && k->f->on_zeros)
        kvg_diagnosis_say(d, KVG_FAULT_UNKNOWN,
                          "NaN or infinity in %d of %d rows looked at, even where the slots that no sequence "
                          "owns hold zeros",
                          infinite, k->count);
    else if (k->f->on_zeros && rel < KVG_NEARLY_RIGHT)
        kvg_diagnosis_say(
            d, KVG_FAULT_PAGE_TAIL,
            "the output is nearly right (relative L2 error at most %.2g) when slots that no "
            "sequence owns, and gaps between rows, hold zeros instead of NaN: the kernel reads them",
            rel);
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
    else if (!k->too_long && k->failed > 0 && (rel > KVG_NEARLY_RIGHT || lse > KVG_LSE_FAR_OFF) &&
             by_a_factor_on_logits(k, d))
        return;
    else if (rel < KVG_NEARLY_RIGHT && lse <= 1.0)
        kvg_diagnosis_say(
            d, KVG_FAULT_ACCUMULATION,
            "the lse is right and the output is nearly right (relative L2 error at most %.2g): rounding "
            "of P, sums of P V, or rounding of the output",
            rel);
    else if (rel < KVG_NEARLY_RIGHT)
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
