/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.c: the parent side of the worker. The parent waits with one poll for the answer of the worker, for
 * its output on stderr and for a signal to the parent, until the timeout of the case.
 *
 * The worker is started with fork and exec, because a process that was forked after the use of OpenMP or CUDA
 * does not work. It leads a process group of its own: Ctrl-C then reaches only the parent, and processes that
 * a kernel has started can be killed together with the worker.
 */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>

#include "harness/diagnose/diagnose.h"
#include "frame.h"
#include "harness/machine/clock.h"
#include "harness/machine/processes.h"
#include "results/journal.h"
#include "worker.h"

enum { STDERR_KEPT = 4096 };

struct kvg_worker {
    char *options; /* JSON, for every process started */
    double timeout;
    pid_t pid;          /* 0 = none */
    int socket, errors; /* errors: a pipe from the worker's stdout and stderr */
    int signals;        /* signalfd of SIGINT, SIGTERM, SIGHUP */
    sigset_t old_mask;  /* before they were blocked */
    char *received;     /* and not yet used: `used` of `size` bytes */
    size_t used, size;
    char said[STDERR_KEPT + 1]; /* the last bytes that the worker wrote to stdout and stderr */
    size_t said_used;
    char *report;
    int asked;                   /* 1: it has been asked for a row */
    int run;                     /* enum kvg_run_kind that the worker announced last */
    struct kvg_frame question;   /* the last one; answers have its sequence and subject */
    struct kvg_processes before; /* children of this process when the worker was started */
    char strange[48];            /* the start of what came and was no answer */
};

/* ---- one process ---- */

/* Google Benchmark reads defaults from variables BENCHMARK_* when it is loaded. They must not change the
 * rows. */
extern char **environ;
static void clear_benchmark_variables(void)
{
    for (char **e = environ; e && *e;) {
        size_t length = strcspn(*e, "=");
        char name[256];
        if (strncmp(*e, "BENCHMARK_", 10) == 0 && length < sizeof name) {
            memcpy(name, *e, length);
            name[length] = '\0';
            if (unsetenv(name) == 0) {
                e = environ;
                continue;
            }
        }
        e++;
    }
}

/* The threads of libgomp spin for milliseconds at a barrier. When another process needs a CPU on which one
 * spins, a barrier takes time slices instead of microseconds. Therefore they spin for a shorter time. Before
 * a timed call kvg_team_wake wakes the threads. A choice of the user in the environment is kept. */
static void calm_openmp(void)
{
    if (!getenv("OMP_WAIT_POLICY"))
        setenv("GOMP_SPINCOUNT", "20000", 0);
}

static _Noreturn void become_worker(pid_t parent, int socket, int errors, const sigset_t *mask)
{
    /* The worker must end with its parent, also when the parent ends before this line. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
        _exit(127);
    setpgid(0, 0);
    sigprocmask(SIG_SETMASK, mask, NULL);
    clear_benchmark_variables();
    calm_openmp();
    int null = open("/dev/null", O_RDONLY);
    /* Descriptors may occupy each other's targets: copy them to numbers from 16 on first, then to 0..3. */
    int s = fcntl(socket, F_DUPFD, 16), e = fcntl(errors, F_DUPFD, 16);
    if (null < 0 || s < 0 || e < 0 || dup2(null, 0) < 0 || dup2(e, 1) < 0 || dup2(e, 2) < 0 ||
        dup2(s, KVG_WORKER_FD) < 0)
        _exit(127);
    close_range(KVG_WORKER_FD + 1, ~0U, 0); /* the journal among others */
    char name[] = "kvgauge", command[] = KVG_WORKER_COMMAND;
    char *argv[] = {name, command, NULL};
    execv("/proc/self/exe", argv);
    _exit(127);
}

/* Asks the worker. If it has ended, the wait for the answer notices. */
static void send_question(struct kvg_worker *w, char type, const char *text)
{
    w->question = (struct kvg_frame){
        .type = (unsigned char)type, .sequence = w->question.sequence + 1, .subject = kvg_fnv1a(text)};
    kvg_frame_send(w->socket, &w->question, text);
}

