/* SPDX-License-Identifier: Apache-2.0
 *
 * accidents.c: a plug-in for the tests of kvgauge. Its kernels compute right outputs, and each does one thing that
 * would mislead a careless harness: it forks, leaves the process changed, dies while it is asked. The kernel's name says
 * what. The plug-in itself fails while it is loaded, if the variable KVG_ACCIDENT of the environment says how, and the
 * variable KVG_ACCIDENT_NAME renames its first kernel.
 *
 *   gcc -shared -fPIC -fopenmp -I kernels -o accidents.so tests/plugins/accidents.c -lm -lpthread
 */
#define _GNU_SOURCE
#define kvg_plugin_kernels faulty_kernels
#include "faulty.c"
#undef kvg_plugin_kernels

#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* ---- while it is loaded ---- */

static void happen(const char *where)
{
    const char *what = getenv("KVG_ACCIDENT");
    if (!what || strncmp(what, where, strlen(where)) != 0)
        return;
    what += strlen(where);
    if (strcmp(what, "_aborts") == 0)
        abort();
    if (strcmp(what, "_exits") == 0)
        exit(0);
    while (strcmp(what, "_hangs") == 0)
        pause();
    if (strcmp(what, "_crashes") == 0)
        raise(SIGSEGV);
    if (strcmp(what, "_rounds") == 0)
        fesetround(FE_UPWARD);
}

__attribute__((constructor)) static void construct(void)
{
    happen("constructor");
}

/* ---- in supports and rank_for ---- */

static int supports_aborts(const struct kvg_problem *p, char *why, size_t size)
{
    return supports(p, why, size) ? (abort(), 1) : 0;
}

static int supports_exits(const struct kvg_problem *p, char *why, size_t size)
{
    return supports(p, why, size) ? (exit(0), 1) : 0;
}

static int supports_hangs(const struct kvg_problem *p, char *why, size_t size)
{
    while (supports(p, why, size))
        pause();
    return 0;
}

/* No accident: what it declares must reach the process that plans a check. */
static void tile_of_96(const struct kvg_problem *p, int64_t seq_len, struct kvg_arithmetic *out)
{
    arithmetic(p, seq_len, out);
    out->tile = 96;
    out->qk_chain = 32; /* it adds in double */
}

static int rank_aborts(const struct kvg_problem *p)
{
    (void)p;
    abort();
}

/* ---- in a call ---- */

static int forks(const struct kvg_attention_args *a)
{
    right(a);
    if (fork() < 0)
        return KVG_EDEVICE;
    return KVG_OK; /* in both processes */
}

/* Writes text on every descriptor from 3 on. */
static int scribbles(const struct kvg_attention_args *a)
{
    right(a);
    for (int fd = 3; fd < 1024; fd++)
        if (write(fd, "scribble\n", 9) < 0)
            continue;
    return KVG_OK;
}

static int closes_3(const struct kvg_attention_args *a)
{
    right(a);
    close(3);
    return KVG_OK;
}

static int closes_all(const struct kvg_attention_args *a)
{
    right(a);
    for (int fd = 0; fd < 1024; fd++)
        close(fd);
    return KVG_OK;
}

static int closes_stderr(const struct kvg_attention_args *a)
{
    right(a);
    close(2);
    return KVG_OK;
}

static int opens(const struct kvg_attention_args *a)
{
    right(a);
    return open("/dev/null", O_RDONLY) < 0 ? KVG_EDEVICE : KVG_OK;
}

static int rounds_upward(const struct kvg_attention_args *a)
{
    right(a);
    fesetround(FE_UPWARD);
    return KVG_OK;
}

/* As code that is linked with -ffast-math does. */
static void flush_subnormals(void)
{
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#elif defined(__aarch64__)
    __builtin_aarch64_set_fpcr64(__builtin_aarch64_get_fpcr64() | 1 << 24);
#endif
}

static int flushes(const struct kvg_attention_args *a)
{
    right(a);
    flush_subnormals();
    return KVG_OK;
}

/* Only in the other threads of its team. */
static int flushes_in_team(const struct kvg_attention_args *a)
{
    right(a);
#pragma omp parallel num_threads(a->problem->threads)
    if (omp_get_thread_num() > 0)
        flush_subnormals();
    return KVG_OK;
}

static int blocks_signals(const struct kvg_attention_args *a)
{
    sigset_t set;
    right(a);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    return sigprocmask(SIG_BLOCK, &set, NULL);
}

static int handles_signals(const struct kvg_attention_args *a)
{
    right(a);
    signal(SIGFPE, SIG_IGN);
    return KVG_OK;
}

static int changes_locale(const struct kvg_attention_args *a)
{
    right(a);
    return setlocale(LC_NUMERIC, "C.UTF-8") ? KVG_OK : KVG_EINVAL;
}

static int changes_folder(const struct kvg_attention_args *a)
{
    right(a);
    return chdir("/");
}

static int changes_umask(const struct kvg_attention_args *a)
{
    right(a);
    umask(0777);
    return KVG_OK;
}

static int pins_itself(const struct kvg_attention_args *a)
{
    cpu_set_t set;
    right(a);
    sched_getaffinity(0, sizeof set, &set);
    for (int cpu = 0, kept = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set) && kept++)
            CPU_CLR(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set);
}

