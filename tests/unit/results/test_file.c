/* SPDX-License-Identifier: Apache-2.0
 *
 * test_file.c: result files: exact round trip, the layout that other tools rely on, and failed writes that
 * leave the old file unchanged. tests/python/test_open_everywhere.py checks that Python's libraries open the
 * file.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <hdf5_hl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "tests/unit/results_sample.h"

static char folder[64], path[128];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "%s", sample_folder());
    snprintf(path, sizeof(path), "%s/run.h5", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    umount2(folder, MNT_DETACH); /* a failed test may leave its mount */
    remove_folder(folder);
    return 0;
}

static int count_entries(const char *name)
{
    int n = 0;
    DIR *dir = opendir(name);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void round_trip_is_exact(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 255, 256, 257, 600}; /* around the chunk of 256 rows */
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct kvg_results in, out;
        struct kvg_error error = {0};
        sample_results(&in, sizes[i]);
        assert_int_equal(kvg_file_write(path, &in, &error), 0);
        assert_int_equal(kvg_file_read(path, &out, &error), 0);
        assert_same_results(&in, &out);
        kvg_results_free(&out);
        assert_int_equal(kvg_results_read(path, &out, &error), 0);
        assert_same_results(&in, &out);
        kvg_results_free(&out);
        kvg_results_free(&in);
        assert_int_equal(count_entries(folder), 1); /* no temporary file is left */
    }
}

/* ---------------------------------------------------------------- the layout, read with HDF5 itself */

static herr_t no_forbidden_type(hid_t group, const char *name, const H5L_info_t *info, void *data)
{
    (void)info;
    int *scales = data;
    hid_t set = H5Dopen2(group, name, H5P_DEFAULT);
    assert_true(set >= 0);
    hid_t type = H5Dget_type(set), list = H5Dget_create_plist(set);
    H5T_class_t class = H5Tget_class(type);
    assert_true(class == H5T_INTEGER || class == H5T_FLOAT || class == H5T_STRING);
    if (class == H5T_STRING) {
        assert_true(H5Tis_variable_str(type) > 0);
        assert_int_equal(H5Tget_cset(type), H5T_CSET_UTF8);
    }
    for (int i = 0; i < H5Pget_nfilters(list); i++) {
        unsigned flags, config;
        size_t n = 0;
        H5Z_filter_t filter = H5Pget_filter2(list, (unsigned)i, &flags, &n, NULL, 0, NULL, &config);
        assert_true(filter == H5Z_FILTER_DEFLATE || filter == H5Z_FILTER_SHUFFLE);
    }
    if (H5DSis_scale(set) > 0) {
        ++*scales;
    } else {
        assert_int_equal(H5DSget_num_scales(set, 0), 1);
        assert_true(H5Aexists(set, "long_name") > 0);
        assert_true(class == H5T_STRING || H5Aexists(set, "units") > 0);
    }
    H5Pclose(list);
    H5Tclose(type);
    H5Dclose(set);
    return 0;
}

static void layout_is_what_others_can_open(void **state)
{
    (void)state;
    struct kvg_results in;
    struct kvg_error error = {0};
    sample_results(&in, 5);
    assert_int_equal(kvg_file_write(path, &in, &error), 0);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(file >= 0);
    hid_t group = H5Gopen2(file, "results", H5P_DEFAULT);
    int scales = 0;
    assert_true(H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, no_forbidden_type, &scales) >= 0);
    assert_int_equal(scales, 2);
    H5G_info_t info;
    assert_true(H5Gget_info(group, &info) >= 0);
    assert_int_equal(info.nlinks, kvg_columns_count + 3); /* row, sample, time_samples */
    hsize_t extent[2], most[2];
    hid_t set = H5Dopen2(group, "time_samples", H5P_DEFAULT), space = H5Dget_space(set);
    assert_int_equal(H5Sget_simple_extent_dims(space, extent, most), 2);
    assert_int_equal(extent[0], 5);
    assert_int_equal(extent[1], 256);
    assert_true(most[0] == H5S_UNLIMITED);
    assert_int_equal(most[1], 256);
    assert_int_equal(H5DSget_num_scales(set, 1), 1);
    H5Sclose(space);
    H5Dclose(set);
    H5Gclose(group);
    hsize_t fields = 0, records = 0;
    group = H5Gopen2(file, "tables", H5P_DEFAULT);
    assert_true(H5TBget_table_info(group, "summary", &fields, &records) >= 0);
    assert_int_equal(fields, kvg_columns_count);
    assert_int_equal(records, 5);
    H5Gclose(group);
    H5Fclose(file);
    kvg_results_free(&in);
}

