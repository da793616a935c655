/* SPDX-License-Identifier: Apache-2.0
 *
 * run_files.h: the files of a run: RUN.h5, its journal RUN.jsonl beside it, and Google Benchmark's JSON.
 */
#ifndef KVG_HARNESS_RUN_FILES_H
#define KVG_HARNESS_RUN_FILES_H

#include <jansson.h>
#include "results/journal.h"

enum { KVG_PATH_MAX = 1024 };

struct kvg_run_files {
    char h5[KVG_PATH_MAX], journal_path[KVG_PATH_MAX];
    char suite[64]; /* of a name that was chosen here: another is chosen when it is taken; "" otherwise */
    struct kvg_journal *journal;
    const char *benchmark_path; /* --benchmark_out, or NULL */
    json_t *benchmarks;         /* what it will hold: {"context": ..., "benchmarks": [...]}, or NULL */
};

/* Names the files. `out` (NULL: RUN_DIR/UTC-SUITE.h5, a name not taken yet) may end in .h5 or .jsonl. */
int kvg_run_files_name(struct kvg_run_files *files, const char *out, const char *suite,
                       struct kvg_error *error);
/* A new run: makes the folder, refuses files that exist, looks for `bytes` of free space, writes the
 * journal's header. All that can go wrong with the files shows here, before the first case. */
int kvg_run_files_create(struct kvg_run_files *files, const struct kvg_facts *run,
                         const struct kvg_facts *machine, int64_t bytes, struct kvg_error *error);
/* An earlier run: reads its journal into *results and opens it for appending. */
int kvg_run_files_resume(struct kvg_run_files *files, struct kvg_results *results, struct kvg_error *error);

/* Adds the report of one case; an earlier entry of the same name goes. */
int kvg_run_files_benchmark(struct kvg_run_files *files, const char *report, struct kvg_error *error);

/* Closes the journal, builds the HDF5 file from it, writes the merged JSON; *results receives what the file
 * holds. `complete` becomes the attribute. */
int kvg_run_files_finish(struct kvg_run_files *files, int complete, struct kvg_results *results,
                         struct kvg_error *error);

/* Lets go of what was opened, after create or resume failed. */
void kvg_run_files_abandon(struct kvg_run_files *files);

/* Facts of the run that the harness knows: schema, uuid, time, version, argv ("kvgauge run OPTION...";
 * argv[0] is left out), suite, seed. */
int kvg_run_facts(struct kvg_facts *facts, int argc, char **argv, const char *suite, uint64_t seed);

#endif
