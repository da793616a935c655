/* SPDX-License-Identifier: Apache-2.0
 *
 * file_read.c: read a result file.
 *
 * The file may be cut short, foreign, damaged or newer than this program. HDF5 1.10 corrupts its own memory
 * on some damaged files. So a child process reads the file and sends the rows back as a journal, and a child
 * that dies means a damaged file. Columns that an older minor schema lacks are missing in the rows; columns
 * that a newer minor schema adds are ignored.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "disk.h"
#include "encode.h"
#include "file.h"
#include "layout.h"

enum { KVG_READ_SECONDS = 120 }; /* wall clock; 312 rows take a tenth of a second */

struct source {
    const char *path;
    hid_t file, group, text;
    struct kvg_results *results;
    struct kvg_error *error;
};

static int damaged(const struct source *s, const char *what)
{
    return kvg_fail(s->error, KVG_EXIT_USAGE, "%s: damaged: cannot read %s", s->path, what);
}

static int no_memory(const struct source *s)
{
    return kvg_fail(s->error, KVG_EXIT_TROUBLE, "%s: out of memory", s->path);
}

/* ---------------------------------------------------------------- facts */

/* Reads one attribute. Fixed-length text is accepted too, because another writer may use it. */
static int read_fact(const struct source *s, hid_t attribute, const char *name, struct kvg_facts *facts)
{
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    H5T_class_t class = H5Tget_class(type);
    int failed = 0;
    if (H5Sget_simple_extent_npoints(space) != 1) {
        failed = 0; /* kvgauge writes no array attributes: ignored */
    } else if (class == H5T_STRING && H5Tis_variable_str(type) > 0) {
        char *text = NULL;
        failed = H5Aread(attribute, s->text, &text) < 0 || kvg_facts_set_text(facts, name, text ? text : "");
        H5free_memory(text);
    } else if (class == H5T_STRING) {
        size_t size = H5Tget_size(type);
        char *text = calloc(1, size + 1);
        failed = !text || H5Aread(attribute, type, text) < 0 || kvg_facts_set_text(facts, name, text);
        free(text);
    } else if (class == H5T_INTEGER || class == H5T_FLOAT) {
        double number = NAN;
        failed =
            H5Aread(attribute, H5T_NATIVE_DOUBLE, &number) < 0 || kvg_facts_set_number(facts, name, number);
    }
    H5Tclose(type);
    H5Sclose(space);
    return failed ? damaged(s, name) : 0;
}

static int is_for_viewers(const char *name)
{
    return strcmp(name, "NX_class") == 0 || strcmp(name, "default") == 0;
}

/* Reads all attributes of an object, in the order in which they were created. */
static int read_facts(const struct source *s, hid_t object, const char *where, struct kvg_facts *facts)
{
    H5O_info_t info;
    if (H5Oget_info2(object, &info, H5O_INFO_NUM_ATTRS) < 0)
        return damaged(s, where);
    for (hsize_t i = 0; i < info.num_attrs; i++) {
        hid_t attribute =
            H5Aopen_by_idx(object, ".", H5_INDEX_CRT_ORDER, H5_ITER_INC, i, H5P_DEFAULT, H5P_DEFAULT);
        if (attribute < 0) /* the file does not record the order of creation */
            attribute = H5Aopen_by_idx(object, ".", H5_INDEX_NAME, H5_ITER_INC, i, H5P_DEFAULT, H5P_DEFAULT);
        char name[256] = "";
        int failed = attribute < 0 || H5Aget_name(attribute, sizeof(name), name) < 0;
        if (failed)
            damaged(s, where);
        else if (!is_for_viewers(name))
            failed = read_fact(s, attribute, name, facts);
        if (attribute >= 0)
            H5Aclose(attribute);
        if (failed)
            return -1;
    }
    return 0;
}

/* ---------------------------------------------------------------- columns */

/* 1 when the name leads to an object of this file and not, through a link, to one elsewhere. */
static int is_own(hid_t group, const char *name)
{
    H5L_info_t info;
    return H5Lget_info(group, name, &info, H5P_DEFAULT) >= 0 && info.type == H5L_TYPE_HARD;
}

/* Opens a dataset whose values lie in this file: no link to another file, no external storage, no virtual
 * dataset. Negative otherwise. */
static hid_t open_own_dataset(hid_t group, const char *name)
{
    hid_t set = is_own(group, name) ? H5Dopen2(group, name, H5P_DEFAULT) : H5I_INVALID_HID;
    hid_t list = set < 0 ? H5I_INVALID_HID : H5Dget_create_plist(set);
    const int own = list >= 0 && H5Pget_external_count(list) == 0 && H5Pget_layout(list) != H5D_VIRTUAL;
    if (list >= 0)
        H5Pclose(list);
    if (!own && set >= 0)
        H5Dclose(set);
    return own ? set : H5I_INVALID_HID;
}

