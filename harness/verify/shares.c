/* SPDX-License-Identifier: Apache-2.0
 *
 * shares.c: regressors and limits are computed once, with the expectation. A comparison is one sum per class.
 */
#include "shares.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/attention_shares.h"
#include "systematic.h"
#include "harness/prepare/prepared.h"

enum {
    SLOTS_MAX = 64, /* classes of slots */
    SPLITS = 16,    /* classes of splits */
    ENDS = 2,
    PAGES = 3,
    KEYS = 1 << 16 /* significands told apart */
};

struct share_class {
    enum kvg_share_kind kind;
    int64_t index;
    double power, limit; /* sum x (c - b r); largest allowed |sum (y - r) x| */
};

struct kvg_shares {
    const struct kvg_expectation *e;
    int64_t rows, dim, slots, classes;
    int64_t *row; /* [rows] sample indices, in the order of the sample */
    float *x;     /* [classes][rows * dim] */
    struct share_class *class;
};

void kvg_shares_free(struct kvg_shares *s)
{
    if (!s)
        return;
    free(s->row);
    free(s->x);
    free(s->class);
    free(s);
}

/* ---------------------------------------------------------------- rows and classes */

/* Classes of slots: groups of equal size, as many as possible up to SLOTS_MAX. */
static int64_t slots_of(int64_t block_size)
{
    int64_t size = 1;
    while (block_size / size > SLOTS_MAX || block_size % size != 0)
        size++;
    return block_size / size;
}

/* The last query of every group, or of every nth where there are too many. */
static void choose_rows(struct kvg_shares *s)
{
    const struct kvg_expectation *e = s->e;
    const int64_t most = KVG_SHARES_BYTES / (s->classes * s->dim * (int64_t)sizeof *s->x) + 1;
    const int64_t every = (e->groups + most - 1) / most;
    int64_t group = 0;
    for (int64_t i = 0; i < e->sample.count; i++) {
        const struct kvg_ref_row *rows = e->sample.rows;
        if (i + 1 < e->sample.count && kvg_same_group(&rows[e->order[i]], &rows[e->order[i + 1]]))
            continue;
        if (group++ % every == 0)
            s->row[s->rows++] = e->order[i];
    }
}

