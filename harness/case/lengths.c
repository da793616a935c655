/* SPDX-License-Identifier: Apache-2.0
 *
 * lengths.c: numbers with k and M. Reads lists of lengths and writes their canonical text: runs of equal sequences, joined by '+'.
 */
#include "lengths.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SEQUENCES = 65536, ENTRY = 96 };

/* Equal sequences. */
struct run {
    int64_t times, q_len, context;
};

/* A list while it grows. */
struct growing {
    char *text;       /* [KVG_LIST_MAX] */
    struct run last;  /* not yet in the text; times 0: none */
    int64_t fit;      /* sequences in the text */
    int64_t n, total; /* sequences and keys so far */
    int full;         /* 1: a run did not fit */
};

int kvg_is_list(const char *text)
{
    return *text == '@' || isdigit((unsigned char)*text);
}

int kvg_parse_size(const char *text, int64_t *out)
{
    const char *digits = text + (*text == '-');
    if (!isdigit((unsigned char)*digits))
        return -1;
    errno = 0;
    char *end;
    int64_t value = strtoll(text, &end, 10);
    int64_t unit = 1;
    if (*end == 'k' || *end == 'K')
        unit = 1024;
    else if (*end == 'M')
        unit = 1024 * 1024;
    end += unit != 1;
    if (errno || *end || __builtin_mul_overflow(value, unit, out))
        return -1;
    return 0;
}

/* ---------------------------------------------------------------- canonical text */

static int print_run(const struct run *r, char *text, size_t size)
{
    return r->times > 1
               ? snprintf(text, size, "%" PRId64 "*%" PRId64 "x%" PRId64, r->times, r->q_len, r->context)
               : snprintf(text, size, "%" PRId64 "x%" PRId64, r->q_len, r->context);
}

/* Reads the run at *at and moves *at behind it. 0 at the end. */
static int next_run(const char **at, struct run *r)
{
    char *end;
    if (!**at)
        return 0;
    *r = (struct run){.times = 1, .q_len = strtoll(*at, &end, 10)};
    if (*end == '*') {
        r->times = r->q_len;
        r->q_len = strtoll(end + 1, &end, 10);
    }
    r->context = *end == 'x' ? strtoll(end + 1, &end, 10) : 0;
    *at = *end == '+' ? end + 1 : "";
    return 1;
}

void kvg_list_entry(const char *list, int64_t sequence, int64_t *q_len, int64_t *context)
{
    struct run r;
    *q_len = *context = 0;
    while (next_run(&list, &r)) {
        if (sequence < r.times) {
            *q_len = r.q_len;
            *context = r.context;
            return;
        }
        sequence -= r.times;
    }
}

void kvg_list_sum(const char *list, struct kvg_list_sums *sums)
{
    struct run r;
    *sums = (struct kvg_list_sums){.whole = 1};
    while (next_run(&list, &r)) {
        sums->sequences += r.times;
        sums->total_q += r.times * r.q_len;
        sums->total_kv += r.times * r.context;
        sums->max_q_len = r.q_len > sums->max_q_len ? r.q_len : sums->max_q_len;
        sums->max_context = r.context > sums->max_context ? r.context : sums->max_context;
        sums->whole &= r.q_len == r.context;
    }
}

/* ---------------------------------------------------------------- growing */

/* Moves the last run to the text. */
static void put_last(struct growing *g)
{
    char run[ENTRY];
    const size_t used = strlen(g->text);
    if (g->last.times == 0)
        return;
    const size_t length = (size_t)print_run(&g->last, run, sizeof run);
    if (g->full || used + (used > 0) + length >= KVG_LIST_MAX) {
        g->full = 1;
        return;
    }
    snprintf(g->text + used, KVG_LIST_MAX - used, "%s%s", used ? "+" : "", run);
    g->fit += g->last.times;
}

/* `where` names the entry: "entry 2, '9x4'". */
static int add_run(struct growing *g, const struct run *r, const char *where, struct kvg_error *error)
{
    if (r->q_len > r->context)
        return kvg_fail(error, KVG_EXIT_USAGE, "lengths: %s: q_len %" PRId64 " is above its context %" PRId64,
                        where, r->q_len, r->context);
    if (r->times > MOST_SEQUENCES - g->n)
        return kvg_fail(error, KVG_EXIT_USAGE, "lengths: %s: more than %d sequences", where, MOST_SEQUENCES);
    if (r->context > (INT32_MAX - g->total) / r->times)
        return kvg_fail(
            error, KVG_EXIT_USAGE,
            "lengths: %s: more than 2^31 - 1 keys, which the int32 lengths of the kernel ABI cannot count",
            where);
    g->n += r->times;
    g->total += r->times * r->context;
    if (g->last.times > 0 && g->last.q_len == r->q_len && g->last.context == r->context) {
        g->last.times += r->times;
        return 0;
    }
    put_last(g);
    g->last = *r;
    return 0;
}

