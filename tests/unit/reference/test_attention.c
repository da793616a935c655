/* SPDX-License-Identifier: Apache-2.0
 *
 * test_attention.c: the FP64 reference against a triple loop, the exact reference against the FP64 reference,
 * and the properties of the exact reference. test_attention_emulate.c tests the emulating and the bounding
 * reference.
 */
#include "tests/unit/attention_fixture.h"
#include "reference/exp2.h"

/* ---------------------------------------------------------------- visible keys */

/* A causal query sees its own key and the keys before it; the last query is at the last key. A window keeps
 * the last `window` of the keys that the query would see. */
static void test_visible(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 9; n++)
        for (int64_t q_len = 1; q_len < 12; q_len++)
            for (int64_t i = 0; i < q_len; i++)
                for (int64_t window = 0; window < 11; window++)
                    for (int causal = 0; causal < 2; causal++) {
                        int64_t first, last;
                        const struct kvg_ref_mask mask = {.kind = causal ? KVG_REF_CAUSAL : KVG_REF_FULL,
                                                          .window = window};
                        kvg_ref_visible(&mask, 0, n, q_len, i, &first, &last);
                        int64_t keys[16], count = 0;
                        for (int64_t j = 0; j < n; j++)
                            if (!causal || j - n <= i - q_len)
                                keys[count++] = j;
                        int64_t skip = window > 0 && count > window ? count - window : 0;
                        if (count == 0) {
                            assert_true(last < first);
                        } else {
                            assert_int_equal(first, keys[skip]);
                            assert_int_equal(last, keys[count - 1]);
                        }
                    }
}

/* 1 if a query at position own of n keys sees key j, from the words of each mask. */
static int sees(enum kvg_ref_mask_kind kind, int64_t n, int64_t own, int64_t window, int64_t parameter,
                int64_t j)
{
    const int64_t right = kind == KVG_REF_FULL ? n - 1 : own;
    if (window > 0 && right - j >= window)
        return 0; /* too far to the left of the last position that a causal query (or any query) has */
    switch (kind) {
    case KVG_REF_FULL:
        return 1;
    case KVG_REF_CHUNKED:
        return j <= own && j / parameter == own / parameter;
    case KVG_REF_PREFIX:
        return j <= own || j < parameter;
    default:
        return j <= own;
    }
}

/* Every mask with every window, key by key. `parameter` is the chunk or the prefix. */
static void test_visible_key_by_key(void **state)
{
    (void)state;
    int64_t shown = 0;
    for (int kind = KVG_REF_CAUSAL; kind <= KVG_REF_PREFIX; kind++)
        for (int32_t parameter = 0; parameter < 12; parameter++)
            for (int64_t n = 0; n < 10; n++)
                for (int64_t q_len = 1; q_len < 12; q_len++)
                    for (int64_t i = 0; i < q_len; i++)
                        for (int64_t window = 0; window < 11; window++) {
                            const int32_t prefixes[2] = {99, parameter};
                            const struct kvg_ref_mask mask = {.kind = (enum kvg_ref_mask_kind)kind,
                                                              .window = window,
                                                              .chunk = parameter > 0 ? parameter : 1,
                                                              .prefix_lens = prefixes};
                            const int64_t p = kind == KVG_REF_CHUNKED ? mask.chunk : parameter;
                            int64_t first, last;
                            kvg_ref_visible(&mask, 1, n, q_len, i, &first, &last);
                            for (int64_t j = 0; j < n; j++) {
                                const int seen = sees(mask.kind, n, n - q_len + i, window, p, j);
                                assert_int_equal(j >= first && j <= last, seen);
                                shown += seen;
                            }
                            assert_true(first >= 0 && last < n);
                        }
    assert_true(shown > 0);
}

/* ---------------------------------------------------------------- oracle */