/* ---------------------------------------------------------------- refusals */

static void expect_refusal(int exit_code, const char *part)
{
    struct kvg_results out;
    struct kvg_error error = {0};
    assert_int_equal(kvg_file_read(path, &out, &error), -1);
    assert_int_equal(error.exit_code, exit_code);
    assert_non_null(strstr(error.text, path));
    if (!strstr(error.text, part))
        fail_msg("expected '%s' in: %s", part, error.text);
    assert_null(out.rows);
}

static void foreign_files_are_refused(void **state)
{
    (void)state;
    expect_refusal(KVG_EXIT_TROUBLE, strerror(ENOENT));
    sample_write(path, "", 0);
    expect_refusal(KVG_EXIT_USAGE, "is empty");
    sample_write(path, "plain text", 10);
    expect_refusal(KVG_EXIT_USAGE, "not an HDF5 file");
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    expect_refusal(KVG_EXIT_USAGE, "schema_name is ''");
    unlink(path);
    assert_int_equal(mkdir(path, 0777), 0);
    expect_refusal(KVG_EXIT_USAGE, "is a folder");
}

static void newer_schema_is_refused_and_newer_minor_is_read(void **state)
{
    (void)state;
    struct kvg_results in, out;
    struct kvg_error error = {0};
    sample_results(&in, 2);
    assert_int_equal(kvg_facts_set_text(&in.run, "schema_version", "2.0.0"), 0);
    assert_int_equal(kvg_file_write(path, &in, &error), 0);
    expect_refusal(KVG_EXIT_USAGE, "schema 2.0.0; this kvgauge reads up to 1.x");
    assert_int_equal(kvg_facts_set_text(&in.run, "schema_version", "1.99.0"), 0);
    assert_int_equal(kvg_file_write(path, &in, &error), 0);
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT); /* an unknown column, and a known one removed */
    hsize_t n = 2;
    hid_t space = H5Screate_simple(1, &n, NULL);
    hid_t set = H5Dcreate2(file, "results/from_the_future", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT,
                           H5P_DEFAULT);
    H5Dclose(set);
    H5Sclose(space);
    assert_true(H5Ldelete(file, "results/zero_ratio", H5P_DEFAULT) >= 0);
    H5Fclose(file);
    assert_int_equal(kvg_file_read(path, &out, &error), 0);
    assert_int_equal(out.count, 2);
    assert_true(isnan(out.rows[0].zero_ratio) && isnan(out.rows[1].zero_ratio));
    assert_string_equal(out.rows[1].kernel, in.rows[1].kernel);
    kvg_results_free(&out);
    kvg_results_free(&in);
}

