/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bounds_nearest.c: bounds of accumulators that round to nearest, against chains of FP16 sums computed
 * in integers.
 */
#include "tests/unit/bounds_fixture.h"

/* FP16 in integers: numbers are multiples of 2^-48, as all products of FP16 numbers are. Ties go to even; the
 * smallest step is 2^-24. */
static __int128 fp16_of(__int128 x)
{
    const __int128 size = x < 0 ? -x : x;
    int shift = 24;
    while (size >> (shift + 11) != 0)
        shift++;
    const __int128 step = (__int128)1 << shift, low = size / step * step, rest = size - low;
    const int up = 2 * rest > step || (2 * rest == step && (low / step) % 2 == 1);
    return (x < 0 ? -1 : 1) * (low + (up ? step : 0));
}

/* A number of FP16 as a multiple of 2^-24: up to 11 bits, shifted. */
static int64_t random_fp16(struct rng *r, int most)
{
    const int64_t x = rng_below(r, 2048) << rng_below(r, most - 10);
    return rng_below(r, 2) ? -x : x;
}

struct fp16_sum {
    double error, size; /* of the chain; sum of |x y| */
};

/* One chain of fused products and additions, in numbers (not multiples). */
static struct fp16_sum fp16_chain(const int64_t *x, const int64_t *y, int n)
{
    __int128 sum = 0, exact = 0, size = 0;
    for (int i = 0; i < n; i++) {
        const __int128 product = (__int128)x[i] * y[i];
        exact += product;
        size += product < 0 ? -product : product;
        sum = fp16_of(sum + product);
    }
    return (struct fp16_sum){fabs((double)(sum - exact)) * 0x1p-48, (double)size * 0x1p-48};
}

static struct kvg_arithmetic fp16_arithmetic(int64_t chain)
{
    struct kvg_arithmetic a = fp32_arithmetic();
    a.qk_operand = a.pv_operand = a.p_format = KVG_F16;
    a.qk_accumulator_bits = a.pv_accumulator_bits = 11;
    a.accumulator_rounding = KVG_ROUND_NEAREST;
    a.qk_chain = a.pv_flush_interval = chain;
    a.qk_smallest_normal = a.pv_smallest_normal = 0x1p-14; /* operands as they are, the largest Q being 1 */
    return a;
}

/* Sums of all sizes, subnormals included: |error| <= ((1 + u)^n - 1) sum |x y| + n u 2^-14, for logits as for
 * values. Ten times the random part, sqrt(n) u, is never reached. */
static void test_nearest_against_integers(void **state)
{
    (void)state;
    struct rng r = {91};
    const struct kvg_problem p = problem_of(KVG_BF16, KVG_E4M3);
    int64_t x[64], y[64];
    int needs_floor = 0;
    double closest = 0.0;
    for (int trial = 0; trial < 40000; trial++) {
        const int n = 1 + (int)rng_below(&r, 64), most = trial % 2 ? 24 : 16;
        struct kvg_arithmetic a = fp16_arithmetic(n);
        const struct kvg_bound b = bound_of(&p, &a);
        for (int i = 0; i < n; i++) { /* 2^-24 .. 1, or small ones only */
            x[i] = random_fp16(&r, most);
            y[i] = random_fp16(&r, trial % 4 == 3 ? 24 : 18);
            if (trial % 3 == 0) {
                x[i] = x[i] < 0 ? -x[i] : x[i];
                y[i] = y[i] < 0 ? -y[i] : y[i];
            }
        }
        const struct fp16_sum sum = fp16_chain(x, y, n);
        struct kvg_bound_row row = {.visible = n, .lse = 0.0, .shrink = 1.0, .q_size = 1.0, .v_size = 1.0};
        kvg_bound_fill_row(&b, &row);
        assert_true(sum.error <= b.logit_rel * sum.size + b.qk_floor * row.q_size);
        assert_true(sum.error <= row.narrow_worst * sum.size + n * row.narrow_floor);
        needs_floor += sum.error > row.narrow_worst * sum.size;
        closest = fmax(closest, sum.error / (sqrt((double)n) * 0x1p-11 * sum.size + n * row.narrow_floor));
        assert_true(closest < 10.0);
    }
    assert_true(needs_floor > 100); /* without the part for subnormals, some sums would exceed the bound */
    assert_true(closest > 0.5);
}

