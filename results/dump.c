/* SPDX-License-Identifier: Apache-2.0
 *
 * dump.c: see dump.h.
 */
#include "dump.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "disk.h"
#include "layout.h"

enum { MAX_RANK = 4 };

struct kvg_dump {
    hid_t file, text;
    char path[PATH_MAX], temporary[PATH_MAX];
    char failed[256]; /* first name that could not be written; "" for none */
};

static void note_failure(struct kvg_dump *d, const char *name)
{
    if (!d->failed[0])
        snprintf(d->failed, sizeof d->failed, "%s", name);
}

struct kvg_dump *kvg_dump_create(const char *path, struct kvg_error *error)
{
    struct kvg_hdf5_quiet quiet;
    struct kvg_dump *d = calloc(1, sizeof *d);
    if (!d) {
        kvg_fail(error, KVG_EXIT_TROUBLE, "%s: out of memory", path);
        return NULL;
    }
    if (snprintf(d->path, sizeof d->path, "%s", path) >= (int)sizeof d->path ||
        snprintf(d->temporary, sizeof d->temporary, "%s.%ld.tmp", path, (long)getpid()) >=
            (int)sizeof d->temporary) {
        free(d);
        kvg_fail(error, KVG_EXIT_TROUBLE, "%.200s...: name too long", path);
        return NULL;
    }
    /* open gives the reason of a failure in errno; HDF5 does not. */
    FILE *probe = kvg_create_file(d->temporary);
    if (!probe) {
        kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot create: %s", path, strerror(errno));
        free(d);
        return NULL;
    }
    fclose(probe);
    kvg_hdf5_quiet_begin(&quiet);
    d->file = H5Fcreate(d->temporary, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    d->text = kvg_hdf5_string_type();
    kvg_hdf5_quiet_end(&quiet);
    if (d->file < 0 || d->text < 0)
        note_failure(d, "the file itself");
    return d;
}

void kvg_dump_text(struct kvg_dump *d, const char *name, const char *text)
{
    struct kvg_hdf5_quiet quiet;
    kvg_hdf5_quiet_begin(&quiet);
    if (d->file >= 0 && kvg_hdf5_put_scalar(d->file, name, d->text, &text))
        note_failure(d, name);
    kvg_hdf5_quiet_end(&quiet);
}

void kvg_dump_number(struct kvg_dump *d, const char *name, double number)
{
    struct kvg_hdf5_quiet quiet;
    kvg_hdf5_quiet_begin(&quiet);
    if (d->file >= 0 && kvg_hdf5_put_number(d->file, name, number))
        note_failure(d, name);
    kvg_hdf5_quiet_end(&quiet);
}

void kvg_dump_array(struct kvg_dump *d, const char *name, const char *what, enum kvg_dump_type type, int rank,
                    const int64_t *shape, const void *data)
{
    const hid_t types[] = {[KVG_DUMP_U8] = H5T_NATIVE_UINT8,  [KVG_DUMP_U16] = H5T_NATIVE_UINT16,
                           [KVG_DUMP_I32] = H5T_NATIVE_INT32, [KVG_DUMP_I64] = H5T_NATIVE_INT64,
                           [KVG_DUMP_F32] = H5T_NATIVE_FLOAT, [KVG_DUMP_F64] = H5T_NATIVE_DOUBLE};
    struct kvg_hdf5_quiet quiet;
    hsize_t extent[MAX_RANK];
    int empty = 0;
    if (!data || rank < 1 || rank > MAX_RANK || d->file < 0)
        return;
    for (int i = 0; i < rank; i++) {
        extent[i] = (hsize_t)shape[i];
        empty |= shape[i] == 0;
    }
    kvg_hdf5_quiet_begin(&quiet);
    const hid_t links = H5Pcreate(H5P_LINK_CREATE), space = H5Screate_simple(rank, extent, NULL);
    hid_t set = H5I_INVALID_HID;
    if (links >= 0 && space >= 0 && H5Pset_create_intermediate_group(links, 1) >= 0)
        set = H5Dcreate2(d->file, name, types[type], space, links, H5P_DEFAULT, H5P_DEFAULT);
    if (set < 0 || (!empty && H5Dwrite(set, types[type], H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0))
        note_failure(d, name);
    else if (kvg_hdf5_put_scalar(set, "long_name", d->text, &what))
        note_failure(d, "long_name");
    kvg_hdf5_quiet_end(&quiet);
    if (set >= 0)
        H5Dclose(set);
    if (space >= 0)
        H5Sclose(space);
    if (links >= 0)
        H5Pclose(links);
}

int kvg_dump_close(struct kvg_dump *d, struct kvg_error *error)
{
    struct kvg_hdf5_quiet quiet;
    int failed = 0;
    kvg_hdf5_quiet_begin(&quiet);
    if (d->file >= 0 && H5Fclose(d->file) < 0)
        note_failure(d, "the end of the file");
    if (d->text >= 0)
        H5Tclose(d->text);
    kvg_hdf5_quiet_end(&quiet);
    if (d->failed[0])
        failed =
            kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot write %s; is the disk full?", d->path, d->failed);
    else if (rename(d->temporary, d->path))
        failed = kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot rename the finished file to this name: %s",
                          d->path, strerror(errno));
    if (failed)
        unlink(d->temporary);
    free(d);
    return failed;
}
