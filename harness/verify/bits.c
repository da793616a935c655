/* SPDX-License-Identifier: Apache-2.0
 *
 * bits.c: store and quantize_q must be right bit by bit. Every slot of both caches is compared; the slots
 * that no token owns must still hold the poison they were filled with.
 */
#include <stdio.h>
#include <string.h>
#include "verify.h"
#include "harness/prepare/prepared.h"

/* Place of an element in a paged cache. */
struct place {
    int64_t block, slot, head, dim;
};

static struct place place_of(const struct kvg_pages *pages, int64_t index)
{
    struct place at = {.block = index / pages->stride_block};
    int64_t rest = index % pages->stride_block;
    if (pages->stride_slot > pages->stride_head) { /* NHD */
        at.slot = rest / pages->stride_slot;
        rest %= pages->stride_slot;
        at.head = rest / pages->stride_head;
        at.dim = rest % pages->stride_head;
    } else { /* HND */
        at.head = rest / pages->stride_head;
        rest %= pages->stride_head;
        at.slot = rest / pages->stride_slot;
        at.dim = rest % pages->stride_slot;
    }
    return at;
}

/* "sequence 1 token 37", or that no token owns the slot. */
static void owner_of(const struct kvg_prepared *p, const struct place *at, char *text, size_t size)
{
    const int64_t slot = at->block * p->problem.block_size + at->slot;
    for (int64_t i = 0; i < p->store_tokens; i++) {
        if (p->slot_mapping[i] != slot)
            continue;
        int64_t b = 0;
        while (b + 1 < p->problem.batch && i >= p->cu_kv_lens[b + 1])
            b++;
        snprintf(text, size, "sequence %lld token %lld", (long long)b, (long long)(i - p->cu_kv_lens[b]));
        return;
    }
    snprintf(text, size, "a slot that no token owns");
}

static unsigned code_at(const uint8_t *data, int64_t element, int64_t bytes)
{
    return bytes == 1 ? data[element] : (unsigned)data[2 * element] | (unsigned)data[2 * element + 1] << 8;
}

/* Number of elements that differ; *first is the first of them, or -1. */
static int64_t count_differences(const uint8_t *want, const uint8_t *got, int64_t elements, int64_t bytes,
                                 int64_t *first)
{
    int64_t count = 0;
    *first = -1;
    if (memcmp(want, got, (size_t)(elements * bytes)) == 0)
        return 0;
    for (int64_t i = 0; i < elements; i++)
        if (memcmp(want + i * bytes, got + i * bytes, (size_t)bytes) != 0) {
            if (count++ == 0)
                *first = i;
        }
    return count;
}

static int finish(struct kvg_row *row, int64_t elements, int64_t wrong, const char *reason,
                  struct kvg_error *error)
{
    row->n_checked = row->n_total = elements;
    row->status = wrong > 0 ? KVG_INCORRECT : elements == 0 ? KVG_MISTRUSTED : KVG_PASSED;
    if (elements == 0)
        reason = "no element to check";
    if (kvg_row_set_string(&row->reason, reason) != 0)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the reason of a row");
    return 0;
}

/* The difference of one cache of a store. */
struct difference {
    int64_t count, first;   /* elements that differ, -1: not counted; the first of them */
    unsigned expected, got; /* codes there */
};

/* Appends the sentence of tensor 0 (K) or 1 (V) to a reason; returns the characters used. */
static size_t say_difference(const struct kvg_prepared *p, int tensor, const struct difference *d,
                             char *reason, size_t size, size_t used)
{
    const int digits = (int)(2 * kvg_dtype_bytes(p->problem.kv_dtype));
    const struct place at = place_of(tensor == 0 ? &p->k_pages : &p->v_pages, d->first);
    char owner[96], count[64] = "";
    owner_of(p, &at, owner, sizeof owner);
    if (d->count >= 0)
        snprintf(count, sizeof count, "%lld of %lld ", (long long)d->count, (long long)p->cache_elements);
    return used +
           (size_t)snprintf(reason + used, size - used,
                            "%sstore: %s%s codes differ, first at block %lld slot %lld (%s) head %lld dim "
                            "%lld: expected 0x%0*x, got 0x%0*x",
                            used ? "; " : "", count, tensor == 0 ? "K" : "V", (long long)at.block,
                            (long long)at.slot, owner, (long long)at.head, (long long)at.dim, digits,
                            d->expected, digits, d->got);
}

int kvg_compare_store(const struct kvg_prepared *p, const void *k_cache, const void *v_cache,
                      struct kvg_row *row, struct kvg_error *error)
{
    const int64_t bytes = kvg_dtype_bytes(p->problem.kv_dtype);
    const void *want[2] = {p->k_cache, p->v_cache}, *got[2] = {k_cache, v_cache};
    char reason[1024] = "";
    size_t used = 0;
    int64_t wrong = 0;
    for (int t = 0; t < 2; t++) {
        struct difference d;
        d.count = count_differences(want[t], got[t], p->cache_elements, bytes, &d.first);
        wrong += d.count;
        if (d.count == 0)
            continue;
        d.expected = code_at(want[t], d.first, bytes);
        d.got = code_at(got[t], d.first, bytes);
        used = say_difference(p, t, &d, reason, sizeof reason, used);
    }
    return finish(row, 2 * p->cache_elements, wrong, reason, error);
}

int kvg_report_store(const struct kvg_prepared *p, const int64_t first[2], uint8_t codes[2][2][4],
                     struct kvg_row *row, struct kvg_error *error)
{
    const int64_t bytes = kvg_dtype_bytes(p->problem.kv_dtype);
    char reason[1024] = "";
    size_t used = 0;
    int wrong = 0;
    for (int t = 0; t < 2; t++) {
        if (first[t] < 0)
            continue;
        const struct difference d = {-1, first[t] / bytes, code_at(codes[t][0], 0, bytes),
                                     code_at(codes[t][1], 0, bytes)};
        wrong++;
        used = say_difference(p, t, &d, reason, sizeof reason, used);
    }
    return finish(row, 2 * p->cache_elements, wrong, reason, error);
}

int kvg_compare_quantize_q(const struct kvg_prepared *p, const uint8_t *q8, struct kvg_row *row,
                           struct kvg_error *error)
{
    const int64_t d = p->problem.head_dim, heads = p->problem.q_heads;
    const int64_t elements = p->total_q * heads * d;
    char reason[512] = "";
    int64_t first, wrong;
    if (!p->q8)
        return kvg_fail(error, KVG_EXIT_TROUBLE,
                        "the case has no quantised Q to compare with (path is not fp8)");
    wrong = count_differences(p->q8, q8, elements, 1, &first);
    if (wrong > 0) {
        int64_t b = 0;
        while (b + 1 < p->problem.batch && first / d / heads >= p->cu_q_lens[b + 1])
            b++;
        snprintf(
            reason, sizeof reason,
            "quantize_q: %lld of %lld codes differ, first at sequence %lld query %lld head %lld dim %lld: "
            "expected 0x%02x, got 0x%02x",
            (long long)wrong, (long long)elements, (long long)b,
            (long long)(first / d / heads - p->cu_q_lens[b]), (long long)(first / d % heads),
            (long long)(first % d), p->q8[first], q8[first]);
    }
    return finish(row, elements, wrong, reason, error);
}
