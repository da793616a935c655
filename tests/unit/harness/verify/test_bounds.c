/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bounds.c: the bounds against brute force: constants against exhaustive rounding, the worst case
 * against an adversary that turns every rounding in any direction the declaration allows, tails against sums
 * of Poisson and Gaussian probabilities.
 */
#include "reference/tensor_core.h"
#include "tests/unit/bounds_fixture.h"

/* ---------------------------------------------------------------- constants */

/* Largest relative rounding error of bf16 over a binade of FP32 values: close to 2^-8, never above it. */
static void test_unit_roundoff(void **state)
{
    (void)state;
    double most = 0.0;
    for (uint32_t i = 0; i < 1u << 23; i += 7) {
        const double x = 1.0 + (double)i * 0x1p-23;
        const double rounded = nearbyint(x * 128.0) / 128.0; /* 7 fraction bits, ties to even */
        most = fmax(most, fabs(rounded - x) / x);
    }
    assert_true(most <= KVG_U_BF16 && most > 0.99 * KVG_U_BF16);
    const struct kvg_problem p = problem_of(KVG_BF16, KVG_E4M3);
    const struct kvg_arithmetic a = fp32_arithmetic();
    assert_true(bound_of(&p, &a).out_rel == 0x1p-8);
}

/* eta of E4M3 with offset 2^8, against a rounding of this test: 3 fraction bits down to 2^-6, steps of 2^-9
 * below. */
static void test_p_rounding(void **state)
{
    (void)state;
    struct kvg_arithmetic a = fp32_arithmetic();
    const struct kvg_problem p = problem_of(KVG_E4M3, KVG_E4M3);
    a.p_format = KVG_E4M3;
    a.p_offset_log2 = 8;
    a.qk_operand = a.pv_operand = KVG_E4M3;
    const struct kvg_bound b = bound_of(&p, &a);
    struct rng r = {5};
    double closest = 0.0;
    for (int i = 0; i < 2000000; i++) {
        const double w = exp(-18.0 * rng_unit(&r)); /* p / p_max */
        const double running =
            exp(-3.0 * rng_unit(&r)) * (1.0 - w) + w; /* running max over the final, >= w */
        const double x = w / running * 256.0;
        int exponent;
        frexp(x, &exponent);
        const double step = ldexp(1.0, exponent - 4 > -9 ? exponent - 4 : -9);
        const double error = fabs(nearbyint(x / step) * step - x) / 256.0 * running;
        const double eta = fmin(w, fmax(b.p_rel * w, b.p_abs));
        assert_true(error <= eta * (1.0 + 1e-12));
        closest = fmax(closest, error / eta);
    }
    assert_true(closest > 0.999); /* and it is reached */
    assert_true(b.p_rel == 0x1p-4 && b.p_abs == 0x1p-18);
}

/* Which operand roundings are inexact. */
static void test_operands(void **state)
{
    (void)state;
    struct kvg_arithmetic a = fp32_arithmetic();
    struct kvg_problem p = problem_of(KVG_BF16, KVG_E4M3);
    struct kvg_bound b, plain = bound_of(&p, &a);
    struct kvg_error error = {0};
    const double noise = plain.logit_noise;
    assert_true(plain.logit_rel == noise); /* nothing rounds but the sums */
    a.qk_operand = a.pv_operand = KVG_BF16;
    b = bound_of(&p, &a); /* codes are exact in bf16 */
    assert_true(b.v_rel == 0.0 && b.logit_rel == b.logit_noise);
    a.k_scaled_before_qk = a.v_scaled_before_pv = 1;
    b = bound_of(&p, &a);
    assert_true(b.v_rel == 0x1p-8);
    assert_true(fabs(b.logit_rel - b.logit_noise - 0x1p-8) < 1e-6);
    assert_int_equal(kvg_bound_init(&b, &p, &a, 1, 1, "test", &error), 0); /* power-of-two scales */
    assert_true(b.v_rel == 0.0 && b.logit_rel == b.logit_noise);
    p = problem_of(KVG_BF16, KVG_BF16);
    a.k_scaled_before_qk = a.v_scaled_before_pv = 0;
    a.qk_operand = KVG_F16; /* 8 bits of significand fit, the range does not */
    b = bound_of(&p, &a);
    assert_true(b.logit_rel > 2 * 0x1p-11);
    p.kv_dtype = KVG_E5M2; /* e5m2 fits f16, bf16 q does not */
    b = bound_of(&p, &a);
    assert_true(fabs(b.logit_rel - b.logit_noise - 0x1p-11) < 1e-6);
}

