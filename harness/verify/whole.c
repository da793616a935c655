/* SPDX-License-Identifier: Apache-2.0
 *
 * whole.c: two outputs compared by sums over the rows of a (sequence, head), first in the sampled groups,
 * then everywhere.
 */
#include "whole.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "expectation.h"
#include "harness/prepare/prepared.h"

void kvg_plain_free(struct kvg_plain *plain)
{
    free(plain->out);
    free(plain->lse);
    *plain = (struct kvg_plain){NULL, NULL};
}

/* y against r over one group. */
struct sums {
    double error_sq, r_sq, error_r; /* sums of (y - r)^2, r^2, (y - r) r */
    double lse, lse_ratio;          /* largest |lse error|, and largest ratio to what add_lse allowed */
};

static void add_element(struct sums *s, double y, double r)
{
    s->error_sq += (y - r) * (y - r);
    s->r_sq += r * r;
    s->error_r += (y - r) * r;
}

/* The larger of both; NaN if a is. fmax would drop it. */
static double larger(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

/* Allowed is slack + rel * max(1, |r|). */
static void add_lse(struct sums *s, double y, double r, double slack, double rel)
{
    s->lse = larger(fabs(y - r), s->lse);
    s->lse_ratio = larger(kvg_bound_ratio(y, r, slack + rel * fmax(1.0, fabs(r))), s->lse_ratio);
}

static double relative(const struct sums *s)
{
    return s->error_sq == 0.0 ? 0.0 : sqrt(s->error_sq / s->r_sq);
}

static double gain_error(const struct sums *s)
{
    return s->error_r == 0.0 ? 0.0 : fabs(s->error_r / s->r_sq);
}

/* Row in the outputs of the whole case of a row that the expectation samples. */
static int64_t row_of_whole(const struct kvg_expectation *e, const struct kvg_prepared *whole,
                            const struct kvg_ref_row *at)
{
    const struct kvg_ref_row there = {(int32_t)kvg_prepared_sequence(e->p, at->seq), at->q_index, at->q_head};
    return kvg_sample_place(whole, &there);
}

int kvg_plain_check(const struct kvg_expectation *e, const struct kvg_prepared *whole,
                    const struct kvg_plain *plain, char *why, size_t size)
{
    const int64_t d = whole->problem.head_dim;
    for (int64_t from = 0, count; from < e->sample.count; from += count) {
        const struct kvg_ref_row *at = &e->sample.rows[e->order[from]];
        const int64_t seq = kvg_prepared_sequence(e->p, at->seq);
        const double limit = KVG_PLAIN_REL * sqrt(fmax(1.0, (double)whole->seq_lens[seq] / KVG_PLAIN_KEYS));
        struct sums s = {0};
        count = kvg_expectation_group_size(e, from);
        for (int64_t n = 0; n < count; n++) {
            const int64_t i = e->order[from + n], row = row_of_whole(e, whole, &e->sample.rows[i]);
            for (int64_t j = 0; j < d; j++)
                add_element(&s, (double)plain->out[row * d + j], (double)e->exact[i * d + j]);
            add_lse(&s, (double)plain->lse[row], (double)e->lse_exact[i], 0.0, limit);
        }
        if (relative(&s) <= limit && s.lse_ratio <= 1.0)
            continue;
        snprintf(
            why, size,
            "sequence %lld head %d: relative L2 error %.3g (allowed %.3g), lse error %.3g times the allowed",
            (long long)seq, at->q_head, relative(&s), limit, s.lse_ratio);
        return -1;
    }
    return 0;
}

/* Errors of the kernel under test in the sampled groups, against the plain output. */
struct seen {
    double rel, rel_root, lse; /* e, E and l of the header */
    double gain_sq;            /* sum of (gain - 1)^2 */
    int64_t groups;
};

/* Keys that the last query of a sequence sees. */
static int64_t keys_of(const struct kvg_prepared *whole, int64_t seq)
{
    const int64_t q_len = whole->cu_q_lens[seq + 1] - whole->cu_q_lens[seq];
    return q_len > 0 ? kvg_sample_visible(whole, seq, q_len - 1) : 0;
}

static struct seen look(const struct kvg_expectation *e, const struct kvg_prepared *whole,
                        const struct kvg_plain *plain, const uint16_t *out, const float *lse)
{
    const int64_t d = whole->problem.head_dim;
    struct seen seen = {0};
    for (int64_t from = 0, count; from < e->sample.count; from += count, seen.groups++) {
        struct sums s = {0};
        count = kvg_expectation_group_size(e, from);
        for (int64_t n = 0; n < count; n++) {
            const int64_t row = row_of_whole(e, whole, &e->sample.rows[e->order[from + n]]);
            for (int64_t j = 0; j < d; j++)
                add_element(&s, (double)kvg_ref_bf16_decode(out[row * d + j]),
                            (double)plain->out[row * d + j]);
            if (lse)
                add_lse(&s, (double)lse[row], (double)plain->lse[row], 0.0, KVG_PLAIN_REL);
        }
        const int64_t keys = keys_of(whole, kvg_prepared_sequence(e->p, e->sample.rows[e->order[from]].seq));
        seen.rel = larger(relative(&s), seen.rel);
        seen.rel_root = larger(relative(&s) * sqrt((double)keys), seen.rel_root);
        seen.gain_sq += gain_error(&s) * gain_error(&s);
        seen.lse = larger(s.lse, seen.lse);
    }
    return seen;
}

/* The group with the largest ratio of an error to its limit. */
struct worst {
    double ratio; /* error over what is allowed */
    int64_t seq, head, failures;
    const char *what;
    double got, allowed;
};

static void note(struct worst *w, int64_t seq, int64_t head, const char *what, double got, double allowed)
{
    const double ratio = kvg_bound_ratio(got, 0.0, allowed);
    w->failures += !(ratio <= 1.0);
    if (!(ratio > w->ratio))
        return;
    *w = (struct worst){ratio, seq, head, w->failures, what, got, allowed};
}

/* Adds group (seq, head) to *s and returns the number of its elements that see a key. Sets *empty when a row
 * that sees none is not zero with an lse of -infinity, or of its sink. */
static int64_t sum_group(const struct kvg_prepared *whole, const struct kvg_plain *plain, const uint16_t *out,
                         const float *lse, int64_t seq, int64_t head, double slack, struct sums *s,
                         int *empty)
{
    const int64_t d = whole->problem.head_dim, q_len = whole->cu_q_lens[seq + 1] - whole->cu_q_lens[seq];
    int64_t checked = 0;
    for (int64_t i = 0; i < q_len; i++) {
        const struct kvg_ref_row at = {(int32_t)seq, (int32_t)i, (int32_t)head};
        const int64_t row = kvg_sample_place(whole, &at);
        if (kvg_sample_visible(whole, seq, i) == 0) {
            for (int64_t j = 0; j < d; j++)
                *empty |= (out[row * d + j] & 0x7fff) != 0;
            *empty |=
                lse && !(kvg_bound_empty_ratio((double)lse[row], kvg_prepared_empty_lse(whole, head)) <= 1.0);
            continue;
        }
        for (int64_t j = 0; j < d; j++)
            add_element(s, (double)kvg_ref_bf16_decode(out[row * d + j]), (double)plain->out[row * d + j]);
        if (lse)
            add_lse(s, (double)lse[row], (double)plain->lse[row], slack, 2 * KVG_PLAIN_REL);
        checked += d;
    }
    return checked;
}

static void say(const struct worst *w, int64_t groups, char *reason, size_t size)
{
    const int used =
        snprintf(reason, size,
                 "whole: %lld faults in %lld (sequence, head) groups, worst at sequence %lld head %lld: %s",
                 (long long)w->failures, (long long)groups, (long long)w->seq, (long long)w->head, w->what);
    if (w->allowed > 0.0)
        snprintf(reason + used, size - (size_t)used, " %.3g against the plain FP32 kernel, allowed %.3g",
                 w->got, w->allowed);
}

/* f of the header. */
static double room(const struct seen *seen)
{
    return 3.0 + 8.0 / (double)(seen->groups > 0 ? seen->groups : 1);
}

/* Allowed relative L2 error of a group. */
static double rel_of(const struct seen *seen, int64_t keys)
{
    return room(seen) * fmax(seen->rel, seen->rel_root / sqrt((double)keys)) + KVG_U_BF16;
}

/* Allowed |gain - 1| of each of `groups` groups. */
static double gain_of(const struct seen *seen, int64_t groups, double rel_allowed)
{
    if (seen->groups < 1)
        return rel_allowed;
    const double n = (double)seen->groups,
                 rare = KVG_FALSE_ALARMS_PER_CASE / KVG_RANDOM_CHECKS / (2.0 * (double)groups);
    return fmin(rel_allowed, gsl_cdf_tdist_Qinv(rare, n) * sqrt(seen->gain_sq / n) + KVG_U_BF16);
}

int kvg_compare_whole(const struct kvg_expectation *e, const struct kvg_prepared *whole,
                      const struct kvg_plain *plain, const uint16_t *out, const float *lse,
                      struct kvg_row *row, struct kvg_error *error)
{
    const int64_t groups = whole->problem.batch * whole->problem.q_heads;
    const struct seen seen = look(e, whole, plain, out, lse);
    struct worst worst = {.ratio = 0};
    char reason[512];
    double rel_max = 0;
    int64_t checked = 0;
    for (int64_t seq = 0; seq < whole->problem.batch; seq++)
        for (int64_t head = 0; head < whole->problem.q_heads; head++) {
            struct sums s = {0};
            int empty = 0;
            const int64_t n =
                sum_group(whole, plain, out, lse, seq, head, room(&seen) * seen.lse, &s, &empty);
            if (empty)
                note(&worst, seq, head,
                     "a row without a visible key is not zero with an lse of -infinity, or of its sink", NAN,
                     0.0);
            if (n == 0)
                continue;
            const double rel_allowed = rel_of(&seen, keys_of(whole, seq)),
                         gain_allowed = gain_of(&seen, groups, rel_allowed);
            checked += n;
            rel_max = larger(relative(&s), rel_max);
            note(&worst, seq, head, "relative L2 error", relative(&s), rel_allowed);
            note(&worst, seq, head, "gain error", gain_error(&s), gain_allowed);
            note(&worst, seq, head, "lse error over what is allowed", s.lse_ratio, 1.0);
        }
    row->n_device_checked = checked;
    row->device_rel_l2 = rel_max;
    if (worst.failures == 0)
        return 0;
    say(&worst, groups, reason, sizeof reason);
    row->status = KVG_INCORRECT;
    if (kvg_row_set_string(&row->reason, reason))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the reason of a row");
    return 0;
}
