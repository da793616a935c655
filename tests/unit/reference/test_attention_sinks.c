/* SPDX-License-Identifier: Apache-2.0
 *
 * test_attention_sinks.c: attention with sinks, against plain FP64 loops and against the results without sinks:
 * out w and ln(e^lse + e^z), with w = e^lse / (e^lse + e^z).
 */
#include "tests/unit/attention_fixture.h"

#include "reference/attention_predict.h"

/* Sinks for a test: about 0, of both signs, and beyond every logit on both sides. */
enum { KINDS = 4 };
static void make_sinks(int kind, float sinks[16])
{
    uint64_t state = 88172645463325252u + (uint64_t)kind;
    for (int h = 0; h < 16; h++) {
        const float z = fixture_normal(&state);
        sinks[h] = kind == 0 ? z : kind == 1 ? 10 * z : kind == 2 ? 200 + z : -200 + z;
    }
}

struct results {
    double *out, *lse;
};

static struct results results_make(const struct problem *p)
{
    const struct results r = {malloc((size_t)(p->n_rows * p->shape.head_dim) * sizeof *r.out),
                              malloc((size_t)p->n_rows * sizeof *r.lse)};
    assert_non_null(r.out);
    assert_non_null(r.lse);
    return r;
}

static void results_free(struct results *r)
{
    free(r->out);
    free(r->lse);
}

static void widen(const float *from, int64_t count, double *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = (double)from[i];
}

/* Results of an FP32 reference as doubles. */
enum which { EXACT, BOUND, EMULATED, PREDICTED };
static int reference(const struct problem *p, enum which which, const struct kvg_ref_emulation *how,
                     const struct results *r)
{
    static const struct kvg_ref_bound_model model = {.logit_rel = 1e-6};
    static const struct kvg_ref_terms terms = {0};
    const int64_t n = p->n_rows, dim = p->shape.head_dim;
    const struct kvg_ref_prediction prediction = {.mma = kvg_ref_mma_model_by_name("hopper_wgmma"),
                                                  .flush_tiles = 1};
    float *out = malloc((size_t)(n * dim) * sizeof *out), *lse = malloc((size_t)n * sizeof *lse);
    assert_non_null(out);
    assert_non_null(lse);
    const int status = which == EXACT   ? kvg_ref_attention_f32(&p->a, p->rows, n, out, lse)
                       : which == BOUND ? kvg_ref_attention_bound(&p->a, &model, p->rows, n, out, lse, &terms)
                       : which == PREDICTED
                           ? kvg_ref_attention_predict(&p->a, &prediction, p->rows, n, out, lse)
                           : kvg_ref_attention_emulate(&p->a, how, p->rows, n, out, lse);
    widen(out, n * dim, r->out);
    widen(lse, n, r->lse);
    free(out);
    free(lse);
    return status;
}

/* Turns results without sinks into those with sinks. */
static void add_sinks(const struct problem *p, const float *sinks, const struct results *r)
{
    for (int64_t i = 0; i < p->n_rows; i++) {
        const double z = (double)sinks[p->rows[i].q_head], lse = r->lse[i], top = fmax(z, lse);
        const double w = lse == -INFINITY ? 0 : 1 / (1 + exp(z - lse));
        for (int64_t d = 0; d < p->shape.head_dim; d++)
            r->out[i * p->shape.head_dim + d] *= w;
        r->lse[i] = top + log(exp(lse - top) + exp(z - top));
    }
}

/* out within `rel` of the largest element of its row, lse within `rel` of max(1, |lse|). */
static void assert_close(const struct problem *p, const struct results *got, const struct results *want,
                         double rel)
{
    const int64_t dim = p->shape.head_dim;
    for (int64_t i = 0; i < p->n_rows; i++) {
        double largest = 0;
        for (int64_t d = 0; d < dim; d++)
            largest = fmax(largest, fabs(want->out[i * dim + d]));
        for (int64_t d = 0; d < dim; d++)
            if (!(fabs(got->out[i * dim + d] - want->out[i * dim + d]) <= rel * largest + 1e-44))
                fail_msg("row %lld dim %lld: %g, expected %g", (long long)i, (long long)d,
                         got->out[i * dim + d], want->out[i * dim + d]);
        if (!(fabs(got->lse[i] - want->lse[i]) <= rel * fmax(1, fabs(want->lse[i]))))
            fail_msg("lse of row %lld: %.9g, expected %.9g", (long long)i, got->lse[i], want->lse[i]);
    }
}

