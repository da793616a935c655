/* SPDX-License-Identifier: Apache-2.0
 *
 * test_accidents.c: kernels that fork, write on descriptors that are not theirs, or leave the process changed. Each row
 * keeps its own answer and says what its kernel left, and the next row is as if nothing had happened. The kernels are
 * those of tests/plugins/accidents.c, built here with gcc.
 */
#include <fenv.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/execute/options.h"
#include "harness/machine/fp_control.h"
#include "harness/worker/frame.h"
#include "harness/worker/worker.h"

static char folder[] = "/tmp/kvg_test_accidents_XXXXXX";
static char plugin[128];
static const char *plugins[2];

static int build_plugin(void **state)
{
    char command[2048];
    const char *source = getenv("KVG_SOURCE");
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(plugin, sizeof plugin, "%s/accidents.so", folder);
    snprintf(
        command, sizeof command,
        "gcc -O1 -shared -fPIC -fopenmp -I '%s/kernels' -o %s '%s/tests/plugins/accidents.c' -lm -lpthread",
        source ? source : ".", plugin, source ? source : ".");
    plugins[0] = plugin;
    return system(command);
}

static int remove_plugin(void **state)
{
    (void)state;
    return unlink(plugin) || rmdir(folder);
}

static struct kvg_worker *start(double timeout)
{
    struct kvg_run_options options;
    struct kvg_error error = {0};
    kvg_run_options_default(&options);
    options.plugins = plugins;
    options.measure_roofs = 0;
    options.timeout = timeout;
    struct kvg_worker *worker = kvg_worker_start(&options, &error);
    if (!worker)
        fail_msg("%s", error.text);
    return worker;
}

/* Runs a small case and compares what its row says. Every row must be that of the case that was asked. */
static void expect(struct kvg_worker *worker, const char *kernel, int threads, int context,
                   enum kvg_status status, const char *reason)
{
    char text[KVG_CASE_STRING_MAX], asked[KVG_CASE_STRING_MAX];
    struct kvg_error error = {0};
    struct kvg_case c;
    struct kvg_row row;
    snprintf(
        text, sizeof text,
        "kernel=%s phase=decode path=dequant kv_cache_dtype=fp8_e4m3 scheme=per_tensor calibration=dataset "
        "input=normal batch=1 context=%d heads=4/2 head_dim=32 block_size=16 layout=NHD threads=%d "
        "cache_state=none",
        kernel, context, threads);
    if (kvg_case_parse(text, &c, &error))
        fail_msg("%s", error.text);
    assert_int_equal(kvg_row_init(&row), 0);
    assert_int_equal(kvg_worker_run(worker, &c, &row, &error), 0);
    kvg_case_format(&c, asked);
    assert_string_equal(row.case_string, asked);
    if (row.status != (int)status || !strstr(row.reason, reason) ||
        (status == KVG_PASSED && !*reason && *row.reason))
        fail_msg("%s: %s, '%s'; wanted %s, '%s'", kernel, kvg_status_name((enum kvg_status)row.status),
                 row.reason, kvg_status_name(status), reason);
    kvg_row_free(&row);
}

/* A right kernel of the plug-in and one of kvgauge see nothing of the row before. */
static void expect_peace(struct kvg_worker *worker, int context)
{
    expect(worker, "accident/none", 1, context, KVG_PASSED, "");
    expect(worker, "cpu/dequant_scalar", 1, context + 1, KVG_PASSED, "");
}

static void answers_match_questions(void **state)
{
    struct kvg_worker *worker = start(60);
    (void)state;
    expect(worker, "accident/forks", 1, 40, KVG_INCORRECT, "calls that returned in ");
    expect_peace(worker, 41);
    expect(worker, "accident/scribbles", 1, 43, KVG_CRASHED,
           "what came from the worker is no answer to this case: 'scribble.");
    expect_peace(worker, 44);
    expect(worker, "accident/forks", 1, 46, KVG_INCORRECT, "calls that returned in ");
    expect_peace(worker, 47);
    kvg_worker_stop(worker);
}

