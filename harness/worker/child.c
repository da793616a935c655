/* SPDX-License-Identifier: Apache-2.0
 *
 * child.c: the child side of the worker: reads the options and then one case string a line, runs each case
 * and sends its row back.
 *
 *   parent -> worker   {options}\n  CASE STRING\n  CASE STRING\n ...  (end of file: finish)
 *   worker -> parent   B{Google Benchmark's JSON}\n   when the case was timed and --benchmark_out was given
 *                      S{number}\n                    a run of this kind begins (enum kvg_run_kind)
 *                      R{row}\n                       the row; the worker waits for the next case
 *                      T{row}\n                       the row; this process must not run another case
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <unistd.h>

#include "kernels/registry.h"
#include "harness/execute/execute.h"
#include "results/journal.h"
#include "worker.h"

int kvg_is_worker(int argc, char **argv)
{
    return argc == 2 && strcmp(argv[1], KVG_WORKER_COMMAND) == 0;
}

/* When memory runs out, the kernel shall end the worker, not the parent or another process. */
static void volunteer_for_oom(void)
{
    FILE *f = fopen("/proc/self/oom_score_adj", "w");
    if (!f)
        return;
    fputs("1000", f);
    fclose(f);
}

static int load_plugins(const struct kvg_run_options *options)
{
    for (int64_t i = 0; options->plugins && options->plugins[i]; i++) {
        char why[512];
        if (kvg_registry_load(options->plugins[i], why, sizeof why)) {
            fprintf(stderr, "%s\n", why);
            return -1;
        }
    }
    return 0;
}

/* The report of the library has many lines; the protocol needs one. */
static void send_report(FILE *parent, const char *report)
{
    json_t *root = json_loads(report, 0, NULL);
    char *line = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    if (line)
        fprintf(parent, "B%s\n", line);
    free(line);
    json_decref(root);
}

/* 1 when the flags ask for the report of the library. */
static int wants_report(const struct kvg_run_options *options)
{
    static const char out[] = "--benchmark_out=";
    for (int64_t i = 0; options->benchmark_flags && options->benchmark_flags[i]; i++)
        if (strncmp(options->benchmark_flags[i], out, sizeof out - 1) == 0)
            return 1;
    return 0;
}

static void announce(void *parent, int run)
{
    fprintf(parent, "S%d\n", run);
    fflush(parent);
}

static void run_case(struct kvg_session *session, const struct kvg_run_options *options, const char *text,
                     FILE *parent)
{
    struct kvg_case c;
    struct kvg_row row;
    struct kvg_error error;
    char *report = NULL;
    if (kvg_row_init(&row))
        _exit(KVG_EXIT_TROUBLE);
    if (kvg_case_parse(text, &c, &error)) {
        row.status = KVG_INVALID;
        kvg_row_set_string(&row.reason, error.text);
    } else {
        kvg_execute_in(session, &c, options, &row, wants_report(options) ? &report : NULL);
    }
    char *line = kvg_row_to_json(&row);
    if (!line)
        _exit(KVG_EXIT_TROUBLE);
    if (report)
        send_report(parent, report);
    fprintf(parent, "%c%s\n", kvg_session_tainted(session) ? 'T' : 'R', line);
    fflush(parent);
    free(line);
    free(report);
    kvg_row_free(&row);
}

/* Start of the request "roofs THREADS MEASURE". It is no case string, because it has no "=". */
static const char ROOFS[] = "roofs ";

/* Answers that request; `request` is what follows its start. */
static void send_roofs(struct kvg_session *session, const char *request, FILE *parent)
{
    struct kvg_facts facts = {0};
    char *end;
    const int64_t threads = strtoll(request, &end, 10);
    const int measure = (int)strtol(end, NULL, 10);
    char *line = kvg_session_add_roofs(session, threads, measure, &facts) ? NULL : kvg_facts_to_json(&facts);
    if (!line)
        _exit(KVG_EXIT_TROUBLE);
    fprintf(parent, "R%s\n", line);
    fflush(parent);
    free(line);
    kvg_facts_free(&facts);
}

static int serve(FILE *from, FILE *to)
{
    struct kvg_run_options options;
    struct kvg_error error;
    char *line = NULL;
    size_t size = 0;
    if (getline(&line, &size, from) <= 0 || kvg_run_options_from_json(line, &options, &error)) {
        free(line);
        return KVG_EXIT_TROUBLE;
    }
    struct kvg_session *session = load_plugins(&options) ? NULL : kvg_session_new();
    if (session)
        kvg_session_announce(session, announce, to);
    while (session && !kvg_session_tainted(session) && getline(&line, &size, from) > 0) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, ROOFS, sizeof ROOFS - 1) == 0)
            send_roofs(session, line + sizeof ROOFS - 1, to);
        else
            run_case(session, &options, line, to);
    }
    int code = session ? KVG_EXIT_OK : KVG_EXIT_TROUBLE;
    kvg_session_free(session);
    kvg_run_options_free(&options);
    free(line);
    return code;
}

int kvg_worker_main(void)
{
    signal(SIGPIPE, SIG_IGN);
    volunteer_for_oom();
    FILE *from = fdopen(KVG_WORKER_FD, "r");
    FILE *to = fdopen(dup(KVG_WORKER_FD), "w");
    if (!from || !to) {
        fprintf(stderr, "%s is for kvgauge itself; use kvgauge run\n", KVG_WORKER_COMMAND);
        return KVG_EXIT_USAGE;
    }
    int code = serve(from, to);
    fclose(from);
    fclose(to);
    return code;
}
