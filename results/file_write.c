/* SPDX-License-Identifier: Apache-2.0
 *
 * file_write.c: build a result file in memory and put it in place in one step.
 *
 * HDF5's core driver builds the whole file in memory, so that HDF5 never meets a full disk or a read-only
 * folder: then it has open files that it cannot close, and prints error stacks at exit. The bytes are written
 * to a temporary name in the same folder, flushed to disk (fsync) and renamed to the target.
 *
 * The following keeps the file readable for other tools (SCHEMA.md):
 *   no fixed-length strings: netCDF-C crashes on them
 *   no enums and no compounds in /results: other tools do not show them or refuse them
 *   dimension scales on every dataset
 *   units that xarray does not decode to time differences
 *   the default file format of HDF5
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <hdf5_hl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "disk.h"
#include "file.h"
#include "layout.h"

#define CORE_INCREMENT ((size_t)1 << 20)

/* Handles that are used throughout; closed together. */
struct writer {
    hid_t file, group, text;       /* text: variable-length UTF-8 */
    hid_t row_scale, sample_scale; /* dimension scales */
    const struct kvg_results *results;
};

/* ---------------------------------------------------------------- attributes */

static int put_text(const struct writer *w, hid_t object, const char *name, const char *text)
{
    return kvg_hdf5_put_scalar(object, name, w->text, &text);
}

static int put_facts(const struct writer *w, hid_t object, const struct kvg_facts *facts)
{
    for (int64_t i = 0; i < facts->count; i++) {
        const struct kvg_fact *fact = &facts->facts[i];
        if (fact->text ? put_text(w, object, fact->name, fact->text)
                       : kvg_hdf5_put_number(object, fact->name, fact->number))
            return -1;
    }
    return 0;
}

/* ---------------------------------------------------------------- datasets of /results */

static hid_t creation_list(int rank, const hsize_t *chunk, int compress)
{
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    int failed = list < 0 || H5Pset_chunk(list, rank, chunk) < 0 || H5Pset_obj_track_times(list, 0) < 0 ||
                 H5Pset_attr_creation_order(list, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED) < 0;
    /* No filters on variable-length text: they would only see references, and netCDF-C refuses the
     * combination. */
    if (!failed && compress)
        failed = H5Pset_shuffle(list) < 0 || H5Pset_deflate(list, KVG_GZIP_LEVEL) < 0;
    if (failed && list >= 0)
        H5Pclose(list);
    return failed ? H5I_INVALID_HID : list;
}

/* A chunk is stored whole. So a short file has chunks of as many rows as it has. */
static hsize_t chunk_rows(hsize_t rows, hsize_t most)
{
    return rows == 0 ? 1 : rows < most ? rows : most;
}