/* Attention from its definition, element by element. */
static void naive(const struct kvg_ref_attention *a, const struct kvg_ref_row *r, double *out, double *lse)
{
    int64_t n = a->seq_lens[r->seq], q_len = a->cu_q_lens[r->seq + 1] - a->cu_q_lens[r->seq];
    int64_t g = r->q_head / (a->q_heads / a->kv_heads), seen = 0;
    int64_t q_at = (a->cu_q_lens[r->seq] + r->q_index) * a->q_stride_token + r->q_head * a->q_stride_head;
    double sum = 0, weight, vs = a->v.scale[g * a->v.scale_stride];
    double scale = a->softmax_scale * a->q_scale[g * a->q_scale_stride] * a->k.scale[g * a->k.scale_stride];
    for (int64_t d = 0; d < a->head_dim; d++)
        out[d] = 0;
    for (int64_t j = 0; j < n; j++) {
        const int64_t parameter =
            a->mask.kind == KVG_REF_PREFIX ? a->mask.prefix_lens[r->seq] : a->mask.chunk;
        if (!sees(a->mask.kind, n, n - q_len + r->q_index, a->mask.window, parameter, j))
            continue;
        double s = 0;
        for (int64_t d = 0; d < a->head_dim; d++)
            s += (double)kvg_ref_load(a->q_format, a->q, q_at + d) *
                 (double)kvg_ref_load(a->k.format, a->k.data, kvg_ref_kv_index(&a->k, r->seq, j, g) + d);
        s = a->soft_cap > 0 ? a->soft_cap * tanh(s * scale / a->soft_cap) : s * scale;
        sum += weight = exp(s);
        seen++;
        for (int64_t d = 0; d < a->head_dim; d++)
            out[d] += weight * vs *
                      (double)kvg_ref_load(a->v.format, a->v.data, kvg_ref_kv_index(&a->v, r->seq, j, g) + d);
    }
    for (int64_t d = 0; d < a->head_dim && seen; d++)
        out[d] /= sum;
    *lse = seen ? log(sum) : -INFINITY;
}

static void test_oracle_against_triple_loop(void **state)
{
    (void)state;
    for (int s = 0; s < SHAPES; s++) {
        struct problem p;
        problem_make(&p, &shapes[s], 1);
        double *out = malloc((size_t)(p.n_rows * p.a.head_dim) * sizeof *out);
        double *lse = malloc((size_t)p.n_rows * sizeof *lse), expected[256], expected_lse;
        assert_int_equal(kvg_ref_attention_f64(&p.a, p.rows, p.n_rows, out, lse), 0);
        for (int64_t r = 0; r < p.n_rows; r++) {
            naive(&p.a, &p.rows[r], expected, &expected_lse);
            for (int64_t d = 0; d < p.a.head_dim; d++)
                assert_true(fabs(out[r * p.a.head_dim + d] - expected[d]) < 1e-12);
            assert_true(lse[r] == expected_lse || fabs(lse[r] - expected_lse) < 1e-12);
        }
        free(out);
        free(lse);
        problem_free(&p);
    }
}

/* Both references under the chunked and the prefix mask, against the loop over single keys. */
static void test_masked_oracle(void **state)
{
    static const int64_t parameters[] = {1, 3, 16, 1000}, windows[] = {0, 5};
    (void)state;
    for (int s = 0; s < SHAPES; s++)
        for (int c = 0; c < 4 * 2 * 2; c++) {
            struct problem p;
            int32_t prefixes[4];
            problem_make(&p, &shapes[s], 1);
            for (int64_t b = 0; b < 4; b++)
                prefixes[b] = b == 1 ? 0 : (int32_t)parameters[c % 4];
            p.a.mask = (struct kvg_ref_mask){.kind = c / 4 % 2 ? KVG_REF_CHUNKED : KVG_REF_PREFIX,
                                             .window = windows[c / 8],
                                             .chunk = parameters[c % 4],
                                             .prefix_lens = prefixes};
            double *out = malloc((size_t)(p.n_rows * p.a.head_dim) * sizeof *out), expected[256],
                   expected_lse;
            double *lse = malloc((size_t)p.n_rows * sizeof *lse);
            float *out32 = malloc((size_t)(p.n_rows * p.a.head_dim) * sizeof *out32);
            assert_int_equal(kvg_ref_attention_f64(&p.a, p.rows, p.n_rows, out, lse), 0);
            assert_int_equal(kvg_ref_attention_f32(&p.a, p.rows, p.n_rows, out32, NULL), 0);
            for (int64_t r = 0; r < p.n_rows; r++) {
                naive(&p.a, &p.rows[r], expected, &expected_lse);
                for (int64_t d = 0; d < p.a.head_dim; d++) {
                    const int64_t at = r * p.a.head_dim + d;
                    assert_true(fabs(out[at] - expected[d]) < 1e-12);
                    assert_true(fabs((double)out32[at] - expected[d]) < 1e-5 * (1 + fabs(expected[d])));
                }
                assert_true(lse[r] == expected_lse || fabs(lse[r] - expected_lse) < 1e-12);
            }
            free(out);
            free(out32);
            free(lse);
            problem_free(&p);
        }
}

