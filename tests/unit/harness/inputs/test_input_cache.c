/* SPDX-License-Identifier: Apache-2.0
 *
 * test_input_cache.c: cached inputs equal new ones; every part of a shape is part of the key; the size stays
 * within its limit; and a write into the cache ends the process. Right values come from separate calls of
 * kvg_input_fill and kvg_input_absmax.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/inputs/input_cache.h"
#include "harness/prepare/prepare.h"
#include "tests/unit/inputs_fixture.h"

enum { SMALL = 512 * 4 * 64 * 2 }; /* bytes of K of shape_of */

static struct kvg_input_cache *cache_of(int64_t bytes)
{
    struct kvg_input_cache *cache = kvg_input_cache_new(bytes);
    assert_non_null(cache);
    return cache;
}

static struct kvg_input_cache_counts counts_of(const struct kvg_input_cache *cache)
{
    struct kvg_input_cache_counts counts;
    kvg_input_cache_count(cache, &counts);
    return counts;
}

/* Compares the tensor from the cache with a new one. */
static void expect_right(struct kvg_input_cache *cache, const struct kvg_input_shape *s,
                         enum kvg_tensor tensor)
{
    struct kvg_error error = {0};
    const int64_t n =
        (tensor == KVG_TENSOR_Q ? s->q_len * s->q_heads : s->context * s->kv_heads) * s->head_dim;
    uint16_t *kept = malloc((size_t)n * sizeof *kept), *fresh = malloc((size_t)n * sizeof *fresh);
    assert_true(kept && fresh);
    memset(kept, 0xff, (size_t)n * sizeof *kept);
    if (kvg_input_cache_fill(cache, s, tensor, 2, kept, &error) ||
        kvg_input_fill(s, tensor, 1, fresh, &error))
        fail_msg("%s", error.text);
    assert_memory_equal(kept, fresh, (size_t)n * sizeof *kept);
    free(kept);
    free(fresh);
}

static void the_second_time_nothing_is_made(void **state)
{
    (void)state;
    struct kvg_input_cache *cache = cache_of(16 * SMALL);
    struct kvg_input_shape s = shape_of("normal");
    for (int turn = 0; turn < 2; turn++)
        for (int tensor = KVG_TENSOR_Q; tensor <= KVG_TENSOR_V; tensor++)
            expect_right(cache, &s, (enum kvg_tensor)tensor);
    assert_int_equal(counts_of(cache).misses, 3);
    assert_int_equal(counts_of(cache).hits, 3);
    assert_int_equal(counts_of(cache).bytes, 4 * SMALL); /* Q has twice the heads */
    s.q_len = 1;                                         /* K and V do not depend on the number of queries */
    expect_right(cache, &s, KVG_TENSOR_K);
    assert_int_equal(counts_of(cache).hits, 4);
    kvg_input_cache_free(cache);
    expect_right(NULL, &s, KVG_TENSOR_K);
}

/* A change of any part of a shape gives another tensor. */
static void shapes_are_told_apart(void **state)
{
    (void)state;
    struct kvg_input_cache *cache = cache_of(256 * SMALL);
    struct kvg_input_shape shapes[8];
    for (int i = 0; i < 8; i++)
        shapes[i] = shape_of("normal");
    shapes[1].seed = 2;
    shapes[2].seq = 1;
    shapes[3].context = 256;
    shapes[3].q_len = 256;
    shapes[4].kv_heads = 2;
    shapes[5].head_dim = 32;
    shapes[6].q_len = 16;
    shapes[7].input = "outlier";
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < 8; i++) {
            expect_right(cache, &shapes[i], KVG_TENSOR_V);
            expect_right(cache, &shapes[i], KVG_TENSOR_Q);
        }
    kvg_input_cache_free(cache);
}

static void the_oldest_goes_first(void **state)
{
    (void)state;
    struct kvg_input_cache *cache = cache_of(4 * SMALL);
    struct kvg_input_shape s = shape_of("normal");
    for (uint64_t seed = 1; seed <= 4; seed++) {
        s.seed = seed;
        expect_right(cache, &s, KVG_TENSOR_K);
    }
    s.seed = 1;
    expect_right(cache, &s, KVG_TENSOR_K); /* now seed 2 is the oldest */
    s.seed = 5;
    expect_right(cache, &s, KVG_TENSOR_K);
    assert_int_equal(counts_of(cache).bytes, 4 * SMALL);
    assert_int_equal(counts_of(cache).hits, 1);
    s.seed = 1;
    expect_right(cache, &s, KVG_TENSOR_K);
    assert_int_equal(counts_of(cache).hits, 2);
    s.seed = 2;
    expect_right(cache, &s, KVG_TENSOR_K);
    assert_int_equal(counts_of(cache).hits, 2);
    s.context = 513; /* more than a quarter of the limit: not kept, and nothing is dropped for it */
    expect_right(cache, &s, KVG_TENSOR_K);
    expect_right(cache, &s, KVG_TENSOR_K);
    assert_int_equal(counts_of(cache).hits, 2);
    assert_int_equal(counts_of(cache).bytes, 4 * SMALL);
    for (uint64_t seed = 10; seed < 400; seed++) { /* more than the cache has entries */
        s = shape_of("normal");
        s.seed = seed;
        s.context = s.q_len = 1;
        expect_right(cache, &s, KVG_TENSOR_K);
    }
    assert_true(counts_of(cache).bytes <= 4 * SMALL);
    kvg_input_cache_free(cache);
    cache = cache_of(0);
    expect_right(cache, &s, KVG_TENSOR_K);
    assert_int_equal(counts_of(cache).bytes, 0);
    kvg_input_cache_free(cache);
}

