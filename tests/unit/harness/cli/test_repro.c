/* SPDX-License-Identifier: Apache-2.0
 *
 * test_repro.c: the command that repeats a row. Its table must have every option of `kvgauge run` and every
 * field of struct kvg_run_options. The command is parsed again with the parser of the command line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <jansson.h>
#include <unistd.h>

#include "harness/cli/argv.h"
#include "harness/cli/commands.h"
#include "harness/cli/repro.h"
#include "harness/worker/worker.h"
#include "harness/cli/run_command.h"

static const struct kvg_repro_option *find(const char *option, size_t length)
{
    for (int64_t i = 0; i < kvg_repro_options_count; i++) {
        const struct kvg_repro_option *o = &kvg_repro_options[i];
        if (o->option && strlen(o->option) == length && strncmp(o->option, option, length) == 0)
            return o;
    }
    return NULL;
}

static void expect_in_table(const struct argp *argp)
{
    for (const struct argp_option *o = argp->options; o->name || o->doc; o++) {
        const char *name = o->name;
        if (!name)
            continue;
        name += o->flags & OPTION_DOC ? 2 : 0; /* "--benchmark_out=FILE.json" */
        if (!find(name, strcspn(name, "=")))
            fail_msg("kvg_repro_options lacks --%s: is it part of the repro?", name);
    }
}

static void every_option_is_in_the_table(void **state)
{
    (void)state;
    expect_in_table(&kvg_run_argp);
    for (const struct argp_child *c = kvg_run_argp.children; c->argp; c++)
        expect_in_table(c->argp);
    for (int64_t i = 0; i < kvg_repro_options_count; i++) {
        const struct kvg_repro_option *o = &kvg_repro_options[i];
        assert_true(!o->write == (o->why_not != NULL));
    }
}

