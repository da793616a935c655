/* SPDX-License-Identifier: Apache-2.0
 *
 * caches.h: sizes of this machine's caches, and the reader of one-line files of /proc and /sys.
 */
#ifndef KVG_HARNESS_CACHES_H
#define KVG_HARNESS_CACHES_H

#include <stddef.h>
#include <stdint.h>

/* Reads the first line of a file into text[size], without its newline and cut to size - 1 bytes. 0, or -1 and
 * "" when the file cannot be read or is empty. */
int kvg_read_line(const char *path, char *text, size_t size);

/* Size in bytes of the data or unified cache of CPU 0 at a level, as Linux reports it. Level 0 means the last
 * level of this CPU. 0 if unknown. In a virtual machine the reported last level may be larger or smaller than
 * what the guest can use. */
int64_t kvg_cache_bytes(int level);
int64_t kvg_llc_bytes(void); /* of the last-level cache */
int64_t kvg_l2_bytes(void);  /* of one L2 cache */

#endif