/* ---------------------------------------------------------------- exact */

struct result {
    float *out, *lse;
};

static struct result exact(const struct problem *p)
{
    struct result r = {malloc((size_t)(p->n_rows * p->a.head_dim) * sizeof(float)),
                       malloc((size_t)p->n_rows * sizeof(float))};
    assert_int_equal(kvg_ref_attention_f32(&p->a, p->rows, p->n_rows, r.out, r.lse), 0);
    return r;
}

static void result_free(struct result *r)
{
    free(r->out);
    free(r->lse);
}

/* Relative L2 error of the exact reference; fails when a log-sum-exp is off by more than FP32 rounding. */
static double error_of(struct problem *p)
{
    int64_t n = p->n_rows * p->a.head_dim;
    struct result r = exact(p);
    double *out = malloc((size_t)n * sizeof *out), *lse = malloc((size_t)p->n_rows * sizeof *lse);
    assert_int_equal(kvg_ref_attention_f64(&p->a, p->rows, p->n_rows, out, lse), 0);
    double error = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)r.out[i] - out[i]) * ((double)r.out[i] - out[i]);
        norm += out[i] * out[i];
    }
    for (int64_t i = 0; i < p->n_rows; i++)
        assert_true((double)r.lse[i] == lse[i] ||
                    fabs((double)r.lse[i] - lse[i]) < 2e-7 * fmax(1, fabs(lse[i])));
    free(out);
    free(lse);
    result_free(&r);
    return sqrt(error / norm); /* NaN if anything is NaN */
}

static void test_exact_against_oracle(void **state)
{
    (void)state;
    for (int s = 0; s < SHAPES; s++) {
        struct problem p;
        problem_make(&p, &shapes[s], 2);
        double error = error_of(&p);
        if (!(error < 2e-7))
            fail_msg("shape %d: relative error %g", s, error);
        problem_free(&p);
    }
}

/* 128k keys: values with mean 0 and 1, and logits up to 100 and more. */
static void test_exact_at_128k(void **state)
{
    (void)state;
    int64_t keys = getenv("KVG_TEST_SANITIZED") ? 8192 : 131072;
    const struct {
        double q_factor, v_mean;
    } kind[] = {{1, 0}, {1, 1}, {30, 0}, {30, 1}, {0.01, 1}};
    for (int i = 0; i < 5; i++) {
        struct shape s = {1, 2, 1, 64, 16, {keys}, {1}, KVG_REF_BF16, KVG_REF_E4M3, 0, 0, 1, 0, 0, 1, 0};
        s.q_factor = kind[i].q_factor, s.v_mean = kind[i].v_mean;
        struct problem p;
        problem_make(&p, &s, 3);
        double error = error_of(&p);
        if (!(error < 5e-7))
            fail_msg("case %d: relative error %g", i, error);
        problem_free(&p);
    }
}

