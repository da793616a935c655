/* SPDX-License-Identifier: Apache-2.0
 *
 * encode.h: rows and facts as JSON. Private to results/.
 *
 * Floats are written with 17 significant digits, so that they come back as the same bits. JSON has no NaN and
 * no infinities: they are the strings "NaN", "Infinity" and "-Infinity".
 */
#ifndef KVG_RESULTS_ENCODE_H
#define KVG_RESULTS_ENCODE_H

#include <jansson.h>
#include "facts.h"
#include "row.h"

/* The first line of a journal: {"kvgauge_journal": 1, "run": {...}, "machine": {...}}. malloc'ed; NULL on out
 * of memory. */
#define KVG_JOURNAL_FORMAT 1
char *kvg_header_to_json(const struct kvg_facts *run, const struct kvg_facts *machine);
/* `run` and `machine` must be empty before. On failure they hold what was read so far; the caller frees
 * it. */
int kvg_header_from_json(const char *line, size_t length, struct kvg_facts *run, struct kvg_facts *machine,
                         struct kvg_error *error);

/* Like kvg_row_from_json, for text that may hold a NUL byte: that byte is an error, not the end of the
 * text. */
int kvg_row_from_json_bytes(const char *line, size_t length, struct kvg_row *row, struct kvg_error *error);

/* New references; NULL on out of memory. */
json_t *kvg_json_number(double value);
json_t *kvg_json_facts(const struct kvg_facts *facts);
/* What kvg_json_number wrote; -1 for any other value, and *out is unchanged then. */
int kvg_json_to_number(const json_t *value, double *out);

#endif
