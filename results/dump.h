/* SPDX-License-Identifier: Apache-2.0
 *
 * dump.h: an HDF5 file of named arrays and attributes, for h5py and similar readers. It is written under a
 * temporary name and renamed when it is complete. Datasets are contiguous and not compressed, so that
 * gigabytes take seconds.
 */
#ifndef KVG_RESULTS_DUMP_H
#define KVG_RESULTS_DUMP_H

#include <stdint.h>
#include "error.h"

struct kvg_dump;

enum kvg_dump_type { KVG_DUMP_U8, KVG_DUMP_U16, KVG_DUMP_I32, KVG_DUMP_I64, KVG_DUMP_F32, KVG_DUMP_F64 };

/* Returns NULL with the error on failure. */
struct kvg_dump *kvg_dump_create(const char *path, struct kvg_error *error);
/* Writes a dataset "group/name" of 1 to 4 dimensions; `what` is its attribute long_name. With another rank,
 * or with data NULL, nothing is written. kvg_dump_close reports a failure. */
void kvg_dump_array(struct kvg_dump *dump, const char *name, const char *what, enum kvg_dump_type type,
                    int rank, const int64_t *shape, const void *data);
/* Write an attribute of the file. kvg_dump_close reports a failure. */
void kvg_dump_text(struct kvg_dump *dump, const char *name, const char *text);
void kvg_dump_number(struct kvg_dump *dump, const char *name, double number);
/* Renames the file to its own name and frees the dump. On failure (-1 with the error) no file is left. */
int kvg_dump_close(struct kvg_dump *dump, struct kvg_error *error);

#endif
