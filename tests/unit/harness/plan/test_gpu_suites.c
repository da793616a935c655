/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu_suites.c: the Hopper kernels take every case that the suites for GPUs give them on an H200. A case
 * that they do not take would be skipped there, and so not checked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/plan/plan.h"
#include "kernels/cuda/plan.h"

/* H200: multiprocessors, and shared memory a block may have (NVIDIA's Hopper tuning guide: 227 KB). */
enum { MULTIPROCESSORS = 132, SHARED_BYTES = 227 * 1024 };

/* The conditions of `supports` of the decode kernels besides a plan; see kernels/README.md. */
static int outside(const struct kvg_problem *p)
{
    static const int64_t dims[] = {64, 96, 128, 192, 256};
    int known = 0;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        known |= p->head_dim == dims[i];
    return !known || (p->phase != KVG_PHASE_DECODE && p->phase != KVG_PHASE_APPEND) || p->max_q_len > 16 ||
           (p->path == KVG_PATH_FP8 && p->kv_dtype != KVG_E4M3);
}

/* Refused cases are printed. */
static int64_t count_refused(const char *suite, int64_t *taken)
{
    const char *source = getenv("KVG_SOURCE");
    struct kvg_plan plan;
    struct kvg_error error;
    char path[1024];
    int64_t refused = 0;
    snprintf(path, sizeof path, "%s/%s", source ? source : ".", suite);
    const struct kvg_plan_request request = {.suite = path};
    if (kvg_plan_make(&request, &plan, &error))
        fail_msg("%s", error.text);
    for (int64_t i = 0; i < plan.count; i++) {
        const struct kvg_case *c = &plan.cases[i];
        struct kvg_problem problem;
        struct kvg_sm90_plan cut;
        char why[256] = "outside of what the kernel takes", text[KVG_CASE_STRING_MAX];
        if (!strstr(c->kernel, "_sm90"))
            continue;
        kvg_case_problem(c, &problem);
        if (kvg_case_without_meaning(c, why, sizeof why) || outside(&problem) ||
            kvg_sm90_make_plan(&problem, NULL, MULTIPROCESSORS, SHARED_BYTES, &cut, why, sizeof why)) {
            kvg_case_format(c, text);
            print_error("%s: %s\n", text, why);
            refused++;
        } else {
            ++*taken;
        }
    }
    kvg_plan_free(&plan);
    return refused;
}

static void hopper_kernels_take_their_cases(void **state)
{
    static const char *const suites[] = {"tests/gpu/boundary_gpu.yaml", "tests/gpu/sanitize_gpu.yaml",
                                         "harness/suites/h200.yaml"};
    (void)state;
    for (size_t i = 0; i < sizeof suites / sizeof *suites; i++) {
        int64_t taken = 0;
        assert_int_equal(count_refused(suites[i], &taken), 0);
        assert_true(taken > 0);
    }
}

/* The cases that the targets of the published run are for: decode, cold, 32/8 heads, head_dim 128, pages of
 * 16, NHD. */
static void the_published_run_has_its_targets(void **state)
{
    static const char *const targets[] = {
        "kernel=cuda/fp8_sm90 .*path=fp8 kv_cache_dtype=fp8_e4m3 .* batch=64 context=32768 ",
        "kernel=cuda/fp8_sm90 .*path=fp8 kv_cache_dtype=fp8_e4m3 .* batch=64 context=131072 ",
        "kernel=cuda/fp8_sm90 .*path=fp8 kv_cache_dtype=fp8_e4m3 .* batch=8 context=32768 ",
        "kernel=cuda/fp8_sm90 .*path=fp8 kv_cache_dtype=fp8_e4m3 .* batch=1 context=131072 ",
        "kernel=cuda/fp8_sm90 .*path=fp8 kv_cache_dtype=fp8_e4m3 .* batch=1 context=8192 ",
        "kernel=cuda/dequant_sm90 .*path=dequant kv_cache_dtype=fp8_e4m3 .* batch=64 context=32768 ",
        "kernel=cuda/dequant_sm90 .*path=dequant kv_cache_dtype=fp8_e5m2 .* batch=64 context=32768 ",
        "kernel=cuda/dequant_sm90 .*path=dequant kv_cache_dtype=fp8_e4m3 .* batch=8 context=32768 ",
        "kernel=cuda/dequant_sm90 .*path=dequant kv_cache_dtype=auto .* batch=64 context=32768 "};
    const char *source = getenv("KVG_SOURCE");
    char path[1024], filter[512];
    (void)state;
    snprintf(path, sizeof path, "%s/harness/suites/h200.yaml", source ? source : ".");
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        struct kvg_plan plan;
        struct kvg_error error;
        snprintf(filter, sizeof filter,
                 "%sheads=32/8 head_dim=128 block_size=16 layout=NHD .*cache_state=cold", targets[i]);
        const struct kvg_plan_request request = {.suite = path, .filter = filter};
        if (kvg_plan_make(&request, &plan, &error))
            fail_msg("%s", error.text);
        assert_true(plan.count > 0);
        kvg_plan_free(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hopper_kernels_take_their_cases),
        cmocka_unit_test(the_published_run_has_its_targets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
