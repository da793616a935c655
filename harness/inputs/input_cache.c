/* SPDX-License-Identifier: Apache-2.0
 *
 * input_cache.c: a list of read-only mappings. The key of an entry is its shape written as text.
 */
#include "input_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "inputs.h"

enum { ENTRIES = 128, KEY = 1400 };
#define USUAL_BYTES (INT64_C(512) << 20)
#define USUAL_SHARE 16  /* of the machine's memory */
#define LARGEST_SHARE 4 /* of the limit, for one entry */
#define HUGE_PAGES_FROM (INT64_C(4) << 20)

struct entry {
    char *key; /* owned; NULL: free */
    void *data;
    int64_t bytes, used; /* used: number of the last call that asked for it */
};

struct kvg_input_cache {
    struct entry entries[ENTRIES];
    int64_t limit, calls;
    struct kvg_input_cache_counts counts;
};

struct kvg_input_cache *kvg_input_cache_new(int64_t bytes)
{
    struct kvg_input_cache *cache = calloc(1, sizeof *cache);
    if (cache)
        cache->limit = bytes;
    return cache;
}

int64_t kvg_input_cache_usual_bytes(void)
{
    const int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const int64_t share = pages > 0 && page > 0 ? pages / USUAL_SHARE * page : 0;
    return share < USUAL_BYTES ? share : USUAL_BYTES;
}

static void drop(struct kvg_input_cache *cache, struct entry *e)
{
    if (!e->key)
        return;
    munmap(e->data, (size_t)e->bytes);
    free(e->key);
    cache->counts.bytes -= e->bytes;
    memset(e, 0, sizeof *e);
}

void kvg_input_cache_free(struct kvg_input_cache *cache)
{
    for (int i = 0; cache && i < ENTRIES; i++)
        drop(cache, &cache->entries[i]);
    free(cache);
}

void kvg_input_cache_count(const struct kvg_input_cache *cache, struct kvg_input_cache_counts *counts)
{
    *counts = cache->counts;
}

/* The kept copy, or NULL. */
static const void *find(struct kvg_input_cache *cache, const char *key)
{
    cache->calls++;
    for (int i = 0; i < ENTRIES; i++) {
        struct entry *e = &cache->entries[i];
        if (!e->key || strcmp(e->key, key) != 0)
            continue;
        e->used = cache->calls;
        cache->counts.hits++;
        return e->data;
    }
    cache->counts.misses++;
    return NULL;
}

static struct entry *oldest(struct kvg_input_cache *cache)
{
    struct entry *found = NULL;
    for (int i = 0; i < ENTRIES; i++) {
        struct entry *e = &cache->entries[i];
        if (e->key && (!found || e->used < found->used))
            found = e;
    }
    return found;
}

/* Drops the oldest entries until `bytes` bytes fit, and returns a free entry. */
static struct entry *make_room(struct kvg_input_cache *cache, int64_t bytes)
{
    for (struct entry *e; cache->counts.bytes + bytes > cache->limit && (e = oldest(cache));)
        drop(cache, e);
    for (int i = 0; i < ENTRIES; i++)
        if (!cache->entries[i].key)
            return &cache->entries[i];
    struct entry *e = oldest(cache);
    drop(cache, e);
    return e;
}

static void keep(struct kvg_input_cache *cache, const char *key, const void *data, int64_t bytes)
{
    if (bytes <= 0 || bytes > cache->limit / LARGEST_SHARE)
        return;
    struct entry *e = make_room(cache, bytes);
    void *copy = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *name = strdup(key);
    if (copy != MAP_FAILED && name) {
        if (bytes >= HUGE_PAGES_FROM)
            madvise(copy, (size_t)bytes, MADV_HUGEPAGE); /* only advice, so the result does not matter */
        memcpy(copy, data, (size_t)bytes);
        if (mprotect(copy, (size_t)bytes, PROT_READ) == 0) {
            *e = (struct entry){.key = name, .data = copy, .bytes = bytes, .used = cache->calls};
            cache->counts.bytes += bytes;
            return;
        }
    }
    if (copy != MAP_FAILED)
        munmap(copy, (size_t)bytes);
    free(name);
}

