/* SPDX-License-Identifier: Apache-2.0
 *
 * test_roofs.c: the loops of the roofs access exactly the bytes that they should, and the work of a case is
 * counted exactly. No expectation depends on a speed.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "harness/prepare/prepared.h"
#include "harness/measure/evict.h"
#include "harness/measure/work.h"
#include "harness/measure/loops.h"
#include "harness/measure/roofs.h"

static const struct kvg_roof_loops *const all_loops[] = {
    &kvg_roof_loops_generic,
#if defined(__x86_64__)
    &kvg_roof_loops_avx2,
    &kvg_roof_loops_avx512,
#endif
};
enum { LOOPS = sizeof all_loops / sizeof all_loops[0] };

/* What a reader must return for `bytes` bytes: the sum of the 64-bit words and of the remaining bytes. */
static uint64_t plain_sum(const unsigned char *data, int64_t bytes)
{
    uint64_t sum = 0, word;
    int64_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        memcpy(&word, data + i, 8);
        sum += word;
    }
    for (; i < bytes; i++)
        sum += data[i];
    return sum;
}

static void fill(unsigned char *data, int64_t bytes)
{
    uint32_t x = 12345;
    for (int64_t i = 0; i < bytes; i++) {
        x = x * 1664525u + 1013904223u;
        data[i] = (unsigned char)(x >> 24);
    }
}

static void reads_every_byte(void **state)
{
    unsigned char data[3000];
    (void)state;
    fill(data, sizeof data);
    for (size_t l = 0; l < LOOPS; l++) {
        if (!all_loops[l]->supported())
            continue;
        for (int64_t bytes = 0; bytes <= 1400; bytes += bytes < 140 ? 1 : 61)
            for (int64_t offset = 0; offset < 5; offset += 3) {
                uint64_t right = plain_sum(data + offset, bytes);
                assert_true(all_loops[l]->read(data + offset, bytes) == right);
                assert_true(all_loops[l]->read_prefetching(data + offset, bytes, data) == right);
            }
    }
}

static void reads_spans(void **state)
{
    static unsigned char data[40000];
    static const int64_t widths[] = {8, 64, 128, 200, 256, 520, 1040};
    (void)state;
    fill(data, sizeof data);
    for (size_t l = 0; l < LOOPS; l++) {
        for (size_t w = 0; w < sizeof widths / sizeof widths[0] && all_loops[l]->supported(); w++) {
            struct kvg_span span = {(const char *)data + 3, 17, widths[w], 2048};
            uint64_t right = 0;
            for (int64_t r = 0; r < span.rows; r++)
                right += plain_sum(data + 3 + r * span.stride, span.row_bytes);
            assert_true(all_loops[l]->read_span(&span) == right);
        }
    }
}

static void reads_streams(void **state)
{
    static unsigned char data[40000];
    (void)state;
    fill(data, sizeof data);
    for (size_t l = 0; l < LOOPS; l++) {
        for (int64_t bytes = 0; bytes < 1500 && all_loops[l]->supported(); bytes += 100) {
            const char *streams[KVG_STREAMS];
            uint64_t right = 0;
            for (int s = 0; s < KVG_STREAMS; s++) {
                streams[s] = (const char *)data + 4000 * s + s;
                right += plain_sum(data + 4000 * s + s, bytes);
            }
            assert_true(all_loops[l]->read_streams(streams, bytes) == right);
        }
    }
}

static void copies_no_more_and_no_less(void **state)
{
    unsigned char *from = aligned_alloc(64, 8192), *to = aligned_alloc(64, 8192);
    (void)state;
    assert_non_null(from);
    assert_non_null(to);
    fill(from, 8192);
    for (size_t l = 0; l < LOOPS; l++) {
        for (int64_t bytes = 0; bytes <= 4096 && all_loops[l]->supported(); bytes += 100) {
            for (int streaming = 0; streaming < 2; streaming++) {
                memset(to, 0xee, 8192);
                (streaming ? all_loops[l]->copy_streaming : all_loops[l]->copy)(to, from, bytes);
                assert_memory_equal(to, from, (size_t)bytes);
                for (int64_t i = bytes; i < bytes + 600; i++)
                    assert_int_equal(to[i], 0xee);
            }
        }
    }
    free(from);
    free(to);
}

/* A step with n lanes and c chains is 2 n c operations. The result shows that all are made: chain i starts at
 * i * 1e-8 in every lane, and each step adds 1e-8. */
static void counts_fmas_that_happen(void **state)
{
    static const int64_t per_step[] = {2 * 10 * 4, 2 * 12 * 8, 2 * 20 * 16};
    static const double chains[] = {10, 12, 20}, lanes[] = {4, 8, 16};
    (void)state;
    for (size_t l = 0; l < LOOPS; l++) {
        if (!all_loops[l]->supported())
            continue;
        int64_t operations = 5;
        double steps = 1000, c = chains[l];
        double right = 1e-8 * lanes[l] * (c * (c - 1) / 2 + c * steps);
        double got = all_loops[l]->fma(1000, &operations);
        assert_int_equal(operations, 5 + 1000 * per_step[l]);
        assert_true(fabs(got - right) < 1e-3 * right);
    }
}

