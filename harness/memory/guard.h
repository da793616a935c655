/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.h: buffers that notice who writes where they should not.
 *
 * Every buffer has a guard region of 64 KiB before its first and after its last byte, and may be sealed: its
 * content is then hashed, and a check tells whether it changed. The guards read as NaN in bf16, f16, f32,
 * e4m3 and e5m2 (and as huge or negative integers), so that a kernel that only reads past the end is likely
 * to be found out as well. Large buffers ask for transparent huge pages, as an engine's cache would.
 */
#ifndef KVG_HARNESS_GUARD_H
#define KVG_HARNESS_GUARD_H

#include <stddef.h>
#include <stdint.h>
#include "results/error.h"

#define KVG_GUARD_BYTES 65536
#define KVG_GUARD_ALIGNMENT 4096 /* of a buffer's first byte */

struct kvg_guard_list; /* owns its buffers */

struct kvg_guard_list *kvg_guard_create(void);    /* NULL on out of memory */
void kvg_guard_free(struct kvg_guard_list *list); /* and every buffer of it; NULL is fine */

/* A buffer of `bytes` >= 0 bytes (never NULL, content undefined), or NULL with the error (name and size).
 * `name` must outlive the list. */
void *kvg_guard_alloc(struct kvg_guard_list *list, const char *name, int64_t bytes, struct kvg_error *error);

/* Hash the content of `buffer` (a pointer kvg_guard_alloc gave), or of all buffers, as what it should be. A
 * buffer that is never sealed may change. */
void kvg_guard_seal(struct kvg_guard_list *list, const void *buffer);
void kvg_guard_seal_all(struct kvg_guard_list *list);
/* No kernel is told where `buffer` lies. */
void kvg_guard_hide(struct kvg_guard_list *list, const void *buffer);
/* 0 when every guard region and every sealed buffer is as it was; else -1, with the first buffer's name and
 * where (bytes before its start or past its end), exit code 2. */
int kvg_guard_check(const struct kvg_guard_list *list, struct kvg_error *error);
/* The same without the content of hidden buffers, which takes the more time the larger they are: for after
 * every call, where the other is for the end. */
int kvg_guard_check_shown(const struct kvg_guard_list *list, struct kvg_error *error);

/* What a guard holds: byte i, counted from the first byte of the guard before the buffer. */
unsigned char kvg_guard_pattern(size_t i);
/* 64-bit hash of bytes, the same for any thread count. */
uint64_t kvg_hash_bytes(const void *data, int64_t bytes);

#endif
