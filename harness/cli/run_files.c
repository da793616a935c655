/* SPDX-License-Identifier: Apache-2.0
 *
 * run_files.c: every access to the files is tried before the first case runs. An existing file is replaced
 * only when its successor is complete.
 */
#include "run_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "results/disk.h"
#include "results/file.h"
#include "argv.h"
#include "harness/machine/caches.h"
#include "harness/machine/paths.h"
#include "harness/machine/clock.h"

/* ---- names ---- */

static int ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

static int exists(const char *path)
{
    struct stat s;
    return lstat(path, &s) == 0;
}

/* STEM.h5 and STEM.jsonl. */
static int set_names(struct kvg_run_files *files, const char *stem, size_t length, struct kvg_error *error)
{
    if (length + sizeof ".jsonl" > KVG_PATH_MAX)
        return kvg_fail(error, KVG_EXIT_USAGE, "%.60s...: the name is longer than %d bytes", stem,
                        KVG_PATH_MAX - 8);
    snprintf(files->h5, sizeof files->h5, "%.*s.h5", (int)length, stem);
    snprintf(files->journal_path, sizeof files->journal_path, "%.*s.jsonl", (int)length, stem);
    return 0;
}

static int default_name(struct kvg_run_files *files, const char *suite, struct kvg_error *error)
{
    char folder[KVG_PATH_MAX / 2], stamp[32], stem[KVG_PATH_MAX];
    time_t now = time(NULL);
    struct tm utc;
    kvg_default_run_dir(folder, sizeof folder);
    if (!gmtime_r(&now, &utc) || !strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc))
        snprintf(stamp, sizeof stamp, "run");
    for (int i = 1;; i++) {
        int n =
            snprintf(stem, sizeof stem, i == 1 ? "%s/%s-%.60s" : "%s/%s-%.60s-%d", folder, stamp, suite, i);
        if (set_names(files, stem, (size_t)n, error))
            return -1;
        if (!exists(files->h5) && !exists(files->journal_path))
            return 0;
    }
}

int kvg_run_files_name(struct kvg_run_files *files, const char *out, const char *suite,
                       struct kvg_error *error)
{
    snprintf(files->suite, sizeof files->suite, "%.60s", out ? "" : suite);
    if (!out)
        return default_name(files, suite, error);
    if (ends_in(out, ".h5"))
        return set_names(files, out, strlen(out) - 3, error);
    if (ends_in(out, ".jsonl"))
        return set_names(files, out, strlen(out) - 6, error);
    return kvg_fail(error, KVG_EXIT_USAGE, "'%s': a name that ends in .h5 would be right", out);
}

/* ---- before the first case ---- */

/* Makes the folder of a file. */
static int make_folder(const char *path, struct kvg_error *error)
{
    char folder[KVG_PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder)
        return 0;
    *slash = '\0';
    return kvg_make_folders(folder, error);
}

static int check_space(const char *path, int64_t bytes, struct kvg_error *error)
{
    struct statvfs s;
    char folder[KVG_PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    snprintf(slash ? slash + 1 : folder, 2, ".");
    if (statvfs(folder, &s))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot write there: %s", path, strerror(errno));
    double free_bytes = (double)s.f_bavail * (double)s.f_frsize;
    if (free_bytes < (double)bytes)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: %.0f bytes are free there; this run may need %lld",
                        path, free_bytes, (long long)bytes);
    return 0;
}

/* Can a file be made in the folder of `path`? One with another name is made and removed, because permissions do
 * not tell everything: a file system may be read-only, or take no files at all. */
static int check_writable(const char *path, struct kvg_error *error)
{
    char trial[KVG_PATH_MAX + 32];
    const char *slash = strrchr(path, '/');
    snprintf(trial, sizeof trial, "%.*s.kvgauge-XXXXXX", slash ? (int)(slash + 1 - path) : 0, path);
    const int file = mkstemp(trial);
    if (file < 0)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot write there: %s", path, strerror(errno));
    close(file);
    unlink(trial);
    return 0;
}

/* 1 when both name one file, which need not exist yet. */
static int same_name(const char *a, const char *b)
{
    const char *x = strrchr(a, '/'), *y = strrchr(b, '/');
    return kvg_same_file(a, b) || (strcmp(x ? x + 1 : a, y ? y + 1 : b) == 0 && kvg_same_folder(a, b));
}

