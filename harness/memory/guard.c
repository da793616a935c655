/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.c: one mapping per buffer: guard, payload, guard. The far guard starts at the payload's very last
 * byte, so that a write one element too far is seen.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "reference/clones.h"
#include "guard.h"

struct guard {
    const char *name;
    unsigned char *mapping;
    size_t mapping_bytes;
    unsigned char *payload;
    int64_t bytes;
    int sealed, hidden;
    uint64_t hash;
};

/* Bytes after which the pattern repeats: words of a prime number, so that no stride of a kernel meets it. */
#define PERIOD (2 * (size_t)2039)

struct kvg_guard_list {
    struct guard *guards;
    int64_t count, capacity;
    unsigned char pattern[PERIOD]; /* kvg_guard_pattern, for memcpy and memcmp */
};

struct kvg_guard_list *kvg_guard_create(void)
{
    struct kvg_guard_list *list = calloc(1, sizeof *list);
    for (size_t i = 0; list && i < PERIOD; i++)
        list->pattern[i] = kvg_guard_pattern(i);
    return list;
}

void kvg_guard_free(struct kvg_guard_list *list)
{
    if (!list)
        return;
    for (int64_t i = 0; i < list->count; i++)
        munmap(list->guards[i].mapping, list->guards[i].mapping_bytes);
    free(list->guards);
    free(list);
}

/* 16-bit words 0x7fff and 0xffff in a fixed irregular order, NaN in every format wider than or as wide as a
 * byte but e4m3fnuz. The order makes a copy of one guard word over another visible half of the time. */
unsigned char kvg_guard_pattern(size_t i)
{
    if (i % 2 == 0)
        return 0xff;
    uint64_t word = (i % PERIOD / 2) * UINT64_C(0x9e3779b97f4a7c15);
    return (word ^ word >> 29) & (UINT64_C(1) << 32) ? 0xff : 0x7f;
}

static size_t round_up(size_t x, size_t to)
{
    return (x + to - 1) / to * to;
}

static int64_t tail_bytes(const struct guard *g)
{
    return (int64_t)(g->mapping_bytes - KVG_GUARD_BYTES) - g->bytes;
}

/* Writes the pattern from its byte `first` on. */
static void fill_guard(const struct kvg_guard_list *list, unsigned char *to, size_t first, size_t bytes)
{
    for (size_t done = 0, run; done < bytes; done += run) {
        const size_t at = (first + done) % PERIOD;
        run = bytes - done < PERIOD - at ? bytes - done : PERIOD - at;
        memcpy(to + done, list->pattern + at, run);
    }
}

/* 1 if it still stands there. */
static int is_whole(const struct kvg_guard_list *list, const unsigned char *guard, size_t first, size_t bytes)
{
    for (size_t done = 0, run; done < bytes; done += run) {
        const size_t at = (first + done) % PERIOD;
        run = bytes - done < PERIOD - at ? bytes - done : PERIOD - at;
        if (memcmp(guard + done, list->pattern + at, run) != 0)
            return 0;
    }
    return 1;
}

static int append(struct kvg_guard_list *list, const struct guard *g)
{
    if (list->count == list->capacity) {
        int64_t capacity = list->capacity ? list->capacity * 2 : 16;
        struct guard *guards = realloc(list->guards, (size_t)capacity * sizeof *guards);
        if (!guards)
            return -1;
        list->guards = guards;
        list->capacity = capacity;
    }
    list->guards[list->count++] = *g;
    return 0;
}

/* Huge pages are asked for from here on; below, all pages are taken at once rather than one fault each. */
#define LARGE_BYTES (INT64_C(4) << 20)

void *kvg_guard_alloc(struct kvg_guard_list *list, const char *name, int64_t bytes, struct kvg_error *error)
{
    struct guard g = {.name = name, .bytes = bytes};
    if (bytes < 0 || bytes > INT64_MAX / 2) {
        kvg_fail(error, KVG_EXIT_TROUBLE, "%s: a buffer of %lld bytes is impossible", name, (long long)bytes);
        return NULL;
    }
    g.mapping_bytes = round_up((size_t)bytes + 2 * KVG_GUARD_BYTES, KVG_GUARD_ALIGNMENT);
    const int large = bytes >= LARGE_BYTES, at_once = large ? 0 : MAP_POPULATE;
    g.mapping =
        mmap(NULL, g.mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | at_once, -1, 0);
    if (g.mapping == MAP_FAILED) {
        kvg_fail(error, KVG_EXIT_TROUBLE, "%s: cannot allocate %lld bytes: %s", name, (long long)bytes,
                 strerror(errno));
        return NULL;
    }
    g.payload = g.mapping + KVG_GUARD_BYTES;
    if (append(list, &g)) {
        munmap(g.mapping, g.mapping_bytes);
        kvg_fail(error, KVG_EXIT_TROUBLE, "%s: out of memory for the list of buffers", name);
        return NULL;
    }
    if (large)
        madvise(g.mapping, g.mapping_bytes, MADV_HUGEPAGE); /* advice: a refusal changes nothing */
    fill_guard(list, g.mapping, 0, KVG_GUARD_BYTES);
    fill_guard(list, g.payload + bytes, KVG_GUARD_BYTES + (size_t)bytes, (size_t)tail_bytes(&g));
    return g.payload;
}

