/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan.c: products, duplicates, kernels, filters and order of plans. Expected counts are computed by
 * hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/inputs/inputs.h"
#include "harness/plan/plan.h"
#include "kernels/registry.h"

/* A suite in a file of its own. */
struct file {
    char path[64];
};
static void write_suite(struct file *file, const char *text)
{
    strcpy(file->path, "/tmp/kvg-plan-XXXXXX.yaml");
    int handle = mkstemps(file->path, 5);
    assert_true(handle >= 0);
    assert_int_equal(write(handle, text, strlen(text)), (int)strlen(text));
    close(handle);
}

static void make(const struct kvg_plan_request *request, struct kvg_plan *plan)
{
    struct kvg_error error = {0};
    if (kvg_plan_make(request, plan, &error))
        fail_msg("%s", error.text);
}

static void refuse(const struct kvg_plan_request *request, enum kvg_exit code, const char *says)
{
    struct kvg_plan plan;
    struct kvg_error error = {0};
    if (kvg_plan_make(request, &plan, &error) == 0)
        fail_msg("a plan was made; wanted: %s", says);
    assert_int_equal(error.exit_code, code);
    if (!strstr(error.text, says))
        fail_msg("'%s' does not say '%s'", error.text, says);
    assert_null(plan.cases);
}

static int64_t count_with(const struct kvg_plan *plan, const char *what)
{
    int64_t count = 0;
    for (int64_t i = 0; i < plan->count; i++) {
        char text[KVG_CASE_STRING_MAX];
        kvg_case_format(&plan->cases[i], text);
        count += strstr(text, what) != NULL;
    }
    return count;
}

/* ------------------------------------------------------------------------------------------ products */

static void lists_multiply(void **unused)
{
    struct kvg_plan plan;
    (void)unused;
    make(&(struct kvg_plan_request){.axis = {[KVG_AXIS_CONTEXT] = "1k:8k:*2",
                                             [KVG_AXIS_SCHEME] = "per_tensor,per_head",
                                             [KVG_AXIS_CALIBRATION] = "none,dataset"}},
         &plan);
    assert_int_equal(plan.count, 4 * 2 * 2);
    assert_int_equal(count_with(&plan, "context=8192 "), 4);
    assert_int_equal(count_with(&plan, "scheme=per_head calibration=dataset"), 4);
    kvg_plan_free(&plan);
    kvg_plan_free(&plan); /* harmless */
}

/* auto: 2 schemes x 3 calibrations collapse to one; fp8 keeps six. */
static void auto_collapses(void **unused)
{
    struct kvg_plan plan;
    (void)unused;
    make(&(struct kvg_plan_request){.axis = {[KVG_AXIS_KV_CACHE_DTYPE] = "auto,fp8",
                                             [KVG_AXIS_SCHEME] = "per_tensor,per_head",
                                             [KVG_AXIS_CALIBRATION] = "none,random_tokens,dataset"}},
         &plan);
    assert_int_equal(plan.count, 1 + 6);
    assert_int_equal(count_with(&plan, "kv_cache_dtype=auto scheme=per_tensor calibration=none"), 1);
    kvg_plan_free(&plan);
}

static void q_len_is_for_append_alone(void **unused)
{
    struct kvg_plan plan;
    (void)unused;
    make(&(struct kvg_plan_request){.axis = {[KVG_AXIS_PHASE] = "store,decode,append,prefill",
                                             [KVG_AXIS_Q_LEN] = "4,8",
                                             [KVG_AXIS_PATH] = "dequant,fp8",
                                             [KVG_AXIS_CONTEXT] = "512"}},
         &plan);
    /* store: paths are one; decode and prefill: 2 paths; append: 2 paths x 2 q_len */
    assert_int_equal(plan.count, 1 + 2 + 4 + 2);
    assert_int_equal(count_with(&plan, "q_len=4"), 2);
    assert_int_equal(count_with(&plan, "q_len="), 4);
    kvg_plan_free(&plan);
}