static void wrong_types_and_lengths_are_refused(void **state)
{
    (void)state;
    struct kvg_results in;
    struct kvg_error error = {0};
    sample_results(&in, 3);
    assert_int_equal(kvg_file_write(path, &in, &error), 0);
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(H5Ldelete(file, "results/batch", H5P_DEFAULT) >= 0);
    hsize_t n = 3;
    hid_t space = H5Screate_simple(1, &n, NULL);
    hid_t set =
        H5Dcreate2(file, "results/batch", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dclose(set);
    H5Sclose(space);
    H5Fclose(file);
    expect_refusal(KVG_EXIT_USAGE, "column batch is not of the type");
    assert_int_equal(kvg_file_write(path, &in, &error), 0);
    file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    set = H5Dopen2(file, "results/context", H5P_DEFAULT);
    n = 2;
    assert_true(H5Dset_extent(set, &n) >= 0);
    H5Dclose(set);
    H5Fclose(file);
    expect_refusal(KVG_EXIT_USAGE, "cannot read context");
    kvg_results_free(&in);
}

/* A file that is cut short, or has a flipped bit, gives an error or rows, but no crash. */
static void damaged_files_never_crash(void **state)
{
    (void)state;
    struct kvg_results in, out;
    struct kvg_error error = {0};
    size_t size = 0;
    sample_results(&in, 3);
    assert_int_equal(kvg_file_write(path, &in, &error), 0);
    char *image = sample_read(path, &size);
    for (size_t i = 0; i < 40; i++) {
        sample_write(path, image, size * i / 40);
        assert_int_equal(kvg_file_read(path, &out, &error), -1);
        assert_non_null(strstr(error.text, path));
    }
    int unreadable = 0;
    uint64_t random = 1;
    for (int i = 0; i < 150; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        size_t at = (size_t)(random >> 33) % (i % 2 ? size : 4096);
        char old = image[at];
        image[at] = (char)(old ^ (1 << (random >> 61)));
        sample_write(path, image, size);
        image[at] = old;
        if (kvg_file_read(path, &out, &error) == 0)
            kvg_results_free(&out);
        else
            unreadable++;
    }
    assert_in_range(unreadable, 1, 149);
    free(image);
    kvg_results_free(&in);
}

/* ---------------------------------------------------------------- an existing file stays whole */

static void expect_old_file(const struct kvg_results *old)
{
    struct kvg_results out;
    struct kvg_error error = {0};
    assert_int_equal(kvg_file_read(path, &out, &error), 0);
    assert_same_results(old, &out);
    kvg_results_free(&out);
    assert_int_equal(count_entries(folder), 1);
}

static void a_write_that_does_not_fit_leaves_the_old_file(void **state)
{
    (void)state;
    struct kvg_results old, new;
    struct kvg_error error = {0};
    struct rlimit before, tight;
    sample_results(&old, 2);
    sample_results(&new, 40);
    assert_int_equal(kvg_file_write(path, &old, &error), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    tight = before;
    tight.rlim_cur = 65536;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    int failed = kvg_file_write(path, &new, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(failed, -1);
    assert_int_equal(error.exit_code, KVG_EXIT_TROUBLE);
    assert_non_null(strstr(error.text, strerror(EFBIG)));
    expect_old_file(&old);
    kvg_results_free(&old);
    kvg_results_free(&new);
}

/* A full disk and a read-only folder need a mount: root ignores the modes of folders. */
static void a_full_or_read_only_disk_leaves_the_old_file(void **state)
{
    (void)state;
    struct kvg_results old, new;
    struct kvg_error error = {0};
    if (mount("none", folder, "tmpfs", 0, "size=1m") != 0) {
        print_message("no mount possible (%s): only the limit on the file size is tested\n", strerror(errno));
        skip();
    }
    sample_results(&old, 2);
    sample_results(&new, 3000);
    int first = kvg_file_write(path, &old, &error);
    int full = kvg_file_write(path, &new, &error);
    char full_text[768], read_only_text[768];
    snprintf(full_text, sizeof(full_text), "%s", error.text);
    expect_old_file(&old);
    int remounted = mount("none", folder, "tmpfs", MS_REMOUNT | MS_RDONLY, NULL);
    int read_only = kvg_file_write(path, &new, &error);
    snprintf(read_only_text, sizeof(read_only_text), "%s", error.text);
    expect_old_file(&old);
    assert_int_equal(umount(folder), 0);
    assert_int_equal(first, 0);
    assert_int_equal(full, -1);
    assert_non_null(strstr(full_text, strerror(ENOSPC)));
    assert_int_equal(remounted, 0);
    assert_int_equal(read_only, -1);
    assert_non_null(strstr(read_only_text, strerror(EROFS)));
    kvg_results_free(&old);
    kvg_results_free(&new);
}

static void devices_folders_and_odd_targets(void **state)
{
    (void)state;
    struct kvg_results in;
    struct kvg_error error = {0};
    struct stat info;
    sample_results(&in, 1);
    assert_int_equal(kvg_file_write("/dev/full", &in, &error), -1);
    assert_int_equal(error.exit_code, KVG_EXIT_TROUBLE);
    assert_int_equal(stat("/dev/full", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    assert_int_equal(kvg_file_write(folder, &in, &error), -1);
    assert_non_null(strstr(error.text, "is a folder"));
    assert_int_equal(kvg_file_write("/nonexistent/run.h5", &in, &error), -1);
    assert_non_null(strstr(error.text, strerror(ENOENT)));
    char target[160];
    snprintf(target, sizeof(target), "%s/target.h5", folder); /* a link stays a link */
    sample_write(target, "old", 3);
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(kvg_file_write(path, &in, &error), 0);
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(lstat(target, &info), 0);
    assert_true(S_ISREG(info.st_mode) && info.st_size > 1000);
    in.rows[0].status = 4711;
    assert_int_equal(kvg_file_write(path, &in, &error), -1);
    assert_non_null(strstr(error.text, "4711"));
    kvg_results_free(&in);
}

/* The files of results/published/, with the numbers of rows that its README.md and the files' tables
 * state. */
static void published_files_open(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t rows, passed;
    } files[] = {{"h200/h200.h5", 420, 420}, {"cpu-zen3/quick.h5", 556, 555}};
    const char *source = getenv("KVG_SOURCE");
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct kvg_results results;
        struct kvg_error error = {0};
        char name[4096];
        int64_t passed = 0;
        snprintf(name, sizeof(name), "%s/results/published/%s", source ? source : ".", files[i].name);
        if (kvg_results_read(name, &results, &error))
            fail_msg("%s", error.text);
        for (int64_t r = 0; r < results.count; r++)
            passed += results.rows[r].status == KVG_PASSED;
        assert_int_equal(results.count, files[i].rows);
        assert_int_equal(passed, files[i].passed);
        kvg_results_free(&results);
    }
}

static void nothing_is_printed_by_hdf5(void **state)
{
    (void)state;
    char capture[160];
    size_t size = 0;
    snprintf(capture, sizeof(capture), "%s/stderr", folder);
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    assert_non_null(freopen(capture, "w", stderr));
    sample_write(path, "\x89HDF\r\n\x1a\n and then nothing", 25);
    struct kvg_results out;
    struct kvg_error error = {0};
    int failed = kvg_file_read(path, &out, &error);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    assert_int_equal(failed, -1);
    assert_non_null(strstr(error.text, "cannot open it: damaged"));
    free(sample_read(capture, &size));
    assert_int_equal(size, 0);
}

/* ---------------------------------------------------------------- locks, links and kinds of files */

static int flock_errno; /* what flock(2) fails with, as on a file system without locks; 0: it works */

/* HDF5 calls this one too: a symbol of the program goes before the C library's. */
int flock(int fd, int operation)
{
    if (flock_errno) {
        errno = flock_errno;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, operation);
}

static void write_sample(int64_t rows)
{
    struct kvg_results in;
    struct kvg_error error = {0};
    sample_results(&in, rows);
    assert_int_equal(kvg_file_write(path, &in, &error), 0);
    kvg_results_free(&in);
}

static void refuse_to_read(const char *name, int exit_code, const char *words)
{
    struct kvg_results out;
    struct kvg_error error = {0};
    assert_int_equal(kvg_results_read(name, &out, &error), -1);
    assert_int_equal(error.exit_code, exit_code);
    if (!strstr(error.text, words))
        fail_msg("'%s' does not say '%s'", error.text, words);
}

static void read_again(int64_t rows)
{
    struct kvg_results out;
    struct kvg_error error = {0};
    if (kvg_results_read(path, &out, &error))
        fail_msg("%s", error.text);
    assert_int_equal(out.count, rows);
    kvg_results_free(&out);
}

static void a_locked_file_is_not_called_damaged(void **state)
{
    (void)state;
    write_sample(3);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    refuse_to_read(path, KVG_EXIT_TROUBLE, "another process has locked it");
    refuse_to_read(path, KVG_EXIT_TROUBLE, "HDF5_USE_FILE_LOCKING=FALSE");
    close(fd);
    read_again(3);
}

static void a_file_system_without_locks_is_no_obstacle(void **state)
{
    (void)state;
    static const int failures[] = {ENOSYS, ENOLCK, EOPNOTSUPP, 524}; /* 524: ENOTSUPP of the kernel's NFS */
    write_sample(3);
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        flock_errno = failures[i];
        read_again(3);
        flock_errno = 0;
    }
}

static void a_file_cut_short_is_called_so(void **state)
{
    (void)state;
    struct stat info;
    write_sample(3);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size - 1), 0);
    refuse_to_read(path, KVG_EXIT_USAGE, "cut short");
}

