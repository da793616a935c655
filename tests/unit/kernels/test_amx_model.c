/* SPDX-License-Identifier: Apache-2.0
 *
 * test_amx_model.c: the AMX kernel, compiled with tile registers in software (tile_model.h). A CPU without
 * AMX can then check it; AVX-512 with VBMI, VBMI2 and BF16 is enough. The shapes exercise whole tiles, the
 * general path, and the changes between the two. The calls of both are counted, so that neither is missed.
 *
 * needs: cpu:x86_64
 */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_plan.h"
#include "tests/unit/kernel_check.h"
#include "tests/unit/tile_model.h"

#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(                                                                                \
    __attribute__((                                                                                          \
        target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2,avx512bf16,avx2,fma,f16c,bmi2"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2,avx512bf16,avx2,fma,f16c,bmi2")
#endif
#define kvg_attention_amx amx_on_model
#include "kernels/cpu/attention_amx.c"
#undef kvg_attention_amx
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

static const struct kvg_attention_ops *under_test;
static struct kvg_attention_ops ops; /* the same, counted */
static int64_t whole_calls, general_calls;

static void count_whole(const struct kvg_whole *tile)
{
#pragma omp atomic
    whole_calls++;
    under_test->whole(tile);
}

static void count_logits(const struct kvg_keys *keys, const void *q, int64_t rows, void *scratch, float *s)
{
#pragma omp atomic
    general_calls++;
    under_test->logits(keys, q, rows, scratch, s);
}

static int dequant_supports(const struct kvg_problem *p, char *why, size_t size)
{
    return kvg_attention_supports(&ops, KVG_PATH_DEQUANT, p, why, size);
}

static int fp8_supports(const struct kvg_problem *p, char *why, size_t size)
{
    return kvg_attention_supports(&ops, KVG_PATH_FP8, p, why, size);
}

static void arithmetic(const struct kvg_problem *p, int64_t seq_len, struct kvg_arithmetic *out)
{
    (void)seq_len;
    kvg_attention_arithmetic(&ops, p, out);
}

static int64_t workspace(const struct kvg_problem *p)
{
    return kvg_attention_workspace(&ops, p);
}

static int run(const struct kvg_attention_args *args)
{
    return kvg_attention_run(&ops, args);
}

#define MODEL(path)                                                                                          \
    {                                                                                                        \
        .abi_version = KVG_KERNEL_ABI_VERSION, .struct_size = sizeof(struct kvg_kernel),                     \
        .name = "model/" #path "_amx", .summary = "AMX in software", .device = KVG_DEVICE_CPU,               \
        .supports = path##_supports, .arithmetic = arithmetic, .workspace_bytes = workspace,                 \
        .attention = run                                                                                     \
    }
static const struct kvg_kernel dequant = MODEL(dequant), fp8 = MODEL(fp8);

static const enum kvg_dtype caches[] = {KVG_BF16, KVG_E4M3, KVG_E5M2};

/* Both paths, every cache. Expects calls of whole tiles, and of the others, for each (1), for none (0). */
static void check(const struct shape *shape, int whole_tiles, int general, const char *label)
{
    for (size_t c = 0; c < 4; c++) { /* the fourth: path fp8 */
        whole_calls = general_calls = 0;
        if (c < 3)
            run_kernel(&dequant, shape, KVG_PATH_DEQUANT, caches[c], label);
        else
            run_kernel(&fp8, shape, KVG_PATH_FP8, KVG_E4M3, label);
        if ((whole_calls > 0) != whole_tiles || (general_calls > 0) != general) {
            fail_msg("%s, cache %d: %lld calls for whole tiles, %lld for others", label, (int)c,
                     (long long)whole_calls, (long long)general_calls);
        }
    }
}

/* ---------------------------------------------------------------- cases */

static void test_groups(void **state)
{
    (void)state;
    for (int64_t group = 1; group <= 17; group++) {
        const struct shape a = {2 * group, 2,  group % 2 ? 128 : 64, 16, 0, 0, group % 3 == 0, 1, 1, 1,
                                {192},     {1}};
        check(&a, group <= 16, group > 16, "group");
    }
}

static void test_head_dims(void **state)
{
    static const int64_t dims[] = {32, 64, 96, 128, 192, 256};
    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        const int whole = dims[i] == 64 || dims[i] == 128;
        const struct shape a = {8, 2, dims[i], 16, 0, 0, KVG_NHD, 1, 2, 2, {128, 64}, {1, 1}};
        check(&a, whole, !whole, "head_dim");
    }
}

