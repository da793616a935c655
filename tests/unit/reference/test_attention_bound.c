/* SPDX-License-Identifier: Apache-2.0
 *
 * test_attention_bound.c: the sums of a bound where FP32 could fail: long contexts, large and tiny delta,
 * values at both ends of its range. Also the inner loops at every vector width, against plain loops, to the
 * bit. test_attention_emulate.c compares the sums of small problems with their formulas.
 */
#include "tests/unit/attention_fixture.h"
#include "reference/attention_tiles.h"

enum { DIMS = 256, ROWS = 16, ELEMENTS = 7 };

static float *numbers(int64_t count, uint64_t *state)
{
    float *x = aligned_alloc(64, ((size_t)count * sizeof *x + 63) / 64 * 64);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++)
        x[i] = fixture_normal(state);
    return x;
}

static float *sizes(int64_t count, uint64_t *state)
{
    float *x = numbers(count, state);
    for (int64_t i = 0; i < count; i++)
        x[i] = fabsf(x[i]);
    return x;
}

/* ---------------------------------------------------------------- inner loops */

static double *widened(const float *x, int64_t count)
{
    double *out = aligned_alloc(64, (size_t)count * sizeof *out);
    assert_non_null(out);
    for (int64_t i = 0; i < count; i++)
        out[i] = (double)x[i];
    return out;
}

static void test_dots_are_plain_sums(void **state)
{
    (void)state;
    uint64_t seed = 88172645463325252u;
    float *q = numbers(ROWS * DIMS, &seed), *k = numbers(KVG_BLOCK_TOKENS * DIMS, &seed);
    double *wide_q = widened(q, ROWS * DIMS);
    double out[ROWS * KVG_BLOCK_TOKENS] __attribute__((aligned(64)));
    float narrow[ROWS * KVG_BLOCK_TOKENS] __attribute__((aligned(64)));
    const struct kvg_tiles *tiles;
    for (int n = 0; (tiles = kvg_tiles_of(n)); n++)
        for (int64_t dim = 16; dim <= DIMS; dim += 48)
            for (int64_t rows = 1; rows <= ROWS; rows++) {
                tiles->dots(wide_q, rows, k, dim, out);
                tiles->dots_f32(q, rows, k, dim, narrow);
                for (int64_t i = 0; i < rows * KVG_BLOCK_TOKENS; i++) {
                    const int64_t r = i / KVG_BLOCK_TOKENS, t = i % KVG_BLOCK_TOKENS;
                    double sum = 0;
                    float sum_f32 = 0;
                    for (int64_t d = 0; d < dim; d++) {
                        sum += wide_q[r * dim + d] * (double)k[d * KVG_BLOCK_TOKENS + t];
                        sum_f32 += q[r * dim + d] * k[d * KVG_BLOCK_TOKENS + t];
                    }
                    if (out[i] != sum || narrow[i] != sum_f32)
                        fail_msg("%s, dim %d, row %d of %d, key %d", tiles->isa, (int)dim, (int)r, (int)rows,
                                 (int)t);
                }
            }
    free(q), free(k), free(wide_q);
}

/* The sums of one element, in the order of the keys. */
static void plain_sums(const struct kvg_bound_tile *t, int64_t d, float sums[KVG_TILE_SUMS])
{
    for (int64_t i = 0; i < t->count; i++) {
        const int64_t at = i * t->dim + d;
        const float x = t->p[i] * t->v_size[at], distance = fabsf(t->v[at] - t->o[d]);
        const float y = t->g[i] * distance, aligned = t->p_aligned[i] * t->v_aligned[at];
        sums[KVG_TILE_ABS] += x;
        sums[KVG_TILE_SQ] += x * x;
        sums[KVG_TILE_SHIFT] += t->shift ? t->shift[i] * distance : y;
        sums[KVG_TILE_SQ_LOGIT] += y * y;
        sums[KVG_TILE_ROUNDING] += t->eta ? t->eta[i] * t->v_size[at] : 0;
        sums[KVG_TILE_ALIGNED] += aligned;
        sums[KVG_TILE_SQ_ALIGNED] += aligned * aligned;
    }
}

