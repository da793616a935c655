/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.c: an output against its expectation. Checks that need no reference see every element of the
 * output: nothing may be NaN or infinite, and rows that see no key must be zero with an lse of -infinity, or of their sink. All
 * other checks see the sampled rows.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "expectation.h"
#include "rms.h"
#include "systematic.h"
#include "shares.h"
#include "verify.h"

#define REASON_MAX 2048

struct comparison {
    const struct kvg_expectation *e;
    const uint16_t *out;
    const float *lse;
    struct kvg_check check[KVG_CHECKS];
    /* sums of squares, for relative L2 errors */
    double kernel_sq, exact_sq, quant_sq, unquantised_sq, total_sq;
    double kernel_max, lse_max, zero_ratio; /* zero_ratio: largest that zeros would get */
    double gain_min, gain_max, gain_limit;  /* NaN where no group has a gain */
    int64_t nonfinite_sampled;              /* elements of sampled rows that are NaN or infinite */
    int64_t zero_groups;                    /* groups whose right output is zero */
    int64_t blind_groups;                   /* groups in which zeros would pass every check */
    int64_t undefined_groups;               /* the same where no kernel could do better, see systematic.h */
};

/* ---------------------------------------------------------------- every element */

static void scan_row(struct comparison *c, const struct kvg_ref_row *at, int64_t visible)
{
    const struct kvg_prepared *p = c->e->p;
    const int64_t d = p->problem.head_dim, row = kvg_sample_place(p, at);
    for (int64_t j = 0; j < d; j++) {
        const uint16_t code = c->out[row * d + j];
        const int finite = (code & 0x7f80) != 0x7f80;
        const double got = (double)kvg_ref_bf16_decode(code);
        if (!finite)
            kvg_check_note(&c->check[KVG_CHECK_NONFINITE], INFINITY, at, j, isnan(got) ? NAN : got, NAN, NAN);
        if (visible == 0)
            kvg_check_note(&c->check[KVG_CHECK_EMPTY], (code & 0x7fff) != 0 ? INFINITY : 0.0, at, j, got, 0.0,
                           0.0);
    }
    if (!c->lse)
        return;
    const double lse = (double)c->lse[row], empty = kvg_prepared_empty_lse(c->e->p, at->q_head);
    if (visible == 0)
        kvg_check_note(&c->check[KVG_CHECK_EMPTY], kvg_bound_empty_ratio(lse, empty), at, -1, lse, empty,
                       kvg_bound_lse_empty(empty));
    else if (!isfinite(lse))
        kvg_check_note(&c->check[KVG_CHECK_NONFINITE], INFINITY, at, -1, isnan(lse) ? NAN : lse, NAN, NAN);
}

static void scan_all(struct comparison *c)
{
    const struct kvg_prepared *p = c->e->p;
    for (int64_t b = 0; b < p->problem.batch; b++)
        for (int64_t i = 0; i < p->cu_q_lens[b + 1] - p->cu_q_lens[b]; i++) {
            const int64_t visible = kvg_sample_visible(p, b, i);
            for (int64_t h = 0; h < p->problem.q_heads; h++) {
                const struct kvg_ref_row at = {(int32_t)b, (int32_t)i, (int32_t)h};
                scan_row(c, &at, visible);
            }
        }
}

/* ---------------------------------------------------------------- sampled rows */

