/* SPDX-License-Identifier: Apache-2.0
 *
 * test_attention_predict.c: attention on a modelled FP8 matrix unit.
 *
 * There are three oracles:
 *   - FlashAttention-3 itself. Its one-chain and two-level builds were measured on an H200: decode, 32/8
 *     heads of 128, Q and K from N(0,1), V = |N(0,1)|, per-tensor scales absmax / 448, against FP64 on the
 *     dequantised tensors.
 *   - A case whose result can be worked out.
 *   - The emulating reference, which must agree on a unit that loses next to nothing.
 *
 * KVG_TEST_LONG=1 adds 128k and 1M tokens (a minute, 1.5 GB).
 */
#include "reference/attention_predict.h"

#include "tests/unit/attention_fixture.h"

static const struct kvg_ref_mma_model *model(const char *name)
{
    const struct kvg_ref_mma_model *m = kvg_ref_mma_model_by_name(name);
    assert_non_null(m);
    return m;
}

/* ---------------------------------------------------------------- one sequence, contiguous */

enum { DIM = 128, GROUP = 4 };

struct long_case {
    uint8_t *q, *k, *v;
    float q_scale, k_scale, v_scale;
    int32_t seq_len, cu_q_lens[2];
    struct kvg_ref_row rows[2 * GROUP];
    int64_t n_rows;
    struct kvg_ref_attention a;
};

/* Box-Muller. The tails must be those of a normal distribution, because the largest value sets the scale. */
static double normal(uint64_t *state)
{
    const double u = ((double)(fixture_random(state) >> 11) + 0.5) * 0x1p-53;
    const double w = ((double)(fixture_random(state) >> 11) + 0.5) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(2 * M_PI * w);
}

static uint8_t *quantised(int64_t count, int nonnegative, uint64_t *state, float *scale)
{
    float *x = malloc((size_t)count * sizeof *x), most = 0;
    uint8_t *codes = malloc((size_t)count);
    assert_non_null(x);
    assert_non_null(codes);
    for (int64_t i = 0; i < count; i++) {
        x[i] = (float)normal(state);
        x[i] = nonnegative ? fabsf(x[i]) : x[i];
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    }
    *scale = most / 448;
    for (int64_t i = 0; i < count; i++)
        x[i] /= *scale;
    kvg_ref_store_row(KVG_REF_E4M3, codes, 0, count, x);
    free(x);
    return codes;
}

static void long_case_view(struct long_case *c, int64_t n, int64_t kv_heads)
{
    c->seq_len = (int32_t)n;
    c->cu_q_lens[0] = 0, c->cu_q_lens[1] = 1;
    c->n_rows = kv_heads * GROUP;
    for (int64_t r = 0; r < c->n_rows; r++)
        c->rows[r] = (struct kvg_ref_row){0, 0, (int32_t)r};
    const struct kvg_ref_kv kv = {.format = KVG_REF_E4M3, .stride_slot = kv_heads * DIM, .stride_head = DIM};
    c->a = (struct kvg_ref_attention){.batch = 1,
                                      .q_heads = kv_heads * GROUP,
                                      .kv_heads = kv_heads,
                                      .head_dim = DIM,
                                      .q_format = KVG_REF_E4M3,
                                      .q = c->q,
                                      .q_stride_token = kv_heads * GROUP * DIM,
                                      .q_stride_head = DIM,
                                      .q_scale = &c->q_scale,
                                      .k = kv,
                                      .v = kv,
                                      .seq_lens = &c->seq_len,
                                      .cu_q_lens = c->cu_q_lens,
                                      .softmax_scale = 1 / sqrt((double)DIM),
                                      .mask = {.kind = KVG_REF_CAUSAL},
                                      .threads = 2};
    c->a.k.data = c->k, c->a.k.scale = &c->k_scale;
    c->a.v.data = c->v, c->a.v.scale = &c->v_scale;
}

static void long_case_free(struct long_case *c)
{
    free(c->q);
    free(c->k);
    free(c->v);
}