/* FP32 rounds to nearest, a narrow accumulator cuts off. */
static void test_accumulators(void **state)
{
    (void)state;
    const struct kvg_problem p = problem_of(KVG_E4M3, KVG_E4M3);
    struct kvg_arithmetic a = fp32_arithmetic();
    a.qk_operand = a.pv_operand = KVG_E4M3;
    struct kvg_bound b = bound_of(&p, &a);
    struct kvg_bound_row row = {.visible = 8192, .lse = 9.0, .shrink = 1.0};
    kvg_bound_fill_row(&b, &row);
    assert_true(row.narrow_worst == 0.0);
    assert_true(row.acc_pv >= 8192 * 0x1p-24 && row.acc_pv < 9000 * 0x1p-24);
    a.pv_accumulator_bits = 14;
    b = bound_of(&p, &a);
    kvg_bound_fill_row(&b, &row);
    assert_true(row.narrow_worst >= 8192 * 0x1p-13);
    a.pv_flush_interval = 128;
    b = bound_of(&p, &a);
    kvg_bound_fill_row(&b, &row);
    assert_true(row.narrow_worst >= 128 * 0x1p-13 && row.narrow_worst < 147 * 0x1p-13);
}

/* A chain of e4m3 products through a unit that keeps 13 fraction bits. */
struct chain {
    double error;          /* error of the unit */
    double plain, aligned; /* what the bound allows without the floors, and with them */
};

static struct chain chain_of(const struct kvg_ref_mma_model *unit, const struct kvg_bound *b,
                             const uint8_t *x, const uint8_t *y, int n)
{
    struct chain c = {0};
    double exact = 0.0;
    for (int i = 0; i < n; i++) {
        const double u = (double)kvg_ref_fp8_decode(KVG_REF_E4M3, x[i]);
        const double v = (double)kvg_ref_fp8_decode(KVG_REF_E4M3, y[i]);
        exact += u * v;
        c.plain += fabs(u * v);
        if (u != 0.0 && v != 0.0)
            c.aligned += fmax(fabs(u), b->floors.q) * fmax(fabs(v), b->floors.k);
    }
    const double units = (n * 18.0 / 16.0 + 2.0) * 0x1p-13;
    c.error = fabs((double)kvg_ref_mma_fp8(unit, 0.0f, KVG_REF_E4M3, x, KVG_REF_E4M3, y, n) - exact);
    c.plain *= units;
    c.aligned *= units;
    return c;
}

