/* SPDX-License-Identifier: Apache-2.0
 *
 * shipped.c: see shipped.h. harness/machine/paths.h says where the folder is looked for.
 */
#include "shipped.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/case/words.h"
#include "harness/machine/paths.h"

static int ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n > m && strcmp(text + n - m, tail) == 0;
}

static int is_suite(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && ends_with(entry->d_name, ".yaml");
}

void kvg_shipped_free_names(char **names, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

int kvg_shipped_list_suites(char *folder, size_t size, char ***names, int64_t *count, struct kvg_error *error)
{
    struct dirent **entries;
    if (kvg_data_dir(KVG_DATA_SUITE, folder, size))
        return kvg_fail(error, KVG_EXIT_TROUBLE, "there is no folder of suites; looked for %s", folder);
    int n = scandir(folder, &entries, is_suite, alphasort);
    if (n < 0)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot be read: %s", folder, strerror(errno));
    *names = calloc((size_t)n + 1, sizeof **names);
    int failed = !*names;
    for (int i = 0; i < n; i++) {
        if (!failed)
            (*names)[i] = strndup(entries[i]->d_name, strlen(entries[i]->d_name) - strlen(".yaml"));
        failed |= !failed && !(*names)[i];
        free(entries[i]);
    }
    free(entries);
    *count = n;
    if (!failed)
        return 0;
    kvg_shipped_free_names(*names, *names ? n : 0);
    return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
}

static int unknown_suite(const char *suite, struct kvg_error *error)
{
    char folder[1024], hint[128] = "", **names;
    int64_t count;
    if (kvg_shipped_list_suites(folder, sizeof folder, &names, &count, NULL) == 0) {
        kvg_word_hint(suite, (const char *const *)names, count, hint, sizeof hint);
        kvg_shipped_free_names(names, count);
    }
    return kvg_fail(error, KVG_EXIT_USAGE,
                    "there is no suite '%s'%s A suite is a name of kvgauge list --suites or a FILE.yaml",
                    suite, *hint ? hint : ".");
}

int kvg_shipped_find_suite(const char *suite, char *path, size_t size, struct kvg_error *error)
{
    if (ends_with(suite, ".yaml") || ends_with(suite, ".yml")) {
        snprintf(path, size, "%s", suite);
        return 0;
    }
    char file[256];
    snprintf(file, sizeof file, "%s.yaml", suite);
    if (!strchr(suite, '/') && kvg_data_path(KVG_DATA_SUITE, file, path, size) == 0)
        return 0;
    return unknown_suite(suite, error);
}
