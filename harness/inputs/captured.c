/* SPDX-License-Identifier: Apache-2.0
 *
 * captured.c: reads the files that capture.py writes. A file is untrusted: kind, type and extent of every
 * object are checked before its data is read. HDF5's own error messages are switched off; each failure is
 * one sentence with the file's name.
 */
#include <errno.h>
#include <hdf5.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "results/disk.h"
#include "harness/machine/paths.h"
#include "captured.h"
#include "inputs.h"
#include "parts.h"

static const char *const tensor_name[] = {"q", "k", "v"};
static const char *const set_name[] = {"random_tokens", "calibration", "evaluation"};

static int bad_file(const char *path, const char *what, struct kvg_error *error)
{
    return kvg_fail(
        error, KVG_EXIT_USAGE,
        "%s: %s; a captured file is written by harness/inputs/capture.py (layout in its README.md)", path,
        what);
}

/* ------------------------------------------------------------------------------------------ attributes */

static int64_t attribute_count(hid_t attribute)
{
    hid_t space = H5Aget_space(attribute);
    int64_t n = space < 0 ? -1 : (int64_t)H5Sget_simple_extent_npoints(space);
    if (space >= 0)
        H5Sclose(space);
    return n;
}

/* A whole number between low and high. */
static int read_int(hid_t object, const char *path, const char *name, int64_t low, int64_t high, int64_t *out,
                    struct kvg_error *error)
{
    char what[256];
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    int ok = attribute >= 0;
    if (ok) {
        hid_t type = H5Aget_type(attribute);
        ok = type >= 0 && H5Tget_class(type) == H5T_INTEGER && attribute_count(attribute) == 1 &&
             H5Aread(attribute, H5T_NATIVE_INT64, out) >= 0;
        if (type >= 0)
            H5Tclose(type);
        H5Aclose(attribute);
    }
    if (!ok)
        snprintf(what, sizeof what, "attribute %s is missing or not a whole number", name);
    else if (*out < low || *out > high)
        snprintf(what, sizeof what, "attribute %s is %" PRId64 ", not %" PRId64 " to %" PRId64, name, *out,
                 low, high);
    else
        return 0;
    return bad_file(path, what, error);
}

static int read_variable_string(hid_t attribute, hid_t type, char *out, size_t size)
{
    char *text = NULL;
    if (H5Aread(attribute, type, &text) < 0 || !text)
        return -1;
    snprintf(out, size, "%s", text);
    H5free_memory(text);
    return 0;
}

static int read_fixed_string(hid_t attribute, hid_t type, char *out, size_t size)
{
    size_t length = H5Tget_size(type);
    char *text = length > 0 && length < 1 << 20 ? calloc(length + 1, 1) : NULL;
    int failed = !text || H5Aread(attribute, type, text) < 0;
    if (!failed)
        snprintf(out, size, "%s", text);
    free(text);
    return failed ? -1 : 0;
}

static int read_string(hid_t object, const char *path, const char *name, char *out, size_t size,
                       struct kvg_error *error)
{
    char what[256];
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    int failed = attribute < 0;
    if (!failed) {
        hid_t type = H5Aget_type(attribute);
        failed = type < 0 || H5Tget_class(type) != H5T_STRING || attribute_count(attribute) != 1 ||
                 (H5Tis_variable_str(type) > 0 ? read_variable_string(attribute, type, out, size)
                                               : read_fixed_string(attribute, type, out, size));
        if (type >= 0)
            H5Tclose(type);
        H5Aclose(attribute);
    }
    snprintf(what, sizeof what, "attribute %s is missing or not a text", name);
    return failed ? bad_file(path, what, error) : 0;
}

/* ------------------------------------------------------------------------------------------ datasets */

/* Required type and shape of a dataset. */
struct expected {
    H5T_class_t class;
    size_t bytes;
    int rank;
    hsize_t extent[3];
    int any_first; /* 1: extent[0] may be any positive number; it is filled in from the file */
};

static int matches(hid_t dataset, struct expected *e)
{
    hsize_t extent[3] = {0};
    hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    int ok = type >= 0 && space >= 0 && H5Tget_class(type) == e->class && H5Tget_size(type) == e->bytes &&
             H5Sget_simple_extent_ndims(space) == e->rank &&
             H5Sget_simple_extent_dims(space, extent, NULL) == e->rank;
    if (ok && e->any_first)
        e->extent[0] = extent[0];
    for (int i = 0; ok && i < e->rank; i++)
        ok = extent[i] == e->extent[i] && extent[i] > 0;
    if (type >= 0)
        H5Tclose(type);
    if (space >= 0)
        H5Sclose(space);
    return ok;
}