static hid_t open_own_group(hid_t file, const char *name)
{
    return is_own(file, name) ? H5Gopen2(file, name, H5P_DEFAULT) : H5I_INVALID_HID;
}

/* Opens a dataset whose extent must be the number of rows, and for rank 2 also `width`. Negative on
 * failure. */
static hid_t open_dataset(const struct source *s, const char *name, int rank, hsize_t width)
{
    hid_t set = open_own_dataset(s->group, name);
    hid_t space = set < 0 ? H5I_INVALID_HID : H5Dget_space(set);
    hsize_t extent[2] = {0, width};
    int ok = space >= 0 && H5Sget_simple_extent_ndims(space) == rank &&
             H5Sget_simple_extent_dims(space, extent, NULL) == rank &&
             extent[0] == (hsize_t)s->results->count && extent[1] == width;
    if (space >= 0)
        H5Sclose(space);
    if (!ok && set >= 0)
        H5Dclose(set);
    return ok ? set : H5I_INVALID_HID;
}

static int has_dataset(const struct source *s, const char *name)
{
    return H5Lexists(s->group, name, H5P_DEFAULT) > 0;
}

static int read_strings(const struct source *s, hid_t set, const struct kvg_column *column)
{
    int64_t n = s->results->count;
    char **texts = calloc((size_t)(n ? n : 1), sizeof(*texts));
    if (!texts)
        return no_memory(s);
    int failed = H5Dread(set, s->text, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts) < 0;
    if (failed)
        damaged(s, column->name);
    for (int64_t i = 0; i < n; i++) {
        char **field = (char **)(void *)((char *)&s->results->rows[i] + column->offset);
        if (!failed && kvg_row_set_string(field, texts[i]))
            failed = no_memory(s);
        H5free_memory(texts[i]);
    }
    free(texts);
    return failed ? -1 : 0;
}

static int read_numbers(const struct source *s, hid_t set, const struct kvg_column *column)
{
    int64_t n = s->results->count;
    char *values = malloc((size_t)(n ? n : 1) * 8);
    if (!values)
        return no_memory(s);
    hid_t type = column->type == KVG_COLUMN_INT ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE;
    int failed = H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0;
    for (int64_t i = 0; !failed && i < n; i++)
        memcpy((char *)&s->results->rows[i] + column->offset, values + 8 * i, 8);
    free(values);
    return failed ? damaged(s, column->name) : 0;
}

static int read_column(const struct source *s, const struct kvg_column *column)
{
    if (!has_dataset(s, column->name))
        return 0;
    hid_t set = open_dataset(s, column->name, 1, 0);
    hid_t type = set < 0 ? H5I_INVALID_HID : H5Dget_type(set);
    if (type < 0) {
        if (set >= 0)
            H5Dclose(set);
        return damaged(s, column->name);
    }
    H5T_class_t class = H5Tget_class(type);
    int failed = 0;
    if (column->type == KVG_COLUMN_STRING && class == H5T_STRING && H5Tis_variable_str(type) > 0)
        failed = read_strings(s, set, column);
    else if ((column->type == KVG_COLUMN_INT && class == H5T_INTEGER) ||
             (column->type == KVG_COLUMN_FLOAT && (class == H5T_FLOAT || class == H5T_INTEGER)))
        failed = read_numbers(s, set, column);
    else
        failed =
            kvg_fail(s->error, KVG_EXIT_USAGE, "%s: column %s is not of the type that schema %s gives it",
                     s->path, column->name, KVG_SCHEMA_VERSION);
    H5Tclose(type);
    H5Dclose(set);
    return failed;
}

static int read_samples(const struct source *s)
{
    if (!has_dataset(s, "time_samples"))
        return 0;
    int64_t n = s->results->count;
    hid_t set = open_dataset(s, "time_samples", 2, KVG_MAX_SAMPLES);
    if (set < 0)
        return damaged(s, "time_samples");
    float *samples = malloc((size_t)(n ? n : 1) * KVG_MAX_SAMPLES * sizeof(float));
    int failed = !samples;
    if (failed)
        no_memory(s);
    else if (H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, samples) < 0)
        failed = damaged(s, "time_samples");
    for (int64_t i = 0; !failed && i < n; i++) {
        double kept[KVG_MAX_SAMPLES];
        int64_t count = 0;
        for (int64_t k = 0; k < KVG_MAX_SAMPLES; k++) {
            kept[k] = (double)samples[i * KVG_MAX_SAMPLES + k];
            if (!isnan(kept[k]))
                count = k + 1;
        }
        if (kvg_row_set_samples(&s->results->rows[i], kept, count))
            failed = no_memory(s);
    }
    free(samples);
    H5Dclose(set);
    return failed ? -1 : 0;
}

/* ---------------------------------------------------------------- rows */

