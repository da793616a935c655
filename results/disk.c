/* SPDX-License-Identifier: Apache-2.0
 *
 * disk.c: whole writes, and folders that remember their names.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "disk.h"

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
