/* SPDX-License-Identifier: Apache-2.0
 *
 * test_worker.c: kernels that crash, hang, allocate without end, write where they must not, or cheat. Each
 * costs its own row, with the right verdict, and the next case runs normally. The kernels are those of
 * tests/plugins/faulty.c, built here with gcc.
 */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/measure/roofs.h"
#include "harness/execute/options.h"
#include "harness/worker/worker.h"

static char folder[] = "/tmp/kvg_test_worker_XXXXXX";
static char plugin[128];
static const char *plugins[2];

static int build_plugin(void **state)
{
    char command[2048];
    const char *source = getenv("KVG_SOURCE");
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(plugin, sizeof plugin, "%s/faulty.so", folder);
    snprintf(command, sizeof command,
             "gcc -O1 -shared -fPIC -I '%s/kernels' -o %s '%s/tests/plugins/faulty.c' -lm",
             source ? source : ".", plugin, source ? source : ".");
    plugins[0] = plugin;
    return system(command);
}

static int remove_plugin(void **state)
{
    (void)state;
    return unlink(plugin) || rmdir(folder);
}

static int sanitized(void)
{
    return getenv("KVG_TEST_SANITIZED") != NULL;
}

static void quick_options(struct kvg_run_options *options)
{
    kvg_run_options_default(options);
    options->plugins = plugins;
    options->min_time = 0.002;
    options->min_samples = 3;
    options->max_samples = 10;
    options->measure_roofs = 0; /* no test here needs the speed of the machine */
    options->timeout = sanitized() ? 120 : 60;
}

static void small_case(struct kvg_case *c, const char *kernel, const char *cache_state)
{
    char text[KVG_CASE_STRING_MAX];
    struct kvg_error error = {0};
    snprintf(
        text, sizeof text,
        "kernel=faulty/%s phase=decode path=dequant kv_cache_dtype=fp8_e4m3 scheme=per_tensor "
        "calibration=dataset input=normal batch=1 context=40 heads=4/2 head_dim=32 block_size=16 layout=NHD "
        "threads=1 cache_state=%s",
        kernel, cache_state);
    if (kvg_case_parse(text, c, &error))
        fail_msg("%s", error.text);
}

/* Runs one case of a faulty kernel; the row is the caller's to free. */
static void run(struct kvg_worker *worker, const char *kernel, const char *cache_state, struct kvg_row *row)
{
    struct kvg_case c;
    struct kvg_error error = {0};
    small_case(&c, kernel, cache_state);
    assert_int_equal(kvg_row_init(row), 0);
    int result = kvg_worker_run(worker, &c, row, &error);
    if (result < 0)
        print_error("%s\n", error.text);
    assert_int_equal(result, 0);
}

static void expect(struct kvg_worker *worker, const char *kernel, const char *cache_state,
                   enum kvg_status status, const char *reason)
{
    struct kvg_row row;
    run(worker, kernel, cache_state, &row);
    if (row.status != status || !strstr(row.reason, reason))
        fail_msg("%s: %s, '%s'; wanted %s, '%s'", kernel, kvg_status_name((enum kvg_status)row.status),
                 row.reason, kvg_status_name(status), reason);
    assert_true(strlen(row.started_utc) == strlen("2026-11-29T17:20:05Z"));
    assert_non_null(strstr(row.case_string, kernel));
    if (status != KVG_PASSED)
        assert_true(isnan(row.kv_bytes_per_second));
    kvg_row_free(&row);
}

static struct kvg_worker *start(const struct kvg_run_options *options)
{
    struct kvg_error error = {0};
    struct kvg_worker *worker = kvg_worker_start(options, &error);
    if (!worker)
        fail_msg("%s", error.text);
    return worker;
}

static double number_of(const struct kvg_facts *facts, const char *name)
{
    const struct kvg_fact *fact = kvg_facts_find(facts, name);
    assert_non_null(fact);
    assert_null(fact->text);
    return fact->number;
}

