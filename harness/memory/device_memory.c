/* SPDX-License-Identifier: Apache-2.0
 *
 * device_memory.c: one allocation per buffer: guard, payload, guard. All guards hold the same bytes, so one
 * hash is enough for all of them; the device computes it for the first buffer.
 */
#include "device_memory.h"

#include <stdlib.h>
#include <string.h>
#include "guard.h"

struct buffer {
    const char *name;
    char *base; /* device address of the first guard; NULL: released */
    int64_t bytes;
    int sealed;
    uint64_t hash;
};

struct kvg_device_memory {
    struct kvg_device *device;
    struct buffer *buffers;
    int64_t count, capacity;
    int64_t available_before; /* -1 unknown */
    int hashed;               /* 1: guard_hash is known */
    uint64_t guard_hash;
    unsigned char guard[KVG_GUARD_BYTES];
};

int kvg_device_fail(const struct kvg_device *device, struct kvg_error *error)
{
    return kvg_fail(error, KVG_EXIT_TROUBLE, "%s", device->error);
}

struct kvg_device_memory *kvg_device_memory_new(struct kvg_device *device)
{
    struct kvg_device_memory *m = calloc(1, sizeof *m);
    int64_t total;
    if (!m)
        return NULL;
    m->device = device;
    for (size_t i = 0; i < KVG_GUARD_BYTES; i++)
        m->guard[i] = kvg_guard_pattern(i);
    if (device->ops->memory(device, &m->available_before, &total))
        m->available_before = -1;
    return m;
}

void kvg_device_memory_free(struct kvg_device_memory *m)
{
    if (!m)
        return;
    for (int64_t i = 0; i < m->count; i++)
        m->device->ops->release(m->device, m->buffers[i].base);
    free(m->buffers);
    free(m);
}

int64_t kvg_device_memory_taken(struct kvg_device_memory *m)
{
    int64_t available, total;
    if (m->available_before < 0 || m->device->ops->memory(m->device, &available, &total))
        return -1;
    return m->available_before > available ? m->available_before - available : 0;
}

static int append(struct kvg_device_memory *m, const struct buffer *b)
{
    if (m->count == m->capacity) {
        int64_t capacity = m->capacity ? 2 * m->capacity : 32;
        struct buffer *buffers = realloc(m->buffers, (size_t)capacity * sizeof *buffers);
        if (!buffers)
            return -1;
        m->buffers = buffers;
        m->capacity = capacity;
    }
    m->buffers[m->count++] = *b;
    return 0;
}

static char *tail_of(const struct buffer *b)
{
    return b->base + KVG_GUARD_BYTES + b->bytes;
}

static int raise_guards(struct kvg_device_memory *m, const struct buffer *b, struct kvg_error *error)
{
    struct kvg_device *d = m->device;
    if (d->ops->upload(d, b->base, m->guard, KVG_GUARD_BYTES) ||
        d->ops->upload(d, tail_of(b), m->guard, KVG_GUARD_BYTES))
        return kvg_device_fail(d, error);
    if (!m->hashed && d->ops->hash(d, b->base, KVG_GUARD_BYTES, &m->guard_hash))
        return kvg_device_fail(d, error);
    m->hashed = 1;
    return 0;
}

static void *no_memory(struct kvg_device_memory *m, const char *name, int64_t bytes, struct kvg_error *error)
{
    struct kvg_device *d = m->device;
    int64_t available = -1, total = -1;
    if (d->lost) {
        kvg_device_fail(d, error);
        return NULL;
    }
    if (d->ops->memory(d, &available, &total))
        available = total = -1;
    d->error[0] = '\0';
    kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot allocate %lld bytes on %s: %lld of %lld bytes are free",
             name, (long long)bytes, d->name, (long long)available, (long long)total);
    return NULL;
}

void *kvg_device_memory_alloc(struct kvg_device_memory *m, const char *name, int64_t bytes,
                              struct kvg_error *error)
{
    struct kvg_device *d = m->device;
    struct buffer b = {.name = name, .bytes = bytes};
    if (bytes < 0 || bytes > INT64_MAX / 2) {
        d->error[0] = '\0';
        kvg_fail(error, KVG_EXIT_TROUBLE, "%s: %lld bytes is not a valid size of a buffer", name,
                 (long long)bytes);
        return NULL;
    }
    b.base = d->ops->allocate(d, bytes + 2 * KVG_GUARD_BYTES);
    if (!b.base)
        return no_memory(m, name, bytes, error);
    if (append(m, &b)) {
        d->ops->release(d, b.base);
        d->error[0] = '\0';
        kvg_fail(error, KVG_EXIT_TROUBLE, "%s: out of memory for the list of buffers", name);
        return NULL;
    }
    return raise_guards(m, &b, error) ? NULL : b.base + KVG_GUARD_BYTES;
}

static struct buffer *find(struct kvg_device_memory *m, const void *payload)
{
    for (int64_t i = 0; i < m->count; i++)
        if (m->buffers[i].base && m->buffers[i].base + KVG_GUARD_BYTES == payload)
            return &m->buffers[i];
    return NULL;
}

void kvg_device_memory_release(struct kvg_device_memory *m, void *buffer)
{
    struct buffer *b = find(m, buffer);
    if (!b)
        return;
    m->device->ops->release(m->device, b->base);
    *b = m->buffers[--m->count];
}

int kvg_device_memory_seal(struct kvg_device_memory *m, const void *buffer, struct kvg_error *error)
{
    struct buffer *b = find(m, buffer);
    if (!b)
        return 0;
    b->sealed = 1;
    return m->device->ops->hash(m->device, buffer, b->bytes, &b->hash) ? kvg_device_fail(m->device, error)
                                                                       : 0;
}

/* Downloads a changed guard and reports its changed byte that is nearest to the buffer: the last one of the
 * guard before it, the first one of the guard after it. */
static int report_written(struct kvg_device_memory *m, const struct buffer *b, int after,
                          struct kvg_error *error)
{
    unsigned char *now = malloc(KVG_GUARD_BYTES);
    int64_t at = -1;
    if (!now) {
        m->device->error[0] = '\0';
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for a guard region");
    }
    if (m->device->ops->download(m->device, now, after ? tail_of(b) : b->base, KVG_GUARD_BYTES)) {
        free(now);
        return kvg_device_fail(m->device, error);
    }
    for (int64_t i = 0; i < KVG_GUARD_BYTES; i++)
        if (now[i] != m->guard[i] && (at < 0 || !after))
            at = i;
    free(now);
    return kvg_guard_fail_written(b->name, b->bytes, after ? at : at - KVG_GUARD_BYTES, error);
}

static int check(struct kvg_device_memory *m, const struct buffer *b, struct kvg_error *error)
{
    struct kvg_device *d = m->device;
    uint64_t hash;
    for (int after = 0; after < 2; after++) {
        if (d->ops->hash(d, after ? tail_of(b) : b->base, KVG_GUARD_BYTES, &hash))
            return kvg_device_fail(d, error);
        if (hash != m->guard_hash)
            return report_written(m, b, after, error);
    }
    if (!b->sealed)
        return 0;
    if (d->ops->hash(d, b->base + KVG_GUARD_BYTES, b->bytes, &hash))
        return kvg_device_fail(d, error);
    if (hash != b->hash)
        return kvg_guard_fail_changed(b->name, b->bytes, error);
    return 0;
}

int kvg_device_memory_check(struct kvg_device_memory *m, struct kvg_error *error)
{
    for (int64_t i = 0; i < m->count; i++)
        if (check(m, &m->buffers[i], error))
            return -1;
    return 0;
}
