/* SPDX-License-Identifier: Apache-2.0
 *
 * test_attention_shares.c: shares of classes against the FP64 reference. That runs on a cache in which the
 * values of all other classes are zero, so its output is the share of the class.
 */
#include "tests/unit/attention_fixture.h"
#include "reference/attention_shares.h"

enum { PARTITIONS = 5 };

/* 1 if key t belongs to the class, by the definition. A key may belong to both ends. */
static int belongs(const struct kvg_ref_partition *part, int64_t first, int64_t last, int64_t t,
                   int64_t class)
{
    const int64_t origin = part->from_first_visible ? first : 0;
    if (part->ends)
        return (t - origin) / part->size == ((class ? last : first) - origin) / part->size;
    return (t - origin) / part->size % part->classes == class;
}

/* out[d] = the share of one class of one row: the FP64 reference with the values of all other keys zero. */
static void oracle(struct problem *p, const struct kvg_ref_row *row, const struct kvg_ref_partition *part,
                   int64_t class, double *out)
{
    struct kvg_ref_attention a = p->a;
    const struct shape *s = &p->shape;
    const int64_t bytes = kvg_ref_format_get_info(s->kv_format)->bytes;
    const int64_t size = p->blocks * s->block_size * s->kv_heads * s->head_dim * bytes;
    const int64_t head = row->q_head / (s->q_heads / s->kv_heads);
    unsigned char *v = malloc((size_t)size);
    int64_t first, last;
    double lse;
    assert_non_null(v);
    memcpy(v, p->v, (size_t)size);
    kvg_ref_visible(&a.mask, row->seq, s->seq_len[row->seq], s->q_len[row->seq], row->q_index, &first, &last);
    for (int64_t t = first; t <= last; t++)
        if (!belongs(part, first, last, t, class))
            memset(v + kvg_ref_kv_index(&a.v, row->seq, t, head) * bytes, 0, (size_t)(s->head_dim * bytes));
    a.v.data = v;
    assert_int_equal(kvg_ref_attention_f64(&a, row, 1, out, &lse), 0);
    free(v);
}

static void check_row(struct problem *p, const struct kvg_ref_partition *parts, int64_t r, int64_t classes,
                      const float *shares, const float *out)
{
    const int64_t dim = p->a.head_dim;
    int64_t at = 0;
    for (int i = 0; i < PARTITIONS; i++) {
        double sum[256] = {0}, size[256] = {0}, want[256];
        for (int64_t class = 0; class < parts[i].classes; class ++, at++) {
            const float *share = shares + (r * classes + at) * dim;
            oracle(p, &p->rows[r], &parts[i], class, want);
            for (int64_t d = 0; d < dim; d++) {
                sum[d] += (double)share[d];
                size[d] += fabs((double)share[d]);
                if (!(fabs((double)share[d] - want[d]) <= 2e-6 * (fabs(want[d]) + 1.0)))
                    fail_msg("row %d partition %d class %d dim %d: %g, expected %g", (int)r, i, (int)class,
                             (int)d, (double)share[d], want[d]);
            }
        }
        for (int64_t d = 0; d < dim && !parts[i].ends; d++) /* the shares add up to the output */
            assert_true(fabs(sum[d] - (double)out[r * dim + d]) <= 4e-6 * (size[d] + 1.0));
    }
}

static void test_shares_against_the_oracle(void **state)
{
    (void)state;
    for (int s = 0; s < SHAPES; s++) {
        struct problem p;
        problem_make(&p, &shapes[s], 31);
        const int64_t block = shapes[s].block_size, dim = p.a.head_dim;
        const struct kvg_ref_partition parts[PARTITIONS] = {
            {1, 2 * block, 0, 0}, {100, 7, 0, 0}, {33, 3, 1, 0}, {block, 2, 0, 1}, {5, 2, 1, 1}};
        int64_t classes = 0;
        for (int i = 0; i < PARTITIONS; i++)
            classes += parts[i].classes;
        float *out = malloc((size_t)(p.n_rows * dim) * sizeof *out);
        float *lse = malloc((size_t)p.n_rows * sizeof *lse);
        float *shares = malloc((size_t)(p.n_rows * classes * dim) * sizeof *shares);
        float *again = malloc((size_t)(p.n_rows * classes * dim) * sizeof *again);
        assert_int_equal(kvg_ref_attention_f32(&p.a, p.rows, p.n_rows, out, lse), 0);
        p.a.threads = 3;
        assert_int_equal(kvg_ref_attention_shares(&p.a, parts, PARTITIONS, p.rows, p.n_rows, lse, shares), 0);
        p.a.threads = 1;
        assert_int_equal(kvg_ref_attention_shares(&p.a, parts, PARTITIONS, p.rows, p.n_rows, lse, again), 0);
        assert_memory_equal(shares, again, (size_t)(p.n_rows * classes * dim) * sizeof *shares);
        for (int64_t r = 0; r<p.n_rows; r += p.n_rows> 6 ? p.n_rows / 5 : 1)
            check_row(&p, parts, r, classes, shares, out);
        free(out);
        free(lse);
        free(shares);
        free(again);
        problem_free(&p);
    }
}

/* A row whose context has more than one piece. */
static void test_long_row(void **state)
{
    (void)state;
    const struct shape shape = {.batch = 1,
                                .q_heads = 1,
                                .kv_heads = 1,
                                .head_dim = 16,
                                .block_size = 16,
                                .seq_len = {40000},
                                .q_len = {1},
                                .q_format = KVG_REF_BF16,
                                .kv_format = KVG_REF_E4M3,
                                .causal = 1,
                                .q_factor = 1.0,
                                .v_mean = 0.5};
    const struct kvg_ref_partition parts[2] = {{1, 16, 0, 0}, {16, 2, 0, 1}};
    struct problem p;
    float out[16], lse, shares[18 * 16];
    double want[16];
    problem_make(&p, &shape, 8);
    assert_int_equal(kvg_ref_attention_f32(&p.a, p.rows, 1, out, &lse), 0);
    assert_int_equal(kvg_ref_attention_shares(&p.a, parts, 2, p.rows, 1, &lse, shares), 0);
    for (int64_t class = 0; class < 18; class += class < 15 ? 5 : 1) {
        oracle(&p, &p.rows[0], &parts[class >= 16], class >= 16 ? class - 16 : class, want);
        for (int d = 0; d < 16; d++)
            assert_true(fabs((double)shares[class * 16 + d] - want[d]) <= 2e-6 * (fabs(want[d]) + 1e-2));
    }
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shares_against_the_oracle),
                                       cmocka_unit_test(test_long_row)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