static hid_t open_dataset(hid_t file, const char *path, const char *name, struct expected *e,
                          struct kvg_error *error)
{
    char what[256];
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    if (dataset < 0) {
        snprintf(what, sizeof what, "there is no dataset %s", name);
        bad_file(path, what, error);
        return -1;
    }
    if (!matches(dataset, e)) {
        snprintf(what, sizeof what, "dataset %s has the wrong shape or type", name);
        bad_file(path, what, error);
        H5Dclose(dataset);
        return -1;
    }
    return dataset;
}

/* Rows [first, first + count) of the leading dimension. */
static int read_rows(hid_t dataset, const struct expected *e, hid_t memory_type, hsize_t first, hsize_t count,
                     void *out)
{
    hsize_t start[3] = {first, 0, 0}, extent[3] = {count, e->extent[1], e->extent[2]};
    hid_t space = H5Dget_space(dataset), memory = H5Screate_simple(e->rank, extent, NULL);
    int failed = space < 0 || memory < 0 ||
                 H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, extent, NULL) < 0 ||
                 H5Dread(dataset, memory_type, memory, space, H5P_DEFAULT, out) < 0;
    if (space >= 0)
        H5Sclose(space);
    if (memory >= 0)
        H5Sclose(memory);
    return failed ? -1 : 0;
}

/* Opens and checks a dataset and reads `count` rows to out. count = 0: reads all rows to *all, which is
 * malloc'ed. */
static int read_dataset(hid_t file, const char *path, const char *name, struct expected *e, hid_t memory_type,
                        hsize_t first, hsize_t count, void *out, void **all, struct kvg_error *error)
{
    char what[256];
    hid_t dataset = open_dataset(file, path, name, e, error);
    if (dataset < 0)
        return -1;
    if (!count) {
        count = e->extent[0];
        hsize_t row = (e->rank > 1 ? e->extent[1] : 1) * (e->rank > 2 ? e->extent[2] : 1);
        *all = out = count < (1u << 30) / e->bytes / row ? malloc(count * row * e->bytes) : NULL;
    }
    int failed = !out || read_rows(dataset, e, memory_type, first, count, out);
    H5Dclose(dataset);
    if (!failed)
        return 0;
    if (all) {
        free(*all);
        *all = NULL;
    }
    snprintf(what, sizeof what, "dataset %s cannot be read (damaged, or too large)", name);
    return bad_file(path, what, error);
}

/* ------------------------------------------------------------------------------------------ the file */

static int read_info(hid_t file, struct kvg_captured_info *info, struct kvg_error *error);

/* Without locks where the file system has none. */
static hid_t open_hdf5(const char *path)
{
    const int lock = kvg_lock_failure(path);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), file = H5I_INVALID_HID;
    if (access >= 0 && (lock == 0 || lock == EWOULDBLOCK || H5Pset_file_locking(access, 0, 1) >= 0))
        file = H5Fopen(path, H5F_ACC_RDONLY, access);
    if (access >= 0)
        H5Pclose(access);
    return file;
}

/* Reads the info of a file, in the child process that may crash. */
static void look(const char *path)
{
    struct kvg_captured_info info = {.n_layers = 0};
    hid_t file = open_hdf5(path);
    snprintf(info.path, sizeof info.path, "%s", path);
    if (file >= 0) {
        read_info(file, &info, NULL);
        H5Fclose(file);
    }
}

static hid_t open_file(const char *input, char *path, size_t size, struct kvg_error *error)
{
    if (strcmp(input, "smollm2")) {
        snprintf(path, size, "%s", input);
    } else if (kvg_data_path(KVG_DATA_INPUT, "smollm2.h5", path, size)) {
        kvg_fail(error, KVG_EXIT_USAGE, "input smollm2: smollm2.h5 was not found in these places: %s", path);
        return -1;
    }
    FILE *readable = fopen(path, "rb");
    if (!readable) {
        kvg_fail(error, KVG_EXIT_USAGE, "%s: cannot be opened: %m", path);
        return -1;
    }
    fclose(readable);
    if (!kvg_captured_survives(path, look))
        return bad_file(path, "is damaged: HDF5 crashes or hangs on it", error);
    hid_t file = open_hdf5(path);
    if (file < 0 && kvg_lock_failure(path) == EWOULDBLOCK)
        bad_file(path, "is locked by another process; wait for it, or set HDF5_USE_FILE_LOCKING=FALSE",
                 error);
    else if (file < 0)
        bad_file(path, "is not an HDF5 file, or is truncated", error);
    return file;
}