/* With a single key the output is its value, whatever its logit, and the log-sum-exp is the logit. */
static void test_one_key(void **state)
{
    (void)state;
    struct shape s = {1, 1, 1, 8, 8, {1}, {1}, KVG_REF_F32, KVG_REF_F32, 0, 0, 1, 0, 0, 1, 0};
    struct problem p;
    problem_make(&p, &s, 4);
    float q[8] = {0}, k[64], v[64], one = 1;
    for (int d = 0; d < 64; d++)
        k[d] = 0, v[d] = (float)(d % 8 - 3);
    p.a.q = q, p.a.k.data = k, p.a.v.data = v, p.table[0] = 0;
    p.a.k.scale = p.a.v.scale = p.a.q_scale = &one;
    p.a.softmax_scale = 1;
    const float logits[] = {0, 1, -1, 2500, -2500, 3e7f};
    for (int i = 0; i < 6; i++) {
        q[3] = logits[i], k[3] = 1;
        struct result r = exact(&p);
        for (int d = 0; d < 8; d++)
            assert_true(r.out[d] == v[d]);
        assert_true(r.lse[0] == logits[i]);
        result_free(&r);
    }
    problem_free(&p);
}

static void test_no_visible_key(void **state)
{
    (void)state;
    struct problem p;
    problem_make(&p, &shapes[7], 5);
    struct result r = exact(&p);
    int empty = 0;
    for (int64_t i = 0; i < p.n_rows; i++) {
        int64_t n = p.shape.seq_len[p.rows[i].seq], q_len = p.shape.q_len[p.rows[i].seq];
        if (n - q_len + p.rows[i].q_index >= 0) {
            assert_true(isfinite(r.lse[i]));
            continue;
        }
        empty++;
        assert_true(r.lse[i] == -INFINITY);
        for (int64_t d = 0; d < p.a.head_dim; d++)
            assert_true(r.out[i * p.a.head_dim + d] == 0);
    }
    assert_int_equal(empty, 32); /* two queries of the empty sequence, 16 heads */
    result_free(&r);
    assert_int_equal(kvg_ref_attention_f32(&p.a, p.rows, 0, NULL, NULL), 0);
    assert_int_equal(kvg_ref_attention_f32(&p.a, p.rows, p.n_rows, NULL, NULL), 0);
    problem_free(&p);
}

/* ---------------------------------------------------------------- properties */

static void assert_same_result(const struct problem *p, const struct result *a, const struct result *b)
{
    assert_memory_equal(a->out, b->out, (size_t)(p->n_rows * p->a.head_dim) * sizeof(float));
    assert_memory_equal(a->lse, b->lse, (size_t)p->n_rows * sizeof(float));
}

static void test_threads_change_no_bit(void **state)
{
    (void)state;
    for (int s = 0; s < SHAPES; s++) {
        struct problem p;
        problem_make(&p, &shapes[s], 6);
        p.a.threads = 1;
        struct result one = exact(&p);
        const int threads[] = {2, 3, 7};
        for (int t = 0; t < 3; t++) {
            p.a.threads = threads[t];
            struct result many = exact(&p);
            assert_same_result(&p, &one, &many);
            result_free(&many);
        }
        result_free(&one);
        problem_free(&p);
    }
}

/* A row computed alone has the bits that it has among all rows, in any order. */
static void test_neighbours_change_no_bit(void **state)
{
    (void)state;
    for (int s = 0; s < SHAPES; s++) {
        struct problem p;
        problem_make(&p, &shapes[s], 7);
        struct result all = exact(&p);
        float *out = malloc((size_t)(p.n_rows * p.a.head_dim) * sizeof(float)), lse;
        for (int64_t r = 0; r < p.n_rows; r++) {
            assert_int_equal(kvg_ref_attention_f32(&p.a, &p.rows[r], 1, out, &lse), 0);
            assert_memory_equal(out, all.out + r * p.a.head_dim, (size_t)p.a.head_dim * sizeof(float));
            assert_memory_equal(&lse, &all.lse[r], sizeof lse);
        }
        struct kvg_ref_row *reversed = malloc((size_t)p.n_rows * sizeof *reversed);
        for (int64_t r = 0; r < p.n_rows; r++)
            reversed[r] = p.rows[p.n_rows - 1 - r];
        assert_int_equal(kvg_ref_attention_f32(&p.a, reversed, p.n_rows, out, NULL), 0);
        for (int64_t r = 0; r < p.n_rows; r++)
            assert_memory_equal(out + (p.n_rows - 1 - r) * p.a.head_dim, all.out + r * p.a.head_dim,
                                (size_t)p.a.head_dim * sizeof(float));
        free(reversed);
        free(out);
        result_free(&all);
        problem_free(&p);
    }
}

