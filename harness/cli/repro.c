/* SPDX-License-Identifier: Apache-2.0
 *
 * repro.c: one small writer for each option that can change a row, the variables of the environment that can,
 * and the folder that relative names of files start from.
 */
#include "repro.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "argv.h"
#include "harness/diagnose/diagnose.h"
#include "harness/inputs/inputs.h"

static int write_word(FILE *out, const char *option, const char *word)
{
    char *quoted = kvg_argv_quote_word(word);
    if (quoted)
        fprintf(out, " --%s %s", option, quoted);
    free(quoted);
    return quoted ? 0 : -1;
}

/* The shortest decimal that reads back as the same double, or as the same float. */
static void write_number(FILE *out, double x, int is_float)
{
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (is_float ? strtof(text, NULL) == (float)x : strtod(text, NULL) == x)
            break;
    }
    fputs(text, out);
}

static void write_seconds(FILE *out, const char *option, double seconds)
{
    fprintf(out, " --%s ", option);
    write_number(out, seconds, 0);
}

#define WRITER(name)                                                                                         \
    static int name(FILE *out, const struct kvg_run_options *run, const struct kvg_run_options *usual,       \
                    const struct kvg_case *c)

WRITER(write_plugins)
{
    (void)usual;
    (void)c;
    for (const char *const *file = run->plugins; file && *file; file++)
        if (write_word(out, "plugin", *file))
            return -1;
    return 0;
}

WRITER(write_constants)
{
    const double constants[] = {run->random_tokens_q, run->random_tokens_k, run->random_tokens_v};
    (void)c;
    if (run->random_tokens_q == usual->random_tokens_q && run->random_tokens_k == usual->random_tokens_k &&
        run->random_tokens_v == usual->random_tokens_v)
        return 0;
    fputs(" --random-tokens-constants ", out);
    for (int i = 0; i < 3; i++) {
        fputs(i ? "," : "", out);
        write_number(out, constants[i], 1);
    }
    return 0;
}

WRITER(write_repeats)
{
    (void)c;
    if (run->repeats != usual->repeats)
        fprintf(out, " --repeats %lld", (long long)run->repeats);
    return 0;
}

WRITER(write_timeout)
{
    (void)c;
    if (run->timeout != usual->timeout)
        write_seconds(out, "timeout", run->timeout);
    return 0;
}

WRITER(write_verify_only)
{
    (void)usual;
    if (run->verify_only && c->cache_state != KVG_STATE_NONE)
        fputs(" --verify-only", out);
    return 0;
}

/* The options below change how a case is timed and nothing else. */
static int is_timed(const struct kvg_run_options *run, const struct kvg_case *c)
{
    return c->cache_state != KVG_STATE_NONE && !run->verify_only;
}

WRITER(write_min_time)
{
    if (is_timed(run, c) && run->min_time != usual->min_time)
        write_seconds(out, "min-time", run->min_time);
    return 0;
}

WRITER(write_graph)
{
    (void)usual;
    if (is_timed(run, c) && run->graph)
        fputs(" --cuda-graph", out);
    return 0;
}

/* The flag of Google Benchmark is the one way to a number of samples, and sets both bounds to it. */
WRITER(write_samples)
{
    if (is_timed(run, c) &&
        (run->max_samples != usual->max_samples || run->min_samples != usual->min_samples))
        fprintf(out, " --benchmark_repetitions=%lld", (long long)run->max_samples);
    return 0;
}

WRITER(write_warmup)
{
    static const char flag[] = "--benchmark_min_warmup_time=";
    (void)usual;
    for (const char *const *f = run->benchmark_flags; f && *f && is_timed(run, c); f++)
        if (strncmp(*f, flag, sizeof flag - 1) == 0)
            fprintf(out, " %s", *f); /* checked to be a number: needs no quotes */
    return 0;
}

static const char case_says[] = "the case string holds every axis";
static const char names_files[] = "names the files of the run";
static const char no_row[] = "makes no row";
static const char report_only[] = "changes Google Benchmark's report only";

const struct kvg_repro_option kvg_repro_options[] = {
    {"plugin", "plugins", write_plugins, NULL},
    {"random-tokens-constants", "random_tokens_q random_tokens_k random_tokens_v", write_constants, NULL},
    {"repeats", "repeats", write_repeats, NULL},
    {"timeout", "timeout", write_timeout, NULL},
    {"verify-only", "verify_only", write_verify_only, NULL},
    {"min-time", "min_time", write_min_time, NULL},
    {"cuda-graph", "graph", write_graph, NULL},
    {"benchmark_repetitions", "min_samples max_samples", write_samples, NULL},
    {"benchmark_min_warmup_time", "benchmark_flags", write_warmup, NULL},
    {"benchmark_min_time", "min_time", NULL, "is written as --min-time"},
    {"benchmark_time_unit", "", NULL, report_only},
    {"benchmark_context", "", NULL, report_only},
    {"benchmark_report_aggregates_only", "", NULL, report_only},
    {"benchmark_out", "", NULL, names_files},
    {"benchmark_out_format", "", NULL, names_files},
    {"case", "", NULL, "is written after all options, for every row"},
    {"suite", "", NULL, case_says},
    {"file", "", NULL, case_says},
    {"filter", "", NULL, case_says},
#define KVG_AXIS(id, name, option, arg, fallback, optional, help) {option, "", NULL, case_says},
#include "harness/case/axes.def"
    {"out", "", NULL, names_files},
    {"resume", "", NULL, names_files},
    {"trust", "", NULL, "says what --resume may do"},
    {"dump", "dump", NULL, "names the files of the run; no number of the row depends on it"},
    {"dry-run", "", NULL, no_row},
    {"profile", "profile", NULL, no_row},
    {"plots", "", NULL, "draws what is measured already"},
    {"no-plots", "", NULL, "draws what is measured already"},
    {"quiet", "", NULL, "changes what is printed"},
    {NULL, "verify_rows measure_roofs", NULL, "no option sets them; tests do"},
};
const int64_t kvg_repro_options_count = sizeof kvg_repro_options / sizeof kvg_repro_options[0];