/* The number of rows is the extent of `row`. The limit prevents a huge allocation if it is damaged. */
static int make_rows(struct source *s)
{
    hid_t set = open_own_dataset(s->group, "row");
    hid_t space = set < 0 ? H5I_INVALID_HID : H5Dget_space(set);
    hsize_t n = 0;
    int ok = space >= 0 && H5Sget_simple_extent_ndims(space) == 1 &&
             H5Sget_simple_extent_dims(space, &n, NULL) == 1 && n <= INT32_MAX;
    if (space >= 0)
        H5Sclose(space);
    if (set >= 0)
        H5Dclose(set);
    if (!ok)
        return damaged(s, "the number of rows");
    s->results->rows = n ? calloc((size_t)n, sizeof(*s->results->rows)) : NULL;
    if (n && !s->results->rows)
        return no_memory(s);
    for (; s->results->count < (int64_t)n; s->results->count++)
        if (kvg_row_init(&s->results->rows[s->results->count]))
            return no_memory(s);
    return 0;
}

static int read_open_file(struct source *s)
{
    if (read_facts(s, s->file, "the facts of the run", &s->results->run) ||
        kvg_schema_check(s->path, &s->results->run, s->error))
        return -1;
    s->group = open_own_group(s->file, KVG_GROUP_RESULTS);
    if (s->group < 0)
        return damaged(s, "the group /" KVG_GROUP_RESULTS);
    hid_t machine = open_own_group(s->file, KVG_GROUP_MACHINE);
    int failed = machine < 0 ? damaged(s, "the group /" KVG_GROUP_MACHINE)
                             : read_facts(s, machine, "the facts of the machine", &s->results->machine);
    if (machine >= 0)
        H5Gclose(machine);
    failed = failed || make_rows(s);
    for (int64_t i = 0; !failed && i < kvg_columns_count; i++)
        failed = read_column(s, &kvg_columns[i]);
    return failed || read_samples(s) ? -1 : 0;
}

static herr_t note_truncated(unsigned n, const H5E_error2_t *entry, void *truncated)
{
    (void)n;
    if (entry->min_num == H5E_TRUNCATED)
        *(int *)truncated = 1;
    return 0;
}

/* Says why H5Fopen failed. HDF5's own stack of errors still stands. */
static int cannot_open(const struct source *s, int lock_failure)
{
    int truncated = 0;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, note_truncated, &truncated);
    if (lock_failure == EWOULDBLOCK)
        return kvg_fail(s->error, KVG_EXIT_TROUBLE,
                        "%s: another process has locked it; wait until that has closed the file, or set "
                        "HDF5_USE_FILE_LOCKING=FALSE to read it all the same",
                        s->path);
    return kvg_fail(s->error, KVG_EXIT_USAGE,
                    "%s: HDF5 cannot open it: %s; its journal, if it was kept, has every row", s->path,
                    truncated ? "cut short" : "damaged");
}

/* The property list stays open: to close it would clear HDF5's stack of errors. Without locks where the file
 * system has none. The environment variable HDF5_USE_FILE_LOCKING goes before
 * this. */
static hid_t open_file(const char *path, int lock_failure)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), file = H5I_INVALID_HID;
    int lockless = lock_failure && lock_failure != EWOULDBLOCK;
    if (access >= 0 && (!lockless || H5Pset_file_locking(access, 0, 1) >= 0))
        file = H5Fopen(path, H5F_ACC_RDONLY, access);
    return file;
}

static int read_hdf5(struct source *s)
{
    const int lock_failure = kvg_lock_failure(s->path);
    s->file = open_file(s->path, lock_failure);
    if (s->file < 0)
        return cannot_open(s, lock_failure);
    s->text = kvg_hdf5_string_type();
    int failed = s->text < 0 ? no_memory(s) : read_open_file(s);
    if (s->group >= 0)
        H5Gclose(s->group);
    if (s->text >= 0)
        H5Tclose(s->text);
    H5Fclose(s->file);
    return failed;
}

/* Looks at the first bytes: 1 for HDF5, 0 for anything else, -1 with the error if the file cannot be read. */
static int is_hdf5(const char *path, struct kvg_error *error)
{
    struct stat info;
    char byte;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* opening a pipe must not wait for a writer */
    if (fd < 0)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot open: %s", path, strerror(errno));
    const int known = fstat(fd, &info) == 0;
    const int regular = known && S_ISREG(info.st_mode);
    const ssize_t n = regular ? read(fd, &byte, 1) : 0;
    const int why = errno;
    close(fd);
    if (known && S_ISDIR(info.st_mode))
        return kvg_fail(error, KVG_EXIT_USAGE, "%s: is a folder; name the result file in it", path);
    if (!regular)
        return kvg_fail(error, KVG_EXIT_USAGE, "%s: is a pipe or a device; a regular file would be right",
                        path);
    if (n < 0)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot read: %s", path, strerror(why));
    if (n == 0)
        return kvg_fail(error, KVG_EXIT_USAGE, "%s: is empty", path);
    return kvg_begins_as_hdf5(path);
}