/* Subnormal operands lose more than their size suggests: the floors are for them. */
static void test_subnormals_in_narrow_accumulators(void **state)
{
    (void)state;
    static const char *const names[] = {"hopper_wgmma", "ada_mma"};
    static const int codes[][2] = {{0, 0x7e}, {0, 0x0c}, {0x08, 0x40}}; /* all, mostly subnormal, none */
    const struct kvg_problem p = problem_of(KVG_E4M3, KVG_E4M3);
    struct kvg_arithmetic a = fp32_arithmetic();
    struct rng r = {44};
    uint8_t x[128], y[128];
    a.qk_operand = a.pv_operand = a.p_format = KVG_E4M3;
    a.p_offset_log2 = 8;
    struct kvg_bound b = bound_of(&p, &a);
    assert_true(b.floors.q == 0.0 && b.floors.k == 0.0 && b.floors.p == 0.0 && b.floors.v == 0.0);
    a.qk_accumulator_bits = a.pv_accumulator_bits = 14;
    b = bound_of(&p, &a);
    assert_true(b.floors.q == 0x1p-6 && b.floors.k == 0x1p-6 && b.floors.v == 0x1p-6);
    assert_true(b.floors.p == 0x1p-14); /* P is 2^8 times its share of the largest */
    for (int trial = 0; trial < 6000; trial++) {
        const int n = 32 * (1 + (int)rng_below(&r, 4)), one_sign = (int)rng_below(&r, 2);
        const int *range = codes[trial % 3];
        for (int i = 0; i < n; i++) {
            x[i] = (uint8_t)(range[0] + rng_below(&r, range[1] - range[0] + 1));
            y[i] = (uint8_t)(range[0] + rng_below(&r, range[1] - range[0] + 1));
            x[i] |= !one_sign && rng_below(&r, 2) ? 0x80 : 0;
        }
        const struct chain c = chain_of(kvg_ref_mma_model_by_name(names[trial / 3 % 2]), &b, x, y, n);
        assert_true(c.error <= c.aligned);
    }
    /* 2^-9 * 448 is 0.875, but its exponents, -6 and 8, align it as 2^2. So 31 products of 0.94 * 2^-11
     * vanish. */
    memset(x, 0x08, sizeof x);
    memset(y, 0x0f, sizeof y);
    x[0] = 0x01;
    y[0] = 0x7e;
    const struct chain c = chain_of(kvg_ref_mma_model_by_name("hopper_wgmma"), &b, x, y, 32);
    assert_true(c.error == 31.0 * 1.875 * 0x1p-12);
    assert_true(c.error > 3.0 * c.plain && c.error <= c.aligned);
}

/* One key is one logit: the error of its cut sums is the error of the lse. It always has the same sign where
 * all products have one sign. */
static void test_lse_of_cut_logits(void **state)
{
    (void)state;
    const struct kvg_problem p = problem_of(KVG_E4M3, KVG_E4M3);
    struct kvg_arithmetic a = fp32_arithmetic();
    struct rng r = {45};
    uint8_t x[64], y[64];
    double sum = 0.0, size = 0.0, closest = 0.0;
    a.qk_operand = a.pv_operand = KVG_E4M3;
    const struct kvg_bound fp32 = bound_of(&p, &a);
    a.qk_accumulator_bits = 14;
    const struct kvg_bound b = bound_of(&p, &a);
    struct kvg_bound_tail tail;
    kvg_bound_make_tail(KVG_CHECK_ALPHA, 1000, &tail);
    for (int trial = 0; trial < 4000; trial++) {
        const double scale = rng_log_uniform(&r, 1e-4, 10.0);
        const int least = (int)rng_below(&r, 0x40);
        double exact = 0.0, aligned = 0.0;
        for (int i = 0; i < 64; i++) {
            x[i] = (uint8_t)(least + rng_below(&r, 0x20));
            y[i] = (uint8_t)(least + rng_below(&r, 0x20));
            const double u = (double)kvg_ref_fp8_decode(KVG_REF_E4M3, x[i]);
            const double v = (double)kvg_ref_fp8_decode(KVG_REF_E4M3, y[i]);
            exact += u * v;
            aligned += u != 0.0 && v != 0.0 ? fmax(u, 0x1p-6) * fmax(v, 0x1p-6) : 0.0;
        }
        const double cut = (double)kvg_ref_mma_fp8(kvg_ref_mma_model_by_name("hopper_wgmma"), 0.0f,
                                                   KVG_REF_E4M3, x, KVG_REF_E4M3, y, 64);
        struct kvg_bound_row row = {
            .visible = 1, .lse = scale * exact, .shrink = 1.0, .delta_mean = b.logit_rel * scale * aligned};
        kvg_bound_fill_row(&b, &row);
        const double allowed = kvg_bound_lse_probable(&b, &row, &tail), error = scale * (cut - exact);
        assert_true(fabs(error) <= allowed);
        sum += cut - exact;
        size += fabs(cut - exact);
        row.delta_mean = fp32.logit_rel * scale * aligned;
        closest = fmax(closest, fabs(error) / kvg_bound_lse_probable(&fp32, &row, &tail));
    }
    assert_true(sum == -size);  /* never up */
    assert_true(closest > 3.0); /* the allowance for FP32 would be too small */
}

