/* SPDX-License-Identifier: Apache-2.0
 *
 * file.h: result files: HDF5, one file per run, with the layout that SCHEMA.md describes.
 *
 * A file is written under a temporary name in the same folder, flushed to disk and renamed. So the target
 * name always holds either the complete old file or the complete new one.
 */
#ifndef KVG_RESULTS_FILE_H
#define KVG_RESULTS_FILE_H

#include <stdio.h>
#include "journal.h"

int kvg_file_write(const char *path, const struct kvg_results *results, struct kvg_error *error);
/* Exit code in the error: 3 when the file cannot be opened or read, 4 when its content is wrong. On failure
 * *results is empty. */
int kvg_file_read(const char *path, struct kvg_results *results, struct kvg_error *error);
/* Reads a result file or a journal. The first bytes of the file decide which one it is. */
int kvg_results_read(const char *path, struct kvg_results *results, struct kvg_error *error);

/* Writes all rows with the chosen columns (NULL: all columns). Implemented in export.c. */
/* CSV_SAFE: CSV for a spreadsheet. A text cell that begins with = + - @, which a spreadsheet takes for a
 * formula, gets a leading apostrophe. */
enum kvg_export { KVG_EXPORT_CSV, KVG_EXPORT_JSON, KVG_EXPORT_MARKDOWN, KVG_EXPORT_CSV_SAFE };
int kvg_results_export(FILE *out, const struct kvg_results *results, enum kvg_export format,
                       const struct kvg_column *const *columns, int64_t n_columns, struct kvg_error *error);

#endif