/* The roofs are measured in the worker, however short the timeout of a case is. */
static void the_worker_measures_roofs(void **state)
{
    static const char *const names[] = {"read_roof", "copy_roof", "cache_roof", "flop_roof"};
    struct kvg_run_options options;
    struct kvg_error error;
    (void)state;
    quick_options(&options);
    options.timeout = 0.001;
    struct kvg_worker *worker = start(&options);
    for (int measure = 0; measure < 2; measure++) {
        struct kvg_facts facts = {0};
        assert_int_equal(kvg_worker_add_roofs(worker, 1, measure, &facts, &error), 0);
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) /* a CPU of this century */
            assert_true(measure ? number_of(&facts, names[i]) > 1e6 : isnan(number_of(&facts, names[i])));
        assert_string_equal(kvg_facts_find(&facts, "roof_isa")->text, kvg_roof_isa());
        kvg_facts_free(&facts);
    }
    kvg_worker_stop(worker);
}

/* A worker that ends before it answers: the roofs are unknown, and that is no error. */
static void roofs_of_a_worker_that_ends(void **state)
{
    static const char *const plugins[] = {"./none.so", NULL};
    struct kvg_run_options options;
    struct kvg_facts facts = {0};
    struct kvg_error error;
    (void)state;
    quick_options(&options);
    options.plugins = plugins;
    struct kvg_worker *worker = start(&options);
    assert_int_equal(kvg_worker_add_roofs(worker, 1, 1, &facts, &error), 0);
    assert_true(isnan(number_of(&facts, "read_roof")));
    assert_string_equal(kvg_facts_find(&facts, "roof_isa")->text, "unknown");
    kvg_facts_free(&facts);
    kvg_worker_stop(worker);
}

static void a_right_kernel_passes(void **state)
{
    struct kvg_run_options options;
    struct kvg_row row;
    (void)state;
    quick_options(&options);
    struct kvg_worker *worker = start(&options);
    run(worker, "none", "cold", &row);
    if (row.status != KVG_PASSED)
        fail_msg("%s: %s", kvg_status_name((enum kvg_status)row.status), row.reason);
    assert_true(row.n_samples >= 3 && row.n_samples <= 10);
    assert_int_equal(row.n_samples_kept, row.n_samples);
    assert_non_null(row.time_samples);
    assert_true(row.time_min <= row.time_q1 && row.time_q1 <= row.time_median &&
                row.time_median <= row.time_q3);
    /* 40 keys, K and V, 2 heads of 32 bytes; 40 pairs of 4 query heads */
    assert_int_equal(row.bytes_moved, 40 * 2 * 2 * 32);
    assert_int_equal(row.flops, 40 * 4 * 4 * 32);
    assert_true(fabs(row.kv_bytes_per_second * row.time_median - (double)row.bytes_moved) < 1e-6);
    assert_true(isnan(row.read_roof)); /* not asked for */
    /* timing takes at least the sum of the samples; every part of the time is recorded */
    assert_true(row.seconds_prepare > 0 && row.seconds_verify > 0 && row.seconds_quantise > 0);
    assert_true(row.seconds_timing > row.time_min * (double)row.n_samples);
    assert_int_equal(row.workspace_bytes, 1000);
    assert_true(row.peak_resident_bytes > 1 << 20);
    assert_null(kvg_worker_report(worker));
    kvg_row_free(&row);
    kvg_worker_stop(worker);
}