/* ---------------------------------------------------------------- the worst case */

enum { KEYS_MAX = 7 };

/* One output element with everything exact. */
struct small {
    int n;
    double s[KEYS_MAX], spread[KEYS_MAX], v[KEYS_MAX]; /* logits, |scale| sum |q k|, values */
};

/* The sums that the reference gives, by their definition. */
static void small_terms(const struct small *x, const struct kvg_bound *b, struct kvg_bound_row *row,
                        struct kvg_bound_element *e)
{
    double sum = 0.0, max = x->s[0], o = 0.0;
    for (int j = 0; j < x->n; j++)
        max = fmax(max, x->s[j]);
    for (int j = 0; j < x->n; j++)
        sum += exp(x->s[j] - max);
    for (int j = 0; j < x->n; j++)
        o += exp(x->s[j] - max) / sum * x->v[j];
    memset(row, 0, sizeof *row);
    memset(e, 0, sizeof *e);
    row->visible = x->n;
    row->lse = max + log(sum); /* cppcheck-suppress invalidFunctionArg ; n >= 1 */
    e->exact = e->emulated = o;

    for (int j = 0; j < x->n; j++) {
        const double p = exp(x->s[j] - max) / sum, delta = b->logit_rel * x->spread[j];
        const double eta = fmin(p, fmax(b->p_rel * p, b->p_abs / sum));
        e->abs_pv += p * fabs(x->v[j]);
        e->logit_shift += p * expm1(delta) * fabs(x->v[j] - o);
        e->p_rounding += eta * fabs(x->v[j]);
        e->sq_pv += p * p * x->v[j] * x->v[j];
        e->sq_logit += p * p * delta * delta * (x->v[j] - o) * (x->v[j] - o);
        e->abs_aligned = e->abs_pv;
        e->sq_aligned = e->sq_pv;

        row->shrink += p * exp(-delta);
        row->grow += p * expm1(delta);
        row->eta_sum += eta;
        row->delta_mean += p * delta;
    }
    kvg_bound_fill_row(b, row);
}

/* The output where bit j of `turn` is the direction in which logit j errs, bit n + j that of P, 2n + j of V.
 * */
static double turned(const struct small *x, const struct kvg_bound *b, const struct kvg_bound_row *row,
                     unsigned turn, double *lse)
{
    double max = x->s[0], sum = 0.0, acc = 0.0;
    for (int j = 0; j < x->n; j++)
        max = fmax(max, x->s[j]);
    for (int j = 0; j < x->n; j++) {
        const double logit_sign = turn >> j & 1 ? 1.0 : -1.0, p_sign = turn >> (x->n + j) & 1 ? 1.0 : -1.0;
        const double v_sign = turn >> (2 * x->n + j) & 1 ? 1.0 : -1.0;
        /* of `a` only the exponential and the argument: one key cannot use up its allowance for the deepest
         * max */
        const double t = b->logit_rel * x->spread[j] + b->exp_rel + 4.0 * KVG_U_F32 * fabs(row->lse);
        const double w = exp(x->s[j] - max + logit_sign * t);
        const double rounded = w + p_sign * fmin(w, fmax(b->p_rel * w, b->p_abs));
        sum += b->rounded_row_sum ? rounded : w;
        acc += rounded * x->v[j] * (1.0 + v_sign * (b->v_rel + 0.5 * x->n * KVG_U_F32));
    }
    *lse = max + log(sum); /* cppcheck-suppress invalidFunctionArg ; n >= 1 */
    const double o = acc / sum;
    return o + (turn & 1 ? 1.0 : -1.0) * b->out_rel * fabs(o);
}

