/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins.c: the child process that loads plug-ins, and the kernels that stand for theirs in this process.
 *
 * Messages have a fixed size, a magic number and the number of the question, so that bytes which a plug-in writes on
 * the socket by accident are no answer. The child is made by fork without exec. This is safe because this process
 * has used neither OpenMP nor a device.
 */
#include "plugins.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/case/case.h"
#include "harness/machine/clock.h"
#include "harness/machine/processes.h"
#include "kernels/registry.h"

_Static_assert(sizeof((struct kvg_case *)0)->kernel == KVG_KERNEL_NAME_MAX + 1, "a case holds every name");

#define MAGIC UINT64_C(0x6b76676b65726e31)
enum { WHY = 512, SUMMARY = 256, MOST_DEATHS = 8 };
enum { HAS_ARITHMETIC = 1, HAS_STORE = 2, HAS_QUANTIZE_Q = 4, HAS_ATTENTION = 8, HAS_RANK = 16 };

/* What the child says after it has loaded a plug-in: then `count` descriptions follow, the first time only. */
struct loaded {
    uint64_t magic;
    int64_t count; /* -1: refused, with the reason */
    char why[WHY];
};

struct description {
    uint64_t magic;
    char name[KVG_KERNEL_NAME_MAX + 1], summary[SUMMARY];
    enum kvg_device_kind device;
    int rank, has; /* has: set of HAS_* */
    uint64_t features;
};

enum question_kind { TAKES, RANK, ARITHMETIC };
struct question {
    uint64_t magic, number;
    enum question_kind kind;
    int64_t kernel; /* number of the kernel among those of all plug-ins */
    struct kvg_problem problem;
    int64_t seq_len; /* ARITHMETIC */
};

struct answer {
    uint64_t magic, number;
    int value;
    struct kvg_arithmetic arithmetic;
    char why[WHY];
};

/* The kernels listed here. */
struct stand_in {
    struct kvg_kernel kernel;
    struct description description;
    int deaths; /* of the child, at questions about this kernel */
    char last_words[WHY];
};

static struct {
    const char *const *paths;
    int64_t n_paths;
    struct stand_in **kernels;
    int64_t n_kernels;
    double seconds;
    uint64_t asked; /* number of the last question */
    pid_t child;    /* 0: none */
    int socket;
    struct kvg_processes before; /* children of this process when the child was started */
} host;

/* ---- both sides ---- */