static void compare_sums(const struct kvg_tiles *tiles, struct kvg_bound_tile tile, const float *before)
{
    float sums[KVG_TILE_SUMS * DIMS] __attribute__((aligned(64)));
    memcpy(sums, before, (size_t)(KVG_TILE_SUMS * tile.dim) * sizeof *sums);
    tile.sums = sums;
    tiles->add_bound(&tile);
    tiles->add_aligned(&tile);
    for (int64_t d = 0; d < tile.dim; d++) {
        float expected[KVG_TILE_SUMS];
        for (int i = 0; i < KVG_TILE_SUMS; i++)
            expected[i] = before[i * tile.dim + d];
        plain_sums(&tile, d, expected);
        for (int i = 0; i < KVG_TILE_SUMS; i++)
            if (sums[i * tile.dim + d] != expected[i])
                fail_msg("%s, dim %d of %d, sum %d", tiles->isa, (int)d, (int)tile.dim, i);
    }
}

static void compare_pv(const struct kvg_tiles *tiles, const struct kvg_bound_tile *tile)
{
    double sum[DIMS];
    for (int64_t d = 0; d < tile->dim; d++)
        sum[d] = (double)tile->o[d];
    tiles->add_pv(tile->p, tile->v, tile->count, tile->dim, sum);
    for (int64_t d = 0; d < tile->dim; d++) {
        float block = 0;
        for (int64_t t = 0; t < tile->count; t++)
            block += tile->p[t] * tile->v[t * tile->dim + d];
        if (sum[d] != (double)tile->o[d] + (double)block)
            fail_msg("%s, dim %d of %d", tiles->isa, (int)d, (int)tile->dim);
    }
}

static void test_sums_over_keys_are_plain_sums(void **state)
{
    (void)state;
    enum { BLOCK = KVG_BLOCK_TOKENS * DIMS };
    uint64_t seed = 1442695040888963407u;
    float *v = numbers(BLOCK, &seed), *v_size = sizes(BLOCK, &seed), *v_aligned = sizes(BLOCK, &seed);
    float *factors = sizes(5 * KVG_BLOCK_TOKENS, &seed), *o = numbers(DIMS, &seed);
    float *before = sizes(KVG_TILE_SUMS * DIMS, &seed);
    const struct kvg_tiles *tiles;
    int widths = 0;
    for (; (tiles = kvg_tiles_of(widths)); widths++)
        for (int64_t dim = 16; dim <= DIMS; dim += 16)
            for (int64_t count = 1; count <= KVG_BLOCK_TOKENS; count += count < 4 ? 1 : 7)
                for (int given = 0; given < 4; given++) {
                    const struct kvg_bound_tile tile = {
                        .count = count,
                        .dim = dim,
                        .p = factors,
                        .g = factors + KVG_BLOCK_TOKENS,
                        .shift = given & 1 ? factors + 2 * KVG_BLOCK_TOKENS : NULL,
                        .eta = given & 2 ? factors + 3 * KVG_BLOCK_TOKENS : NULL,
                        .v = v,
                        .v_size = v_size,
                        .o = o,
                        .p_aligned = factors + 4 * KVG_BLOCK_TOKENS,
                        .v_aligned = v_aligned};
                    compare_sums(tiles, tile, before);
                    compare_pv(tiles, &tile);
                }
    assert_true(widths >= 1);
    assert_null(kvg_tiles_of(widths + 1));
    assert_null(kvg_tiles_of(-1));
    free(v), free(v_size), free(v_aligned), free(factors), free(o), free(before);
}

/* ---------------------------------------------------------------- sums */

struct sums {
    double *element[ELEMENTS], *row[4];
    float *out;
};

static struct kvg_ref_terms terms_at(const struct sums *s)
{
    return (struct kvg_ref_terms){s->element[0], s->element[1], s->element[2], s->element[3],
                                  s->element[4], s->element[5], s->element[6], s->row[0],
                                  s->row[1],     s->row[2],     s->row[3],     NULL};
}