static void pipes_and_devices_are_refused_at_once(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(20);
    refuse_to_read(path, KVG_EXIT_USAGE, "is a pipe or a device");
    refuse_to_read("/dev/zero", KVG_EXIT_USAGE, "is a pipe or a device");
    alarm(0);
}

/* The column `seed` of a good file, made again so that its values lie in another file. */
static void values_elsewhere_are_not_read(void **state)
{
    (void)state;
    char other[160];
    snprintf(other, sizeof(other), "%s/other.h5", folder);
    const hsize_t rows = 3;
    for (int kind = 0; kind < 4; kind++) {
        write_sample(3);
        assert_int_equal(rename(path, other), 0);
        write_sample(3);
        hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), space = H5Screate_simple(1, &rows, NULL);
        hid_t list = H5Pcreate(H5P_DATASET_CREATE), set = H5I_INVALID_HID;
        assert_true(file >= 0 && space >= 0 && list >= 0);
        assert_true(H5Ldelete(file, kind == 3 ? "results" : "results/seed", H5P_DEFAULT) >= 0);
        if (kind == 0)
            assert_true(H5Lcreate_external(other, "results/seed", file, "results/seed", H5P_DEFAULT,
                                           H5P_DEFAULT) >= 0);
        else if (kind == 1)
            assert_true(H5Pset_external(list, "/dev/zero", 0, 3 * 8) >= 0);
        else if (kind == 2)
            assert_true(H5Pset_virtual(list, space, other, "results/seed", space) >= 0);
        else
            assert_true(H5Lcreate_external(other, "results", file, "results", H5P_DEFAULT, H5P_DEFAULT) >= 0);
        if (kind == 1 || kind == 2) {
            set = H5Dcreate2(file, "results/seed", H5T_STD_I64LE, space, H5P_DEFAULT, list, H5P_DEFAULT);
            assert_true(set >= 0);
            H5Dclose(set);
        }
        H5Pclose(list);
        H5Sclose(space);
        H5Fclose(file);
        refuse_to_read(path, KVG_EXIT_USAGE, kind == 3 ? "the group /results" : "seed");
    }
}