static int read_layers(hid_t file, struct kvg_captured_info *info, struct kvg_error *error)
{
    struct expected e = {H5T_INTEGER, 8, 1, {0}, 1};
    int64_t *layers = NULL;
    if (read_dataset(file, info->path, "layers", &e, H5T_NATIVE_INT64, 0, 0, NULL, (void **)&layers, error))
        return -1;
    info->n_layers = (int64_t)e.extent[0];
    int ok = info->n_layers <= (int64_t)(sizeof info->layers / sizeof info->layers[0]);
    for (int64_t i = 0; ok && i < info->n_layers; i++) {
        info->layers[i] = layers[i];
        ok = i ? layers[i] > layers[i - 1] : layers[i] >= 0;
    }
    free(layers);
    return ok ? 0 : bad_file(info->path, "dataset layers must hold 1 to 64 rising layer numbers", error);
}

static int read_info(hid_t file, struct kvg_captured_info *info, struct kvg_error *error)
{
    char schema[64], version[64];
    const char *path = info->path;
    if (read_string(file, path, "schema_name", schema, sizeof schema, error))
        return -1;
    if (strcmp(schema, KVG_CAPTURED_SCHEMA))
        return bad_file(path, "its schema_name is not " KVG_CAPTURED_SCHEMA, error);
    if (read_string(file, path, "schema_version", version, sizeof version, error))
        return -1;
    if (atoi(version) != KVG_CAPTURED_MAJOR)
        return bad_file(path, "its schema_version is not 1", error);
    hid_t evaluation = H5Gopen2(file, "evaluation", H5P_DEFAULT);
    if (evaluation < 0)
        return bad_file(path, "there is no group evaluation", error);
    int failed = read_string(file, path, "model", info->model, sizeof info->model, error) ||
                 read_int(file, path, "q_heads", 1, 65535, &info->q_heads, error) ||
                 read_int(file, path, "kv_heads", 1, info->q_heads, &info->kv_heads, error) ||
                 read_int(file, path, "head_dim", 1, 65536, &info->head_dim, error) ||
                 read_int(evaluation, path, "tokens", 1, INT32_MAX, &info->tokens, error) ||
                 read_int(evaluation, path, "q_first", 0, info->tokens, &info->q_first, error) ||
                 read_int(evaluation, path, "q_last", 0, info->tokens, &info->q_last, error) ||
                 read_int(evaluation, path, "window_step", 1, info->tokens, &info->window_step, error) ||
                 read_int(evaluation, path, "q_tail", 0, info->window_step, &info->q_tail, error) ||
                 read_layers(file, info, error);
    H5Gclose(evaluation);
    if (!failed && info->q_heads % info->kv_heads)
        return bad_file(path, "q_heads is not a multiple of kv_heads", error);
    return failed ? -1 : 0;
}

/* Switches HDF5's printing of errors off; quiet_end restores the setting of the process. */
struct quiet {
    H5E_auto2_t function;
    void *data;
};
static void quiet_begin(struct quiet *q)
{
    /* HDF5 1.10 leaks objects of its own on some damaged files, and its exit handler prints messages about
     * them. The handler is not needed: this file and the result files close every file that they open. */
    H5dont_atexit();
    H5Eget_auto2(H5E_DEFAULT, &q->function, &q->data);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}
static void quiet_end(const struct quiet *q)
{
    H5Eset_auto2(H5E_DEFAULT, q->function, q->data);
}

static hid_t open_captured(const char *input, struct kvg_captured_info *info, struct kvg_error *error)
{
    memset(info, 0, sizeof *info);
    hid_t file = open_file(input, info->path, sizeof info->path, error);
    if (file >= 0 && read_info(file, info, error)) {
        H5Fclose(file);
        return -1;
    }
    return file;
}

int64_t kvg_captured_window(const struct kvg_captured_info *info, int64_t context)
{
    const int64_t step = info->window_step, steps = (context + step - 1) / step;
    return steps ? steps * step : step;
}

void kvg_captured_list_layers(const struct kvg_captured_info *info, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int64_t i = 0; i < info->n_layers && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i ? ", " : "", info->layers[i]);
}

