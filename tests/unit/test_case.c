/* SPDX-License-Identifier: Apache-2.0
 *
 * test_case.c: case strings round-trip over random cases, identifiers are FNV-1a as published, axes refuse
 * what they should, and the rules of vLLM and FlashAttention-3 hold as their sources say.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../harness/case.h"
#include "../../harness/inputs/inputs.h"
#include "../../harness/nearest.h"
#include "../../harness/options.h"

/* ------------------------------------------------------------------------------------------ random cases */

static uint64_t state = 20260729;
static uint64_t next(void) /* xorshift64* */
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * UINT64_C(2685821657736338717);
}
static int64_t between(int64_t low, int64_t high)
{
    return low + (int64_t)(next() % (uint64_t)(high - low + 1));
}

/* Any values, contradictions included: formatting and parsing do not care. */
static void random_case(struct kvg_case *c)
{
    static const char *const kernels[] = {"best", "cpu/*", "cpu/dequant_avx2", "a=b", "x"};
    static const char *const inputs[] = {"normal",  "needle:0.125",  "smollm2",
                                         "v_small", "dir/my=own.h5", "needle"};
    static const double caps[] = {0, 30, 50, 0.1f, 1e-7f, 12345.678f};
    memset(c, 0, sizeof *c);
    strcpy(c->kernel, kernels[between(0, 4)]);
    strcpy(c->input, inputs[between(0, 5)]);
    c->phase = (enum kvg_phase)between(0, 3);
    c->path = (enum kvg_path)between(0, 2);
    c->kv_cache_dtype = (enum kvg_cache_dtype)between(0, 3);
    c->scheme = (enum kvg_scheme)between(0, 1);
    c->calibration = (enum kvg_calibration)between(0, 2);
    c->observer = (enum kvg_ref_observer)between(0, 2);
    c->layer = between(-1, 40);
    c->batch = between(1, 300);
    c->context = between(1, 1 << 20);
    c->q_len = between(0, 1)                  ? between(1, 4000)
               : c->phase == KVG_PHASE_APPEND ? 0
               : c->phase == KVG_PHASE_DECODE ? 1
                                              : c->context;
    c->kv_heads = between(1, 16);
    c->q_heads = between(1, 64);
    c->head_dim = between(1, 512);
    c->block_size = between(8, 256);
    c->layout = (enum kvg_layout)between(0, 1);
    c->lengths = (enum kvg_lengths)between(0, 1);
    c->window = between(0, 1) ? 0 : between(1, 5000);
    c->soft_cap = caps[between(0, 5)];
    c->accumulate = (enum kvg_accumulate)between(0, 2);
    c->flush_tiles = c->accumulate == KVG_ACCUMULATE_HOPPER_TWO_LEVEL ? between(1, 9) : 0;
    c->threads = between(0, 64);
    c->seed = between(0, 2) ? (uint64_t)between(0, 5) : next() >> 1;
    c->cache_state = (enum kvg_cache_state)between(0, 2);
}

static int same_case(const struct kvg_case *a, const struct kvg_case *b)
{
    return !strcmp(a->kernel, b->kernel) && !strcmp(a->input, b->input) && a->phase == b->phase &&
           a->path == b->path && a->kv_cache_dtype == b->kv_cache_dtype && a->scheme == b->scheme &&
           a->calibration == b->calibration && a->observer == b->observer && a->layer == b->layer &&
           a->batch == b->batch && a->q_len == b->q_len && a->context == b->context &&
           a->q_heads == b->q_heads && a->kv_heads == b->kv_heads && a->head_dim == b->head_dim &&
           a->block_size == b->block_size && a->layout == b->layout && a->lengths == b->lengths &&
           a->window == b->window && a->soft_cap == b->soft_cap && a->threads == b->threads &&
           a->accumulate == b->accumulate && a->flush_tiles == b->flush_tiles && a->seed == b->seed &&
           a->cache_state == b->cache_state;
}

