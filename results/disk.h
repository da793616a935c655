/* SPDX-License-Identifier: Apache-2.0
 *
 * disk.h: complete writes, lasting file names, and new folders.
 */
#ifndef KVG_RESULTS_DISK_H
#define KVG_RESULTS_DISK_H

#include <stddef.h>
#include "error.h"

/* Writes all `size` bytes. -1 with errno. */
int kvg_write_whole(int fd, const char *data, size_t size);
/* Flushes the folder that holds `path`, because a power cut may lose a new file name that is not flushed.
 * Errors are ignored: some file systems cannot flush folders. */
void kvg_sync_folder_of(const char *path);
/* Makes the folder and the missing folders above it, as mkdir -p does. */
int kvg_make_folders(const char *path, struct kvg_error *error);

#endif
