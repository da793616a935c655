/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.c: one mapping per buffer: guard, payload, guard. The second guard starts directly after the
 * payload's last byte, so that a write one element too far is detected.
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

/* Length of the pattern in bytes: a prime number of 16-bit words, so that it is no multiple of a kernel's
 * stride. */
#define PERIOD (2 * (size_t)2039)

struct kvg_guard_list {
    struct guard *guards;
    int64_t count, capacity;
    unsigned char pattern[PERIOD]; /* kvg_guard_pattern(0 .. PERIOD - 1) */
};

struct kvg_guard_list *kvg_guard_new(void)
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

/* 16-bit words 0x7fff and 0xffff in a fixed irregular order. They are NaN in every format of a cache except
 * e4m3fnuz. Because of the order, a copy of one guard word over another is detected half of the time. */
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

/* Writes `bytes` bytes of the pattern, starting with its byte `first`. */
static void fill_guard(const struct kvg_guard_list *list, unsigned char *to, size_t first, size_t bytes)
{
    for (size_t done = 0, run; done < bytes; done += run) {
        const size_t at = (first + done) % PERIOD;
        run = bytes - done < PERIOD - at ? bytes - done : PERIOD - at;
        memcpy(to + done, list->pattern + at, run);
    }
}

/* 1 if the bytes still hold the pattern that fill_guard wrote. */
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

/* From this size on a buffer uses huge pages. Smaller ones are populated at once, to avoid one fault per
 * page. */
#define LARGE_BYTES (INT64_C(4) << 20)

void *kvg_guard_alloc(struct kvg_guard_list *list, const char *name, int64_t bytes, struct kvg_error *error)
{
    struct guard g = {.name = name, .bytes = bytes};
    if (bytes < 0 || bytes > INT64_MAX / 2) {
        kvg_fail(error, KVG_EXIT_TROUBLE, "%s: %lld bytes is not a valid size of a buffer", name,
                 (long long)bytes);
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
        madvise(g.mapping, g.mapping_bytes, MADV_HUGEPAGE); /* only advice, so the result does not matter */
    fill_guard(list, g.mapping, 0, KVG_GUARD_BYTES);
    fill_guard(list, g.payload + bytes, KVG_GUARD_BYTES + (size_t)bytes, (size_t)tail_bytes(&g));
    return g.payload;
}

/* Bytes are hashed in pieces, and the hashes of the pieces are combined. A piece is hashed in 32 independent
 * lanes, so that the latency of the products is hidden and the speed is limited by the memory. */
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
        sum += mix(h, (uint64_t)p + 1); /* contains the position, so the order of the sum does not matter */
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

int kvg_guard_fail_written(const char *name, int64_t bytes, int64_t at, struct kvg_error *error)
{
    const int before = at < 0;
    return kvg_fail(error, KVG_EXIT_INCORRECT, "%s (%lld bytes) was written %lld bytes %s", name,
                    (long long)bytes, (long long)(before ? -at : at),
                    before ? "before its start" : "past its end");
}

int kvg_guard_fail_changed(const char *name, int64_t bytes, struct kvg_error *error)
{
    return kvg_fail(error, KVG_EXIT_INCORRECT, "%s (%lld bytes) was changed, and it is an input", name,
                    (long long)bytes);
}

/* Reports the changed guard byte that is nearest to the buffer, looking before it first. 0 when none is
 * changed. */
static int report_written(const struct guard *g, struct kvg_error *error)
{
    for (int64_t i = KVG_GUARD_BYTES - 1; i >= 0; i--)
        if (g->mapping[i] != kvg_guard_pattern((size_t)i))
            return kvg_guard_fail_written(g->name, g->bytes, i - KVG_GUARD_BYTES, error);
    const unsigned char *tail = g->payload + g->bytes;
    for (int64_t i = 0; i < tail_bytes(g); i++)
        if (tail[i] != kvg_guard_pattern((size_t)(KVG_GUARD_BYTES + g->bytes + i)))
            return kvg_guard_fail_written(g->name, g->bytes, i, error);
    return 0;
}

static int check(const struct kvg_guard_list *list, const struct guard *g, int hidden_too,
                 struct kvg_error *error)
{
    const size_t end = KVG_GUARD_BYTES + (size_t)g->bytes;
    if ((!is_whole(list, g->mapping, 0, KVG_GUARD_BYTES) ||
         !is_whole(list, g->mapping + end, end, (size_t)tail_bytes(g))) &&
        report_written(g, error))
        return -1;
    if (g->sealed && (hidden_too || !g->hidden) && g->hash != kvg_hash_bytes(g->payload, g->bytes))
        return kvg_guard_fail_changed(g->name, g->bytes, error);
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
