/* SPDX-License-Identifier: Apache-2.0
 *
 * test_nearest_sums.c: sizes of the inputs of a row, and numbers of equal keys, against loops over the plain
 * tensors.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "harness/verify/nearest_sums.h"
#include "tests/unit/scalar_attention.h"
#include "harness/prepare/prepare.h"

static void prepare(struct kvg_prepared *p, enum kvg_path path, enum kvg_cache_dtype dtype,
                    enum k_pattern pattern)
{
    const struct values values = {1.0, 1.0, 1.0, pattern, V_NORMAL, SCALE_ABSMAX_448};
    struct kvg_error error = {0};
    struct kvg_case c;
    memset(&c, 0, sizeof c);
    strcpy(c.kernel, "test/scalar");
    strcpy(c.input, "normal");
    c.phase = KVG_PHASE_APPEND;
    c.path = path;
    c.kv_cache_dtype = dtype;
    c.scheme = dtype == KVG_CACHE_AUTO ? KVG_PER_TENSOR : KVG_PER_HEAD;
    c.layer = -1;
    c.batch = 3;
    c.q_len = 2;
    c.context = 77;
    c.q_heads = 6;
    c.kv_heads = 3;
    c.head_dim = 40;
    c.block_size = 16;
    c.lengths = KVG_LENGTHS_RAGGED;
    c.threads = 1;
    c.seed = 12;
    if (kvg_prepared_make(&c, NULL, p, &error) != 0)
        fail_msg("%s", error.text);
    give_values(p, &values, 5);
}

/* Largest number of equal keys, counted in the source: equal source keys have equal codes. */
static int64_t most_equal(const struct kvg_prepared *p, int64_t seq, int64_t head)
{
    const int64_t n = p->seq_lens[seq], d = p->c.head_dim, stride = p->c.kv_heads * d;
    const uint16_t *k = p->k + p->cu_kv_lens[seq] * stride + head * d;
    int64_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t equal = 0;
        for (int64_t j = 0; j < n; j++)
            equal += memcmp(k + i * stride, k + j * stride, (size_t)d * sizeof *k) == 0;
        most = equal > most ? equal : most;
    }
    return most;
}

static struct kvg_arithmetic half_arithmetic(int scaled)
{
    struct kvg_arithmetic a;
    memset(&a, 0, sizeof a);
    a.qk_operand = a.pv_operand = KVG_BF16;
    a.qk_accumulator_bits = a.pv_accumulator_bits = 11;
    a.accumulator_rounding = KVG_ROUND_NEAREST;
    a.pv_flush_interval = 16;
    a.k_scaled_before_qk = a.v_scaled_before_pv = scaled;
    return a;
}

static void check(enum kvg_path path, enum kvg_cache_dtype dtype, enum k_pattern pattern, int scaled)
{
    struct kvg_prepared p;
    prepare(&p, path, dtype, pattern);
    struct kvg_ref_attention a;
    kvg_prepared_dequantised(&p, &a);
    const struct kvg_arithmetic declared = half_arithmetic(scaled);
    struct kvg_error error = {0};
    struct kvg_bound bound;
    struct kvg_nearest_sums n;
    struct kvg_ref_row rows[36];
    int64_t count = 0;
    for (int32_t b = 0; b < 3; b++)
        for (int32_t i = 0; i < p.cu_q_lens[b + 1] - p.cu_q_lens[b]; i++)
            for (int32_t h = 0; h < 6; h++)
                rows[count++] = (struct kvg_ref_row){b, i, h};
    assert_int_equal(kvg_bound_init(&bound, &p.problem, &declared, 0, 0, "test", &error), 0);
    assert_int_equal(kvg_nearest_sums_make(&a, &declared, &bound, rows, count, &n), 0);
    for (int64_t r = 0; r < count; r++) {
        const int64_t g = rows[r].q_head / 2, at = p.scale_stride * g;
        double largest = 0.0;
        for (int64_t d = 0; d < 40; d++) {
            const int64_t q = ((p.cu_q_lens[rows[r].seq] + rows[r].q_index) * 6 + rows[r].q_head) * 40 + d;
            largest = fmax(largest, p.q8 ? fabs((double)kvg_ref_fp8_decode(KVG_REF_E4M3, p.q8[q])) *
                                               (double)p.q_scale[at]
                                         : fabs((double)kvg_ref_bf16_decode(p.q[q])));
        }
        const double want = largest * (double)p.softmax_scale * (scaled ? 1.0 : (double)p.k_scale[at]);
        assert_true(fabs(n.q_size[r] - want) <= 1e-6 * want);
        assert_true(n.v_size[r] == (scaled ? 1.0 : (double)p.v_scale[at]));
        assert_true(n.repeats[r] == (double)most_equal(&p, rows[r].seq, g));
        assert_true(pattern == K_NORMAL ? n.repeats[r] == 1.0 : n.repeats[r] >= p.seq_lens[rows[r].seq] / 5);
    }
    kvg_nearest_sums_free(&n);
    kvg_prepared_free(&p);
}

static void test_rows(void **state)
{
    (void)state;
    for (int pattern = 0; pattern < 2; pattern++) {
        const enum k_pattern k = pattern ? K_VOCABULARY : K_NORMAL;
        check(KVG_PATH_DEQUANT, KVG_CACHE_FP8_E4M3, k, 0);
        check(KVG_PATH_DEQUANT, KVG_CACHE_FP8_E5M2, k, 1);
        check(KVG_PATH_DEQUANT, KVG_CACHE_AUTO, k, 0);
        check(KVG_PATH_FP8, KVG_CACHE_FP8_E4M3, k, 0);
    }
}

/* Kernels with other accumulators need none of these numbers. */
static void test_nothing_for_other_sums(void **state)
{
    (void)state;
    struct kvg_prepared p;
    prepare(&p, KVG_PATH_DEQUANT, KVG_CACHE_FP8_E4M3, K_NORMAL);
    struct kvg_ref_attention a;
    kvg_prepared_dequantised(&p, &a);
    const struct kvg_ref_row row = {0, 0, 0};
    for (int other = 0; other < 2; other++) {
        struct kvg_arithmetic declared = half_arithmetic(0);
        struct kvg_error error = {0};
        struct kvg_bound bound;
        struct kvg_nearest_sums n;
        if (other)
            declared.accumulator_rounding = KVG_ROUND_TRUNCATE;
        else
            declared.qk_accumulator_bits = declared.pv_accumulator_bits = 24;
        assert_int_equal(kvg_bound_init(&bound, &p.problem, &declared, 0, 0, "test", &error), 0);
        assert_int_equal(kvg_nearest_sums_make(&a, &declared, &bound, &row, 1, &n), 0);
        assert_null(n.q_size);
        kvg_nearest_sums_free(&n);
    }
    kvg_prepared_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_nothing_for_other_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
