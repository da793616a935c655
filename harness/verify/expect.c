/* SPDX-License-Identifier: Apache-2.0
 *
 * expect.c: the expectation of a case. Every sampled row has two references: the exact one (kernel error,
 * worst-case bound) and the emulating one, which repeats the declared roundings (probable bound, lse, gain,
 * offset, shares of keys).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "reference/attention_predict.h"
#include "expectation.h"
#include "systematic.h"
#include "nearest_sums.h"
#include "shares.h"
#include "verify.h"

/* Default limit of the sum over rows of visible keys * head_dim: about a second on two cores for both
 * references and the unquantised output. */
#define COST_LIMIT 3e8

/* Sums of the references for the rows of one sequence. */
struct terms {
    double *block;
    struct kvg_ref_terms t;
    struct kvg_ref_drift drift;
};

/* The terms that the limits of sample rows [from, from + count) are made of. All are of one sequence. */
struct kvg_expectation_part {
    int64_t from, count;
    struct kvg_bound bound;
    struct terms terms;
    struct kvg_nearest_sums nearest;
};

static void part_free(struct kvg_expectation_part *part)
{
    free(part->terms.block);
    kvg_nearest_sums_free(&part->nearest);
}

void kvg_expectation_free(struct kvg_expectation *e)
{
    if (!e)
        return;
    if (e->unquantised != e->exact)
        free(e->unquantised);
    free(e->exact);
    free(e->emulated);
    free(e->lse_exact);
    free(e->lse_emulated);
    free(e->worst);
    free(e->probable);
    free(e->noise);
    free(e->loss);
    free(e->lse_worst);
    free(e->lse_probable);
    free(e->order);
    for (int64_t i = 0; i < e->part_count; i++)
        part_free(&e->parts[i]);
    free(e->parts);
    kvg_shares_free(e->shares);
    kvg_sample_free(&e->sample);
    free(e);
}

static int terms_alloc(struct terms *terms, int64_t rows, int64_t head_dim)
{
    enum { PER_ELEMENT = 10, PER_ROW = 7 };
    const size_t elements = (size_t)(rows * head_dim);
    memset(terms, 0, sizeof *terms);
    double *at = terms->block = calloc(PER_ELEMENT * elements + PER_ROW * (size_t)rows, sizeof *at);
    if (!at)
        return -1;
    double **const element[PER_ELEMENT] = {
        &terms->t.abs_pv,       &terms->t.logit_shift, &terms->t.p_rounding, &terms->t.sq_pv,
        &terms->t.sq_logit,     &terms->t.abs_aligned, &terms->t.sq_aligned, &terms->drift.flips,
        &terms->drift.sq_flips, &terms->drift.partial};
    double **const row[PER_ROW] = {&terms->t.shrink,     &terms->t.grow,         &terms->t.eta_sum,
                                   &terms->t.delta_mean, &terms->drift.flip_sum, &terms->drift.flip_same,
                                   &terms->t.sunk};
    for (int i = 0; i < PER_ELEMENT; i++, at += elements)
        *element[i] = at;
    for (int i = 0; i < PER_ROW; i++, at += rows)
        *row[i] = at;
    return 0;
}

/* Scaling by a power of two before rounding loses nothing. */
static int all_powers_of_two(const float *scale, int64_t count)
{
    int exponent;
    for (int64_t i = 0; i < count; i++)
        if (frexpf(scale[i], &exponent) != 0.5f)
            return 0;
    return 1;
}

static int declared_for(const struct kvg_prepared *p, const struct kvg_kernel *kernel, int64_t seq,
                        struct kvg_arithmetic *declared, struct kvg_bound *bound, struct kvg_error *error)
{
    const int64_t scales = p->scale_stride ? p->problem.kv_heads : 1;
    memset(declared, 0, sizeof *declared);
    kernel->arithmetic(p->part_of ? &p->whole : &p->problem, p->seq_lens[seq], declared);
    return kvg_bound_init(bound, &p->problem, declared, all_powers_of_two(p->k_scale, scales),
                          all_powers_of_two(p->v_scale, scales), kernel->name, error);
}

