/* SPDX-License-Identifier: Apache-2.0
 *
 * file.h: result files. HDF5, one file per run, layout in SCHEMA.md.
 *
 * Written whole under a temporary name in the same folder, flushed, and renamed: an existing file is either
 * the old one or the new one, never half of either.
 */
#ifndef KVG_RESULTS_FILE_H
#define KVG_RESULTS_FILE_H

#include <stdio.h>
#include "error.h"
#include "journal.h"

#define KVG_SCHEMA_NAME "kvgauge"
#define KVG_SCHEMA_VERSION "1.4.0" /* semver: a reader refuses a newer major version */

int kvg_file_write(const char *path, const struct kvg_results *results, struct kvg_error *error);
/* Exit code in the error: 3 when the system refuses (missing, unreadable), 4 when the content is not right.
 */
int kvg_file_read(const char *path, struct kvg_results *results, struct kvg_error *error);
/* Either a result file or a journal, told apart by the first bytes. */
int kvg_results_read(const char *path, struct kvg_results *results, struct kvg_error *error);

/* Exports of a whole file or of chosen columns (NULL = all). */
enum kvg_export { KVG_EXPORT_CSV, KVG_EXPORT_JSON, KVG_EXPORT_MARKDOWN };
int kvg_export(FILE *out, const struct kvg_results *results, enum kvg_export format,
               const struct kvg_column *const *columns, int64_t n_columns, struct kvg_error *error);

#endif