static void widest_loops_are_taken(void **state)
{
    (void)state;
    assert_true(kvg_roof_loops_choose()->supported());
    for (size_t l = 0; l < LOOPS; l++)
        if (all_loops[l]->supported())
            assert_true(kvg_roof_loops_choose() == all_loops[l] || l < 2);
    assert_string_equal(kvg_roof_isa(), kvg_roof_loops_choose()->name);
}

/* ---- the work of a case ---- */

enum { BLOCK = 8, HEADS = 2, DIM = 256, PAGE = BLOCK * HEADS * DIM }; /* a page of e4m3: 4096 bytes */

/* Two sequences of 5 and 20 keys, page tables given, one query each. */
struct small_case {
    struct kvg_prepared p;
    int32_t seq_lens[2], cu_q_lens[3], table[2][4];
};

static void make_small(struct small_case *s, enum kvg_layout layout, void *k, void *v)
{
    memset(s, 0, sizeof *s);
    s->seq_lens[0] = 5;
    s->seq_lens[1] = 20;
    s->cu_q_lens[1] = 1;
    s->cu_q_lens[2] = 2;
    const int32_t table[2][4] = {{6, 0, 0, 0}, {2, 9, 4, 0}};
    memcpy(s->table, table, sizeof table);
    struct kvg_prepared *p = &s->p;
    p->problem = (struct kvg_problem){.phase = KVG_PHASE_DECODE,
                                      .path = KVG_PATH_DEQUANT,
                                      .kv_dtype = KVG_E4M3,
                                      .layout = layout,
                                      .batch = 2,
                                      .q_heads = 6,
                                      .kv_heads = HEADS,
                                      .head_dim = DIM,
                                      .block_size = BLOCK,
                                      .mask = KVG_MASK_CAUSAL,
                                      .threads = 1};
    p->seq_lens = s->seq_lens;
    p->cu_q_lens = s->cu_q_lens;
    p->block_table = s->table[0];
    p->block_table_stride = 4;
    p->k_cache = k;
    p->v_cache = v;
    p->k_pages.data = k;
    p->v_pages.data = v;
    p->k_pages.stride_block = p->v_pages.stride_block = PAGE;
    p->k_pages.stride_slot = p->v_pages.stride_slot = layout == KVG_NHD ? HEADS * DIM : DIM;
    p->k_pages.stride_head = p->v_pages.stride_head = layout == KVG_NHD ? DIM : BLOCK * DIM;
    p->shown.k_cache = k;
    p->shown.v_cache = v;
    p->views.k_cache = p->views.v_cache =
        (struct kvg_cache_view){0, PAGE, p->k_pages.stride_slot, p->k_pages.stride_head, 0};
}

static void counts_bytes_and_flops(void **state)
{
    struct small_case s;
    (void)state;
    make_small(&s, KVG_NHD, NULL, NULL);
    /* 25 keys; K and V; 2 heads of 256 bytes */
    assert_int_equal(kvg_visible_kv_bytes(&s.p), 25 * 2 * HEADS * DIM);
    /* 25 pairs, 6 query heads, 2 products of 256 with an addition each */
    assert_int_equal(kvg_visible_flops(&s.p), 25 * 6 * 4 * DIM);
    s.p.problem.window = 7; /* 5 keys and 7 keys */
    assert_int_equal(kvg_visible_kv_bytes(&s.p), 12 * 2 * HEADS * DIM);
    assert_int_equal(kvg_visible_flops(&s.p), 12 * 6 * 4 * DIM);
    s.p.problem.kv_dtype = KVG_BF16;
    assert_int_equal(kvg_visible_kv_bytes(&s.p), 12 * 2 * HEADS * DIM * 2);
}

static void counts_causal_prefill(void **state)
{
    struct small_case s;
    (void)state;
    make_small(&s, KVG_NHD, NULL, NULL);
    s.cu_q_lens[1] = 5;
    s.cu_q_lens[2] = 25;
    assert_int_equal(kvg_visible_kv_bytes(&s.p), 25 * 2 * HEADS * DIM);
    assert_int_equal(kvg_visible_flops(&s.p), (5 * 6 / 2 + 20 * 21 / 2) * 6 * 4 * DIM);
    s.p.problem.window = 3; /* 1 + 2 + 3 * (n - 2) pairs */
    assert_int_equal(kvg_visible_flops(&s.p), (3 + 3 * 3 + 3 + 3 * 18) * 6 * 4 * DIM);
    assert_int_equal(kvg_visible_kv_bytes(&s.p), 25 * 2 * HEADS * DIM);
    s.p.problem.window = 0;
    s.p.problem.mask = KVG_MASK_FULL;
    assert_int_equal(kvg_visible_flops(&s.p), (25 + 400) * 6 * 4 * DIM);
}