/* Creates and writes one dataset with its units and long_name; the caller closes it. Negative on failure. */
static hid_t put_dataset(const struct writer *w, const char *name, int rank, hid_t file_type,
                         hid_t memory_type, const void *data, const char *units, const char *long_name)
{
    hsize_t rows = (hsize_t)w->results->count;
    hsize_t extent[2] = {rows, KVG_MAX_SAMPLES}, most[2] = {H5S_UNLIMITED, KVG_MAX_SAMPLES};
    hsize_t chunk[2] = {chunk_rows(rows, rank == 2 ? KVG_CHUNK_SAMPLE_ROWS : KVG_CHUNK_ROWS),
                        KVG_MAX_SAMPLES};
    hid_t space = H5Screate_simple(rank, extent, most);
    hid_t list = creation_list(rank, chunk, H5Tis_variable_str(file_type) <= 0);
    hid_t set = H5I_INVALID_HID;
    if (space >= 0 && list >= 0)
        set = H5Dcreate2(w->group, name, file_type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    int failed = set < 0 ||
                 (rows > 0 && H5Dwrite(set, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0) ||
                 (*units && put_text(w, set, "units", units)) || put_text(w, set, "long_name", long_name);
    if (space >= 0)
        H5Sclose(space);
    if (list >= 0)
        H5Pclose(list);
    if (failed && set >= 0)
        H5Dclose(set);
    return failed ? H5I_INVALID_HID : set;
}

static int put_scales(struct writer *w)
{
    int64_t n = w->results->count > KVG_MAX_SAMPLES ? w->results->count : KVG_MAX_SAMPLES;
    int32_t *index = malloc((size_t)n * sizeof(*index));
    if (!index)
        return -1;
    for (int64_t i = 0; i < n; i++)
        index[i] = (int32_t)i;
    w->row_scale = put_dataset(w, "row", 1, H5T_STD_I32LE, H5T_NATIVE_INT32, index, "1", "row of the table");
    hsize_t samples = KVG_MAX_SAMPLES;
    hid_t space = H5Screate_simple(1, &samples, NULL);
    w->sample_scale =
        H5Dcreate2(w->group, "sample", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    int failed = w->row_scale < 0 || w->sample_scale < 0 ||
                 H5Dwrite(w->sample_scale, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, index) < 0 ||
                 put_text(w, w->sample_scale, "units", "1") ||
                 put_text(w, w->sample_scale, "long_name", "number of the sample within its row") ||
                 H5DSset_scale(w->row_scale, "row") < 0 || H5DSset_scale(w->sample_scale, "sample") < 0;
    if (space >= 0)
        H5Sclose(space);
    free(index);
    return failed ? -1 : 0;
}

/* The CF convention for coded values: xarray keeps the attributes, and viewers show the names. */
static int describe_status(const struct writer *w, hid_t set)
{
    int8_t values[KVG_STATUS_COUNT];
    char meanings[256] = "";
    for (int i = 0; i < KVG_STATUS_COUNT; i++) {
        values[i] = (int8_t)i;
        size_t used = strlen(meanings);
        snprintf(meanings + used, sizeof(meanings) - used, "%s%s", i ? " " : "",
                 kvg_status_name((enum kvg_status)i));
    }
    hsize_t n = KVG_STATUS_COUNT;
    hid_t space = H5Screate_simple(1, &n, NULL);
    int failed = space < 0 || kvg_hdf5_put_attribute(set, "flag_values", H5T_NATIVE_INT8, space, values) ||
                 put_text(w, set, "flag_meanings", meanings);
    if (space >= 0)
        H5Sclose(space);
    return failed ? -1 : 0;
}

/* Writes one column of all rows, gathered into `buffer` (8 bytes per row). */
static int put_column(const struct writer *w, const struct kvg_column *column, void *buffer)
{
    static_assert(sizeof(char *) == 8 && sizeof(double) == 8, "a column's element has 8 bytes");
    for (int64_t i = 0; i < w->results->count; i++)
        memcpy((char *)buffer + 8 * i, (const char *)&w->results->rows[i] + column->offset, 8);
    int is_status = column->offset == offsetof(struct kvg_row, status);
    hid_t file_type = w->text, memory_type = w->text;
    if (column->type == KVG_COLUMN_INT) {
        file_type = is_status ? H5T_STD_I8LE : H5T_STD_I64LE;
        memory_type = H5T_NATIVE_INT64;
    } else if (column->type == KVG_COLUMN_FLOAT) {
        file_type = H5T_IEEE_F64LE;
        memory_type = H5T_NATIVE_DOUBLE;
    }
    hid_t set =
        put_dataset(w, column->name, 1, file_type, memory_type, buffer, column->units, column->long_name);
    int failed =
        set < 0 || H5DSattach_scale(set, w->row_scale, 0) < 0 || (is_status && describe_status(w, set));
    if (set >= 0)
        H5Dclose(set);
    return failed ? -1 : 0;
}

static int put_samples(const struct writer *w)
{
    size_t rows = (size_t)w->results->count;
    float *samples = malloc((rows ? rows : 1) * KVG_MAX_SAMPLES * sizeof(float));
    if (!samples)
        return -1;
    for (size_t i = 0; i < rows; i++) {
        const struct kvg_row *row = &w->results->rows[i];
        for (int64_t s = 0; s < KVG_MAX_SAMPLES; s++)
            samples[i * KVG_MAX_SAMPLES + (size_t)s] =
                row->time_samples && s < row->n_samples_kept ? row->time_samples[s] : NAN;
    }
    hid_t set = put_dataset(w, "time_samples", 2, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, samples, "s",
                            "times of single calls, in the order taken; NaN after the last");
    int failed = set < 0 || H5DSattach_scale(set, w->row_scale, 0) < 0 ||
                 H5DSattach_scale(set, w->sample_scale, 1) < 0;
    if (set >= 0)
        H5Dclose(set);
    free(samples);
    return failed ? -1 : 0;
}

static int put_results(struct writer *w, void *buffer)
{
    if (put_scales(w))
        return -1;
    for (int64_t i = 0; i < kvg_columns_count; i++)
        if (put_column(w, &kvg_columns[i], buffer))
            return -1;
    /* For NeXus viewers, which then plot the median times without knowing the schema. */
    return put_samples(w) || put_text(w, w->group, "NX_class", "NXdata") ||
           put_text(w, w->group, "signal", "time_median") || put_text(w, w->group, "axes", "row");
}

/* ---------------------------------------------------------------- /tables/summary */

/* Writes all columns a second time as one compound table, for h5dump, HDFView and DataFrame.from_records. The
 * table has a group of its own, because h5netcdf refuses a group with a table that has no dimension scale. */
static int put_table(const struct writer *w, hid_t group)
{
    size_t n = (size_t)kvg_columns_count, rows = (size_t)w->results->count;
    const char **names = calloc(n, sizeof(*names));
    size_t *offsets = calloc(n, sizeof(*offsets));
    hid_t *types = calloc(n, sizeof(*types));
    char *records = malloc((rows ? rows : 1) * n * 8);
    int failed = !names || !offsets || !types || !records;
    for (size_t c = 0; !failed && c < n; c++) {
        const struct kvg_column *column = &kvg_columns[c];
        names[c] = column->name;
        offsets[c] = 8 * c;
        types[c] = column->type == KVG_COLUMN_STRING ? w->text
                   : column->type == KVG_COLUMN_INT  ? H5T_NATIVE_INT64
                                                     : H5T_NATIVE_DOUBLE;
        for (size_t r = 0; r < rows; r++)
            memcpy(records + (r * n + c) * 8, (const char *)&w->results->rows[r] + column->offset, 8);
    }
    if (!failed)
        failed = H5TBmake_table("kvgauge results", group, KVG_TABLE_SUMMARY, n, rows, n * 8, names, offsets,
                                types, chunk_rows(rows, KVG_CHUNK_ROWS), NULL, 1, records) < 0;
    free(names);
    free(offsets);
    free(types);
    free(records);
    return failed ? -1 : 0;
}

/* ---------------------------------------------------------------- the image */

static hid_t create_group(hid_t file, const char *name)
{
    hid_t list = H5Pcreate(H5P_GROUP_CREATE);
    unsigned order = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
    hid_t group = H5I_INVALID_HID;
    if (list >= 0 && H5Pset_link_creation_order(list, order) >= 0 &&
        H5Pset_attr_creation_order(list, order) >= 0)
        group = H5Gcreate2(file, name, H5P_DEFAULT, list, H5P_DEFAULT);
    if (list >= 0)
        H5Pclose(list);
    return group;
}

static hid_t create_file(void)
{
    hid_t creation = H5Pcreate(H5P_FILE_CREATE), access = H5Pcreate(H5P_FILE_ACCESS);
    unsigned order = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
    hid_t file = H5I_INVALID_HID;
    if (creation >= 0 && access >= 0 && H5Pset_link_creation_order(creation, order) >= 0 &&
        H5Pset_attr_creation_order(creation, order) >= 0 && H5Pset_istore_k(creation, KVG_INDEX_HALF) >= 0 &&
        H5Pset_fapl_core(access, CORE_INCREMENT, 0) >= 0)
        file = H5Fcreate("kvgauge-image", H5F_ACC_TRUNC, creation, access);
    if (creation >= 0)
        H5Pclose(creation);
    if (access >= 0)
        H5Pclose(access);
    return file;
}

static int put_everything(struct writer *w)
{
    const struct kvg_results *results = w->results;
    void *buffer = malloc((size_t)(results->count ? results->count : 1) * 8);
    int failed = !buffer || put_facts(w, w->file, &results->run) ||
                 put_text(w, w->file, "NX_class", "NXroot") ||
                 put_text(w, w->file, "default", KVG_GROUP_RESULTS);
    w->group = failed ? H5I_INVALID_HID : create_group(w->file, KVG_GROUP_RESULTS);
    failed = failed || w->group < 0 || put_results(w, buffer);
    free(buffer);
    hid_t machine = failed ? H5I_INVALID_HID : create_group(w->file, KVG_GROUP_MACHINE);
    failed = failed || machine < 0 || put_facts(w, machine, &results->machine);
    hid_t tables = failed ? H5I_INVALID_HID : create_group(w->file, KVG_GROUP_TABLES);
    failed = failed || tables < 0 || put_table(w, tables);
    if (machine >= 0)
        H5Gclose(machine);
    if (tables >= 0)
        H5Gclose(tables);
    return failed ? -1 : 0;
}

/* The bytes of the file, malloc'ed; NULL if HDF5 failed or memory ran out. */
static void *build_image(const struct kvg_results *results, size_t *size)
{
    struct writer w = {.file = create_file(),
                       .group = H5I_INVALID_HID,
                       .text = kvg_hdf5_string_type(),
                       .row_scale = H5I_INVALID_HID,
                       .sample_scale = H5I_INVALID_HID,
                       .results = results};
    int failed = w.file < 0 || w.text < 0 || put_everything(&w);
    if (w.row_scale >= 0)
        H5Dclose(w.row_scale);
    if (w.sample_scale >= 0)
        H5Dclose(w.sample_scale);
    if (w.group >= 0)
        H5Gclose(w.group);
    if (w.text >= 0)
        H5Tclose(w.text);
    void *image = NULL;
    ssize_t length =
        failed || H5Fflush(w.file, H5F_SCOPE_GLOBAL) < 0 ? -1 : H5Fget_file_image(w.file, NULL, 0);
    if (length > 0 && (image = malloc((size_t)length)) != NULL) {
        *size = (size_t)length;
        if (H5Fget_file_image(w.file, image, *size) != length) {
            free(image);
            image = NULL;
        }
    }
    if (w.file >= 0)
        H5Fclose(w.file);
    return image;
}

/* ---------------------------------------------------------------- the disk */

static int put_in_place(const char *path, const void *image, size_t size, struct kvg_error *error)
{
    char temporary[PATH_MAX];
    if (snprintf(temporary, sizeof(temporary), "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof(temporary))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%.200s...: name too long", path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot create it: %s", temporary, strerror(errno));
    const char *step = NULL;
    int why = 0;
    if (kvg_write_whole(fd, image, size) || fsync(fd)) {
        why = errno;
        step = "cannot write";
    }
    if (close(fd) && !step) {
        why = errno;
        step = "cannot close";
    }
    if (!step && rename(temporary, path)) {
        why = errno;
        step = "cannot rename the finished file to this name";
    }
    if (step) {
        unlink(temporary);
        return kvg_fail(error, KVG_EXIT_TROUBLE,
                        "%s: %s: %s (%zu bytes needed); the old file, if any, is unchanged", path, step,
                        strerror(why), size);
    }
    kvg_sync_folder_of(path);
    return 0;
}

/* The name of the file to replace. A link is followed, so that its target is replaced and the link stays.
 * Devices, pipes and folders are refused, because a rename would replace them. */
static int check_target(const char *path, char target[PATH_MAX], struct kvg_error *error)
{
    struct stat info;
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode))
            return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: is a folder; name a file", path);
        if (!S_ISREG(info.st_mode))
            return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: is not a regular file; HDF5 needs one", path);
        if (!realpath(path, target))
            return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: %s", path, strerror(errno));
        return 0;
    }
    if (snprintf(target, PATH_MAX, "%s", path) >= PATH_MAX)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%.200s...: name too long", path);
    return 0;
}

int kvg_file_write(const char *path, const struct kvg_results *results, struct kvg_error *error)
{
    char target[PATH_MAX];
    if (check_target(path, target, error))
        return -1;
    if (results->count > INT32_MAX)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: %lld rows; a file holds at most %d", path,
                        (long long)results->count, INT32_MAX);
    for (int64_t i = 0; i < results->count; i++)
        if (results->rows[i].status < INT8_MIN || results->rows[i].status > INT8_MAX)
            return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: row %lld has status %lld, which is no verdict",
                            path, (long long)i, (long long)results->rows[i].status);
    struct kvg_hdf5_quiet quiet;
    size_t size = 0;
    kvg_hdf5_quiet_begin(&quiet);
    void *image = build_image(results, &size);
    kvg_hdf5_quiet_end(&quiet);
    if (!image)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: HDF5 could not build the file in memory (%lld rows)",
                        path, (long long)results->count);
    int failed = put_in_place(target, image, size, error);
    free(image);
    return failed;
}