static int start_process(struct kvg_worker *w, struct kvg_error *error)
{
    int socket[2], errors[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socket))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "cannot start a worker: %s", strerror(errno));
    if (pipe2(errors, O_CLOEXEC)) {
        close(socket[0]);
        close(socket[1]);
        return kvg_fail(error, KVG_EXIT_TROUBLE, "cannot start a worker: %s", strerror(errno));
    }
    kvg_processes_adopt();
    kvg_processes_children(getpid(), &w->before);
    fflush(NULL); /* otherwise the child may write the buffers of the parent a second time */
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become_worker(parent, socket[1], errors[1], &w->old_mask);
    int fork_error = errno;
    close(socket[1]);
    close(errors[1]);
    if (pid < 0) {
        close(socket[0]);
        close(errors[0]);
        return kvg_fail(error, KVG_EXIT_TROUBLE, "cannot start a worker: %s", strerror(fork_error));
    }
    setpgid(pid, pid); /* in both processes, because either may run first */
    fcntl(errors[0], F_SETFL, O_NONBLOCK);
    kvg_processes_note(pid);
    w->pid = pid;
    w->socket = socket[0];
    w->errors = errors[0];
    w->used = 0;
    w->asked = 0;
    w->said_used = 0;
    send_question(w, 'O', w->options);
    return 0;
}

/* Reads what the worker wrote and keeps the end of it. 0, or -1 when the pipe is closed. */
static int drain_errors(struct kvg_worker *w)
{
    char text[1024];
    ssize_t n;
    while ((n = read(w->errors, text, sizeof text)) > 0) {
        size_t take = (size_t)n;
        if (w->said_used + take > STDERR_KEPT) {
            size_t drop = w->said_used + take - STDERR_KEPT;
            memmove(w->said, w->said + drop, w->said_used - drop);
            w->said_used -= drop;
        }
        memcpy(w->said + w->said_used, text, take);
        w->said_used += take;
    }
    w->said[w->said_used] = '\0';
    return n == 0 ? -1 : 0;
}

/* How the process ended. */
struct ending {
    int status; /* of waitpid */
    int64_t peak_resident_bytes;
};

/* Waits for the worker to end, kills it after one second (or at once), and with it its process group. */
static struct ending reap(struct kvg_worker *w, int kill_now)
{
    struct ending ending = {0, -1};
    struct rusage usage;
    double start = kvg_now();
    pid_t got = 0;
    while (!kill_now && (got = wait4(w->pid, &ending.status, WNOHANG, &usage)) == 0 &&
           kvg_now() - start < 1) {
        struct timespec pause = {0, 2000000};
        nanosleep(&pause, NULL);
    }
    kill(-w->pid, SIGKILL); /* the whole group: a kernel may have started others */
    while (got == 0 && (got = wait4(w->pid, &ending.status, 0, &usage)) < 0 && errno == EINTR)
        got = 0;
    if (got > 0)
        ending.peak_resident_bytes = (int64_t)usage.ru_maxrss * 1024;
    drain_errors(w);
    close(w->socket);
    close(w->errors);
    kvg_processes_forget(w->pid);
    kvg_processes_end_others(&w->before); /* those that left the group */
    w->pid = 0;
    return ending;
}

/* ---- the answer ---- */

enum answer { ANSWER_ROW, ANSWER_LAST_ROW, ANSWER_GONE, ANSWER_TIMEOUT, ANSWER_INTERRUPTED, ANSWER_STRANGE };

