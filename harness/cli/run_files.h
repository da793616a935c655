/* SPDX-License-Identifier: Apache-2.0
 *
 * run_files.h: the files of a run: the result file RUN.h5, its journal RUN.jsonl, and Google Benchmark's
 * JSON.
 */
#ifndef KVG_HARNESS_RUN_FILES_H
#define KVG_HARNESS_RUN_FILES_H

#include <jansson.h>
#include "results/journal.h"

enum { KVG_PATH_MAX = 1024 };

struct kvg_run_files {
    char h5[KVG_PATH_MAX], journal_path[KVG_PATH_MAX];
    char suite
        [64]; /* part of a name that was chosen here, to choose another when it is taken; "" with --out */
    struct kvg_journal *journal;
    const char *benchmark_path; /* --benchmark_out, or NULL */
    json_t *benchmarks;         /* its future content: {"context": ..., "benchmarks": [...]}, or NULL */
};

/* Sets the names of the files. `out` ends in .h5 or .jsonl; NULL stands for RUN_DIR/UTC-SUITE.h5, a name that
 * no file has yet. */
int kvg_run_files_name(struct kvg_run_files *files, const char *out, const char *suite,
                       struct kvg_error *error);
/* A new run, before anything is measured: makes the folder, refuses files that exist, makes a file there for a
 * moment, and checks that `bytes` are free on the disk. So problems with the files cost no time. */
int kvg_run_files_try(struct kvg_run_files *files, int64_t bytes, struct kvg_error *error);
/* After kvg_run_files_try: writes the header of the journal. */
int kvg_run_files_create(struct kvg_run_files *files, const struct kvg_facts *run,
                         const struct kvg_facts *machine, struct kvg_error *error);
/* An earlier run: reads its journal into *results and opens it for appending. */
int kvg_run_files_resume(struct kvg_run_files *files, struct kvg_results *results, struct kvg_error *error);

/* Adds the report of one case, in place of earlier entries of the same case. */
int kvg_run_files_add_benchmark(struct kvg_run_files *files, const char *report, struct kvg_error *error);

/* Closes the journal, makes the HDF5 file from it and writes the merged JSON. *results receives the content
 * of the file; `complete` becomes its attribute. */
int kvg_run_files_finish(struct kvg_run_files *files, int complete, struct kvg_results *results,
                         struct kvg_error *error);

/* Closes what is open, after create or resume failed. */
void kvg_run_files_abandon(struct kvg_run_files *files);

/* Adds the facts of the run: schema, uuid, time, version, argv (as "kvgauge COMMAND OPTION...", without
 * argv[0]), suite, seed. 0, or -1 on out of memory. */
int kvg_run_facts_add(struct kvg_facts *facts, const char *command, int argc, char **argv, const char *suite,
                      uint64_t seed);

#endif
