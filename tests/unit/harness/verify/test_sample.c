/* SPDX-License-Identifier: Apache-2.0
 *
 * test_sample.c: the sample of rows covers what sample.h promises.
 */
#include "harness/prepare/prepare.h"
#include "harness/verify/sample.h"
#include "tests/unit/verify_trial.h"

/* ---------------------------------------------------------------- the sample */

static void check_sample(const struct kvg_case *c, int64_t rows_limit, double cost_limit, int every_q_head)
{
    struct kvg_error error = {0};
    struct kvg_prepared p;
    struct kvg_sample sample;
    struct kvg_sample_marks marks[8] = {{0, 0}};
    if (kvg_prepared_make(c, NULL, &p, &error) != 0)
        fail_msg("%s", error.text);
    for (int64_t b = 0; b < c->batch; b++)
        marks[b].tile = 128;
    assert_int_equal(kvg_sample_rows(&p, marks, rows_limit, cost_limit, &sample), 0);
    const int64_t group = c->q_heads / c->kv_heads;
    int kv_seen[8][16] = {{0}}, q_seen[64] = {0};
    for (int64_t i = 0; i < sample.count; i++) {
        const struct kvg_ref_row *at = &sample.rows[i], *before = at - 1;
        assert_in_range(at->seq, 0, c->batch - 1);
        assert_true(at->q_index >= 0 && at->q_index < p.cu_q_lens[at->seq + 1] - p.cu_q_lens[at->seq]);
        assert_in_range(at->q_head, 0, c->q_heads - 1);
        assert_true(kvg_sample_visible(&p, at->seq, at->q_index) > 0);
        kv_seen[at->seq][at->q_head / group] = 1;
        q_seen[at->q_head] = 1;
        if (i > 0) /* sorted, no row twice */
            assert_true(at->seq > before->seq ||
                        (at->seq == before->seq &&
                         (at->q_head / group > before->q_head / group ||
                          (at->q_head / group == before->q_head / group &&
                           (at->q_index > before->q_index ||
                            (at->q_index == before->q_index && at->q_head > before->q_head))))));
    }
    int64_t guaranteed = 0;
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t g = 0; g < c->kv_heads && p.seq_lens[b] > 0; g++, guaranteed++)
            assert_true(kv_seen[b][g]);
    for (int64_t h = 0; h < c->q_heads && every_q_head; h++)
        assert_true(q_seen[h]);
    if (rows_limit > 0)
        assert_true(sample.count <= (rows_limit > guaranteed ? rows_limit : guaranteed));
    kvg_sample_free(&sample);
    kvg_prepared_free(&p);
}

static void test_sample(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    c.batch = 5;
    check_sample(&c, 0, 1e9, 1);
    check_sample(&c, 1, 1e9, 0);
    check_sample(&c, 0, 1.0, 0);
    check_sample(&c, 25, 1e9, 0);
    c.phase = KVG_PHASE_PREFILL;
    c.q_len = c.context;
    c.q_heads = 16;
    c.kv_heads = 2;
    for (int64_t limit = 1; limit < 5000;
         limit = limit * 3 + 1) /* heads take turns: 8 of a group in 8 rows */
        check_sample(&c, limit, 1e12, limit > 5 * 2 * 8 * 2);
    check_sample(&c, 0, 1e7, 1);
}

/* First, last and boundary queries of a prefill are sampled; a small case is sampled whole. */
static void test_sample_positions(void **state)
{
    (void)state;
    struct kvg_case c = plain_case();
    struct kvg_error error = {0};
    struct kvg_prepared p;
    struct kvg_sample sample;
    const struct kvg_sample_marks marks[1] = {{128, 0}};
    int seen[4096] = {0};
    c.phase = KVG_PHASE_PREFILL;
    c.batch = 1;
    c.context = c.q_len = 4000;
    assert_int_equal(kvg_prepared_make(&c, NULL, &p, &error), 0);
    assert_int_equal(kvg_sample_rows(&p, marks, 40 * 8, 1e12, &sample), 0);
    assert_int_equal(sample.count, 40 * 8);
    for (int64_t i = 0; i < sample.count; i++)
        seen[sample.rows[i].q_index] = 1;
    /* keys 15, 16, 17 and 127, 128, 129 in number; likewise at the last boundary of both */
    static const int must[] = {0, 3999, 14, 15, 16, 126, 127, 128, 3998, 3966, 3967, 3968};
    for (size_t i = 0; i < sizeof must / sizeof must[0]; i++)
        assert_true(seen[must[i]]);
    kvg_sample_free(&sample);
    kvg_prepared_free(&p);
    c.context = c.q_len = 60;
    assert_int_equal(kvg_prepared_make(&c, NULL, &p, &error), 0);
    assert_int_equal(kvg_sample_rows(&p, marks, 0, 1e9, &sample), 0);
    assert_int_equal(sample.count, 60 * 8);
    kvg_sample_free(&sample);
    kvg_prepared_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sample),
        cmocka_unit_test(test_sample_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