static void test_worst_case_against_an_adversary(void **state)
{
    (void)state;
    struct rng r = {77};
    double closest = 0.0, closest_lse = 0.0;
    for (int trial = 0; trial < 400; trial++) {
        struct kvg_arithmetic a = fp32_arithmetic();
        struct kvg_problem p = problem_of(KVG_BF16, KVG_E4M3);
        const int e4m3 = (int)rng_below(&r, 2);
        if (e4m3) {
            a.p_format = KVG_E4M3;
            a.p_offset_log2 = 8;
        } else {
            a.p_format = rng_below(&r, 2) ? KVG_BF16 : KVG_F32;
            a.qk_operand = rng_below(&r, 2) ? KVG_BF16 : KVG_F32;
            a.pv_operand = rng_below(&r, 2) ? KVG_BF16 : KVG_F32;
            a.k_scaled_before_qk = a.v_scaled_before_pv = 1;
        }
        a.row_sum_of_rounded_p = (int)rng_below(&r, 2);
        const struct kvg_bound b = bound_of(&p, &a);
        struct small x = {.n = 1 + (int)rng_below(&r, 5)};
        const double spread = rng_log_uniform(&r, 0.01, 30.0), mean = rng_below(&r, 2) ? 1.0 : 0.0;
        for (int j = 0; j < x.n; j++) {
            x.s[j] = spread * rng_normal(&r);
            x.spread[j] = fabs(x.s[j]) + spread * rng_log_uniform(&r, 0.1, 10.0);
            x.v[j] = mean + rng_normal(&r);
        }
        struct kvg_bound_row row;
        struct kvg_bound_element e;
        small_terms(&x, &b, &row, &e);
        const double bound = kvg_bound_worst(&b, &row, &e), lse_bound = kvg_bound_lse_worst(&b, &row);
        for (unsigned turn = 0; turn < 1u << (3 * x.n); turn++) {
            double lse;
            const double error = fabs(turned(&x, &b, &row, turn, &lse) - e.exact);
            if (!(error <= bound))
                fail_msg("trial %d turn %u: error %.9g bound %.9g", trial, turn, error, bound);
            if (!(fabs(lse - row.lse) <= lse_bound))
                fail_msg("trial %d turn %u: lse error %.9g bound %.9g", trial, turn, lse - row.lse,
                         lse_bound);
            closest = fmax(closest, error / bound);
            closest_lse = fmax(closest_lse, fabs(lse - row.lse) / lse_bound);
        }
    }
    /* The adversary comes close to the bound, so it is no larger than it has to be. */
    assert_true(closest > 0.9);
    assert_true(closest_lse > 0.5);
}

/* Logits so large that their errors exceed 1: the bound still holds, and one-hot rows can still be checked.
 * */
static void test_worst_case_of_large_logits(void **state)
{
    (void)state;
    struct kvg_arithmetic a = fp32_arithmetic();
    const struct kvg_problem p = problem_of(KVG_BF16, KVG_E4M3);
    a.qk_operand = KVG_BF16;
    a.k_scaled_before_qk = 1;
    const struct kvg_bound b = bound_of(&p, &a);
    struct small x = {
        .n = 3, .s = {1000.0, 700.0, 650.0}, .spread = {1100.0, 900.0, 900.0}, .v = {1.5, -2.0, 9.0}};
    struct kvg_bound_row row;
    struct kvg_bound_element e;
    small_terms(&x, &b, &row, &e);
    assert_true(kvg_bound_worst(&b, &row, &e) < 0.1); /* one-hot: o = 1.5 whatever the errors */
    x.s[1] = 999.0;                                   /* errors of 4 decide between two keys */
    small_terms(&x, &b, &row, &e);
    const double bound = kvg_bound_worst(&b, &row, &e);
    for (unsigned turn = 0; turn < 1u << 9; turn++) {
        double lse;
        assert_true(fabs(turned(&x, &b, &row, turn, &lse) - e.exact) <= bound);
    }
}