/* Reads what has arrived; -1 when the worker has closed its end, or on out of memory. */
static int fill(struct kvg_worker *w)
{
    if (w->size - w->used < 65536) {
        size_t size = w->size ? 2 * w->size : 262144;
        char *received = realloc(w->received, size);
        if (!received)
            return -1;
        w->received = received;
        w->size = size;
    }
    ssize_t n = read(w->socket, w->received + w->used, w->size - w->used);
    if (n < 0 && errno == EINTR)
        return 0;
    if (n <= 0)
        return -1;
    w->used += (size_t)n;
    return 0;
}

/* Keeps the start of bytes that are no answer, for a person to read. */
static int strange(struct kvg_worker *w, enum answer *answer)
{
    size_t n = 0;
    for (; n < w->used && n + 1 < sizeof w->strange && n < 24; n++)
        w->strange[n] = w->received[n] >= 32 && w->received[n] < 127 ? w->received[n] : '.';
    w->strange[n] = '\0';
    *answer = ANSWER_STRANGE;
    return 1;
}

/* Takes one message out of the buffer. The caller frees its text. 1; 0 when there is none yet; -1 when the bytes are no
 * message that answers the question. */
static int take_message(struct kvg_worker *w, struct kvg_frame *frame, char **text)
{
    const int found = w->used ? kvg_frame_find(w->received, w->used, frame) : 0;
    if (found <= 0)
        return found;
    if (frame->sequence != w->question.sequence || frame->subject != w->question.subject ||
        frame->type > 127 || !strchr("BSRT", (int)frame->type))
        return -1;
    *text = malloc(frame->length + 1);
    if (!*text)
        return -1;
    memcpy(*text, w->received + sizeof *frame, frame->length);
    (*text)[frame->length] = '\0';
    w->used -= sizeof *frame + frame->length;
    memmove(w->received, w->received + sizeof *frame + frame->length, w->used);
    return 1;
}

/* 1 when a message completes the answer, or cannot be one. */
static int take_answer(struct kvg_worker *w, char **row_json, enum answer *answer)
{
    struct kvg_frame frame;
    char *text;
    int got;
    while ((got = take_message(w, &frame, &text)) > 0) {
        if (frame.type == 'R' || frame.type == 'T') {
            *answer = frame.type == 'R' ? ANSWER_ROW : ANSWER_LAST_ROW;
            *row_json = text;
            return 1;
        }
        if (frame.type == 'B') {
            free(w->report);
            w->report = text;
            continue;
        }
        w->run = (int)strtol(text, NULL, 10);
        free(text);
    }
    return got < 0 ? strange(w, answer) : 0;
}

static enum answer wait_for_answer(struct kvg_worker *w, double seconds, char **row_json)
{
    double deadline = kvg_now() + seconds;
    enum answer answer;
    int errors_open = 1;
    for (;;) {
        double left = deadline - kvg_now();
        if (left <= 0)
            return ANSWER_TIMEOUT;
        struct pollfd fds[3] = {
            {w->socket, POLLIN, 0}, {w->signals, POLLIN, 0}, {errors_open ? w->errors : -1, POLLIN, 0}};
        int ready = poll(fds, 3, (int)fmin(1000 * left + 1, 60000));
        if (ready < 0 && errno != EINTR)
            return ANSWER_GONE;
        if (ready <= 0)
            continue;
        if (fds[1].revents)
            return ANSWER_INTERRUPTED; /* the signal stays unread, so that later cases are interrupted too */
        if (fds[2].revents && drain_errors(w))
            errors_open = 0;
        if (fds[0].revents) {
            int closed = fill(w);
            if (take_answer(w, row_json, &answer))
                return answer;
            if (closed)
                return ANSWER_GONE;
        }
    }
}

/* ---- rows of a worker that did not answer ---- */

/* The last line that the worker wrote, or the line with the finding of AddressSanitizer. */
static void last_words(const struct kvg_worker *w, char *text, size_t size)
{
    const char *from = strstr(w->said, "ERROR: AddressSanitizer");
    size_t end = w->said_used;
    text[0] = '\0';
    if (!from) {
        while (end > 0 && (w->said[end - 1] == '\n' || w->said[end - 1] == ' '))
            end--;
        from = w->said + end;
        while (from > w->said && from[-1] != '\n')
            from--;
    } else {
        end = (size_t)(from - w->said) + strcspn(from, "\n");
    }
    int length = (int)(w->said + end - from);
    if (length > 0)
        snprintf(text, size, "; it said: %.*s", length > 200 ? 200 : length, from);
}

