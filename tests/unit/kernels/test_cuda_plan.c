/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_plan.c: the work division of the Hopper decode kernel, without a GPU. The chunk boundaries are
 * recomputed here in exact integers: every slab belongs to one chunk, a single round is even to one slab, and
 * what a block needs fits an H200 (132 multiprocessors, 232448 bytes of shared memory a block).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/cuda/plan.h"

enum { SMS = 132, SMEM = 232448 };

static struct kvg_problem problem(int64_t batch, int64_t len, int64_t q_heads, int64_t kv_heads, int64_t dim,
                                  enum kvg_dtype kv)
{
    struct kvg_problem p;
    memset(&p, 0, sizeof p);
    p.phase = KVG_PHASE_DECODE;
    p.path = KVG_PATH_DEQUANT;
    p.q_dtype = p.out_dtype = KVG_BF16;
    p.kv_dtype = kv;
    p.batch = p.total_q = batch;
    p.q_heads = q_heads;
    p.kv_heads = kv_heads;
    p.head_dim = dim;
    p.block_size = 16;
    p.max_q_len = 1;
    p.max_seq_len = len;
    p.total_kv = batch * len;
    p.mask = KVG_MASK_CAUSAL;
    return p;
}

/* First slab of chunk j of n slabs, as the kernel works it out. */
static int64_t chunk_begin(const struct kvg_sm90_plan *plan, int64_t n, int64_t j)
{
    const int64_t r = j / plan->chunks_per_round, i = j % plan->chunks_per_round;
    if (r >= plan->rounds)
        return n;
    const uint64_t x =
        (uint64_t)n * (plan->round_start[r] + (uint64_t)plan->round_step[r] * (uint64_t)i) >> 32;
    return (int64_t)x < n ? (int64_t)x : n;
}

static void check_plan(const struct kvg_problem *p, const struct kvg_sm90_plan *plan)
{
    assert_int_equal(plan->heads * plan->row_blocks * plan->splits_per_block, KVG_SM90_WARPS);
    assert_int_equal(p->kv_heads % plan->heads, 0);
    assert_true(plan->row_blocks * plan->column_blocks * 8 >= plan->rows);
    assert_true(plan->columns <= 8 * plan->column_blocks && plan->columns <= plan->rows);
    assert_true(plan->stages >= 2);
    assert_true(plan->smem_bytes <= SMEM);
    assert_int_equal(p->block_size % plan->box_tokens, 0);
    assert_int_equal(plan->split_tokens % plan->box_tokens, 0);
    assert_true(plan->split_tokens * plan->splits_per_block * plan->slabs_per_seq >= p->max_seq_len ||
                p->window);
    assert_true(plan->blocks >= 1 && plan->blocks <= SMS);
    /* bytes: one row of floats and a pair of statistics for every partial row */
    assert_true(plan->workspace_bytes >= plan->partial_rows * (p->head_dim * 4 + 8));

    const int64_t chunks = plan->rounds * plan->chunks_per_round;
    const int64_t lists[] = {0,      1, 2, chunks - 1, chunks, chunks + 1, p->batch * plan->slabs_per_seq,
                             1000003};
    for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++) {
        const int64_t n = lists[k];
        assert_int_equal(chunk_begin(plan, n, 0), 0);
        assert_int_equal(chunk_begin(plan, n, chunks), n);
        for (int64_t j = 0; j < chunks; j++) {
            const int64_t size = chunk_begin(plan, n, j + 1) - chunk_begin(plan, n, j);
            assert_true(size >= 0);
            if (plan->rounds == 1) {
                assert_true(size >= n / chunks);
                assert_true(size <= (n + chunks - 1) / chunks);
            }
        }
    }
}

