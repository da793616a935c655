/* SPDX-License-Identifier: Apache-2.0
 *
 * state.c: takes, compares and restores the state of this process.
 */
#include "state.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <omp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/execute/session.h"
#include "harness/machine/fp_control.h"
#include "harness/machine/processes.h"

enum { SIGNALS = 65, MOST = 4096 };

/* The numbers in the names of a folder of /proc. */
struct numbers {
    int of[MOST];
    int64_t count;
};

struct descriptor {
    dev_t device;
    ino_t inode;
};

struct kvg_state {
    struct kvg_fp_control fp;
    sigset_t mask;
    struct sigaction handlers[SIGNALS];
    char *locale, **environment;
    locale_t thread_locale;
    char folder[PATH_MAX];
    mode_t umask;
    cpu_set_t cpus;
    int priority;
    struct rlimit limits[RLIM_NLIMITS];
    int omp_threads, omp_dynamic, omp_levels, omp_chunk;
    omp_sched_t omp_schedule;
    struct numbers tasks, descriptors;
    struct descriptor open[MOST]; /* of each descriptor */
    struct kvg_processes children;
};

static void say(struct kvg_state_changes *changes, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void say(struct kvg_state_changes *changes, const char *format, ...)
{
    const size_t used = strlen(changes->text), room = sizeof changes->text - used;
    va_list args;
    int n = snprintf(changes->text + used, room, "%s", used ? ", " : "");
    va_start(args, format);
    if (n >= 0 && (size_t)n < room)
        vsnprintf(changes->text + used + n, room - (size_t)n, format, args);
    va_end(args);
}

/* ---- lists ---- */

static void list_numbers(const char *path, struct numbers *list)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    list->count = 0;
    while (folder && (entry = readdir(folder)) && list->count < MOST) {
        char *end;
        const long n = strtol(entry->d_name, &end, 10);
        if (end != entry->d_name && !*end && n != dirfd(folder))
            list->of[list->count++] = (int)n;
    }
    if (folder)
        closedir(folder);
}

/* The place of n in the list; -1 if it is not there. */
static int64_t find_number(const struct numbers *list, int n)
{
    for (int64_t i = 0; i < list->count; i++)
        if (list->of[i] == n)
            return i;
    return -1;
}

static struct descriptor describe(int fd)
{
    struct stat s;
    struct descriptor d = {0};
    if (fstat(fd, &s) == 0)
        d = (struct descriptor){s.st_dev, s.st_ino};
    return d;
}

static char **copy_environment(void)
{
    int64_t n = 0;
    while (environ && environ[n])
        n++;
    char **copy = calloc((size_t)n + 1, sizeof *copy);
    for (int64_t i = 0; copy && i < n; i++)
        copy[i] = strdup(environ[i]);
    return copy;
}

static void free_strings(char **list)
{
    for (int64_t i = 0; list && list[i]; i++)
        free(list[i]);
    free(list);
}

static mode_t umask_now(void)
{
    const mode_t mask = umask(0);
    umask(mask);
    return mask;
}

struct kvg_state *kvg_state_take(void)
{
    struct kvg_state *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    kvg_fp_control_get(&s->fp);
    sigprocmask(SIG_SETMASK, NULL, &s->mask);
    for (int i = 1; i < SIGNALS; i++)
        sigaction(i, NULL, &s->handlers[i]);
    const char *name = setlocale(LC_ALL, NULL);
    s->locale = strdup(name ? name : "C");
    s->thread_locale = uselocale((locale_t)0);
    if (!getcwd(s->folder, sizeof s->folder))
        s->folder[0] = '\0';
    s->umask = umask_now();
    sched_getaffinity(0, sizeof s->cpus, &s->cpus);
    s->priority = getpriority(PRIO_PROCESS, 0);
    for (int i = 0; i < RLIM_NLIMITS; i++)
        getrlimit((__rlimit_resource_t)i, &s->limits[i]);
    s->omp_threads = omp_get_max_threads();
    s->omp_dynamic = omp_get_dynamic();
    s->omp_levels = omp_get_max_active_levels();
    omp_get_schedule(&s->omp_schedule, &s->omp_chunk);
    s->environment = copy_environment();
    list_numbers("/proc/self/task", &s->tasks);
    list_numbers("/proc/self/fd", &s->descriptors);
    for (int64_t i = 0; i < s->descriptors.count; i++)
        s->open[i] = describe(s->descriptors.of[i]);
    kvg_processes_children(getpid(), &s->children);
    if (s->locale && s->environment)
        return s;
    kvg_state_free(s);
    return NULL;
}

void kvg_state_free(struct kvg_state *state)
{
    if (!state)
        return;
    free(state->locale);
    free_strings(state->environment);
    free(state);
}

/* ---- each part ---- */