static void suites_add_and_options_override(void **unused)
{
    struct file file;
    struct kvg_plan plan;
    (void)unused;
    write_suite(&file, "name: two\n"
                       "defaults: {head_dim: 64}\n"
                       "sweeps:\n"
                       "  - {phase: decode, context: [1k, 2k]}\n"
                       "  - {phase: store, context: [1k, 2k, 4k], head_dim: 128}\n");
    make(&(struct kvg_plan_request){.suite = file.path}, &plan);
    assert_string_equal(plan.name, "two");
    assert_int_equal(plan.count, 2 + 3);
    assert_int_equal(count_with(&plan, "head_dim=64"), 2);
    kvg_plan_free(&plan);
    make(&(struct kvg_plan_request){.suite = file.path, .axis = {[KVG_AXIS_CONTEXT] = "512"}}, &plan);
    assert_int_equal(plan.count, 2);
    assert_int_equal(count_with(&plan, "context=512 "), 2);
    kvg_plan_free(&plan);
    make(&(struct kvg_plan_request){.suite = file.path, .axis = {[KVG_AXIS_PHASE] = "decode"}}, &plan);
    assert_int_equal(plan.count, 5); /* 1k and 2k in both, at different head_dim */
    kvg_plan_free(&plan);
    make(&(struct kvg_plan_request){.suite = file.path,
                                    .axis = {[KVG_AXIS_PHASE] = "decode", [KVG_AXIS_HEAD_DIM] = "64"}},
         &plan);
    assert_int_equal(plan.count, 3);
    kvg_plan_free(&plan);
    unlink(file.path);
}

static void all_layers_of_a_captured_input(void **unused)
{
    struct kvg_plan plan;
    struct kvg_captured_info info;
    (void)unused;
    if (kvg_captured_read_info("smollm2", &info, NULL))
        fail_msg("the captured input is not there");
    make(
        &(struct kvg_plan_request){
            .axis =
                {[KVG_AXIS_INPUT] = "normal,smollm2", [KVG_AXIS_LAYER] = "all", [KVG_AXIS_CONTEXT] = "512"}},
        &plan);
    assert_int_equal(plan.count, 1 + info.n_layers);
    assert_int_equal(count_with(&plan, "input=smollm2 layer="), info.n_layers);
    assert_int_equal(count_with(&plan, "input=normal batch="), 1);
    assert_int_equal(count_with(&plan, "heads=9/3"), info.n_layers);
    kvg_plan_free(&plan);
}

/* ------------------------------------------------------------------------------------------ kernels */

static int takes(const struct kvg_kernel *kernel, const struct kvg_case *c)
{
    struct kvg_problem problem;
    char why[256];
    kvg_case_problem(c, &problem);
    return (c->phase == KVG_PHASE_STORE ? kernel->store != NULL : kernel->attention != NULL) &&
           kernel->supports(&problem, why, sizeof why);
}

static int rank_in(const struct kvg_kernel *kernel, const struct kvg_case *c)
{
    struct kvg_problem problem;
    kvg_case_problem(c, &problem);
    return kvg_kernel_rank(kernel, &problem);
}

static void best_is_the_highest_rank_that_takes_the_case(void **unused)
{
    struct kvg_plan plan;
    (void)unused;
    make(&(struct kvg_plan_request){.axis = {[KVG_AXIS_PHASE] = "store,decode,append,prefill",
                                             [KVG_AXIS_PATH] = "dequant,fp8",
                                             [KVG_AXIS_KV_CACHE_DTYPE] = "fp8_e4m3",
                                             [KVG_AXIS_CONTEXT] = "512"}},
         &plan);
    assert_int_equal(plan.count, 7);
    for (int64_t i = 0; i < plan.count; i++) {
        const struct kvg_kernel *kernel = kvg_registry_find(plan.cases[i].kernel);
        assert_non_null(kernel);
        assert_true(takes(kernel, &plan.cases[i]));
        for (int64_t k = 0; k < kvg_registry_count(); k++)
            if (takes(kvg_registry_get(k), &plan.cases[i]))
                assert_true(rank_in(kvg_registry_get(k), &plan.cases[i]) <= rank_in(kernel, &plan.cases[i]));
    }
    kvg_plan_free(&plan);
}

/* Two stubs that take only batch 77: one has the same rank everywhere, the other has the higher one in
 * prefill. */
static int takes_77(const struct kvg_problem *problem, char *why, size_t size)
{
    snprintf(why, size, "the batch is not 77");
    return problem->batch == 77;
}

static int leads_in_prefill(const struct kvg_problem *problem)
{
    return problem->phase == KVG_PHASE_PREFILL ? 2000 : -1;
}

static void declare_nothing(const struct kvg_problem *problem, int64_t seq_len, struct kvg_arithmetic *out)
{
    (void)problem;
    (void)seq_len;
    (void)out;
}

static int attend_nothing(const struct kvg_attention_args *args)
{
    (void)args;
    return KVG_OK;
}