static void counts_append_and_empty(void **state)
{
    struct small_case s;
    (void)state;
    make_small(&s, KVG_NHD, NULL, NULL);
    s.seq_lens[0] = 0; /* its query sees nothing */
    s.cu_q_lens[1] = 1;
    s.cu_q_lens[2] = 5; /* 4 queries at positions 16 .. 19 */
    assert_int_equal(kvg_visible_kv_bytes(&s.p), 20 * 2 * HEADS * DIM);
    assert_int_equal(kvg_visible_flops(&s.p), (17 + 18 + 19 + 20) * 6 * 4 * DIM);
    s.p.problem.window = 2; /* keys 15 .. 19 between them */
    assert_int_equal(kvg_visible_kv_bytes(&s.p), 5 * 2 * HEADS * DIM);
    assert_int_equal(kvg_visible_flops(&s.p), 8 * 6 * 4 * DIM);
}

/* Pages that no sequence owns have no read access, so a loop that reads them ends the program. */
static void gather_reads_owned_pages_alone(void **state)
{
    enum { PAGES = 12 };
    (void)state;
    for (int layout = KVG_NHD; layout <= KVG_HND; layout++) {
        struct small_case s;
        unsigned char *memory[2];
        for (int i = 0; i < 2; i++) {
            memory[i] = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            assert_true(memory[i] != MAP_FAILED);
            memset(memory[i], 1, PAGES * PAGE);
            for (int page = 0; page < PAGES; page++)
                if (page != 6 && page != 2 && page != 9 && page != 4)
                    assert_int_equal(mprotect(memory[i] + page * PAGE, PAGE, PROT_NONE), 0);
        }
        make_small(&s, (enum kvg_layout)layout, memory[0], memory[1]);
        s.p.cache_elements = 0; /* no flush, which would end the program on pages without access, too */
        for (int64_t window = 0; window < 20; window += 6) {
            s.p.problem.window = window;
            double rate = kvg_measure_gather_roof(&s.p, 2);
            assert_true(rate > 0 && isfinite(rate));
        }
        /* the window of 8 keys never reaches page 2, which holds keys 0 to 7 of the second sequence */
        for (int i = 0; i < 2; i++)
            assert_int_equal(mprotect(memory[i] + 2 * PAGE, PAGE, PROT_NONE), 0);
        s.p.problem.window = 8;
        assert_true(kvg_measure_gather_roof(&s.p, 1) > 0);
        for (int i = 0; i < 2; i++)
            munmap(memory[i], PAGES * PAGE);
    }
}

static void no_gather_roof_without_keys(void **state)
{
    struct small_case s;
    (void)state;
    make_small(&s, KVG_NHD, NULL, NULL);
    s.seq_lens[0] = s.seq_lens[1] = 0;
    assert_int_equal(kvg_visible_kv_bytes(&s.p), 0);
    assert_true(isnan(kvg_measure_gather_roof(&s.p, 1)));
}

static void roofs_are_kept_for_a_while(void **state)
{
    struct kvg_meter *meter = kvg_meter_new();
    (void)state;
    assert_non_null(meter);
    struct kvg_roofs first = *kvg_meter_roofs(meter, 1);
    assert_true(first.read > 0 && first.copy > 0 && first.cache > 0 && first.flops > 0);
    assert_true(isfinite(first.read) && isfinite(first.copy) && isfinite(first.cache) &&
                isfinite(first.flops));
    struct kvg_roofs second = *kvg_meter_roofs(meter, 1);
    assert_memory_equal(&first, &second, sizeof first);
    kvg_meter_forget(meter);
    struct kvg_roofs third = *kvg_meter_roofs(meter, 1);
    /* measured again: a limit that was reached once exists */
    assert_true(third.read >= first.read && third.copy >= first.copy && third.cache >= first.cache &&
                third.flops >= first.flops);
    struct kvg_roofs none = *kvg_meter_roofs(meter, 0);
    assert_true(isnan(none.read) && isnan(none.copy) && isnan(none.cache) && isnan(none.flops));
    kvg_meter_sweep(meter);
    kvg_meter_free(meter);
    kvg_meter_free(NULL);
}

static void eviction_changes_nothing(void **state)
{
    unsigned char data[1000], before[1000];
    (void)state;
    fill(data, sizeof data);
    memcpy(before, data, sizeof data);
    kvg_evict_range(data + 1, 998);
    kvg_evict_range(data, 0);
    kvg_evict_range(NULL, 100);
    assert_memory_equal(data, before, sizeof data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_byte),
        cmocka_unit_test(reads_spans),
        cmocka_unit_test(reads_streams),
        cmocka_unit_test(copies_no_more_and_no_less),
        cmocka_unit_test(counts_fmas_that_happen),
        cmocka_unit_test(widest_loops_are_taken),
        cmocka_unit_test(counts_bytes_and_flops),
        cmocka_unit_test(counts_causal_prefill),
        cmocka_unit_test(counts_append_and_empty),
        cmocka_unit_test(gather_reads_owned_pages_alone),
        cmocka_unit_test(no_gather_roof_without_keys),
        cmocka_unit_test(roofs_are_kept_for_a_while),
        cmocka_unit_test(eviction_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