/* -1 when the other side has ended, or does not send all of it in time. */
static int receive(int socket, void *to, size_t bytes, double seconds)
{
    const double deadline = kvg_now() + seconds;
    for (size_t got = 0; got < bytes;) {
        struct pollfd fd = {socket, POLLIN, 0};
        const double left = deadline - kvg_now();
        if (left <= 0)
            return -1;
        const int ready = poll(&fd, 1, left > 60 ? 60000 : (int)(1000 * left) + 1);
        if (ready == 0 || (ready < 0 && errno == EINTR))
            continue;
        const ssize_t n = ready > 0 ? read(socket, (char *)to + got, bytes - got) : -1;
        if (n < 0 && ready > 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        got += (size_t)n;
    }
    return 0;
}

static int transmit(int socket, const void *from, size_t bytes)
{
    for (size_t put = 0; put < bytes;) {
        const ssize_t n = send(socket, (const char *)from + put, bytes - put, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        put += (size_t)n;
    }
    return 0;
}

/* ---- the child ---- */

static pid_t self;

/* A process that a plug-in has forked, and that came back here, must not speak. */
static void say(int socket, const void *message, size_t bytes)
{
    if (getpid() != self || transmit(socket, message, bytes))
        _exit(1);
}

static void describe(int socket, const struct kvg_kernel *k)
{
    struct description d;
    memset(&d, 0, sizeof d);
    d.magic = MAGIC;
    snprintf(d.name, sizeof d.name, "%s", k->name);
    snprintf(d.summary, sizeof d.summary, "%s", k->summary);
    d.device = k->device;
    d.rank = k->rank;
    d.features = k->features;
    d.has = (k->arithmetic ? HAS_ARITHMETIC : 0) | (k->store ? HAS_STORE : 0) |
            (k->quantize_q ? HAS_QUANTIZE_Q : 0) | (k->attention ? HAS_ATTENTION : 0) |
            (k->rank_for ? HAS_RANK : 0);
    say(socket, &d, sizeof d);
}

/* Loads one plug-in and appends its kernels to `table`. `first`: the kernels are checked and described. */
static void load(int socket, const char *path, int first, const struct kvg_kernel ***table, int64_t *n)
{
    const struct kvg_kernel *const *list = NULL;
    struct loaded l;
    memset(&l, 0, sizeof l);
    l.magic = MAGIC;
    if (kvg_registry_open(path, &list, &l.count, l.why, sizeof l.why) ||
        (first && kvg_registry_add(path, list, l.count, l.why, sizeof l.why)) || !list)
        l.count = -1;
    say(socket, &l, sizeof l);
    if (l.count < 0)
        _exit(1);
    *table = realloc(*table, (size_t)(*n + l.count) * sizeof **table);
    if (!*table)
        _exit(1);
    for (int64_t i = 0; i < l.count; i++) {
        (*table)[(*n)++] = list[i];
        if (first)
            describe(socket, list[i]);
    }
}

static void reply(int socket, const struct kvg_kernel *kernel, const struct question *q)
{
    struct answer a;
    memset(&a, 0, sizeof a);
    a.magic = MAGIC;
    a.number = q->number;
    if (q->kind == RANK)
        a.value = kvg_kernel_rank(kernel, &q->problem);
    else if (q->kind == ARITHMETIC)
        kernel->arithmetic(&q->problem, q->seq_len, &a.arithmetic);
    else
        a.value = kvg_kernel_takes(kernel, &q->problem, a.why, sizeof a.why) != 0;
    a.why[sizeof a.why - 1] = '\0';
    say(socket, &a, sizeof a);
}

/* Only the socket and stderr of the parent stay open: a plug-in cannot write into its files. */
static int take_descriptors(int socket)
{
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC), high = fcntl(socket, F_DUPFD_CLOEXEC, 200);
    if (null < 0 || high < 0 || dup2(null, 0) < 0 || dup2(2, 1) < 0)
        _exit(1);
    close_range(3, (unsigned)high - 1, 0);
    close_range((unsigned)high + 1, ~0U, 0);
    return high;
}

static _Noreturn void serve(pid_t parent, int given, int first)
{
    const struct kvg_kernel **table = NULL;
    int64_t n = 0;
    struct question q;
    self = getpid();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
        _exit(1);
    setpgid(0, 0);
    const int socket = take_descriptors(given);
    for (int64_t i = 0; i < host.n_paths; i++)
        load(socket, host.paths[i], first, &table, &n);
    while (receive(socket, &q, sizeof q, 1e9) == 0) {
        if (q.magic != MAGIC || q.kernel < 0 || q.kernel >= n)
            break;
        reply(socket, table[q.kernel], &q);
    }
    _exit(0); /* exit() would run the exit handlers of the parent */
}

/* ---- the parent ---- */

static int start_child(int first)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return -1;
    kvg_processes_adopt();
    kvg_processes_children(getpid(), &host.before);
    fflush(NULL); /* otherwise the child may write the buffers of the parent a second time */
    const pid_t parent = getpid(), child = fork();
    if (child == 0)
        serve(parent, ends[1], first);
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return -1;
    }
    setpgid(child, child); /* in both processes, because either may run first */
    kvg_processes_note(child);
    host.child = child;
    host.socket = ends[0];
    return 0;
}

/* Ends the child and what it has started. `why` says how it ended before that; NULL if it does not matter. */
static void end_child(char *why, size_t size)
{
    int status = 0;
    pid_t got = 0;
    if (!host.child)
        return;
    close(host.socket);
    for (int i = 0; why && i < 100 && got == 0; i++) { /* after its end of the socket has closed, 0.2 s */
        got = waitpid(host.child, &status, WNOHANG);
        if (got == 0)
            usleep(2000);
    }
    kill(-host.child, SIGKILL);
    while (got == 0 && (got = waitpid(host.child, NULL, 0)) < 0 && errno == EINTR)
        got = 0;
    kvg_processes_forget(host.child);
    kvg_processes_end_others(&host.before);
    host.child = 0;
    if (!why)
        return;
    if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));
        snprintf(why, size, "SIG%s ended the process", name ? name : "?");
    } else {
        snprintf(why, size, "the process ended with exit code %d", WEXITSTATUS(status));
    }
}

/* Why an expected message did not come, before the child is ended. */
static void explain_silence(double asked, char *why, size_t size)
{
    if (kvg_now() - asked < host.seconds) {
        end_child(why, size);
        return;
    }
    end_child(NULL, 0);
    snprintf(why, size, "there was no answer within %g s", host.seconds);
}

void kvg_plugins_rest(void)
{
    end_child(NULL, 0);
}

static int never_called(void)
{
    return KVG_EUNSUPPORTED;
}

static int supports_elsewhere(const struct kvg_problem *problem, char *why, size_t size)
{
    (void)problem;
    snprintf(why, size, "the process of the plug-in has to be asked");
    return 0;
}

