/* SPDX-License-Identifier: Apache-2.0
 *
 * results.c: see results.h.
 */
#include "results.h"

#include <regex.h>
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
