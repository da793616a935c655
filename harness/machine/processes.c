/* SPDX-License-Identifier: Apache-2.0
 *
 * processes.c: children of a process, from /proc/PID/stat, and their end.
 */
#include "processes.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void kvg_processes_adopt(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* The parent of a process; 0 if it has ended. */
static pid_t parent_of(const char *id)
{
    char path[300], text[512];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%s/stat", id);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *after = strrchr(text, ')'); /* the name, in brackets, may hold anything */
    return after && sscanf(after + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

void kvg_processes_children(pid_t parent, struct kvg_processes *list)
{
    DIR *all = opendir("/proc");
    const struct dirent *entry;
    list->count = 0;
    while (all && (entry = readdir(all)) && list->count < KVG_PROCESSES_MOST)
        if (isdigit((unsigned char)entry->d_name[0]) && parent_of(entry->d_name) == parent)
            list->id[list->count++] = (pid_t)strtol(entry->d_name, NULL, 10);
    if (all)
        closedir(all);
}

static int holds(const struct kvg_processes *list, pid_t id)
{
    for (int64_t i = 0; list && i < list->count; i++)
        if (list->id[i] == id)
            return 1;
    return 0;
}

static struct kvg_processes noted;

void kvg_processes_note(pid_t child)
{
    if (noted.count < KVG_PROCESSES_MOST)
        noted.id[noted.count++] = child;
}

void kvg_processes_forget(pid_t child)
{
    for (int64_t i = 0; i < noted.count; i++)
        if (noted.id[i] == child)
            noted.id[i--] = noted.id[--noted.count];
}

/* A process that starts others faster than they can be killed does not keep this one for ever. */
enum { MOST_ROUNDS = 100 };

int64_t kvg_processes_end_others(const struct kvg_processes *keep)
{
    int64_t ended = 0, before = -1;
    for (int round = 0; round < MOST_ROUNDS && ended != before; round++) {
        struct kvg_processes now;
        kvg_processes_children(getpid(), &now);
        before = ended;
        for (int64_t i = 0; i < now.count; i++) {
            if (holds(keep, now.id[i]) || holds(&noted, now.id[i]))
                continue;
            kill(now.id[i], SIGKILL);
            while (waitpid(now.id[i], NULL, 0) < 0 && errno == EINTR)
                ;
            ended++;
        }
    }
    return ended;
}