static void parsing_undoes_formatting(void **unused)
{
    (void)unused;
    for (int i = 0; i < 20000; i++) {
        struct kvg_case c, back;
        struct kvg_error error = {0};
        char text[KVG_CASE_STRING_MAX], again[KVG_CASE_STRING_MAX];
        random_case(&c);
        kvg_case_format(&c, text);
        if (kvg_case_parse(text, &back, &error))
            fail_msg("%s: %s", text, error.text);
        if (!same_case(&c, &back))
            fail_msg("not the same case after a round trip: %s", text);
        kvg_case_format(&back, again);
        assert_string_equal(text, again);
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void different_cases_have_different_ids(void **unused)
{
    enum { N = 20000 };
    (void)unused;
    char **lines = calloc(N, sizeof *lines);
    assert_non_null(lines);
    for (int i = 0; i < N; i++) { /* "id string", sorted: equal ids stand next to each other */
        struct kvg_case c;
        char text[KVG_CASE_STRING_MAX], id[17];
        random_case(&c);
        kvg_case_format(&c, text);
        kvg_case_id(&c, id);
        assert_int_equal(strlen(id), 16);
        lines[i] = malloc(strlen(text) + 18);
        assert_non_null(lines[i]);
        sprintf(lines[i], "%s %s", id, text);
    }
    qsort(lines, N, sizeof *lines, by_text);
    for (int i = 1; i < N; i++)
        if (strncmp(lines[i], lines[i - 1], 16) == 0)
            assert_string_equal(lines[i], lines[i - 1]);
    for (int i = 0; i < N; i++)
        free(lines[i]);
    free(lines);
}

/* Test vectors of the FNV specification (draft-eastlake-fnv, appendix C), 64-bit FNV-1a. */
static void ids_are_fnv_1a(void **unused)
{
    (void)unused;
    assert_true(kvg_fnv1a("") == UINT64_C(0xcbf29ce484222325));
    assert_true(kvg_fnv1a("a") == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(kvg_fnv1a("foobar") == UINT64_C(0x85944171f73967e8));
}

/* Hosts with more or fewer CPUs give a GPU's case the same name. */
static void gpu_cases_have_no_threads(void **unused)
{
    struct kvg_case c, back;
    struct kvg_error error = {0};
    char text[KVG_CASE_STRING_MAX], other[KVG_CASE_STRING_MAX];
    (void)unused;
    kvg_case_default(&c);
    strcpy(c.kernel, "cuda/decode_dequant");
    c.threads = 7;
    kvg_case_format(&c, text);
    assert_null(strstr(text, "threads"));
    assert_int_equal(kvg_case_parse(text, &back, &error), 0);
    assert_true(back.threads >= 1);
    kvg_case_format(&back, other);
    assert_string_equal(text, other);
    strcpy(c.kernel, "cpu/cuda/");
    kvg_case_format(&c, text);
    assert_non_null(strstr(text, "threads=7"));
}

static void the_longest_case_fits(void **unused)
{
    (void)unused;
    struct kvg_case c;
    char text[KVG_CASE_STRING_MAX];
    kvg_case_default(&c);
    memset(c.kernel, 'k', sizeof c.kernel - 1);
    memset(c.input, 'i', sizeof c.input - 1);
    c.kv_cache_dtype = KVG_CACHE_FP8_E4M3FNUZ;
    c.calibration = KVG_CALIBRATION_RANDOM_TOKENS;
    c.observer = KVG_REF_MEMORYLESS_MINMAX;
    c.layer = c.batch = c.q_len = c.context = c.q_heads = c.kv_heads = c.head_dim = c.block_size = INT64_MIN;
    c.window = c.threads = INT64_MIN;
    c.soft_cap = -1.2345678901234567e-300;
    c.seed = UINT64_MAX;
    c.lengths = KVG_LENGTHS_RAGGED;
    kvg_case_format(&c, text);
    assert_true(strlen(text) < KVG_CASE_STRING_MAX - 1);
    assert_non_null(strstr(text, "cache_state=cold")); /* the last axis is not cut off */
}

/* ------------------------------------------------------------------------------------------ axes */

static void every_option_is_named_like_its_axis(void **unused)
{
    (void)unused;
    for (int a = 0; a < KVG_AXIS_COUNT; a++) {
        const char *name = kvg_axis_info((enum kvg_axis)a)->name;
        int found = 0;
        for (const struct argp_option *o = kvg_plan_argp.options; o->name || o->doc || o->key; o++) {
            char column[64];
            if (!o->name || !o->arg)
                continue;
            snprintf(column, sizeof column, "%s", o->name);
            for (char *p = column; *p; p++)
                *p = *p == '-' ? '_' : *p;
            found += strcmp(column, name) == 0;
        }
        if (found != 1)
            fail_msg("axis %s has %d options", name, found);
    }
}

/* heads sets two columns; every other axis is a column under its own name. */
static void every_axis_is_a_column(void **unused)
{
    (void)unused;
    for (int a = 0; a < KVG_AXIS_COUNT; a++)
        if (a != KVG_AXIS_HEADS)
            assert_non_null(kvg_column_find(kvg_axis_info((enum kvg_axis)a)->name));
    assert_non_null(kvg_column_find("q_heads"));
    assert_non_null(kvg_column_find("kv_heads"));
}

static void defaults_are_valid_and_print_as_written(void **unused)
{
    (void)unused;
    struct kvg_case c;
    kvg_case_default(&c);
    for (int a = 0; a < KVG_AXIS_COUNT; a++) {
        struct kvg_error error = {0};
        char text[128];
        if (kvg_case_set(&c, (enum kvg_axis)a, kvg_axis_info((enum kvg_axis)a)->fallback, &error))
            fail_msg("%s", error.text);
        kvg_case_get(&c, (enum kvg_axis)a, text, sizeof text);
        assert_string_equal(text, kvg_axis_info((enum kvg_axis)a)->fallback);
    }
}

static void values_are_read_in_all_their_spellings(void **unused)
{
    static const struct {
        enum kvg_axis axis;
        const char *given, *canonical;
    } table[] = {
        {KVG_AXIS_CONTEXT, "128k", "131072"},
        {KVG_AXIS_CONTEXT, "128K", "131072"},
        {KVG_AXIS_CONTEXT, "1M", "1048576"},
        {KVG_AXIS_CONTEXT, "0017", "17"},
        {KVG_AXIS_KV_CACHE_DTYPE, "fp8", "fp8_e4m3"},
        {KVG_AXIS_KV_CACHE_DTYPE, "FP8_E5M2", "fp8_e5m2"},
        {KVG_AXIS_LAYOUT, "hnd", "HND"},
        {KVG_AXIS_INPUT, "needle:0.50", "needle"}, /* the default depth */
        {KVG_AXIS_INPUT, "needle:1e-1", "needle:0.1"},
        {KVG_AXIS_INPUT, "needle:-0", "needle:0"},
        {KVG_AXIS_HEADS, "32/8", "32/8"},
        {KVG_AXIS_SOFT_CAP, "30.0", "30"},
        {KVG_AXIS_SOFT_CAP, "-0", "0"},
        {KVG_AXIS_SOFT_CAP, "0.1", "0.1"}, /* although the ABI's float is 0.100000001490116 */
        {KVG_AXIS_SOFT_CAP, "1000000", "1000000"},
        {KVG_AXIS_ACCUMULATE, "hopper_two_level:1", "hopper_two_level"},
        {KVG_AXIS_ACCUMULATE, "Hopper_Two_Level:1k", "hopper_two_level:1024"},
        {KVG_AXIS_ACCUMULATE, "hopper", "hopper"},
        {KVG_AXIS_Q_LEN, "AUTO", "auto"},
        {KVG_AXIS_LAYER, "-1", "-1"},
        {KVG_AXIS_SEED, "9223372036854775807", "9223372036854775807"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct kvg_case c;
        struct kvg_error error = {0};
        char text[128];
        kvg_case_default(&c);
        if (kvg_case_set(&c, table[i].axis, table[i].given, &error))
            fail_msg("%s", error.text);
        kvg_case_get(&c, table[i].axis, text, sizeof text);
        assert_string_equal(text, table[i].canonical);
    }
}

static void bad_values_are_refused_and_change_nothing(void **unused)
{
    static const struct {
        enum kvg_axis axis;
        const char *value, *says;
    } table[] = {
        {KVG_AXIS_CONTEXT, "", "context"},
        {KVG_AXIS_CONTEXT, "0", "from 1 to 2147483647"},
        {KVG_AXIS_CONTEXT, "-1k", "from 1"},
        {KVG_AXIS_CONTEXT, "2147483648", "from 1"},
        {KVG_AXIS_CONTEXT, "9223372036854775807k", "from 1"},
        {KVG_AXIS_CONTEXT, "99999999999999999999", "from 1"},
        {KVG_AXIS_CONTEXT, "8 k", "'8 k'"},
        {KVG_AXIS_CONTEXT, "8kb", "'8kb'"},
        {KVG_AXIS_CONTEXT, "0x10", "'0x10'"},
        {KVG_AXIS_CONTEXT, " 8", "' 8'"},
        {KVG_AXIS_CONTEXT, "+8", "'+8'"},
        {KVG_AXIS_CONTEXT, "--8", "'--8'"},
        {KVG_AXIS_LAYER, "-2", "from -1"},
        {KVG_AXIS_SEED, "-1", "from 0"},
        {KVG_AXIS_SEED, "9223372036854775808", "from 0"},
        {KVG_AXIS_PHASE, "decod", "did you mean 'decode'?"},
        {KVG_AXIS_SCHEME, "per-hed", "did you mean 'per_head'?"},
        {KVG_AXIS_CALIBRATION, "datset", "did you mean 'dataset'?"},
        {KVG_AXIS_KV_CACHE_DTYPE, "e4m3", "auto, fp8_e4m3, fp8_e5m2 or fp8_e4m3fnuz"},
        {KVG_AXIS_PATH, "", "none, dequant or fp8"},
        {KVG_AXIS_INPUT, "nromal", "did you mean 'normal'?"},
        {KVG_AXIS_INPUT, "smolm2", "did you mean 'smollm2'?"},
        {KVG_AXIS_INPUT, "needle:1.5", "from 0 to 1"},
        {KVG_AXIS_INPUT, "needle:", "from 0 to 1"},
        {KVG_AXIS_INPUT, "needle:nan", "from 0 to 1"},
        {KVG_AXIS_INPUT, "my file.h5", "blank"},
        {KVG_AXIS_INPUT, "it's.h5", "quote"},
        {KVG_AXIS_INPUT, ".h5", "not known"},
        {KVG_AXIS_INPUT, "0123456789012345678901234567890123456789012345678901234567890123.h5",
         "longer than 63"},
        {KVG_AXIS_KERNEL, "", "empty"},
        {KVG_AXIS_KERNEL, "a b", "blank"},
        {KVG_AXIS_KERNEL, "a\nb", "blank"},
        {KVG_AXIS_HEADS, "32", "32/8"},
        {KVG_AXIS_HEADS, "32/", "32/8"},
        {KVG_AXIS_HEADS, "/8", "32/8"},
        {KVG_AXIS_HEADS, "32/8/2", "32/8"},
        {KVG_AXIS_HEADS, "0/0", "32/8"},
        {KVG_AXIS_HEADS, "32/-8", "32/8"},
        {KVG_AXIS_HEADS, "11111111111111111111111111111111111111/8", "32/8"},
        {KVG_AXIS_SOFT_CAP, "nan", "soft_cap"},
        {KVG_AXIS_SOFT_CAP, "inf", "soft_cap"},
        {KVG_AXIS_SOFT_CAP, "-1", "soft_cap"},
        {KVG_AXIS_SOFT_CAP, "0x1p3", "soft_cap"},
        {KVG_AXIS_SOFT_CAP, "1e999", "soft_cap"},
        {KVG_AXIS_SOFT_CAP, "", "soft_cap"},
        {KVG_AXIS_ACCUMULATE, "hoper", "did you mean 'hopper'?"},
        {KVG_AXIS_ACCUMULATE, "", "fp32, hopper or hopper_two_level"},
        {KVG_AXIS_ACCUMULATE, "hopper:2", "hopper_two_level alone takes a number"},
        {KVG_AXIS_ACCUMULATE, "hopper_two_level:0", "1 to 1048576"},
        {KVG_AXIS_ACCUMULATE, "hopper_two_level:", "1 to 1048576"},
        {KVG_AXIS_ACCUMULATE, "hopper_two_level:2:3", "1 to 1048576"},
        {KVG_AXIS_BLOCK_SIZE, "4", "from 8"},
        {KVG_AXIS_THREADS, "5000", "from 0 to 4096"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct kvg_case c, before;
        struct kvg_error error = {0};
        random_case(&c);
        before = c;
        if (kvg_case_set(&c, table[i].axis, table[i].value, &error) != -1)
            fail_msg("%s took '%s'", kvg_axis_info(table[i].axis)->name, table[i].value);
        assert_int_equal(error.exit_code, KVG_EXIT_USAGE);
        if (!strstr(error.text, table[i].says))
            fail_msg("'%s' does not say '%s'", error.text, table[i].says);
        assert_memory_equal(&c, &before, sizeof c);
    }
}

static void axes_are_found_by_name(void **unused)
{
    struct kvg_error error = {0};
    (void)unused;
    assert_int_equal(kvg_axis_find("kv_cache_dtype", &error), KVG_AXIS_KV_CACHE_DTYPE);
    assert_int_equal(kvg_axis_find("kv-cache-dtype", &error), KVG_AXIS_KV_CACHE_DTYPE);
    assert_int_equal(kvg_axis_find("contxt", &error), -1);
    assert_non_null(strstr(error.text, "did you mean 'context'?"));
    assert_int_equal(kvg_axis_find("", &error), -1);
}

static void bad_strings_are_refused(void **unused)
{
    static const char *const bad[][2] = {
        {"", "empty"},
        {"   ", "empty"},
        {"decode", "not axis=value"},
        {"phase=decode phase=decode", "twice"},
        {"fase=decode", "did you mean 'phase'?"},
        {"phase=", "phase"},
        {"=decode", "no axis"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kvg_case c;
        struct kvg_error error = {0};
        if (kvg_case_parse(bad[i][0], &c, &error) != -1)
            fail_msg("parsed '%s'", bad[i][0]);
        if (!strstr(error.text, bad[i][1]))
            fail_msg("'%s' does not say '%s'", error.text, bad[i][1]);
    }
    struct kvg_case c;
    struct kvg_error error = {0};
    char longer[2 * KVG_CASE_STRING_MAX];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(kvg_case_parse(longer, &c, &error), -1);
}

/* ------------------------------------------------------------------------------------------ completion */

static int complete(const char *text, struct kvg_case *c, struct kvg_error *error)
{
    if (kvg_case_parse(text, c, error))
        fail_msg("%s: %s", text, error->text);
    return kvg_case_complete(c, error);
}

static void what_follows_is_filled_in(void **unused)
{
    struct kvg_case c;
    struct kvg_error error = {0};
    cpu_set_t cpus;
    (void)unused;
    assert_int_equal(complete("phase=decode context=4k", &c, &error), 0);
    assert_int_equal(c.q_len, 1);
    assert_int_equal(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    assert_int_equal(c.threads, CPU_COUNT(&cpus));
    assert_int_equal(complete("phase=prefill context=300", &c, &error), 0);
    assert_int_equal(c.q_len, 300);
    assert_int_equal(complete("phase=append context=300", &c, &error), 0);
    assert_int_equal(c.q_len, 16);
    assert_int_equal(complete("phase=store path=fp8 context=300", &c, &error), 0);
    assert_int_equal(c.path, KVG_PATH_NONE);
    assert_int_equal(c.q_len, 300);
    assert_int_equal(
        complete("kv_cache_dtype=auto scheme=per_head calibration=dataset observer=minmax", &c, &error), 0);
    assert_int_equal(c.scheme, KVG_PER_TENSOR);
    assert_int_equal(c.calibration, KVG_CALIBRATION_NONE);
    assert_int_equal(c.observer, KVG_REF_STATIC_MINMAX);
    assert_int_equal(complete("calibration=random_tokens observer=minmax layer=7", &c, &error), 0);
    assert_int_equal(c.observer, KVG_REF_STATIC_MINMAX);
    assert_int_equal(c.layer, -1);
    assert_int_equal(complete("calibration=dataset observer=minmax", &c, &error), 0);
    assert_int_equal(c.observer, KVG_REF_MINMAX);
}

/* A planned case names itself so that --case makes the very same case. */
static void completing_is_idempotent(void **unused)
{
    (void)unused;
    int completed = 0;
    for (int i = 0; i < 5000; i++) {
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
        {"block_size=12", "multiple of 8"},
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
        if (complete(bad[i][0], &c, &error) != -1)
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
    if (kvg_captured_info("smollm2", &info, &error))
        fail_msg("%s", error.text);
    assert_int_equal(complete("input=smollm2 context=1k", &c, &error), 0);
    assert_int_equal(c.q_heads, 9);
    assert_int_equal(c.kv_heads, 3);
    assert_int_equal(c.head_dim, 64);
    assert_int_equal(c.layer, info.layers[0]);
    assert_int_equal(complete("input=smollm2 context=1M", &c, &error), -1);
    assert_non_null(strstr(error.text, "context=1048576"));
    assert_int_equal(complete("input=smollm2 context=1k layer=17", &c, &error), -1);
    assert_non_null(strstr(error.text, "holds layers"));
    assert_int_equal(complete("input=no_such_file.h5 context=1k", &c, &error), -1);
    assert_non_null(strstr(error.text, "no_such_file.h5"));
}

/* ------------------------------------------------------------------------------------------ meaning */

/* By hand from the sources cited in case_meaning.c. Columns of dtype, scheme, calibration; then whether the
 * dequant path, the fp8 path and store are offered. */
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
            assert_int_equal(complete(text, &c, &error), 0);
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
        assert_int_equal(complete(table[i].text, &c, &error), 0);
        assert_int_equal(kvg_case_predicts(&c), 1);
        assert_string_equal(c.kernel, table[i].kernel);
        assert_int_equal(c.cache_state, KVG_STATE_NONE);
        assert_int_equal(kvg_case_without_meaning(&c, why, sizeof why), table[i].meaningless);
        assert_int_equal(kvg_row_init(&row), 0);
        assert_int_equal(kvg_case_to_row(&c, &row), 0);
        assert_int_equal(row.prediction, 1);
        assert_string_equal(row.accumulate, table[i].kernel + strlen("predict/"));
        kvg_row_free(&row);
        /* fp32 stays out of the string, so that no older case changes its name. */
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
    (void)unused;
    assert_int_equal(complete("phase=append path=fp8 batch=3 context=1000 q_len=5 heads=28/4 head_dim=64 "
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
    assert_int_equal(p.causal, 1);
    assert_int_equal(p.threads, 2);
    assert_int_equal(complete("kv_cache_dtype=fp8_e5m2", &c, &error), 0);
    kvg_case_problem(&c, &p);
    assert_int_equal(p.q_dtype, KVG_BF16);
    assert_int_equal(p.kv_dtype, KVG_E5M2);
    assert_int_equal(complete("kv_cache_dtype=auto phase=store", &c, &error), 0);
    kvg_case_problem(&c, &p);
    assert_int_equal(p.kv_dtype, KVG_BF16);
    assert_int_equal(p.path, KVG_PATH_NONE);
}

static void row_holds_the_case(void **unused)
{
    struct kvg_case c, again;
    struct kvg_error error = {0};
    struct kvg_row row;
    char id[17], shell[KVG_CASE_STRING_MAX + 64];
    (void)unused;
    assert_int_equal(
        complete("phase=decode calibration=dataset scheme=per_tensor context=4k threads=3 soft_cap=0.5", &c,
                 &error),
        0);
    assert_int_equal(kvg_row_init(&row), 0);
    assert_int_equal(kvg_case_to_row(&c, &row), 0);
    kvg_case_id(&c, id);
    assert_string_equal(row.case_id, id);
    assert_int_equal(kvg_case_parse(row.case_string, &again, &error), 0);
    assert_true(same_case(&c, &again));
    snprintf(shell, sizeof shell, "kvgauge run --case '%s'", row.case_string);
    assert_string_equal(row.repro, shell);
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

/* ------------------------------------------------------------------------------------------ errors */

static void errors_are_cut_and_may_be_unwanted(void **unused)
{
    struct {
        struct kvg_error error;
        char fence[8];
    } box;
    char long_text[2000];
    (void)unused;
    memset(long_text, 'e', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    memset(&box, '#', sizeof box);
    assert_int_equal(kvg_fail(&box.error, KVG_EXIT_TROUBLE, "%s", long_text), -1);
    assert_int_equal(box.error.exit_code, KVG_EXIT_TROUBLE);
    assert_int_equal(strlen(box.error.text), sizeof box.error.text - 1);
    assert_memory_equal(box.fence, "########", 8);
    assert_int_equal(kvg_fail(NULL, KVG_EXIT_USAGE, "%d", 3), -1);
}

/* ------------------------------------------------------------------------------------------ nearest */

/* Distances by hand (optimal string alignment). */
static void edit_distance_counts_edits(void **unused)
{
    static const char *const words[] = {"decode", "prefill", "append"};
    char deep[400];
    (void)unused;
    assert_int_equal(kvg_edit_distance("", ""), 0);
    assert_int_equal(kvg_edit_distance("", "abc"), 3);
    assert_int_equal(kvg_edit_distance("abc", ""), 3);
    assert_int_equal(kvg_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(kvg_edit_distance("ab", "ba"), 1);
    assert_int_equal(kvg_edit_distance("ca", "abc"), 3); /* 2 if a swapped pair could be edited again */
    assert_int_equal(kvg_edit_distance("Kv-Cache", "kv_cache"), 0);
    assert_string_equal(kvg_nearest("perfill", words, 3), "prefill");
    assert_null(kvg_nearest("zzzzzzzz", words, 3));
    assert_null(kvg_nearest("x", words, 3));
    memset(deep, 'a', sizeof deep);
    deep[sizeof deep - 1] = '\0';
    assert_int_equal(kvg_edit_distance(deep, ""), 127); /* longer words count by their first 127 letters */
    assert_int_equal(kvg_edit_distance(deep, deep), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parsing_undoes_formatting),
        cmocka_unit_test(different_cases_have_different_ids),
        cmocka_unit_test(ids_are_fnv_1a),
        cmocka_unit_test(gpu_cases_have_no_threads),
        cmocka_unit_test(the_longest_case_fits),
        cmocka_unit_test(every_option_is_named_like_its_axis),
        cmocka_unit_test(every_axis_is_a_column),
        cmocka_unit_test(defaults_are_valid_and_print_as_written),
        cmocka_unit_test(values_are_read_in_all_their_spellings),
        cmocka_unit_test(bad_values_are_refused_and_change_nothing),
        cmocka_unit_test(axes_are_found_by_name),
        cmocka_unit_test(bad_strings_are_refused),
        cmocka_unit_test(what_follows_is_filled_in),
        cmocka_unit_test(completing_is_idempotent),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(captured_input_fixes_the_shape),
        cmocka_unit_test(vllm_offers_what_its_sources_say),
        cmocka_unit_test(only_e4m3_has_a_meaning_on_the_fp8_path),
        cmocka_unit_test(predictions_have_no_kernel_and_no_clock),
        cmocka_unit_test(problem_is_the_case),
        cmocka_unit_test(row_holds_the_case),
        cmocka_unit_test(errors_are_cut_and_may_be_unwanted),
        cmocka_unit_test(edit_distance_counts_edits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