/* ---------------------------------------------------------------- drift of the emulation */

/* P in e4m3 by a rounding of this test: 3 fraction bits down to 2^-6, steps of 2^-9 below. */
static double round_p(double x)
{
    int exponent;
    frexp(x, &exponent);
    const double step = ldexp(1.0, exponent - 4 > -9 ? exponent - 4 : -9);
    return nearbyint(x / step) * step;
}

/* One row, keys [0, n) in splits and tiles, by the definitions of struct kvg_ref_drift. */
static void test_drift(void **state)
{
    (void)state;
    enum { N = 90, D = 8, TILE = 8, SPLIT = 40 };
    struct rng r = {21};
    static float q[D], k[N * D], v[N * D];
    const int32_t seq_lens[1] = {N}, cu_q_lens[2] = {0, 1};
    int moved = 0;
    for (int trial = 0; trial < 20; trial++) {
        for (int i = 0; i < D; i++)
            q[i] = (float)rng_normal(&r);
        for (int i = 0; i < N * D; i++) {
            k[i] = (float)rng_normal(&r);
            v[i] = (float)(1.0 + rng_normal(&r));
        }
        const struct kvg_ref_kv kv = {
            .format = KVG_REF_F32, .stride_block = N * D, .stride_slot = D, .stride_head = D};
        struct kvg_ref_attention a = {.batch = 1,
                                      .q_heads = 1,
                                      .kv_heads = 1,
                                      .head_dim = D,
                                      .q_format = KVG_REF_F32,
                                      .q = q,
                                      .q_stride_token = D,
                                      .q_stride_head = D,
                                      .k = kv,
                                      .v = kv,
                                      .seq_lens = seq_lens,
                                      .cu_q_lens = cu_q_lens,
                                      .softmax_scale = 0.5,
                                      .threads = 1};
        a.k.data = k;
        a.v.data = v;
        const struct kvg_ref_emulation how = {
            .p_format = KVG_REF_E4M3, .p_offset_log2 = 8, .tile = TILE, .split_tokens = SPLIT};
        const struct kvg_ref_drift_model model = {.logit_rel = 1e-4, .max_rel = 2e-4, .logit_abs = 3e-4};
        const struct kvg_ref_row row = {0, 0, 0};
        float out[D], lse;
        double flips[D], sq_flips[D], partial[D], flip_sum, flip_same;
        const struct kvg_ref_drift drift = {flips, sq_flips, partial, &flip_sum, &flip_same};
        assert_int_equal(kvg_ref_attention_drift(&a, &how, &model, &row, 1, out, &lse, &drift), 0);

        double want[4][D] = {{0}}, want_sum = 0.0, total = 0.0;
        for (int pass = 0; pass < 2; pass++) /* the sum over all splits first */
            for (int begin = 0; begin < N; begin += SPLIT) {
                double max = -INFINITY, sum = 0.0, acc[D] = {0}, f1[D] = {0}, f2[D] = {0}, far[D] = {0},
                       f0 = 0.0;
                for (int at = begin; at < begin + SPLIT && at < N; at += TILE) {
                    double s[TILE] = {0}, spread[TILE] = {0}, top = max;
                    const int end = at + TILE < N ? at + TILE : N,
                              last = end < begin + SPLIT ? end : begin + SPLIT;
                    for (int t = at; t < last; t++) {
                        for (int i = 0; i < D; i++) {
                            s[t - at] += 0.5 * (double)q[i] * (double)k[t * D + i];
                            spread[t - at] += 0.5 * fabs((double)q[i] * (double)k[t * D + i]);
                        }
                        top = fmax(top, s[t - at]);
                    }
                    const double shrink = exp(max - top);
                    max = top;
                    sum *= shrink;
                    f0 *= shrink;
                    for (int i = 0; i < D; i++) {
                        acc[i] *= shrink;
                        f1[i] *= shrink;
                        f2[i] *= shrink * shrink;
                        far[i] *= shrink;
                    }
                    for (int t = at; t < last; t++) {
                        const double p = 256.0 * exp(s[t - at] - max);
                        const double theta = 1e-4 * spread[t - at] + 2e-4 * fabs(max) + 3e-4;
                        const double mid = round_p(p);
                        const double f = fmax(mid - round_p(p * exp(-theta)), round_p(p * exp(theta)) - mid);
                        sum += p;
                        f0 += f;
                        moved += f > 0.0;
                        for (int i = 0; i < D; i++) {
                            acc[i] += mid * (double)v[t * D + i];
                            f1[i] += f * fabs((double)v[t * D + i]);
                            f2[i] += f * f * (double)v[t * D + i] * (double)v[t * D + i];
                        }
                    }
                    for (int i = 0; i < D; i++)
                        far[i] = fmax(far[i], fabs(acc[i]));
                }
                const double weight = exp(max);
                if (pass == 0) {
                    total += sum * weight;
                    continue;
                }
                want_sum += f0 * weight / total;
                for (int i = 0; i < D; i++) {
                    want[0][i] += acc[i] * weight / total;
                    want[1][i] += f1[i] * weight / total;
                    want[2][i] += f2[i] * weight / total * weight / total;
                    want[3][i] += far[i] * weight / total * far[i] * weight / total;
                }
            }
        for (int i = 0; i < D; i++) {
            assert_true(fabs((double)out[i] - want[0][i]) <= 1e-5 * fabs(want[3][i]) + 1e-6);
            assert_true(fabs(flips[i] - want[1][i]) <= 1e-5 * want[1][i]);
            assert_true(fabs(sq_flips[i] - want[2][i]) <= 1e-5 * want[2][i]);
            assert_true(fabs(partial[i] - sqrt(want[3][i])) <= 1e-5 * partial[i]);
        }
        assert_true(fabs(flip_sum - want_sum) <= 1e-5 * want_sum);
        assert_true(flip_same == 0.0); /* no two keys alike */
        /* The plain emulation is the same. */
        float plain[D], plain_lse;
        assert_int_equal(kvg_ref_attention_emulate(&a, &how, &row, 1, plain, &plain_lse), 0);
        assert_memory_equal(plain, out, sizeof out);
        assert_memory_equal(&plain_lse, &lse, sizeof lse);
    }
    assert_true(moved > 20 && moved < 2 * 20 * N / 4); /* some keys, not most */
}