static void descriptors(void **state)
{
    struct kvg_worker *worker = start(60);
    (void)state;
    expect(worker, "accident/closes_3", 1, 40, KVG_PASSED, "");
    expect_peace(worker, 41);
    expect(worker, "accident/closes_stderr", 1, 40, KVG_PASSED,
           "1 closed or changed descriptor of kvgauge (the process was replaced)");
    expect_peace(worker, 41);
    expect(worker, "accident/closes_all", 1, 40, KVG_CRASHED, "closed descriptors that are not its own");
    expect_peace(worker, 41);
    expect(worker, "accident/opens", 1, 40, KVG_PASSED, " open descriptors (the process was replaced)");
    expect_peace(worker, 41);
    kvg_worker_stop(worker);
}

static void arithmetic(void **state)
{
    struct kvg_worker *worker = start(60);
    (void)state;
    expect(worker, "accident/rounds_upward", 1, 40, KVG_INCORRECT,
           "attention left the rounding mode (upward) changed; a kernel must restore it");
    expect_peace(worker, 41);
    expect(worker, "accident/flushes", 1, 40, KVG_INCORRECT,
           "attention left the flushing of subnormals (on) changed; a kernel must restore it");
    expect_peace(worker, 41);
    expect(worker, "accident/flushes_in_team", 3, 40, KVG_INCORRECT,
           "attention left the flushing of subnormals (on) changed");
    expect(worker, "accident/none", 3, 40, KVG_PASSED, "");
    expect_peace(worker, 41);
    kvg_worker_stop(worker);
}

static void settings(void **state)
{
    static const struct {
        const char *kernel, *left;
    } cases[] = {
        {"accident/blocks_signals", "the signal mask (put back)"},
        {"accident/handles_signals", "the handler of SIGFPE (put back)"},
        {"accident/changes_locale", "LC_NUMERIC=C.UTF-8"},
        {"accident/changes_folder", "the working directory (/) (put back)"},
        {"accident/changes_umask", "the umask (777) (put back)"},
        {"accident/sets_openmp", "the number of OpenMP threads (7), dynamic teams of OpenMP (put back)"},
        {"accident/sets_a_timer", "a timer (put back)"},
        {"accident/sets_environment", "the environment (put back)"}};
    struct kvg_worker *worker = start(60);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect(worker, cases[i].kernel, 1, 40, KVG_PASSED, cases[i].left);
        expect_peace(worker, 41);
    }
    struct rlimit cores;
    if (getrlimit(RLIMIT_CORE, &cores) == 0 && cores.rlim_max > 0) {
        expect(worker, "accident/limits_itself", 1, 40, KVG_PASSED,
               "resource limit 4 (the process was replaced)");
        expect_peace(worker, 41);
    }
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) > 1) {
        expect(worker, "accident/pins_itself", 1, 40, KVG_PASSED, "the CPU affinity (1 of ");
        expect_peace(worker, 41);
    }
    kvg_worker_stop(worker);
}

/* Number of processes `sleep SECONDS`, which only the plug-in of this test starts. */
static int daemons(const char *seconds)
{
    char command[256];
    int n = -1;
    snprintf(command, sizeof command,
             "cat /proc/[0-9]*/cmdline 2> /dev/null | tr '\\0' ' ' | grep -o 'slee[p] %s ' | wc -l", seconds);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &n), 1);
    pclose(f);
    return n;
}

static void threads_and_processes(void **state)
{
    char seconds[32];
    (void)state;
    snprintf(seconds, sizeof seconds, "%d", 100000 + (int)getpid());
    setenv("KVG_ACCIDENT_SECONDS", seconds, 1);
    struct kvg_worker *worker = start(60);
    expect(worker, "accident/leaves_a_thread", 1, 40, KVG_PASSED,
           "1 running thread (the process was replaced)");
    expect_peace(worker, 41);
    expect(worker, "accident/leaves_sleepers", 1, 40, KVG_PASSED, " threads (the process was replaced)");
    expect_peace(worker, 41);
    expect(worker, "accident/leaves_a_daemon", 1, 40, KVG_PASSED, "2 child processes (put back)");
    assert_int_equal(daemons(seconds), 0);
    expect_peace(worker, 41);
    expect(worker, "accident/leaves_a_daemon_and_dies", 1, 40, KVG_CRASHED, "");
    assert_int_equal(daemons(seconds), 0);
    expect_peace(worker, 41);
    kvg_worker_stop(worker);
}