/* Rows whose windows are far apart: no row sees the keys between them. */
static void test_scattered_rows(void **state)
{
    (void)state;
    struct shape s = {1, 2, 1, 24, 16, {5000}, {5000}, KVG_REF_BF16, KVG_REF_E4M3, 0, 0, 1, 45, 0, 1, 0};
    struct problem p;
    problem_make(&p, &s, 13);
    int64_t n = 0;
    for (int64_t r = 0; r < p.n_rows; r += 777)
        p.rows[n++] = p.rows[r];
    float out[24 * 16], lse[16], alone[24], lse_alone;
    double oracle[24], lse_oracle;
    assert_true(n <= 16);
    assert_int_equal(kvg_ref_attention_f32(&p.a, p.rows, n, out, lse), 0);
    for (int64_t r = 0; r < n; r++) {
        assert_int_equal(kvg_ref_attention_f32(&p.a, &p.rows[r], 1, alone, &lse_alone), 0);
        assert_int_equal(kvg_ref_attention_f64(&p.a, &p.rows[r], 1, oracle, &lse_oracle), 0);
        assert_memory_equal(alone, out + r * 24, sizeof alone);
        assert_memory_equal(&lse_alone, &lse[r], sizeof lse_alone);
        for (int64_t d = 0; d < 24; d++)
            assert_true(fabs((double)alone[d] - oracle[d]) < 1e-6);
    }
    problem_free(&p);
}

/* Moving pages and changing the block table accordingly changes no bit. */
static void test_pages_permuted(void **state)
{
    (void)state;
    for (int s = 0; s < SHAPES; s++) {
        struct problem p;
        problem_make(&p, &shapes[s], 8);
        struct result before = exact(&p);
        int64_t bytes = kvg_ref_format_get_info(p.shape.kv_format)->bytes * p.a.k.stride_block, n = p.blocks;
        unsigned char *k = malloc((size_t)(n * bytes)), *v = malloc((size_t)(n * bytes));
        for (int64_t b = 0; b < n; b++) {
            memcpy(k + (n - 1 - b) * bytes, p.k + b * bytes, (size_t)bytes);
            memcpy(v + (n - 1 - b) * bytes, p.v + b * bytes, (size_t)bytes);
        }
        for (int64_t i = 0; i < p.a.batch * p.a.k.block_table_stride; i++)
            p.table[i] = (int32_t)(n - 1 - p.table[i]);
        p.a.k.data = k, p.a.v.data = v;
        struct result after = exact(&p);
        assert_same_result(&p, &before, &after);
        result_free(&before);
        result_free(&after);
        free(k);
        free(v);
        problem_free(&p);
    }
}

/* With KV heads and query heads in reverse order, the outputs come in reverse order. Negative strides reverse
 * them. */
static void test_heads_permuted(void **state)
{
    (void)state;
    for (int s = 0; s < SHAPES; s++) {
        struct problem p;
        problem_make(&p, &shapes[s], 9);
        p.a.q_scale = p.q_scale, p.a.q_scale_stride = p.a.k.scale_stride = p.a.v.scale_stride = 0;
        struct result before = exact(&p);
        int64_t q_bytes = kvg_ref_format_get_info(p.shape.q_format)->bytes, dim = p.a.head_dim,
                last = p.a.q_heads - 1;
        int64_t bytes = kvg_ref_format_get_info(p.shape.kv_format)->bytes;
        int64_t kv_offset = (p.a.kv_heads - 1) * p.a.k.stride_head * bytes;
        p.a.q = p.q + last * dim * q_bytes, p.a.q_stride_head = -dim;
        p.a.k.data = p.k + kv_offset, p.a.v.data = p.v + kv_offset;
        p.a.k.stride_head = -p.a.k.stride_head, p.a.v.stride_head = -p.a.v.stride_head;
        struct result after = exact(&p);
        for (int64_t r = 0; r < p.n_rows; r++) {
            int64_t mirror = r / p.a.q_heads * p.a.q_heads + last - r % p.a.q_heads;
            assert_memory_equal(before.out + r * dim, after.out + mirror * dim, (size_t)dim * sizeof(float));
            assert_memory_equal(&before.lse[r], &after.lse[mirror], sizeof(float));
        }
        result_free(&before);
        result_free(&after);
        problem_free(&p);
    }
}