static int names_field(const char *fields, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = fields; (at = strstr(at, name)); at += length)
        if ((at == fields || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return 1;
    return 0;
}

/* The JSON for a worker has every field: a field that it lacks has no effect on a row. */
static json_t *json_of(const struct kvg_run_options *run)
{
    char *text = kvg_run_options_to_json(run);
    assert_non_null(text);
    json_t *fields = json_loads(text, 0, NULL);
    assert_non_null(fields);
    free(text);
    return fields;
}

static void every_field_is_in_the_table(void **state)
{
    struct kvg_run_options usual;
    const char *name;
    json_t *value;
    (void)state;
    kvg_run_options_default(&usual);
    json_t *fields = json_of(&usual);
    json_object_foreach(fields, name, value)
    {
        int found = 0;
        for (int64_t i = 0; i < kvg_repro_options_count; i++)
            found |= names_field(kvg_repro_options[i].fields, name);
        if (!found)
            fail_msg("kvg_repro_options lacks the field %s of struct kvg_run_options", name);
    }
    json_decref(fields);
}

/* ------------------------------------------------------------------------------------------ what is
 * written */

static void small_case(struct kvg_case *c, const char *cache_state)
{
    kvg_case_default(c);
    assert_int_equal(kvg_case_set(c, KVG_AXIS_CACHE_STATE, cache_state, NULL), 0);
    assert_int_equal(kvg_case_set(c, KVG_AXIS_KERNEL, "cpu/dequant_scalar", NULL), 0);
    assert_int_equal(kvg_case_complete(c, NULL), 0);
}

static char *repro_of(const struct kvg_run_options *run, const char *cache_state)
{
    struct kvg_case c;
    small_case(&c, cache_state);
    char *command = kvg_repro_make(&c, run, NULL);
    assert_non_null(command);
    return command;
}

static void usual_options_are_left_out(void **state)
{
    struct kvg_run_options usual;
    struct kvg_case c;
    char text[KVG_CASE_STRING_MAX], wanted[KVG_CASE_STRING_MAX + 32];
    (void)state;
    kvg_run_options_default(&usual);
    small_case(&c, "cold");
    kvg_case_format(&c, text);
    snprintf(wanted, sizeof wanted, "kvgauge run --case '%s'", text);
    char *command = repro_of(&usual, "cold");
    assert_string_equal(command, wanted);
    free(command);
}

static const char *const plugins[] = {"./a.so", "it's a b.so", NULL};
static const char *const warmup[] = {"--benchmark_out=x y.json", "--benchmark_min_warmup_time=0.25", NULL};

/* One entry for each writer of the table. */
static const struct change {
    const char *option, *wanted; /* wanted: the expected part of the command */
    struct kvg_run_options run;  /* fields that are not 0 are set */
} changes[] = {
    {"plugin", " --plugin ./a.so --plugin 'it'\\''s a b.so' ", {.plugins = plugins}},
    {"random-tokens-constants",
     " --random-tokens-constants 200,0.1,16777216 ",
     {.random_tokens_k = 0.1f, .random_tokens_v = 16777216}},
    {"repeats", " --repeats 5000000000 ", {.repeats = INT64_C(5000000000)}},
    {"timeout", " --timeout 0.1 ", {.timeout = 0.1}},
    {"verify-only", " --verify-only ", {.verify_only = 1}},
    {"min-time", " --min-time 0.012345678901234568 ", {.min_time = 0.012345678901234568}},
    {"cuda-graph", " --cuda-graph ", {.graph = 1}},
    {"benchmark_repetitions", " --benchmark_repetitions=7 ", {.min_samples = 7, .max_samples = 7}},
    {"benchmark_repetitions", " --benchmark_repetitions=256 ", {.min_samples = 256, .max_samples = 256}},
    {"benchmark_min_warmup_time", " --benchmark_min_warmup_time=0.25 ", {.benchmark_flags = warmup}},
};
enum { N_CHANGES = sizeof changes / sizeof changes[0] };

static void apply(const struct change *change, struct kvg_run_options *run)
{
    const struct kvg_run_options *from = &change->run;
    run->plugins = from->plugins ? from->plugins : run->plugins;
    run->benchmark_flags = from->benchmark_flags ? from->benchmark_flags : run->benchmark_flags;
    run->random_tokens_k = from->random_tokens_k != 0 ? from->random_tokens_k : run->random_tokens_k;
    run->random_tokens_v = from->random_tokens_v != 0 ? from->random_tokens_v : run->random_tokens_v;
    run->repeats = from->repeats ? from->repeats : run->repeats;
    run->timeout = from->timeout != 0 ? from->timeout : run->timeout;
    run->min_time = from->min_time != 0 ? from->min_time : run->min_time;
    run->min_samples = from->min_samples ? from->min_samples : run->min_samples;
    run->max_samples = from->max_samples ? from->max_samples : run->max_samples;
    run->verify_only |= from->verify_only;
    run->graph |= from->graph;
}

static void what_changes_a_row_is_written(void **state)
{
    int64_t writers = 0;
    (void)state;
    for (int64_t i = 0; i < kvg_repro_options_count; i++)
        writers += kvg_repro_options[i].write != NULL;
    assert_int_equal(writers, N_CHANGES - 1); /* one has two entries */
    for (int i = 0; i < N_CHANGES; i++) {
        struct kvg_run_options run;
        const struct kvg_repro_option *o = find(changes[i].option, strlen(changes[i].option));
        assert_true(o && o->write);
        kvg_run_options_default(&run);
        apply(&changes[i], &run);
        char *command = repro_of(&run, "cold");
        if (!strstr(command, changes[i].wanted))
            fail_msg("'%s' lacks '%s'", command, changes[i].wanted);
        free(command);
    }
}

/* Options of timing are left out where nothing is timed. */
static void an_untimed_case_needs_no_timing(void **state)
{
    static const char *const absent[] = {"--verify-only", "--min-time", "--cuda-graph", "--benchmark"};
    struct kvg_run_options run;
    (void)state;
    kvg_run_options_default(&run);
    for (int i = 0; i < N_CHANGES; i++)
        apply(&changes[i], &run);
    char *untimed = repro_of(&run, "none"), *verified = repro_of(&run, "cold");
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        assert_null(strstr(untimed, absent[i]));
        assert_true(!strstr(verified, absent[i]) == (i > 0));
    }
    assert_non_null(strstr(untimed, " --timeout 0.1 "));
    free(untimed);
    free(verified);
}

