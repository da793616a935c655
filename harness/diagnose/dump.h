/* SPDX-License-Identifier: Apache-2.0
 *
 * dump.h: a case that failed, as an HDF5 file: the inputs as the kernel got them, its output, and the
 * reference with its bounds. results/SCHEMA.md lists the datasets.
 */
#ifndef KVG_HARNESS_DIAGNOSE_DUMP_H
#define KVG_HARNESS_DIAGNOSE_DUMP_H

#include "failure.h"

/* The file for a row: `to` itself where it ends in .h5, else CASE_ID.h5 in the folder `to`, which is created
 * if it does not exist. 0, or -1 with the error. */
int kvg_dump_name(const char *to, const char *case_id, char *path, size_t size, struct kvg_error *error);

/* reason: column `reason` of the row. 0, or -1 with the error. */
int kvg_dump_attention(const char *path, const struct kvg_failure *f, const char *reason,
                       struct kvg_error *error);
int kvg_dump_store(const char *path, const struct kvg_prepared *p, const char *kernel, const void *k_cache,
                   const void *v_cache, enum kvg_run_kind run, const char *reason, struct kvg_error *error);

#endif
