/* SPDX-License-Identifier: Apache-2.0
 *
 * test_special_store.c: faults that show on special values only are found whatever the seed is, in cases that
 * get no other further run, and right kernels raise no alarm.
 *
 * Each faulty kernel rounds with code of its own, from the definition of e4m3. Only its fault differs from
 * the right kernel of this file, which must pass.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "harness/execute/execute.h"
#include "kernels/fp8.h"
#include "kernels/registry.h"

enum { SEEDS = 50, FEWER_SEEDS = 10, LAST = 0x7e };

/* ---------------------------------------------------------------- kernels */

enum fault {
    NONE,
    THROUGH_F16,
    ONE_BIT_LOST,
    V_FLUSHED,
    K_FLUSHED,
    NO_NEGATIVE_ZERO,
    LARGEST_MISSING,
    FAULTS
};
static enum fault fault;

static double code_value[LAST + 1], midpoint[LAST]; /* midpoint[c]: between the codes c and c + 1 */

static void define_codes(void)
{
    for (int c = 0; c <= LAST; c++)
        code_value[c] = c < 8 ? ldexp(c, -9) : ldexp(8 + c % 8, c / 8 - 10);
    for (int c = 0; c < LAST; c++)
        midpoint[c] = (code_value[c] + code_value[c + 1]) / 2;
}

/* x with `bits` significant bits, of which the last is worth at least `least`; to nearest even. */
static double with_bits(double x, int bits, double least)
{
    int exponent;
    frexp(x, &exponent);
    const double step = fmax(ldexp(1.0, exponent - bits), least);
    return nearbyint(x / step) * step;
}

static uint8_t encode(float value, float scale, int is_v)
{
    float x = value / scale;
    if (isnan(x))
        return 0x7f;
    if (isinf(x))
        x = copysignf(1e9f, x);
    double size = fabs((double)x);
    if (fault == THROUGH_F16)
        size = with_bits(size, 11, 0x1p-24);
    if (fault == ONE_BIT_LOST)
        size = with_bits(size, 23, 0.0);
    int code = 0; /* the number of midpoints below, or at a midpoint the even one of both codes */
    for (int step = 64; step > 0; step /= 2)
        if (code + step <= LAST && (size > midpoint[code + step - 1] ||
                                    (size == midpoint[code + step - 1] && (code + step) % 2 == 0)))
            code += step;
    if (code < 8 && ((fault == V_FLUSHED && is_v) || (fault == K_FLUSHED && !is_v)))
        code = 0;
    if (code == LAST && fault == LARGEST_MISSING)
        code--;
    return (uint8_t)(code | (signbit(x) && !(fault == NO_NEGATIVE_ZERO && code == 0) ? 0x80 : 0));
}

static void store_one(const struct kvg_store_args *a, int is_v)
{
    const struct kvg_problem *p = a->problem;
    const struct kvg_pages *pages = is_v ? &a->v_cache : &a->k_cache;
    const uint16_t *from = is_v ? a->v : a->k;
    const int64_t token_stride = is_v ? a->v_stride_token : a->k_stride_token,
                  head_stride = is_v ? a->v_stride_head : a->k_stride_head;
    for (int64_t t = 0; t < a->tokens; t++)
        for (int64_t h = 0; h < p->kv_heads && a->slot_mapping[t] >= 0; h++)
            for (int64_t d = 0; d < p->head_dim; d++) {
                const int64_t slot = a->slot_mapping[t];
                const float value = kvg_bf16_decode(from[t * token_stride + h * head_stride + d]),
                            scale = (is_v ? &a->scales.v : &a->scales.k)->data[h * a->scales.k.stride_head];
                ((uint8_t *)
                     pages->data)[slot / p->block_size * pages->stride_block +
                                  slot % p->block_size * pages->stride_slot + h * pages->stride_head + d] =
                    encode(value, scale, is_v);
            }
}

static int store(const struct kvg_store_args *a)
{
    store_one(a, 0);
    store_one(a, 1);
    return KVG_OK;
}

static int supports(const struct kvg_problem *p, char *why, size_t size)
{
    snprintf(why, size, "only a store in e4m3");
    return p->phase == KVG_PHASE_STORE && p->kv_dtype == KVG_E4M3;
}