static int finish(struct growing *g, const char *from, struct kvg_error *error)
{
    struct kvg_list_sums sums;
    put_last(g);
    if (g->n == 0)
        return kvg_fail(error, KVG_EXIT_USAGE, "lengths: %s holds no sequence", from);
    if (g->full)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "lengths: %s: %" PRId64
                        " sequences are too many for a case string, which holds the first %" PRId64
                        " of them (%d characters; neighbours of equal lengths count once)",
                        from, g->n, g->fit, KVG_LIST_MAX - 1);
    kvg_list_sum(g->text, &sums);
    if (sums.total_q == 0)
        return kvg_fail(error, KVG_EXIT_USAGE, "lengths: %s: no sequence has a query", from);
    return 0;
}

/* ---------------------------------------------------------------- a list */

/* A whole number, with k or M, in text[0..length). */
static int number_at(const char *text, size_t length, int64_t most, int64_t *out)
{
    char copy[32];
    if (length == 0 || length >= sizeof copy)
        return -1;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return kvg_parse_size(copy, out) || *out < 0 || *out > most ? -1 : 0;
}

/* "[N*]QxC" */
static int read_entry(const char *text, size_t length, struct run *r)
{
    const char *star = memchr(text, '*', length), *begin = star ? star + 1 : text, *end = text + length;
    const char *cross = memchr(begin, 'x', (size_t)(end - begin));
    r->times = 1;
    if (star && (number_at(text, (size_t)(star - text), INT32_MAX, &r->times) || r->times < 1))
        return -1;
    return !cross || number_at(begin, (size_t)(cross - begin), INT32_MAX, &r->q_len) ||
                   number_at(cross + 1, (size_t)(end - cross) - 1, INT32_MAX, &r->context)
               ? -1
               : 0;
}

static int read_list(struct growing *g, const char *text, struct kvg_error *error)
{
    for (int64_t i = 1; text; i++) {
        const size_t length = strcspn(text, "+");
        struct run r;
        char where[ENTRY];
        snprintf(where, sizeof where, "entry %" PRId64 ", '%.*s'", i, (int)(length < 48 ? length : 48), text);
        if (read_entry(text, length, &r))
            return kvg_fail(
                error, KVG_EXIT_USAGE,
                "lengths: %s: an entry is q_len x context, as in 512x8192, or 4*512x8192 for four such "
                "sequences",
                where);
        if (add_run(g, &r, where, error))
            return -1;
        text = text[length] ? text + length + 1 : NULL;
    }
    return finish(g, "the list", error);
}

/* ---------------------------------------------------------------- a file */

/* Reads a line without its end and without a comment. 1, 0 at the end of the file, -1 if it is too long or binary. */
static int read_line(FILE *f, char line[ENTRY])
{
    size_t used = 0;
    int c = getc(f), comment = 0;
    if (c == EOF)
        return 0;
    for (; c != EOF && c != '\n'; c = getc(f)) {
        comment |= c == '#';
        if (comment && c != '\0')
            continue;
        if (c == '\0' || used + 1 == ENTRY)
            return -1;
        line[used++] = (char)c;
    }
    line[used] = '\0';
    return 1;
}

/* Two numbers. 1; 0 for a blank line; -1. */
static int read_columns(const char *line, struct run *r)
{
    static const char between[] = " \t\r,;";
    const char *q = line + strspn(line, between), *c = q + strcspn(q, between);
    const size_t q_length = (size_t)(c - q);
    if (!*q)
        return 0;
    c += strspn(c, between);
    const size_t c_length = strcspn(c, between);
    const char *rest = c + c_length + strspn(c + c_length, between);
    r->times = 1;
    return *rest || number_at(q, q_length, INT32_MAX, &r->q_len) ||
                   number_at(c, c_length, INT32_MAX, &r->context)
               ? -1
               : 1;
}

static int read_file(struct growing *g, FILE *f, const char *path, struct kvg_error *error)
{
    char line[ENTRY], where[512];
    int found;
    for (int64_t n = 1; (found = read_line(f, line)) != 0; n++) {
        struct run r;
        const int columns = found < 0 ? -1 : read_columns(line, &r);
        snprintf(where, sizeof where, "%.400s, line %" PRId64, path, n);
        if (columns < 0)
            return kvg_fail(
                error, KVG_EXIT_USAGE,
                "lengths: %s: a line holds two whole numbers, q_len and context, as in '512 8192'", where);
        if (columns > 0 && add_run(g, &r, where, error))
            return -1;
    }
    if (ferror(f))
        return kvg_fail(error, KVG_EXIT_USAGE, "lengths: %s cannot be read: %s", path, strerror(errno));
    return finish(g, path, error);
}

int kvg_list_parse(const char *text, char list[KVG_LIST_MAX], struct kvg_error *error)
{
    char own[KVG_LIST_MAX] = "";
    struct growing g = {.text = own};
    int failed;
    if (*text == '@') {
        FILE *f = fopen(text + 1, "r");
        if (!f)
            return kvg_fail(error, KVG_EXIT_USAGE, "lengths: %s cannot be read: %s",
                            text[1] ? text + 1 : "the file behind '@'", strerror(errno));
        failed = read_file(&g, f, text + 1, error);
        fclose(f);
    } else {
        failed = read_list(&g, text, error);
    }
    if (!failed)
        memcpy(list, own, sizeof own);
    return failed ? -1 : 0;
}