static void deaths_cost_one_row(void **state)
{
    struct kvg_run_options options;
    (void)state;
    quick_options(&options);
    struct kvg_worker *worker = start(&options);
    if (!sanitized()) { /* AddressSanitizer turns the signal into an exit code, with a message */
        expect(worker, "crashes", "cold", KVG_CRASHED, "SIGSEGV (Segmentation fault) ended the worker");
        expect(worker, "crashes", "cold", KVG_CRASHED, "it said: about to touch address 8");
    } else {
        expect(worker, "crashes", "cold", KVG_CRASHED, "AddressSanitizer: SEGV on unknown address");
    }
    expect(worker, "none", "none", KVG_PASSED, "");
    expect(worker, "aborts", "none", KVG_CRASHED, sanitized() ? "" : "SIGABRT (Aborted) ended the worker");
    expect(worker, "exits", "none", KVG_CRASHED, "the worker ended itself with exit code 7");
    expect(worker, "none", "none", KVG_PASSED, "");
    expect(worker, "killed", "none", KVG_OUT_OF_MEMORY, "suspected: SIGKILL ended the worker");
    expect(worker, "none", "none", KVG_PASSED, "");
    kvg_worker_stop(worker);
}

static void a_hang_is_a_timeout(void **state)
{
    struct kvg_run_options options;
    (void)state;
    quick_options(&options);
    options.timeout = sanitized() ? 20 : 5;
    struct kvg_worker *worker = start(&options);
    expect(worker, "hangs", "none", KVG_TIMEOUT,
           sanitized() ? "no answer within 20 s" : "no answer within 5 s");
    expect(worker, "none", "none", KVG_PASSED, "");
    kvg_worker_stop(worker);
}

/* The worker inherits a limit of 3 GiB of address space, so that the memory of the machine does not run
 * out. */
static void memory_runs_out(void **state)
{
    struct kvg_run_options options;
    struct rlimit before, low;
    (void)state;
    if (sanitized())
        skip(); /* the shadow memory of AddressSanitizer takes terabytes of address space */
    quick_options(&options);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    low = before;
    low.rlim_cur = (rlim_t)3 << 30;
    assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
    struct kvg_worker *worker = start(&options);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    expect(worker, "hungry", "none", KVG_OUT_OF_MEMORY, "attention returned KVG_ENOMEM (-3)");
    kvg_worker_stop(worker);
}

static void lies_are_found_out(void **state)
{
    struct kvg_run_options options;
    (void)state;
    quick_options(&options);
    struct kvg_worker *worker = start(&options);
    expect(worker, "refuses", "none", KVG_INCORRECT, "attention returned KVG_EDEVICE (-4)");
    expect(worker, "zeros", "none", KVG_INCORRECT, "");
    expect(worker, "forgets_one", "none", KVG_INCORRECT, "nonfinite: 1 NaN");
    expect(worker, "wavers", "none", KVG_INCORRECT, "two runs on the same inputs differ in out");
    expect(worker, "wavers_openly", "none", KVG_PASSED, "");
    expect(worker, "wavers_openly", "cold", KVG_PASSED, "");
    expect(worker, "remembers", "none", KVG_INCORRECT, "after its inputs changed in place: ");
    expect(worker, "overflows", "none", KVG_INCORRECT,
           "in pages far into the cache (beyond 2^32 elements): ");
    expect(worker, "needs_lse", "none", KVG_INCORRECT, "without an lse: ");
    expect(worker, "races", "none", KVG_INCORRECT, "and the runs before it on the same inputs differ in out");
    expect(worker, "tires", "cold", KVG_INCORRECT,
           "the output of a timed call differs from the verified one");
    kvg_worker_stop(worker);
    worker = start(&options); /* a fresh process: `tires` counts its calls */
    expect(worker, "tires", "hot", KVG_INCORRECT, "the output of a timed call differs from the verified one");
    kvg_worker_stop(worker);
}

/* After a stray write any memory of the worker may be damaged, so it runs no other case. */
static void stray_writes_end_the_worker(void **state)
{
    struct kvg_run_options options;
    (void)state;
    quick_options(&options);
    struct kvg_worker *worker = start(&options);
    expect(worker, "writes_past_out", "none", KVG_INCORRECT,
           "out (256 bytes) was written 0 bytes past its end");
    expect(worker, "writes_past_workspace", "none", KVG_INCORRECT,
           "workspace (1000 bytes) was written 0 bytes past its end");
    expect(worker, "writes_its_input", "none", KVG_INCORRECT,
           "q (256 bytes) was changed, and it is an input");
    expect(worker, "none", "cold", KVG_PASSED, "");
    kvg_worker_stop(worker);
}