static void best_asks_for_the_rank_in_the_case(void **unused)
{
    static const struct kvg_kernel even = {.abi_version = KVG_KERNEL_ABI_VERSION,
                                           .struct_size = sizeof even,
                                           .name = "stub/even",
                                           .summary = "rank 1000",
                                           .rank = 1000,
                                           .supports = takes_77,
                                           .arithmetic = declare_nothing,
                                           .attention = attend_nothing},
                                   uneven = {.abi_version = KVG_KERNEL_ABI_VERSION,
                                             .struct_size = sizeof uneven,
                                             .name = "stub/uneven",
                                             .summary = "rank 2000 in prefill",
                                             .rank = 5000, /* not used where there is a rank_for */
                                             .supports = takes_77,
                                             .arithmetic = declare_nothing,
                                             .attention = attend_nothing,
                                             .rank_for = leads_in_prefill};
    static const struct kvg_kernel *const stubs[] = {&even, &uneven};
    struct kvg_plan plan;
    char why[256];
    (void)unused;
    if (kvg_registry_add("stubs", stubs, 2, why, sizeof why))
        fail_msg("%s", why);
    make(
        &(struct kvg_plan_request){
            .axis =
                {[KVG_AXIS_PHASE] = "decode,prefill", [KVG_AXIS_BATCH] = "77", [KVG_AXIS_CONTEXT] = "512"}},
        &plan);
    assert_int_equal(plan.count, 2);
    assert_int_equal(count_with(&plan, "kernel=stub/even phase=decode "), 1);
    assert_int_equal(count_with(&plan, "kernel=stub/uneven phase=prefill "), 1);
    kvg_plan_free(&plan);
}

static void a_glob_is_every_kernel_that_takes_the_case(void **unused)
{
    struct kvg_plan plan;
    struct kvg_case c;
    int64_t wanted = 0;
    (void)unused;
    make(&(struct kvg_plan_request){.axis = {[KVG_AXIS_KERNEL] = "cpu/*", [KVG_AXIS_CONTEXT] = "512"}},
         &plan);
    assert_int_equal(kvg_case_parse("context=512", &c, NULL), 0);
    assert_int_equal(kvg_case_complete(&c, NULL), 0);
    for (int64_t k = 0; k < kvg_registry_count(); k++)
        wanted += fnmatch("cpu/*", kvg_registry_get(k)->name, 0) == 0 && takes(kvg_registry_get(k), &c);
    assert_true(wanted >= 1);
    assert_int_equal(plan.count, wanted);
    for (int64_t i = 0; i < plan.count; i++)
        assert_true(takes(kvg_registry_find(plan.cases[i].kernel), &c));
    kvg_plan_free(&plan);
}

/* A full name stays in the plan even if that kernel does not take the case. */
static void a_full_name_stays(void **unused)
{
    struct kvg_plan plan;
    (void)unused;
    make(
        &(struct kvg_plan_request){
            .axis = {[KVG_AXIS_KERNEL] = "cpu/store_scalar,cpu/dequant_scalar", [KVG_AXIS_PHASE] = "decode"}},
        &plan);
    assert_int_equal(plan.count, 2);
    assert_int_equal(count_with(&plan, "kernel=cpu/store_scalar "), 1);
    kvg_plan_free(&plan);
    refuse(&(struct kvg_plan_request){.axis = {[KVG_AXIS_KERNEL] = "cpu/store_scaler"}}, KVG_EXIT_USAGE,
           "did you mean 'cpu/store_scalar'?");
    refuse(&(struct kvg_plan_request){.axis = {[KVG_AXIS_KERNEL] = "nothing/*"}}, KVG_EXIT_USAGE,
           "no kernel matches 'nothing/*'");
    refuse(&(struct kvg_plan_request){.case_string = "kernel=cpu/store_scaler"}, KVG_EXIT_USAGE,
           "did you mean 'cpu/store_scalar'?");
}

/* A glob of a suite that matches no kernel stays in the plan; its row is skipped. */
static void a_glob_of_a_suite_may_wait(void **unused)
{
    struct file file;
    struct kvg_plan plan;
    (void)unused;
    write_suite(&file, "sweeps: [{kernel: 'nothing/*', context: 1k}]\n");
    make(&(struct kvg_plan_request){.suite = file.path}, &plan);
    assert_int_equal(plan.count, 1);
    assert_string_equal(plan.cases[0].kernel, "nothing/*");
    kvg_plan_free(&plan);
    unlink(file.path);
}