int kvg_captured_read_info(const char *input, struct kvg_captured_info *info, struct kvg_error *error)
{
    struct quiet quiet;
    quiet_begin(&quiet);
    hid_t file = open_captured(input, info, error);
    if (file >= 0)
        H5Fclose(file);
    quiet_end(&quiet);
    return file < 0 ? -1 : 0;
}

/* ------------------------------------------------------------------------------------------ values */

static int check_shape(const struct kvg_captured_info *info, const struct kvg_input_shape *s,
                       struct kvg_error *error)
{
    char have[512];
    if (s->q_heads != info->q_heads || s->kv_heads != info->kv_heads || s->head_dim != info->head_dim)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "%s has heads %" PRId64 "/%" PRId64 " and head_dim %" PRId64 ", not %" PRId64
                        "/%" PRId64 " and %" PRId64,
                        info->path, info->q_heads, info->kv_heads, info->head_dim, s->q_heads, s->kv_heads,
                        s->head_dim);
    for (int64_t i = 0; i < info->n_layers; i++)
        if (info->layers[i] == s->layer)
            return 0;
    kvg_captured_list_layers(info, have, sizeof have);
    return kvg_fail(error, KVG_EXIT_USAGE, "%s has no layer %" PRId64 "; it has %s", info->path, s->layer,
                    have);
}

/* End of the sequence's window (one past its last token), or -1 with the error. */
static int64_t window_end(const struct kvg_captured_info *info, const struct kvg_input_shape *s,
                          struct kvg_error *error)
{
    const int64_t span = s->span > s->context ? s->span : s->context;
    if (span > info->tokens)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "%s: context %" PRId64 " is beyond the captured text of %" PRId64 " tokens",
                        info->path, span, info->tokens);
    const int64_t width = kvg_captured_window(info, span);
    if (s->seq >= info->tokens / width)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "%s: batch entry %" PRId64 " of up to %" PRId64
                        " keys is beyond the captured text: %" PRId64 " tokens hold %" PRId64
                        " such windows (of %" PRId64 " tokens)",
                        info->path, s->seq + 1, span, info->tokens, info->tokens / width, width);
    return (s->seq + 1) * width;
}

static int fill_kv(hid_t file, const struct kvg_captured_info *info, const struct kvg_input_shape *s,
                   enum kvg_tensor tensor, int64_t end, uint16_t *out, struct kvg_error *error)
{
    char name[128];
    struct expected e = {
        H5T_INTEGER, 2, 3, {(hsize_t)info->tokens, (hsize_t)info->kv_heads, (hsize_t)info->head_dim}, 0};
    if (!s->context)
        return 0;
    snprintf(name, sizeof name, "evaluation/layer_%02" PRId64 "/%s", s->layer, tensor_name[tensor]);
    return read_dataset(file, info->path, name, &e, H5T_NATIVE_UINT16, (hsize_t)(end - s->context),
                        (hsize_t)s->context, out, NULL, error);
}

/* Index of the first of `count` consecutive positions from `first`, or -1. */
static int64_t find_run(const int64_t *positions, int64_t n, int64_t first, int64_t count)
{
    for (int64_t i = 0; i + count <= n; i++)
        if (positions[i] == first) {
            for (int64_t j = 0; j < count; j++)
                if (positions[i + j] != first + j)
                    return -1;
            return i;
        }
    return -1;
}

static int fill_q(hid_t file, const struct kvg_captured_info *info, const struct kvg_input_shape *s,
                  int64_t end, uint16_t *out, struct kvg_error *error)
{
    char name[128];
    struct expected list = {H5T_INTEGER, 8, 1, {0}, 1};
    int64_t *positions = NULL;
    if (!s->q_len)
        return 0;
    if (read_dataset(file, info->path, "evaluation/q_positions", &list, H5T_NATIVE_INT64, 0, 0, NULL,
                     (void **)&positions, error))
        return -1;
    int64_t at = find_run(positions, (int64_t)list.extent[0], end - s->q_len, s->q_len);
    free(positions);
    if (at < 0)
        return kvg_fail(
            error, KVG_EXIT_USAGE,
            "%s: no Q for positions %" PRId64 " to %" PRId64 " of the text; the file has Q for the first "
            "%" PRId64 ", the last %" PRId64 ", and the last %" PRId64 " before each multiple of %" PRId64,
            info->path, end - s->q_len, end - 1, info->q_first, info->q_last, info->q_tail,
            info->window_step);
    struct expected e = {
        H5T_INTEGER, 2, 3, {list.extent[0], (hsize_t)info->q_heads, (hsize_t)info->head_dim}, 0};
    snprintf(name, sizeof name, "evaluation/layer_%02" PRId64 "/q", s->layer);
    return read_dataset(file, info->path, name, &e, H5T_NATIVE_UINT16, (hsize_t)at, (hsize_t)s->q_len, out,
                        NULL, error);
}