/* Three keys that repeat: one that can move moves in all its places at once, and all of these except the
 * first of each split count as the same. */
static void test_drift_of_equal_keys(void **state)
{
    (void)state;
    enum { N = 90, D = 8, SPLIT = 45 };
    struct rng r = {22};
    static float q[D], k[N * D], v[N * D];
    const int32_t seq_lens[1] = {N}, cu_q_lens[2] = {0, 1};
    const struct kvg_ref_emulation how = {
        .p_format = KVG_REF_E4M3, .p_offset_log2 = 8, .tile = SPLIT, .split_tokens = SPLIT};
    const struct kvg_ref_drift_model model = {.logit_rel = 1e-3, .max_rel = 2e-3, .logit_abs = 3e-3};
    const struct kvg_ref_row row = {0, 0, 0};
    int moved = 0;
    for (int trial = 0; trial < 60; trial++) {
        for (int i = 0; i < D; i++)
            q[i] = (float)rng_normal(&r);
        for (int i = 0; i < N * D; i++) {
            k[i] = i < 3 * D ? (float)rng_normal(&r) : k[i - 3 * D];
            v[i] = (float)rng_normal(&r);
        }
        struct kvg_ref_kv kv = {
            .format = KVG_REF_F32, .stride_block = N * D, .stride_slot = D, .stride_head = D};
        struct kvg_ref_attention a = {.batch = 1,
                                      .q_heads = 1,
                                      .kv_heads = 1,
                                      .head_dim = D,
                                      .q_format = KVG_REF_F32,
                                      .q = q,
                                      .q_stride_token = D,
                                      .q_stride_head = D,
                                      .k = kv,
                                      .v = kv,
                                      .seq_lens = seq_lens,
                                      .cu_q_lens = cu_q_lens,
                                      .softmax_scale = 0.5,
                                      .threads = 1};
        a.k.data = k;
        a.v.data = v;
        double flip_sum, flip_same;
        const struct kvg_ref_drift drift = {.flip_sum = &flip_sum, .flip_same = &flip_same};
        assert_int_equal(kvg_ref_attention_drift(&a, &how, &model, &row, 1, NULL, NULL, &drift), 0);
        /* Each key has 15 places in either split, all with one weight. */
        assert_true(fabs(flip_same - flip_sum * 14.0 / 15.0) <= 1e-9 * flip_sum);
        moved += flip_sum > 0.0;
    }
    assert_true(moved > 3);
}