/* K times 2^5 with its scale times 2^-5, and V times 2^-7 with its scale times 2^7: the same numbers, so the
 * same bits. */
static void test_scales_by_powers_of_two(void **state)
{
    (void)state;
    for (int s = 0; s < SHAPES; s++) {
        struct problem p;
        problem_make(&p, &shapes[s], 10);
        int64_t n = p.blocks * p.a.k.stride_block;
        /* bf16 has the range for both factors, and holds the values exactly */
        uint16_t *k = malloc((size_t)n * sizeof *k), *v = malloc((size_t)n * sizeof *v);
        p.a.k.format = p.a.v.format = KVG_REF_BF16;
        struct result result[2];
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t i = 0; i < n; i++) {
                k[i] = kvg_ref_bf16_encode(kvg_ref_load(p.shape.kv_format, p.k, i) * (pass ? 0x1p5f : 1));
                v[i] = kvg_ref_bf16_encode(kvg_ref_load(p.shape.kv_format, p.v, i) * (pass ? 0x1p-7f : 1));
            }
            for (int h = 0; h < 16 && pass; h++)
                p.k_scale[h] *= 0x1p-5f, p.v_scale[h] *= 0x1p7f;
            p.a.k.data = k, p.a.v.data = v;
            result[pass] = exact(&p);
        }
        assert_same_result(&p, &result[0], &result[1]);
        result_free(&result[0]);
        result_free(&result[1]);
        free(k);
        free(v);
        problem_free(&p);
    }
}

/* A contiguous tensor without a block table gives the same bits as the pages. */
static void test_contiguous_view(void **state)
{
    (void)state;
    struct problem p;
    problem_make(&p, &shapes[1], 11);
    struct result paged = exact(&p);
    int64_t longest = fixture_longest(&p.shape), row = p.a.kv_heads * p.a.head_dim;
    uint8_t *k = calloc((size_t)(p.a.batch * longest * row), 1),
            *v = calloc((size_t)(p.a.batch * longest * row), 1);
    for (int64_t b = 0; b < p.a.batch; b++)
        for (int64_t t = 0; t < p.shape.seq_len[b]; t++)
            for (int64_t h = 0; h < p.a.kv_heads; h++) {
                int64_t at = (b * longest + t) * row + h * p.a.head_dim;
                memcpy(k + at, p.k + kvg_ref_kv_index(&p.a.k, b, t, h), (size_t)p.a.head_dim);
                memcpy(v + at, p.v + kvg_ref_kv_index(&p.a.v, b, t, h), (size_t)p.a.head_dim);
            }
    p.a.k.block_table = p.a.v.block_table = NULL;
    p.a.k.stride_block = p.a.v.stride_block = longest * row;
    p.a.k.stride_slot = p.a.v.stride_slot = row;
    p.a.k.stride_head = p.a.v.stride_head = p.a.head_dim;
    p.a.k.data = k, p.a.v.data = v;
    struct result plain = exact(&p);
    assert_same_result(&p, &paged, &plain);
    result_free(&paged);
    result_free(&plain);
    free(k);
    free(v);
    problem_free(&p);
}

/* ---------------------------------------------------------------- NaN */

/* In every problem here, the slots that no sequence owns hold NaN. A NaN in an owned slot reaches the rows
 * that see it and no other row: all dimensions if it is in K, one dimension if it is in V. */