/* Allowed errors of the rows of a part. */
static void bound_rows(struct kvg_expectation *e, const struct kvg_expectation_part *part)
{
    const int64_t d = e->p->problem.head_dim, from = part->from, count = part->count;
    const struct kvg_bound *bound = &part->bound;
    const struct terms *terms = &part->terms;
    const struct kvg_nearest_sums *nearest = &part->nearest;
#pragma omp parallel for schedule(static) num_threads(e->p->problem.threads)
    for (int64_t i = 0; i < count; i++) {
        const struct kvg_ref_row *at = &e->sample.rows[from + i];
        struct kvg_bound_row row = {.visible = kvg_sample_visible(e->p, at->seq, at->q_index),
                                    .lse = (double)e->lse_exact[from + i],
                                    .shrink = terms->t.shrink[i],
                                    .grow = terms->t.grow[i],
                                    .flip_sum = terms->drift.flip_sum[i],
                                    .flip_same = terms->drift.flip_same[i],
                                    .eta_sum = terms->t.eta_sum[i],
                                    .delta_mean = terms->t.delta_mean[i],
                                    .sunk = terms->t.sunk[i],
                                    .q_size = nearest->q_size ? nearest->q_size[i] : 0.0,
                                    .v_size = nearest->q_size ? nearest->v_size[i] : 0.0,
                                    .repeats = nearest->q_size ? nearest->repeats[i] : 1.0};
        kvg_bound_fill_row(bound, &row);
        e->lse_worst[from + i] = kvg_bound_lse_worst(bound, &row);
        e->lse_probable[from + i] = kvg_bound_lse_probable(bound, &row, &e->lse_tail);
        for (int64_t j = 0; j < d; j++) {
            const int64_t in = i * d + j, to = (from + i) * d + j;
            const struct kvg_bound_element element = {.exact = (double)e->exact[to],
                                                      .emulated = (double)e->emulated[to],
                                                      .abs_pv = terms->t.abs_pv[in],
                                                      .logit_shift = terms->t.logit_shift[in],
                                                      .p_rounding = terms->t.p_rounding[in],
                                                      .sq_pv = terms->t.sq_pv[in],
                                                      .sq_logit = terms->t.sq_logit[in],
                                                      .abs_aligned = terms->t.abs_aligned[in],
                                                      .sq_aligned = terms->t.sq_aligned[in],
                                                      .flips = terms->drift.flips[in],
                                                      .sq_flips = terms->drift.sq_flips[in],
                                                      .partial = terms->drift.partial[in]};
            e->worst[to] = kvg_bound_worst(bound, &row, &element);
            e->probable[to] =
                kvg_bound_probable(bound, &row, &element, &e->element_tail, &e->group_tail, &e->noise[to]);
        }
    }
}

/* Keys that the narrow accumulator of the standard adds up before FP32 takes the sum. */
#define STANDARD_FLUSH 128
/* Factor on the loss of the standard: another order of the keys has another loss. */
#define LOSS_FORGIVEN 2.0

static int holds_e4m3(enum kvg_ref_format format)
{
    return format == KVG_REF_F32 || format == KVG_REF_F16 || format == KVG_REF_BF16 || format == KVG_REF_E4M3;
}

/* 1 when both emulations give the same output for e4m3 codes over `keys` keys. */
static int same_emulation(const struct kvg_ref_emulation *x, const struct kvg_ref_emulation *y, int64_t keys)
{
    return holds_e4m3(x->q_operand) && holds_e4m3(x->k_operand) && holds_e4m3(x->v_operand) &&
           x->k_scaled_first == y->k_scaled_first && x->v_scaled_first == y->v_scaled_first &&
           x->p_format == y->p_format && x->p_offset_log2 == y->p_offset_log2 &&
           x->row_sum_of_rounded_p == y->row_sum_of_rounded_p && x->tile == y->tile &&
           x->tile_last_first == y->tile_last_first && (x->split_tokens == 0 || x->split_tokens >= keys);
}

/* Loss of the standard for narrow accumulators on these rows (systematic.h): two levels of accumulation on
 * Hopper's unit in both products, less the same attention without loss. The tiles are in the order of the
 * kernel, so the emulation of the kernel often is that attention. No loss where the kernel declares FP32, or
 * where the tensors have formats that such a unit does not take. */