/* Least-squares gain of the prediction on the FP64 reference, and its relative L2 error. */
static void gain_and_error(const struct long_case *c, const char *name, int64_t flush, int to_bf16,
                           const double *exact, double *gain, double *error)
{
    static float out[2 * GROUP * DIM];
    const struct kvg_ref_prediction how = {.mma = model(name), .flush_tiles = flush};
    assert_int_equal(kvg_ref_attention_predict(&c->a, &how, c->rows, c->n_rows, out, NULL), 0);
    double cross = 0, square = 0, off = 0;
    for (int64_t i = 0; i < c->n_rows * DIM; i++) {
        const double x = (double)(to_bf16 ? kvg_ref_round(KVG_REF_BF16, out[i]) : out[i]);
        cross += x * exact[i];
        square += exact[i] * exact[i];
        off += (x - exact[i]) * (x - exact[i]);
    }
    *gain = cross / square;
    *error = sqrt(off / square);
}

static void against_flash_attention(int64_t n, int64_t kv_heads, double one_chain, double margin,
                                    double two_level)
{
    static double exact[2 * GROUP * DIM];
    struct long_case c;
    uint64_t state = 20260422 + (uint64_t)n;
    c.q = quantised(kv_heads * GROUP * DIM, 0, &state, &c.q_scale);
    c.k = quantised(n * kv_heads * DIM, 0, &state, &c.k_scale);
    c.v = quantised(n * kv_heads * DIM, 1, &state, &c.v_scale);
    long_case_view(&c, n, kv_heads);
    assert_int_equal(kvg_ref_attention_f64(&c.a, c.rows, c.n_rows, exact, NULL), 0);
    double gain, error;
    gain_and_error(&c, "hopper_wgmma", 0, 1, exact, &gain, &error);
    print_message("%lld keys: one chain gain %.4f error %.4f (measured: gain %.3f)", (long long)n, gain,
                  error, one_chain);
    assert_true(fabs(gain / one_chain - 1) < margin);
    gain_and_error(&c, "hopper_wgmma", 1, 1, exact, &gain, &error);
    print_message("; two levels gain %.4f error %.5f (measured: error %.4f)\n", gain, error, two_level);
    assert_true(error > two_level / 1.3 && error < two_level * 1.3);
    /* A unit with 25 fraction bits keeps the sum. */
    gain_and_error(&c, "blackwell", 0, 0, exact, &gain, &error);
    assert_true(gain > 0.995 && gain < 1.001);
    long_case_free(&c);
}

static void test_published(void **state)
{
    (void)state;
    against_flash_attention(1024, 2, 0.984, 0.005, 0.0023);
    against_flash_attention(8192, 2, 0.869, 0.05, 0.0018);
    if (!getenv("KVG_TEST_SANITIZED")) /* slow under a sanitizer, and runs the same code */
        against_flash_attention(32768, 2, 0.648, 0.05, 0.0018);
    if (getenv("KVG_TEST_LONG")) {
        against_flash_attention(131072, 2, 0.387, 0.10, 0.0018);
        against_flash_attention(1 << 20, 1, 0.132, 0.10, 0.0014);
    }
}

/* ---------------------------------------------------------------- worked out */

/* K = 0 and V = 1: every weight is 2^8, every product is 2^8.
 *
 *   one chain              The sum grows by 2^8 until it reaches 2^22, after 2^14 keys. There the unit is 2^9
 *                          and a product is cut to 0. So the output is min(1, 2^14 / n), exactly for a power
 *                          of two.
 *   flush every tile       Each flush adds 96 * 2^8 without loss.
 *   flush every 512 tiles  Both parts of the sum are full before they are flushed. */
