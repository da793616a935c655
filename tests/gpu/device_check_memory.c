/* SPDX-License-Identifier: Apache-2.0
 *
 * device_check_memory.c: checks copies, fills, hashes, comparisons and packing, at odd sizes, at odd
 * addresses and beyond 4 GiB.
 */
#include "device_check.h"

#include <stdlib.h>
#include <string.h>

static void check_copies(struct checks *c)
{
    static const int64_t sizes[] = {0,     1,       3,        15,       16,       4097,
                                    65537, 1 << 20, 16777216, 16777217, 33554431, 70000001};
    static const int64_t offsets[] = {0, 1, 13};
    const int64_t most = 70000001 + 64;
    char *from = must_malloc(most), *to = must_malloc(most), *there = must_allocate(c, most);
    int bad = 0;
    random_bytes(from, most, 1);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t o = 0; o < sizeof offsets / sizeof offsets[0]; o++) {
            const int64_t n = sizes[s], at = offsets[o];
            memset(to, 0, (size_t)n + 1);
            to[n] = 0x5c;
            bad += c->d->ops->fill(c->d, there, 0xee, n + 64) ||
                   c->d->ops->upload(c->d, there + at, from + o, n) ||
                   c->d->ops->download(c->d, to, there + at, n) || memcmp(to, from + o, (size_t)n) ||
                   to[n] != 0x5c;
            /* the bytes before and after are unchanged */
            unsigned char edge[64];
            bad += c->d->ops->download(c->d, edge, there + at + n, 64 - at);
            for (int64_t i = 0; i < 64 - at; i++)
                bad += edge[i] != 0xee;
            bad += c->d->ops->download(c->d, edge, there, at);
            for (int64_t i = 0; i < at; i++)
                bad += edge[i] != 0xee;
        }
    check(c, !bad, "copies and fills of 0 to 70000001 bytes at odd addresses");
    const double start = now();
    bad = c->d->ops->upload(c->d, there, from, most) || c->d->ops->finish(c->d);
    const double up = now() - start;
    bad = bad || c->d->ops->download(c->d, to, there, most);
    const double down = now() - start - up;
    check(c, !bad, "copies: to the device %.1f GB/s, back %.1f GB/s", (double)most / up / 1e9,
          (double)most / down / 1e9);
    c->d->ops->release(c->d, there);
    free(from);
    free(to);
}

/* A buffer of more than 4 GiB. An access beyond 4 GiB must not end at its start. */
static void check_far(struct checks *c)
{
    const int64_t bytes = ((int64_t)9 << 29) + 11, far = ((int64_t)1 << 32) + 13;
    char *a = must_allocate(c, bytes), *b = must_allocate(c, bytes), mark[5] = "mark", got[5] = "";
    uint64_t before = 0, after = 1, other = 2;
    int64_t first = 0, second = 0;
    int bad = c->d->ops->fill(c->d, a, 0x11, bytes) || c->d->ops->fill(c->d, b, 0x11, bytes) ||
              c->d->ops->hash(c->d, a, bytes, &before) || c->d->ops->hash(c->d, b, bytes, &other) ||
              c->d->ops->differs(c->d, a, b, bytes, &first) || c->d->ops->upload(c->d, a + far, mark, 4) ||
              c->d->ops->download(c->d, got, a + far, 4) || c->d->ops->hash(c->d, a, bytes, &after) ||
              c->d->ops->differs(c->d, a, b, bytes, &second);
    check(c, !bad && !memcmp(got, mark, 4), "copy beyond 4 GiB");
    check(c, !bad && before == other && before != after, "hash beyond 4 GiB");
    check(c, !bad && first == -1 && second == far, "comparison beyond 4 GiB (%lld, %lld)", (long long)first,
          (long long)second);
    bad = c->d->ops->fill(c->d, a, 0x22, bytes) || c->d->ops->download(c->d, got, a + bytes - 1, 1);
    check(c, !bad && got[0] == 0x22, "fill beyond 4 GiB");
    double start = now();
    bad = c->d->ops->hash(c->d, a, bytes, &after);
    const double hash = now() - start;
    start = now();
    bad = bad || c->d->ops->differs(c->d, a, b, bytes / 2, &first);
    check(c, !bad && first == 0, "hash %.0f GB/s, comparison of buffers that differ everywhere in %.1f ms",
          (double)bytes / hash / 1e9, (now() - start) * 1e3);
    bad = c->d->ops->fill(c->d, b, 0x22, bytes);
    start = now();
    bad = bad || c->d->ops->finish(c->d);
    start = now();
    bad = bad || c->d->ops->differs(c->d, a, b, bytes, &first);
    check(c, !bad && first == -1, "comparison %.0f GB/s", 2.0 * (double)bytes / (now() - start) / 1e9);
    c->d->ops->release(c->d, a);
    c->d->ops->release(c->d, b);
}