/* ---- what stands before "kvgauge" ---- */

static int is_relative(const char *file)
{
    return file && *file && *file != '/';
}

static int loads_plugins(const struct kvg_run_options *run)
{
    return run->plugins && run->plugins[0];
}

/* 1 if the input of the case is a file that kvgauge looks for in the folder of its data. */
static int is_shipped_input(const struct kvg_case *c)
{
    const size_t length = strlen(c->input);
    return !kvg_input_is_synthetic(c->input) && !(length > 3 && strcmp(c->input + length - 3, ".h5") == 0);
}

static int names_relative_files(const struct kvg_case *c, const struct kvg_run_options *run)
{
    for (const char *const *file = run->plugins; file && *file; file++)
        if (is_relative(*file))
            return 1;
    if (is_shipped_input(c))
        return is_relative(getenv("KVGAUGE_DATA"));
    return !kvg_input_is_synthetic(c->input) && is_relative(c->input);
}

/* "cd FOLDER && " if a name of a file is relative. */
static int write_folder(FILE *out, const struct kvg_case *c, const struct kvg_run_options *run)
{
    char folder[PATH_MAX];
    if (!names_relative_files(c, run) || !getcwd(folder, sizeof folder))
        return 0;
    char *quoted = kvg_argv_quote_word(folder);
    if (quoted)
        fprintf(out, "cd %s && ", quoted);
    free(quoted);
    return quoted ? 0 : -1;
}

/* Variables that can change a row. OMP_NUM_THREADS counts for plug-ins alone: kernels of kvgauge and its
 * reference use the threads of the case. */
static const struct variable {
    const char *name;
    enum { FOR_CPU, FOR_GPU, FOR_PLUGINS, FOR_SHIPPED_INPUTS } when;
} variables[] = {
    {"KVGAUGE_DATA", FOR_SHIPPED_INPUTS},
    {"LD_LIBRARY_PATH", FOR_PLUGINS},
    {"OMP_NUM_THREADS", FOR_PLUGINS},
    {"OMP_DYNAMIC", FOR_CPU},
    {"OMP_PLACES", FOR_CPU},
    {"OMP_PROC_BIND", FOR_CPU},
    {"OMP_THREAD_LIMIT", FOR_CPU},
    {"OMP_WAIT_POLICY", FOR_CPU},
    {"GOMP_CPU_AFFINITY", FOR_CPU},
    {"GOMP_SPINCOUNT", FOR_CPU},
    {"CUDA_VISIBLE_DEVICES", FOR_GPU},
    {"CUDA_DEVICE_ORDER", FOR_GPU},
    {"CUDA_LAUNCH_BLOCKING", FOR_GPU},
};

static int write_variables(FILE *out, const struct kvg_case *c, const struct kvg_run_options *run)
{
    const int applies[] = {[FOR_CPU] = !kvg_case_on_gpu(c),
                           [FOR_GPU] = kvg_case_on_gpu(c),
                           [FOR_PLUGINS] = loads_plugins(run),
                           [FOR_SHIPPED_INPUTS] = is_shipped_input(c)};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = applies[variables[i].when] ? getenv(variables[i].name) : NULL;
        char *quoted = value && *value ? kvg_argv_quote_word(value) : NULL;
        if (value && *value && !quoted)
            return -1;
        if (quoted)
            fprintf(out, "%s=%s ", variables[i].name, quoted);
        free(quoted);
    }
    return 0;
}

/* ---- the command ---- */

enum { RACE_REPEATS = 300, RACE_TIMES = 10, RACE_REPEATS_MOST = 100000 };

/* Number of repeated calls for a row that failed by a race without --repeats; 0 for any other row. The race
 * shows by chance, and how many calls fit into the usual time depends on the machine. Ten times the calls
 * that it took find it again nearly always. */
static int64_t repeats_of_race(const struct kvg_row *row)
{
    if (!row || row->status != KVG_INCORRECT || row->n_repeats < 1 ||
        strcmp(row->suspected, kvg_fault_class_name(KVG_FAULT_RACE)) != 0)
        return 0;
    const int64_t wanted = RACE_TIMES * row->n_repeats;
    return wanted < RACE_REPEATS ? RACE_REPEATS : wanted > RACE_REPEATS_MOST ? RACE_REPEATS_MOST : wanted;
}

char *kvg_repro_make(const struct kvg_case *c, const struct kvg_run_options *run, const struct kvg_row *row)
{
    struct kvg_run_options usual, mine = *run;
    char text[KVG_CASE_STRING_MAX], *command = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&command, &size);
    if (!out)
        return NULL;
    kvg_run_options_default(&usual);
    mine.repeats = run->repeats ? run->repeats : repeats_of_race(row);
    kvg_case_format(c, text);
    int failed = write_folder(out, c, run) || write_variables(out, c, run);
    fputs("kvgauge run", out);
    for (int64_t i = 0; i < kvg_repro_options_count && !failed; i++)
        if (kvg_repro_options[i].write)
            failed = kvg_repro_options[i].write(out, &mine, &usual, c);
    failed |= write_word(out, "case", text);
    if (fclose(out) || failed) {
        free(command);
        return NULL;
    }
    return command;
}
