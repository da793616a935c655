/* SPDX-License-Identifier: Apache-2.0
 *
 * ask_device.c: a child process opens the device and writes one line "key<TAB>value" for each fact. The
 * parent reads the pipe to its end.
 */
#include "ask_device.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device.h"

#define REASON_KEY "gpu_reason"

static _Noreturn void tell(pid_t parent, int to)
{
    char why[256] = "";
    const char *key, *value;
    FILE *out = fdopen(to, "w");
    if (!out || prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
        _exit(1);
    struct kvg_device *d = kvg_cuda_open(0, why, sizeof why);
    if (!d)
        fprintf(out, REASON_KEY "\t%s\n", why);
    for (int64_t i = 0; d && d->ops->fact(d, i, &key, &value) == 0; i++)
        fprintf(out, "%s\t%s\n", key, value);
    /* Not exit(): the exit handlers are the parent's. The driver releases the device when the process
     * ends. */
    _exit(fflush(out) ? 1 : 0);
}

/* Reads the whole answer, NUL-terminated; stops early when the child writes nothing for
 * KVG_ASK_DEVICE_SECONDS. */
static void listen_to(int from, char *text, size_t size)
{
    size_t got = 0;
    while (got < size - 1) {
        struct pollfd fd = {from, POLLIN, 0};
        const int ready = poll(&fd, 1, 1000 * KVG_ASK_DEVICE_SECONDS);
        if (ready < 0 && errno == EINTR)
            continue;
        const ssize_t n = ready > 0 ? read(from, text + got, size - 1 - got) : -1;
        if (n < 0 && ready > 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    text[got] = '\0';
}

/* A whole number becomes a number. A text with a point is a version and stays a text. */
static int add(struct kvg_facts *facts, const char *key, const char *value)
{
    char *end;
    const double number = strtod(value, &end);
    return *value && !*end && !strchr(value, '.') ? kvg_facts_set_number(facts, key, number)
                                                  : kvg_facts_set_text(facts, key, value);
}

static int add_lines(struct kvg_facts *facts, char *text)
{
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *tab = strchr(line, '\t');
        if (!tab)
            continue;
        *tab = '\0';
        if (add(facts, line, tab + 1))
            return -1;
    }
    return 0;
}

/* The child's answer in text, "" when it gave none. */
static void ask(char *text, size_t size)
{
    int ends[2], status;
    text[0] = '\0';
    if (pipe(ends))
        return;
    fflush(NULL); /* or the child could write the parent's buffers a second time */
    const pid_t parent = getpid(), child = fork();
    if (child == 0) {
        close(ends[0]);
        tell(parent, ends[1]);
    }
    close(ends[1]);
    if (child > 0) {
        listen_to(ends[0], text, size);
        kill(child, SIGKILL); /* it has written everything, or it hangs */
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
    }
    close(ends[0]);
}

int kvg_device_facts(struct kvg_facts *facts)
{
    char text[4096];
    if (!kvg_cuda_open)
        return 0;
    ask(text, sizeof text);
    if (!text[0])
        snprintf(text, sizeof text, REASON_KEY "\tthe process that opens the GPU gave no answer\n");
    const int failed = add_lines(facts, text);
    if (failed || kvg_facts_find(facts, "gpu"))
        return failed;
    return kvg_facts_set_text(facts, "gpu", "none");
}
