/* SPDX-License-Identifier: Apache-2.0
 *
 * benchmark_flags.c: the --benchmark_* flags of Google Benchmark that kvgauge takes.
 */
#include "benchmark_flags.h"
#include "results/row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int number_flag(const char *flag, const char *value, double low, double high, double *out,
                       struct kvg_error *error)
{
    char *end;
    double x = strtod(value, &end);
    if (end == value || *end || !(x >= low && x <= high))
        return kvg_fail(error, KVG_EXIT_USAGE, "%s: a number from %g to %g would be right", flag, low, high);
    *out = x;
    return 0;
}

static const char *value_of(const char *flag, const char *name)
{
    size_t length = strlen(name);
    return strncmp(flag, name, length) == 0 && flag[length] == '=' ? flag + length + 1 : NULL;
}

static int refused_flag(const char *flag, struct kvg_error *error)
{
    static const struct {
        const char *name, *instead;
    } known[] = {
        {"--benchmark_filter", "use --filter"},
        {"--benchmark_list_tests", "use kvgauge list"},
        {"--benchmark_format", "use kvgauge show"},
        {"--benchmark_color", "kvgauge prints its own table"},
        {"--benchmark_counters_tabular", "kvgauge prints its own table"},
        {"--benchmark_display_aggregates_only", "kvgauge prints its own table"},
        {"--benchmark_enable_random_interleaving", "a worker runs one case at a time"},
        {"--benchmark_perf_counters", "this build of the library has none"},
    };
    size_t length = strcspn(flag, "=");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strlen(known[i].name) == length && strncmp(flag, known[i].name, length) == 0)
            return kvg_fail(error, KVG_EXIT_USAGE, "%s is not passed on: %s", flag, known[i].instead);
    return kvg_fail(error, KVG_EXIT_USAGE,
                    "%s is not a flag that is passed on; those are --benchmark_out=FILE, _out_format=json, "
                    "_min_time=SECONDS, _repetitions=N, _min_warmup_time=SECONDS, _time_unit=ns|us|ms|s, "
                    "_context=KEY=VALUE, _report_aggregates_only=BOOL",
                    flag);
}

static int one_of(const char *value, const char *const *choices)
{
    for (; *choices; choices++)
        if (strcmp(value, *choices) == 0)
            return 1;
    return 0;
}

static int own_flag(const char *flag, struct kvg_run_options *options, const char **out_path,
                    struct kvg_error *error)
{
    static const char *const units[] = {"ns", "us", "ms", "s", NULL};
    static const char *const booleans[] = {"true", "false", "1", "0", "yes", "no", NULL};
    const char *value;
    double x = 0;
    if ((value = value_of(flag, "--benchmark_out"))) {
        if (!*value)
            return kvg_fail(error, KVG_EXIT_USAGE, "%s: the name of a file would be right", flag);
        *out_path = value;
        return 0;
    }
    if ((value = value_of(flag, "--benchmark_out_format")))
        return strcmp(value, "json") == 0
                   ? 0
                   : kvg_fail(error, KVG_EXIT_USAGE, "%s: json is the one format that is written", flag);
    if ((value = value_of(flag, "--benchmark_min_time"))) {
        /* newer versions of the library write "0.5s" */
        char text[64];
        snprintf(text, sizeof text, "%s", value);
        size_t length = strlen(text);
        if (length > 1 && text[length - 1] == 's')
            text[length - 1] = '\0';
        return number_flag(flag, text, 0, 3600, &options->min_time, error);
    }
    if ((value = value_of(flag, "--benchmark_repetitions"))) {
        if (number_flag(flag, value, 1, KVG_MAX_SAMPLES, &x, error))
            return -1;
        options->min_samples = options->max_samples = (int64_t)x;
        return 0;
    }
    if ((value = value_of(flag, "--benchmark_min_warmup_time")))
        return number_flag(flag, value, 0, 60, &x, error);
    if ((value = value_of(flag, "--benchmark_time_unit")))
        return one_of(value, units)
                   ? 0
                   : kvg_fail(error, KVG_EXIT_USAGE, "%s: ns, us, ms or s would be right", flag);
    if ((value = value_of(flag, "--benchmark_report_aggregates_only")))
        return one_of(value, booleans)
                   ? 0
                   : kvg_fail(error, KVG_EXIT_USAGE, "%s: true or false would be right", flag);
    if ((value = value_of(flag, "--benchmark_context"))) {
        if (strchr(value, '='))
            return 0;
        return kvg_fail(error, KVG_EXIT_USAGE, "%s: KEY=VALUE would be right", flag);
    }
    return refused_flag(flag, error);
}

int kvg_benchmark_flags(const char *const *flags, struct kvg_run_options *options, const char **out_path,
                        struct kvg_error *error)
{
    *out_path = NULL;
    for (; flags && *flags; flags++)
        if (own_flag(*flags, options, out_path, error))
            return -1;
    return 0;
}