static void test_oracle_and_exact(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            struct problem p;
            float sinks[16];
            problem_make(&p, &shapes[i], 7);
            make_sinks(kind, sinks);
            struct results want = results_make(&p), got = results_make(&p);
            assert_int_equal(kvg_ref_attention_f64(&p.a, p.rows, p.n_rows, want.out, want.lse), 0);
            add_sinks(&p, sinks, &want);
            p.a.sinks = sinks;
            assert_int_equal(kvg_ref_attention_f64(&p.a, p.rows, p.n_rows, got.out, got.lse), 0);
            assert_close(&p, &got, &want, 1e-12);
            assert_int_equal(reference(&p, EXACT, NULL, &got), 0);
            assert_close(&p, &got, &want, 2e-6);
            assert_int_equal(reference(&p, BOUND, NULL, &got), 0);
            assert_close(&p, &got, &want, 2e-6);
            results_free(&want);
            results_free(&got);
            problem_free(&p);
        }
}

/* Sinks of -infinity are no sinks, to the bit. */
static void test_sinks_of_minus_infinity(void **state)
{
    (void)state;
    float sinks[16];
    const struct kvg_ref_emulation how = {.p_format = KVG_REF_BF16, .tile = 32, .sink_in_maximum = 1};
    for (int h = 0; h < 16; h++)
        sinks[h] = -INFINITY;
    for (int i = 0; i < SHAPES; i++)
        for (int which = EXACT; which <= EMULATED; which++) {
            struct problem p;
            problem_make(&p, &shapes[i], 3);
            struct results want = results_make(&p), got = results_make(&p);
            assert_int_equal(reference(&p, (enum which)which, &how, &want), 0);
            p.a.sinks = sinks;
            assert_int_equal(reference(&p, (enum which)which, &how, &got), 0);
            assert_memory_equal(got.out, want.out, (size_t)(p.n_rows * p.shape.head_dim) * sizeof *got.out);
            assert_memory_equal(got.lse, want.lse, (size_t)p.n_rows * sizeof *got.lse);
            results_free(&want);
            results_free(&got);
            problem_free(&p);
        }
}

/* A row without a visible key has exactly its sink as its lse; NaN in a key stays NaN. */
static void test_empty_rows_and_nan(void **state)
{
    (void)state;
    const struct shape shape = {2,           4, 2, 64, 16, {0, 20}, {1, 1}, KVG_REF_F32,
                                KVG_REF_F32, 0, 0, 1,  0,  0,       1,      0};
    const struct kvg_ref_emulation how = {.p_format = KVG_REF_BF16, .tile = 8, .sink_in_maximum = 1};
    struct problem p;
    float sinks[16];
    problem_make(&p, &shape, 5);
    make_sinks(1, sinks);
    p.a.sinks = sinks;
    ((float *)(void *)p.k)[kvg_ref_kv_index(&p.a.k, 1, 3, 0)] = NAN;
    struct results r = results_make(&p);
    for (int which = EXACT; which <= EMULATED; which++) {
        assert_int_equal(reference(&p, (enum which)which, &how, &r), 0);
        for (int64_t h = 0; h < 4; h++) {
            for (int64_t d = 0; d < 64; d++)
                assert_true(r.out[h * 64 + d] == 0);
            assert_true(r.lse[h] == (double)sinks[h]);
            assert_int_equal(isnan(r.lse[4 + h]), h < 2);
            assert_int_equal(isnan(r.out[(4 + h) * 64]), h < 2);
        }
    }
    results_free(&r);
    problem_free(&p);
}

/* One row of the emulation in plain loops: E4M3 P with offset 8, tiles of 16, one split. */
static void emulated_row(const struct problem *p, const struct kvg_ref_row *row, double sink, int in_maximum,
                         double *out, double *lse)
{
    const struct kvg_ref_attention *a = &p->a;
    const int64_t dim = a->head_dim, n = a->seq_lens[row->seq], g = row->q_head / (a->q_heads / a->kv_heads);
    const int64_t token = a->cu_q_lens[row->seq] + row->q_index;
    const double scale =
        a->softmax_scale * (double)(a->q_scale[g * a->q_scale_stride] * a->k.scale[g * a->k.scale_stride]);
    double max = in_maximum ? sink : -INFINITY, sum = in_maximum ? 256 : 0;
    int64_t first, last;
    kvg_ref_visible(&a->mask, row->seq, n, p->shape.q_len[row->seq], row->q_index, &first, &last);
    for (int64_t d = 0; d < dim; d++)
        out[d] = 0;
    for (int64_t at = first - first % 16; at <= last; at += 16) {
        double logit[16] = {0}, top = max;
        const int64_t from = at > first ? at : first, to = at + 15 < last ? at + 15 : last;
        for (int64_t t = from; t <= to; t++) {
            double dot = 0;
            for (int64_t d = 0; d < dim; d++)
                dot +=
                    (double)kvg_ref_load(a->q_format, a->q,
                                         token * a->q_stride_token + row->q_head * a->q_stride_head + d) *
                    (double)kvg_ref_load(a->k.format, a->k.data, kvg_ref_kv_index(&a->k, row->seq, t, g) + d);
            logit[t - at] = scale * dot;
            top = fmax(top, logit[t - at]);
        }
        for (int64_t d = 0; d < dim; d++)
            out[d] *= exp(max - top);
        sum *= exp(max - top);
        max = top;
        for (int64_t t = from; t <= to; t++) {
            const double weight = 256 * exp(logit[t - at] - max);
            const double rounded = (double)kvg_ref_round(KVG_REF_E4M3, (float)weight);
            sum += weight;
            for (int64_t d = 0; d < dim; d++)
                out[d] += rounded * (double)kvg_ref_load(a->v.format, a->v.data,
                                                         kvg_ref_kv_index(&a->v, row->seq, t, g) + d);
        }
    }
    if (!in_maximum)
        sum += 256 * exp(sink - max);
    for (int64_t d = 0; d < dim; d++)
        out[d] *= (double)a->v.scale[g * a->v.scale_stride] / sum;
    *lse = max + log(sum / 256);
}