static void test_flat(void **state)
{
    (void)state;
    for (int64_t n = 8192; n <= 65536; n *= 2) {
        struct long_case c = {.q_scale = 1, .k_scale = 1, .v_scale = 0.5f};
        float out[GROUP * DIM], lse[GROUP];
        c.q = malloc(GROUP * DIM), c.k = calloc((size_t)n, DIM), c.v = malloc((size_t)n * DIM);
        assert_non_null(c.q);
        assert_non_null(c.k);
        assert_non_null(c.v);
        memset(c.q, 0x38, GROUP * DIM);
        memset(c.v, 0x38, (size_t)n * DIM);
        long_case_view(&c, n, 1);
        struct kvg_ref_prediction how = {.mma = model("hopper_wgmma")};
        assert_int_equal(kvg_ref_attention_predict(&c.a, &how, c.rows, GROUP, out, lse), 0);
        const float want = n > 16384 ? 0.5f * 16384 / (float)n : 0.5f;
        for (int64_t i = 0; i < GROUP * DIM; i++)
            assert_true(out[i] == want);
        assert_true(fabs((double)lse[0] - log((double)n)) < 1e-6);
        how.flush_tiles = 1;
        assert_int_equal(kvg_ref_attention_predict(&c.a, &how, c.rows, GROUP, out, NULL), 0);
        assert_true(out[0] == 0.5f);
        how.flush_tiles = 512;
        if (n == 65536) {
            /* 683 tiles, the last with 64 keys: 512 tiles hold 49,120 keys, 171 hold 16,416. Both parts of
             * the sum stop at 16,384 keys. */
            assert_int_equal(kvg_ref_attention_predict(&c.a, &how, c.rows, GROUP, out, NULL), 0);
            assert_true(out[0] == 0.5f * (16384 + 16384) / 65536);
        }
        long_case_free(&c);
    }
}

/* ---------------------------------------------------------------- against the emulation */

/* Q, K and V in e4m3: decode, append, prefill, windows, soft cap, ragged, no visible key, several groups of
 * rows. */
static const struct shape fp8_shapes[] = {
    {1, 4, 4, 64, 16, {33}, {1}, KVG_REF_E4M3, KVG_REF_E4M3, 0, 0, 1, 0, 0, 1, 0},
    {3, 8, 2, 128, 16, {100, 0, 2049}, {1, 1, 1}, KVG_REF_E4M3, KVG_REF_E4M3, 1, 1, 1, 0, 0, 1, 1},
    {2, 6, 2, 96, 24, {65, 129}, {65, 129}, KVG_REF_E4M3, KVG_REF_E4M3, 1, 0, 1, 0, 0, 1, 0},
    {2, 4, 2, 64, 16, {300, 77}, {4, 2}, KVG_REF_E4M3, KVG_REF_E4M3, 1, 1, 1, 70, 0, 2, 0},
    {1, 2, 1, 256, 32, {517}, {3}, KVG_REF_E4M3, KVG_REF_E4M3, 0, 0, 0, 0, 30, 8, 0},
    {2, 7, 1, 80, 8, {31, 32}, {5, 40}, KVG_REF_E4M3, KVG_REF_E4M3, 0, 0, 1, 0, 0, 1, 0},
    {1, 34, 1, 40, 16, {1000}, {1}, KVG_REF_E4M3, KVG_REF_E4M3, 0, 0, 1, 0, 0, 1, 2},
};

/* With 25 fraction bits a sum over a tile is off by about 2^-22 of its largest term. If the error of a logit
 * moves a weight across a rounding boundary, the weight changes by 2^-4 of itself, which is rare. So all
 * elements agree within 1e-3, and most within 1e-5. */