static void arithmetic_elsewhere(const struct kvg_problem *problem, int64_t seq_len,
                                 struct kvg_arithmetic *out)
{
    (void)problem;
    (void)seq_len;
    memset(out, 0, sizeof *out);
}

static int store_elsewhere(const struct kvg_store_args *args)
{
    (void)args;
    return never_called();
}

static int quantize_q_elsewhere(const struct kvg_quantize_q_args *args)
{
    (void)args;
    return never_called();
}

static int attention_elsewhere(const struct kvg_attention_args *args)
{
    (void)args;
    return never_called();
}

/* A kernel of the registry that has the description's facts and no code. */
static struct stand_in *stand_in_for(const struct description *d)
{
    struct stand_in *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->description = *d;
    s->kernel = (struct kvg_kernel){
        .abi_version = KVG_KERNEL_ABI_VERSION,
        .struct_size = sizeof(struct kvg_kernel),
        .name = s->description.name,
        .summary = s->description.summary,
        .device = d->device,
        .rank = d->rank,
        .supports = supports_elsewhere,
        .arithmetic = d->has & HAS_ARITHMETIC ? arithmetic_elsewhere : NULL,
        .store = d->has & HAS_STORE ? store_elsewhere : NULL,
        .quantize_q = d->has & HAS_QUANTIZE_Q ? quantize_q_elsewhere : NULL,
        .attention = d->has & HAS_ATTENTION ? attention_elsewhere : NULL,
        .features = d->features,
    };
    return s;
}

static int out_of_memory(struct kvg_error *error)
{
    return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the kernels of a plug-in");
}

static int keep_description(const struct description *d, struct kvg_error *error)
{
    struct stand_in **grown = realloc(host.kernels, (size_t)(host.n_kernels + 1) * sizeof *grown);
    if (!grown)
        return out_of_memory(error);
    host.kernels = grown;
    grown[host.n_kernels] = stand_in_for(d);
    return grown[host.n_kernels++] ? 0 : out_of_memory(error);
}

static int silent_while_loading(const char *path, double asked, struct kvg_error *error)
{
    char why[WHY];
    explain_silence(asked, why, sizeof why);
    return kvg_fail(error, KVG_EXIT_USAGE, "--plugin %s: %s while it loaded the plug-in", path, why);
}

/* Takes what the child says about one plug-in. */
static int take_kernels(const char *path, struct kvg_error *error)
{
    struct loaded l;
    const double asked = kvg_now();
    if (receive(host.socket, &l, sizeof l, host.seconds))
        return silent_while_loading(path, asked, error);
    if (l.magic != MAGIC)
        return kvg_fail(error, KVG_EXIT_USAGE, "--plugin %s: it wrote on a descriptor of kvgauge", path);
    if (l.count < 0)
        return kvg_fail(error, KVG_EXIT_USAGE, "--plugin %s: %s", path, l.why);
    for (int64_t i = 0; i < l.count; i++) {
        struct description d;
        if (receive(host.socket, &d, sizeof d, host.seconds))
            return silent_while_loading(path, asked, error);
        if (d.magic != MAGIC)
            return kvg_fail(error, KVG_EXIT_USAGE, "--plugin %s: it wrote on a descriptor of kvgauge", path);
        if (keep_description(&d, error))
            return -1;
    }
    return 0;
}

/* Loads the plug-ins in a child and takes their descriptions. */
static int try_plugins(const char *const *paths, int64_t count, double seconds, struct kvg_error *error)
{
    host.paths = paths;
    host.n_paths = count;
    host.seconds = seconds;
    if (start_child(1))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "no process could be started to load plug-ins: %s",
                        strerror(errno));
    for (int64_t i = 0; i < count; i++)
        if (take_kernels(paths[i], error)) {
            end_child(NULL, 0);
            return -1;
        }
    return 0;
}

int kvg_plugins_list(const char *const *paths, int64_t count, double seconds, struct kvg_error *error)
{
    char why[WHY];
    if (count == 0)
        return 0;
    if (try_plugins(paths, count, seconds, error))
        return -1;
    for (int64_t i = 0; i < host.n_kernels; i++) {
        const struct kvg_kernel *one = &host.kernels[i]->kernel;
        if (kvg_registry_add("a plug-in", &one, 1, why, sizeof why))
            return kvg_fail(error, KVG_EXIT_USAGE, "--plugin: %s", why);
    }
    return 0;
}

int kvg_plugins_load(const char *const *paths, int64_t count, double seconds, struct kvg_error *error)
{
    char why[WHY];
    if (count == 0)
        return 0;
    const int failed = try_plugins(paths, count, seconds, error);
    end_child(NULL, 0);
    for (int64_t i = 0; i < host.n_kernels; i++)
        free(host.kernels[i]);
    host.n_kernels = 0;
    for (int64_t i = 0; i < count && !failed; i++)
        if (kvg_registry_load(paths[i], why, sizeof why))
            return kvg_fail(error, KVG_EXIT_USAGE, "--plugin %s: %s", paths[i], why);
    return failed;
}