static struct sums sums_make(const struct kvg_ref_attention *a, const struct kvg_ref_bound_model *model,
                             const struct kvg_ref_row *rows, int64_t n)
{
    struct sums s;
    const size_t elements = (size_t)(n * a->head_dim);
    for (int i = 0; i < ELEMENTS; i++)
        assert_non_null(s.element[i] = malloc(elements * sizeof(double)));
    for (int i = 0; i < 4; i++)
        assert_non_null(s.row[i] = malloc((size_t)n * sizeof(double)));
    assert_non_null(s.out = malloc(elements * sizeof(float)));
    const struct kvg_ref_terms terms = terms_at(&s);
    assert_int_equal(kvg_ref_attention_bound(a, model, rows, n, s.out, NULL, &terms), 0);
    return s;
}

static void sums_free(struct sums *s)
{
    for (int i = 0; i < ELEMENTS; i++)
        free(s->element[i]);
    for (int i = 0; i < 4; i++)
        free(s->row[i]);
    free(s->out);
}

/* A row computed alone has the bits that it has among all rows. */
static void test_neighbours_change_no_bit(void **state)
{
    (void)state;
    const struct kvg_ref_bound_model model = {1e-4, 1e-5, 0x1p-4, 0x1p-18, {0.1, 0.1, 0x1p-8, 0.1, 0, 1}, 0};
    for (int i = 0; i < SHAPES; i++) {
        struct problem p;
        problem_make(&p, &shapes[i], 51);
        struct sums all = sums_make(&p.a, &model, p.rows, p.n_rows);
        const size_t d = (size_t)p.a.head_dim;
        for (int64_t r = 0; r<p.n_rows; r += p.n_rows> 100 ? 11 : 1) {
            struct sums one = sums_make(&p.a, &model, &p.rows[r], 1);
            assert_memory_equal(one.out, all.out + (size_t)r * d, d * sizeof(float));
            for (int j = 0; j < ELEMENTS; j++)
                assert_memory_equal(one.element[j], all.element[j] + (size_t)r * d, d * sizeof(double));
            for (int j = 0; j < 4; j++)
                assert_true(one.row[j][0] == all.row[j][r]);
            sums_free(&one);
        }
        sums_free(&all);
        problem_free(&p);
    }
}

/* 1 if value is not below expected and at most 1e-4 above it, relative. It may be 1e-6 below, for the FP32
 * weights. */
static int just_above(double value, double expected, double slack)
{
    return value >= expected * (1 - 1e-6) - slack && value <= expected * (1 + 1e-4) + slack;
}

