/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shared_pages.c: block table, slots and values of cases with shared pages, pages of any size and lists of
 * lengths, against brute force.
 */
#include "harness/measure/work.h"
#include "harness/prepare/permute.h"
#include "tests/unit/prepare_fixture.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* First sequence that fills page `page` whole; -1 if none does or the page is not shared. */
static int64_t holder_of(const struct kvg_prepared *p, int64_t page)
{
    for (int64_t b = 0; b < p->c.batch && page < p->c.shared_pages; b++)
        if (p->seq_lens[b] >= (page + 1) * p->c.block_size)
            return b;
    return -1;
}

static int is_shared(const struct kvg_prepared *p, int64_t b, int64_t page)
{
    return page < p->c.shared_pages && p->seq_lens[b] >= (page + 1) * p->c.block_size;
}

/* A page number belongs to one place of the table, or to one page index of several sequences if that is shared. */
static void check_table(const struct kvg_prepared *p)
{
    const int64_t size = p->c.block_size, stride = p->block_table_stride;
    int64_t *index = malloc((size_t)p->num_blocks * sizeof *index), used = 0;
    for (int64_t i = 0; i < p->num_blocks; i++)
        index[i] = -1;
    for (int64_t b = 0; b < p->c.batch; b++)
        for (int64_t page = 0; page * size < p->seq_lens[b]; page++) {
            const int32_t at = p->block_table[b * stride + page];
            const int64_t holder = is_shared(p, b, page) ? holder_of(p, page) : b;
            assert_in_range(at, 0, p->num_blocks - 1);
            if (holder == b) {
                assert_int_equal(index[at], -1); /* nobody else's */
                index[at] = page;
                used++;
            } else {
                assert_int_equal(at, p->block_table[holder * stride + page]);
                assert_int_equal(index[at], page);
            }
            for (int64_t t = page * size; t < least((page + 1) * size, p->seq_lens[b]); t++)
                assert_int_equal(p->slot_mapping[p->cu_kv_lens[b] + t],
                                 holder == b ? at * size + t % size : -1);
        }
    assert_int_equal(p->num_blocks, used + 3 + used / 16);
    free(index);
}

/* The tokens of shared pages have the values of the holder, all others are unlike the first sequence's. */
static void check_values(const struct kvg_prepared *p)
{
    const int64_t row = p->c.kv_heads * p->c.head_dim;
    for (int64_t b = 0; b < p->c.batch; b++)
        for (int64_t t = 0; t < p->seq_lens[b]; t++) {
            const int64_t page = t / p->c.block_size;
            const uint16_t *k = p->k + (p->cu_kv_lens[b] + t) * row, *v = p->v + (p->cu_kv_lens[b] + t) * row;
            const int64_t from = is_shared(p, b, page) ? holder_of(p, page) : b;
            assert_memory_equal(k, p->k + (p->cu_kv_lens[from] + t) * row, (size_t)row * sizeof *k);
            assert_memory_equal(v, p->v + (p->cu_kv_lens[from] + t) * row, (size_t)row * sizeof *v);
            if (!strcmp(p->c.input, "normal") && b > 0 && from == b && t < p->seq_lens[0])
                assert_memory_not_equal(k, p->k + (p->cu_kv_lens[0] + t) * row, (size_t)row * sizeof *k);
        }
}

/* The reference sees the same keys through pages and through rows: the cache is bf16. */
static void check_cache(const struct kvg_prepared *p)
{
    const int64_t dim = p->c.head_dim;
    const uint16_t *cache = p->k_cache;
    for (int64_t b = 0; b < p->c.batch; b++)
        for (int64_t t = 0; t < p->seq_lens[b]; t++)
            for (int64_t h = 0; h < p->c.kv_heads; h++) {
                const int64_t page = p->block_table[b * p->block_table_stride + t / p->c.block_size];
                assert_memory_equal(
                    cache + page * p->k_pages.stride_block + t % p->c.block_size * p->k_pages.stride_slot +
                        h * p->k_pages.stride_head,
                    p->k + ((p->cu_kv_lens[b] + t) * p->c.kv_heads + h) * dim, (size_t)dim * sizeof *cache);
            }
}

static struct kvg_case base(int64_t block, int64_t shared, enum kvg_lengths lengths, const char *input)
{
    struct kvg_case c = small_case();
    c.kv_cache_dtype = KVG_CACHE_AUTO;
    c.scheme = KVG_PER_TENSOR;
    c.calibration = KVG_CALIBRATION_NONE;
    c.context = 100;
    c.block_size = block;
    c.shared_pages = shared;
    c.lengths = lengths;
    strcpy(c.input, input);
    if (lengths == KVG_LENGTHS_LIST) {
        strcpy(c.list, "1x30+20x100+7x7+2*1x64+0x40");
        c.q_len = 20;
        c.phase = KVG_PHASE_APPEND;
    }
    return c;
}