static void test_emulation(void **state)
{
    (void)state;
    const struct shape shape = {2, 6, 2, 64, 16, {65, 129}, {3, 2}, KVG_REF_BF16, KVG_REF_BF16,
                                0, 1, 1, 0,  0,  2,         0};
    int unlike = 0;
    for (int kind = 0; kind < 2; kind++)
        for (int in_maximum = 0; in_maximum < 2; in_maximum++) {
            const struct kvg_ref_emulation how = {
                .p_format = KVG_REF_E4M3, .p_offset_log2 = 8, .tile = 16, .sink_in_maximum = in_maximum};
            struct problem p;
            float sinks[16];
            problem_make(&p, &shape, 11);
            make_sinks(kind, sinks);
            p.a.sinks = sinks;
            struct results want = results_make(&p), got = results_make(&p);
            for (int64_t i = 0; i < p.n_rows; i++)
                emulated_row(&p, &p.rows[i], (double)sinks[p.rows[i].q_head], in_maximum,
                             want.out + i * shape.head_dim, want.lse + i);
            assert_int_equal(reference(&p, EMULATED, &how, &got), 0);
            assert_close(&p, &got, &want, 2e-6);
            /* With the other declaration P is rounded elsewhere. */
            const struct kvg_ref_emulation other = {
                .p_format = KVG_REF_E4M3, .p_offset_log2 = 8, .tile = 16, .sink_in_maximum = !in_maximum};
            assert_int_equal(reference(&p, EMULATED, &other, &got), 0);
            for (int64_t i = 0; i < p.n_rows * shape.head_dim; i++)
                unlike += fabs(got.out[i] - want.out[i]) > 1e-3 * fabs(want.out[i]);
            results_free(&want);
            results_free(&got);
            problem_free(&p);
        }
    assert_true(unlike > 100);
}

/* Splits, and rows that see none of the first ones: without rounding the emulation is exact. */
static void test_splits(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (int how_often = 0; how_often < 8; how_often++) {
            const struct kvg_ref_emulation how = {.p_format = KVG_REF_F32,
                                                  .row_sum_of_rounded_p = 1,
                                                  .tile = 16,
                                                  .tile_last_first = how_often & 1,
                                                  .split_tokens = 48,
                                                  .split_from_window = how_often >> 1 & 1,
                                                  .sink_in_maximum = how_often >> 2};
            struct problem p;
            float sinks[16];
            problem_make(&p, &shapes[i], 2);
            make_sinks(i % 2, sinks);
            p.a.sinks = sinks;
            struct results want = results_make(&p), got = results_make(&p);
            assert_int_equal(kvg_ref_attention_f64(&p.a, p.rows, p.n_rows, want.out, want.lse), 0);
            assert_int_equal(reference(&p, EMULATED, &how, &got), 0);
            assert_close(&p, &got, &want, 2e-6);
            results_free(&want);
            results_free(&got);
            problem_free(&p);
        }
}

