/* SPDX-License-Identifier: Apache-2.0
 *
 * gather_runs.c: follows a block table and lists what is contiguous:
 *   NHD page               one piece, also when only a part of it is seen
 *   HND page, seen whole   one piece
 *   HND page, a part seen  one piece for each head
 *   page with gaps         one piece for each row
 */
#include "gather_runs.h"

/* Strides and row in units, and the list so far. */
struct walk {
    int64_t stride_block, stride_slot, stride_head, row, heads, slots;
    int64_t longest;
    uint64_t *runs; /* NULL: only count */
    int64_t count;
};

static int64_t element_bytes(enum kvg_dtype dtype)
{
    return dtype == KVG_F32 ? 4 : dtype == KVG_BF16 || dtype == KVG_F16 ? 2 : 1;
}

static void add(struct walk *w, int64_t at, int64_t units)
{
    while (units > 0) {
        const int64_t n = units < w->longest ? units : w->longest;
        if (w->runs)
            w->runs[w->count] = (uint64_t)at << 16 | (uint64_t)n;
        w->count++;
        at += n;
        units -= n;
    }
}

/* Slots lo .. hi - 1 of the page that begins at `at`. */
static void add_page(struct walk *w, int64_t at, int64_t lo, int64_t hi)
{
    const int slots_together = w->stride_slot == w->row;
    if (w->stride_head == w->row && w->stride_slot == w->heads * w->row) { /* NHD */
        add(w, at + lo * w->stride_slot, (hi - lo) * w->heads * w->row);
    } else if (slots_together && w->stride_head == w->slots * w->row && lo == 0 && hi == w->slots) { /* HND */
        add(w, at, w->heads * w->slots * w->row);
    } else if (slots_together) {
        for (int64_t h = 0; h < w->heads; h++)
            add(w, at + h * w->stride_head + lo * w->row, (hi - lo) * w->row);
    } else {
        for (int64_t t = lo; t < hi; t++)
            for (int64_t h = 0; h < w->heads; h++)
                add(w, at + t * w->stride_slot + h * w->stride_head, w->row);
    }
}

int64_t kvg_gather_runs(const struct kvg_gather_shape *s, int64_t longest, uint64_t *runs)
{
    const int64_t element = element_bytes(s->problem->kv_dtype), slots = s->problem->block_size;
    struct walk w = {.stride_block = s->pages->stride_block * element / s->unit,
                     .stride_slot = s->pages->stride_slot * element / s->unit,
                     .stride_head = s->pages->stride_head * element / s->unit,
                     .row = s->problem->head_dim * element / s->unit,
                     .heads = s->problem->kv_heads,
                     .slots = slots,
                     .longest = longest,
                     .runs = runs};
    for (int64_t b = 0; b < s->problem->batch; b++)
        for (int64_t key = s->first_key[b], end = s->seq_lens[b]; key < end;) {
            const int64_t page = key / slots, left = end - page * slots;
            const int64_t block = s->block_table[b * s->block_table_stride + page];
            add_page(&w, block * w.stride_block, key % slots, left < slots ? left : slots);
            key = (page + 1) * slots;
        }
    return w.count;
}

int64_t kvg_gather_bytes(const struct kvg_gather_shape *s)
{
    const struct kvg_problem *p = s->problem;
    int64_t keys = 0;
    for (int64_t b = 0; b < p->batch; b++)
        keys += s->seq_lens[b] > s->first_key[b] ? s->seq_lens[b] - s->first_key[b] : 0;
    return 2 * keys * p->kv_heads * p->head_dim * element_bytes(p->kv_dtype);
}

int kvg_gather_unit(const struct kvg_problem *p, const struct kvg_pages *k, const struct kvg_pages *v)
{
    const int64_t element = element_bytes(p->kv_dtype);
    uint64_t all =
        (uint64_t)(uintptr_t)k->data | (uint64_t)(uintptr_t)v->data | (uint64_t)(p->head_dim * element);
    for (int i = 0; i < 2; i++) {
        const struct kvg_pages *x = i ? v : k;
        all |= (uint64_t)(x->stride_block * element) | (uint64_t)(x->stride_slot * element) |
               (uint64_t)(x->stride_head * element);
    }
    return all % 16 == 0 ? 16 : all % 4 == 0 ? 4 : 1;
}