static int sets_openmp(const struct kvg_attention_args *a)
{
    right(a);
    omp_set_num_threads(7);
    omp_set_dynamic(!omp_get_dynamic());
    return KVG_OK;
}

static int sets_environment(const struct kvg_attention_args *a)
{
    right(a);
    return setenv("KVG_LEFT_BEHIND", "1", 1);
}

static int sets_a_timer(const struct kvg_attention_args *a)
{
    right(a);
    alarm(1000);
    return KVG_OK;
}

static int limits_itself(const struct kvg_attention_args *a)
{
    const struct rlimit none = {0, 0};
    right(a);
    return setrlimit(RLIMIT_CORE, &none);
}

static void *spin(void *unused)
{
    for (volatile int on = 1; on;)
        ;
    return unused;
}

static int leaves_a_thread(const struct kvg_attention_args *a)
{
    static int left;
    pthread_t thread;
    right(a);
    return left++ ? KVG_OK : pthread_create(&thread, NULL, spin, NULL);
}

static void *sleep_on(void *unused)
{
    for (;;)
        pause();
    return unused;
}

/* One thread more with each call. */
static int leaves_sleepers(const struct kvg_attention_args *a)
{
    pthread_t thread;
    right(a);
    return pthread_create(&thread, NULL, sleep_on, NULL);
}

/* A process that has left the session of the worker, and so is in no group that can be killed as one. */
static int leaves_a_daemon(const struct kvg_attention_args *a)
{
    static int left;
    const char *seconds = getenv("KVG_ACCIDENT_SECONDS"); /* by which a test knows its own daemon */
    right(a);
    if (left++ || fork())
        return KVG_OK;
    setsid();
    if (fork() == 0)
        execlp("sleep", "sleep", seconds ? seconds : "60", (char *)NULL);
    _exit(0);
}

/* Leaves a daemon and then dies, so that the daemon has no parent in kvgauge's tree but kvgauge. */
static int leaves_a_daemon_and_dies(const struct kvg_attention_args *a)
{
    leaves_a_daemon(a);
    raise(SIGSEGV);
    return KVG_OK;
}

#define ACCIDENT(id)                                                                                         \
    {                                                                                                        \
        .abi_version = KVG_KERNEL_ABI_VERSION, .struct_size = sizeof(struct kvg_kernel),                     \
        .name = "accident/" #id, .summary = "accident: " #id, .rank = -1, .supports = supports,              \
        .arithmetic = arithmetic, .attention = id                                                            \
    }
#define ASKED(id)                                                                                            \
    {                                                                                                        \
        .abi_version = KVG_KERNEL_ABI_VERSION, .struct_size = sizeof(struct kvg_kernel),                     \
        .name = "accident/" #id, .summary = "accident: " #id, .rank = -1, .supports = id,                    \
        .arithmetic = arithmetic, .attention = right                                                         \
    }
static struct kvg_kernel all[] = {
    {.abi_version = KVG_KERNEL_ABI_VERSION,
     .struct_size = sizeof(struct kvg_kernel),
     .name = "accident/none",
     .summary = "no accident",
     .rank = -1,
     .supports = supports,
     .arithmetic = arithmetic,
     .attention = right},
    {.abi_version = KVG_KERNEL_ABI_VERSION,
     .struct_size = sizeof(struct kvg_kernel),
     .name = "accident/tile_96",
     .summary = "no accident: tiles of 96 keys",
     .rank = -1,
     .supports = supports,
     .arithmetic = tile_of_96,
     .attention = right},
    ACCIDENT(forks),
    ACCIDENT(scribbles),
    ACCIDENT(closes_3),
    ACCIDENT(closes_all),
    ACCIDENT(closes_stderr),
    ACCIDENT(opens),
    ACCIDENT(rounds_upward),
    ACCIDENT(flushes),
    ACCIDENT(flushes_in_team),
    ACCIDENT(blocks_signals),
    ACCIDENT(handles_signals),
    ACCIDENT(changes_locale),
    ACCIDENT(changes_folder),
    ACCIDENT(changes_umask),
    ACCIDENT(pins_itself),
    ACCIDENT(sets_openmp),
    ACCIDENT(sets_environment),
    ACCIDENT(sets_a_timer),
    ACCIDENT(limits_itself),
    ACCIDENT(leaves_a_thread),
    ACCIDENT(leaves_sleepers),
    ACCIDENT(leaves_a_daemon),
    ACCIDENT(leaves_a_daemon_and_dies),
    ASKED(supports_aborts),
    ASKED(supports_exits),
    ASKED(supports_hangs),
    {.abi_version = KVG_KERNEL_ABI_VERSION,
     .struct_size = sizeof(struct kvg_kernel),
     .name = "accident/rank_aborts",
     .summary = "accident: rank_aborts",
     .rank = -1,
     .supports = supports,
     .arithmetic = arithmetic,
     .attention = right,
     .rank_for = rank_aborts},
};
enum { ALL = sizeof all / sizeof all[0] };

const struct kvg_kernel *const *kvg_plugin_kernels(int64_t *count);
const struct kvg_kernel *const *kvg_plugin_kernels(int64_t *count)
{
    static const struct kvg_kernel *list[ALL];
    const char *name = getenv("KVG_ACCIDENT_NAME");
    happen("entry");
    if (name)
        all[0].name = name;
    for (int i = 0; i < ALL; i++)
        list[i] = &all[i];
    *count = ALL;
    return list;
}