static void chatter_does_not_disturb(void **state)
{
    struct kvg_run_options options;
    (void)state;
    quick_options(&options);
    options.verify_only = 1;
    struct kvg_worker *worker = start(&options);
    expect(worker, "talks", "none", KVG_PASSED, "");
    expect(worker, "none", "none", KVG_PASSED, "");
    kvg_worker_stop(worker);
}

static void planning_is_timed_apart(void **state)
{
    struct kvg_run_options options;
    struct kvg_row row;
    (void)state;
    quick_options(&options);
    struct kvg_worker *worker = start(&options);
    run(worker, "needs_plan", "hot", &row);
    if (row.status != KVG_PASSED)
        fail_msg("%s: %s", kvg_status_name((enum kvg_status)row.status), row.reason);
    assert_true(row.time_prepare > 0 && row.time_prepare < row.time_median);
    kvg_row_free(&row);
    kvg_worker_stop(worker);
}

static void no_kernel_no_row_of_numbers(void **state)
{
    struct kvg_run_options options;
    (void)state;
    quick_options(&options);
    struct kvg_worker *worker = start(&options);
    expect(worker, "absent", "none", KVG_SKIPPED, "there is no kernel 'faulty/absent'");
    expect(worker, "takes_nothing", "none", KVG_SKIPPED, "takes nothing at all");
    kvg_worker_stop(worker);
}

static void profile_runs_once(void **state)
{
    struct kvg_run_options options;
    (void)state;
    quick_options(&options);
    options.profile = 1;
    struct kvg_worker *worker = start(&options);
    /* if it were verified, zeros would be incorrect */
    expect(worker, "zeros", "cold", KVG_SKIPPED, "profiled: run once, neither verified nor timed");
    kvg_worker_stop(worker);
}

static void report_when_asked(void **state)
{
    static const char *const flags[] = {"--benchmark_out=somewhere.json", "--benchmark_repetitions=4", NULL};
    struct kvg_run_options options;
    struct kvg_row row;
    struct stat s;
    char stray[160];
    (void)state;
    quick_options(&options);
    options.benchmark_flags = flags;
    options.min_samples = options.max_samples = 4;
    snprintf(stray, sizeof stray, "%s/stray.json", folder);
    setenv("BENCHMARK_OUT", stray, 1); /* Google Benchmark would use it */
    setenv("BENCHMARK_REPETITIONS", "100", 1);
    struct kvg_worker *worker = start(&options);
    run(worker, "none", "cold", &row);
    assert_int_equal(row.status, KVG_PASSED);
    assert_int_equal(row.n_samples, 4);
    const char *report = kvg_worker_report(worker);
    assert_non_null(report);
    assert_null(strchr(report, '\n'));
    assert_non_null(strstr(report, row.case_string));
    kvg_row_free(&row);
    run(worker, "none", "none", &row);
    assert_null(kvg_worker_report(worker)); /* nothing was timed */
    kvg_row_free(&row);
    kvg_worker_stop(worker);
    assert_int_equal(stat(stray, &s), -1);
    assert_int_equal(stat("somewhere.json", &s), -1);
    unsetenv("BENCHMARK_OUT");
    unsetenv("BENCHMARK_REPETITIONS");
}

/* Calls before the repeats: the first run and the second. */
static void a_rare_race_takes_more_repeats(void **state)
{
    struct kvg_run_options options;
    struct kvg_row row;
    (void)state;
    quick_options(&options);
    options.verify_only = 1;
    struct kvg_worker *worker = start(&options);
    run(worker, "races_rarely", "none", &row);
    assert_int_equal(row.status, KVG_PASSED);
    assert_in_range(row.n_repeats, 1, 300);
    kvg_row_free(&row);
    kvg_worker_stop(worker);
    options.repeats = 697; /* calls 3 to 699 */
    worker = start(&options);
    run(worker, "races_rarely", "none", &row);
    assert_int_equal(row.n_repeats, 697);
    assert_null(strstr(row.reason, "the runs before it on the same inputs"));
    kvg_row_free(&row);
    kvg_worker_stop(worker);
    options.repeats = 698;
    worker = start(&options);
    run(worker, "races_rarely", "none", &row);
    assert_int_equal(row.status, KVG_INCORRECT);
    assert_non_null(strstr(row.reason, "run 700 and the runs before it on the same inputs differ in out"));
    kvg_row_free(&row);
    kvg_worker_stop(worker);
}