static void compare_row(struct comparison *c, int64_t i)
{
    const struct kvg_expectation *e = c->e;
    const struct kvg_ref_row *at = &e->sample.rows[i];
    const int64_t d = e->p->problem.head_dim, row = kvg_sample_place(e->p, at);
    for (int64_t j = 0; j < d; j++) {
        const int64_t k = i * d + j;
        const double got = (double)kvg_ref_bf16_decode(c->out[row * d + j]);
        const double exact = (double)e->exact[k], plain = e->unquantised ? (double)e->unquantised[k] : NAN;
        const double error = fabs(got - exact);
        c->nonfinite_sampled += !isfinite(got);
        kvg_check_note(&c->check[KVG_CHECK_BOUND], kvg_bound_ratio(got, exact, e->worst[k]), at, j, got,
                       exact, e->worst[k]);
        kvg_check_note(&c->check[KVG_CHECK_PROBABLE],
                       kvg_bound_ratio(got, (double)e->emulated[k], e->probable[k]), at, j, got,
                       (double)e->emulated[k], e->probable[k]);
        c->zero_ratio = fmax(c->zero_ratio, kvg_bound_ratio(0.0, (double)e->emulated[k], e->probable[k]));
        c->kernel_sq += error * error;
        c->exact_sq += exact * exact;
        c->quant_sq += (exact - plain) * (exact - plain);
        c->unquantised_sq += plain * plain;
        c->total_sq += (got - plain) * (got - plain);
        c->kernel_max = isfinite(got) ? fmax(c->kernel_max, error) : INFINITY;
    }
    if (!c->lse)
        return;
    const double got = (double)c->lse[row], exact = (double)e->lse_exact[i];
    const double worst = kvg_bound_ratio(got, exact, e->lse_worst[i]);
    const double probable = kvg_bound_ratio(got, (double)e->lse_emulated[i], e->lse_probable[i]);
    c->lse_max = isfinite(got) ? fmax(c->lse_max, fabs(got - exact)) : INFINITY;
    if (worst > probable)
        kvg_check_note(&c->check[KVG_CHECK_LSE], worst, at, -1, got, exact, e->lse_worst[i]);
    else
        kvg_check_note(&c->check[KVG_CHECK_LSE], probable, at, -1, got, (double)e->lse_emulated[i],
                       e->lse_probable[i]);
}

/* Gain and offset of sample rows order[from .. from + count). */
static void compare_group(struct comparison *c, int64_t from, int64_t count)
{
    const struct kvg_expectation *e = c->e;
    const int64_t d = e->p->problem.head_dim;
    const struct kvg_ref_row *at = &e->sample.rows[e->order[from]];
    struct kvg_systematic sums = {0};
    struct kvg_systematic_result result;
    double largest = 0.0, zero_ratio = 0.0;
    for (int64_t n = 0; n < count; n++) {
        const int64_t i = e->order[from + n];
        kvg_systematic_add_row(&sums, d, c->out + kvg_sample_place(e->p, &e->sample.rows[i]) * d,
                               e->emulated + i * d, e->noise + i * d, e->loss + i * d, &e->group_tail);
        for (int64_t k = i * d; k < (i + 1) * d; k++) {
            largest = fmax(largest, fabs((double)e->emulated[k]));
            zero_ratio = fmax(zero_ratio, kvg_bound_ratio(0.0, (double)e->emulated[k], e->probable[k]));
        }
    }
    kvg_systematic_finish(&sums, &e->group_tail, e->rule.allowance, &result);
    c->zero_groups += largest == 0.0;
    if (largest > 0.0 && zero_ratio <= 1.0 && isnan(result.gain)) {
        c->undefined_groups += result.undefined >= KVG_DEFINED;
        c->blind_groups += !(result.undefined >= KVG_DEFINED);
    }
    if (!isnan(result.gain)) {
        kvg_check_note(&c->check[KVG_CHECK_GAIN], kvg_bound_ratio(result.gain, 1.0, result.gain_limit), at,
                       -1, result.gain, 1.0, result.gain_limit);
        c->gain_min = fmin(c->gain_min, result.gain);
        c->gain_max = fmax(c->gain_max, result.gain);
        c->gain_limit = fmax(isnan(c->gain_limit) ? 0.0 : c->gain_limit, result.gain_limit);
    }
    if (!isnan(result.offset))
        kvg_check_note(&c->check[KVG_CHECK_OFFSET], kvg_bound_ratio(result.offset, 0.0, result.offset_limit),
                       at, -1, result.offset, 0.0, result.offset_limit);
}