/* A context of several pieces, whose largest logits are up to thousands apart. */
static void test_long_contexts(void **state)
{
    (void)state;
    const int64_t keys = 9000, dim = 32;
    /* The rounding of o may turn v - o = 0 into 1e-8 v. So the tolerance of each sum is a part of this
     * sum: */
    const int like[5] = {0, 0, 2, 3, 3};
    struct shape s = {1, 1, 1, 32, 16, {9000}, {1}, KVG_REF_BF16, KVG_REF_BF16, 0, 0, 1, 0, 0, 1, 0.5};
    const double q_factor[] = {0.1, 1, 6, 1e4, 2e5};
    for (int i = 0; i < 5; i++) {
        const struct kvg_ref_bound_model model = {1e-3 / q_factor[i], 0, 0x1p-4, 0x1p-18,
                                                  {0, 0, 0, 0, 0, 0}, 0};
        struct problem p;
        s.q_factor = q_factor[i];
        problem_make(&p, &s, 52);
        struct sums b = sums_make(&p.a, &model, p.rows, 1);
        double o[32], lse, *t = malloc((size_t)keys * sizeof *t), *delta = malloc((size_t)keys * sizeof *t);
        double largest = 0, row[4] = {0}, element[5][32] = {{0}};
        assert_int_equal(kvg_ref_attention_f64(&p.a, p.rows, 1, o, &lse), 0);
        const double scale = p.a.softmax_scale * (double)p.q_scale[0] * (double)p.k_scale[0];
        for (int64_t j = 0; j < keys; j++) {
            t[j] = delta[j] = 0;
            for (int64_t d = 0; d < dim; d++) {
                const double q = (double)kvg_ref_load(s.q_format, p.q, d);
                const double k =
                    (double)kvg_ref_load(s.kv_format, p.k, kvg_ref_kv_index(&p.a.k, 0, j, 0) + d);
                t[j] += scale * q * k;
                delta[j] += model.logit_rel * scale * fabs(q * k);
            }
            largest = fmax(largest, exp(t[j] - lse));
        }
        for (int64_t j = 0; j < keys; j++) {
            const double w = exp(t[j] - lse), eta = fmin(w, fmax(0x1p-4 * w, 0x1p-18 * largest));
            row[0] += w * exp(-delta[j]), row[1] += eta;
            row[2] += w * delta[j], row[3] += w * expm1(delta[j]);
            for (int64_t d = 0; d < dim; d++) {
                const double v =
                    (double)p.v_scale[0] *
                    (double)kvg_ref_load(s.kv_format, p.v, kvg_ref_kv_index(&p.a.v, 0, j, 0) + d);
                element[0][d] += w * fabs(v), element[1][d] += w * expm1(delta[j]) * fabs(v - o[d]);
                element[2][d] += eta * fabs(v), element[3][d] += w * w * v * v;
                element[4][d] += w * w * delta[j] * delta[j] * (v - o[d]) * (v - o[d]);
            }
        }
        assert_true(just_above(row[0], b.row[0][0], 0)); /* shrink divides, so it must not be too large */
        assert_true(1 - b.row[0][0] >= (1 - row[0]) * (1 - 1e-6) &&
                    1 - b.row[0][0] <= (1 - row[0]) * (1 + 1e-4)); /* nor may 1 - shrink be too small */
        for (int j = 1; j < 4; j++)
            assert_true(just_above(b.row[j][0], row[j], 0));
        for (int j = 0; j < 5; j++)
            for (int64_t d = 0; d < dim; d++)
                assert_true(just_above(b.element[j][d], element[j][d], 3e-7 * element[like[j]][d]));
        free(t), free(delta);
        sums_free(&b);
        problem_free(&p);
    }
}

/* ---------------------------------------------------------------- by hand */

/* One query. Only dimension 0 is not zero: the logit of key j is logit[j], its value v[j]. */
struct by_hand {
    float q[16], k[64 * 16], v[64 * 16];
    int32_t seq_len, cu[2];
    struct kvg_ref_attention a;
};

static void by_hand_make(struct by_hand *h, const float *logit, const float *v, int32_t keys)
{
    memset(h, 0, sizeof *h);
    h->q[0] = 1;
    for (int j = 0; j < keys; j++)
        h->k[j * 16] = logit[j], h->v[j * 16] = v[j];
    h->seq_len = keys, h->cu[1] = 1;
    h->a = (struct kvg_ref_attention){.batch = 1,
                                      .q_heads = 1,
                                      .kv_heads = 1,
                                      .head_dim = 16,
                                      .q = h->q,
                                      .q_stride_token = 16,
                                      .q_stride_head = 16,
                                      .k = {.data = h->k, .stride_slot = 16, .stride_head = 16},
                                      .v = {.data = h->v, .stride_slot = 16, .stride_head = 16},
                                      .seq_lens = &h->seq_len,
                                      .cu_q_lens = h->cu,
                                      .softmax_scale = 1,
                                      .mask = {.kind = KVG_REF_CAUSAL},
                                      .threads = 1};
}

