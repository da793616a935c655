/* SPDX-License-Identifier: Apache-2.0
 *
 * journal.c: JSON lines on disk, with one write and one fsync per line.
 *
 * A line is complete once its newline is on disk. Bytes after the last newline are an unfinished write: they
 * are dropped on reading and cut off before appending. Nothing is cut from a file whose first line is not the
 * header of a kvgauge journal. When a journal is created its folder is flushed too, so that a power cut does
 * not lose the name.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "disk.h"
#include "encode.h"
#include "journal.h"

struct kvg_journal {
    int fd;
    char *path;
};

/* Appends text and a newline. On failure the file is as long as before. */
static int append_line(struct kvg_journal *journal, const char *text, struct kvg_error *error)
{
    size_t length = strlen(text);
    char *line = malloc(length + 1);
    if (!line)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: out of memory", journal->path);
    memcpy(line, text, length);
    line[length] = '\n';
    off_t before = lseek(journal->fd, 0, SEEK_END);
    int failed = kvg_write_whole(journal->fd, line, length + 1) || (fsync(journal->fd) && errno != EINVAL);
    int why = errno;
    free(line);
    if (!failed)
        return 0;
    /* Where the file cannot be cut (a device), the incomplete line is dropped on reading. */
    int cut = before >= 0 ? ftruncate(journal->fd, before) : -1;
    (void)cut;
    return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot write: %s", journal->path, strerror(why));
}

static struct kvg_journal *wrap(int fd, const char *path, struct kvg_error *error)
{
    struct kvg_journal *journal = calloc(1, sizeof(*journal));
    char *copy = strdup(path);
    if (!journal || !copy) {
        free(journal);
        free(copy);
        close(fd);
        kvg_fail(error, KVG_EXIT_TROUBLE, "%s: out of memory", path);
        return NULL;
    }
    journal->fd = fd;
    journal->path = copy;
    return journal;
}

static void drop(struct kvg_journal *journal)
{
    close(journal->fd);
    free(journal->path);
    free(journal);
}

struct kvg_journal *kvg_journal_create(const char *path, const struct kvg_facts *run,
                                       const struct kvg_facts *machine, struct kvg_error *error)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) {
        kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot create: %s", path, strerror(errno));
        return NULL;
    }
    (void)flock(fd, LOCK_EX | LOCK_NB); /* the file is new: no other process has it open */
    struct kvg_journal *journal = wrap(fd, path, error);
    char *header = journal ? kvg_header_to_json(run, machine) : NULL;
    if (journal && !header)
        kvg_fail(error, KVG_EXIT_TROUBLE, "%s: out of memory", path);
    int failed = !header || append_line(journal, header, error);
    free(header);
    if (!failed)
        kvg_sync_folder_of(path);
    if (failed && journal)
        drop(journal);
    if (failed)
        unlink(path); /* or the next attempt would fail, because the name exists */
    return failed ? NULL : journal;
}

/* ---------------------------------------------------------------- reading */

struct reader {
    const char *path;
    FILE *file;
    char *line;
    size_t capacity;
    int64_t number; /* number of the last line read, from 1 */
    off_t whole;    /* bytes up to and including the last newline */
};

/* 1: r->line holds a complete line; 0: end of file, or an incomplete last line; -1: error. */
static int next_line(struct reader *r, size_t *length, struct kvg_error *error)
{
    errno = 0;
    ssize_t n = getline(&r->line, &r->capacity, r->file);
    if (n < 0 && !feof(r->file))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot read: %s", r->path,
                        strerror(errno ? errno : EIO));
    if (n <= 0 || r->line[n - 1] != '\n')
        return 0;
    r->number++;
    r->whole += n;
    *length = (size_t)n - 1;
    return 1;
}

static int read_header(struct reader *r, struct kvg_results *results, struct kvg_error *error)
{
    size_t length = 0;
    int got = next_line(r, &length, error);
    if (got < 0)
        return -1;
    struct kvg_error why = {0};
    if (got == 0)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "%s: not a journal of kvgauge: the first line is missing or incomplete", r->path);
    if (kvg_header_from_json(r->line, length, &results->run, &results->machine, &why))
        return kvg_fail(error, KVG_EXIT_USAGE, "%s:1: not the header of a journal of kvgauge: %s", r->path,
                        why.text);
    return kvg_schema_check(r->path, &results->run, error);
}

