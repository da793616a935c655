/* SPDX-License-Identifier: Apache-2.0
 *
 * ask_device.c: the child opens the device and writes a line "key<TAB>value" for each fact; the parent reads
 * to the end of the pipe.
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
    _exit(fflush(out) ? 1
                      : 0); /* no handlers: they are the parent's; the driver tidies up after the process */
}

/* The whole answer, NUL-terminated; shorter where the child is silent for too long. */
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

/* A whole number is a number; a version, which has a point, stays a text. */
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

int kvg_device_facts(struct kvg_facts *facts)
{
    char text[4096] = "";
    int ends[2], status = 0;
    if (!kvg_cuda_open)
        return 0;
    pid_t child = -1;
    if (pipe(ends) == 0) {
        fflush(NULL); /* else the child might write the parent's buffers a second time */
        const pid_t parent = getpid();
        child = fork();
        if (child == 0) {
            close(ends[0]);
            tell(parent, ends[1]);
        }
        close(ends[1]);
        if (child > 0)
            listen_to(ends[0], text, sizeof text);
        close(ends[0]);
    }
    if (child > 0) {
        kill(child, SIGKILL); /* it has told all, or hangs */
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
    }
    if (!text[0])
        snprintf(text, sizeof text, REASON_KEY "\tthe process that asked the GPU's driver said nothing\n");
    const int failed = add_lines(facts, text);
    if (failed || kvg_facts_find(facts, "gpu"))
        return failed;
    return kvg_facts_set_text(facts, "gpu", "none");
}
