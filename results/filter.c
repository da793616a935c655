/* SPDX-License-Identifier: Apache-2.0
 *
 * filter.c: keep the rows a person asked for.
 */
#include <regex.h>
#include <string.h>
#include "group.h"

/* 8 to 16 hexadecimal digits and nothing else: the start of a case id. */
static int is_case_id(const char *text)
{
    size_t n = strspn(text, "0123456789abcdef");
    return n >= 8 && n <= 16 && text[n] == '\0';
}

int kvg_results_filter(struct kvg_results *results, const char *filter, struct kvg_error *error)
{
    int negate = *filter == '-', by_id = is_case_id(filter + negate);
    const char *pattern = filter + negate;
    regex_t regex;
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