static int add_row(struct kvg_results *results, int64_t *capacity, const struct kvg_row *row)
{
    if (results->count == *capacity) {
        int64_t wanted = *capacity ? 2 * *capacity : 64;
        struct kvg_row *grown = realloc(results->rows, (size_t)wanted * sizeof(*grown));
        if (!grown)
            return -1;
        results->rows = grown;
        *capacity = wanted;
    }
    results->rows[results->count++] = *row;
    return 0;
}

static int read_rows(struct reader *r, struct kvg_results *results, struct kvg_error *error)
{
    int64_t capacity = 0;
    for (;;) {
        size_t length = 0;
        int got = next_line(r, &length, error);
        if (got <= 0)
            return got;
        struct kvg_error why = {0};
        struct kvg_row row;
        if (kvg_row_from_json_bytes(r->line, length, &row, &why))
            return kvg_fail(error, why.exit_code, "%s:%lld: %s", r->path, (long long)r->number, why.text);
        if (add_row(results, &capacity, &row)) {
            kvg_row_free(&row);
            return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: out of memory", r->path);
        }
    }
}

int kvg_journal_read_stream(FILE *file, const char *name, struct kvg_results *results,
                            struct kvg_error *error)
{
    memset(results, 0, sizeof(*results));
    struct reader r = {.path = name, .file = file};
    int failed = read_header(&r, results, error) || read_rows(&r, results, error);
    free(r.line);
    if (failed)
        kvg_results_free(results);
    return failed ? -1 : 0;
}

int kvg_journal_read(const char *path, struct kvg_results *results, struct kvg_error *error)
{
    memset(results, 0, sizeof(*results));
    FILE *file = fopen(path, "re");
    if (!file)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot open: %s", path, strerror(errno));
    int failed = kvg_journal_read_stream(file, path, results, error);
    fclose(file);
    return failed;
}

/* Length of the journal without an incomplete last line; -1 with the error. */
static off_t whole_length(const char *path, struct kvg_error *error)
{
    struct kvg_results header = {0};
    struct reader r = {.path = path, .file = fopen(path, "re")};
    if (!r.file) {
        kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot open: %s", path, strerror(errno));
        return -1;
    }
    size_t length = 0;
    int got = read_header(&r, &header, error);
    for (got = got ? -1 : 1; got > 0;)
        got = next_line(&r, &length, error);
    kvg_results_free(&header);
    free(r.line);
    fclose(r.file);
    return got < 0 ? -1 : r.whole;
}

struct kvg_journal *kvg_journal_append(const char *path, struct kvg_error *error)
{
    int fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC);
    if (fd < 0) {
        kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot open for writing: %s", path, strerror(errno));
        return NULL;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(fd);
        kvg_fail(error, KVG_EXIT_TROUBLE, "%s: another kvgauge is writing to it; wait for it or stop it",
                 path);
        return NULL;
    }
    off_t length = whole_length(path, error);
    if (length >= 0 && ftruncate(fd, length) != 0) {
        kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot cut off the incomplete last line: %s", path,
                 strerror(errno));
        length = -1;
    }
    if (length < 0) {
        close(fd);
        return NULL;
    }
    return wrap(fd, path, error);
}

int kvg_journal_write(struct kvg_journal *journal, const struct kvg_row *row, struct kvg_error *error)
{
    char *line = kvg_row_to_json(row);
    if (!line)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: out of memory", journal->path);
    int failed = append_line(journal, line, error);
    free(line);
    return failed;
}

int kvg_journal_close(struct kvg_journal *journal, struct kvg_error *error)
{
    if (!journal)
        return 0;
    int failed = close(journal->fd);
    if (failed)
        kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot close: %s", journal->path, strerror(errno));
    free(journal->path);
    free(journal);
    return failed ? -1 : 0;
}