/* A single key: its sums are functions of delta. */
static void test_every_delta(void **state)
{
    (void)state;
    const struct kvg_ref_row row = {0, 0, 0};
    const float logit = 3, v = 5;
    struct by_hand h;
    by_hand_make(&h, &logit, &v, 1);
    for (double delta = 1e-9; delta < 59; delta *= 1.01) {
        const struct kvg_ref_bound_model model = {0, delta, 0x1p-9, 0, {0, 0, 0, 0, 0, 0}, 0};
        struct sums s = sums_make(&h.a, &model, &row, 1);
        assert_true(just_above(exp(-delta), s.row[0][0], 0));
        assert_true(just_above(1 - s.row[0][0], -expm1(-delta), 1e-15));
        assert_true(just_above(s.row[1][0], 0x1p-9, 0));
        assert_true(just_above(s.row[2][0], delta, 0));
        assert_true(just_above(s.row[3][0], expm1(delta), 0));
        sums_free(&s);
    }
    /* Larger delta: the sums stay finite, and large enough to make the bound useless. */
    const double large[] = {61, 1e4, 1e30, 1e300};
    for (int i = 0; i < 4; i++) {
        const struct kvg_ref_bound_model model = {0, large[i], 0x1p-9, 0, {0, 0, 0, 0, 0, 0}, 0};
        struct sums s = sums_make(&h.a, &model, &row, 1);
        assert_true(s.row[3][0] > 1e26 && isfinite(s.row[3][0]) && s.row[0][0] >= 0 && s.row[0][0] < 1e-26);
        sums_free(&s);
    }
}

/* The value of the largest weight is zero, so the sums come from weights whose squares FP32 cannot hold. The
 * sum of squares may then be too large, but not zero, and not above the square of the sum. */
static void test_squares_below_fp32(void **state)
{
    (void)state;
    const struct kvg_ref_row row = {0, 0, 0};
    const struct kvg_ref_bound_model model = {0, 0x1p-10, 0x1p-9, 0, {0, 0, 0, 0, 0, 0}, 0};
    for (int depth = 10; depth <= 80; depth += 5) {
        const float logit[] = {0, -(float)depth, -(float)depth - 1}, v[] = {0, 3, -2};
        struct by_hand h;
        by_hand_make(&h, logit, v, 3);
        struct sums s = sums_make(&h.a, &model, &row, 1);
        const double first = exp(-(double)depth), second = exp(-(double)depth - 1), all = 1 + first + second;
        const double a = 3 * first / all, b = 2 * second / all;
        assert_true(just_above(s.element[0][0], a + b, 0));
        assert_true(s.element[3][0] >= (a * a + b * b) * (1 - 1e-6));
        assert_true(s.element[3][0] <= (a + b) * (a + b) * (1 + 1e-3));
        assert_true(depth > 35 || just_above(s.element[3][0], a * a + b * b, 0));
        assert_true(s.element[4][0] >= model.logit_abs * model.logit_abs * (a * a + b * b) * (1 - 1e-4));
        sums_free(&s);
    }
}

/* Squares above FP32 are infinite. The bound is then useless, but it is not NaN and not too small. */
static void test_squares_above_fp32(void **state)
{
    (void)state;
    const struct kvg_ref_row row = {0, 0, 0};
    const struct kvg_ref_bound_model model = {0, 0x1p-10, 0x1p-4, 0x1p-18, {0, 0, 0, 0, 0, 0}, 0};
    const float logit[] = {0, 0}, v[] = {0x1p70f, -0x1p69f};
    struct by_hand h;
    by_hand_make(&h, logit, v, 2);
    struct sums s = sums_make(&h.a, &model, &row, 1);
    assert_true(just_above(s.element[0][0], 0.75 * 0x1p70, 0));
    assert_true(just_above(s.element[1][0], 0.75 * 0x1p70 * expm1(0x1p-10), 0));
    assert_true(just_above(s.element[2][0], 0.75 * 0x1p66, 0));
    assert_true(s.element[3][0] == INFINITY && s.element[4][0] >= 0x1p-20 * 0x1p138);
    for (int i = 0; i < ELEMENTS; i++)
        assert_true(s.element[i][1] == 0); /* a dimension of zeros has sums of zero */
    sums_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dots_are_plain_sums),
        cmocka_unit_test(test_sums_over_keys_are_plain_sums),
        cmocka_unit_test(test_neighbours_change_no_bit),
        cmocka_unit_test(test_long_contexts),
        cmocka_unit_test(test_every_delta),
        cmocka_unit_test(test_squares_below_fp32),
        cmocka_unit_test(test_squares_above_fp32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