/* All elements together. The row of the check is the one with the largest squared error. */
static void compare_rms(struct comparison *c)
{
    const struct kvg_expectation *e = c->e;
    const int64_t d = e->p->problem.head_dim;
    struct kvg_rms sums = {0};
    struct kvg_rms_result result;
    double before = 0.0, most = -1.0;
    const struct kvg_ref_row *at = NULL;
    for (int64_t i = 0; i < e->sample.count; i++, before = sums.sum) {
        const struct kvg_ref_row *row = &e->sample.rows[i];
        kvg_rms_add_row(&sums, d, c->out + kvg_sample_place(e->p, row) * d, e->emulated + i * d,
                        e->noise + i * d);
        if (sums.sum - before > most)
            most = sums.sum - before, at = row;
    }
    kvg_rms_finish(&sums, &e->case_tail, &result);
    if (!isnan(result.rms))
        kvg_check_note(&c->check[KVG_CHECK_RMS], kvg_bound_ratio(result.rms, 0.0, result.limit), at, -1,
                       result.rms, result.predicted, result.limit);
}

static void compare_sample(struct comparison *c)
{
    const struct kvg_expectation *e = c->e;
    for (int64_t i = 0; i < e->sample.count; i++)
        compare_row(c, i);
    compare_rms(c);
    for (int64_t from = 0, count; from < e->sample.count; from += count) {
        count = kvg_expectation_group_size(e, from);
        compare_group(c, from, count);
    }
}

/* Words for a class of keys. */
static void name_class(enum kvg_share_kind kind, int64_t which, char *words, size_t size)
{
    static const char *const pages[] = {"odd pages", "the first page", "the last page"};
    if (kind == KVG_SHARE_PAGE)
        snprintf(words, size, "%s", pages[which]);
    else
        snprintf(words, size, kind == KVG_SHARE_SLOT ? "slot %lld of a page" : "split %lld",
                 (long long)which);
}

static int compare_shares(struct comparison *c)
{
    struct kvg_share_result found[KVG_SHARE_KINDS];
    if (kvg_shares_compare(c->e->shares, c->out, found) != 0)
        return -1;
    for (int kind = 0; kind < KVG_SHARE_KINDS; kind++) {
        struct kvg_check *check = &c->check[KVG_CHECK_SLOT + kind];
        *check = (struct kvg_check){.name = check->name,
                                    .failures = found[kind].failures,
                                    .of = found[kind].of,
                                    .row = {-1, -1, -1},
                                    .dim = -1,
                                    .got = found[kind].effect,
                                    .allowed = found[kind].limit,
                                    .ratio = found[kind].ratio};
        if (found[kind].failures)
            name_class((enum kvg_share_kind)kind, found[kind].worst, check->where, sizeof check->where);
    }
    return 0;
}

/* ---------------------------------------------------------------- verdict */