static int standard_loss(struct kvg_expectation *e, const struct kvg_ref_attention *a,
                         const struct kvg_bound *bound, const struct kvg_ref_emulation *how,
                         const double *partial, int64_t from, int64_t count)
{
    const int64_t n = count * a->head_dim;
    const int64_t tile = bound->tile >= 32 && bound->tile <= STANDARD_FLUSH ? bound->tile : STANDARD_FLUSH;
    const struct kvg_ref_prediction standard = {.mma = kvg_ref_mma_model_by_name("hopper_wgmma"),
                                                .flush_tiles = STANDARD_FLUSH / tile,
                                                .tile = tile,
                                                .tile_first_first = !how->tile_last_first};
    const struct kvg_ref_emulation plain = {.q_operand = KVG_REF_E4M3,
                                            .k_operand = KVG_REF_E4M3,
                                            .v_operand = KVG_REF_E4M3,
                                            .p_format = KVG_REF_E4M3,
                                            .p_offset_log2 = 8,
                                            .tile = tile,
                                            .tile_last_first = how->tile_last_first};
    if ((!bound->qk_narrow && !bound->pv_narrow) || a->q_format != KVG_REF_E4M3 ||
        a->k.format != KVG_REF_E4M3 || a->v.format != KVG_REF_E4M3)
        return 0;
    float *lossy = malloc(((size_t)n + 1) * sizeof *lossy), *exact = malloc(((size_t)n + 1) * sizeof *exact);
    const struct kvg_ref_row *rows = &e->sample.rows[from];
    const int known =
        same_emulation(how, &plain, a->seq_lens[rows[0].seq]) && (!a->sinks || !how->sink_in_maximum);
    const int failed = !lossy || !exact ||
                       kvg_ref_attention_predict(a, &standard, rows, count, lossy, NULL) != 0 ||
                       (!known && kvg_ref_attention_emulate(a, &plain, rows, count, exact, NULL) != 0);
    if (known && !failed)
        memcpy(exact, e->emulated + from * a->head_dim, (size_t)n * sizeof *exact);
    for (int64_t i = 0; i < n && !failed; i++) {
        const double loss = fabs((double)lossy[i] - (double)exact[i]);
        const double cancelled = fmax(0.0, partial[i] - fabs((double)exact[i]));
        e->loss[from * a->head_dim + i] = (float)(LOSS_FORGIVEN * (loss + KVG_GAIN_ALLOWANCE * cancelled));
    }
    free(lossy);
    free(exact);
    return failed ? -1 : 0;
}

/* References and bounds of one sequence. A kernel may declare another arithmetic for each length. */
static int expect_part(struct kvg_expectation *e, const struct kvg_kernel *kernel,
                       const struct kvg_ref_attention *a, struct kvg_expectation_part *part,
                       struct kvg_error *error)
{
    const int64_t d = e->p->problem.head_dim, from = part->from, count = part->count;
    const struct kvg_ref_row *rows = &e->sample.rows[from];
    struct terms *terms = &part->terms;
    struct kvg_arithmetic declared;
    struct kvg_ref_bound_model model;
    struct kvg_ref_drift_model drift;
    struct kvg_ref_emulation how;
    if (declared_for(e->p, kernel, rows[0].seq, &declared, &part->bound, error) != 0)
        return -1;
    kvg_bound_model(&part->bound, &model);
    kvg_bound_drift(&part->bound, &drift);
    kvg_bound_emulation(&declared, &how);
    if (terms_alloc(terms, count, d) != 0)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the bounds of %lld rows",
                        (long long)count);
    if (kvg_ref_attention_bound(a, &model, rows, count, e->exact + from * d, e->lse_exact + from,
                                &terms->t) != 0 ||
        kvg_ref_attention_drift(a, &how, &drift, rows, count, e->emulated + from * d, e->lse_emulated + from,
                                &terms->drift) != 0 ||
        standard_loss(e, a, &part->bound, &how, terms->drift.partial, from, count) != 0 ||
        kvg_nearest_sums_make(a, &declared, &part->bound, rows, count, &part->nearest) != 0)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory in the reference (%lld rows)",
                        (long long)count);
    bound_rows(e, part);
    return 0;
}