/* 6 rows hold at most 6 * 256 samples of 4 bytes and 6 * 120 cells of 8, twice; the rest is text and HDF5's
 * own. Chunks of 64 and 256 rows took more than 500 kB. */
static void a_short_file_is_small(void **state)
{
    (void)state;
    struct stat info;
    write_sample(6);
    assert_int_equal(stat(path, &info), 0);
    assert_in_range(info.st_size, 1, 300000);
    read_again(6);
}

int main(void)
{
#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(round_trip_is_exact),
        IN_FOLDER(layout_is_what_others_can_open),
        IN_FOLDER(foreign_files_are_refused),
        IN_FOLDER(newer_schema_is_refused_and_newer_minor_is_read),
        IN_FOLDER(wrong_types_and_lengths_are_refused),
        IN_FOLDER(damaged_files_never_crash),
        IN_FOLDER(a_write_that_does_not_fit_leaves_the_old_file),
        IN_FOLDER(a_full_or_read_only_disk_leaves_the_old_file),
        IN_FOLDER(devices_folders_and_odd_targets),
        IN_FOLDER(nothing_is_printed_by_hdf5),
        IN_FOLDER(a_locked_file_is_not_called_damaged),
        IN_FOLDER(a_file_system_without_locks_is_no_obstacle),
        IN_FOLDER(a_file_cut_short_is_called_so),
        IN_FOLDER(pipes_and_devices_are_refused_at_once),
        IN_FOLDER(values_elsewhere_are_not_read),
        IN_FOLDER(a_short_file_is_small),
        cmocka_unit_test(published_files_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
