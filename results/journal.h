/* SPDX-License-Identifier: Apache-2.0
 *
 * journal.h: the crash-proof truth of a run.
 *
 * One JSON object a line: first the header (schema, run uuid, argv, machine), then one line per row,
 * fsynced before the next case starts. Numbers that JSON cannot hold are the strings "NaN", "Infinity",
 * "-Infinity". A torn last line (kill -9 in mid-write) is dropped on reading; any other bad line is an error
 * that names file and line. The same row encoding travels from worker to parent.
 */
#ifndef KVG_RESULTS_JOURNAL_H
#define KVG_RESULTS_JOURNAL_H

#include "error.h"
#include "row.h"

/* Facts of the run: the root attributes of the file and the attributes of /machine. Strings and numbers by
 * name, kept in order. */
struct kvg_fact {
    char *name;
    char *text;    /* NULL for a number */
    double number; /* used when text is NULL */
};
struct kvg_facts {
    struct kvg_fact *facts;
    int64_t count;
};
int kvg_facts_set_text(struct kvg_facts *facts, const char *name, const char *text);
int kvg_facts_set_number(struct kvg_facts *facts, const char *name, double number);
const struct kvg_fact *kvg_facts_find(const struct kvg_facts *facts, const char *name); /* or NULL */
void kvg_facts_free(struct kvg_facts *facts);

struct kvg_journal; /* open for appending */

/* Everything a journal or a result file holds. */
struct kvg_results {
    struct kvg_facts run;     /* schema_name, schema_version, run_uuid, created_utc, generator, git_sha,
                                 git_dirty, argv, seed, suite, complete */
    struct kvg_facts machine; /* cpu, isa, governor, memory, caches, roofs, fingerprint */
    struct kvg_row *rows;
    int64_t count;
};
void kvg_results_free(struct kvg_results *results);

/* Creates `path` (it must not exist) and writes the header. */
struct kvg_journal *kvg_journal_create(const char *path, const struct kvg_facts *run,
                                       const struct kvg_facts *machine, struct kvg_error *error);
/* Opens an existing journal for appending, after cutting a torn last line. */
struct kvg_journal *kvg_journal_append(const char *path, struct kvg_error *error);
int kvg_journal_write(struct kvg_journal *journal, const struct kvg_row *row, struct kvg_error *error);
int kvg_journal_close(struct kvg_journal *journal, struct kvg_error *error);
int kvg_journal_read(const char *path, struct kvg_results *results, struct kvg_error *error);

/* One row as a line of JSON without newline (malloc'ed, NULL on out of memory), and back. */
char *kvg_row_to_json(const struct kvg_row *row);
int kvg_row_from_json(const char *line, struct kvg_row *row, struct kvg_error *error);

#endif