static const struct kvg_kernel kernel = {.abi_version = KVG_KERNEL_ABI_VERSION,
                                         .struct_size = sizeof(struct kvg_kernel),
                                         .name = "test/store",
                                         .summary = "a store of this test",
                                         .device = KVG_DEVICE_CPU,
                                         .supports = supports,
                                         .store = store};

/* ---------------------------------------------------------------- cases */

/* Executes a small store with the seeds 1 to `seeds`, in one session: from the third case on, no further runs
 * are due except those on special values. Returns how many were not passed. */
static int count_failed(const char *kernel_name, const char *shape, int seeds)
{
    struct kvg_session *session = kvg_session_new();
    struct kvg_run_options options;
    int failed = 0;
    assert_non_null(session);
    kvg_run_options_default(&options);
    options.verify_only = 1;
    options.measure_roofs = 0;
    for (int seed = 1; seed <= seeds; seed++) {
        char text[KVG_CASE_STRING_MAX];
        struct kvg_case c;
        struct kvg_row row;
        struct kvg_error error;
        snprintf(text, sizeof text,
                 "kernel=%s phase=store kv_cache_dtype=fp8_e4m3 calibration=dataset batch=1 head_dim=64 %s "
                 "threads=1 seed=%d cache_state=none",
                 kernel_name, shape, seed);
        if (kvg_case_parse(text, &c, &error) || kvg_case_complete(&c, &error))
            fail_msg("%s: %s", text, error.text);
        assert_int_equal(kvg_row_init(&row), 0);
        kvg_execute_in(session, &c, &options, &row, NULL);
        if (row.status != KVG_PASSED && row.status != KVG_INCORRECT)
            fail_msg("%s: status %d: %s", text, (int)row.status, row.reason);
        failed += row.status == KVG_INCORRECT;
        kvg_row_free(&row);
    }
    kvg_session_free(session);
    return failed;
}

static const char *const shapes[] = {"context=48 heads=2/1 scheme=per_tensor",
                                     "context=1 heads=1/1 scheme=per_head"};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void every_seed_finds_the_fault(void **state)
{
    (void)state;
    for (int f = NONE + 1; f < FAULTS; f++)
        for (int i = 0; i < SHAPES; i++) {
            fault = (enum fault)f;
            const int seeds = f == THROUGH_F16 ? SEEDS : FEWER_SEEDS;
            const int failed = count_failed("test/store", shapes[i], seeds);
            if (failed != seeds)
                fail_msg("fault %d, %s: found with %d of %d seeds", f, shapes[i], failed, seeds);
        }
}

static void right_stores_pass(void **state)
{
    const struct kvg_kernel *k;
    int kernels = 0;
    (void)state;
    fault = NONE;
    for (int64_t i = 0; (k = kvg_registry_get(i)); i++) {
        const struct kvg_problem problem = {.phase = KVG_PHASE_STORE,
                                            .q_dtype = KVG_BF16,
                                            .kv_dtype = KVG_E4M3,
                                            .out_dtype = KVG_BF16,
                                            .batch = 1,
                                            .q_heads = 2,
                                            .kv_heads = 1,
                                            .head_dim = 64,
                                            .block_size = 16,
                                            .total_q = 48,
                                            .max_q_len = 48,
                                            .max_seq_len = 48,
                                            .total_kv = 48,
                                            .mask = KVG_MASK_CAUSAL,
                                            .threads = 1};
        char why[256];
        if (k->device != KVG_DEVICE_CPU || !k->store || !k->supports(&problem, why, sizeof why))
            continue;
        for (int j = 0; j < SHAPES; j++)
            assert_int_equal(count_failed(k->name, shapes[j], FEWER_SEEDS), 0);
        kernels++;
    }
    assert_true(kernels >= 2); /* ours and cpu/store_scalar */
}

static int set_up(void **state)
{
    static const struct kvg_kernel *const list[] = {&kernel};
    char why[256];
    (void)state;
    define_codes();
    return kvg_registry_add("this test", list, 1, why, sizeof why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_seed_finds_the_fault),
        cmocka_unit_test(right_stores_pass),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