/* Kernels whose output depends on places. The one that depends on the order of sequences needs two of
 * them. */
static void other_orders_are_tried(void **state)
{
    static const struct {
        const char *kernel, *reason, *suspected;
    } faults[] = {
        {"minds_pages", "permuted: with its pages at other places: other bits in lse", "layout"},
        {"minds_heads", "permuted: with its heads under other numbers: other bits in lse", "head mapping"},
        {"minds_sequences", "permuted: with its sequences in another order: other bits in lse",
         "empty or split"},
        {"minds_batch", "permuted: with other sequences in the batch: other bits in lse", "empty or split"},
        {"minds_batch", "permuted: with one sequence of the batch alone: other bits in lse",
         "empty or split"},
        {"minds_rows", "permuted: with the query rows of a sequence in two calls: other bits in lse",
         "empty or split"},
        /* Wrong numbers, not only other bits: this could have many causes. */
        {"fails_on_a_mixed_batch", "permuted: with other sequences in the batch: ", ""},
        {"fails_on_two_threads", "permuted: with another number of threads: ", ""},
    };
    struct kvg_run_options options;
    (void)state;
    quick_options(&options);
    struct kvg_worker *worker = start(&options);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct kvg_case c;
        struct kvg_row row;
        struct kvg_error error = {0};
        small_case(&c, faults[i].kernel, "none");
        if (strcmp(faults[i].kernel, "minds_sequences") == 0) {
            c.batch = 2;
            c.q_heads = c.kv_heads = 1; /* so that renumbering the heads does not show the fault first */
        }
        c.batch = strstr(faults[i].reason, "of the batch alone") ? 2 : c.batch;
        if (strstr(faults[i].reason, "in two calls")) {
            c.phase = KVG_PHASE_APPEND;
            c.q_len = 4;
        }
        assert_int_equal(kvg_row_init(&row), 0);
        assert_int_equal(kvg_worker_run(worker, &c, &row, &error), 0);
        if (row.status != KVG_INCORRECT ||
            strncmp(row.reason, faults[i].reason, strlen(faults[i].reason)) != 0)
            fail_msg("%s: %s, '%s'", faults[i].kernel, kvg_status_name((enum kvg_status)row.status),
                     row.reason);
        assert_string_equal(row.suspected, faults[i].suspected);
        kvg_row_free(&row);
    }
    kvg_worker_stop(worker);
}

/* The column same_bits: what a kernel declares is held or broken; what it does not declare is the same or
 * differs. */
static void the_row_says_which_bits_stay(void **state)
{
    static const struct {
        const char *kernel, *same_bits;
    } rows[] = {
        {"none", "pages=same heads=same sequences=same threads=same batch=same chunks=same"},
        {"minds_batch_openly", "pages=same heads=same sequences=same threads=same batch=differ chunks=same"},
        {"minds_batch", "pages=held heads=held sequences=held threads=held batch=broken"},
    };
    struct kvg_run_options options;
    (void)state;
    quick_options(&options);
    struct kvg_worker *worker = start(&options);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct kvg_case c;
        struct kvg_row row;
        struct kvg_error error = {0};
        small_case(&c, rows[i].kernel, "none");
        c.batch = 2;
        c.phase = KVG_PHASE_APPEND;
        c.q_len = 4;
        assert_int_equal(kvg_row_init(&row), 0);
        assert_int_equal(kvg_worker_run(worker, &c, &row, &error), 0);
        assert_string_equal(row.same_bits, rows[i].same_bits);
        kvg_row_free(&row);
    }
    kvg_worker_stop(worker);
}