static void say(char reason[REASON_MAX], const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(char reason[REASON_MAX], const char *format, ...)
{
    size_t used = strlen(reason);
    va_list args;
    if (used > 0)
        used += (size_t)snprintf(reason + used, REASON_MAX - used, "; ");
    va_start(args, format);
    vsnprintf(reason + used, REASON_MAX - used, format, args);
    va_end(args);
}

/* NaN and infinity break the bounds too: there they are named only where other elements break as well. */
static int is_worth_saying(const struct comparison *c, enum kvg_check_id id)
{
    const int repeats_nonfinite = id == KVG_CHECK_BOUND || id == KVG_CHECK_PROBABLE;
    return c->check[id].failures > (repeats_nonfinite ? c->nonfinite_sampled : 0);
}

/* Appends a sentence for each check that failed. Returns 1 when any did. */
static int say_failures(const struct comparison *c, char reason[REASON_MAX])
{
    char sentence[512];
    for (int id = 0; id < KVG_CHECKS; id++) {
        if (!is_worth_saying(c, (enum kvg_check_id)id))
            continue;
        kvg_check_describe(c->e->p, (enum kvg_check_id)id, &c->check[id], sentence, sizeof sentence);
        say(reason, "%s", sentence);
    }
    return reason[0] != '\0';
}

/* Appends why a case without a failure proves nothing. Returns 1 when so. */
static int say_doubts(const struct comparison *c, char reason[REASON_MAX])
{
    if (c->e->sample.count == 0) {
        if (c->e->empty == 0)
            say(reason, "no output element to check");
    } else if (!isfinite(c->exact_sq)) {
        say(reason, "the reference itself is not finite");
    } else if (c->zero_groups == c->e->groups) {
        say(reason, "the right output is zero everywhere, so a kernel that writes zeros would pass too");
    } else if (c->blind_groups > 0) {
        say(reason, "in %lld of %lld (sequence, head) groups an output of zeros would pass every check",
            (long long)c->blind_groups, (long long)c->e->groups);
    } else if (c->zero_groups + c->undefined_groups == c->e->groups) {
        say(reason,
            "the right output is not defined: values cancel until less is left than the error of an FP8 "
            "tensor core with two levels of accumulation, so zeros would be as good an answer");
    }
    return reason[0] != '\0';
}

/* sqrt(error / size). NaN for 0/0, infinity where the output is not finite. */
static double relative(double error_sq, double size_sq)
{
    if (isnan(error_sq))
        return INFINITY;
    return error_sq == 0.0 && size_sq > 0.0 ? 0.0 : sqrt(error_sq / size_sq);
}

static void fill_row(const struct comparison *c, struct kvg_row *row)
{
    const struct kvg_problem *problem = &c->e->p->problem;
    const int64_t d = problem->head_dim, rows = c->e->sample.count;
    const struct kvg_check *bound = &c->check[KVG_CHECK_BOUND];
    row->n_total = c->e->p->total_q * problem->q_heads * d;
    row->n_checked = (rows + c->e->empty) * d;
    row->nonfinite = c->check[KVG_CHECK_NONFINITE].failures;
    if (rows == 0)
        return;
    row->kernel_rel_l2 = relative(c->kernel_sq, c->exact_sq);
    if (c->e->unquantised) {
        row->quant_rel_l2 = relative(c->quant_sq, c->unquantised_sq);
        row->total_rel_l2 = relative(c->total_sq, c->unquantised_sq);
    }
    row->kernel_max_abs = c->kernel_max;
    row->worst_index = kvg_sample_place(c->e->p, &bound->row) * d + bound->dim;
    row->zero_ratio = c->zero_ratio;
    row->gain_min = c->gain_min;
    row->gain_max = c->gain_max;
    row->gain_limit = c->gain_limit;
    if (c->lse)
        row->lse_max_abs = c->lse_max;
    for (int id = 0; id < KVG_CHECKS; id++)
        if (kvg_check_table[id].column >= 0 && c->check[id].of > 0)
            memcpy((char *)row + kvg_check_table[id].column, &c->check[id].ratio, sizeof c->check[id].ratio);
}

/* Runs every check. 0, or -1 when there is no memory for those of classes of keys. */
static int compare(struct comparison *c, const struct kvg_expectation *e, const uint16_t *out,
                   const float *lse)
{
    *c = (struct comparison){.e = e, .out = out, .lse = lse};
    for (int id = 0; id < KVG_CHECKS; id++)
        c->check[id].name = kvg_check_table[id].name;
    c->gain_min = c->gain_max = c->gain_limit = NAN;
    scan_all(c);
    compare_sample(c);
    return compare_shares(c);
}

int kvg_compare_attention(const struct kvg_expectation *e, const uint16_t *out, const float *lse,
                          struct kvg_row *row, struct kvg_error *error)
{
    struct comparison c;
    char reason[REASON_MAX] = "";
    if (compare(&c, e, out, lse) != 0)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the checks of pages, slots and splits");
    fill_row(&c, row);
    row->status = say_failures(&c, reason) ? KVG_INCORRECT
                  : say_doubts(&c, reason) ? KVG_MISTRUSTED
                                           : KVG_PASSED;
    if (kvg_row_set_string(&row->reason, reason) != 0)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the reason of a row");
    return 0;
}

void kvg_compare_checks(const struct kvg_expectation *e, const uint16_t *out, const float *lse,
                        struct kvg_check checks[KVG_CHECKS])
{
    struct comparison c;
    compare(&c, e, out, lse); /* out of memory: the checks of classes of keys stay empty */
    memcpy(checks, c.check, sizeof c.check);
}