/* ---------------------------------------------------------------- tails */

static void test_bennett(void **state)
{
    (void)state;
    const double tails[] = {5.0, 15.0, 30.0};
    for (int i = 0; i < 3; i++) {
        const double tail = tails[i];
        /* Small terms: a Gaussian tail, t = s sqrt(2 L). */
        assert_true(fabs(kvg_bound_bennett(4.0, 1e-9, tail) / (2.0 * sqrt(2.0 * tail)) - 1.0) < 1e-6);
        /* In general: the definition of its inverse. */
        for (double variance = 1e-9; variance < 1e3; variance *= 7.3) {
            const double t = kvg_bound_bennett(variance, 0.5, tail), u = t * 0.5 / variance;
            assert_true(fabs(variance / 0.25 * ((1.0 + u) * log1p(u) - u) / tail - 1.0) < 1e-6);
        }
        /* Rare large terms: no more than t events of a Poisson count of mean m, with probability e^-L. */
        for (double mean = 1e-6; mean < 300.0; mean *= 5.1) {
            const double t = mean + kvg_bound_bennett(mean, 1.0, tail);
            double beyond = 0.0;
            for (int k = (int)ceil(t); k < (int)ceil(t) + 400; k++)
                beyond += exp(-mean + k * log(mean) - lgamma(k + 1.0));
            assert_true(beyond <= exp(-tail));
        }
    }
    assert_true(kvg_bound_bennett(0.0, 1.0, 5.0) == 0.0);
    assert_true(kvg_bound_bennett(1.0, 0.0, 5.0) == 0.0);
}

static void test_tail(void **state)
{
    (void)state;
    struct kvg_bound_tail tail;
    for (int64_t count = 1; count < 10000000; count *= 13) {
        kvg_bound_make_tail(KVG_CHECK_ALPHA, count, &tail);
        const double alpha = KVG_FALSE_ALARMS_PER_CASE / KVG_RANDOM_CHECKS / (double)count;
        assert_true(fabs(erfc(tail.lambda / sqrt(2.0)) / alpha - 1.0) < 1e-6);
        assert_true(fabs(2.0 * exp(-tail.log_odds) / alpha - 1.0) < 1e-9);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unit_roundoff),
        cmocka_unit_test(test_p_rounding),
        cmocka_unit_test(test_operands),
        cmocka_unit_test(test_accumulators),
        cmocka_unit_test(test_subnormals_in_narrow_accumulators),
        cmocka_unit_test(test_lse_of_cut_logits),
        cmocka_unit_test(test_worst_case_against_an_adversary),
        cmocka_unit_test(test_worst_case_of_large_logits),
        cmocka_unit_test(test_drift),
        cmocka_unit_test(test_drift_of_equal_keys),
        cmocka_unit_test(test_bennett),
        cmocka_unit_test(test_tail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
