/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.c: see doctor.h.
 */
#include "doctor.h"
#include "harness/machine/caches.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

double kvg_doctor_read_cpu_quota(char *text, size_t size)
{
    char line[64];
    long long quota, period;
    snprintf(text, size, "/sys/fs/cgroup/cpu.max");
    if (kvg_read_line(text, line, sizeof line) == 0 && sscanf(line, "%lld %lld", &quota, &period) == 2 &&
        period > 0)
        return (double)quota / (double)period;
    snprintf(text, size, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
    if (kvg_read_line(text, line, sizeof line) || sscanf(line, "%lld", &quota) != 1 || quota <= 0)
        return 0;
    if (kvg_read_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", line, sizeof line) ||
        sscanf(line, "%lld", &period) != 1 || period <= 0)
        return 0;
    return (double)quota / (double)period;
}

int kvg_doctor_find_program(const char *name, char *path, size_t size)
{
    const char *folder = getenv("PATH");
    while (folder && *folder) {
        size_t length = strcspn(folder, ":");
        int n = snprintf(path, size, "%.*s/%s", (int)length, folder, name);
        if (length > 0 && n > 0 && (size_t)n < size && access(path, X_OK) == 0)
            return 0;
        folder += length + (folder[length] == ':');
    }
    return -1;
}

void kvg_doctor_read_first_line(const char *command, char *text, size_t size)
{
    text[0] = '\0';
    FILE *pipe = popen(command, "r");
    if (!pipe)
        return;
    if (!fgets(text, (int)size, pipe))
        text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    pclose(pipe);
}

int kvg_doctor_find_library(const char *soname, const char *const *folders, char *path, size_t size)
{
    void *library = dlopen(soname, RTLD_LAZY | RTLD_LOCAL);
    for (; !library && folders && *folders; folders++) {
        char pattern[256];
        glob_t found;
        snprintf(pattern, sizeof pattern, "%s/%s", *folders, soname);
        if (glob(pattern, 0, NULL, &found))
            continue;
        for (size_t i = found.gl_pathc; i > 0 && !library; i--)
            library = dlopen(found.gl_pathv[i - 1], RTLD_LAZY | RTLD_LOCAL);
        globfree(&found);
    }
    if (!library)
        return -1;
    struct link_map *map = NULL;
    snprintf(path, size, "%s",
             dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && *map->l_name ? map->l_name : soname);
    dlclose(library);
    return 0;
}

void kvg_doctor_cut_to_folder(char *path)
{
    while (*path && access(path, F_OK)) {
        char *slash = strrchr(path, '/');
        if (!slash)
            strcpy(path, ".");
        else
            slash[slash == path] = '\0';
    }
}

int kvg_doctor_try_to_write(const char *folder)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/.kvgauge-doctor-XXXXXX", folder);
    int file = mkstemp(path);
    if (file < 0)
        return -1;
    int failed = write(file, "kvgauge\n", 8) != 8 || fsync(file) != 0;
    int reason = errno;
    close(file);
    unlink(path);
    errno = reason;
    return failed ? -1 : 0;
}