/* At least two threads: a kernel of one thread is also called with two. */
static void mend_arithmetic(const struct kvg_state *s, int64_t threads, struct kvg_state_changes *changes)
{
    struct kvg_fp_control found;
    char words[256];
    int64_t team = threads > s->omp_threads ? threads : s->omp_threads;
    if (!kvg_fp_control_restore(&s->fp, team > 2 ? team : 2, &found))
        return;
    kvg_fp_control_describe(&s->fp, &found, words, sizeof words);
    say(changes, "%s", words);
    changes->forbidden = 1;
}

/* The C library sets SA_RESTORER in every handler that it installs, also in one that is put back. */
#ifndef SA_RESTORER
#define SA_RESTORER 0x04000000
#endif

static int same_handler(const struct sigaction *a, const struct sigaction *b)
{
    return a->sa_handler == b->sa_handler && (a->sa_flags & ~SA_RESTORER) == (b->sa_flags & ~SA_RESTORER);
}

static void mend_signals(const struct kvg_state *s, struct kvg_state_changes *changes)
{
    sigset_t mask;
    sigprocmask(SIG_SETMASK, &s->mask, &mask);
    for (int i = 1; i < SIGNALS; i++)
        if (sigismember(&mask, i) != sigismember(&s->mask, i)) {
            say(changes, "the signal mask");
            break;
        }
    for (int i = 1; i < SIGNALS; i++) {
        struct sigaction now;
        const char *name = sigabbrev_np(i);
        if (sigaction(i, NULL, &now) || same_handler(&now, &s->handlers[i]))
            continue;
        sigaction(i, &s->handlers[i], NULL);
        say(changes, "the handler of SIG%s", name ? name : "?");
    }
}

static void mend_locale(const struct kvg_state *s, struct kvg_state_changes *changes)
{
    const char *now = setlocale(LC_ALL, NULL);
    if (uselocale((locale_t)0) != s->thread_locale) {
        uselocale(s->thread_locale);
        say(changes, "the locale of the thread");
    }
    if (now && strcmp(now, s->locale) == 0)
        return;
    say(changes, "the locale (%.60s)", now ? now : "?");
    setlocale(LC_ALL, s->locale);
}

static void mend_places(const struct kvg_state *s, struct kvg_state_changes *changes)
{
    char folder[PATH_MAX];
    if (!getcwd(folder, sizeof folder))
        folder[0] = '\0';
    if (strcmp(folder, s->folder) != 0) {
        say(changes, "the working directory (%.120s)", folder);
        changes->lasting |= chdir(s->folder) != 0;
    }
    const mode_t mask = umask(s->umask);
    if (mask != s->umask)
        say(changes, "the umask (%03o)", (unsigned)mask);
}

/* A timer would send its signal in a later row. A limit or a priority that was lowered cannot be raised again. */
static void mend_limits(const struct kvg_state *s, struct kvg_state_changes *changes)
{
    static const __itimer_which_t timers[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};
    for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++) {
        const struct itimerval none = {0};
        struct itimerval left;
        if (getitimer(timers[i], &left) || (!left.it_value.tv_sec && !left.it_value.tv_usec))
            continue;
        setitimer(timers[i], &none, NULL);
        say(changes, "a timer");
    }
    if (getpriority(PRIO_PROCESS, 0) != s->priority) {
        say(changes, "the priority (%d)", getpriority(PRIO_PROCESS, 0));
        changes->lasting = 1;
    }
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit now;
        if (getrlimit((__rlimit_resource_t)i, &now) ||
            (now.rlim_cur == s->limits[i].rlim_cur && now.rlim_max == s->limits[i].rlim_max))
            continue;
        say(changes, "resource limit %d", i);
        changes->lasting = 1;
    }
}

static int same_environment(char *const *wanted)
{
    int64_t i = 0;
    for (; wanted[i] && environ && environ[i]; i++)
        if (strcmp(wanted[i], environ[i]) != 0)
            return 0;
    return !wanted[i] && (!environ || !environ[i]);
}

static void mend_environment(const struct kvg_state *s, struct kvg_state_changes *changes)
{
    if (same_environment(s->environment))
        return;
    say(changes, "the environment");
    clearenv();
    for (int64_t i = 0; s->environment[i]; i++) {
        char *copy = strdup(s->environment[i]), *value = copy ? strchr(copy, '=') : NULL;
        if (value) {
            *value = '\0';
            setenv(copy, value + 1, 1);
        }
        free(copy);
    }
}

