/* SPDX-License-Identifier: Apache-2.0
 *
 * paths.c: where data files are, and version and commit of this build. Only this object is compiled again for
 * another commit or another datadir. Data is found from the place of the running binary, so the object has no
 * path of the build.
 */
#include "paths.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if !defined(KVG_DATA_DIR) && !defined(__cppcheck__)
#error "paths.c needs KVG_DATA_DIR, KVG_VERSION, KVG_GIT_SHA and KVG_GIT_DIRTY (PATHS_DEF in the Makefile)"
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

enum { MAX_PLACES = 4, PLACE_SIZE = 1024 };
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

static int is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Data of an installed program or a bundle: ../share/kvgauge from the binary. 1 when that folder is there. */
static int own_share(char root[PLACE_SIZE])
{
    char dir[PLACE_SIZE];
    binary_dir(dir);
    int n = snprintf(root, PLACE_SIZE, "%s/../share/kvgauge", dir);
    return n < PLACE_SIZE && is_folder(root);
}

static int is_source_tree(const char *root)
{
    char header[PLACE_SIZE], suites[PLACE_SIZE];
    int n = snprintf(header, sizeof header, "%s/kernels/kernel.h", root);
    int m = snprintf(suites, sizeof suites, "%s/harness/suites", root);
    return n < PLACE_SIZE && m < PLACE_SIZE && access(header, R_OK) == 0 && is_folder(suites);
}

/* The source tree of a binary that is not installed: a folder above the binary, or the one that the link
 * `source` of a build folder outside the tree points to. 1 when there is one. */
static int own_source_tree(char root[PLACE_SIZE])
{
    char dir[PLACE_SIZE];
    if (own_share(dir))
        return 0;
    binary_dir(dir);
    for (char *slash; *dir; *slash = '\0') {
        if (snprintf(root, PLACE_SIZE, "%s", dir) < PLACE_SIZE && is_source_tree(root))
            return 1;
        if (snprintf(root, PLACE_SIZE, "%s/source", dir) < PLACE_SIZE && is_source_tree(root))
            return 1;
        slash = strrchr(dir, '/');
        if (!slash)
            return 0;
    }
    return 0;
}

static void find_places(enum kvg_data_kind kind, struct places *places)
{
    char root[PLACE_SIZE];
    places->count = 0;
    const char *asked = getenv("KVGAUGE_DATA");
    if (asked && *asked)
        add_place(places, asked, installed[kind]);
    own_share(root);
    add_place(places, root, installed[kind]);
    if (own_source_tree(root))
        add_place(places, root, in_source[kind]);
    add_place(places, KVG_DATA_DIR, installed[kind]);
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
    if (own_source_tree(root) && access(root, W_OK) == 0)
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
