/* SPDX-License-Identifier: Apache-2.0
 *
 * journal.h: the record of a run that survives a crash.
 *
 * A journal holds one JSON object a line. The first line is the header (schema, run uuid, argv, machine).
 * Each further line is a row, which is on disk (fsync) before the next case starts. A last line without its
 * newline, which a kill -9 in the middle of a write leaves, is dropped on reading. Any other bad line is an
 * error that names the file and the line.
 */
#ifndef KVG_RESULTS_JOURNAL_H
#define KVG_RESULTS_JOURNAL_H

#include <stdio.h>
#include "results.h"

struct kvg_journal; /* open for appending, and locked against a second writer */

/* Creates `path`, which must not exist, and writes the header. NULL with the error. */
struct kvg_journal *kvg_journal_create(const char *path, const struct kvg_facts *run,
                                       const struct kvg_facts *machine, struct kvg_error *error);
/* Opens an existing journal for appending. An incomplete last line is cut off first. NULL with the error. */
struct kvg_journal *kvg_journal_append(const char *path, struct kvg_error *error);
int kvg_journal_write(struct kvg_journal *journal, const struct kvg_row *row, struct kvg_error *error);
int kvg_journal_close(struct kvg_journal *journal, struct kvg_error *error); /* NULL: nothing happens */
/* Fills *results; on failure it is empty. */
int kvg_journal_read(const char *path, struct kvg_results *results, struct kvg_error *error);
/* The same from an open stream, which stays open; `name` is for messages. */
int kvg_journal_read_stream(FILE *file, const char *name, struct kvg_results *results,
                            struct kvg_error *error);

#endif