static void largest_values_are_kept_too(void **state)
{
    (void)state;
    struct kvg_input_cache *cache = cache_of(16 * SMALL);
    struct kvg_input_shape s = shape_of("normal");
    struct kvg_error error = {0};
    for (int turn = 0; turn < 4; turn++) {
        const enum kvg_token_set set = turn % 2 ? KVG_SET_CALIBRATION : KVG_SET_RANDOM_TOKENS;
        float *kept, *fresh;
        int64_t samples, fresh_samples;
        s.context = 100 + turn; /* they do not depend on it */
        assert_int_equal(kvg_input_cache_absmax(cache, &s, KVG_TENSOR_K, set, &kept, &samples, &error), 0);
        assert_int_equal(kvg_input_absmax(&s, KVG_TENSOR_K, set, &fresh, &fresh_samples, &error), 0);
        assert_int_equal(samples, fresh_samples);
        assert_memory_equal(kept, fresh, (size_t)(samples * s.kv_heads) * sizeof *kept);
        free(kept);
        free(fresh);
    }
    assert_int_equal(counts_of(cache).misses, 2);
    assert_int_equal(counts_of(cache).hits, 2);
    float *none;
    int64_t samples;
    assert_int_equal(
        kvg_input_cache_absmax(cache, &s, KVG_TENSOR_K, KVG_SET_EVALUATION, &none, &samples, &error), -1);
    kvg_input_cache_free(cache);
}

static void failures_are_not_kept(void **state)
{
    (void)state;
    struct kvg_input_cache *cache = cache_of(16 * SMALL);
    struct kvg_input_shape s = shape_of("no such input");
    struct kvg_error error = {0};
    uint16_t out[1];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kvg_input_cache_fill(cache, &s, KVG_TENSOR_K, 1, out, &error), -1);
        assert_non_null(strstr(error.text, "no such input"));
    }
    assert_int_equal(counts_of(cache).bytes, 0);
    kvg_input_cache_free(cache);
}

/* The read-only mapping of `bytes` bytes in this process: an entry of the cache. */
static void *find_kept(int64_t bytes)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    void *found = NULL;
    assert_non_null(maps);
    while (!found && fgets(line, sizeof line, maps)) {
        unsigned long first, end;
        char flags[8];
        if (sscanf(line, "%lx-%lx %7s", &first, &end, flags) == 3 && (int64_t)(end - first) == bytes &&
            strcmp(flags, "r--p") == 0)
            found = (void *)first;
    }
    fclose(maps);
    return found;
}

/* A kernel in the same process must not be able to change the inputs of the next case. */
static void a_write_ends_the_process(void **state)
{
    (void)state;
    struct kvg_input_cache *cache = cache_of(256 * SMALL);
    struct kvg_input_shape s = shape_of("normal");
    int status;
    s.context = 3 * 512 + 32; /* a size that is unlikely for anything else; whole pages */
    expect_right(cache, &s, KVG_TENSOR_K);
    volatile char *kept = find_kept(s.context * 4 * 64 * 2);
    assert_non_null(kept);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL);
        kept[4711] = 1;
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    expect_right(cache, &s, KVG_TENSOR_K);
    kvg_input_cache_free(cache);
}

/* A case that is prepared and renewed with a cache equals one without a cache, bit by bit. */
static void prepared_cases_are_the_same(void **state)
{
    (void)state;
    struct kvg_prepare_options options;
    struct kvg_error error = {0};
    struct kvg_case c;
    struct kvg_input_cache *cache = cache_of(64 * SMALL);
    kvg_case_default(&c);
    c.phase = KVG_PHASE_APPEND;
    c.path = KVG_PATH_FP8;
    c.kv_cache_dtype = KVG_CACHE_FP8_E4M3;
    c.calibration = KVG_CALIBRATION_DATASET;
    c.lengths = KVG_LENGTHS_RAGGED;
    c.batch = 3;
    c.q_len = 4;
    c.context = 200;
    c.q_heads = 4;
    c.kv_heads = 2;
    c.head_dim = 64;
    assert_int_equal(kvg_case_complete(&c, &error), 0);
    for (int turn = 0; turn < 2; turn++) {
        struct kvg_prepared with, without;
        kvg_prepare_options_default(&options);
        assert_null(options.cache);
        assert_int_equal(kvg_prepared_make(&c, &options, &without, &error), 0);
        options.cache = cache;
        assert_int_equal(kvg_prepared_make(&c, &options, &with, &error), 0);
        for (int renewed = 0; renewed < 2; renewed++) {
            const size_t kv = (size_t)(with.store_tokens * c.kv_heads * c.head_dim) * 2;
            assert_memory_equal(with.q, without.q, (size_t)(with.total_q * c.q_heads * c.head_dim) * 2);
            assert_memory_equal(with.k, without.k, kv);
            assert_memory_equal(with.v, without.v, kv);
            assert_memory_equal(with.k_cache, without.k_cache, (size_t)with.cache_elements);
            assert_memory_equal(with.v_scale, without.v_scale, sizeof *with.v_scale);
            assert_int_equal(kvg_prepared_renew(&with, 99, &error), 0);
            assert_int_equal(kvg_prepared_renew(&without, 99, &error), 0);
        }
        kvg_prepared_free(&with);
        kvg_prepared_free(&without);
    }
    assert_true(counts_of(cache).hits >= counts_of(cache).misses);
    kvg_input_cache_free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_time_nothing_is_made), cmocka_unit_test(shapes_are_told_apart),
        cmocka_unit_test(the_oldest_goes_first),           cmocka_unit_test(largest_values_are_kept_too),
        cmocka_unit_test(failures_are_not_kept),           cmocka_unit_test(a_write_ends_the_process),
        cmocka_unit_test(prepared_cases_are_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