/* Writes everything that a call depends on as text; `what` names the kind of call. 0, or -1 when it is too
 * long. */
static int write_key(char key[KEY], const struct kvg_input_shape *s, enum kvg_tensor tensor, const char *what)
{
    const int n = snprintf(key, KEY,
                           "%s %s %d seed=%" PRIu64 " layer=%" PRId64 " seq=%" PRId64 " context=%" PRId64
                           " q_len=%" PRId64 " heads=%" PRId64 "/%" PRId64 " dim=%" PRId64 " span=%" PRId64,
                           what, s->input, (int)tensor, s->seed, s->layer, s->seq, s->context, s->q_len,
                           s->q_heads, s->kv_heads, s->head_dim, s->span);
    return n < 0 || n >= KEY ? -1 : 0;
}

int kvg_input_cache_fill(struct kvg_input_cache *cache, const struct kvg_input_shape *shape,
                         enum kvg_tensor tensor, int threads, uint16_t *out, struct kvg_error *error)
{
    char key[KEY];
    struct kvg_input_shape s = *shape;
    if (tensor != KVG_TENSOR_Q)
        s.q_len = 0; /* K and V do not depend on the number of queries */
    if (!cache || write_key(key, &s, tensor, "values"))
        return kvg_input_fill(shape, tensor, threads, out, error);
    const int64_t bytes = (tensor == KVG_TENSOR_Q ? s.q_len * s.q_heads : s.context * s.kv_heads) *
                          s.head_dim * (int64_t)sizeof *out;
    const void *kept = find(cache, key);
    if (kept) {
        memcpy(out, kept, (size_t)bytes);
        return 0;
    }
    if (kvg_input_fill(shape, tensor, threads, out, error))
        return -1;
    keep(cache, key, out, bytes);
    return 0;
}

/* Keeps an absmax: the number of samples, then the values. */
static void keep_absmax(struct kvg_input_cache *cache, const char *key, const float *absmax, int64_t samples,
                        int64_t heads)
{
    const size_t values = (size_t)(samples * heads) * sizeof *absmax;
    char *block = malloc(sizeof samples + values);
    if (!block)
        return;
    memcpy(block, &samples, sizeof samples);
    memcpy(block + sizeof samples, absmax, values);
    keep(cache, key, block, (int64_t)(sizeof samples + values));
    free(block);
}

static int copy_absmax(const char *kept, int64_t heads, float **absmax, int64_t *samples,
                       struct kvg_error *error)
{
    memcpy(samples, kept, sizeof *samples);
    const size_t values = (size_t)(*samples * heads) * sizeof **absmax;
    *absmax = malloc(values);
    if (!*absmax)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for %zu bytes of absmax values", values);
    memcpy(*absmax, kept + sizeof *samples, values);
    return 0;
}

int kvg_input_cache_absmax(struct kvg_input_cache *cache, const struct kvg_input_shape *shape,
                           enum kvg_tensor tensor, enum kvg_token_set set, float **absmax, int64_t *samples,
                           struct kvg_error *error)
{
    char key[KEY];
    const int64_t heads = tensor == KVG_TENSOR_Q ? shape->q_heads : shape->kv_heads;
    struct kvg_input_shape s = *shape;
    s.context = s.seq = s.q_len = s.span = 0; /* unused, as inputs.h says */
    if (!cache || set == KVG_SET_EVALUATION ||
        write_key(key, &s, tensor, set == KVG_SET_CALIBRATION ? "calibration" : "random tokens"))
        return kvg_input_absmax(shape, tensor, set, absmax, samples, error);
    const void *kept = find(cache, key);
    if (kept)
        return copy_absmax(kept, heads, absmax, samples, error);
    if (kvg_input_absmax(shape, tensor, set, absmax, samples, error))
        return -1;
    keep_absmax(cache, key, *absmax, *samples, heads);
    return 0;
}
