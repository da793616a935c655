/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bounds_sinks.c: bounds of rows with a sink, against attention with wrong logits in FP64. All keys of a row
 * err alike, which changes nothing without a sink.
 */
#include "tests/unit/bounds_fixture.h"

enum { KEYS = 4000 }; /* so many that errors which are independent from key to key cancel */

/* A row of KEYS keys whose logits all have sum |q k| = size, before the scale of 1. */
struct sink_row {
    double logit[KEYS], v[KEYS], size, sink;
};

static struct sink_row row_make(double size, double sink)
{
    struct sink_row r = {.size = size, .sink = sink};
    struct rng random = {42};
    for (int j = 0; j < KEYS; j++) {
        r.logit[j] = 6.0 * rng_unit(&random) - 3.0;
        r.v[j] = 1.0 + rng_unit(&random);
    }
    return r;
}

/* Output and lse with `moved` added to the logit of every key. */
static double attend(const struct sink_row *r, double moved, double *lse)
{
    double sum = exp(r->sink), out = 0;
    for (int j = 0; j < KEYS; j++) {
        sum += exp(r->logit[j] + moved);
        out += exp(r->logit[j] + moved) * r->v[j];
    }
    *lse = log(sum);
    return out / sum;
}

/* The terms of the row and of its one element, straight from their definitions. */
static void terms_of(const struct sink_row *r, const struct kvg_bound *b, struct kvg_bound_row *row,
                     struct kvg_bound_element *e)
{
    const double delta = b->logit_rel * r->size;
    double lse, keys = 0, of_keys;
    const double o = attend(r, 0, &lse);
    *row = (struct kvg_bound_row){.visible = KEYS, .lse = lse, .shrink = exp(r->sink - lse)};
    *e = (struct kvg_bound_element){.exact = o, .emulated = o, .partial = o};
    for (int j = 0; j < KEYS; j++) {
        const double p = exp(r->logit[j] - lse);
        keys += exp(r->logit[j]);
        row->shrink += p * exp(-delta);
        row->grow += p * expm1(delta);
        row->delta_mean += p * delta;
        e->abs_pv += p * fabs(r->v[j]);
        e->logit_shift += p * expm1(delta) * fabs(r->v[j] - o);
        e->sq_pv += p * p * r->v[j] * r->v[j];
        e->sq_logit += p * p * delta * delta * (r->v[j] - o) * (r->v[j] - o);
    }
    of_keys = log(keys);
    e->abs_aligned = e->abs_pv;
    e->sq_aligned = e->sq_pv;
    row->sunk = lse - of_keys;
    kvg_bound_fill_row(b, row);
}

static void test_all_logits_err_alike(void **state)
{
    static const double sinks[] = {-30, -8, -2, 0, 4, 6, 8, 10, 14, 25, 60};
    const struct kvg_problem problem = {.q_dtype = KVG_BF16,
                                        .kv_dtype = KVG_BF16,
                                        .out_dtype = KVG_F32,
                                        .head_dim = 64,
                                        .q_heads = 1,
                                        .kv_heads = 1};
    const struct kvg_arithmetic declared = fp32_arithmetic();
    const struct kvg_bound b = bound_of(&problem, &declared);
    struct kvg_bound_tail tail;
    (void)state;
    kvg_bound_make_tail(1e-6, 1, &tail);
    for (size_t i = 0; i < sizeof sinks / sizeof sinks[0]; i++)
        for (double size = 10; size < 2e4; size *= 10) {
            const struct sink_row r = row_make(size, sinks[i]);
            struct kvg_bound_row row;
            struct kvg_bound_element e;
            struct kvg_bound_noise noise;
            double lse, lse_moved;
            terms_of(&r, &b, &row, &e);
            const double o = attend(&r, 0, &lse);
            /* 64 products in groups of 16 with the accumulator, cut sums, four roundings of the scale, and two of
             * the product of wide operands: all at their worst, then as a random sum at the quantile. */
            const double worst = (74.0 + 6.0) * 0x1p-24 * size;
            const double probable = fmin(worst, tail.lambda * (sqrt(74.0) + 6.0) * 0x1p-24 * size);
            const double far = fabs(attend(&r, worst, &lse_moved) - o);
            assert_true(kvg_bound_worst(&b, &row, &e) >= far);
            assert_true(kvg_bound_lse_worst(&b, &row) >= fabs(lse_moved - lse));
            const double near = fabs(attend(&r, probable, &lse_moved) - o);
            const double allowed = kvg_bound_probable(&b, &row, &e, &tail, &tail, &noise);
            assert_true(allowed >= near);
            assert_true(noise.shared >= near);
            assert_true(kvg_bound_lse_probable(&b, &row, &tail) >= fabs(lse_moved - lse));
            /* and not much more, where this error is the largest one */
            if (size > 5e3)
                assert_true(allowed <= 3.0 * near + 1e-3 * e.abs_pv * probable + 1e-5 * o + 0x1p-120 +
                                           1.2 * tail.lambda * sqrt(e.sq_logit));
        }
}