/* A logit of 16 chains, as the lanes of a vector unit form it. Its products lie below the smallest normal number,
 * so every one of them loses up to half a step, whatever the length of the chains. */
static void test_subnormals_in_many_chains(void **state)
{
    (void)state;
    enum { CHAINS = 16 };
    struct rng r = {93};
    const struct kvg_problem p = problem_of(KVG_BF16, KVG_E4M3);
    const int n = (int)p.head_dim / CHAINS;
    struct kvg_arithmetic a = fp16_arithmetic(n + 4);
    const struct kvg_bound b = bound_of(&p, &a);
    int beyond_one_chain = 0;
    for (int trial = 0; trial < 2000; trial++) {
        int64_t x[64], y[64];
        __int128 sums[CHAINS], exact = 0;
        double size = 0.0;
        for (int c = 0; c < CHAINS; c++) {
            sums[c] = 0;
            for (int i = 0; i < n; i++) {
                x[i] = (1 << 23) + rng_below(&r, 1 << 10) * (1 << 13); /* 0.5 to 1 */
                y[i] = (1 + rng_below(&r, 3)) * (trial % 2          ? 1
                                                 : rng_below(&r, 2) ? 1
                                                                    : -1); /* 2^-24 to 3 2^-24 */
                const __int128 product = (__int128)x[i] * y[i];
                exact += product;
                size += fabs((double)product) * 0x1p-48;
                sums[c] = fp16_of(sums[c] + product);
            }
        }
        for (int step = 1; step < CHAINS; step *= 2) /* the tree */
            for (int c = 0; c < CHAINS; c += 2 * step)
                sums[c] = fp16_of(sums[c] + sums[c + step]);
        const double error = fabs((double)(sums[0] - exact)) * 0x1p-48;
        assert_true(error <= b.logit_rel * size + b.qk_floor);
        beyond_one_chain += error > b.logit_rel * size + (double)(n + 4) * 0x1p-25;
    }
    if (beyond_one_chain < 20)
        fail_msg("%d", beyond_one_chain);
}

/* 1 + 2^-11 is a tie and stays 1, so the worst case is reached. Cutting off may lose twice as much. */
static void test_nearest_worst_case_is_reached(void **state)
{
    (void)state;
    const struct kvg_problem p = problem_of(KVG_BF16, KVG_E4M3);
    int64_t x[17], y[17];
    struct kvg_arithmetic a = fp16_arithmetic(17);
    const struct kvg_bound nearest = bound_of(&p, &a);
    for (int i = 0; i < 17; i++) {
        x[i] = 1 << 24;
        y[i] = i == 0 ? 1 << 24 : 1 << 13;
    }
    const struct fp16_sum sum = fp16_chain(x, y, 17);
    struct kvg_bound_row row = {.visible = 17, .lse = 0.0, .shrink = 1.0, .v_size = 1.0}, cut = row;
    kvg_bound_fill_row(&nearest, &row);
    assert_true(sum.error == 16 * 0x1p-11);
    assert_true(sum.error > 0.9 * row.narrow_worst * sum.size && sum.error <= row.narrow_worst * sum.size);
    a.accumulator_rounding = KVG_ROUND_TRUNCATE;
    const struct kvg_bound truncated = bound_of(&p, &a);
    kvg_bound_fill_row(&truncated, &cut);
    assert_true(cut.narrow_worst > 2.0 * row.narrow_worst);
    /* No bias, nothing aligned. */
    assert_true(nearest.logit_bias == 0.0 && truncated.logit_bias > 0.0);
    assert_true(nearest.floors.q == 0.0 && nearest.floors.v == 0.0 && truncated.floors.v == 0x1p-14);
    assert_true(truncated.logit_rel > 2.0 * nearest.logit_rel);
    assert_true(truncated.logit_noise > 4.0 * nearest.logit_noise);
    /* FP32 accumulators round to nearest, whatever is declared. */
    a = fp32_arithmetic();
    const struct kvg_bound plain = bound_of(&p, &a);
    a.accumulator_rounding = KVG_ROUND_NEAREST;
    a.qk_smallest_normal = a.pv_smallest_normal = 0x1p-14;
    struct kvg_bound same = bound_of(&p, &a);
    same.nearest = 0;
    assert_memory_equal(&same, &plain, sizeof plain);
}