/* ---------------------------------------------------------------- the child process */

/* Sends 'R', the number of rows and a journal; or 'E', the exit code as a digit, and the message. */
static int send_results(FILE *out, const char *path)
{
    struct kvg_results results = {0};
    struct kvg_error error = {0};
    struct source s = {path, H5I_INVALID_HID, H5I_INVALID_HID, H5I_INVALID_HID, &results, &error};
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (read_hdf5(&s))
        return fprintf(out, "E%d%s", (int)error.exit_code, error.text) < 0 || fflush(out) ? 1 : 0;
    char *line = kvg_header_to_json(&results.run, &results.machine);
    int failed = !line || fprintf(out, "R%lld\n%s\n", (long long)results.count, line) < 0;
    free(line);
    for (int64_t i = 0; !failed && i < results.count; i++) {
        line = kvg_row_to_json(&results.rows[i]);
        failed = !line || fprintf(out, "%s\n", line) < 0;
        free(line);
    }
    return failed || fflush(out) ? 1 : 0;
}

/* The limits prevent a core file and an endless loop, be it busy or waiting. The child ends with its parent.
 * stderr goes to /dev/null, because the C library prints
 * a message when it detects damaged memory. */
static void child(int fd, const char *path, pid_t parent)
{
    const struct rlimit no_core = {0, 0}, one_minute = {60, 60};
    int null = open("/dev/null", O_WRONLY);
    FILE *out = fdopen(fd, "w");
    setrlimit(RLIMIT_CORE, &no_core);
    setrlimit(RLIMIT_CPU, &one_minute);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
        _exit(1);
    if (null < 0 || !out || dup2(null, STDERR_FILENO) < 0)
        _exit(1);
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGINT, SIGTERM, SIGXCPU, SIGALRM};
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++)
        signal(fatal[i], SIG_DFL);
    sigset_t own; /* a mask of the parent would hold the signal of the time limit back */
    sigemptyset(&own);
    sigaddset(&own, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &own, NULL);
    alarm(KVG_READ_SECONDS);
    _exit(send_results(out, path));
}

static int receive_results(FILE *in, const char *path, struct kvg_results *results, struct kvg_error *error)
{
    int kind = getc(in);
    long long count = -1;
    if (kind == 'R' && fscanf(in, "%lld", &count) == 1 && getc(in) == '\n') {
        if (kvg_journal_read_stream(in, path, results, error))
            return -1;
        if (results->count == count)
            return 0;
        kvg_results_free(results);
        return kvg_fail(error, KVG_EXIT_USAGE, "%s: damaged: HDF5 cannot read it", path);
    }
    char text[sizeof(error->text)] = "";
    int exit_code = kind == 'E' ? getc(in) - '0' : KVG_EXIT_USAGE;
    text[fread(text, 1, sizeof(text) - 1, in)] = '\0';
    if (kind == 'E')
        return kvg_fail(error, (enum kvg_exit)exit_code, "%s", text);
    return kvg_fail(error, KVG_EXIT_USAGE, "%s: damaged: HDF5 cannot read it", path);
}

int kvg_file_read(const char *path, struct kvg_results *results, struct kvg_error *error)
{
    memset(results, 0, sizeof(*results));
    int kind = is_hdf5(path, error);
    if (kind == 0)
        kvg_fail(error, KVG_EXIT_USAGE, "%s: not an HDF5 file", path);
    if (kind != 1)
        return -1;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot make a pipe: %s", path, strerror(errno));
    const pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        child(ends[1], path, parent);
    }
    close(ends[1]);
    FILE *in = pid > 0 ? fdopen(ends[0], "r") : NULL;
    int failed = in ? receive_results(in, path, results, error)
                    : kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot start a process to read it: %s", path,
                               strerror(errno));
    if (in)
        fclose(in);
    else
        close(ends[0]);
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (pid > 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
        if (!failed)
            kvg_results_free(results);
        failed = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM
                     ? kvg_fail(error, KVG_EXIT_USAGE,
                                "%s: reading took longer than %d s: damaged, or the disk is too slow", path,
                                KVG_READ_SECONDS)
                     : kvg_fail(error, KVG_EXIT_USAGE, "%s: damaged: HDF5 cannot read it", path);
    }
    return failed;
}

int kvg_results_read(const char *path, struct kvg_results *results, struct kvg_error *error)
{
    memset(results, 0, sizeof(*results));
    int kind = is_hdf5(path, error);
    if (kind < 0)
        return -1;
    if (kind == 1)
        return kvg_file_read(path, results, error);
    return kvg_journal_read(path, results, error);
}