/* Where nothing is rounded but the exponential of the sink, out moves by (1 - w) of that error. */
static void test_the_sink_itself_errs(void **state)
{
    const struct kvg_problem problem = {.q_dtype = KVG_BF16,
                                        .kv_dtype = KVG_BF16,
                                        .out_dtype = KVG_F32,
                                        .head_dim = 64,
                                        .q_heads = 1,
                                        .kv_heads = 1};
    struct kvg_arithmetic declared = fp32_arithmetic();
    struct kvg_bound_tail tail;
    (void)state;
    declared.exp2_rel_error = 1e-3;
    const struct kvg_bound b = bound_of(&problem, &declared);
    kvg_bound_make_tail(1e-6, 1, &tail);
    for (double sink = -10; sink <= 40; sink += 2.5) {
        struct sink_row r = row_make(1e-3, sink);
        struct kvg_bound_row row;
        struct kvg_bound_element e;
        struct kvg_bound_noise noise;
        double lse, lse_moved;
        terms_of(&r, &b, &row, &e);
        const double o = attend(&r, 0, &lse);
        r.sink += log1p(1e-3);
        /* The weights of the keys may be too small by as much at the same time. */
        const double moved = fabs(attend(&r, log1p(-1e-3), &lse_moved) - o);
        assert_true(kvg_bound_worst(&b, &row, &e) >= moved);
        assert_true(kvg_bound_probable(&b, &row, &e, &tail, &tail, &noise) >= moved * 0.999);
        assert_true(noise.shared >= moved * 0.999);
        const double up = fabs(attend(&r, log1p(1e-3), &lse_moved) - o);
        assert_true(kvg_bound_lse_worst(&b, &row) >= fabs(lse_moved - lse));
        assert_true(kvg_bound_worst(&b, &row, &e) >= up);
    }
}

static void test_rows_without_a_key(void **state)
{
    (void)state;
    assert_true(kvg_bound_empty_ratio(-INFINITY, -INFINITY) == 0);
    assert_true(kvg_bound_empty_ratio(0, -INFINITY) == INFINITY);
    assert_true(kvg_bound_empty_ratio(NAN, -INFINITY) == INFINITY);
    assert_true(kvg_bound_empty_ratio(-INFINITY, 2) == INFINITY);
    assert_true(kvg_bound_empty_ratio(NAN, 2) == INFINITY);
    assert_true(kvg_bound_empty_ratio(2, 2) == 0);
    /* in units of log2 and back, in FP32 */
    for (float z = -60; z < 60; z += 0.37f) {
        const float there = z * 1.44269504f, back = there * 0.693147181f;
        assert_true(kvg_bound_empty_ratio((double)back, (double)z) <= 1);
        assert_true(kvg_bound_empty_ratio((double)z + 1e-4 * (1 + fabs((double)z)), (double)z) > 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_logits_err_alike),
                                       cmocka_unit_test(test_the_sink_itself_errs),
                                       cmocka_unit_test(test_rows_without_a_key)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
