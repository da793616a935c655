/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ask_kernel.c: `supports` of GPU kernels runs in a child process, also when a plan is made.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/plan/ask_kernel.h"
#include "harness/plan/plan.h"
#include "kernels/registry.h"

static int64_t asked_here; /* calls in this process; a child counts in its own copy */

/* Takes contexts up to 4096; the reason has the number of the process. */
static int supports_short(const struct kvg_problem *p, char *why, size_t size)
{
    asked_here++;
    snprintf(why, size, "process %d, %lld keys", (int)getpid(), (long long)p->max_seq_len);
    return p->max_seq_len <= 4096;
}

static int supports_and_dies(const struct kvg_problem *p, char *why, size_t size)
{
    (void)p;
    (void)why;
    (void)size;
    asked_here++;
    _exit(9);
}

static void arithmetic(const struct kvg_problem *p, int64_t seq_len, struct kvg_arithmetic *out)
{
    (void)p;
    (void)seq_len;
    memset(out, 0, sizeof *out);
}

static int attention(const struct kvg_attention_args *args)
{
    (void)args;
    return KVG_OK;
}

#define KERNEL(kernel_name, where, asks)                                                                     \
    {                                                                                                        \
        .abi_version = KVG_KERNEL_ABI_VERSION, .struct_size = sizeof(struct kvg_kernel),                     \
        .name = kernel_name, .summary = "for a test", .device = where, .supports = asks,                     \
        .arithmetic = arithmetic, .attention = attention, .rank = 1000                                       \
    }

static const struct kvg_kernel on_gpu = KERNEL("cuda/asked_short", KVG_DEVICE_CUDA, supports_short),
                               deadly = KERNEL("cuda/asked_deadly", KVG_DEVICE_CUDA, supports_and_dies),
                               on_cpu = KERNEL("cpu/asked_short", KVG_DEVICE_CPU, supports_short);

static void a_kernel_of_the_cpu_is_asked_here(void **unused)
{
    struct kvg_asker *asker = kvg_asker_new();
    char why[128], wanted[128];
    (void)unused;
    asked_here = 0;
    snprintf(wanted, sizeof wanted, "process %d, 5000 keys", (int)getpid());
    assert_int_equal(
        kvg_asker_ask(asker, &on_cpu, &(struct kvg_problem){.max_seq_len = 5000}, why, sizeof why), 0);
    assert_string_equal(why, wanted);
    assert_int_equal(asked_here, 1);
    kvg_asker_free(asker);
}

static void a_kernel_of_a_gpu_is_asked_in_one_child(void **unused)
{
    struct kvg_asker *asker = kvg_asker_new();
    char first[128], second[128];
    int one = 0, two = 0;
    (void)unused;
    asked_here = 0;
    assert_int_equal(
        kvg_asker_ask(asker, &on_gpu, &(struct kvg_problem){.max_seq_len = 4096}, first, sizeof first), 1);
    assert_int_equal(
        kvg_asker_ask(asker, &on_gpu, &(struct kvg_problem){.max_seq_len = 4097}, second, sizeof second), 0);
    assert_int_equal(sscanf(first, "process %d", &one), 1);
    assert_int_equal(sscanf(second, "process %d", &two), 1);
    assert_int_equal(one, two);
    assert_int_not_equal(one, getpid());
    assert_non_null(strstr(second, "4097 keys"));
    assert_int_equal(asked_here, 0);
    kvg_asker_free(asker);
    char child[64];
    snprintf(child, sizeof child, "/proc/%d", one);
    assert_int_not_equal(access(child, F_OK), 0); /* it has ended, and was waited for */
}

static void a_child_that_dies_has_said_no(void **unused)
{
    struct kvg_asker *asker = kvg_asker_new();
    char why[128];
    (void)unused;
    assert_int_equal(kvg_asker_ask(asker, &deadly, &(struct kvg_problem){.max_seq_len = 1}, why, sizeof why),
                     0);
    assert_non_null(strstr(why, "died, or did not answer"));
    assert_int_equal(kvg_asker_ask(asker, &on_gpu, &(struct kvg_problem){.max_seq_len = 1}, why, sizeof why),
                     0);
    assert_non_null(strstr(why, "died, or did not answer"));
    kvg_asker_free(asker);
    kvg_asker_free(NULL);
}

/* For globs and `best` too, GPU kernels are asked in the child. */
static void a_plan_asks_no_device(void **unused)
{
    static const struct kvg_kernel *const list[] = {&on_gpu};
    struct kvg_plan plan;
    struct kvg_error error = {0};
    char why[256];
    (void)unused;
    assert_int_equal(kvg_registry_add("this test", list, 1, why, sizeof why), 0);
    asked_here = 0;
    struct kvg_plan_request request = {
        .axis = {[KVG_AXIS_KERNEL] = "cuda/asked_*,best", [KVG_AXIS_CONTEXT] = "1k,8k"}};
    if (kvg_plan_make(&request, &plan, &error))
        fail_msg("%s", error.text);
    int64_t named = 0, globs = 0;
    for (int64_t i = 0; i < plan.count; i++) {
        named += strcmp(plan.cases[i].kernel, "cuda/asked_short") == 0;
        globs += strcmp(plan.cases[i].kernel, "cuda/asked_*") == 0;
        assert_true(strcmp(plan.cases[i].kernel, "cuda/asked_short") != 0 || plan.cases[i].context == 1024);
    }
    assert_int_equal(named, 1); /* 1k, by the glob and as the best of them: one case */
    assert_int_equal(globs, 1); /* 8k, to be skipped */
    assert_int_equal(plan.count, 3);
    assert_int_equal(asked_here, 0);
    kvg_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_of_the_cpu_is_asked_here),
        cmocka_unit_test(a_kernel_of_a_gpu_is_asked_in_one_child),
        cmocka_unit_test(a_child_that_dies_has_said_no),
        cmocka_unit_test(a_plan_asks_no_device),
    };
    return cmocka_run_group_tests_name("asking kernels", tests, NULL, NULL);
}
