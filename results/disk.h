/* SPDX-License-Identifier: Apache-2.0
 *
 * disk.h: the two things every writer of ours must do right. Private to results/.
 */
#ifndef KVG_RESULTS_DISK_H
#define KVG_RESULTS_DISK_H

#include <stddef.h>

/* All of it, or -1 with errno. */
int kvg_write_whole(int fd, const char *data, size_t size);
/* A name lives in its folder: without this a power cut may lose it. Best effort; some file systems cannot. */
void kvg_sync_folder_of(const char *path);

#endif