static void cases_without_meaning_stay_once(void **unused)
{
    struct kvg_plan plan;
    (void)unused;
    make(&(struct kvg_plan_request){.axis = {[KVG_AXIS_PATH] = "fp8",
                                             [KVG_AXIS_KERNEL] = "best,cpu/*",
                                             [KVG_AXIS_KV_CACHE_DTYPE] = "fp8_e5m2"}},
         &plan);
    assert_int_equal(plan.count, 2);
    assert_int_equal(count_with(&plan, "kernel=best "), 1);
    assert_int_equal(count_with(&plan, "kernel=cpu/* "), 1);
    kvg_plan_free(&plan);
}

/* ------------------------------------------------------------------------------------------ filters */

static void filters_choose(void **unused)
{
    struct kvg_plan plan;
    struct kvg_plan_request request = {
        .axis = {[KVG_AXIS_CONTEXT] = "1k,2k,4k", [KVG_AXIS_SCHEME] = "per_tensor,per_head"}};
    (void)unused;
    request.filter = "context=(1024|4096) ";
    make(&request, &plan);
    assert_int_equal(plan.count, 4);
    kvg_plan_free(&plan);
    request.filter = "-context=(1024|4096) ";
    make(&request, &plan);
    assert_int_equal(plan.count, 2);
    assert_int_equal(count_with(&plan, "context=2048 "), 2);
    kvg_plan_free(&plan);
    request.filter = "";
    make(&request, &plan);
    assert_int_equal(plan.count, 6);
    kvg_plan_free(&plan);
    request.filter = "no such text";
    refuse(&request, KVG_EXIT_TROUBLE, "nothing would run");
    request.filter = "-";
    refuse(&request, KVG_EXIT_TROUBLE, "rejects all 6 cases");
    request.filter = "a{2,1}";
    refuse(&request, KVG_EXIT_USAGE, "not a POSIX extended regular expression");
}

/* A contradiction in a case that the filter rejects is no error. */
static void filters_come_before_contradictions(void **unused)
{
    struct kvg_plan plan;
    struct kvg_plan_request request = {
        .axis = {[KVG_AXIS_INPUT] = "normal,smollm2", [KVG_AXIS_CONTEXT] = "1M"}};
    (void)unused;
    refuse(&request, KVG_EXIT_USAGE, "context=1048576: input smollm2 holds");
    request.filter = "-input=smollm2";
    make(&request, &plan);
    assert_int_equal(plan.count, 1);
    kvg_plan_free(&plan);
}

/* ------------------------------------------------------------------------------------------ refusals */

static void overrides_without_effect_are_errors(void **unused)
{
    (void)unused;
    refuse(&(struct kvg_plan_request){.axis = {[KVG_AXIS_Q_LEN] = "4"}}, KVG_EXIT_USAGE,
           "q_len 4 has no effect");
    refuse(&(struct kvg_plan_request){.axis = {[KVG_AXIS_OBSERVER] = "minmax"}}, KVG_EXIT_USAGE,
           "only calibration dataset");
    refuse(&(struct kvg_plan_request){.axis = {[KVG_AXIS_LAYER] = "3"}}, KVG_EXIT_USAGE, "no layers");
    refuse(
        &(struct kvg_plan_request){
            .axis = {[KVG_AXIS_KV_CACHE_DTYPE] = "auto", [KVG_AXIS_SCHEME] = "per_head"}},
        KVG_EXIT_USAGE, "auto has no scales");
    refuse(&(struct kvg_plan_request){.axis = {[KVG_AXIS_PHASE] = "store", [KVG_AXIS_PATH] = "fp8"}},
           KVG_EXIT_USAGE, "store has no path");
    refuse(
        &(struct kvg_plan_request){
            .axis = {[KVG_AXIS_INPUT] = "smollm2", [KVG_AXIS_HEADS] = "32/8", [KVG_AXIS_CONTEXT] = "512"}},
        KVG_EXIT_USAGE, "a captured input fixes it");
    /* A default need not have an effect, however it is written. */
    struct kvg_plan plan;
    make(&(struct kvg_plan_request){.axis = {[KVG_AXIS_Q_LEN] = "AUTO",
                                             [KVG_AXIS_THREADS] = "0",
                                             [KVG_AXIS_LAYER] = "-1",
                                             [KVG_AXIS_OBSERVER] = "static_minmax"}},
         &plan);
    assert_int_equal(plan.count, 1);
    kvg_plan_free(&plan);
}

