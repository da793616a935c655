/* SPDX-License-Identifier: Apache-2.0
 *
 * caches.h: sizes of this machine's caches, and the reader of one-line files of /proc and /sys.
 */
#ifndef KVG_HARNESS_CACHES_H
#define KVG_HARNESS_CACHES_H

#include <stddef.h>
#include <stdint.h>

/* First line of a file, without its newline, cut to size - 1 bytes. -1 and "" when there is none. */
int kvg_read_line(const char *path, char *text, size_t size);

/* Bytes of the data or unified cache of CPU 0 at a level (level 0: the highest level there is), as Linux
 * reports them; 0 if unknown. In a virtual machine the reported last level may be larger or smaller than what
 * the guest can use. */
int64_t kvg_cache_bytes(int level);
int64_t kvg_llc_bytes(void); /* of the last level */
int64_t kvg_l2_bytes(void);  /* of one L2 cache */

#endif