/* Pages of every size that shares a factor with the tile in another way, in both layouts; a tail of every
 * kind. */
static void test_pages(void **state)
{
    static const int64_t sizes[] = {8, 16, 24, 40, 64, 128, 136};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int layout = 0; layout < 2; layout++) {
            const struct shape a = {
                12, 3, 64, sizes[i], 0, 0, layout, 1, 1, 5, {63, 64, 65, 127, 200}, {1, 1, 1, 1, 1}};
            const struct shape b = {4, 1, 128, sizes[i], 0, 0, layout, 1, 2, 2, {256, 129}, {1, 1}};
            check(&a, 1, 1, "pages");
            check(&b, 1, 1, "pages, one head");
        }
    }
}

/* Append with few rows: a tile is whole where the first query sees all of it and the last one as well. */
static void test_append(void **state)
{
    const struct shape causal = {4, 2, 64, 16, 0, 0, KVG_NHD, 1, 1, 2, {200, 70}, {4, 7}};
    const struct shape all = {4, 2, 128, 16, 0, 0, KVG_HND, 0, 1, 1, {192}, {8}};
    const struct shape wide = {8, 2, 64, 16, 0, 0, KVG_NHD, 1, 1, 1, {140}, {9}}; /* 36 rows */
    (void)state;
    check(&causal, 1, 1, "append, causal");
    check(&all, 1, 0, "append, all see all");
    check(&wide, 0, 1, "append, many rows");
}

/* A window makes the first tile partial: the general path, whole tiles, the general path again. */
static void test_windows(void **state)
{
    const struct shape a = {8, 2, 64, 16, 150, 0, KVG_NHD, 1, 1, 1, {290}, {1}};
    const struct shape b = {4, 1, 128, 32, 128, 0, KVG_HND, 1, 1, 1, {256}, {1}};
    const struct shape c = {4, 1, 64, 16, 70, 0, KVG_NHD, 1, 1, 1, {300}, {3}};
    (void)state;
    check(&a, 1, 1, "window");
    check(&b, 1, 0, "window of two tiles");
    check(&c, 0, 1, "window less than any whole tile for three queries");
}

static void test_soft_cap(void **state)
{
    const struct shape a = {4, 2, 64, 16, 0, 30.0f, KVG_NHD, 1, 1, 1, {130}, {1}};
    (void)state;
    check(&a, 0, 1, "soft cap");
}

static void test_splits(void **state)
{
    const struct shape a = {4, 1, 64, 16, 0, 0, KVG_NHD, 1, 2, 2, {2 * 4096 + 70, 4096}, {1, 1}};
    (void)state;
    check(&a, 1, 1, "splits");
}

/* A scale that is not positive reverses the order of the logits. It must not use whole tiles, and the result
 * must be right. */
static void test_scale_signs(void **state)
{
    const struct shape shape = {8, 2, 64, 16, 0, 0, KVG_NHD, 1, 1, 1, {192}, {1}};
    (void)state;

    for (int sign = -1; sign <= 0; sign++) {
        struct setting s;

        describe(&s, &shape, KVG_PATH_DEQUANT, KVG_E4M3);
        set_up(&s, &dequant, 5);
        s.args.softmax_scale *= (float)sign;
        whole_calls = 0;
        assert_int_equal(dequant.attention(&s.args), KVG_OK);
        compare(&s, &dequant, "scale");
        assert_int_equal(whole_calls, 0);
        tear_down(&s);
    }
}

