/* SPDX-License-Identifier: Apache-2.0
 *
 * An output against its expectation. What needs no reference is checked on every element of the output:
 * nothing may be NaN or infinite, and rows that see no key are zero with an lse of -infinity. The rest is
 * checked on the sampled rows. Every check that breaks adds one sentence to the reason, named by its first
 * word: nonfinite, empty, lse, bound, probable, gain, offset, rms, slot, page, split.
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

/* One check over elements, rows or groups. */
struct check {
    const char *name;
    int64_t failures, of;
    double ratio; /* largest error over allowed error */
    struct kvg_ref_row row;
    int64_t dim; /* -1: the check has no dimension */
    double got, reference, allowed;
};

struct comparison {
    const struct kvg_expectation *e;
    const uint16_t *out;
    const float *lse;
    struct check nonfinite, empty, lse_check, bound, probable, gain, offset, rms;
    struct kvg_share_result shares[KVG_SHARE_KINDS];
    double kernel_sq, exact_sq, quant_sq, unquantised_sq, total_sq;
    double kernel_max, lse_max, zero_ratio;
    double gain_min, gain_max, gain_limit;
    int64_t blind_groups, undefined_groups, zero_groups, nonfinite_sampled;
};

static void note(struct check *check, double ratio, const struct kvg_ref_row *row, int64_t dim, double got,
                 double reference, double allowed)
{
    check->of++;
    check->failures += !(ratio <= 1.0);
    if (check->of > 1 && !(ratio > check->ratio))
        return;
    check->ratio = ratio;
    check->row = *row;
    check->dim = dim;
    check->got = got;
    check->reference = reference;
    check->allowed = allowed;
}

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
            note(&c->nonfinite, INFINITY, at, j, isnan(got) ? NAN : got, NAN, NAN);
        if (visible == 0)
            note(&c->empty, (code & 0x7fff) != 0 ? INFINITY : 0.0, at, j, got, 0.0, 0.0);
    }
    if (!c->lse)
        return;
    const double lse = (double)c->lse[row];
    if (visible == 0)
        note(&c->empty, lse == -INFINITY ? 0.0 : INFINITY, at, -1, lse, -INFINITY, 0.0);
    else if (!isfinite(lse))
        note(&c->nonfinite, INFINITY, at, -1, isnan(lse) ? NAN : lse, NAN, NAN);
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
        note(&c->bound, kvg_bound_ratio(got, exact, e->worst[k]), at, j, got, exact, e->worst[k]);
        note(&c->probable, kvg_bound_ratio(got, (double)e->emulated[k], e->probable[k]), at, j, got,
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
        note(&c->lse_check, worst, at, -1, got, exact, e->lse_worst[i]);
    else
        note(&c->lse_check, probable, at, -1, got, (double)e->lse_emulated[i], e->lse_probable[i]);
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
        kvg_systematic_row(&sums, d, c->out + kvg_sample_place(e->p, &e->sample.rows[i]) * d,
                           e->emulated + i * d, e->noise + i * d, e->loss + i * d, &e->group_tail);
        for (int64_t k = i * d; k < (i + 1) * d; k++) {
            largest = fmax(largest, fabs((double)e->emulated[k]));
            zero_ratio = fmax(zero_ratio, kvg_bound_ratio(0.0, (double)e->emulated[k], e->probable[k]));
        }
    }
    kvg_systematic_result(&sums, &e->group_tail, e->hold.allowance, &result);
    c->zero_groups += largest == 0.0;
    if (largest > 0.0 && zero_ratio <= 1.0 && isnan(result.gain)) {
        c->undefined_groups += result.undefined >= KVG_DEFINED;
        c->blind_groups += !(result.undefined >= KVG_DEFINED);
    }
    if (!isnan(result.gain)) {
        note(&c->gain, kvg_bound_ratio(result.gain, 1.0, result.gain_limit), at, -1, result.gain, 1.0,
             result.gain_limit);
        c->gain_min = fmin(c->gain_min, result.gain);
        c->gain_max = fmax(c->gain_max, result.gain);
        c->gain_limit = fmax(isnan(c->gain_limit) ? 0.0 : c->gain_limit, result.gain_limit);
    }
    if (!isnan(result.offset))
        note(&c->offset, kvg_bound_ratio(result.offset, 0.0, result.offset_limit), at, -1, result.offset, 0.0,
             result.offset_limit);
}

/* All elements together. The row is the one that errs most. */
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
        kvg_rms_row(&sums, d, c->out + kvg_sample_place(e->p, row) * d, e->emulated + i * d,
                    e->noise + i * d);
        if (sums.sum - before > most)
            most = sums.sum - before, at = row;
    }
    kvg_rms_result(&sums, &e->case_tail, &result);
    if (!isnan(result.rms))
        note(&c->rms, kvg_bound_ratio(result.rms, 0.0, result.limit), at, -1, result.rms, result.predicted,
             result.limit);
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

