/* SPDX-License-Identifier: Apache-2.0
 *
 * repro.c: one small writer for each option that can change a row.
 */
#include "repro.h"

#include <stdlib.h>
#include <string.h>

#include "argv.h"

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
    if (is_timed(run, c) && run->max_samples != usual->max_samples)
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
    {"filter", "", NULL, case_says},
#define KVG_AXIS(id, name, option, arg, fallback, optional, help) {option, "", NULL, case_says},
#include "harness/case/axes.def"
    {"out", "", NULL, names_files},
    {"resume", "", NULL, names_files},
    {"dump", "dump", NULL, "names the files of the run; no number of the row depends on it"},
    {"dry-run", "", NULL, no_row},
    {"profile", "profile", NULL, no_row},
    {"plots", "", NULL, "draws what is measured already"},
    {"no-plots", "", NULL, "draws what is measured already"},
    {"quiet", "", NULL, "changes what is printed"},
    {NULL, "verify_rows measure_roofs", NULL, "no option sets them; tests do"},
};
const int64_t kvg_repro_options_count = sizeof kvg_repro_options / sizeof kvg_repro_options[0];

char *kvg_repro_make(const struct kvg_case *c, const struct kvg_run_options *run)
{
    struct kvg_run_options usual;
    char text[KVG_CASE_STRING_MAX], *command = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&command, &size);
    if (!out)
        return NULL;
    kvg_run_options_default(&usual);
    kvg_case_format(c, text);
    fputs("kvgauge run", out);
    int failed = 0;
    for (int64_t i = 0; i < kvg_repro_options_count && !failed; i++)
        if (kvg_repro_options[i].write)
            failed = kvg_repro_options[i].write(out, run, &usual, c);
    failed |= write_word(out, "case", text);
    if (fclose(out) || failed) {
        free(command);
        return NULL;
    }
    return command;
}