/* ---------------------------------------------------------------- hash */

static uint64_t hash_of(struct checks *c, const void *there, int64_t bytes)
{
    uint64_t hash = 0;
    if (c->d->ops->hash(c->d, there, bytes, &hash))
        check(c, 0, "hash of %lld bytes", (long long)bytes);
    return hash;
}

/* Hash of the bytes with `n` of them at `at` replaced by `to`; restores them afterwards. */
static uint64_t hash_with(struct checks *c, char *there, int64_t bytes, const char *data, int64_t at,
                          const void *to, int64_t n)
{
    (void)c->d->ops->upload(c->d, there + at, to, n);
    const uint64_t hash = hash_of(c, there, bytes);
    (void)c->d->ops->upload(c->d, there + at, data + at, n);
    return hash;
}

static void check_flips(struct checks *c, char *there, const char *data, int64_t bytes, const char *what)
{
    const uint64_t plain = hash_of(c, there, bytes);
    int missed = 0;
    for (int64_t i = 0; i < 400; i++) {
        /* each of the first 64 and the last 64 bytes, and others all over */
        const int64_t at = i < 64 ? i : i < 128 ? bytes - 1 - (i - 64) : (i * 2654435761 + 17) % bytes;
        const char flipped = (char)(data[at] ^ (1 << i % 8));
        missed += hash_with(c, there, bytes, data, at, &flipped, 1) == plain;
    }
    check(c, !missed, "hash changes with a flipped bit (%s)", what);
    check(c, hash_of(c, there, bytes) == plain, "hash of restored data is the same again (%s)", what);
}

static void check_swaps(struct checks *c, char *there, char *data, int64_t bytes)
{
    static const int64_t apart[] = {8, 16, 4096, 32768, 65536, 81920};
    const uint64_t plain = hash_of(c, there, bytes);
    int missed = 0;
    for (int64_t i = 0; i < 60; i++) {
        const int64_t a = i * 104, b = a + apart[i % 6];
        char x[8], y[8];
        memcpy(x, data + a, 8);
        memcpy(y, data + b, 8);
        if (i % 2) { /* words that differ only in their highest bit */
            memcpy(y, x, 8);
            y[7] = (char)(y[7] ^ 0x80);
        }
        (void)c->d->ops->upload(c->d, there + a, x, 8);
        (void)c->d->ops->upload(c->d, there + b, y, 8);
        const uint64_t before = hash_of(c, there, bytes);
        (void)c->d->ops->upload(c->d, there + a, y, 8);
        (void)c->d->ops->upload(c->d, there + b, x, 8);
        missed += hash_of(c, there, bytes) == before;
        (void)c->d->ops->upload(c->d, there + a, data + a, 8);
        (void)c->d->ops->upload(c->d, there + b, data + b, 8);
    }
    check(c, !missed && hash_of(c, there, bytes) == plain, "hash changes if two words change places");
}

static void check_hash(struct checks *c)
{
    const int64_t bytes = 300007;
    char *data = must_malloc(bytes), *there = must_allocate(c, bytes + 64);
    uint64_t zeros[20];
    int same = 0, apart = 1;
    random_bytes(data, bytes, 2);
    (void)c->d->ops->upload(c->d, there, data, bytes);
    check_flips(c, there, data, bytes, "aligned");
    check_swaps(c, there, data, bytes);
    const uint64_t plain = hash_of(c, there, bytes), shorter = hash_of(c, there, bytes - 1);
    for (int64_t at = 1; at < 20; at++) {
        (void)c->d->ops->upload(c->d, there + at, data, bytes);
        same += hash_of(c, there + at, bytes) == plain && hash_of(c, there + at, bytes - 1) == shorter;
    }
    check(c, same == 19 && plain != shorter, "hash does not depend on the address");
    (void)c->d->ops->upload(c->d, there + 5, data, bytes);
    check_flips(c, there + 5, data, bytes, "at an odd address");
    (void)c->d->ops->fill(c->d, there, 0, bytes);
    for (int64_t n = 0; n < 20; n++) {
        zeros[n] = hash_of(c, there, n);
        for (int64_t m = 0; m < n; m++)
            apart = apart && zeros[m] != zeros[n];
    }
    check(c, apart, "hash depends on the number of zeros at the end");
    c->d->ops->release(c->d, there);
    free(data);
}