/* Split as by a shell and parsed, the command gives the same options and the same repro. */
static void commands_come_back(void **state)
{
    struct kvg_run_options run;
    struct kvg_run_command again;
    struct kvg_error error = {0};
    int argc = 0;
    (void)state;
    kvg_run_options_default(&run);
    for (int i = 0; i < N_CHANGES; i++)
        if (strcmp(changes[i].option, "verify-only") != 0) /* with it, nothing would be timed */
            apply(&changes[i], &run);
    char *command = repro_of(&run, "hot");
    char *begin = strstr(command, "kvgauge run"); /* behind the folder of the relative plug-in */
    assert_true(begin && strncmp(command, "cd ", 3) == 0);
    char **argv = kvg_argv_unquote(begin, &argc);
    assert_non_null(argv);
    if (kvg_run_command_read(argc - 1, argv + 1, &again, &error))
        fail_msg("%s: %s", command, error.text);
    json_t *before = json_of(&run), *after = json_of(&again.run), *value;
    const char *name;
    json_object_foreach(before, name, value)
    {
        if (strcmp(name, "benchmark_flags") != 0 && !json_equal(value, json_object_get(after, name)))
            fail_msg("%s is another one after: %s", name, command);
    }
    char *twice = repro_of(&again.run, "hot");
    assert_string_equal(twice, command);
    json_decref(before);
    json_decref(after);
    free(twice);
    free(command);
    kvg_run_command_free(&again);
    kvg_argv_free(argv);
}

/* ------------------------------------------------------------------------------------------ folder,
 * environment, races */

static char *repro_with(const char *input, const struct kvg_run_options *run, const struct kvg_row *row)
{
    struct kvg_case c;
    small_case(&c, "none");
    snprintf(c.input, sizeof c.input, "%s", input);
    char *command = kvg_repro_make(&c, run, row);
    assert_non_null(command);
    return command;
}

static void relative_files_need_their_folder(void **state)
{
    static const char *const absolute[] = {"/a/b.so", NULL};
    struct kvg_run_options run;
    char folder[1000], wanted[1100];
    (void)state;
    kvg_run_options_default(&run);
    assert_non_null(getcwd(folder, sizeof folder));
    assert_null(strpbrk(folder, " '")); /* no quotes in the expected command */
    snprintf(wanted, sizeof wanted, "cd %s && kvgauge run ", folder);
    const struct {
        const char *input;
        const char *const *plugins;
        int relative;
    } files[] = {{"normal", NULL, 0},    {"normal", absolute, 0}, {"normal", plugins, 1},
                 {"./mine.h5", NULL, 1}, {"mine.h5", NULL, 1},    {"/x/mine.h5", NULL, 0},
                 {"smollm2", NULL, 0},   {"smollm2", plugins, 1}, {"needle:0.5", NULL, 0}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        run.plugins = files[i].plugins;
        char *command = repro_with(files[i].input, &run, NULL);
        if (strncmp(command, files[i].relative ? wanted : "kvgauge run ",
                    files[i].relative ? strlen(wanted) : 12))
            fail_msg("%s: %s", files[i].input, command);
        free(command);
    }
}

/* Variables that are set and can change the row. Those of shipped inputs, plug-ins and GPUs only where they
 * count. */