/* Puts a part into the list where parts are kept, else frees it. */
static int part_done(struct kvg_expectation *e, struct kvg_expectation_part *part)
{
    struct kvg_expectation_part *more =
        e->keep ? realloc(e->parts, (size_t)(e->part_count + 1) * sizeof *more) : NULL;
    if (more) {
        e->parts = more;
        e->parts[e->part_count++] = *part;
        return 0;
    }
    part_free(part);
    return e->keep ? -1 : 0;
}

static int expect_rows(struct kvg_expectation *e, const struct kvg_kernel *kernel, struct kvg_error *error)
{
    const struct kvg_prepared *p = e->p;
    struct kvg_ref_attention a;
    kvg_prepared_dequantised(p, &a);
    for (int64_t from = 0, count; from < e->sample.count; from += count) {
        const struct kvg_ref_row *rows = &e->sample.rows[from];
        for (count = 1; from + count < e->sample.count && rows[count].seq == rows[0].seq; count++)
            ;
        struct kvg_expectation_part part = {.from = from, .count = count};
        if (expect_part(e, kernel, &a, &part, error) != 0) {
            part_free(&part);
            return -1;
        }
        if (part_done(e, &part) != 0)
            return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the terms of the bounds");
    }
    return 0;
}

int kvg_expectation_add_unquantised(struct kvg_expectation *e, struct kvg_error *error)
{
    struct kvg_ref_attention a;
    if (e->unquantised)
        return 0;
    kvg_prepared_unquantised(e->p, &a);
    e->unquantised = malloc(((size_t)e->sample.count * (size_t)a.head_dim + 1) * sizeof *e->unquantised);
    if (e->unquantised &&
        kvg_ref_attention_f32(&a, e->sample.rows, e->sample.count, e->unquantised, NULL) == 0)
        return 0;
    free(e->unquantised);
    e->unquantised = NULL;
    return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory in the unquantised reference");
}

static int compare_order(const void *left, const void *right, void *rows)
{
    const struct kvg_ref_row *a = &((const struct kvg_ref_row *)rows)[*(const int64_t *)left];
    const struct kvg_ref_row *b = &((const struct kvg_ref_row *)rows)[*(const int64_t *)right];
    if (a->seq != b->seq)
        return a->seq < b->seq ? -1 : 1;
    if (a->q_head != b->q_head)
        return a->q_head < b->q_head ? -1 : 1;
    return (a->q_index > b->q_index) - (a->q_index < b->q_index);
}

int64_t kvg_expectation_group_size(const struct kvg_expectation *e, int64_t from)
{
    int64_t count = 1;
    while (from + count < e->sample.count &&
           kvg_same_group(&e->sample.rows[e->order[from]], &e->sample.rows[e->order[from + count]]))
        count++;
    return count;
}

static int expectation_alloc(struct kvg_expectation *e)
{
    const size_t rows = (size_t)(e->sample.count > 0 ? e->sample.count : 1);
    const size_t elements = rows * (size_t)e->p->problem.head_dim;
    /* A bf16 cache read with a bf16 Q is the unquantised tensor. */
    const int unquantised = e->p->problem.kv_dtype == KVG_BF16 && e->p->problem.path != KVG_PATH_FP8;
    e->order = malloc(rows * sizeof *e->order);
    e->exact = malloc(elements * sizeof *e->exact);
    e->emulated = malloc(elements * sizeof *e->emulated);
    e->unquantised = unquantised ? e->exact : NULL;
    e->lse_exact = malloc(rows * sizeof *e->lse_exact);
    e->lse_emulated = malloc(rows * sizeof *e->lse_emulated);
    e->worst = malloc(elements * sizeof *e->worst);
    e->probable = malloc(elements * sizeof *e->probable);
    e->noise = malloc(elements * sizeof *e->noise);
    e->loss = calloc(elements, sizeof *e->loss);
    e->lse_worst = malloc(rows * sizeof *e->lse_worst);
    e->lse_probable = malloc(rows * sizeof *e->lse_probable);
    return e->order && e->exact && e->emulated && e->lse_exact && e->lse_emulated && e->worst &&
                   e->probable && e->noise && e->loss && e->lse_worst && e->lse_probable
               ? 0
               : -1;
}

