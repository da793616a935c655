/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.h: names and helpers that the HDF5 writer and reader share. Private to results/.
 */
#ifndef KVG_RESULTS_LAYOUT_H
#define KVG_RESULTS_LAYOUT_H

#include <hdf5.h>
#include "file.h"

#define KVG_GROUP_RESULTS "results"
#define KVG_GROUP_MACHINE "machine"
#define KVG_GROUP_TABLES "tables"
#define KVG_TABLE_SUMMARY "summary"
#define KVG_CHUNK_ROWS 256       /* rows a chunk of a column */
#define KVG_CHUNK_SAMPLE_ROWS 64 /* rows a chunk of time_samples */
#define KVG_GZIP_LEVEL 4

/* The library prints its error stack on stderr unless told otherwise. Quiet while we work, as before after.
 */
struct kvg_hdf5_quiet {
    H5E_auto2_t function;
    void *data;
};
static inline void kvg_hdf5_quiet_begin(struct kvg_hdf5_quiet *quiet)
{
    H5Eget_auto2(H5E_DEFAULT, &quiet->function, &quiet->data);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}
static inline void kvg_hdf5_quiet_end(const struct kvg_hdf5_quiet *quiet)
{
    H5Eset_auto2(H5E_DEFAULT, quiet->function, quiet->data);
}

/* Variable-length UTF-8 string type, to be closed by the caller; negative on failure. */
static inline hid_t kvg_hdf5_string_type(void)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && (H5Tset_size(type, H5T_VARIABLE) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

#endif