static void errors_of_suites_say_where(void **unused)
{
    struct file file;
    char where[128];
    (void)unused;
    write_suite(&file, "sweeps:\n  - context: 1k\n  - heads: 8/3\n");
    snprintf(where, sizeof where, "%s:3: heads=8/3: query heads must be a multiple", file.path);
    refuse(&(struct kvg_plan_request){.suite = file.path}, KVG_EXIT_USAGE, where);
    unlink(file.path);
    write_suite(&file, "sweeps:\n  - kernel: cpu/nonsense_kernel_name\n");
    snprintf(where, sizeof where, "%s:2: no kernel is called", file.path);
    refuse(&(struct kvg_plan_request){.suite = file.path}, KVG_EXIT_USAGE, where);
    unlink(file.path);
    refuse(&(struct kvg_plan_request){.suite = "quikc"}, KVG_EXIT_USAGE, "did you mean 'quick'?");
    refuse(&(struct kvg_plan_request){.suite = "no/such.yaml"}, KVG_EXIT_USAGE, "No such file");
    refuse(&(struct kvg_plan_request){.suite = "../quick"}, KVG_EXIT_USAGE, "there is no suite");
}

static void too_large_a_product_is_refused(void **unused)
{
    (void)unused;
    refuse(
        &(struct kvg_plan_request){.axis = {[KVG_AXIS_CONTEXT] = "1:2000:+1", [KVG_AXIS_SEED] = "0:600:+1"}},
        KVG_EXIT_USAGE, "more than 100000 cases");
}

/* ------------------------------------------------------------------------------------------ --case */

static void a_case_string_is_that_case(void **unused)
{
    struct kvg_plan plan, again;
    char text[KVG_CASE_STRING_MAX], back[KVG_CASE_STRING_MAX];
    (void)unused;
    make(&(struct kvg_plan_request){.axis = {[KVG_AXIS_PHASE] = "store,decode,append,prefill",
                                             [KVG_AXIS_KV_CACHE_DTYPE] = "auto,fp8,fp8_e5m2",
                                             [KVG_AXIS_PATH] = "dequant,fp8",
                                             [KVG_AXIS_CALIBRATION] = "none,dataset",
                                             [KVG_AXIS_OBSERVER] = "static_minmax,minmax",
                                             [KVG_AXIS_CONTEXT] = "512"}},
         &plan);
    for (int64_t i = 0; i < plan.count; i++) {
        kvg_case_format(&plan.cases[i], text);
        make(&(struct kvg_plan_request){.case_string = text}, &again);
        assert_int_equal(again.count, 1);
        kvg_case_format(&again.cases[0], back);
        assert_string_equal(text, back);
        kvg_plan_free(&again);
    }
    kvg_plan_free(&plan);
}

static void a_case_string_must_not_contradict_itself(void **unused)
{
    (void)unused;
    refuse(&(struct kvg_plan_request){.case_string = "kv_cache_dtype=auto scheme=per_head"}, KVG_EXIT_USAGE,
           "scheme=per_head contradicts the rest, which makes it per_tensor");
    refuse(&(struct kvg_plan_request){.case_string = "phase=store path=fp8"}, KVG_EXIT_USAGE, "path=fp8");
    refuse(&(struct kvg_plan_request){.case_string = "input=smollm2 context=512 heads=32/8"}, KVG_EXIT_USAGE,
           "makes it 9/3");
    refuse(&(struct kvg_plan_request){.case_string = "input=normal layer=3"}, KVG_EXIT_USAGE, "layer=3");
    refuse(&(struct kvg_plan_request){.case_string = "calibration=none observer=minmax"}, KVG_EXIT_USAGE,
           "observer=minmax");
    refuse(&(struct kvg_plan_request){.case_string = "phase=decode q_len=2"}, KVG_EXIT_USAGE, "q_len");
}

/* ------------------------------------------------------------------------------------------ order */