static int sample_rows(struct kvg_expectation *e, const struct kvg_kernel *kernel, int64_t rows_limit,
                       struct kvg_error *error)
{
    const struct kvg_prepared *p = e->p;
    struct kvg_sample_marks *marks = calloc((size_t)p->problem.batch, sizeof *marks);
    if (!marks)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the sample of rows");
    for (int64_t b = 0; b < p->problem.batch; b++) {
        struct kvg_arithmetic declared;
        struct kvg_bound bound;
        if (declared_for(p, kernel, b, &declared, &bound, error) != 0) {
            free(marks);
            return -1;
        }
        marks[b].tile = declared.tile;
        marks[b].split = declared.split_tokens;
        for (int64_t i = p->cu_q_lens[b]; i < p->cu_q_lens[b + 1]; i++)
            e->empty += kvg_sample_visible(p, b, i - p->cu_q_lens[b]) == 0 ? p->problem.q_heads : 0;
    }
    const int failed = kvg_sample_rows(p, marks, rows_limit, COST_LIMIT, &e->sample);
    free(marks);
    if (failed || expectation_alloc(e) != 0)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the expectation");
    for (int64_t i = 0; i < e->sample.count; i++)
        e->order[i] = i;
    if (e->sample.count > 0)
        qsort_r(e->order, (size_t)e->sample.count, sizeof *e->order, compare_order, e->sample.rows);
    for (int64_t i = 0; i < e->sample.count; i += kvg_expectation_group_size(e, i))
        e->groups++;
    return 0;
}

static void make_tails(struct kvg_expectation *e, const struct kvg_limit_rule *to)
{
    e->rule = *to;
    kvg_bound_make_tail(to->alpha, to->each ? 1 : e->sample.count * e->p->problem.head_dim, &e->element_tail);
    kvg_bound_make_tail(to->alpha, to->each ? 1 : e->sample.count, &e->lse_tail);
    kvg_bound_make_tail(to->alpha, to->each ? 1 : e->groups, &e->group_tail);
    kvg_bound_make_tail(to->alpha, 1, &e->case_tail);
}

int kvg_expectation_set_limits(struct kvg_expectation *e, const struct kvg_limit_rule *to)
{
    make_tails(e, to);
    for (int64_t i = 0; i < e->part_count; i++)
        bound_rows(e, &e->parts[i]);
    return e->shares ? kvg_shares_set_limits(e->shares) : 0;
}

static int expect(const struct kvg_prepared *p, const struct kvg_kernel *kernel, int64_t rows_limit, int keep,
                  struct kvg_expectation **out, struct kvg_error *error)
{
    *out = NULL;
    if (!kernel->arithmetic)
        return kvg_fail(error, KVG_EXIT_TROUBLE,
                        "kernel %s declares no arithmetic, so no output can be expected", kernel->name);
    struct kvg_expectation *e = calloc(1, sizeof *e);
    if (!e)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the expectation");
    e->p = p;
    e->keep = keep;
    if (sample_rows(e, kernel, rows_limit, error) != 0) {
        kvg_expectation_free(e);
        return -1;
    }
    const struct kvg_limit_rule rule = {KVG_CHECK_ALPHA, 0, KVG_GAIN_ALLOWANCE};
    make_tails(e, &rule);
    if (expect_rows(e, kernel, error) != 0) {
        kvg_expectation_free(e);
        return -1;
    }
    if (kvg_shares_make(e, kernel, &e->shares) != 0) {
        kvg_expectation_free(e);
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the checks of pages, slots and splits");
    }
    *out = e;
    return 0;
}

int kvg_expectation_make(const struct kvg_prepared *p, const struct kvg_kernel *kernel, int64_t rows_limit,
                         struct kvg_expectation **out, struct kvg_error *error)
{
    return expect(p, kernel, rows_limit, 0, out, error);
}

int kvg_expectation_make_kept(const struct kvg_prepared *p, const struct kvg_kernel *kernel,
                              int64_t rows_limit, struct kvg_expectation **out, struct kvg_error *error)
{
    return expect(p, kernel, rows_limit, 1, out, error);
}
