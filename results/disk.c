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