static void the_environment_is_written(void **state)
{
    static const char *const absolute[] = {"/a/b.so", NULL};
    struct kvg_run_options run;
    struct kvg_case c;
    (void)state;
    kvg_run_options_default(&run);
    setenv("OMP_PROC_BIND", "close", 1);
    setenv("OMP_NUM_THREADS", "3", 1);
    setenv("KVGAUGE_DATA", "/my data", 1);
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    setenv("OMP_PLACES", "", 1);
    char *usual = repro_with("normal", &run, NULL), *captured = repro_with("smollm2", &run, NULL);
    run.plugins = absolute;
    char *plugin = repro_with("normal", &run, NULL);
    run.plugins = NULL;
    small_case(&c, "none");
    snprintf(c.kernel, sizeof c.kernel, "cuda/dequant_sm90");
    char *gpu = kvg_repro_make(&c, &run, NULL);
    assert_non_null(gpu);
    assert_memory_equal(usual, "OMP_PROC_BIND=close kvgauge run ", 32);
    assert_memory_equal(captured, "KVGAUGE_DATA='/my data' OMP_PROC_BIND=close kvgauge run ", 55);
    assert_memory_equal(plugin, "OMP_NUM_THREADS=3 OMP_PROC_BIND=close kvgauge run --plugin /a/b.so ", 67);
    assert_memory_equal(gpu, "CUDA_VISIBLE_DEVICES=1 kvgauge run ", 35);
    free(usual);
    free(captured);
    free(plugin);
    free(gpu);
    setenv("KVGAUGE_DATA", "data", 1);
    captured = repro_with("smollm2", &run, NULL);
    assert_memory_equal(captured, "cd /", 4);
    assert_non_null(strstr(captured, " && KVGAUGE_DATA=data OMP_PROC_BIND=close kvgauge run "));
    free(captured);
    unsetenv("OMP_PROC_BIND");
    unsetenv("OMP_NUM_THREADS");
    unsetenv("KVGAUGE_DATA");
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("OMP_PLACES");
}

/* A row that failed by a race asks for ten times the calls that it took, but for at least 300 and at most
 * 100000. */
static void a_race_gets_repeats(void **state)
{
    static const struct {
        enum kvg_status status;
        const char *suspected;
        int64_t took, asked;
        const char *wanted; /* NULL: no --repeats */
    } rows[] = {
        {KVG_INCORRECT, "race or leftover", 5, 0, " --repeats 300 "},
        {KVG_INCORRECT, "race or leftover", 299, 0, " --repeats 2990 "},
        {KVG_INCORRECT, "race or leftover", 300, 2000, " --repeats 2000 "},
        {KVG_INCORRECT, "race or leftover", 10000001, 0, " --repeats 100000 "},
        {KVG_INCORRECT, "race or leftover", -1, 0, NULL},
        {KVG_INCORRECT, "layout", 300, 0, NULL},
        {KVG_PASSED, "", 300, 0, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct kvg_run_options run;
        struct kvg_row row;
        kvg_run_options_default(&run);
        assert_int_equal(kvg_row_init(&row), 0);
        row.status = rows[i].status;
        row.n_repeats = rows[i].took;
        run.repeats = rows[i].asked;
        assert_int_equal(kvg_row_set_string(&row.suspected, rows[i].suspected), 0);
        char *command = repro_with("normal", &run, &row);
        if (rows[i].wanted ? !strstr(command, rows[i].wanted) : strstr(command, "--repeats") != NULL)
            fail_msg("row %zu: %s", i, command);
        free(command);
        kvg_row_free(&row);
    }
}

/* The variables of the caller. */
static int clear_environment(void **state)
{
    static const char *const names[] = {
        "KVGAUGE_DATA",  "LD_LIBRARY_PATH",  "OMP_NUM_THREADS", "OMP_DYNAMIC",    "OMP_PLACES",
        "OMP_PROC_BIND", "OMP_THREAD_LIMIT", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "GOMP_CPU_AFFINITY"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_is_in_the_table),
        cmocka_unit_test(every_field_is_in_the_table),
        cmocka_unit_test(usual_options_are_left_out),
        cmocka_unit_test(what_changes_a_row_is_written),
        cmocka_unit_test(an_untimed_case_needs_no_timing),
        cmocka_unit_test(commands_come_back),
        cmocka_unit_test(relative_files_need_their_folder),
        cmocka_unit_test(the_environment_is_written),
        cmocka_unit_test(a_race_gets_repeats),
    };
    return cmocka_run_group_tests(tests, clear_environment, NULL);
}