/* The content of an earlier --benchmark_out file, or an empty report. */
static int load_benchmarks(struct kvg_run_files *files, int resumed, struct kvg_error *error)
{
    json_error_t why;
    if (!files->benchmark_path)
        return 0;
    if (make_folder(files->benchmark_path, error) || check_writable(files->benchmark_path, error))
        return -1;
    if (same_name(files->benchmark_path, files->h5) || same_name(files->benchmark_path, files->journal_path))
        return kvg_fail(
            error, KVG_EXIT_USAGE,
            "--benchmark_out %s: is the result file or the journal of this run; another name would "
            "be right",
            files->benchmark_path);
    if (!exists(files->benchmark_path)) {
        files->benchmarks = json_pack("{s:{}, s:[]}", "context", "benchmarks");
        return files->benchmarks ? 0 : kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
    }
    if (!resumed)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: exists already; another --benchmark_out would be right",
                        files->benchmark_path);
    files->benchmarks = json_load_file(files->benchmark_path, 0, &why);
    if (!json_is_array(json_object_get(files->benchmarks, "benchmarks")))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: not a JSON report of Google Benchmark",
                        files->benchmark_path);
    return 0;
}

static int refuse_existing(const char *path, const char *journal, struct kvg_error *error)
{
    if (!exists(path))
        return 0;
    return kvg_fail(error, KVG_EXIT_TROUBLE,
                    "%s: exists already; another --out, or --resume %s, would be right", path, journal);
}

int kvg_run_files_try(struct kvg_run_files *files, int64_t bytes, struct kvg_error *error)
{
    if (make_folder(files->h5, error) || check_writable(files->h5, error) ||
        check_space(files->h5, bytes, error) || load_benchmarks(files, 0, error))
        return -1;
    if (files->suite[0]) /* the name was chosen here, and another one can be */
        return 0;
    return refuse_existing(files->h5, files->journal_path, error) ||
                   refuse_existing(files->journal_path, files->journal_path, error)
               ? -1
               : 0;
}

/* Making the journal claims the name. When another run of the same second has claimed a name that was chosen
 * here, the next name is tried. */
int kvg_run_files_create(struct kvg_run_files *files, const struct kvg_facts *run,
                         const struct kvg_facts *machine, struct kvg_error *error)
{
    for (;;) {
        if (refuse_existing(files->h5, files->journal_path, error) == 0 &&
            refuse_existing(files->journal_path, files->journal_path, error) == 0) {
            files->journal = kvg_journal_create(files->journal_path, run, machine, error);
            if (files->journal)
                return 0;
        }
        if (!files->suite[0] || (!exists(files->h5) && !exists(files->journal_path)) ||
            default_name(files, files->suite, error))
            return -1;
    }
}

int kvg_run_files_resume(struct kvg_run_files *files, struct kvg_results *results, struct kvg_error *error)
{
    if (kvg_journal_read(files->journal_path, results, error))
        return -1;
    if (check_writable(files->h5, error) || load_benchmarks(files, 1, error))
        return -1;
    files->journal = kvg_journal_append(files->journal_path, error);
    return files->journal ? 0 : -1;
}

/* ---- Google Benchmark's file ---- */

static int named(const json_t *entry, const char *name)
{
    const char *of_entry = json_string_value(json_object_get(entry, "run_name"));
    return of_entry && name && strcmp(of_entry, name) == 0;
}

int kvg_run_files_add_benchmark(struct kvg_run_files *files, const char *report, struct kvg_error *error)
{
    if (!files->benchmarks || !report)
        return 0;
    json_t *root = json_loads(report, 0, NULL);
    json_t *added = json_object_get(root, "benchmarks"),
           *all = json_object_get(files->benchmarks, "benchmarks");
    const char *name = json_string_value(json_object_get(json_array_get(added, 0), "run_name"));
    for (size_t i = json_array_size(all); i-- > 0;)
        if (named(json_array_get(all, i), name))
            json_array_remove(all, i);
    int failed = !root || json_array_extend(all, added) ||
                 json_object_set(files->benchmarks, "context", json_object_get(root, "context"));
    json_decref(root);
    return failed ? kvg_fail(error, KVG_EXIT_TROUBLE, "%s: the report of a case is not JSON",
                             files->benchmark_path)
                  : 0;
}

