/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.h: names in a result file, and the HDF5 helpers that its writer, its reader and the dumps share.
 * Private to results/.
 */
#ifndef KVG_RESULTS_LAYOUT_H
#define KVG_RESULTS_LAYOUT_H

#include <hdf5.h>

#define KVG_GROUP_RESULTS "results"
#define KVG_GROUP_MACHINE "machine"
#define KVG_GROUP_TABLES "tables"
#define KVG_TABLE_SUMMARY "summary"
#define KVG_CHUNK_ROWS 256       /* most rows per chunk of a column */
#define KVG_CHUNK_SAMPLE_ROWS 64 /* most rows per chunk of time_samples */
#define KVG_INDEX_HALF 4 /* half the chunks in a node of a dataset's index; with HDF5's 32 it takes 2 kB */
#define KVG_GZIP_LEVEL 4

/* HDF5 prints its error stack on stderr unless it is told not to. Between begin and end it prints nothing;
 * end restores the setting that begin found. */
struct kvg_hdf5_quiet {
    H5E_auto2_t function;
    void *data;
};
void kvg_hdf5_quiet_begin(struct kvg_hdf5_quiet *quiet);
void kvg_hdf5_quiet_end(const struct kvg_hdf5_quiet *quiet);

/* Variable-length UTF-8 string type, to be closed by the caller; negative on failure. */
hid_t kvg_hdf5_string_type(void);

/* Attributes of an object. 0, or -1 on failure. */
int kvg_hdf5_put_attribute(hid_t object, const char *name, hid_t type, hid_t space, const void *data);
int kvg_hdf5_put_scalar(hid_t object, const char *name, hid_t type, const void *data);
/* A whole number is stored as int64, so that `seed` reads as 1 and not as 1.0; any other number, and -0.0, as
 * double. */
int kvg_hdf5_put_number(hid_t object, const char *name, double number);

#endif
