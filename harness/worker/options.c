/* SPDX-License-Identifier: Apache-2.0
 *
 * options.c: the options of a run as one line of JSON, to send them to a worker.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "reference/scales.h"
#include "worker.h"

static json_t *strings(const char *const *list)
{
    json_t *array = json_array();
    for (; list && *list; list++)
        json_array_append_new(array, json_string(*list));
    return array;
}

char *kvg_run_options_to_json(const struct kvg_run_options *o)
{
    json_t *root = json_pack(
        "{s:f s:I s:I s:I s:I s:i s:i s:f s:i s:i s:s s:f s:f s:f s:o s:o}", "min_time", o->min_time,
        "min_samples", (json_int_t)o->min_samples, "max_samples", (json_int_t)o->max_samples, "verify_rows",
        (json_int_t)o->verify_rows, "repeats", (json_int_t)o->repeats, "verify_only", o->verify_only,
        "profile", o->profile, "timeout", o->timeout, "measure_roofs", o->measure_roofs, "graph", o->graph,
        "dump", o->dump ? o->dump : "", "random_tokens_q", (double)o->random_tokens_q, "random_tokens_k",
        (double)o->random_tokens_k, "random_tokens_v", (double)o->random_tokens_v, "plugins",
        strings(o->plugins), "benchmark_flags", strings(o->benchmark_flags));
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return text;
}

/* A NULL-terminated list of copies; NULL for an empty one. *failed is set on out of memory. */
static const char *const *list_of(const json_t *array, int *failed)
{
    size_t n = json_array_size(array);
    if (n == 0)
        return NULL;
    char **list = calloc(n + 1, sizeof *list);
    for (size_t i = 0; list && i < n; i++) {
        const char *text = json_string_value(json_array_get(array, i));
        list[i] = strdup(text ? text : "");
        if (!list[i])
            *failed = 1;
    }
    if (!list)
        *failed = 1;
    return (const char *const *)list;
}

int kvg_run_options_from_json(const char *line, struct kvg_run_options *o, struct kvg_error *error)
{
    json_error_t where;
    json_int_t min_samples, max_samples, verify_rows, repeats;
    double q, k, v;
    const char *dump = "";
    json_t *plugins, *flags;
    json_t *root = json_loads(line, 0, &where);
    kvg_run_options_default(o);
    if (!root)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "run options: %s", where.text);
    int failed = json_unpack_ex(
        root, &where, 0, "{s:F s:I s:I s:I s:I s:i s:i s:F s:i s:i s:s s:F s:F s:F s:o s:o}", "min_time",
        &o->min_time, "min_samples", &min_samples, "max_samples", &max_samples, "verify_rows", &verify_rows,
        "repeats", &repeats, "verify_only", &o->verify_only, "profile", &o->profile, "timeout", &o->timeout,
        "measure_roofs", &o->measure_roofs, "graph", &o->graph, "dump", &dump, "random_tokens_q", &q,
        "random_tokens_k", &k, "random_tokens_v", &v, "plugins", &plugins, "benchmark_flags", &flags);
    if (failed) {
        json_decref(root);
        return kvg_fail(error, KVG_EXIT_TROUBLE, "run options: %s", where.text);
    }
    o->min_samples = min_samples;
    o->max_samples = max_samples;
    o->verify_rows = verify_rows;
    o->repeats = repeats;
    o->random_tokens_q = (float)q;
    o->random_tokens_k = (float)k;
    o->random_tokens_v = (float)v;
    o->dump = *dump ? strdup(dump) : NULL;
    failed |= *dump && !o->dump;
    o->plugins = list_of(plugins, &failed);
    o->benchmark_flags = list_of(flags, &failed);
    json_decref(root);
    return failed ? kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory") : 0;
}

static void free_list(const char *const *list)
{
    for (int64_t i = 0; list && list[i]; i++)
        free((char *)(uintptr_t)list[i]);
    free((void *)(uintptr_t)list);
}

void kvg_run_options_free(struct kvg_run_options *options)
{
    free((char *)(uintptr_t)options->dump);
    options->dump = NULL;
    free_list(options->plugins);
    free_list(options->benchmark_flags);
    options->plugins = NULL;
    options->benchmark_flags = NULL;
}