/* Every value must be finite: the error of a NaN or an infinity has no size. `first` is the position of the first
 * token in the text. */
static int check_finite(const struct kvg_captured_info *info, const struct kvg_input_shape *s,
                        enum kvg_tensor tensor, int64_t first, const uint16_t *values,
                        struct kvg_error *error)
{
    enum { EXPONENT = 0x7f80, MANTISSA = 0x7f }; /* of bf16 */
    const int64_t heads = tensor == KVG_TENSOR_Q ? info->q_heads : info->kv_heads;
    const int64_t tokens = tensor == KVG_TENSOR_Q ? s->q_len : s->context;
    for (int64_t i = 0; i < tokens * heads * info->head_dim; i++)
        if ((values[i] & EXPONENT) == EXPONENT)
            return kvg_fail(error, KVG_EXIT_USAGE,
                            "%s: %s of layer %" PRId64 " holds %s at token %" PRId64 ", head %" PRId64
                            "; finite values would be right",
                            info->path, tensor_name[tensor], s->layer,
                            values[i] & MANTISSA ? "NaN" : "an infinity",
                            first + i / (heads * info->head_dim), i / info->head_dim % heads);
    return 0;
}

static int fill(hid_t file, const struct kvg_captured_info *info, const struct kvg_input_shape *s,
                enum kvg_tensor tensor, uint16_t *out, struct kvg_error *error)
{
    if (check_shape(info, s, error))
        return -1;
    int64_t end = window_end(info, s, error);
    if (end < 0)
        return -1;
    const int failed = tensor == KVG_TENSOR_Q ? fill_q(file, info, s, end, out, error)
                                              : fill_kv(file, info, s, tensor, end, out, error);
    const int64_t first = end - (tensor == KVG_TENSOR_Q ? s->q_len : s->context);
    return failed || check_finite(info, s, tensor, first, out, error) ? -1 : 0;
}

int kvg_captured_fill(const struct kvg_input_shape *shape, enum kvg_tensor tensor, uint16_t *out,
                      struct kvg_error *error)
{
    struct kvg_captured_info info;
    struct quiet quiet;
    quiet_begin(&quiet);
    hid_t file = open_captured(shape->input, &info, error);
    int failed = file < 0 || fill(file, &info, shape, tensor, out, error);
    if (file >= 0)
        H5Fclose(file);
    quiet_end(&quiet);
    return failed ? -1 : 0;
}

static int absmax_of(hid_t file, const struct kvg_captured_info *info, const struct kvg_input_shape *s,
                     enum kvg_tensor tensor, enum kvg_token_set set, float **absmax, int64_t *samples,
                     struct kvg_error *error)
{
    char name[128];
    int64_t heads = tensor == KVG_TENSOR_Q ? info->q_heads : info->kv_heads;
    struct expected e = {H5T_FLOAT, 4, 2, {0, (hsize_t)heads}, 1};
    if (check_shape(info, s, error))
        return -1;
    snprintf(name, sizeof name, "%s/layer_%02" PRId64 "/%s_absmax", set_name[set], s->layer,
             tensor_name[tensor]);
    if (read_dataset(file, info->path, name, &e, H5T_NATIVE_FLOAT, 0, 0, NULL, (void **)absmax, error))
        return -1;
    *samples = (int64_t)e.extent[0];
    return 0;
}

int kvg_captured_absmax(const struct kvg_input_shape *shape, enum kvg_tensor tensor, enum kvg_token_set set,
                        float **absmax, int64_t *samples, struct kvg_error *error)
{
    struct kvg_captured_info info;
    struct quiet quiet;
    quiet_begin(&quiet);
    hid_t file = open_captured(shape->input, &info, error);
    int failed = file < 0 || absmax_of(file, &info, shape, tensor, set, absmax, samples, error);
    if (file >= 0)
        H5Fclose(file);
    quiet_end(&quiet);
    return failed ? -1 : 0;
}