/* "bound: 3 of 4096 elements, worst at sequence 1 query 0 head 5 dim 17: got 0.5, reference 0.1, ..." */
static void say_check(char reason[REASON_MAX], const struct check *check, const char *what)
{
    char place[96];
    const int used = snprintf(place, sizeof place, "sequence %d query %d head %d", check->row.seq,
                              check->row.q_index, check->row.q_head);
    if (check->dim >= 0)
        snprintf(place + used, sizeof place - (size_t)used, " dim %lld", (long long)check->dim);
    if (isnan(check->reference))
        say(reason, "%s: %lld %s, first at %s: got %g", check->name, (long long)check->failures, what, place,
            check->got);
    else
        say(reason,
            "%s: %lld of %lld %s, worst at %s: got %.7g, reference %.7g, allowed error %.3g (%.3g times)",
            check->name, (long long)check->failures, (long long)check->of, what, place, check->got,
            check->reference, check->allowed, check->ratio);
}

static void say_group(char reason[REASON_MAX], const struct check *check)
{
    say(reason,
        "%s: %lld of %lld (sequence, head) groups, worst at sequence %d head %d: %.7g, expected %g +- %.3g",
        check->name, (long long)check->failures, (long long)check->of, check->row.seq, check->row.q_head,
        check->got, check->reference, check->allowed);
}

/* "slot: the error follows the share of slot 3 of a page: 1 % of it, allowed 0.02 % (1 of 16 fail)" */
/* The class of keys that a share speaks of. */
static void class_words(enum kvg_share_kind kind, int64_t which, char *words, size_t size)
{
    static const char *const pages[] = {"odd pages", "the first page", "the last page"};
    if (kind == KVG_SHARE_PAGE)
        snprintf(words, size, "%s", pages[which]);
    else
        snprintf(words, size, kind == KVG_SHARE_SLOT ? "slot %lld of a page" : "split %lld",
                 (long long)which);
}

static void say_shares(char reason[REASON_MAX], enum kvg_share_kind kind,
                       const struct kvg_share_result *result)
{
    char where[32];
    class_words(kind, result->worst, where, sizeof where);
    say(reason, "%s: the error follows the share of %s: %.3g %% of it, allowed %.3g %% (%lld of %lld fail)",
        kvg_share_name(kind), where, 100.0 * result->effect, 100.0 * result->limit,
        (long long)result->failures, (long long)result->of);
}

/* Appends what broke; 1 when anything did. */
static int say_failures(const struct comparison *c, char reason[REASON_MAX])
{
    if (c->nonfinite.failures)
        say_check(reason, &c->nonfinite, "NaN or infinite where the right value is finite");
    if (c->empty.failures)
        say_check(reason, &c->empty, "values of rows without a visible key");
    if (c->lse_check.failures)
        say_check(reason, &c->lse_check, "rows");
    if (c->bound.failures > c->nonfinite_sampled) /* those have been named */
        say_check(reason, &c->bound, "elements");
    if (c->probable.failures > c->nonfinite_sampled)
        say_check(reason, &c->probable, "elements");
    if (c->gain.failures)
        say_group(reason, &c->gain);
    if (c->offset.failures)
        say_group(reason, &c->offset);
    if (c->rms.failures)
        say(reason,
            "rms: %lld of %lld: the root mean square error is %.3g, predicted %.3g, allowed %.3g (%.3g "
            "times)",
            (long long)c->rms.failures, (long long)c->rms.of, c->rms.got, c->rms.reference, c->rms.allowed,
            c->rms.ratio);
    for (int kind = 0; kind < KVG_SHARE_KINDS; kind++)
        if (c->shares[kind].failures)
            say_shares(reason, (enum kvg_share_kind)kind, &c->shares[kind]);
    return reason[0] != '\0';
}

/* Appends why a case without a failure proves nothing; 1 when so. */
static int say_doubts(const struct comparison *c, char reason[REASON_MAX])
{
    if (c->e->sample.count == 0) {
        if (c->e->empty == 0)
            say(reason, "no output element to check");
    } else if (!isfinite(c->exact_sq)) {
        say(reason, "the reference itself is not finite");
    } else if (c->zero_groups == c->e->groups) {
        say(reason, "the right output is zero everywhere, so zeros prove nothing");
    } else if (c->blind_groups > 0) {
        say(reason,
            "in %lld of %lld (sequence, head) groups the checks could not tell zeros from the right output",
            (long long)c->blind_groups, (long long)c->e->groups);
    } else if (c->zero_groups + c->undefined_groups == c->e->groups) {
        say(reason, "the right output is not defined: values cancel to less than an FP8 tensor core with two "
                    "levels of "
                    "accumulation may be off by, so zeros prove nothing");
    }
    return reason[0] != '\0';
}