static void every_shape_has_a_sound_plan(void **state)
{
    (void)state;
    static const int64_t batches[] = {1, 2, 3, 8, 64, 333, 5000},
                         lens[] = {0, 1, 17, 300, 8192, 131072, 1 << 20};
    static const int64_t heads[][2] = {{1, 1},  {7, 1},   {16, 1}, {32, 8}, {14, 2},
                                       {15, 5}, {71, 71}, {64, 8}, {24, 12}};
    static const int64_t dims[] = {64, 96, 128, 192, 256};
    static const enum kvg_dtype kinds[] = {KVG_BF16, KVG_E4M3, KVG_E5M2};
    char why[200] = "";
    for (size_t b = 0; b < 7; b++)
        for (size_t l = 0; l < 7; l++)
            for (size_t h = 0; h < 9; h++)
                for (size_t d = 0; d < 5; d++)
                    for (size_t k = 0; k < 3; k++) {
                        struct kvg_sm90_plan plan;
                        struct kvg_problem p =
                            problem(batches[b], lens[l], heads[h][0], heads[h][1], dims[d], kinds[k]);
                        p.block_size = 8 << (b % 4);
                        if ((b + l + h) % 3 == 1)
                            p.window = 100;
                        if ((b + l + h) % 3 == 2)
                            p.total_kv = p.total_kv / 2; /* lengths differ */
                        if (kvg_sm90_make_plan(&p, NULL, SMS, SMEM, &plan, why, sizeof why))
                            fail_msg("%s", why);
                        check_plan(&p, &plan);
                    }
}

static void whole_multiples_fall_on_whole_chunks(void **state)
{
    (void)state;
    struct kvg_sm90_plan plan;
    char why[200];
    /* 8 x 32768 tokens, 8 heads of one head a block: 16 chunks a head, two to a sequence. */
    const struct kvg_problem p = problem(8, 32768, 32, 8, 128, KVG_E4M3);
    assert_int_equal(kvg_sm90_make_plan(&p, NULL, SMS, SMEM, &plan, why, sizeof why), 0);
    assert_int_equal(plan.heads, 1);
    assert_int_equal(plan.rounds, 1);
    assert_int_equal(plan.chunks_per_round % p.batch, 0);
    assert_int_equal(p.batch * plan.slabs_per_seq % plan.chunks_per_round, 0);
    const int64_t each = p.batch * plan.slabs_per_seq / plan.chunks_per_round;
    for (int64_t j = 0; j <= plan.chunks_per_round; j++)
        assert_int_equal(chunk_begin(&plan, p.batch * plan.slabs_per_seq, j), j * each);
}

/* The requests of one warp of the lean kernel, in the kernel's order: seen[key] counts boxes. */
static void walk_warp(const struct kvg_problem *p, const struct kvg_sm90_plan *plan,
                      const struct kvg_lean_start *s, int chunk, int warp, int32_t len, uint8_t *seen)
{
    struct kvg_lean_place look[32], ask, c;
    struct kvg_lean_box now[32], later[32];
    const int per = (int)(plan->chunks_per_round / p->batch), b = chunk / per;
    const int32_t s0 = kvg_lean_first_slab(s->share, s->slabs, chunk) - b * s->slabs_per_seq;
    const int32_t s1 = kvg_lean_first_slab(s->share, s->slabs, chunk + 1) - b * s->slabs_per_seq;
    const int32_t tile = plan->tile, tiles = kvg_lean_tiles(s, tile), boxes = 1 << s->boxes_log2;
    int in_load = 0, asked = 0, computed = 0;

    assert_int_equal(tile, boxes * plan->box_tokens);
    assert_true(plan->stages <= 32 / boxes);        /* the first load serves the first requests */
    assert_true(s0 >= 0 && s1 <= s->slabs_per_seq); /* inside the sequence */
    for (int i = 0; i < 32; i++) {
        look[i] = kvg_lean_open(s, s0, warp, i >> s->boxes_log2);
        now[i] = kvg_lean_look(s, &look[i], s1, tile, tiles, i & (boxes - 1));
    }
    memset(later, 0, sizeof later);
    ask = c = kvg_lean_open(s, s0, warp, 0);
    for (int round = 0; kvg_lean_there(&c, s1, len, tile) || round < plan->stages; round++) {
        if (round >= plan->stages) { /* a tile is worked on; its stage takes the next request */
            const int32_t end = c.start + s->split_tokens;
            assert_true(computed < asked);
            for (int32_t key = c.start + c.tile * tile; key < c.start + (c.tile + 1) * tile; key++)
                if (key < end && key < len)
                    assert_int_equal(seen[key], 1); /* brought in before */
            computed++;
            kvg_lean_next(s, &c, tiles);
        }
        if (round == plan->stages)
            assert_true(asked <= plan->stages);
        if (!kvg_lean_there(&ask, s1, len, tile))
            continue;
        if (round == 0 || in_load == 32 / boxes) {
            if (round) {
                in_load = 0;
                memcpy(now, later, sizeof now);
            }
            for (int i = 0; i < 32; i++)
                later[i] = kvg_lean_look(s, &look[i], s1, tile, tiles, i & (boxes - 1));
        }
        for (int i = 0; i < 32; i++) {
            if (i >> s->boxes_log2 != in_load || !now[i].real || now[i].token >= len)
                continue;
            /* the tile that this stage is read as */
            assert_int_equal(now[i].token,
                             ask.start + ask.tile * tile + (i & (boxes - 1)) * plan->box_tokens);
            assert_true(ask.tile < tiles);
            assert_int_equal(now[i].at, now[i].token / p->block_size);
            assert_int_equal(now[i].slot, now[i].token % p->block_size);
            assert_true(now[i].slot + plan->box_tokens <= p->block_size);
            for (int32_t k = 0; k < plan->box_tokens && now[i].token + k < len; k++)
                seen[now[i].token + k]++;
        }
        in_load++;
        asked++;
        kvg_lean_next(s, &ask, tiles);
    }
    assert_int_equal(asked, computed);
}

