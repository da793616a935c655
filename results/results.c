/* SPDX-License-Identifier: Apache-2.0
 *
 * results.c: see results.h.
 */
#include "results.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kvg_results_free(struct kvg_results *results)
{
    for (int64_t i = 0; i < results->count; i++)
        kvg_row_free(&results->rows[i]);
    free(results->rows);
    kvg_facts_free(&results->run);
    kvg_facts_free(&results->machine);
    memset(results, 0, sizeof(*results));
}

/* 1 for the start of a case id: 8 to 16 hexadecimal digits and nothing else. */
static int is_case_id(const char *text)
{
    size_t n = strspn(text, "0123456789abcdef");
    return n >= 8 && n <= 16 && text[n] == '\0';
}

/* C0, DEL, and C1 as UTF-8 writes it; the number of its bytes, 0 for any other character. */
static int control_bytes(const char *c)
{
    const unsigned char a = (unsigned char)c[0], b = a ? (unsigned char)c[1] : 0;
    if (a == 0xc2 && b >= 0x80 && b < 0xa0)
        return 2;
    return a < 0x20 || a == 0x7f;
}

/* A copy with visible control characters; NULL on out of memory. */
static char *printable(const char *text)
{
    char *copy = malloc(4 * strlen(text) + 1), *end = copy;
    while (copy && *text) {
        int n = control_bytes(text);
        if (n == 0)
            *end++ = *text++;
        for (; n > 0; n--)
            end += sprintf(end, "\\x%02x", (unsigned char)*text++);
    }
    if (copy)
        *end = '\0';
    return copy;
}

static int make_facts_printable(struct kvg_facts *facts)
{
    for (int64_t i = 0; i < facts->count; i++) {
        if (!facts->facts[i].text)
            continue;
        char *copy = printable(facts->facts[i].text);
        if (!copy)
            return -1;
        free(facts->facts[i].text);
        facts->facts[i].text = copy;
    }
    return 0;
}

int kvg_results_make_printable(struct kvg_results *results, struct kvg_error *error)
{
    int failed = make_facts_printable(&results->run) || make_facts_printable(&results->machine);
    for (int64_t r = 0; r < results->count && !failed; r++)
        for (int64_t c = 0; c < kvg_columns_count && !failed; c++) {
            if (kvg_columns[c].type != KVG_COLUMN_STRING)
                continue;
            char **field = (char **)(void *)((char *)&results->rows[r] + kvg_columns[c].offset);
            char *copy = printable(*field);
            failed = !copy || kvg_row_set_string(field, copy);
            free(copy);
        }
    return failed ? kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory") : 0;
}

int kvg_pattern_check(const char *pattern, struct kvg_error *error)
{
    enum { LONGEST = 1000, MOST_COPIES = 1000 };
    if (strlen(pattern) > LONGEST)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "--filter '%.60s...': has %zu characters; at most %d would be right", pattern,
                        strlen(pattern), LONGEST);
    double copies = 1;
    for (const char *c = strchr(pattern, '{'); c; c = strchr(c + 1, '{')) {
        char *end;
        double most = (double)strtoull(c + 1, &end, 10);
        if (*end == ',') {
            const double upper = (double)strtoull(end + 1, NULL, 10);
            most = upper > most ? upper : most;
        }
        copies *= most > 1 ? most : 1;
    }
    if (copies > MOST_COPIES)
        return kvg_fail(error, KVG_EXIT_USAGE,
                        "--filter '%.300s': its counts in {} multiply to %.0f; at most %d would be right",
                        pattern, copies, MOST_COPIES);
    return 0;
}

int kvg_results_filter(struct kvg_results *results, const char *filter, struct kvg_error *error)
{
    int negate = *filter == '-', by_id = is_case_id(filter + negate);
    const char *pattern = filter + negate;
    regex_t regex;
    if (!by_id && kvg_pattern_check(pattern, error))
        return -1;
    int why = by_id ? 0 : regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB);
    if (why) {
        char text[128];
        regerror(why, &regex, text, sizeof(text));
        return kvg_fail(error, KVG_EXIT_USAGE, "--filter '%.300s': %s", filter, text);
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < results->count; i++) {
        struct kvg_row *row = &results->rows[i];
        int match = by_id ? strncmp(row->case_id, pattern, strlen(pattern)) == 0
                          : regexec(&regex, row->case_string, 0, NULL, 0) == 0;
        if (match != negate)
            results->rows[kept++] = *row;
        else
            kvg_row_free(row);
    }
    results->count = kept;
    if (!by_id)
        regfree(&regex);
    return 0;
}