static int compare_indices(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static void name_classes(struct kvg_shares *s)
{
    struct share_class *at = s->class;
    for (int64_t i = 0; i < s->slots; i++)
        *at++ = (struct share_class){KVG_SHARE_SLOT, i, 0.0, INFINITY};
    for (int64_t i = 0; i < PAGES; i++)
        *at++ = (struct share_class){KVG_SHARE_PAGE, i, 0.0, INFINITY};
    for (int64_t i = 0; i < SPLITS; i++)
        *at++ = (struct share_class){KVG_SHARE_SPLIT, i, 0.0, INFINITY};
}

static int shares_alloc(struct kvg_shares *s)
{
    const struct kvg_expectation *e = s->e;
    s->dim = e->p->problem.head_dim;
    s->slots = slots_of(e->p->problem.block_size);
    s->classes = s->slots + PAGES + SPLITS;
    s->row = malloc(((size_t)e->groups + 1) * sizeof *s->row);
    s->class = malloc((size_t)s->classes * sizeof *s->class);
    if (!s->row || !s->class)
        return -1;
    name_classes(s);
    choose_rows(s);
    qsort(s->row, (size_t)s->rows, sizeof *s->row, compare_indices);
    s->x = calloc((size_t)(s->classes * s->rows * s->dim) + 1, sizeof *s->x);
    return s->x ? 0 : -1;
}

/* ---------------------------------------------------------------- regressors */

/* Where a share is a multiple of the output, c - b r is only rounding: at most this part of the square of c.
 * */
#define ROUNDING_LEFT 1e-8

static double step_of(float emulated)
{
    return kvg_systematic_step((double)kvg_ref_bf16_decode(kvg_ref_bf16_encode(emulated)));
}

/* weight[dim]: one over the variance of the error of an element. Returns 0 when a weight is not a positive
 * number. */
static int weights_of_row(const struct kvg_shares *s, int64_t i, double *weight)
{
    const struct kvg_expectation *e = s->e;
    for (int64_t d = 0; d < s->dim; d++) {
        const int64_t k = s->row[i] * s->dim + d;
        const double noise = e->noise[k].usual + (double)e->loss[k];
        weight[d] = 1.0 / (noise * (step_of(e->emulated[k]) + noise));
        if (!(weight[d] > 0.0) || !isfinite(weight[d]))
            return 0;
    }
    return 1;
}

/* x of one class for row i, from the share c; adds to the power of the class. */
static void regressor(struct kvg_shares *s, int64_t i, int64_t class, const double *c, const double *weight)
{
    const float *r = s->e->emulated + s->row[i] * s->dim;
    float *x = s->x + (class * s->rows + i) * s->dim;
    double cr = 0.0, rr = 0.0, cc = 0.0, power = 0.0;
    int numbers = 1;
    for (int64_t d = 0; d < s->dim; d++) {
        cr += weight[d] * c[d] * (double)r[d];
        rr += weight[d] * (double)r[d] * (double)r[d];
        cc += weight[d] * c[d] * c[d];
    }
    for (int64_t d = 0; d < s->dim && rr > 0.0; d++) {
        const double left = c[d] - (double)r[d] * (cr / rr);
        x[d] = (float)(weight[d] * left);
        power += weight[d] * left * left;
        numbers &= isfinite(x[d]); /* outputs below 1e-30 have weights that FP32 does not hold */
    }
    if (power > ROUNDING_LEFT * cc && isfinite(power) && numbers)
        s->class[class].power += power;
    else
        memset(x, 0, (size_t)s->dim * sizeof *x);
}

/* Regressors of row i. shares: [2 * slots] by slot of even and of odd pages, then [ENDS], then [n_splits].
 * n_splits is 0 where there is one split, since its share is the output itself. c: scratch [2 * dim]. */
static void regressors_of_row(struct kvg_shares *s, int64_t i, const float *shares, int64_t n_splits,
                              double *c)
{
    const int64_t slots = s->slots, dim = s->dim;
    double *weight = c + dim;
    const float *ends = shares + 2 * slots * dim, *splits = ends + ENDS * dim;
    if (!weights_of_row(s, i, weight))
        return;
    for (int64_t slot = 0; slot < slots; slot++) {
        for (int64_t d = 0; d < dim; d++)
            c[d] = (double)shares[slot * dim + d] + (double)shares[(slots + slot) * dim + d];
        regressor(s, i, slot, c, weight);
    }
    memset(c, 0, (size_t)dim * sizeof *c);
    for (int64_t at = slots * dim; at < 2 * slots * dim; at++)
        c[at % dim] += (double)shares[at];
    regressor(s, i, slots + KVG_SHARE_ODD_PAGES, c, weight);
    for (int64_t k = 0; k < ENDS + n_splits; k++) {
        const float *from = k < ENDS ? ends + k * dim : splits + (k - ENDS) * dim;
        for (int64_t d = 0; d < dim; d++)
            c[d] = (double)from[d];
        regressor(s, i, slots + KVG_SHARE_FIRST_PAGE + k, c, weight);
    }
}

/* Rows [from, from + count) of s->row, all of one sequence. */
static int shares_of_sequence(struct kvg_shares *s, const struct kvg_kernel *kernel, int64_t from,
                              int64_t count)
{
    const struct kvg_expectation *e = s->e;
    const struct kvg_prepared *p = e->p;
    const int64_t block = p->problem.block_size;
    const int64_t keys = p->seq_lens[e->sample.rows[s->row[from]].seq];
    struct kvg_arithmetic declared;
    struct kvg_ref_attention a;
    memset(&declared, 0, sizeof declared);
    kernel->arithmetic(&p->problem, keys, &declared);
    const struct kvg_ref_partition partitions[3] = {
        {.size = block / s->slots, .classes = 2 * s->slots},
        {.size = block, .classes = ENDS, .ends = 1},
        {.size = declared.split_tokens, .classes = SPLITS, .from_first_visible = declared.split_from_window}};
    const int split = declared.split_tokens > 0 && declared.split_tokens < keys;
    const int64_t classes = 2 * s->slots + ENDS + (split ? SPLITS : 0);
    struct kvg_ref_row *rows = malloc((size_t)count * sizeof *rows);
    float *lse = malloc((size_t)count * sizeof *lse);
    float *shares = malloc((size_t)(count * classes * s->dim) * sizeof *shares);
    double *c = malloc(2 * (size_t)s->dim * sizeof *c);
    int failed = !rows || !lse || !shares || !c;
    for (int64_t i = 0; i < count && !failed; i++) {
        rows[i] = e->sample.rows[s->row[from + i]];
        lse[i] = e->lse_exact[s->row[from + i]];
    }
    kvg_prepared_dequantised(p, &a);
    failed = failed || kvg_ref_attention_shares(&a, partitions, split ? 3 : 2, rows, count, lse, shares) != 0;
    for (int64_t i = 0; i < count && !failed; i++)
        regressors_of_row(s, from + i, shares + i * classes * s->dim, split ? SPLITS : 0, c);
    free(rows);
    free(lse);
    free(shares);
    free(c);
    return failed ? -1 : 0;
}

/* ---------------------------------------------------------------- limits */

/* Terms of the limits for each element, and the elements in the order of their significands. */
struct element {
    double noise, lost, step, likely; /* likely: step times its chance, at most step */
};
struct elements {
    struct element *element; /* [rows * dim] */
    uint16_t *key;
    int64_t *order;
    int64_t count;
};

static int elements_make(const struct kvg_shares *s, struct elements *all)
{
    const struct kvg_expectation *e = s->e;
    int64_t *first = calloc(KEYS + 1, sizeof *first);
    all->count = s->rows * s->dim;
    all->element = malloc((size_t)all->count * sizeof *all->element);
    all->key = malloc((size_t)all->count * sizeof *all->key);
    all->order = malloc((size_t)all->count * sizeof *all->order);
    const int failed = !first || !all->element || !all->key || !all->order;
    for (int64_t n = 0; n < all->count && !failed; n++) {
        const int64_t k = s->row[n / s->dim] * s->dim + n % s->dim;
        struct element *at = &all->element[n];
        at->noise = e->noise[k].usual;
        at->lost = (double)e->loss[k];
        at->step = step_of(e->emulated[k]);
        at->likely = fmin(at->step, 2.0 * (at->noise + at->lost));
        all->key[n] = (uint16_t)kvg_systematic_significand(e->emulated[k]);
        first[all->key[n] + 1]++;
    }
    for (int64_t k = 0; k < KEYS && !failed; k++)
        first[k + 1] += first[k];
    for (int64_t n = 0; n < all->count && !failed; n++)
        all->order[first[all->key[n]]++] = n;
    free(first);
    return failed ? -1 : 0;
}

static void elements_free(struct elements *all)
{
    free(all->element);
    free(all->key);
    free(all->order);
}

/* Limit of one class for noise (dims of a row linearly, rows by squares) and for the forgiven loss. */
static double noise_limit(const struct kvg_shares *s, const struct elements *all, const float *x,
                          double lambda)
{
    double squares = 0.0, lost = 0.0;
    for (int64_t i = 0; i < s->rows; i++) {
        double row = 0.0;
        for (int64_t n = i * s->dim; n < (i + 1) * s->dim; n++) {
            const double size = fabs((double)x[n]);
            if (size == 0.0)
                continue; /* the noise may be infinite, and 0 * infinity is NaN */
            row += all->element[n].noise * size;
            lost += all->element[n].lost * size;
        }
        squares += row * row;
    }
    return lambda * sqrt(squares) + lost;
}

static double steps_limit(const struct elements *all, const float *x, double log_odds)
{
    double variance = 0.0, largest = 0.0, sum = 0.0, step = 0.0, likely = 0.0;
    for (int64_t i = 0; i < all->count; i++) {
        const int64_t n = all->order[i];
        const double size = fabs((double)x[n]);
        step += size * all->element[n].step;
        likely += size * all->element[n].likely;
        if (i + 1 < all->count && all->key[all->order[i + 1]] == all->key[n])
            continue;
        variance += step * likely;
        largest = fmax(largest, step);
        sum += step;
        step = likely = 0.0;
    }
    return fmin(kvg_bound_bennett(variance, largest, log_odds), sum);
}

int kvg_shares_set_limits(struct kvg_shares *s)
{
    struct elements all = {0};
    struct kvg_bound_tail tail;
    kvg_bound_make_tail(s->e->rule.alpha, s->e->rule.each ? 1 : s->classes, &tail);
    const int failed = elements_make(s, &all) != 0;
#pragma omp parallel for schedule(dynamic) num_threads(s->e->p->problem.threads)
    for (int64_t k = 0; k < s->classes; k++) {
        const float *x = s->x + k * s->rows * s->dim;
        if (s->class[k].power > 0.0 && !failed)
            s->class[k].limit = noise_limit(s, &all, x, tail.lambda) + steps_limit(&all, x, tail.log_odds);
    }
    elements_free(&all);
    return failed ? -1 : 0;
}

int kvg_shares_make(const struct kvg_expectation *e, const struct kvg_kernel *kernel, struct kvg_shares **out)
{
    *out = NULL;
    if (e->sample.count == 0)
        return 0;
    struct kvg_shares *s = calloc(1, sizeof *s);
    if (!s)
        return -1;
    s->e = e;
    int failed = shares_alloc(s) != 0;
    for (int64_t from = 0, count; from < s->rows && !failed; from += count) {
        for (count = 1; from + count < s->rows &&
                        e->sample.rows[s->row[from + count]].seq == e->sample.rows[s->row[from]].seq;
             count++)
            ;
        failed = shares_of_sequence(s, kernel, from, count) != 0;
    }
    if (failed || kvg_shares_set_limits(s) != 0) {
        kvg_shares_free(s);
        return -1;
    }
    *out = s;
    return 0;
}

/* ---------------------------------------------------------------- comparison */

/* y - r of every element; 0 where it is not finite. */
static double *errors_of(const struct kvg_shares *s, const uint16_t *out)
{
    double *error = malloc((size_t)(s->rows * s->dim) * sizeof *error);
    for (int64_t i = 0; i < s->rows && error; i++) {
        const int64_t row = kvg_sample_place(s->e->p, &s->e->sample.rows[s->row[i]]);
        for (int64_t d = 0; d < s->dim; d++) {
            const float r = s->e->emulated[s->row[i] * s->dim + d];
            const double e = (double)kvg_ref_bf16_decode(out[row * s->dim + d]) -
                             (double)kvg_ref_bf16_decode(kvg_ref_bf16_encode(r));
            error[i * s->dim + d] = isfinite(e) ? e : 0.0;
        }
    }
    return error;
}

int kvg_shares_compare(const struct kvg_shares *s, const uint16_t *out,
                       struct kvg_share_result results[KVG_SHARE_KINDS])
{
    for (int k = 0; k < KVG_SHARE_KINDS; k++)
        results[k] = (struct kvg_share_result){.effect = NAN, .limit = NAN};
    if (!s)
        return 0;
    double *error = errors_of(s, out);
    if (!error)
        return -1;
    for (int64_t k = 0; k < s->classes; k++) {
        const struct share_class *class = &s->class[k];
        struct kvg_share_result *result = &results[class->kind];
        const float *x = s->x + k * s->rows * s->dim;
        double sum = 0.0;
        if (!(class->power > 0.0) || !isfinite(class->limit))
            continue;
        for (int64_t n = 0; n < s->rows * s->dim; n++)
            sum += error[n] * (double)x[n];
        const double ratio = kvg_bound_ratio(sum, 0.0, class->limit);
        result->failures += ratio > 1.0;
        if (result->of++ == 0 || ratio > result->ratio) {
            result->ratio = ratio;
            result->worst = class->index;
            result->effect = sum / class->power;
            result->limit = class->limit / class->power;
        }
    }
    free(error);
    return 0;
}