static void test_nan_goes_where_it_is_seen(void **state)
{
    (void)state;
    struct shape s = {1, 4, 2, 64, 16, {150}, {150}, KVG_REF_BF16, KVG_REF_E4M3, 1, 0, 1, 40, 0, 1, 0};
    for (int in_v = 0; in_v < 2; in_v++) {
        struct problem p;
        problem_make(&p, &s, 12);
        struct result clean = exact(&p);
        const int64_t token = 70, head = 1, d_nan = 9;
        unsigned char *data = in_v ? p.v : p.k;
        data[kvg_ref_kv_index(&p.a.k, 0, token, head) + d_nan] = 0x7f;
        struct result r = exact(&p);
        for (int64_t i = 0; i < p.n_rows; i++) {
            int sees =
                p.rows[i].q_head / 2 == head && p.rows[i].q_index >= token && p.rows[i].q_index < token + 40;
            assert_true(isnan(r.lse[i]) == (sees && !in_v));
            for (int64_t d = 0; d < 64; d++) {
                int64_t at = i * 64 + d;
                assert_true(isfinite(clean.out[at]));
                if (sees && (!in_v || d == d_nan))
                    assert_true(isnan(r.out[at]));
                else
                    assert_true(r.out[at] == clean.out[at]);
            }
        }
        result_free(&clean);
        result_free(&r);
        problem_free(&p);
    }
}

/* ---------------------------------------------------------------- functions */

static void test_functions(void **state)
{
    (void)state;
    for (int64_t i = 0; i < 2000000; i += getenv("KVG_TEST_SANITIZED") ? 97 : 1) {
        double x = -1021 + (double)i * 0.00102;
        assert_true(fabs(kvg_exp2(x) / exp2(x) - 1) < 6e-16);
        double y = (double)i * 1.3e-5 - 13, positive = (double)i * 1e-4 + 1e-9, tiny = (double)i * 1e-8;
        assert_true(fabs(kvg_tanh(y) - tanh(y)) < 3e-16);
        assert_true(fabs(kvg_log2(positive) - log2(positive)) < 1e-15 * fmax(1, fabs(log2(positive))));
        assert_true(fabs(kvg_expm1(tiny) - expm1(tiny)) <= 1e-13 * tiny);
        assert_true(fabs(kvg_expm1(positive) / expm1(positive) - 1) < 1e-13);
    }
    assert_true(kvg_exp2(0) == 1 && kvg_exp2(-7) == 0x1p-7 && kvg_exp2(1000) == 0x1p1000);
    assert_true(kvg_exp2(-5000) == 0x1p-1022 && kvg_exp2(-INFINITY) == 0x1p-1022 && isnan(kvg_exp2(NAN)));
    assert_true(kvg_log2(8) == 3 && kvg_log2(0) == -INFINITY && isnan(kvg_log2(NAN)));
    assert_true(kvg_tanh(0) == 0 && kvg_tanh(1e9) == 1 && kvg_tanh(-INFINITY) == -1 && isnan(kvg_tanh(NAN)));
    assert_true(kvg_expm1(0) == 0 && isfinite(kvg_expm1(1e9)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_visible),
        cmocka_unit_test(test_visible_key_by_key),
        cmocka_unit_test(test_masked_oracle),
        cmocka_unit_test(test_oracle_against_triple_loop),
        cmocka_unit_test(test_exact_against_oracle),
        cmocka_unit_test(test_exact_at_128k),
        cmocka_unit_test(test_one_key),
        cmocka_unit_test(test_no_visible_key),
        cmocka_unit_test(test_threads_change_no_bit),
        cmocka_unit_test(test_neighbours_change_no_bit),
        cmocka_unit_test(test_scattered_rows),
        cmocka_unit_test(test_pages_permuted),
        cmocka_unit_test(test_heads_permuted),
        cmocka_unit_test(test_scales_by_powers_of_two),
        cmocka_unit_test(test_contiguous_view),
        cmocka_unit_test(test_nan_goes_where_it_is_seen),
        cmocka_unit_test(test_functions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