static void questions(void **state)
{
    struct kvg_worker *worker = start(60);
    (void)state;
    expect(worker, "accident/supports_exits", 1, 40, KVG_CRASHED, "the worker ended itself with exit code 0");
    expect_peace(worker, 41);
    expect(worker, "accident/supports_aborts", 1, 40, KVG_CRASHED, "");
    expect_peace(worker, 41);
    kvg_worker_stop(worker);
    worker = start(3);
    expect(worker, "accident/supports_hangs", 1, 40, KVG_TIMEOUT, "no answer within 3 s");
    kvg_worker_stop(worker);
}

/* A plug-in that is linked with -ffast-math changes the control of the thread that loads it. */
static void changed_when_loaded(void **state)
{
    (void)state;
    setenv("KVG_ACCIDENT", "constructor_rounds", 1);
    struct kvg_worker *worker = start(60);
    expect(worker, "accident/none", 1, 40, KVG_PASSED,
           "accidents.so changed the rounding mode (upward) when it was loaded");
    expect(worker, "cpu/dequant_scalar", 1, 40, KVG_PASSED, "");
    kvg_worker_stop(worker);
    unsetenv("KVG_ACCIDENT");
}

static void bytes_that_are_no_message(void **state)
{
    struct kvg_frame frame = {.magic = KVG_FRAME_MAGIC,
                              .type = 'R',
                              .sequence = 7,
                              .subject = 9,
                              .length = 3},
                     found;
    char bytes[sizeof frame + 3];
    (void)state;
    memcpy(bytes, &frame, sizeof frame);
    memcpy(bytes + sizeof frame, "row", 3);
    for (size_t used = 1; used < sizeof bytes; used++)
        assert_int_equal(kvg_frame_find(bytes, used, &found), 0);
    assert_int_equal(kvg_frame_find(bytes, sizeof bytes, &found), 1);
    assert_memory_equal(&found, &frame, sizeof frame);
    assert_int_equal(kvg_frame_find("R", 1, &found), -1);
    assert_int_equal(kvg_frame_find("R{\"status\": 0}\n", 15, &found), -1);
    frame.length = KVG_FRAME_MOST + 1;
    memcpy(bytes, &frame, sizeof frame);
    assert_int_equal(kvg_frame_find(bytes, sizeof frame, &found), -1);
}

static void the_control_of_arithmetic(void **state)
{
    struct kvg_fp_control before, found = {0};
    char words[128];
    (void)state;
    kvg_fp_control_get(&before);
    assert_int_equal(kvg_fp_control_restore(&before, 2, &found), 0);
    const volatile double tiny = 1e-30, one = 1;
    fesetround(FE_UPWARD);
    assert_true(one + tiny > 1);
    assert_int_equal(kvg_fp_control_restore(&before, 1, &found), 1);
    assert_true(one + tiny == 1);
    kvg_fp_control_describe(&before, &found, words, sizeof words);
    assert_string_equal(words, "the rounding mode (upward)");
    feraiseexcept(FE_INEXACT | FE_DIVBYZERO); /* flags are no control */
    assert_int_equal(kvg_fp_control_restore(&before, 1, &found), 0);
}

int main(int argc, char **argv)
{
    if (kvg_is_worker(argc, argv))
        return kvg_worker_main();
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_that_are_no_message),
                                       cmocka_unit_test(the_control_of_arithmetic),
                                       cmocka_unit_test(answers_match_questions),
                                       cmocka_unit_test(descriptors),
                                       cmocka_unit_test(arithmetic),
                                       cmocka_unit_test(settings),
                                       cmocka_unit_test(threads_and_processes),
                                       cmocka_unit_test(questions),
                                       cmocka_unit_test(changed_when_loaded)};
    return cmocka_run_group_tests(tests, build_plugin, remove_plugin);
}