/* The threads of a team may have been pinned as well: then only another process is as before. */
static void mend_team(const struct kvg_state *s, struct kvg_state_changes *changes)
{
    cpu_set_t cpus;
    omp_sched_t schedule;
    int chunk;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0 && !CPU_EQUAL(&cpus, &s->cpus)) {
        say(changes, "the CPU affinity (%d of %d CPUs)", CPU_COUNT(&cpus), CPU_COUNT(&s->cpus));
        sched_setaffinity(0, sizeof s->cpus, &s->cpus);
        changes->lasting = 1;
    }
    if (omp_get_max_threads() != s->omp_threads)
        say(changes, "the number of OpenMP threads (%d)", omp_get_max_threads());
    if (omp_get_dynamic() != s->omp_dynamic)
        say(changes, "dynamic teams of OpenMP");
    if (omp_get_max_active_levels() != s->omp_levels)
        say(changes, "nested teams of OpenMP");
    omp_get_schedule(&schedule, &chunk);
    if (schedule != s->omp_schedule || chunk != s->omp_chunk)
        say(changes, "the schedule of OpenMP");
    omp_set_num_threads(s->omp_threads);
    omp_set_dynamic(s->omp_dynamic);
    omp_set_max_active_levels(s->omp_levels);
    omp_set_schedule(s->omp_schedule, s->omp_chunk);
}

static void mend_descriptors(const struct kvg_state *s, int look_for_new, struct kvg_state_changes *changes)
{
    static struct numbers now;
    int64_t opened = 0, closed = 0;
    list_numbers("/proc/self/fd", &now);
    for (int64_t i = 0; i < s->descriptors.count; i++) {
        const struct descriptor d = describe(s->descriptors.of[i]);
        closed += d.device != s->open[i].device || d.inode != s->open[i].inode;
    }
    for (int64_t i = 0; i < now.count && look_for_new; i++)
        opened += find_number(&s->descriptors, now.of[i]) < 0 && fcntl(now.of[i], F_GETFD) >= 0;
    if (closed)
        say(changes, "%lld closed or changed descriptor%s of kvgauge", (long long)closed,
            closed > 1 ? "s" : "");
    if (opened)
        say(changes, "%lld open descriptor%s", (long long)opened, opened > 1 ? "s" : "");
    changes->lasting |= opened || closed;
}

/* 1 if the thread is on a CPU, or waits for one. */
static int runs(int task)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", task);
    FILE *f = fopen(path, "re");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    const char *after = strrchr(text, ')');
    return after && after[1] == ' ' && after[2] == 'R';
}

static int64_t count_running(const struct kvg_state *s, const struct numbers *now)
{
    int64_t running = 0;
    for (int64_t i = 0; i < now->count; i++)
        running += find_number(&s->tasks, now->of[i]) < 0 && runs(now->of[i]);
    return running;
}

/* Threads of OpenMP spin for less than a millisecond before they sleep, unless the user wants them to spin. On a busy
 * machine they wait for a CPU first: only a thread that runs for a quarter of a second counts. */
static void find_threads(const struct kvg_state *s, int64_t allowed, struct kvg_state_changes *changes)
{
    static struct numbers now;
    const struct timespec pause = {0, 10000000};
    const char *policy = getenv("OMP_WAIT_POLICY");
    list_numbers("/proc/self/task", &now);
    int64_t added = 0, running = policy && strcasecmp(policy, "active") == 0 ? 0 : count_running(s, &now);
    for (int64_t i = 0; i < now.count; i++)
        added += find_number(&s->tasks, now.of[i]) < 0;
    for (int look = 0; running && look < 25; look++) {
        nanosleep(&pause, NULL);
        running = count_running(s, &now);
    }
    if (running)
        say(changes, "%lld running thread%s", (long long)running, running > 1 ? "s" : "");
    else if (added > allowed)
        say(changes, "%lld threads", (long long)added);
    changes->lasting |= running || added > allowed;
}

/* Waits up to 0.2 s for processes that end by themselves: one that returned from a call a second time says so by its
 * exit code. */
static void end_children(const struct kvg_state *s, struct kvg_state_changes *changes)
{
    const struct timespec pause = {0, 2000000};
    siginfo_t info;
    int64_t left = 0, twice = 0;
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT))
        return; /* there is none: the usual case */
    for (int waits = 0; waits < 100;) {
        int status;
        const pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended < 0)
            break;
        left += ended > 0;
        twice += ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == KVG_RETURNED_TWICE;
        if (ended == 0) {
            nanosleep(&pause, NULL);
            waits++;
        }
    }
    left += kvg_processes_end_others(&s->children);
    if (twice)
        say(changes, "calls that returned in %lld other process%s too", (long long)twice,
            twice > 1 ? "es" : "");
    else if (left)
        say(changes, "%lld child process%s", (long long)left, left > 1 ? "es" : "");
    changes->forbidden |= twice > 0;
}

void kvg_state_mend(const struct kvg_state *state, int64_t threads, struct kvg_state_changes *changes)
{
    memset(changes, 0, sizeof *changes);
    mend_arithmetic(state, threads, changes);
    mend_signals(state, changes);
    mend_locale(state, changes);
    mend_places(state, changes);
    mend_limits(state, changes);
    mend_environment(state, changes);
    mend_team(state, changes);
    end_children(state, changes);
    if (threads >= 0)
        find_threads(state, threads + state->omp_threads, changes);
    mend_descriptors(state, threads >= 0, changes);
}
