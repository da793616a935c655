/* SPDX-License-Identifier: Apache-2.0
 *
 * captured_probe.c: checks that HDF5 can read a file. The HDF5 library does not validate what it reads and
 * can crash on a damaged file, so a child process reads the file first.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "parts.h"

/* Limits of the child: no core file; no message on the terminal when a library notices the damage; 3 s of
 * CPU time, against an endless loop; 4 GiB of address space, against a damaged length. */
static void child(const char *path, void (*look)(const char *path))
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGXCPU};
    const struct rlimit no_core = {0, 0}, few_seconds = {3, 3};
    int null = open("/dev/null", O_WRONLY);
    setrlimit(RLIMIT_CORE, &no_core);
    setrlimit(RLIMIT_CPU, &few_seconds);
#ifndef __SANITIZE_ADDRESS__ /* its shadow memory takes terabytes of address space */
    const struct rlimit modest = {(rlim_t)4 << 30, (rlim_t)4 << 30};
    setrlimit(RLIMIT_AS, &modest);
#endif
    if (null < 0 || dup2(null, STDERR_FILENO) < 0)
        _exit(1);
    for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++)
        signal(fatal[i], SIG_DFL);
    look(path);
    _exit(0);
}

int kvg_captured_survives(const char *path, void (*look)(const char *path))
{
    /* A plan asks once for each of its cases, so the last file that passed is remembered. */
    static _Thread_local struct stat last;
    struct stat now;
    int status;
    if (stat(path, &now))
        return 0;
    if (now.st_dev == last.st_dev && now.st_ino == last.st_ino && now.st_size == last.st_size &&
        now.st_mtim.tv_sec == last.st_mtim.tv_sec && now.st_mtim.tv_nsec == last.st_mtim.tv_nsec &&
        now.st_ctim.tv_sec == last.st_ctim.tv_sec && now.st_ctim.tv_nsec == last.st_ctim.tv_nsec)
        return 1;
    pid_t pid = fork();
    if (pid < 0)
        return 1; /* no process available: go on without this check */
    if (pid == 0)
        child(path, look);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return 1; /* the result is not available: go on without this check */
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        return 0;
    last = now;
    return 1;
}