static int write_benchmarks(const struct kvg_run_files *files, struct kvg_error *error)
{
    char temporary[KVG_PATH_MAX];
    if (!files->benchmarks)
        return 0;
    int n = snprintf(temporary, sizeof temporary, "%s.%ld.tmp", files->benchmark_path, (long)getpid());
    FILE *f = n < (int)sizeof temporary ? kvg_create_file(temporary) : NULL;
    int failed = !f || json_dumpf(files->benchmarks, f, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (f)
        failed |= fclose(f);
    if (!failed && rename(temporary, files->benchmark_path) == 0)
        return 0;
    kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot write: %s", files->benchmark_path, strerror(errno));
    if (f)
        unlink(temporary);
    return -1;
}

/* ---- after the last case ---- */

int kvg_run_files_finish(struct kvg_run_files *files, int complete, struct kvg_results *results,
                         struct kvg_error *error)
{
    int failed = files->journal ? kvg_journal_close(files->journal, error) : 0;
    files->journal = NULL;
    if (failed || kvg_journal_read(files->journal_path, results, error))
        return -1;
    if (kvg_facts_set_number(&results->run, "complete", complete))
        failed = kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
    if (!failed)
        failed = kvg_file_write(files->h5, results, error);
    if (!failed)
        failed = write_benchmarks(files, error);
    json_decref(files->benchmarks);
    files->benchmarks = NULL;
    return failed ? -1 : 0;
}

void kvg_run_files_abandon(struct kvg_run_files *files)
{
    if (files->journal)
        kvg_journal_close(files->journal, NULL);
    json_decref(files->benchmarks);
    files->journal = NULL;
    files->benchmarks = NULL;
}

/* ---- facts ---- */

/* A random UUID from the kernel. -1 where /proc is not mounted. */
static int new_uuid(char text[40])
{
    return kvg_read_line("/proc/sys/kernel/random/uuid", text, 40);
}

/* ["kvgauge","COMMAND",...]. An argument that is not UTF-8, which JSON cannot hold, makes it a line for a shell;
 * the facts then hold it as they hold any such text. */
static char *recorded_argv(const char *command, int argc, char **argv)
{
    char **whole = calloc((size_t)argc + 2, sizeof *whole);
    char name[] = "kvgauge", *copy = strdup(command), *text = NULL;
    if (whole && copy) {
        whole[0] = name;
        whole[1] = copy;
        for (int i = 1; i < argc; i++)
            whole[i + 1] = argv[i];
        text = kvg_argv_to_json(argc + 1, whole);
        if (!text)
            text = kvg_argv_quote(argc + 1, whole);
    }
    free(copy);
    free(whole);
    return text;
}

int kvg_run_facts_add(struct kvg_facts *facts, const char *command, int argc, char **argv, const char *suite,
                      uint64_t seed)
{
    char uuid[40], created[KVG_UTC_MAX], generator[64];
    char *line = recorded_argv(command, argc, argv);
    if (new_uuid(uuid))
        snprintf(uuid, sizeof uuid, "unknown");
    kvg_utc_now(created);
    snprintf(generator, sizeof generator, "kvgauge %s", kvg_version());
    int failed =
        !line || kvg_facts_set_text(facts, "schema_name", KVG_SCHEMA_NAME) ||
        kvg_facts_set_text(facts, "schema_version", KVG_SCHEMA_VERSION) ||
        kvg_facts_set_text(facts, "run_uuid", uuid) || kvg_facts_set_text(facts, "created_utc", created) ||
        kvg_facts_set_text(facts, "generator", generator) ||
        kvg_facts_set_text(facts, "git_sha", kvg_git_sha()) ||
        kvg_facts_set_number(facts, "git_dirty", kvg_git_dirty()) ||
        kvg_facts_set_text(facts, "argv", line) || kvg_facts_set_text(facts, "suite", suite) ||
        kvg_facts_set_number(facts, "seed", (double)seed) || kvg_facts_set_number(facts, "complete", 0);
    free(line);
    return failed ? -1 : 0;
}
