/* SPDX-License-Identifier: Apache-2.0
 *
 * caches.c: sizes of the caches of CPU 0, from /sys.
 */
#include "caches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int kvg_read_line(const char *path, char *text, size_t size)
{
    text[0] = '\0';
    FILE *file = fopen(path, "r");
    if (!file)
        return -1;
    char *got = fgets(text, (int)size, file);
    fclose(file);
    if (!got) {
        text[0] = '\0';
        return -1;
    }
    text[strcspn(text, "\n")] = '\0';
    return 0;
}

int64_t kvg_cache_bytes(int level)
{
    int64_t best = 0;
    int best_level = 0;
    for (int i = 0; i < 16; i++) {
        char path[96], text[32];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
        if (kvg_read_line(path, text, sizeof text))
            break;
        int found = atoi(text);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", i);
        if (kvg_read_line(path, text, sizeof text) || text[0] == 'I')
            continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        if (kvg_read_line(path, text, sizeof text))
            continue;
        char *unit;
        int64_t bytes = strtoll(text, &unit, 10);
        bytes *= *unit == 'K' ? 1024 : *unit == 'M' ? 1024 * 1024 : 1;
        if (level ? found == level : found > best_level) {
            best = bytes;
            best_level = found;
        }
    }
    return best;
}

int64_t kvg_llc_bytes(void)
{
    return kvg_cache_bytes(0);
}

int64_t kvg_l2_bytes(void)
{
    return kvg_cache_bytes(2);
}
