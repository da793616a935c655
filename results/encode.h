/* SPDX-License-Identifier: Apache-2.0
 *
 * encode.h: rows and facts as JSON. Private to results/; journal.c and export.c share it.
 *
 * Floats are written with 17 significant digits, so that they come back as the same bits; NaN and the
 * infinities, which JSON lacks, are the strings "NaN", "Infinity" and "-Infinity".
 */
#ifndef KVG_RESULTS_ENCODE_H
#define KVG_RESULTS_ENCODE_H

#include <jansson.h>
#include <stdio.h>
#include "journal.h"

/* The first line of a journal: {"kvgauge_journal": 1, "run": {...}, "machine": {...}}. */
#define KVG_JOURNAL_FORMAT 1
char *kvg_header_to_json(const struct kvg_facts *run,
                         const struct kvg_facts *machine); /* malloc'ed, NULL: oom */
/* Both facts must be empty before; on failure they hold what was read so far, to be freed. */
int kvg_header_from_json(const char *line, size_t length, struct kvg_facts *run, struct kvg_facts *machine,
                         struct kvg_error *error);

/* kvg_row_from_json for text that may hold a NUL byte (which is an error, not an end). */
int kvg_row_from_json_bytes(const char *line, size_t length, struct kvg_row *row, struct kvg_error *error);

/* kvg_journal_read of an open stream, which stays open; `name` is for messages. */
int kvg_journal_read_stream(FILE *file, const char *name, struct kvg_results *results,
                            struct kvg_error *error);

json_t *kvg_json_number(double value);                 /* new reference, NULL: oom */
json_t *kvg_json_facts(const struct kvg_facts *facts); /* likewise */

/* Refuses anything but our schema at a major version we know; `path` is for the message. */
int kvg_schema_check(const char *path, const struct kvg_facts *run, struct kvg_error *error);

#endif
