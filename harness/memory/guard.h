/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.h: host buffers that detect writes out of bounds and writes to inputs.
 *
 * Every buffer has a guard region of 64 KiB before its first byte and one after its last byte. A buffer may
 * be sealed: its content is hashed, and a check detects any change. The guards read as NaN in bf16, f16,
 * f32, e4m3 and e5m2 (and as very large or negative integers), so that a kernel that only reads out of
 * bounds is probably detected too, by a wrong output. Large buffers use transparent huge pages, as the cache
 * of an inference engine does.
 */
#ifndef KVG_HARNESS_GUARD_H
#define KVG_HARNESS_GUARD_H

#include <stddef.h>
#include <stdint.h>
#include "results/error.h"

#define KVG_GUARD_BYTES 65536
#define KVG_GUARD_ALIGNMENT 4096 /* of a buffer's first byte */

struct kvg_guard_list; /* owns its buffers */

struct kvg_guard_list *kvg_guard_new(void);       /* NULL on out of memory */
void kvg_guard_free(struct kvg_guard_list *list); /* and every buffer of it; NULL is fine */

/* A buffer of `bytes` bytes with undefined content (not NULL for 0 bytes either), or NULL with the error.
 * `name` must outlive the list. */
void *kvg_guard_alloc(struct kvg_guard_list *list, const char *name, int64_t bytes, struct kvg_error *error);

/* Seals `buffer` (a pointer from kvg_guard_alloc), or all buffers: the present content is the right one from
 * now on. A buffer that is never sealed may change. */
void kvg_guard_seal(struct kvg_guard_list *list, const void *buffer);
void kvg_guard_seal_all(struct kvg_guard_list *list);
/* Marks a buffer whose address no kernel gets. */
void kvg_guard_hide(struct kvg_guard_list *list, const void *buffer);
/* 0 when every guard region and every sealed buffer is unchanged. Else -1 with exit code 2; the error names
 * the first changed buffer and the place (bytes before its start or past its end). */
int kvg_guard_check(const struct kvg_guard_list *list, struct kvg_error *error);
/* The same without the content of hidden buffers, whose hash takes long when they are large. For a check
 * after every call; kvg_guard_check is for the check after the last one. */
int kvg_guard_check_shown(const struct kvg_guard_list *list, struct kvg_error *error);

/* Errors for a buffer that was changed; both return -1. written: the changed byte is `at` bytes from the end
 * of the buffer (at >= 0), or -at bytes before its start (at < 0). */
int kvg_guard_fail_written(const char *name, int64_t bytes, int64_t at, struct kvg_error *error);
int kvg_guard_fail_changed(const char *name, int64_t bytes, struct kvg_error *error);

/* Byte i of the pattern that the guards hold; i counts from the first byte of the guard before the buffer. */
unsigned char kvg_guard_pattern(size_t i);
/* 64-bit hash of bytes; it does not depend on the number of threads. */
uint64_t kvg_hash_bytes(const void *data, int64_t bytes);

#endif