/* The sums of the bound with one delta for all keys: the sums of the keys alone, scaled by w. */
static void test_terms(void **state)
{
    (void)state;
    const double delta = 0.25, p_rel = 0x1p-4, tiny = 1e-4;
    struct problem p;
    float sinks[16];
    problem_make(&p, &shapes[1], 9);
    make_sinks(1, sinks);
    const int64_t n = p.n_rows, dim = p.shape.head_dim;
    struct results keys = results_make(&p);
    double *row = calloc((size_t)(10 * n), sizeof *row),
           *abs_pv = calloc((size_t)(2 * n * dim), sizeof *abs_pv);
    assert_non_null(row);
    assert_non_null(abs_pv);
    const struct kvg_ref_terms before = {.abs_pv = abs_pv, .sunk = row + 5 * n};
    const struct kvg_ref_terms terms = {.abs_pv = abs_pv + n * dim,
                                        .shrink = row,
                                        .eta_sum = row + n,
                                        .delta_mean = row + 2 * n,
                                        .grow = row + 3 * n,
                                        .sunk = row + 4 * n};
    const struct kvg_ref_bound_model model = {.logit_abs = delta, .p_rel = p_rel};
    assert_int_equal(kvg_ref_attention_f64(&p.a, p.rows, n, keys.out, keys.lse), 0);
    assert_int_equal(kvg_ref_attention_bound(&p.a, &model, p.rows, n, NULL, NULL, &before), 0);
    p.a.sinks = sinks;
    assert_int_equal(kvg_ref_attention_bound(&p.a, &model, p.rows, n, NULL, NULL, &terms), 0);
    for (int64_t i = 0; i < n; i++) {
        if (keys.lse[i] == -INFINITY)
            continue;
        const double z = (double)sinks[p.rows[i].q_head], w = 1 / (1 + exp(z - keys.lse[i]));
        assert_true(before.sunk[i] == 0);
        assert_true(fabs(terms.sunk[i] + log(w)) < 1e-6 * (1 - log(w)));
        assert_true(terms.grow[i] >= w * expm1(delta) * (1 - 1e-6) &&
                    terms.grow[i] < w * expm1(delta) * (1 + tiny));
        const double shrink = w * exp(-delta) + 1 - w;
        assert_true(terms.shrink[i] <= shrink * (1 + 1e-6) && terms.shrink[i] > shrink * (1 - tiny));
        assert_true(fabs(terms.delta_mean[i] - w * delta) < tiny * w * delta);
        assert_true(fabs(terms.eta_sum[i] - w * p_rel) < tiny * w * p_rel);
        for (int64_t d = 0; d < dim; d++)
            assert_true(fabs(terms.abs_pv[i * dim + d] - w * before.abs_pv[i * dim + d]) <=
                        tiny * w * before.abs_pv[i * dim + d]);
    }
    results_free(&keys);
    free(row);
    free(abs_pv);
    problem_free(&p);
}

/* A sink far above the keys: with sink_in_maximum every P may be lost, and eta is all of p. Else P is relative to
 * the keys and keeps its bits. */
static void test_p_relative_to_the_sink(void **state)
{
    (void)state;
    const struct shape shape = {1, 2, 1, 64, 16, {5000}, {1}, KVG_REF_BF16, KVG_REF_BF16,
                                0, 0, 1, 0,  0,  1,      0};
    struct problem p;
    const float sinks[2] = {40, 40};
    problem_make(&p, &shape, 4);
    p.a.sinks = sinks;
    for (int in_maximum = 0; in_maximum < 2; in_maximum++) {
        const struct kvg_ref_bound_model model = {
            .p_rel = 0x1p-4, .p_abs = 0x1p-18, .sink_in_maximum = in_maximum};
        double eta[2] = {0}, sunk[2] = {0};
        const struct kvg_ref_terms terms = {.eta_sum = eta, .sunk = sunk};
        assert_int_equal(kvg_ref_attention_bound(&p.a, &model, p.rows, 2, NULL, NULL, &terms), 0);
        for (int h = 0; h < 2; h++) {
            const double of_keys = eta[h] * exp(sunk[h]); /* the weights of the keys add up to 1 */
            if (in_maximum)
                assert_true(of_keys > 1 - 1e-4 && of_keys < 1 + 1e-3);
            else
                assert_true(of_keys >= 0x1p-4 * (1 - 1e-4) && of_keys < 0x1p-4 * 1.2);
        }
    }
    problem_free(&p);
}

static void test_prediction(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct problem p;
        float sinks[16];
        problem_make(&p, &shapes[3], 6);
        make_sinks(kind, sinks);
        struct results want = results_make(&p), got = results_make(&p);
        assert_int_equal(reference(&p, PREDICTED, NULL, &want), 0);
        add_sinks(&p, sinks, &want);
        p.a.sinks = sinks;
        assert_int_equal(reference(&p, PREDICTED, NULL, &got), 0);
        assert_close(&p, &got, &want, 2e-6);
        results_free(&want);
        results_free(&got);
        problem_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_oracle_and_exact),
                                       cmocka_unit_test(test_sinks_of_minus_infinity),
                                       cmocka_unit_test(test_empty_rows_and_nan),
                                       cmocka_unit_test(test_emulation),
                                       cmocka_unit_test(test_splits),
                                       cmocka_unit_test(test_terms),
                                       cmocka_unit_test(test_p_relative_to_the_sink),
                                       cmocka_unit_test(test_prediction)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