static void test_owned_nan_shows(void **state)
{
    (void)state;
    for (int64_t group = 1; group <= 16; group += 5) {
        for (int in_k = 0; in_k < 2; in_k++) {
            for (size_t c = 0; c < 3; c++)
                check_owned_nan(&dequant, KVG_PATH_DEQUANT, caches[c], group, 64, in_k);
            whole_calls = 0;
            check_owned_nan(&fp8, KVG_PATH_FP8, KVG_E4M3, group, 64, in_k);
            assert_true(whole_calls > 0);
        }
    }
}

/* Every code of a cache in V. K is zero, so that all 64 keys weigh the same. */
static void check_codes(enum kvg_dtype kv)
{
    const struct shape shape = {4, 1, 128, 64, 0, 0, KVG_NHD, 1, 1, 1, {64}, {1}};
    struct setting s;

    for (int base = 0; base < 256; base += 128) {
        describe(&s, &shape, KVG_PATH_DEQUANT, kv);
        set_up(&s, &dequant, 3);
        for (int64_t j = 0; j < 64; j++) {
            const int64_t at = cache_index(&s, 0, j, 0);
            memset(s.k + at, 0, 128);
            memset(s.v + at, 0, 128);
        }
        for (int i = 0; i < 128; i++) /* half the codes in one key; all others are zero */
            s.v[cache_index(&s, 0, 21, 0) + i] = (unsigned char)(base + i);
        s.scale_v[0] = 64.0f;
        assert_int_equal(dequant.attention(&s.args), KVG_OK);
        for (int64_t i = 0; i < 4 * 128; i++) {
            const double want = kvg_ref_fp8_decode(ref_format(kv), (uint8_t)(base + i % 128));
            const double got = kvg_ref_load(KVG_REF_BF16, s.out, i);
            const int same = isnan(want)   ? isnan(got)
                             : isinf(want) ? got == want
                                           : fabs(got - want) <= 0x1p-8 * fabs(want);
            if (!same) {
                fail_msg("code %02x of cache %d: %g, want %g", (unsigned)(base + i % 128), (int)kv, got,
                         want);
            }
        }
        tear_down(&s);
    }
}

static void test_every_code(void **state)
{
    (void)state;
    check_codes(KVG_E4M3);
    check_codes(KVG_E5M2);
}

/* ---------------------------------------------------------------- the kernels */

static int prepare(const struct kvg_attention_ops *which, enum kvg_isa isa)
{
    under_test = which;
    ops = *which;
    ops.isa = isa;
    ops.whole = count_whole;
    ops.logits = count_logits;
    return 0;
}

static int on_model(void **state)
{
    (void)state;
    return prepare(&amx_on_model, KVG_ISA_AVX512VBMI); /* what the CPU still needs */
}

static int on_hardware(void **state)
{
    (void)state;
    return prepare(&kvg_attention_amx, KVG_ISA_AMX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),          cmocka_unit_test(test_head_dims),
        cmocka_unit_test(test_pages),           cmocka_unit_test(test_append),
        cmocka_unit_test(test_windows),         cmocka_unit_test(test_soft_cap),
        cmocka_unit_test(test_splits),          cmocka_unit_test(test_scale_signs),
        cmocka_unit_test(test_owned_nan_shows), cmocka_unit_test(test_every_code),
    };
    char why[256];
    int failed = 0;

    if (!__builtin_cpu_supports("avx512vbmi2"))
        print_message("tiles in software: skipped: this CPU does not offer avx512vbmi2\n");
    else if (kvg_cpu_has(KVG_ISA_AVX512VBMI, why, sizeof why))
        failed += cmocka_run_group_tests_name("tiles in software", tests, on_model, NULL);
    else
        print_message("tiles in software: skipped: %s\n", why);
    if (kvg_cpu_has(KVG_ISA_AMX, why, sizeof why))
        failed += cmocka_run_group_tests_name("tiles of this CPU", tests, on_hardware, NULL);
    else
        print_message("tiles of this CPU: skipped: %s\n", why);
    return failed;
}
