/* SPDX-License-Identifier: Apache-2.0
 *
 * paths.c: where data files are, and version and commit of this build. Only this object is compiled with the
 * Makefile's PATHS_DEF, so a new commit recompiles one file.
 */
#include "paths.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if !defined(KVG_SOURCE_DIR) && !defined(__cppcheck__)
#error "paths.c needs KVG_SOURCE_DIR, KVG_DATA_DIR, KVG_VERSION, KVG_GIT_SHA and KVG_GIT_DIRTY (see Makefile)"
#endif

const char *kvg_version(void)
{
    return KVG_VERSION;
}

const char *kvg_git_sha(void)
{
    return KVG_GIT_SHA;
}

int kvg_git_dirty(void)
{
    return KVG_GIT_DIRTY;
}

/* ------------------------------------------------------------------------------------------ places */

enum { MAX_PLACES = 6, PLACE_SIZE = 1024 };
struct places {
    char path[MAX_PLACES][PLACE_SIZE];
    int count;
};

/* The folder of each kind of data, below the source tree and below share/kvgauge. */
static const char *const in_source[] = {
    [KVG_DATA_SUITE] = "harness/suites", [KVG_DATA_INPUT] = "harness/inputs", [KVG_DATA_PLOT] = "plots"};
static const char *const installed[] = {
    [KVG_DATA_SUITE] = "suites", [KVG_DATA_INPUT] = "inputs", [KVG_DATA_PLOT] = "plots"};

static void add_place(struct places *places, const char *root, const char *folder)
{
    char *at = places->path[places->count];
    int n = snprintf(at, PLACE_SIZE, "%s/%s", root, folder);
    if (n < 0 || n >= PLACE_SIZE)
        return; /* too long to be opened */
    for (int i = 0; i < places->count; i++)
        if (strcmp(places->path[i], at) == 0)
            return;
    places->count++;
}

/* Folder of the running binary, with links resolved; "" without /proc. */
static void binary_dir(char dir[PLACE_SIZE])
{
    ssize_t n = readlink("/proc/self/exe", dir, PLACE_SIZE - 1);
    dir[n < 0 ? 0 : n] = '\0';
    char *slash = strrchr(dir, '/');
    if (slash)
        *slash = '\0';
}

static int lies_in(const char *dir, const char *root)
{
    size_t n = strlen(root);
    return strncmp(dir, root, n) == 0 && (dir[n] == '/' || dir[n] == '\0');
}

/* The checkout that contains the binary. It is the source tree of the build or, if the checkout was moved
 * since, the folder above the build folder, provided that it has harness/suites. 0 and the root, or -1. */
static int own_source_tree(char root[PLACE_SIZE])
{
    char dir[PLACE_SIZE], probe[PLACE_SIZE];
    binary_dir(dir);
    if (lies_in(dir, KVG_SOURCE_DIR)) {
        snprintf(root, PLACE_SIZE, "%s", KVG_SOURCE_DIR);
        return 0;
    }
    char *slash = strrchr(dir, '/');
    if (!slash || slash == dir)
        return -1;
    *slash = '\0';
    int n = snprintf(probe, sizeof probe, "%s/harness/suites", dir);
    if (n < 0 || n >= (int)sizeof probe || access(probe, R_OK))
        return -1;
    snprintf(root, PLACE_SIZE, "%s", dir);
    return 0;
}

static void find_places(enum kvg_data_kind kind, struct places *places)
{
    char root[PLACE_SIZE], dir[PLACE_SIZE];
    places->count = 0;
    const char *asked = getenv("KVGAUGE_DATA");
    if (asked && *asked)
        add_place(places, asked, installed[kind]);
    if (own_source_tree(root) == 0)
        add_place(places, root, in_source[kind]);
    binary_dir(dir);
    strncat(dir, "/../share/kvgauge", sizeof dir - strlen(dir) - 1);
    add_place(places, dir, installed[kind]);
    add_place(places, KVG_DATA_DIR, installed[kind]);
    add_place(places, KVG_SOURCE_DIR, in_source[kind]); /* a build folder outside the checkout */
}

static int is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static void name_places(const struct places *places, const char *name, char *text, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < places->count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s%s%s", i ? ", " : "", places->path[i],
                                 *name ? "/" : "", name);
}

int kvg_data_path(enum kvg_data_kind kind, const char *name, char *text, size_t size)
{
    struct places places;
    find_places(kind, &places);
    for (int i = 0; i < places.count; i++) {
        int n = snprintf(text, size, "%s/%s", places.path[i], name);
        if (n >= 0 && (size_t)n < size && access(text, F_OK) == 0)
            return 0;
    }
    name_places(&places, name, text, size);
    return -1;
}

int kvg_data_dir(enum kvg_data_kind kind, char *text, size_t size)
{
    struct places places;
    find_places(kind, &places);
    for (int i = 0; i < places.count; i++)
        if (is_folder(places.path[i])) {
            int n = snprintf(text, size, "%s", places.path[i]);
            return n >= 0 && (size_t)n < size ? 0 : -1;
        }
    name_places(&places, "", text, size);
    return -1;
}

/* ------------------------------------------------------------------------------------------ outputs */

static void default_dir(const char *in_tree, const char *elsewhere, char *text, size_t size)
{
    char root[PLACE_SIZE];
    if (own_source_tree(root) == 0 && access(root, W_OK) == 0)
        snprintf(text, size, "%s/%s", root, in_tree);
    else
        snprintf(text, size, "%s", elsewhere);
}

void kvg_default_run_dir(char *text, size_t size)
{
    default_dir("results/runs", "kvgauge-runs", text, size);
}

void kvg_default_plot_dir(char *text, size_t size)
{
    default_dir("plots/out", "kvgauge-plots", text, size);
}