static void test_brute_force(void **state)
{
    static const int64_t sizes[] = {1, 3, 5, 7, 12, 16};
    static const char *const inputs[] = {"normal", "needle:0.2", "sink"};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int lengths = KVG_LENGTHS_UNIFORM; lengths <= KVG_LENGTHS_LIST; lengths++)
            for (int64_t shared = 0; shared <= 6; shared += 3) {
                struct kvg_case c = base(sizes[i], shared, (enum kvg_lengths)lengths, inputs[i % 3]);
                struct kvg_prepared p;
                struct kvg_error error;
                c.layout = i % 2 ? KVG_HND : KVG_NHD;
                prepare(&c, &p);
                for (int turn = 0; turn < 3; turn++) { /* new values and rotated lengths, then the old ones */
                    assert_int_equal(kvg_prepared_renew(&p, c.seed + (uint64_t)(turn == 1), &error), 0);
                    check_table(&p);
                    check_values(&p);
                    check_cache(&p);
                    assert_int_equal(kvg_prepared_check(&p, &error), 0);
                }
                kvg_prepared_free(&p);
            }
}

static void test_lists(void **state)
{
    static const int lens[] = {30, 100, 7, 64, 64, 40}, queries[] = {1, 20, 7, 1, 1, 0};
    struct kvg_case c = base(16, 0, KVG_LENGTHS_LIST, "normal");
    struct kvg_prepared p;
    struct kvg_error error;
    (void)state;
    prepare(&c, &p);
    for (uint64_t turn = 0; turn < 2; turn++) {
        for (uint64_t b = 0; b < 6; b++) {
            assert_int_equal(p.seq_lens[b], lens[(b + turn) % 6]);
            assert_int_equal(p.cu_q_lens[b + 1] - p.cu_q_lens[b], queries[(b + turn) % 6]);
        }
        assert_int_equal(p.problem.total_q, 30);
        assert_int_equal(p.problem.total_kv, 305);
        assert_int_equal(p.problem.max_q_len, 20);
        assert_int_equal(p.problem.max_seq_len, 100);
        assert_int_equal(kvg_prepared_renew(&p, c.seed + 1, &error), 0);
    }
    kvg_prepared_free(&p);
}

/* A part of a frame has the values of the whole case, also where the holder of a page is not in it. */
static void test_parts(void **state)
{
    static const int64_t chosen[] = {3, 5};
    (void)state;
    for (int lengths = KVG_LENGTHS_UNIFORM; lengths <= KVG_LENGTHS_LIST; lengths++)
        for (uint64_t seed = 7; seed <= 8; seed++) {
            struct kvg_case c = base(5, 7, (enum kvg_lengths)lengths, "needle:0.1");
            struct kvg_prepared whole, frame, part;
            struct kvg_error error;
            const int64_t row = c.kv_heads * c.head_dim;
            prepare(&c, &whole);
            assert_int_equal(kvg_prepared_make_frame(&c, NULL, &frame, &error), 0);
            if (seed != c.seed)
                assert_int_equal(
                    kvg_prepared_renew(&whole, seed, &error) || kvg_prepared_renew(&frame, seed, &error), 0);
            assert_int_equal(kvg_prepared_make_part(&frame, chosen, 2, &part, &error), 0);
            for (int64_t i = 0; i < 2; i++) {
                assert_int_equal(part.seq_lens[i], whole.seq_lens[chosen[i]]);
                for (int64_t t = 0; t < part.seq_lens[i] * row; t++) {
                    assert_int_equal(part.k[part.cu_kv_lens[i] * row + t],
                                     whole.k[whole.cu_kv_lens[chosen[i]] * row + t]);
                    assert_int_equal(part.v[part.cu_kv_lens[i] * row + t],
                                     whole.v[whole.cu_kv_lens[chosen[i]] * row + t]);
                }
            }
            check_cache(&part);
            kvg_prepared_free(&part);
            kvg_prepared_free(&frame);
            kvg_prepared_free(&whole);
        }
}

/* Six sequences of 100 keys, three shared pages of 16: the first reads 100 keys, the others 52 more each. With a
 * window of 60, each counts the keys that it sees. */
static void test_bytes_to_read(void **state)
{
    struct kvg_case c = base(16, 3, KVG_LENGTHS_UNIFORM, "normal");
    struct kvg_prepared p;
    int64_t first, last;
    (void)state;
    prepare(&c, &p);
    assert_int_equal(kvg_visible_kv_bytes(&p), 2 * (100 + 5 * 52) * 4 * 64 * 2);
    kvg_unread_range(&p, 0, &first, &last);
    assert_true(first == 0 && last == 99);
    kvg_unread_range(&p, 5, &first, &last);
    assert_true(first == 48 && last == 99);
    kvg_prepared_free(&p);
    c.window = 60;
    prepare(&c, &p);
    assert_int_equal(kvg_visible_kv_bytes(&p), 2 * 6 * 60 * 4 * 64 * 2);
    kvg_prepared_free(&p);
}

/* Pages in another order are still shared. */
static void test_permuted(void **state)
{
    struct kvg_case c = base(16, 3, KVG_LENGTHS_UNIFORM, "normal");
    struct kvg_prepared p;
    struct kvg_permuted m;
    (void)state;
    prepare(&c, &p);
    assert_int_equal(kvg_permuted_make(&p, KVG_MOVE_PAGES, &m), 0);
    for (int64_t b = 1; b < c.batch; b++)
        for (int64_t page = 0; page < 6; page++) {
            const int same = m.block_table[b * p.block_table_stride + page] == m.block_table[page];
            assert_int_equal(same, page < 3);
        }
    kvg_permuted_free(&m);
    kvg_prepared_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_brute_force), cmocka_unit_test(test_lists),
                                       cmocka_unit_test(test_parts), cmocka_unit_test(test_bytes_to_read),
                                       cmocka_unit_test(test_permuted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