/* Cases with the same K and V are neighbours, whatever the order of the sweeps. */
static void cases_that_share_tensors_stand_together(void **unused)
{
    struct file file;
    struct kvg_plan plan;
    (void)unused;
    write_suite(&file, "sweeps:\n"
                       "  - {context: [1k, 2k, 4k], kv_cache_dtype: auto}\n"
                       "  - {context: [4k, 1k], kv_cache_dtype: fp8, scheme: [per_tensor, per_head]}\n"
                       "  - {context: [2k, 1k], phase: [append, prefill], kv_cache_dtype: fp8}\n");
    make(&(struct kvg_plan_request){.suite = file.path}, &plan);
    assert_int_equal(plan.count, 3 + 4 + 4);
    int64_t contexts[16], runs = 0;
    for (int64_t i = 0; i < plan.count; i++)
        if (i == 0 || plan.cases[i].context != plan.cases[i - 1].context)
            contexts[runs++] = plan.cases[i].context;
    assert_int_equal(runs, 3);
    assert_int_equal(contexts[0], 1024); /* in order of first appearance */
    assert_int_equal(contexts[1], 2048);
    assert_int_equal(contexts[2], 4096);
    for (int64_t i = 1; i < plan.count; i++) /* and among them those with the same q_len */
        for (int64_t j = i + 1; j < plan.count; j++)
            if (plan.cases[i - 1].context == plan.cases[j].context &&
                plan.cases[i - 1].q_len == plan.cases[j].q_len)
                assert_int_equal(plan.cases[i].q_len, plan.cases[j].q_len);
    kvg_plan_free(&plan);
    unlink(file.path);
}

/* ------------------------------------------------------------------------------------------ our suites */

static void our_suites_hold_what_they_promise(void **unused)
{
    static const char *const inputs[] = {"normal",  "outlier", "channel_outlier", "sink",   "v_nonneg",
                                         "v_shift", "v_small", "k_wide",          "q_wide", "far_logits",
                                         "faint",   "needle",  "smollm2"};
    static const char *const suites[] = {"quick", "full"};
    (void)unused;
    for (int s = 0; s < 2; s++) {
        struct kvg_plan plan;
        int64_t timed = 0;
        make(&(struct kvg_plan_request){.suite = suites[s]}, &plan);
        for (int64_t i = 0; i < plan.count; i++)
            timed += plan.cases[i].cache_state != KVG_STATE_NONE;
        if (s == 0)
            assert_true(timed <= 150);
        for (int i = 0; i < 10; i++) {
            char text[64];
            snprintf(text, sizeof text, "input=%s ", inputs[i]);
            assert_true(count_with(&plan, text) > 0);
        }
        /* on real tensors, every scheme with every calibration, for both dtypes and on both paths */
        for (int scheme = 0; scheme < 2; scheme++)
            for (int calibration = 0; calibration < 3; calibration++)
                for (int kind = 0; kind < 3; kind++) {
                    int64_t found = 0;
                    for (int64_t i = 0; i < plan.count; i++) {
                        const struct kvg_case *c = &plan.cases[i];
                        found += !strcmp(c->input, "smollm2") && (int)c->scheme == scheme &&
                                 (int)c->calibration == calibration &&
                                 (c->phase == KVG_PHASE_DECODE || c->phase == KVG_PHASE_APPEND) &&
                                 c->kv_cache_dtype == (kind == 2 ? KVG_CACHE_FP8_E5M2 : KVG_CACHE_FP8_E4M3) &&
                                 c->path == (kind == 1 ? KVG_PATH_FP8 : KVG_PATH_DEQUANT);
                    }
                    assert_true(found >= 4); /* layers */
                }
        kvg_plan_free(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_multiply),
        cmocka_unit_test(auto_collapses),
        cmocka_unit_test(q_len_is_for_append_alone),
        cmocka_unit_test(suites_add_and_options_override),
        cmocka_unit_test(all_layers_of_a_captured_input),
        cmocka_unit_test(best_is_the_highest_rank_that_takes_the_case),
        cmocka_unit_test(best_asks_for_the_rank_in_the_case),
        cmocka_unit_test(a_glob_is_every_kernel_that_takes_the_case),
        cmocka_unit_test(a_full_name_stays),
        cmocka_unit_test(a_glob_of_a_suite_may_wait),
        cmocka_unit_test(cases_without_meaning_stay_once),
        cmocka_unit_test(filters_choose),
        cmocka_unit_test(filters_come_before_contradictions),
        cmocka_unit_test(overrides_without_effect_are_errors),
        cmocka_unit_test(errors_of_suites_say_where),
        cmocka_unit_test(too_large_a_product_is_refused),
        cmocka_unit_test(a_case_string_is_that_case),
        cmocka_unit_test(a_case_string_must_not_contradict_itself),
        cmocka_unit_test(cases_that_share_tensors_stand_together),
        cmocka_unit_test(our_suites_hold_what_they_promise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