/* Every chunk, every warp: each key of each sequence is asked for once. Lengths differ from the longest where
 * one slab covers a sequence. Returns 0 where the large kernel takes the problem. */
static int walk(const struct kvg_problem *p, const struct kvg_sm90_tuning *tuning)
{
    static uint8_t seen[40000];
    struct kvg_sm90_plan plan;
    char why[200] = "";
    if (kvg_sm90_make_plan(p, tuning, SMS, SMEM, &plan, why, sizeof why))
        fail_msg("%s", why);
    if (!plan.lean)
        return 0;
    const struct kvg_lean_start s = kvg_sm90_lean_start(p, &plan);
    const int per = (int)(plan.chunks_per_round / p->batch);
    assert_true(plan.chunks_per_round * plan.head_blocks <= SMS);
    assert_true(plan.stages >= 2 && plan.stages <= KVG_SM90_LEAN_STAGES);
    assert_true(plan.smem_bytes <= SMEM);
    for (int b = 0; b < p->batch; b++) {
        const int uniform = p->total_kv == p->batch * p->max_seq_len;
        const int32_t len = (int32_t)(uniform ? p->max_seq_len : p->max_seq_len * b / p->batch);
        memset(seen, 0, sizeof seen);
        for (int chunk = b * per; chunk < (b + 1) * per; chunk++)
            for (int warp = 0; warp < KVG_SM90_WARPS; warp++)
                walk_warp(p, &plan, &s, chunk, warp, len, seen);
        for (int64_t key = 0; key < (int64_t)sizeof seen; key++)
            assert_int_equal(seen[key], key < len);
    }
    return 1;
}

static void lean_warps_ask_for_every_key_once(void **state)
{
    (void)state;
    static const int64_t lens[] = {1,   15,  16,   17,   31,   33,   64,   100,  127,  129,
                                   512, 700, 1025, 2047, 4096, 8191, 8192, 9000, 32768};
    static const int64_t batches[] = {1, 2, 4, 8, 16}, sizes[] = {16, 8, 64, 24, 32, 128};
    static const int64_t splits[] = {0, 16, 48, 80, 4096};
    static const int64_t heads[][2] = {{32, 8}, {8, 8}, {14, 2}, {8, 1}, {15, 5}};
    int lean = 0, n = 0;
    for (size_t l = 0; l < sizeof lens / sizeof lens[0]; l++)
        for (size_t b = 0; b < 5; b++)
            for (size_t k = 0; k < 5; k++, n++) {
                struct kvg_sm90_tuning t;
                memset(&t, 0, sizeof t);
                t.heads = 1, t.rounds = 1, t.split_tokens = splits[k], t.stages = n % 4 == 1 ? 0 : n % 4;
                struct kvg_problem p = problem(batches[b], lens[l], heads[n % 5][0], heads[n % 5][1],
                                               n % 2 ? 64 : 128, n % 3 ? KVG_E4M3 : KVG_BF16);
                p.block_size = sizes[n % 6];
                if (k == 4 && n % 2)
                    p.total_kv -= 1; /* lengths differ: lean only if one slab is enough */
                lean += walk(&p, &t);
            }
    assert_true(lean > n / 2);
}

