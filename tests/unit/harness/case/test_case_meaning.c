/* SPDX-License-Identifier: Apache-2.0
 *
 * test_case_meaning.c: values that follow from others, contradictions, the rules of vLLM and
 * FlashAttention-3 as their sources state them, and the problem and the row of a case.
 */
#include <sched.h>
#include <stdio.h>

#include "harness/inputs/inputs.h"
#include "tests/unit/random_case.h"

static void what_follows_is_filled_in(void **unused)
{
    struct kvg_case c;
    struct kvg_error error = {0};
    cpu_set_t cpus;
    (void)unused;
    assert_int_equal(complete_case("phase=decode context=4k", &c, &error), 0);
    assert_int_equal(c.q_len, 1);
    assert_int_equal(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    assert_int_equal(c.threads, CPU_COUNT(&cpus));
    assert_int_equal(complete_case("phase=prefill context=300", &c, &error), 0);
    assert_int_equal(c.q_len, 300);
    assert_int_equal(complete_case("phase=append context=300", &c, &error), 0);
    assert_int_equal(c.q_len, 16);
    assert_int_equal(complete_case("phase=store path=fp8 context=300", &c, &error), 0);
    assert_int_equal(c.path, KVG_PATH_NONE);
    assert_int_equal(c.q_len, 300);
    assert_int_equal(
        complete_case("kv_cache_dtype=auto scheme=per_head calibration=dataset observer=minmax", &c, &error),
        0);
    assert_int_equal(c.scheme, KVG_PER_TENSOR);
    assert_int_equal(c.calibration, KVG_CALIBRATION_NONE);
    assert_int_equal(c.observer, KVG_REF_STATIC_MINMAX);
    assert_int_equal(complete_case("calibration=random_tokens observer=minmax layer=7", &c, &error), 0);
    assert_int_equal(c.observer, KVG_REF_STATIC_MINMAX);
    assert_int_equal(c.layer, -1);
    assert_int_equal(complete_case("calibration=dataset observer=minmax", &c, &error), 0);
    assert_int_equal(c.observer, KVG_REF_MINMAX);
}

/* The string of a completed case, given to --case, makes the same case. */
static void completing_is_idempotent(void **unused)
{
    (void)unused;
    int completed = 0;
    for (int i = 0; i < 10000; i++) {
        struct kvg_case c, again;
        struct kvg_error error = {0};
        char text[KVG_CASE_STRING_MAX];
        random_case(&c);
        strcpy(c.input, "normal");
        if (kvg_case_complete(&c, &error))
            continue;
        completed++;
        kvg_case_format(&c, text);
        assert_int_equal(kvg_case_parse(text, &again, &error), 0);
        assert_true(same_case(&c, &again));
        assert_int_equal(kvg_case_complete(&again, &error), 0);
        assert_true(same_case(&c, &again));
    }
    assert_true(completed > 50); /* or the loop has tested nothing */
}

static void contradictions_are_refused(void **unused)
{
    static const char *const bad[][2] = {
        {"heads=32/5", "multiple of KV heads"},
        {"heads=4/8", "multiple of KV heads"},
        {"phase=decode q_len=2", "decode has q_len 1"},
        {"phase=prefill q_len=5 context=6", "prefill has q_len 6"},
        {"phase=append q_len=1 context=6", "1 < q_len < context"},
        {"phase=append q_len=6 context=6", "1 < q_len < context"},
        {"phase=append q_len=7 context=6", "1 < q_len < context"},
        {"phase=append context=16", "1 < q_len < context"},
        {"phase=decode path=none", "path=none"},
        {"batch=65536 context=1M", "2^31"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kvg_case c;
        struct kvg_error error = {0};
        if (complete_case(bad[i][0], &c, &error) != -1)
            fail_msg("completed '%s'", bad[i][0]);
        assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
        if (!strstr(error.text, bad[i][1]))
            fail_msg("'%s' does not say '%s'", error.text, bad[i][1]);
    }
}

/* SmolLM2-135M: 9 query heads, 3 KV heads, head_dim 64 (its config.json). */
static void captured_input_fixes_the_shape(void **unused)
{
    struct kvg_case c;
    struct kvg_captured_info info;
    struct kvg_error error = {0};
    (void)unused;
    if (kvg_captured_read_info("smollm2", &info, &error))
        fail_msg("%s", error.text);
    assert_int_equal(complete_case("input=smollm2 context=1k", &c, &error), 0);
    assert_int_equal(c.q_heads, 9);
    assert_int_equal(c.kv_heads, 3);
    assert_int_equal(c.head_dim, 64);
    assert_int_equal(c.layer, info.layers[0]);
    assert_int_equal(complete_case("input=smollm2 context=1M", &c, &error), -1);
    assert_non_null(strstr(error.text, "context=1048576"));
    assert_int_equal(complete_case("input=smollm2 context=1k layer=17", &c, &error), -1);
    assert_non_null(strstr(error.text, "holds layers"));
    assert_int_equal(complete_case("input=no_such_file.h5 context=1k", &c, &error), -1);
    assert_non_null(strstr(error.text, "no_such_file.h5"));
}

/* ------------------------------------------------------------------------------------------ meaning */

/* Whether the dequant path, the fp8 path and store are offered; by hand from the sources that meaning.c
 * cites. */
static void vllm_offers_what_its_sources_say(void **unused)
{
    static const struct {
        const char *what;
        int dequant, fp8, store;
    } table[] = {
        {"kv_cache_dtype=auto scheme=per_tensor calibration=none", 1, 0, 1},
        {"kv_cache_dtype=fp8_e4m3 scheme=per_tensor calibration=none", 1, 1, 1},
        {"kv_cache_dtype=fp8_e4m3 scheme=per_tensor calibration=random_tokens", 1, 1, 1},
        {"kv_cache_dtype=fp8_e4m3 scheme=per_tensor calibration=dataset", 1, 1, 1},
        {"kv_cache_dtype=fp8_e4m3 scheme=per_head calibration=none", 0, 0, 0},
        {"kv_cache_dtype=fp8_e4m3 scheme=per_head calibration=random_tokens", 0, 0, 0},
        {"kv_cache_dtype=fp8_e4m3 scheme=per_head calibration=dataset", 0, 1, 1},
        {"kv_cache_dtype=fp8_e5m2 scheme=per_tensor calibration=none", 1, 0, 1},
        {"kv_cache_dtype=fp8_e5m2 scheme=per_tensor calibration=random_tokens", 1, 0, 1},
        {"kv_cache_dtype=fp8_e5m2 scheme=per_tensor calibration=dataset", 0, 0, 0},
        {"kv_cache_dtype=fp8_e5m2 scheme=per_head calibration=dataset", 0, 0, 0},
        {"kv_cache_dtype=fp8_e5m2 scheme=per_head calibration=none", 0, 0, 0},
    };
    static const char *const where[] = {"phase=decode path=dequant", "phase=decode path=fp8", "phase=store"};
    (void)unused;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int wanted[] = {table[i].dequant, table[i].fp8, table[i].store};
        for (int w = 0; w < 3; w++) {
            struct kvg_case c;
            struct kvg_error error = {0};
            char text[256];
            snprintf(text, sizeof text, "%s %s", where[w], table[i].what);
            assert_int_equal(complete_case(text, &c, &error), 0);
            if (kvg_case_offered_by_vllm(&c) != wanted[w])
                fail_msg("%s: offered_by_vllm is not %d", text, wanted[w]);
        }
    }
}

static void only_e4m3_has_a_meaning_on_the_fp8_path(void **unused)
{
    static const char *const dtypes[] = {"auto", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz"};
    (void)unused;
    for (int path = KVG_PATH_DEQUANT; path <= KVG_PATH_FP8; path++)
        for (int d = 0; d < 4; d++) {
            struct kvg_case c;
            char why[256] = "";
            kvg_case_default(&c);
            c.path = (enum kvg_path)path;
            assert_int_equal(kvg_case_set(&c, KVG_AXIS_KV_CACHE_DTYPE, dtypes[d], NULL), 0);
            int wanted = path == KVG_PATH_FP8 && strcmp(dtypes[d], "fp8_e4m3") != 0;
            assert_int_equal(kvg_case_without_meaning(&c, why, sizeof why), wanted);
            assert_int_equal(*why != '\0', wanted);
        }
}

static void predictions_have_no_kernel_and_no_clock(void **unused)
{
    static const struct {
        const char *text, *kernel;
        int meaningless;
    } table[] = {
        {"path=fp8 accumulate=hopper cache_state=cold", "predict/hopper", 0},
        {"path=fp8 accumulate=hopper_two_level kernel=cpu/fp8_avx2", "predict/hopper_two_level", 0},
        {"path=fp8 accumulate=hopper_two_level:8 phase=append", "predict/hopper_two_level:8", 0},
        {"path=dequant accumulate=hopper", "predict/hopper", 1},
        {"path=fp8 accumulate=hopper kv_cache_dtype=fp8_e5m2", "predict/hopper", 1},
        {"path=fp8 accumulate=hopper phase=prefill", "predict/hopper", 1},
        {"phase=store accumulate=hopper", "predict/hopper", 1},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct kvg_case c;
        struct kvg_error error = {0};
        struct kvg_row row;
        char why[256] = "", text[KVG_CASE_STRING_MAX];
        assert_int_equal(complete_case(table[i].text, &c, &error), 0);
        assert_int_equal(kvg_case_predicts(&c), 1);
        assert_string_equal(c.kernel, table[i].kernel);
        assert_int_equal(c.cache_state, KVG_STATE_NONE);
        assert_int_equal(kvg_case_without_meaning(&c, why, sizeof why), table[i].meaningless);
        assert_int_equal(kvg_row_init(&row), 0);
        assert_int_equal(kvg_case_to_row(&c, &row), 0);
        assert_int_equal(row.prediction, 1);
        assert_string_equal(row.accumulate, table[i].kernel + strlen("predict/"));
        kvg_row_free(&row);
        /* fp32 is left out of the string, so that no existing case changes its name. */
        kvg_case_format(&c, text);
        assert_non_null(strstr(text, " accumulate="));
        assert_int_equal(kvg_case_set(&c, KVG_AXIS_ACCUMULATE, "fp32", NULL), 0);
        kvg_case_format(&c, text);
        assert_null(strstr(text, "accumulate"));
    }
}

static void problem_is_the_case(void **unused)
{
    struct kvg_case c;
    struct kvg_error error = {0};
    struct kvg_problem p;
    char why[256];
    (void)unused;
    assert_int_equal(
        complete_case("phase=append path=fp8 batch=3 context=1000 q_len=5 heads=28/4 head_dim=64 "
                      "block_size=8 layout=HND window=77 soft_cap=30 threads=2 scheme=per_head",
                      &c, &error),
        0);
    kvg_case_problem(&c, &p);
    assert_int_equal(p.phase, KVG_PHASE_APPEND);
    assert_int_equal(p.path, KVG_PATH_FP8);
    assert_int_equal(p.q_dtype, KVG_E4M3);
    assert_int_equal(p.kv_dtype, KVG_E4M3);
    assert_int_equal(p.out_dtype, KVG_BF16);
    assert_int_equal(p.scheme, KVG_PER_HEAD);
    assert_int_equal(p.layout, KVG_HND);
    assert_int_equal(p.batch, 3);
    assert_int_equal(p.q_heads, 28);
    assert_int_equal(p.kv_heads, 4);
    assert_int_equal(p.head_dim, 64);
    assert_int_equal(p.block_size, 8);
    assert_int_equal(p.max_q_len, 5);
    assert_int_equal(p.max_seq_len, 1000);
    assert_int_equal(p.total_q, 15);
    assert_int_equal(p.total_kv, 3000);
    assert_int_equal(p.window, 77);
    assert_true(p.soft_cap == 30.0f);
    assert_int_equal(p.mask, KVG_MASK_CAUSAL);
    assert_int_equal(p.threads, 2);
    assert_int_equal(complete_case("kv_cache_dtype=fp8_e5m2", &c, &error), 0);
    kvg_case_problem(&c, &p);
    assert_int_equal(p.q_dtype, KVG_BF16);
    assert_int_equal(p.kv_dtype, KVG_E5M2);
    assert_true(p.features == 0);
    assert_int_equal(complete_case("sinks=large", &c, &error), 0);
    kvg_case_problem(&c, &p);
    assert_true(p.features == KVG_FEATURE_SINKS);
    assert_false(kvg_case_without_meaning(&c, why, sizeof why));
    assert_int_equal(complete_case("phase=store sinks=normal", &c, &error), 0);
    assert_true(kvg_case_without_meaning(&c, why, sizeof why));
    assert_non_null(strstr(why, "sinks"));
    assert_int_equal(complete_case("kv_cache_dtype=auto phase=store", &c, &error), 0);
    kvg_case_problem(&c, &p);
    assert_int_equal(p.kv_dtype, KVG_BF16);
    assert_int_equal(p.path, KVG_PATH_NONE);
}

static void row_holds_the_case(void **unused)
{
    struct kvg_case c, again;
    struct kvg_error error = {0};
    struct kvg_row row;
    char id[17];
    (void)unused;
    assert_int_equal(
        complete_case("phase=decode calibration=dataset scheme=per_tensor context=4k threads=3 soft_cap=0.5",
                      &c, &error),
        0);
    assert_int_equal(kvg_row_init(&row), 0);
    assert_int_equal(kvg_case_to_row(&c, &row), 0);
    kvg_case_id(&c, id);
    assert_string_equal(row.case_id, id);
    assert_int_equal(kvg_case_parse(row.case_string, &again, &error), 0);
    assert_true(same_case(&c, &again));
    assert_string_equal(row.observer, "static_minmax");
    assert_string_equal(row.phase, "decode");
    assert_string_equal(row.kv_cache_dtype, "fp8_e4m3");
    assert_int_equal(row.offered_by_vllm, 1);
    assert_int_equal(row.q_len, 1);
    assert_int_equal(row.context, 4096);
    assert_int_equal(row.threads, 3);
    assert_int_equal(row.layer, -1);
    assert_true(row.soft_cap == 0.5);
    c.calibration = KVG_CALIBRATION_NONE;
    assert_int_equal(kvg_case_to_row(&c, &row), 0);
    assert_string_equal(row.observer, "");
    kvg_row_free(&row);
}

/* Text of the mask, and what the problem has. */
static void test_masks(void **state)
{
    (void)state;
    static const struct {
        const char *text, *canonical;
        enum kvg_mask mask;
        int64_t chunk, prefix;
        uint64_t features;
        int has_meaning;
    } table[] = {
        {"phase=append mask=causal", "", KVG_MASK_CAUSAL, 0, 0, 0, 1},
        {"phase=append mask=full", " mask=full ", KVG_MASK_FULL, 0, 0, 0, 1},
        {"phase=append mask=chunked:1", " mask=chunked:1 ", KVG_MASK_CHUNKED, 1, 0, KVG_FEATURE_CHUNKED_MASK,
         1},
        {"phase=decode mask=CHUNKED:8k window=7", " mask=chunked:8192 ", KVG_MASK_CHUNKED, 8192, 0,
         KVG_FEATURE_CHUNKED_MASK, 1},
        {"phase=append context=200 mask=prefix", " mask=prefix:50 ", KVG_MASK_PREFIX, 0, 50,
         KVG_FEATURE_PREFIX_MASK, 1},
        {"phase=prefill context=3 mask=prefix", " mask=prefix:1 ", KVG_MASK_PREFIX, 0, 1,
         KVG_FEATURE_PREFIX_MASK, 1},
        {"phase=decode mask=prefix:2k window=9", " mask=prefix:2048 ", KVG_MASK_PREFIX, 0, 2048,
         KVG_FEATURE_PREFIX_MASK, 1},
        {"phase=store mask=chunked:8", " mask=chunked:8 ", KVG_MASK_CHUNKED, 8, 0, KVG_FEATURE_CHUNKED_MASK,
         0},
        {"phase=store mask=prefix:8", " mask=prefix:8 ", KVG_MASK_PREFIX, 0, 8, KVG_FEATURE_PREFIX_MASK, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char text[KVG_CASE_STRING_MAX], why[256] = "";
        struct kvg_case c, again;
        struct kvg_problem problem;
        struct kvg_error error;
        assert_int_equal(complete_case(table[i].text, &c, &error), 0);
        kvg_case_format(&c, text);
        if (table[i].canonical[0])
            assert_non_null(strstr(text, table[i].canonical));
        else
            assert_null(strstr(text, "mask="));
        assert_int_equal(kvg_case_parse(text, &again, &error), 0);
        assert_true(same_case(&c, &again));
        kvg_case_problem(&c, &problem);
        assert_int_equal(problem.mask, table[i].mask);
        assert_int_equal(problem.chunk, table[i].chunk);
        assert_int_equal(c.prefix, table[i].prefix);
        assert_true(problem.features == table[i].features);
        assert_int_equal(!kvg_case_without_meaning(&c, why, sizeof why), table[i].has_meaning);
        assert_int_equal(why[0] == 0, table[i].has_meaning);
    }
}

static void test_masks_refused(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"chunked", "needs the number of keys of a chunk"},
        {"chunked:0", "'0' is not a number of keys from 1 to 2147483647"},
        {"chunked:", "'' is not a number of keys"},
        {"chunked:-1", "'-1' is not a number of keys"},
        {"chunked:4G", "'4G' is not a number of keys"},
        {"prefix:0", "'0' is not a number of keys"},
        {"prefix:1x", "'1x' is not a number of keys"},
        {"prefix:9999999999999999999", "is not a number of keys"},
        {"causal:4", "only chunked and prefix take a number"},
        {"full:4", "only chunked and prefix take a number"},
        {"chunk:4", "'chunk' is not known"},
        {"", "is not known"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct kvg_case c;
        struct kvg_error error;
        kvg_case_default(&c);
        assert_int_equal(kvg_case_set(&c, KVG_AXIS_MASK, wrong[i][0], &error), -1);
        if (!strstr(error.text, wrong[i][1]))
            fail_msg("mask=%s: %s", wrong[i][0], error.text);
        assert_int_equal(c.mask, KVG_MASK_CAUSAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_follows_is_filled_in),
        cmocka_unit_test(completing_is_idempotent),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(captured_input_fixes_the_shape),
        cmocka_unit_test(vllm_offers_what_its_sources_say),
        cmocka_unit_test(only_e4m3_has_a_meaning_on_the_fp8_path),
        cmocka_unit_test(predictions_have_no_kernel_and_no_clock),
        cmocka_unit_test(problem_is_the_case),
        cmocka_unit_test(row_holds_the_case),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_masks_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