/* ---------------------------------------------------------------- differs and pack */

static void check_differs(struct checks *c)
{
    const int64_t bytes = 1000003;
    char *data = must_malloc(bytes), *a = must_allocate(c, bytes + 64), *b = must_allocate(c, bytes + 64);
    int bad = 0;
    random_bytes(data, bytes, 3);
    for (int64_t shift = 0; shift < 3; shift++) { /* both aligned, one, none */
        char *x = a + (shift == 2), *y = b + (shift > 0 ? 3 : 0);
        int64_t first = 0;
        bad += c->d->ops->upload(c->d, x, data, bytes) || c->d->ops->upload(c->d, y, data, bytes) ||
               c->d->ops->differs(c->d, x, y, bytes, &first) || first != -1;
        for (int64_t i = 0; i < 40; i++) {
            const int64_t at = i < 20 ? i : i < 30 ? bytes - 1 - (i - 20) : (i * 2654435761 + 5) % bytes;
            const int64_t later = at + 1 + i * 977 < bytes ? at + 1 + i * 977 : bytes - 1;
            const char wrong = (char)(data[at] ^ 0x10), also = (char)(data[later] ^ 1);
            bad += c->d->ops->upload(c->d, y + later, &also, 1) ||
                   c->d->ops->upload(c->d, y + at, &wrong, 1) ||
                   c->d->ops->differs(c->d, x, y, bytes, &first) || first != at ||
                   c->d->ops->differs(c->d, x, y, at, &first) || first != -1 ||
                   c->d->ops->upload(c->d, y + at, data + at, 1) ||
                   c->d->ops->upload(c->d, y + later, data + later, 1);
        }
    }
    check(c, !bad, "comparison finds the first byte that differs");
    c->d->ops->release(c->d, a);
    c->d->ops->release(c->d, b);
    free(data);
}

static void check_pack(struct checks *c)
{
    enum { PIECES = 300, PICKED = 200 };
    static const int64_t sizes[] = {4096, 48, 17, 1};
    char *data = must_malloc(PIECES * 4096), *got = must_malloc(PICKED * 4096 + 1);
    char *from = must_allocate(c, PIECES * 4096 + 16), *to = must_allocate(c, PICKED * 4096 + 16);
    int32_t index[PICKED], *there = must_allocate(c, sizeof index);
    int bad = 0;
    random_bytes(data, PIECES * 4096, 4);
    for (int i = 0; i < PICKED; i++)
        index[i] = (i * 173 + 5) % PIECES;
    bad += c->d->ops->upload(c->d, there, index, sizeof index);
    for (size_t s = 0; s < 4; s++)
        for (int64_t shift = 0; shift < 2; shift++) {
            const int64_t n = sizes[s];
            bad += c->d->ops->upload(c->d, from + shift, data, PIECES * n) ||
                   c->d->ops->fill(c->d, to, 0x77, PICKED * n + 1) ||
                   c->d->ops->pack(c->d, to, from + shift, n, there, PICKED) ||
                   c->d->ops->download(c->d, got, to, PICKED * n + 1);
            for (int i = 0; i < PICKED; i++)
                bad += memcmp(got + i * n, data + index[i] * n, (size_t)n) != 0;
            bad += got[PICKED * n] != 0x77;
        }
    check(c, !bad, "packing of pages");
    c->d->ops->release(c->d, from);
    c->d->ops->release(c->d, to);
    c->d->ops->release(c->d, there);
    free(data);
    free(got);
}

void check_memory(struct checks *c)
{
    int64_t available = 0, total = 0, less = 0;
    const int asked = c->d->ops->memory(c->d, &available, &total);
    check(c, !asked && available > 0 && available <= total, "memory: %lld of %lld bytes free",
          (long long)available, (long long)total);
    void *data = must_allocate(c, (int64_t)1 << 30);
    check(c, !c->d->ops->memory(c->d, &less, &total) && less <= available - ((int64_t)1 << 30),
          "memory: an allocation of 1 GiB reduces the free memory");
    c->d->ops->release(c->d, data);
    c->d->ops->release(c->d, NULL);
    check_copies(c);
    check_hash(c);
    check_differs(c);
    check_pack(c);
    check_far(c);
}
