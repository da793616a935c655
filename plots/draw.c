/* SPDX-License-Identifier: Apache-2.0
 *
 * draw.c: the data table of a figure, and gnuplot as a child process that draws it.
 *
 * gnuplot gets an argument vector and no shell line, so that no name can be taken for a command. It writes to
 * a temporary name, and a finished picture is renamed to its own name.
 */
#include "draw.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---------------------------------------------------------------- gnuplot */

/* Runs gnuplot; its stderr goes into `said`. Returns its exit status, -1 if it could not be started (errno),
 * -2 if a signal ended it. */
static int run_gnuplot(char *const arguments[], char *said, size_t size)
{
    int pipe_ends[2], status = 0;
    said[0] = '\0';
    if (pipe2(pipe_ends, O_CLOEXEC))
        return -1;
    pid_t pid = fork();
    if (pid < 0) {
        close(pipe_ends[0]);
        close(pipe_ends[1]);
        return -1;
    }
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
            dup2(pipe_ends[1], STDERR_FILENO) < 0)
            _exit(126);
        execvp(arguments[0], arguments);
        _exit(errno == ENOENT ? 127 : 126);
    }
    close(pipe_ends[1]);
    size_t used = 0;
    char chunk[256];
    for (ssize_t n; (n = read(pipe_ends[0], chunk, sizeof(chunk))) != 0;) {
        if (n < 0 && errno != EINTR)
            break;
        size_t fits = n > 0 ? (size_t)n : 0;
        fits = fits < size - 1 - used ? fits : size - 1 - used;
        memcpy(said + used, chunk, fits);
        used += fits;
        said[used] = '\0';
    }
    close(pipe_ends[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        errno = ENOENT;
        return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
}

static int gnuplot_failed(struct plotter *p, const char *script, int status, const char *said)
{
    if (status == -1 && errno == ENOENT)
        return kvg_fail(
            p->error, KVG_EXIT_TROUBLE,
            "gnuplot is not in the PATH; apt-get install gnuplot-nox installs it. The data tables are in %s",
            p->out_dir);
    if (status == -1)
        return kvg_fail(p->error, KVG_EXIT_TROUBLE, "gnuplot cannot be started: %s", strerror(errno));
    return kvg_fail(p->error, KVG_EXIT_TROUBLE, "gnuplot failed on %s (%s %d): %.400s", script,
                    status == -2 ? "signal, status" : "exit status", status, said);
}

static int draw(struct plotter *p, struct figure *f, const char *script, const char *format)
{
    char script_path[PATH_MAX], data[PATH_MAX], temporary[PATH_MAX + 16], output[PATH_MAX], said[512];
    snprintf(script_path, sizeof(script_path), "%s/%s", p->script_dir, script);
    snprintf(data, sizeof(data), "%s/%s.tsv", p->out_dir, f->name);
    snprintf(output, sizeof(output), "%s/%s.%s", p->out_dir, f->name, format);
    snprintf(temporary, sizeof(temporary), "%s.%ld.tmp", output, (long)getpid());
    char name[] = "gnuplot", defaults[] = "-d", call[] = "-c", form[8];
    snprintf(form, sizeof(form), "%s", format);
    char *arguments[] = {name,     defaults,  call,      script_path, data,        temporary,   form,
                         f->title, f->detail, f->series, f->extra[0], f->extra[1], f->extra[2], NULL};
    int status = run_gnuplot(arguments, said, sizeof(said));
    struct stat info;
    if (status == 0 && (stat(temporary, &info) || info.st_size == 0)) {
        unlink(temporary);
        return kvg_fail(p->error, KVG_EXIT_TROUBLE, "gnuplot wrote nothing to %s; is the disk full? %.300s",
                        output, said);
    }
    if (status != 0) {
        int why = errno;
        unlink(temporary);
        errno = why;
        return gnuplot_failed(p, script, status, said);
    }
    if (rename(temporary, output)) {
        unlink(temporary);
        return kvg_fail(p->error, KVG_EXIT_TROUBLE, "%s: cannot rename the finished picture to this name: %s",
                        output, strerror(errno));
    }
    if (p->report)
        fprintf(p->report, "  %s\n", output);
    return 0;
}

/* ---------------------------------------------------------------- figures */

int figure_begin(struct plotter *p, struct figure *f)
{
    char path[PATH_MAX];
    for (char *c = f->name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
            *c = '-';
    snprintf(path, sizeof(path), "%s/%s.tsv", p->out_dir, f->name);
    /* A link with this name may lead to any file: it is not written through. */
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    f->data = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f->data)
        return kvg_fail(p->error, KVG_EXIT_TROUBLE, "%s: cannot create: %s", path, strerror(errno));
    return 0;
}

int figure_end(struct plotter *p, struct figure *f, const char *script)
{
    int failed = ferror(f->data);
    failed |= fclose(f->data);
    f->data = NULL;
    if (failed)
        return kvg_fail(p->error, KVG_EXIT_TROUBLE, "%s/%s.tsv: cannot write: %s", p->out_dir, f->name,
                        strerror(errno ? errno : EIO));
    p->figures++;
    if ((p->svg && draw(p, f, script, "svg")) || (p->png && draw(p, f, script, "png")))
        return -1;
    return 0;
}

void figure_add_word(char *list, size_t size, const char *word)
{
    size_t used = strlen(list), start = used + (used > 0);
    if (start + strlen(word) + 1 > size)
        return;
    if (used)
        list[used] = ' ';
    strcpy(list + start, word);
    for (char *c = list + start; *c; c++)
        if (isspace((unsigned char)*c) || *c == '"' ||
            *c == '%') /* '%': gnuplot takes a tic's name for a format */
            *c = '_';
}

void figure_left_out(struct plotter *p, const char *figure, const char *why)
{
    if (p->report)
        fprintf(p->report, "  left out: %s: %s\n", figure, why);
}

int words_add(struct words *list, const char *word, int most)
{
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->text[i], word) == 0)
            return i;
    if (list->n == most || list->n == WORDS_MAX)
        return -1;
    snprintf(list->text[list->n], sizeof(list->text[0]), "%s", word);
    return list->n++;
}

int64_t count_contexts(const struct kvg_picks *picks, int64_t begin, int64_t end)
{
    int64_t n = 0;
    for (int64_t i = begin; i < end; i++) {
        int64_t j = begin;
        while (picks->picks[j].row->context != picks->picks[i].row->context)
            j++;
        n += j == i;
    }
    return n;
}
