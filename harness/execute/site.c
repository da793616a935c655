/* SPDX-License-Identifier: Apache-2.0
 *
 * site.c: operations on the memory that a kernel writes, on the host or on a device.
 */
#include "site.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BEFORE = 64 }; /* of workspace_before */

void kvg_site_free(struct kvg_site *site)
{
    kvg_guard_free(site->guards);
    kvg_device_memory_free(site->memory);
    for (int i = 0; i < KVG_FETCHED_COUNT; i++)
        free(site->fetched[i]);
    *site = (struct kvg_site){0};
}

/* The error "WHAT: WHY" after a failed operation of the device. */
static int device_failed(struct kvg_site *site, const char *what, struct kvg_error *error)
{
    struct kvg_device *d = site->device;
    if (!d->error[0])
        snprintf(d->error, sizeof d->error, "the device is lost");
    return kvg_fail(error, KVG_EXIT_TROUBLE, "%s: %s", what, d->error);
}

void *kvg_site_alloc(struct kvg_site *site, const char *name, int64_t bytes, struct kvg_error *error)
{
    return site->device ? kvg_device_memory_alloc(site->memory, name, bytes, error)
                        : kvg_guard_alloc(site->guards, name, bytes, error);
}

int kvg_site_fill(struct kvg_site *site, void *data, int byte, int64_t bytes, struct kvg_error *error)
{
    if (bytes <= 0)
        return 0;
    if (site->device)
        return site->device->ops->fill(site->device, data, byte, bytes)
                   ? device_failed(site, "filling a buffer", error)
                   : 0;
    memset(data, byte, (size_t)bytes);
    return 0;
}

int kvg_site_hash(struct kvg_site *site, const void *data, int64_t bytes, uint64_t *hash,
                  struct kvg_error *error)
{
    if (site->device)
        return site->device->ops->hash(site->device, data, bytes, hash)
                   ? device_failed(site, "hashing a buffer", error)
                   : 0;
    *hash = kvg_hash_bytes(data, bytes);
    return 0;
}

void *kvg_site_fetch(struct kvg_site *site, enum kvg_fetched slot, void *data, int64_t bytes,
                     struct kvg_error *error)
{
    if (!site->device)
        return data;
    if (!site->fetched[slot] || site->fetched_bytes[slot] < bytes) {
        free(site->fetched[slot]);
        site->fetched[slot] = malloc((size_t)bytes + 1);
        site->fetched_bytes[slot] = bytes;
    }
    if (!site->fetched[slot]) {
        kvg_fail(error, KVG_EXIT_TROUBLE, "no memory for %lld bytes of an output", (long long)bytes);
        return NULL;
    }
    if (site->device->ops->download(site->device, site->fetched[slot], data, bytes)) {
        device_failed(site, "copying an output to the host", error);
        return NULL;
    }
    return site->fetched[slot];
}

int kvg_site_send(struct kvg_site *site, void *to, const void *from, int64_t bytes, struct kvg_error *error)
{
    if (site->device)
        return site->device->ops->upload(site->device, to, from, bytes)
                   ? device_failed(site, "copying an input to the device", error)
                   : 0;
    memcpy(to, from, (size_t)bytes);
    return 0;
}

/* Checks the bytes before a workspace that does not begin with its buffer. */
static int check_before_workspace(const struct kvg_site *site, struct kvg_error *error)
{
    unsigned char here[MOST_BEFORE];
    const int64_t n = site->workspace_before;
    const char *from = (const char *)site->workspace - n;
    if (n == 0 || !site->workspace)
        return 0;
    if (!site->device)
        memcpy(here, from, (size_t)n);
    else if (site->device->ops->download(site->device, here, from, n))
        return kvg_device_fail(site->device, error);
    for (int64_t i = n - 1; i >= 0; i--)
        if (here[i] != 0xff)
            return kvg_guard_fail_written("workspace", site->workspace_bytes, i - n, error);
    return 0;
}

int kvg_site_check(struct kvg_site *site, struct kvg_error *error)
{
    const int failed =
        site->device ? kvg_device_memory_check(site->memory, error) : kvg_guard_check(site->guards, error);
    return failed ? -1 : check_before_workspace(site, error);
}
