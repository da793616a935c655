/* SPDX-License-Identifier: Apache-2.0
 *
 * execute_memory.c: outputs and workspace of a kernel, wherever it runs. On a CPU every function here is the
 * plain one it stands for; on a device it goes through the device's operations, and its failures end the row.
 */
#include <stdlib.h>
#include <string.h>

#include "execute.h"

void *kvg_place(struct kvg_execution *x, const char *name, int64_t bytes)
{
    struct kvg_error error;
    void *data = x->device ? kvg_device_alloc(x->memory, name, bytes, &error)
                           : kvg_guard_alloc(x->guards, name, bytes, &error);
    if (data)
        return data;
    if (x->device)
        kvg_verdict_of_device(x, NULL, &error);
    else
        kvg_verdict_of_error(x, &error);
    return NULL;
}

int kvg_fill_bytes(struct kvg_execution *x, void *data, int byte, int64_t bytes)
{
    if (bytes <= 0)
        return 0;
    if (!x->device) {
        memset(data, byte, (size_t)bytes);
        return 0;
    }
    return x->device->ops->fill(x->device, data, byte, bytes)
               ? kvg_verdict_of_device(x, "filling a buffer", NULL)
               : 0;
}

int kvg_poison(struct kvg_execution *x, void *data, int64_t bytes)
{
    return kvg_fill_bytes(x, data, 0xff, bytes);
}

int kvg_digest(struct kvg_execution *x, const void *data, int64_t bytes, uint64_t *hash)
{
    if (!x->device) {
        *hash = kvg_hash_bytes(data, bytes);
        return 0;
    }
    return x->device->ops->hash(x->device, data, bytes, hash)
               ? kvg_verdict_of_device(x, "hashing a buffer", NULL)
               : 0;
}

void *kvg_fetch(struct kvg_execution *x, enum kvg_fetched slot, void *data, int64_t bytes)
{
    if (!x->device)
        return data;
    if (!x->fetched[slot] || x->fetched_bytes[slot] < bytes) {
        free(x->fetched[slot]);
        x->fetched[slot] = malloc((size_t)bytes + 1);
        x->fetched_bytes[slot] = bytes;
    }
    if (!x->fetched[slot]) {
        kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for %lld bytes of an output", (long long)bytes);
        return NULL;
    }
    if (x->device->ops->download(x->device, x->fetched[slot], data, bytes)) {
        kvg_verdict_of_device(x, "bringing an output back", NULL);
        return NULL;
    }
    return x->fetched[slot];
}

int kvg_send(struct kvg_execution *x, void *to, const void *from, int64_t bytes)
{
    if (!x->device) {
        memcpy(to, from, (size_t)bytes);
        return 0;
    }
    return x->device->ops->upload(x->device, to, from, bytes)
               ? kvg_verdict_of_device(x, "bringing an input", NULL)
               : 0;
}

static int check_memory(struct kvg_execution *x,
                        int (*check_inputs)(const struct kvg_prepared *, struct kvg_error *))
{
    struct kvg_error error;
    if (x->device)
        return kvg_device_check(x->memory, &error)
                   ? kvg_verdict_of_device(x, "looking for stray writes", &error)
                   : 0;
    if (kvg_guard_check(x->guards, &error) == 0 && check_inputs(&x->prepared, &error) == 0)
        return 0;
    x->session->tainted = 1; /* what else it wrote to nobody knows */
    kvg_suspect(x, KVG_FAULT_MEMORY, "bytes changed that a kernel must leave alone");
    return kvg_verdict(x, KVG_INCORRECT, "%s", error.text);
}

int kvg_check_memory(struct kvg_execution *x)
{
    return check_memory(x, kvg_prepared_check_shown);
}

int kvg_check_all_memory(struct kvg_execution *x)
{
    return check_memory(x, kvg_prepared_check);
}

int kvg_called(struct kvg_execution *x, const char *what, int code)
{
    if (!x->device)
        return code ? kvg_verdict_of_call(x, what, code) : 0;
    x->device->error[0] = '\0';
    const int failed = x->device->ops->finish(x->device);
    if (x->device->lost)
        return kvg_verdict_of_device(x, what, NULL);
    if (code)
        kvg_verdict_of_call(x, what, code);
    if (code && failed)
        kvg_remark(x, "%s", x->device->error);
    else if (failed)
        kvg_verdict(x, KVG_INCORRECT, "%s: %s", what, x->device->error);
    return code || failed ? -1 : 0;
}