/* One hash per piece, then a hash of those in order; so many lanes that vectors of them hide each other's
 * products, and memory is the limit. */
#define HASH_PIECE (INT64_C(1) << 20)
enum { LANES = 32, LANE_BYTES = 8 };

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 32;
}

KVG_REF_CLONES
static uint64_t hash_piece(const unsigned char *data, int64_t bytes)
{
    uint64_t lane[LANES], word;
    int64_t i = 0;
    for (int j = 0; j < LANES; j++)
        lane[j] = (uint64_t)j + 1;
    for (; i + LANES * LANE_BYTES <= bytes; i += LANES * LANE_BYTES)
        for (int j = 0; j < LANES; j++) {
            memcpy(&word, data + i + LANE_BYTES * j, LANE_BYTES);
            lane[j] = mix(lane[j], word);
        }
    for (; i < bytes; i++)
        lane[i % LANES] = mix(lane[i % LANES], data[i]);
    uint64_t h = (uint64_t)bytes;
    for (int j = 0; j < LANES; j++)
        h = mix(h, lane[j]);
    return h;
}

uint64_t kvg_hash_bytes(const void *data, int64_t bytes)
{
    int64_t pieces = (bytes + HASH_PIECE - 1) / HASH_PIECE;
    uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum) if (pieces > 4)
    for (int64_t p = 0; p < pieces; p++) {
        int64_t left = bytes - p * HASH_PIECE;
        uint64_t h =
            hash_piece((const unsigned char *)data + p * HASH_PIECE, left < HASH_PIECE ? left : HASH_PIECE);
        sum += mix(h, (uint64_t)p + 1); /* the position enters, so the order of adding does not matter */
    }
    return mix(sum, (uint64_t)bytes);
}

static void seal(struct guard *g)
{
    g->sealed = 1;
    g->hash = kvg_hash_bytes(g->payload, g->bytes);
}

void kvg_guard_seal(struct kvg_guard_list *list, const void *buffer)
{
    for (int64_t i = 0; i < list->count; i++)
        if (list->guards[i].payload == buffer)
            seal(&list->guards[i]);
}

void kvg_guard_hide(struct kvg_guard_list *list, const void *buffer)
{
    for (int64_t i = 0; i < list->count; i++)
        list->guards[i].hidden |= list->guards[i].payload == buffer;
}

void kvg_guard_seal_all(struct kvg_guard_list *list)
{
    for (int64_t i = 0; i < list->count; i++)
        seal(&list->guards[i]);
}

/* Where a guard was written: nearest to the buffer. */
static int tell_where(const struct guard *g, struct kvg_error *error)
{
    for (int64_t i = KVG_GUARD_BYTES - 1; i >= 0; i--)
        if (g->mapping[i] != kvg_guard_pattern((size_t)i))
            return kvg_fail(error, KVG_EXIT_INCORRECT,
                            "%s (%lld bytes) was written %lld bytes before its start", g->name,
                            (long long)g->bytes, (long long)(KVG_GUARD_BYTES - i));
    const unsigned char *tail = g->payload + g->bytes;
    for (int64_t i = 0; i < tail_bytes(g); i++)
        if (tail[i] != kvg_guard_pattern((size_t)(KVG_GUARD_BYTES + g->bytes + i)))
            return kvg_fail(error, KVG_EXIT_INCORRECT, "%s (%lld bytes) was written %lld bytes past its end",
                            g->name, (long long)g->bytes, (long long)i);
    return 0;
}

static int check(const struct kvg_guard_list *list, const struct guard *g, int hidden_too,
                 struct kvg_error *error)
{
    const size_t end = KVG_GUARD_BYTES + (size_t)g->bytes;
    if ((!is_whole(list, g->mapping, 0, KVG_GUARD_BYTES) ||
         !is_whole(list, g->mapping + end, end, (size_t)tail_bytes(g))) &&
        tell_where(g, error))
        return -1;
    if (g->sealed && (hidden_too || !g->hidden) && g->hash != kvg_hash_bytes(g->payload, g->bytes))
        return kvg_fail(error, KVG_EXIT_INCORRECT, "%s (%lld bytes) was changed, and it is an input", g->name,
                        (long long)g->bytes);
    return 0;
}

static int check_all(const struct kvg_guard_list *list, int hidden_too, struct kvg_error *error)
{
    for (int64_t i = 0; i < list->count; i++)
        if (check(list, &list->guards[i], hidden_too, error))
            return -1;
    return 0;
}

int kvg_guard_check(const struct kvg_guard_list *list, struct kvg_error *error)
{
    return check_all(list, 1, error);
}

int kvg_guard_check_shown(const struct kvg_guard_list *list, struct kvg_error *error)
{
    return check_all(list, 0, error);
}
