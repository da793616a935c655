/* SPDX-License-Identifier: Apache-2.0
 *
 * ask_kernel.c: questions and answers of fixed size over a socket pair. The child is made by fork without
 * exec. This is safe because the driver was not used before the fork and the child only calls `supports`. A
 * question names its kernel by address, which is the same in both processes.
 */
#include "ask_kernel.h"
#include "harness/machine/processes.h"
#include "kernels/registry.h"
#include "plugins.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct question {
    const struct kvg_kernel *kernel;
    struct kvg_problem problem;
};

struct answer {
    int yes;
    char why[252];
};

struct kvg_asker {
    pid_t child; /* 0: not started, or ended */
    int socket;
    int failed;    /* the child could not be started, died or did not answer */
    char why[252]; /* which of these */
};

struct kvg_asker *kvg_asker_new(void)
{
    return calloc(1, sizeof(struct kvg_asker));
}

static void end_child(struct kvg_asker *a)
{
    if (!a->child)
        return;
    close(a->socket);
    kill(a->child, SIGKILL); /* it holds nothing that would need cleaning up */
    while (waitpid(a->child, NULL, 0) < 0 && errno == EINTR)
        ;
    kvg_processes_forget(a->child);
    a->child = 0;
}

void kvg_asker_free(struct kvg_asker *asker)
{
    if (!asker)
        return;
    end_child(asker);
    kvg_plugins_rest();
    free(asker);
}

/* Reads exactly `bytes`. -1 when the other side has ended or sends nothing for `seconds`; < 0 waits for
 * ever. */
static int receive(int socket, void *to, size_t bytes, int seconds)
{
    for (size_t got = 0; got < bytes;) {
        struct pollfd fd = {socket, POLLIN, 0};
        const int ready = poll(&fd, 1, seconds < 0 ? -1 : 1000 * seconds);
        if (ready < 0 && errno == EINTR)
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

static _Noreturn void answer_questions(pid_t parent, int socket)
{
    struct question q;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
        _exit(1);
    while (receive(socket, &q, sizeof q, -1) == 0) {
        struct answer a = {0};
        a.yes = kvg_kernel_takes(q.kernel, &q.problem, a.why, sizeof a.why);
        if (transmit(socket, &a, sizeof a))
            break;
    }
    _exit(0); /* exit() would run the exit handlers of the parent */
}

static int start_child(struct kvg_asker *a)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return -1;
    fflush(NULL); /* otherwise the child may write the buffers of the parent a second time */
    const pid_t parent = getpid(), child = fork();
    if (child == 0) {
        close(ends[0]);
        answer_questions(parent, ends[1]);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return -1;
    }
    kvg_processes_note(child);
    a->child = child;
    a->socket = ends[0];
    return 0;
}

static void give_up(struct kvg_asker *a, const char *reason)
{
    end_child(a);
    a->failed = 1;
    snprintf(a->why, sizeof a->why, "%s", reason);
}

static int ask_child(struct kvg_asker *a, const struct kvg_kernel *kernel, const struct kvg_problem *problem,
                     struct answer *answer)
{
    struct question question;
    memset(&question, 0, sizeof question); /* the padding is sent too */
    question.kernel = kernel;
    question.problem = *problem;
    if (!a->failed && !a->child && start_child(a))
        give_up(a, "no process could be started to ask the GPU's driver");
    if (!a->failed && (transmit(a->socket, &question, sizeof question) ||
                       receive(a->socket, answer, sizeof *answer, KVG_ASK_SECONDS)))
        give_up(a, "the process that asked the GPU's driver died, or did not answer in time");
    return a->failed ? -1 : 0;
}

int kvg_asker_ask(struct kvg_asker *asker, const struct kvg_kernel *kernel, const struct kvg_problem *problem,
                  char *why, size_t size)
{
    struct answer answer;
    if (kvg_plugins_has(kernel)) /* without an answer the case is kept: its row says what happens */
        return kvg_plugins_take(kernel, problem, why, size) != 0;
    if (kernel->device == KVG_DEVICE_CPU)
        return kvg_kernel_takes(kernel, problem, why, size);
    const int failed = ask_child(asker, kernel, problem, &answer);
    snprintf(why, size, "%s", failed ? asker->why : answer.why);
    return failed ? 0 : answer.yes;
}