/* Outputs of 512 keys in chains of 16, by FP16 arithmetic: the probable bound holds, and it is less than half
 * of the bound for cut sums. Equal keys widen it, but not beyond the worst case. */
static void test_nearest_probable(void **state)
{
    (void)state;
    enum { KEYS = 512, CHAIN = 16 };
    struct rng r = {92};
    const struct kvg_problem p = problem_of(KVG_BF16, KVG_E4M3);
    struct kvg_arithmetic a = fp16_arithmetic(CHAIN);
    a.p_format = KVG_F32;
    const struct kvg_bound nearest = bound_of(&p, &a);
    a.accumulator_rounding = KVG_ROUND_TRUNCATE;
    const struct kvg_bound cut = bound_of(&p, &a);
    struct kvg_bound_tail tail;
    kvg_bound_make_tail(KVG_CHECK_ALPHA, 1000, &tail);
    double closest = 0.0;
    for (int trial = 0; trial < 1000; trial++) {
        struct kvg_bound_element e = {0};
        struct kvg_bound_noise noise;
        double error = 0.0;
        for (int from = 0; from < KEYS; from += CHAIN) {
            int64_t x[CHAIN], y[CHAIN];
            __int128 sum = 0, exact = 0;
            for (int i = 0; i < CHAIN; i++) {
                x[i] = 0x4000 + (rng_below(&r, 2048) << 3); /* p of about 2^-10 */
                y[i] = random_fp16(&r, 24);
                const double pv = (double)x[i] * (double)y[i] * 0x1p-48;
                exact += (__int128)x[i] * y[i];
                sum = fp16_of(sum + (__int128)x[i] * y[i]);
                e.exact += pv;
                e.abs_pv += fabs(pv);
                e.sq_pv += pv * pv;
            }
            error += (double)(sum - exact) * 0x1p-48;
        }
        e.emulated = e.exact;
        e.abs_aligned = e.abs_pv;
        e.sq_aligned = e.sq_pv;
        struct kvg_bound_row row = {.visible = KEYS,
                                    .lse = 0.0,
                                    .shrink = 1.0,
                                    .v_size = 1.0,
                                    .repeats = 1.0},
                             row_cut = row, row_equal = row;
        kvg_bound_fill_row(&nearest, &row);
        kvg_bound_fill_row(&cut, &row_cut);
        row_equal.repeats = KEYS;
        kvg_bound_fill_row(&nearest, &row_equal);
        const double allowed = kvg_bound_probable(&nearest, &row, &e, &tail, &tail, &noise);
        const double wide = kvg_bound_probable(&cut, &row_cut, &e, &tail, &tail, &noise);
        const double equal = kvg_bound_probable(&nearest, &row_equal, &e, &tail, &tail, &noise);
        assert_true(fabs(error) <= allowed);
        assert_true(allowed < 0.5 * wide);
        assert_true(equal > allowed && equal < kvg_bound_worst(&nearest, &row_equal, &e) * 1.01);
        closest = fmax(closest, fabs(error) / allowed);
    }
    if (!(closest > 0.02))
        fail_msg("%g", closest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nearest_against_integers),
        cmocka_unit_test(test_nearest_worst_case_is_reached),
        cmocka_unit_test(test_nearest_probable),
        cmocka_unit_test(test_subnormals_in_many_chains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
