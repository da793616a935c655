/* SPDX-License-Identifier: Apache-2.0
 *
 * test_random_cases.c: right kernels pass every check on random cases.
 *
 * test_false_alarms.c tests the bounds with kernels of its own. This test executes the built-in CPU kernels
 * as a run does: every kernel of this machine, random values of all axes (views, lengths, masks, scales,
 * inputs), and all further runs.
 *
 * KVG_TEST_CASES sets the number of cases (default 400), KVG_TEST_SEED the seed. A failed case prints its
 * string.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/execute/execute.h"
#include "harness/execute/options.h"
#include "harness/execute/session.h"
#include "kernels/registry.h"
#include "tests/unit/prepared_values.h"

/* Values that a case may take, as text; an axis that is not listed stays at its default. */
struct choice {
    enum kvg_axis axis;
    const char *values[14];
};

static const struct choice choices[] = {
    {KVG_AXIS_PHASE, {"store", "decode", "decode", "append", "prefill"}},
    {KVG_AXIS_PATH, {"dequant", "fp8"}},
    {KVG_AXIS_KV_CACHE_DTYPE, {"auto", "fp8_e4m3", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz"}},
    {KVG_AXIS_SCHEME, {"per_tensor", "per_head"}},
    {KVG_AXIS_CALIBRATION, {"none", "random_tokens", "dataset"}},
    {KVG_AXIS_INPUT,
     {"normal", "normal", "normal", "outlier", "channel_outlier", "sink", "v_nonneg", "v_shift", "v_small",
      "k_wide", "q_wide", "far_logits", "faint", "needle"}},
    {KVG_AXIS_BATCH, {"1", "2", "3", "4", "5", "7", "9", "34"}},
    {KVG_AXIS_CONTEXT, {"1", "7", "16", "17", "33", "64", "65", "100", "129", "200"}},
    {KVG_AXIS_HEADS, {"1/1", "2/1", "3/1", "7/1", "4/2", "14/2", "9/3", "6/6", "18/9"}},
    {KVG_AXIS_HEAD_DIM, {"64", "80", "96", "128", "256"}},
    {KVG_AXIS_BLOCK_SIZE, {"8", "16", "24", "32", "64", "128", "1", "3", "5", "7", "12"}},
    {KVG_AXIS_LAYOUT, {"NHD", "HND"}},
    {KVG_AXIS_VIEWS, {"dense", "dense", "padded", "fused", "paired", "head_major"}},
    {KVG_AXIS_SHARED_PAGES, {"0", "0", "0", "1", "3"}},
    {KVG_AXIS_LENGTHS,
     {"uniform", "ragged", "gaps", "gaps", "1x40+17x33+5x5", "2*1x65+40x64+0x9", "20x20+0x0+3x3",
      "1x17+1x90"}},
    {KVG_AXIS_MASK,
     {"causal", "causal", "causal", "full", "chunked:1", "chunked:24", "chunked:100", "prefix", "prefix:1",
      "prefix:33", "prefix:1000"}},
    {KVG_AXIS_WINDOW, {"0", "0", "0", "1", "16", "33", "100"}},
    {KVG_AXIS_SOFT_CAP, {"0", "0", "2", "30"}},
    {KVG_AXIS_SOFTMAX_SCALE, {"auto", "auto", "0.03", "0.3"}},
    {KVG_AXIS_THREADS, {"1", "2", "3"}},
    {KVG_AXIS_SINKS, {"off", "off", "normal", "large"}},
};

static void choose(struct rng *r, struct kvg_case *c, const struct choice *choice)
{
    int64_t n = 0;
    struct kvg_error error;
    while (n < 14 && choice->values[n])
        n++;
    if (kvg_case_set(c, choice->axis, choice->values[rng_below(r, n)], &error))
        fail_msg("%s", error.text);
}

/* A random case that has a meaning. 0 if these values contradict each other. */
static int random_case(struct rng *r, struct kvg_case *c)
{
    char why[256];
    struct kvg_error error;
    kvg_case_default(c);
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++)
        choose(r, c, &choices[i]);
    if (c->phase == KVG_PHASE_STORE) {
        c->path = KVG_PATH_NONE;
        c->sinks = KVG_SINKS_OFF;
    }
    if (c->phase == KVG_PHASE_PREFILL && c->context > 65)
        c->context = 65;
    if (c->batch > 9 && c->phase != KVG_PHASE_DECODE)
        c->batch = 9;
    if (c->lengths == KVG_LENGTHS_LIST && c->phase == KVG_PHASE_STORE)
        c->lengths = KVG_LENGTHS_GAPS;
    if (c->phase == KVG_PHASE_STORE || c->batch == 1)
        c->shared_pages = 0;
    c->q_len = c->phase == KVG_PHASE_APPEND ? 2 + rng_below(r, 6) : 0;
    c->seed = rng_bits(r) >> 1;
    c->cache_state = KVG_STATE_NONE;
    if (c->mask == KVG_MASK_FULL)
        c->window = 0;
    if (c->mask == KVG_MASK_CHUNKED && strcmp(c->input, "faint") == 0)
        strcpy(c->input, "normal"); /* few keys in sight */
    if (strcmp(c->input, "far_logits") == 0) {
        c->sinks = KVG_SINKS_OFF; /* beside logits so far below zero a sink leaves nothing */
        c->softmax_scale = 0;     /* larger logits have rounding errors beside which zeros would pass */
        c->path = c->path == KVG_PATH_FP8 ? KVG_PATH_DEQUANT : c->path;
    }
    if (strcmp(c->input, "faint") == 0)
        strcpy(c->input, c->context > 64 && c->window == 0 && c->softmax_scale == 0
                             ? "faint"
                             : "normal"); /* few keys: all zero */
    if (c->lengths == KVG_LENGTHS_LIST && strcmp(c->input, "faint") == 0)
        strcpy(c->input, "normal"); /* its sequences are short */
    return !kvg_case_complete(c, &error) && !kvg_case_without_meaning(c, why, sizeof why);
}

static const struct kvg_kernel *random_kernel(struct rng *r, const struct kvg_case *c)
{
    const struct kvg_kernel *usable[64], *k;
    struct kvg_problem problem;
    char why[256];
    int64_t n = 0;
    kvg_case_problem(c, &problem);
    for (int64_t i = 0; (k = kvg_registry_get(i)) && n < 64; i++)
        if (k->device == KVG_DEVICE_CPU && (c->phase == KVG_PHASE_STORE ? !!k->store : !!k->attention) &&
            kvg_kernel_takes(k, &problem, why, sizeof why))
            usable[n++] = k;
    return n ? usable[rng_below(r, n)] : NULL;
}

static void right_kernels_pass(void **state)
{
    const char *seed = getenv("KVG_TEST_SEED"), *cases = getenv("KVG_TEST_CASES");
    const int64_t wanted = cases ? atoll(cases) : 400;
    struct kvg_run_options options;
    struct kvg_session *session = kvg_session_new();
    int64_t run = 0, failed = 0;
    (void)state;
    assert_non_null(session);
    kvg_run_options_default(&options);
    options.verify_only = 1;
    options.measure_roofs = 0;
    struct rng r = {seed ? (uint64_t)atoll(seed) : 1};
    while (run < wanted) {
        struct kvg_case c;
        struct kvg_row row;
        if (!random_case(&r, &c))
            continue;
        const struct kvg_kernel *kernel = random_kernel(&r, &c);
        if (!kernel)
            continue;
        snprintf(c.kernel, sizeof c.kernel, "%s", kernel->name);
        assert_int_equal(kvg_row_init(&row), 0);
        kvg_execute_in(session, &c, &options, &row, NULL);
        if (row.status != KVG_PASSED) {
            printf("%s\n  status %d: %s\n", row.case_string, (int)row.status, row.reason);
            failed++;
        }
        kvg_row_free(&row);
        run++;
        if (run % 200 == 0 ||
            kvg_session_tainted(session)) { /* further runs are made anew in a new session */
            kvg_session_free(session);
            session = kvg_session_new();
            assert_non_null(session);
        }
    }
    kvg_session_free(session);
    printf("%lld random cases, %lld false alarms\n", (long long)run, (long long)failed);
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(right_kernels_pass)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
