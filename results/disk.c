/* SPDX-License-Identifier: Apache-2.0
 *
 * disk.c: see disk.h.
 */
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int kvg_write_whole(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        data += n;
        size -= (size_t)n;
    }
    return 0;
}

void kvg_sync_folder_of(const char *path)
{
    char *copy = strdup(path);
    int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(copy);
    if (fd < 0)
        return;
    (void)fsync(fd);
    close(fd);
}

int kvg_make_folders(const char *path, struct kvg_error *error)
{
    char part[PATH_MAX];
    if (snprintf(part, sizeof(part), "%s", path) >= (int)sizeof(part))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%.200s...: name too long", path);
    for (char *c = part + 1;; c++) {
        if (*c != '/' && *c != '\0')
            continue;
        char saved = *c;
        *c = '\0';
        if (mkdir(part, 0777) && errno != EEXIST)
            return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot create the folder: %s", part,
                            strerror(errno));
        *c = saved;
        if (!saved)
            break;
    }
    struct stat info;
    if (stat(path, &info) || !S_ISDIR(info.st_mode))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: is not a folder", path);
    return 0;
}

int kvg_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int kvg_same_folder(const char *a, const char *b)
{
    char *x = strdup(a), *y = strdup(b);
    int same = x && y && kvg_same_file(dirname(x), dirname(y));
    free(x);
    free(y);
    return same;
}

FILE *kvg_create_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (fd >= 0 && !file)
        close(fd);
    return file;
}

int kvg_lock_failure(const char *path)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return 0; /* opening the file again will fail in the same way */
    int why = flock(fd, LOCK_SH | LOCK_NB) ? errno : 0;
    close(fd);
    return why;
}

/* The first bytes of a regular file; 0 bytes of anything else. */
static size_t read_head(const char *path, char *head, size_t size)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? read(fd, head, size) : 0;
    if (fd >= 0)
        close(fd);
    return n > 0 ? (size_t)n : 0;
}

int kvg_begins_as_hdf5(const char *path)
{
    static const char signature[8] = {'\x89', 'H', 'D', 'F', '\r', '\n', '\x1a', '\n'};
    char head[8];
    return read_head(path, head, sizeof(head)) == sizeof(head) && memcmp(head, signature, sizeof(head)) == 0;
}

static int begins_as_journal(const char *path)
{
    static const char begin[] = "{\"kvgauge_journal\"";
    char head[sizeof(begin) - 1];
    return read_head(path, head, sizeof(head)) == sizeof(head) && memcmp(head, begin, sizeof(head)) == 0;
}

int kvg_check_output(const char *output, const char *input, int hdf5, struct kvg_error *error)
{
    struct stat info;
    if (stat(output, &info) || !S_ISREG(info.st_mode))
        return 0; /* a new file, or something that the writer itself judges */
    if (input && kvg_same_file(output, input))
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "%s: is the file that is read (%.300s); another name would be right", output, input);
    if (begins_as_journal(output))
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "%s: is a journal of kvgauge, and would be lost; another name would be right",
                        output);
    if (!hdf5 && kvg_begins_as_hdf5(output))
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "%s: is an HDF5 file, and would be lost; another name would be right", output);
    if (hdf5 && info.st_size > 0 && !kvg_begins_as_hdf5(output))
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "%s: exists and is no HDF5 file, and would be lost; another name would be right",
                        output);
    return 0;
}