static void short_work_goes_to_the_lean_kernel(void **state)
{
    (void)state;
    struct kvg_sm90_plan plan;
    struct kvg_sm90_tuning large;
    char why[200];
    memset(&large, 0, sizeof large);
    large.lean = 2;
    const struct {
        int64_t batch, len, window, missing;
        int lean;
    } cases[] = {{1, 8192, 0, 0, 1},   {8, 8192, 0, 0, 1},  {1, 131072, 0, 0, 1}, {8, 32768, 0, 0, 1},
                 {64, 32768, 0, 0, 0}, {1, 8192, 99, 0, 0}, {8, 8192, 0, 5, 0}, /* lengths differ */
                 {5000, 1024, 0, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvg_problem p = problem(cases[i].batch, cases[i].len, 32, 8, 128, KVG_E4M3);
        p.window = cases[i].window;
        p.total_kv -= cases[i].missing;
        assert_int_equal(kvg_sm90_make_plan(&p, NULL, SMS, SMEM, &plan, why, sizeof why), 0);
        assert_int_equal(plan.lean, cases[i].lean);
        p.soft_cap = 30.f;
        assert_int_equal(kvg_sm90_make_plan(&p, NULL, SMS, SMEM, &plan, why, sizeof why), 0);
        assert_int_equal(plan.lean, 0);
        p.soft_cap = 0;
        assert_int_equal(kvg_sm90_make_plan(&p, &large, SMS, SMEM, &plan, why, sizeof why), 0);
        assert_int_equal(plan.lean, 0);
    }
}

static void rounds_shrink(void **state)
{
    (void)state;
    struct kvg_sm90_plan plan;
    char why[200];
    const struct kvg_problem p = problem(64, 131072, 32, 8, 128, KVG_E4M3);
    assert_int_equal(kvg_sm90_make_plan(&p, NULL, SMS, SMEM, &plan, why, sizeof why), 0);
    assert_int_equal(plan.rounds, 3);
    assert_true(plan.dynamic);
    /* 60 % of the list, 60 % of the other 40 %, the rest */
    const double n = 4294967296.0;
    assert_true(plan.round_step[0] * (double)plan.chunks_per_round / n > 0.5999);
    assert_true(plan.round_step[0] * (double)plan.chunks_per_round / n < 0.6001);
    assert_true(plan.round_start[1] / n > 0.5999 && plan.round_start[1] / n < 0.6001);
    assert_true(plan.round_start[2] / n > 0.8399 && plan.round_start[2] / n < 0.8401);
}

static void what_is_not_taken_is_refused_with_a_reason(void **state)
{
    (void)state;
    struct kvg_sm90_plan plan;
    char why[200] = "";
    struct kvg_problem p = problem(1, 1000, 65, 1, 128, KVG_BF16);
    assert_int_equal(kvg_sm90_make_plan(&p, NULL, SMS, SMEM, &plan, why, sizeof why), -1);
    assert_non_null(strstr(why, "65 query rows"));
    p = problem(1, 1000, 8, 8, 128, KVG_BF16);
    p.block_size = 12;
    assert_int_equal(kvg_sm90_make_plan(&p, NULL, SMS, SMEM, &plan, why, sizeof why), -1);
    assert_non_null(strstr(why, "block_size 12"));
    p = problem(1, 1000, 8, 8, 256, KVG_BF16);
    assert_int_equal(kvg_sm90_make_plan(&p, NULL, SMS, 100 * 1024, &plan, why, sizeof why), -1);
    assert_non_null(strstr(why, "shared memory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_has_a_sound_plan),
        cmocka_unit_test(whole_multiples_fall_on_whole_chunks),
        cmocka_unit_test(lean_warps_ask_for_every_key_once),
        cmocka_unit_test(short_work_goes_to_the_lean_kernel),
        cmocka_unit_test(rounds_shrink),
        cmocka_unit_test(what_is_not_taken_is_refused_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