/* sqrt(error / size): NaN for 0/0, infinite where the output is not finite. */
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
    row->n_total = c->e->p->total_q * problem->q_heads * d;
    row->n_checked = (rows + c->e->empty) * d;
    row->nonfinite = c->nonfinite.failures;
    if (rows == 0)
        return;
    row->kernel_rel_l2 = relative(c->kernel_sq, c->exact_sq);
    if (c->e->unquantised) {
        row->quant_rel_l2 = relative(c->quant_sq, c->unquantised_sq);
        row->total_rel_l2 = relative(c->total_sq, c->unquantised_sq);
    }
    row->kernel_max_abs = c->kernel_max;
    row->bound_ratio_max = c->bound.ratio;
    row->prob_ratio_max = c->probable.ratio;
    row->worst_index = kvg_sample_place(c->e->p, &c->bound.row) * d + c->bound.dim;
    row->zero_ratio = c->zero_ratio;
    row->gain_min = c->gain_min;
    row->gain_max = c->gain_max;
    row->gain_limit = c->gain_limit;
    if (c->lse) {
        row->lse_max_abs = c->lse_max;
        row->lse_ratio_max = c->lse_check.ratio;
    }
}

/* Sequences of a part by their numbers in the whole case, for the reason. */
static void number_sequences(struct comparison *c)
{
    struct check *const checks[] = {&c->nonfinite, &c->empty, &c->lse_check, &c->bound,
                                    &c->probable,  &c->gain,  &c->offset};
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        checks[i]->row.seq = (int32_t)kvg_prepared_sequence(c->e->p, checks[i]->row.seq);
}

int kvg_compare_attention(const struct kvg_expectation *e, const uint16_t *out, const float *lse,
                          struct kvg_row *row, struct kvg_error *error)
{
    struct comparison c = {.e = e, .out = out, .lse = lse};
    char reason[REASON_MAX] = "";
    c.nonfinite.name = "nonfinite";
    c.empty.name = "empty";
    c.lse_check.name = "lse";
    c.bound.name = "bound";
    c.probable.name = "probable";
    c.gain.name = "gain";
    c.offset.name = "offset";
    c.gain_min = c.gain_max = c.gain_limit = NAN;
    scan_all(&c);
    compare_sample(&c);
    if (kvg_shares_compare(e->shares, out, c.shares) != 0)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the errors of pages, slots and splits");
    fill_row(&c, row);
    number_sequences(&c);
    row->status = say_failures(&c, reason) ? KVG_INCORRECT
                  : say_doubts(&c, reason) ? KVG_MISTRUSTED
                                           : KVG_PASSED;
    if (kvg_row_set_string(&row->reason, reason) != 0)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the reason of a row");
    return 0;
}

/* ---------------------------------------------------------------- for a row that failed */

void kvg_compare_checks(const struct kvg_expectation *e, const uint16_t *out, const float *lse,
                        struct kvg_check checks[KVG_CHECKS])
{
    struct comparison c = {.e = e, .out = out, .lse = lse};
    const struct check *const found[] = {&c.nonfinite, &c.empty, &c.lse_check, &c.bound,
                                         &c.probable,  &c.gain,  &c.offset,    &c.rms};
    static const char *const names[] = {"nonfinite", "empty", "lse",    "bound",
                                        "probable",  "gain",  "offset", "rms"};
    enum { BY_ROW = sizeof found / sizeof found[0] };
    _Static_assert((int)BY_ROW + KVG_SHARE_KINDS == KVG_CHECKS, "a check is missing");
    c.gain_min = c.gain_max = c.gain_limit = NAN;
    scan_all(&c);
    compare_sample(&c);
    if (kvg_shares_compare(e->shares, out, c.shares) != 0)
        memset(c.shares, 0, sizeof c.shares); /* no memory for them: then they say nothing */
    for (int i = 0; i < BY_ROW; i++)
        checks[i] = (struct kvg_check){.name = names[i],
                                       .failures = found[i]->failures,
                                       .of = found[i]->of,
                                       .row = found[i]->row,
                                       .dim = found[i]->dim,
                                       .got = found[i]->got,
                                       .reference = found[i]->reference,
                                       .allowed = found[i]->allowed,
                                       .ratio = found[i]->ratio};
    for (int kind = 0; kind < KVG_SHARE_KINDS; kind++) {
        const struct kvg_share_result *r = &c.shares[kind];
        struct kvg_check *to = &checks[BY_ROW + kind];
        *to = (struct kvg_check){.name = kvg_share_name((enum kvg_share_kind)kind),
                                 .failures = r->failures,
                                 .of = r->of,
                                 .row = {-1, -1, -1},
                                 .dim = -1,
                                 .got = r->effect,
                                 .reference = 0,
                                 .allowed = r->limit,
                                 .ratio = r->ratio};
        if (r->failures)
            class_words((enum kvg_share_kind)kind, r->worst, to->where, sizeof to->where);
    }
}