static void test_emulation(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof fp8_shapes / sizeof *fp8_shapes; i++) {
        struct problem p;
        problem_make(&p, &fp8_shapes[i], 77 + i);
        const int64_t dim = p.shape.head_dim, count = p.n_rows * dim;
        float *want = malloc((size_t)count * sizeof *want), *got = malloc((size_t)count * sizeof *got);
        float *want_lse = malloc((size_t)p.n_rows * sizeof *want_lse);
        float *got_lse = malloc((size_t)p.n_rows * sizeof *got_lse);
        assert_true(want && got && want_lse && got_lse);
        for (int64_t flush = 0; flush < 4; flush++) {
            const struct kvg_ref_prediction how = {
                .mma = model("blackwell"), .flush_tiles = flush, .tile_first_first = flush == 2};
            const struct kvg_ref_emulation emulation = {.p_format = KVG_REF_E4M3,
                                                        .p_offset_log2 = 8,
                                                        .tile = dim <= 96 ? 128 : 96,
                                                        .tile_last_first = !how.tile_first_first};
            assert_int_equal(kvg_ref_attention_emulate(&p.a, &emulation, p.rows, p.n_rows, want, want_lse),
                             0);
            assert_int_equal(kvg_ref_attention_predict(&p.a, &how, p.rows, p.n_rows, got, got_lse), 0);
            int64_t far = 0;
            double scale = 0;
            for (int64_t e = 0; e < count; e++) /* no fmax: GCC 12 for AArch64 cannot compile its reduction */
                scale = fabs((double)want[e]) > scale ? fabs((double)want[e]) : scale;
            for (int64_t e = 0; e < count; e++) {
                const double off = fabs((double)got[e] - (double)want[e]);
                assert_true(off <= 1e-3 * scale);
                far += off > 1e-5 * scale;
            }
            assert_true(far * 20 < count);
            for (int64_t r = 0; r < p.n_rows; r++)
                assert_true(want_lse[r] == got_lse[r] ||
                            fabs((double)want_lse[r] - (double)got_lse[r]) < 1e-5);
        }
        /* Rows one by one, and on one thread: the same bits. */
        const struct kvg_ref_prediction how = {.mma = model("hopper_wgmma")};
        assert_int_equal(kvg_ref_attention_predict(&p.a, &how, p.rows, p.n_rows, want, NULL), 0);
        p.a.threads = 1;
        for (int64_t r = 0; r < p.n_rows; r++)
            assert_int_equal(kvg_ref_attention_predict(&p.a, &how, p.rows + r, 1, got + r * dim, NULL), 0);
        assert_memory_equal(want, got, (size_t)count * sizeof *want);
        free(want), free(got), free(want_lse), free(got_lse);
        problem_free(&p);
    }
}

static void test_formats(void **state)
{
    (void)state;
    struct problem p;
    problem_make(&p, &shapes[0], 5); /* Q in bf16 */
    float out[4 * 64];
    struct kvg_ref_prediction how = {.mma = model("hopper_wgmma")};
    assert_int_equal(kvg_ref_attention_predict(&p.a, &how, p.rows, p.n_rows, out, NULL), -2);
    problem_free(&p);
    problem_make(&p, &fp8_shapes[0], 5);
    assert_int_equal(kvg_ref_attention_predict(&p.a, &how, p.rows, p.n_rows, out, NULL), 0);
    how.mma = model("cdna3_mfma"); /* takes e4m3fnuz only */
    assert_int_equal(kvg_ref_attention_predict(&p.a, &how, p.rows, p.n_rows, out, NULL), -2);
    problem_free(&p);
    struct shape amd = fp8_shapes[0];
    amd.q_format = amd.kv_format = KVG_REF_E4M3FNUZ;
    problem_make(&p, &amd, 5);
    static double exact[4 * 64];
    assert_int_equal(kvg_ref_attention_predict(&p.a, &how, p.rows, p.n_rows, out, NULL), 0);
    assert_int_equal(kvg_ref_attention_f64(&p.a, p.rows, p.n_rows, exact, NULL), 0);
    double off = 0, square = 0;
    for (int i = 0; i < 4 * 64; i++) {
        off += ((double)out[i] - exact[i]) * ((double)out[i] - exact[i]);
        square += exact[i] * exact[i];
    }
    /* The error of P in the format of e4m3fnuz is at most 2^-4, and 2^-5 / sqrt 3 on average. */
    assert_true(off < square * 0.04 * 0.04);
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_flat),
        cmocka_unit_test(test_emulation),
        cmocka_unit_test(test_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