static int64_t number_of(const struct kvg_kernel *kernel)
{
    for (int64_t i = 0; i < host.n_kernels; i++)
        if (&host.kernels[i]->kernel == kernel)
            return i;
    return -1;
}

int kvg_plugins_has(const struct kvg_kernel *kernel)
{
    return number_of(kernel) >= 0;
}

/* Starts the child again if it has ended, and waits until it has loaded the plug-ins. */
static int wake_child(char *why, size_t size)
{
    const double asked = kvg_now();
    if (host.child)
        return 0;
    if (start_child(0)) {
        snprintf(why, size, "no process could be started to ask a plug-in");
        return -1;
    }
    for (int64_t i = 0; i < host.n_paths; i++) {
        struct loaded l;
        if (receive(host.socket, &l, sizeof l, host.seconds) || l.magic != MAGIC || l.count < 0) {
            explain_silence(asked, why, size);
            return -1;
        }
    }
    return 0;
}

static int ask(int64_t kernel, enum question_kind kind, const struct kvg_problem *problem, int64_t seq_len,
               struct answer *answer)
{
    static const char *const subjects[] = {"what it supports", "its rank", "its arithmetic"};
    struct stand_in *s = host.kernels[kernel];
    struct question q;
    if (s->deaths >= MOST_DEATHS) {
        snprintf(answer->why, sizeof answer->why, "%s", s->last_words);
        return -1;
    }
    memset(&q, 0, sizeof q); /* the padding is sent too */
    const double asked = kvg_now();
    q.magic = MAGIC;
    q.number = ++host.asked;
    q.kind = kind;
    q.kernel = kernel;
    q.problem = *problem;
    q.seq_len = seq_len;
    char why[WHY] = "";
    int failed = wake_child(why, sizeof why);
    if (!failed &&
        (transmit(host.socket, &q, sizeof q) || receive(host.socket, answer, sizeof *answer, host.seconds))) {
        explain_silence(asked, why, sizeof why);
        failed = -1;
    } else if (!failed && (answer->magic != MAGIC || answer->number != q.number)) {
        end_child(NULL, 0);
        snprintf(why, sizeof why, "what came back is no answer");
        failed = -1;
    }
    if (!failed)
        return 0;
    /* A kernel that hangs is not asked again: every question would take as long. */
    s->deaths = kvg_now() - asked >= host.seconds ? MOST_DEATHS : s->deaths + 1;
    snprintf(answer->why, sizeof answer->why, "%.400s when the kernel was asked for %s", why, subjects[kind]);
    memcpy(s->last_words, answer->why, sizeof s->last_words);
    return -1;
}

int kvg_plugins_take(const struct kvg_kernel *kernel, const struct kvg_problem *problem, char *why,
                     size_t size)
{
    struct answer answer;
    const int64_t number = number_of(kernel);
    if (number < 0)
        return kvg_kernel_takes(kernel, problem, why, size);
    const int failed = ask(number, TAKES, problem, 0, &answer);
    snprintf(why, size, "%s", answer.why);
    return failed ? -1 : answer.value;
}

int kvg_plugins_rank(const struct kvg_kernel *kernel, const struct kvg_problem *problem, int *rank, char *why,
                     size_t size)
{
    struct answer answer;
    const int64_t number = number_of(kernel);
    *rank = kernel->rank;
    if (number < 0)
        *rank = kvg_kernel_rank(kernel, problem);
    if (!kvg_plugins_has(kernel) || !kvg_plugins_has_rank_for(kernel))
        return 0;
    if (ask(number, RANK, problem, 0, &answer)) {
        snprintf(why, size, "%s", answer.why);
        return -1;
    }
    *rank = answer.value;
    return 0;
}

int kvg_plugins_has_rank_for(const struct kvg_kernel *kernel)
{
    const int64_t number = number_of(kernel);
    return number < 0 ? kernel->rank_for != NULL : (host.kernels[number]->description.has & HAS_RANK) != 0;
}

int kvg_plugins_arithmetic(const struct kvg_kernel *kernel, const struct kvg_problem *problem,
                           int64_t seq_len, struct kvg_arithmetic *out)
{
    struct answer answer;
    const int64_t number = number_of(kernel);
    if (number < 0) {
        kernel->arithmetic(problem, seq_len, out);
        return 0;
    }
    if (ask(number, ARITHMETIC, problem, seq_len, &answer))
        return -1;
    *out = answer.arithmetic;
    return 0;
}
