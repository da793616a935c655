/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ask_device.c: facts about a GPU come from a child process, also when that process finds no device or
 * dies.
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

#include "harness/device/ask_device.h"
#include "harness/device/device.h"

enum behaviour { TELLS, HAS_NONE, DIES }; /* what the child process does */
static enum behaviour behaviour;
static pid_t test_process;

static int fact(struct kvg_device *d, int64_t i, const char **key, const char **value)
{
    static const char *const facts[][2] = {
        {"gpu", "Model 1"}, {"gpu_memory_bytes", "150109880320"}, {"cuda_driver", "13.0"}};
    (void)d;
    if (i >= 3)
        return -1;
    *key = facts[i][0];
    *value = facts[i][1];
    return 0;
}

struct kvg_device *kvg_cuda_open(int index, char *why, size_t size)
{
    static const struct kvg_device_ops ops = {.name = "test", .fact = fact};
    static struct kvg_device device = {.ops = &ops};
    if (getpid() == test_process || behaviour == DIES || index != 0)
        _exit(77); /* the parent must never open a device: in the parent this ends the test with a failure */
    if (behaviour == HAS_NONE)
        snprintf(why, size, "no driver\tof any kind");
    return behaviour == HAS_NONE ? NULL : &device;
}

static const struct kvg_fact *ask(struct kvg_facts *facts, enum behaviour how, const char *name)
{
    behaviour = how;
    memset(facts, 0, sizeof *facts);
    assert_int_equal(kvg_device_facts(facts), 0);
    return kvg_facts_find(facts, name);
}

static void test_facts_of_a_device(void **state)
{
    struct kvg_facts facts;
    (void)state;
    assert_string_equal(ask(&facts, TELLS, "gpu")->text, "Model 1");
    const struct kvg_fact *bytes = kvg_facts_find(&facts, "gpu_memory_bytes");
    assert_null(bytes->text);
    assert_true(bytes->number == 150109880320.0);
    assert_string_equal(kvg_facts_find(&facts, "cuda_driver")->text, "13.0");
    assert_null(kvg_facts_find(&facts, "gpu_reason"));
    kvg_facts_free(&facts);
}

static void test_no_device_has_a_reason(void **state)
{
    struct kvg_facts facts;
    (void)state;
    assert_string_equal(ask(&facts, HAS_NONE, "gpu")->text, "none");
    assert_string_equal(kvg_facts_find(&facts, "gpu_reason")->text, "no driver\tof any kind");
    kvg_facts_free(&facts);
}

static void test_a_child_that_dies(void **state)
{
    struct kvg_facts facts;
    (void)state;
    assert_string_equal(ask(&facts, DIES, "gpu")->text, "none");
    assert_non_null(strstr(kvg_facts_find(&facts, "gpu_reason")->text, "gave no answer"));
    kvg_facts_free(&facts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts_of_a_device),
        cmocka_unit_test(test_no_device_has_a_reason),
        cmocka_unit_test(test_a_child_that_dies),
    };
    test_process = getpid();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