static void describe_end(const struct kvg_worker *w, const struct ending *ending, struct kvg_row *row)
{
    char words[256], reason[512];
    last_words(w, words, sizeof words);
    if (w->run == KVG_RUN_FAR) {
        kvg_row_set_string(&row->suspected, kvg_fault_class_name(KVG_FAULT_NARROW_OFFSET));
        kvg_row_set_string(&row->suspicion,
                           "right in low pages; it ended where page number times stride needs "
                           "more than 32 bits");
    }
    if (w->run == KVG_RUN_EDGE) {
        kvg_row_set_string(&row->suspected, kvg_fault_class_name(KVG_FAULT_MEMORY));
        kvg_row_set_string(&row->suspicion, "right as long as memory beside its inputs can be read; it ended "
                                            "where that memory has no access");
    }
    row->status = KVG_CRASHED;
    if (WIFSIGNALED(ending->status) && WTERMSIG(ending->status) == SIGKILL) {
        row->status = KVG_OUT_OF_MEMORY;
        snprintf(reason, sizeof reason, "suspected: SIGKILL ended the worker, and kvgauge did not send it%s",
                 words);
    } else if (WIFSIGNALED(ending->status)) {
        const char *name = sigabbrev_np(WTERMSIG(ending->status));
        snprintf(reason, sizeof reason, "SIG%s (%s) ended the worker%s", name ? name : "?",
                 strsignal(WTERMSIG(ending->status)), words);
    } else if (WEXITSTATUS(ending->status) == KVG_WORKER_CUT_OFF) {
        snprintf(reason, sizeof reason,
                 "the kernel closed descriptors that are not its own, among them the worker's connection%s",
                 words);
    } else {
        snprintf(reason, sizeof reason, "the worker ended itself with exit code %d%s",
                 WEXITSTATUS(ending->status), words);
    }
    kvg_row_set_string(&row->reason, reason);
}

static int row_without_answer(struct kvg_worker *w, const struct kvg_case *c, enum answer answer,
                              struct kvg_row *row, struct kvg_error *error)
{
    char reason[512], words[256];
    struct ending ending = reap(w, answer == ANSWER_TIMEOUT || answer == ANSWER_STRANGE);
    if (kvg_case_to_row(c, row))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
    row->peak_resident_bytes = ending.peak_resident_bytes;
    if (answer == ANSWER_TIMEOUT) {
        last_words(w, words, sizeof words);
        snprintf(reason, sizeof reason, "no answer within %g s; the worker was killed%s", w->timeout, words);
        row->status = KVG_TIMEOUT;
        kvg_row_set_string(&row->reason, reason);
    } else if (answer == ANSWER_STRANGE) {
        snprintf(reason, sizeof reason,
                 "what came from the worker is no answer to this case: '%s'; a kernel must not write on "
                 "descriptors "
                 "that are not its own",
                 w->strange);
        row->status = KVG_CRASHED;
        kvg_row_set_string(&row->reason, reason);
    } else {
        describe_end(w, &ending, row);
    }
    return 0;
}

/* ---- the interface ---- */

struct kvg_worker *kvg_worker_start(const struct kvg_run_options *options, struct kvg_error *error)
{
    struct kvg_worker *w = calloc(1, sizeof *w);
    if (!w || !(w->options = kvg_run_options_to_json(options))) {
        free(w);
        kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
        return NULL;
    }
    w->timeout = options->timeout;
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGHUP);
    sigprocmask(SIG_BLOCK, &ours, &w->old_mask);
    w->signals = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
    if (w->signals < 0 || start_process(w, error)) {
        if (w->signals < 0)
            kvg_fail(error, KVG_EXIT_TROUBLE, "cannot wait for signals: %s", strerror(errno));
        kvg_worker_stop(w);
        return NULL;
    }
    return w;
}

