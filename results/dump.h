/* SPDX-License-Identifier: Apache-2.0
 *
 * dump.h: arrays by name in an HDF5 file of their own, for h5py and the like. Written under a temporary name,
 * renamed when whole; plain contiguous datasets, no compression, so that gigabytes take seconds.
 */
#ifndef KVG_RESULTS_DUMP_H
#define KVG_RESULTS_DUMP_H

#include <stdint.h>
#include "error.h"

struct kvg_dump;

enum kvg_dump_type { KVG_DUMP_U8, KVG_DUMP_U16, KVG_DUMP_I32, KVG_DUMP_I64, KVG_DUMP_F32, KVG_DUMP_F64 };

/* NULL with the error. */
struct kvg_dump *kvg_dump_create(const char *path, struct kvg_error *error);
/* Dataset "group/name" of up to 4 dimensions (rank 0: nothing is written); `what` becomes its attribute
 * long_name. A failure is kept until kvg_dump_close. data NULL: the dataset is left out. */
void kvg_dump_array(struct kvg_dump *dump, const char *name, const char *what, enum kvg_dump_type type,
                    int rank, const int64_t *shape, const void *data);
/* Attributes of the file. */
void kvg_dump_text(struct kvg_dump *dump, const char *name, const char *text);
void kvg_dump_number(struct kvg_dump *dump, const char *name, double number);
/* Puts the file in place and frees the dump. -1 with the error: nothing is left behind then. */
int kvg_dump_close(struct kvg_dump *dump, struct kvg_error *error);

#endif
