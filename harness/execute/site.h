/* SPDX-License-Identifier: Apache-2.0
 *
 * site.h: the memory that a kernel writes: outputs, workspace and copies of inputs, on the host or on a
 * device.
 *
 * Every function works on host memory for a CPU kernel and calls the device's operation for a device kernel.
 * Failures fill *error, with exit code KVG_EXIT_INCORRECT for a stray write and KVG_EXIT_TROUBLE for anything
 * else.
 */
#ifndef KVG_HARNESS_EXECUTE_SITE_H
#define KVG_HARNESS_EXECUTE_SITE_H

#include <stdint.h>

#include "harness/device/device.h"
#include "harness/memory/device_memory.h"
#include "harness/memory/guard.h"
#include "results/error.h"

/* Host copies of device buffers, one of each kind. */
enum kvg_fetched { KVG_FETCHED_OUT, KVG_FETCHED_LSE, KVG_FETCHED_K, KVG_FETCHED_V, KVG_FETCHED_COUNT };

struct kvg_site {
    struct kvg_device *device;        /* NULL: the kernel runs on the CPU; owned by the session */
    struct kvg_device_memory *memory; /* on a device: inputs, outputs and workspace; owned */
    struct kvg_guard_list *guards;    /* on a CPU: outputs and workspace; owned */
    void *workspace;                  /* [workspace_bytes] */
    int64_t workspace_bytes;
    int64_t workspace_before; /* bytes between the start of its buffer and the workspace; they hold 0xff */
    int clear_workspace;      /* 1: each call starts with a workspace of zeros instead of poison */
    void *fetched[KVG_FETCHED_COUNT]; /* [fetched_bytes], owned */
    int64_t fetched_bytes[KVG_FETCHED_COUNT];
};

void kvg_site_free(struct kvg_site *site);

/* Allocates a buffer with guard regions that lives as long as the site. `name` must live as long, too. NULL
 * on failure. */
void *kvg_site_alloc(struct kvg_site *site, const char *name, int64_t bytes, struct kvg_error *error);
/* Sets all bytes of a buffer. 0xff is NaN in every format that a kernel may write. */
int kvg_site_fill(struct kvg_site *site, void *data, int byte, int64_t bytes, struct kvg_error *error);
int kvg_site_hash(struct kvg_site *site, const void *data, int64_t bytes, uint64_t *hash,
                  struct kvg_error *error);
/* Host memory with the contents of a buffer, which the host may read and change: the buffer itself, or a copy
 * that lives until the same slot is fetched again. NULL on failure. */
void *kvg_site_fetch(struct kvg_site *site, enum kvg_fetched slot, void *data, int64_t bytes,
                     struct kvg_error *error);
int kvg_site_send(struct kvg_site *site, void *to, const void *from, int64_t bytes, struct kvg_error *error);
/* Checks for writes outside the site's buffers and, on a device, for changed inputs. */
int kvg_site_check(struct kvg_site *site, struct kvg_error *error);

#endif