/* The roofs take about 0.3 s on a quiet machine. The timeout of a case may be shorter than that. */
#define ROOFS_SECONDS 60.0

/* What stands where the worker did not answer. */
static int add_unknown_roofs(struct kvg_facts *facts)
{
    static const char *const names[] = {"read_roof", "copy_roof", "cache_roof", "flop_roof"};
    int failed = kvg_facts_set_text(facts, "roof_isa", "unknown");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        failed |= kvg_facts_set_number(facts, names[i], NAN);
    return failed;
}

int kvg_worker_add_roofs(struct kvg_worker *w, int64_t threads, int measure, struct kvg_facts *facts,
                         struct kvg_error *error)
{
    char request[64], *json = NULL;
    if (!w->pid && start_process(w, error))
        return -1;
    snprintf(request, sizeof request, "%lld %d", (long long)threads, measure);
    send_question(w, 'Q', request);
    if (wait_for_answer(w, ROOFS_SECONDS, &json) != ANSWER_ROW) {
        reap(w, 1); /* the next case starts another worker */
        free(json);
        return add_unknown_roofs(facts) ? kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory") : 0;
    }
    const int failed = kvg_facts_from_json(json, facts, error);
    free(json);
    return failed;
}

/* Ends a worker that has died or spoken since its last answer: the next case shall not pay for it. */
static void end_restless(struct kvg_worker *w)
{
    struct pollfd fd = {w->pid ? w->socket : -1, POLLIN, 0};
    if (w->pid && w->asked && (w->used || poll(&fd, 1, 0) != 0))
        reap(w, 1);
}

int kvg_worker_run(struct kvg_worker *w, const struct kvg_case *c, struct kvg_row *row,
                   struct kvg_error *error)
{
    char text[KVG_CASE_STRING_MAX], started[KVG_UTC_MAX], *json = NULL;
    free(w->report);
    w->report = NULL;
    end_restless(w);
    if (!w->pid && start_process(w, error))
        return -1;
    w->asked = 1;
    w->said_used = 0;
    w->run = KVG_RUN_FIRST;
    kvg_utc_now(started);
    kvg_case_format(c, text);
    send_question(w, 'C', text);
    enum answer answer = wait_for_answer(w, w->timeout, &json);
    int failed = 0;
    if (answer == ANSWER_INTERRUPTED) {
        reap(w, 1);
        return 1;
    }
    if (answer == ANSWER_ROW || answer == ANSWER_LAST_ROW) {
        struct kvg_row answered;
        failed = kvg_row_from_json(json, &answered, error);
        if (!failed) {
            kvg_row_free(row);
            *row = answered;
        }
    } else {
        failed = row_without_answer(w, c, answer, row, error);
    }
    free(json);
    if (answer == ANSWER_LAST_ROW)
        reap(w, 0);
    if (failed)
        return -1;
    return kvg_row_set_string(&row->started_utc, started) ? kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory")
                                                          : 0;
}

const char *kvg_worker_report(const struct kvg_worker *w)
{
    return w->report;
}

void kvg_worker_stop(struct kvg_worker *w)
{
    if (!w)
        return;
    if (w->pid) {
        shutdown(w->socket, SHUT_WR); /* end of file: the worker ends by itself */
        reap(w, 0);
    }
    /* Pending signals were acted on. They must not be delivered when the old mask is restored. */
    struct signalfd_siginfo info;
    while (w->signals >= 0 && read(w->signals, &info, sizeof info) == (ssize_t)sizeof info)
        ;
    if (w->signals >= 0)
        close(w->signals);
    sigprocmask(SIG_SETMASK, &w->old_mask, NULL);
    free(w->received);
    free(w->report);
    free(w->options);
    free(w);
}