static void a_signal_interrupts(void **state)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct kvg_run_options options;
    (void)state;
    quick_options(&options);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct kvg_case c;
        struct kvg_row row;
        struct kvg_error error;
        sigset_t before, after;
        sigprocmask(SIG_BLOCK, NULL, &before);
        struct kvg_worker *worker = start(&options);
        small_case(&c, "hangs", "none");
        assert_int_equal(kvg_row_init(&row), 0);
        kill(getpid(), signals[i]);
        assert_int_equal(kvg_worker_run(worker, &c, &row, &error), 1);
        kvg_row_free(&row);
        kvg_worker_stop(worker); /* the signal does not end this process */
        sigprocmask(SIG_BLOCK, NULL, &after);
        assert_int_equal(sigismember(&after, signals[i]), sigismember(&before, signals[i]));
    }
}

static void options_travel(void **state)
{
    static const char *const some_plugins[] = {"a b.so", "\"quoted\".so", NULL};
    static const char *const some_flags[] = {"--benchmark_context=a=b", NULL};
    struct kvg_run_options there, back;
    struct kvg_error error;
    (void)state;
    kvg_run_options_default(&there);
    assert_true(there.min_time == 0.2 && there.min_samples == 15 && there.max_samples == KVG_MAX_SAMPLES);
    there.min_time = 0.1;
    there.verify_rows = INT64_C(1) << 40;
    there.repeats = INT64_C(5000000000);
    there.profile = 1;
    there.random_tokens_v = 0.1f;
    there.plugins = some_plugins;
    there.benchmark_flags = some_flags;
    char *line = kvg_run_options_to_json(&there);
    assert_non_null(line);
    assert_null(strchr(line, '\n'));
    assert_int_equal(kvg_run_options_from_json(line, &back, &error), 0);
    assert_true(back.min_time == 0.1 && back.verify_rows == there.verify_rows && back.profile == 1);
    assert_true(back.repeats == INT64_C(5000000000));
    assert_true(back.min_samples == there.min_samples && back.timeout == there.timeout);
    assert_true(back.random_tokens_v == 0.1f && back.random_tokens_q == 200.0f);
    assert_string_equal(back.plugins[0], "a b.so");
    assert_string_equal(back.plugins[1], "\"quoted\".so");
    assert_null(back.plugins[2]);
    assert_string_equal(back.benchmark_flags[0], some_flags[0]);
    kvg_run_options_free(&back);
    free(line);
    assert_int_equal(kvg_run_options_from_json("{\"min_time\": 1}", &back, &error), -1);
    assert_int_equal(kvg_run_options_from_json("nonsense", &back, &error), -1);
}

int main(int argc, char **argv)
{
    if (kvg_is_worker(argc, argv))
        return kvg_worker_main();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_travel),
        cmocka_unit_test(a_right_kernel_passes),
        cmocka_unit_test(deaths_cost_one_row),
        cmocka_unit_test(a_hang_is_a_timeout),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(lies_are_found_out),
        cmocka_unit_test(stray_writes_end_the_worker),
        cmocka_unit_test(chatter_does_not_disturb),
        cmocka_unit_test(planning_is_timed_apart),
        cmocka_unit_test(no_kernel_no_row_of_numbers),
        cmocka_unit_test(profile_runs_once),
        cmocka_unit_test(report_when_asked),
        cmocka_unit_test(a_rare_race_takes_more_repeats),
        cmocka_unit_test(other_orders_are_tried),
        cmocka_unit_test(the_row_says_which_bits_stay),
        cmocka_unit_test(the_worker_measures_roofs),
        cmocka_unit_test(roofs_of_a_worker_that_ends),
        cmocka_unit_test(a_signal_interrupts),
    };
    return cmocka_run_group_tests(tests, build_plugin, remove_plugin);
}
