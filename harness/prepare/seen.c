/* SPDX-License-Identifier: Apache-2.0
 *
 * seen.c: the inputs of a prepared case in the memory of the device.
 *
 * A table lists the buffers of a case, their sizes and their host addresses. Buffers that the host has are
 * copied. K, V and caches of a frame are made by the device's generator and store.
 */
#include "seen.h"

#include <stdlib.h>
#include <string.h>
#include "harness/inputs/generator.h"
#include "parts.h"

#define BF16_NAN 0x7fc0u

void kvg_seen_host(const struct kvg_prepared *p, struct kvg_seen *seen)
{
    *seen = (struct kvg_seen){.q = p->shown.q,
                              .q8 = p->shown.q8,
                              .k = p->shown.k,
                              .v = p->shown.v,
                              .k_scale = p->k_scale,
                              .v_scale = p->v_scale,
                              .q_scale = p->q_scale,
                              .k_cache = p->shown.k_cache,
                              .v_cache = p->shown.v_cache,
                              .block_table = p->block_table,
                              .seq_lens = p->seq_lens,
                              .cu_q_lens = p->cu_q_lens,
                              .slot_mapping = p->slot_mapping,
                              .prefix_lens = p->prefix_lens,
                              .sinks = p->sinks};
}

struct piece {
    const char *name;
    size_t at;        /* offset of its pointer in struct kvg_seen */
    const void *host; /* NULL: made on the device */
    int64_t bytes;
};
enum { MOST_PIECES = 16 };

#define PIECE(field, from, size)                                                                             \
    (struct piece)                                                                                           \
    {                                                                                                        \
#field, offsetof(struct kvg_seen, field), from, size                                                 \
    }

static int64_t cache_bytes(const struct kvg_prepared *p)
{
    return p->cache_elements * kvg_dtype_bytes(p->problem.kv_dtype);
}

/* Lists the buffers of a case. Returns their number. A buffer that K and V share is listed once, as K's. */
static int list_pieces(const struct kvg_prepared *p, struct piece pieces[MOST_PIECES])
{
    const struct kvg_views *v = &p->views;
    const struct kvg_shown *s = &p->shown;
    const int64_t scales = (p->scale_stride ? p->problem.kv_heads : 1) * (int64_t)sizeof(float),
                  e = kvg_dtype_bytes(p->problem.kv_dtype);
    const int store = p->problem.phase == KVG_PHASE_STORE;
    int n = 0;
    pieces[n++] = PIECE(q_scale, p->q_scale, scales);
    pieces[n++] = PIECE(k_scale, p->k_scale, scales);
    pieces[n++] = PIECE(v_scale, p->v_scale, scales);
    pieces[n++] = PIECE(block_table, p->block_table,
                        p->problem.batch * p->block_table_stride * (int64_t)sizeof(int32_t));
    if (store || p->frame)
        pieces[n++] = PIECE(slot_mapping, p->slot_mapping, p->store_tokens * (int64_t)sizeof(int64_t));
    if (!store || p->frame) {
        pieces[n++] = PIECE(k_cache, s->k_cache, v->k_cache.elements * e);
        if (!v->shared)
            pieces[n++] = PIECE(v_cache, s->v_cache, v->v_cache.elements * e);
    }
    if (store) {
        pieces[n++] = PIECE(k, s->k, v->k.elements * (int64_t)sizeof(uint16_t));
        if (!v->shared)
            pieces[n++] = PIECE(v, s->v, v->v.elements * (int64_t)sizeof(uint16_t));
        return n;
    }
    pieces[n++] = PIECE(q, s->q, v->q.elements * (int64_t)sizeof(uint16_t));
    if (p->q8)
        pieces[n++] = PIECE(q8, s->q8, v->q8.elements);
    pieces[n++] = PIECE(seq_lens, p->seq_lens, p->problem.batch * (int64_t)sizeof(int32_t));
    pieces[n++] = PIECE(cu_q_lens, p->cu_q_lens, (p->problem.batch + 1) * (int64_t)sizeof(int32_t));
    if (p->prefix_lens)
        pieces[n++] = PIECE(prefix_lens, p->prefix_lens, p->problem.batch * (int64_t)sizeof(int32_t));
    if (p->sinks)
        pieces[n++] = PIECE(sinks, p->sinks, p->problem.q_heads * (int64_t)sizeof(float));
    return n;
}

static void *address_of(const struct kvg_seen *seen, const struct piece *piece)
{
    void *address;
    memcpy(&address, (const char *)seen + piece->at, sizeof address);
    return address;
}

int kvg_seen_allocate(struct kvg_device_memory *m, const struct kvg_prepared *p, struct kvg_seen *seen,
                      struct kvg_error *error)
{
    struct piece pieces[MOST_PIECES];
    const int n = list_pieces(p, pieces);
    memset(seen, 0, sizeof *seen);
    for (int i = 0; i < n; i++) {
        void *address = kvg_device_memory_alloc(m, pieces[i].name, pieces[i].bytes, error);
        if (!address)
            return -1;
        memcpy((char *)seen + pieces[i].at, &address, sizeof address);
    }
    if (p->views.shared) {
        seen->v = seen->k;
        seen->v_cache = seen->k_cache;
    }
    return 0;
}

/* ---------------------------------------------------------------- made on the device */

/* K or V. */
struct tensor {
    enum kvg_tensor tensor;
    void *source; /* seen->k or seen->v; NULL if only the cache is needed */
    const struct kvg_pages *pages;
    void *cache;
    const float *scale;
};

static struct tensor tensor_of(const struct kvg_prepared *p, const struct kvg_seen *seen, int which)
{
    if (which == 0)
        return (struct tensor){KVG_TENSOR_K, seen->k, &p->k_pages, seen->k_cache, p->k_scale};
    return (struct tensor){KVG_TENSOR_V, seen->v, &p->v_pages, seen->v_cache, p->v_scale};
}

static int generate(struct kvg_device *d, const struct kvg_prepared *p, enum kvg_tensor tensor, int64_t seq,
                    uint16_t *out, struct kvg_error *error)
{
    struct kvg_input_shape shape = kvg_prepared_shape(p);
    struct kvg_generator generator;
    shape.seq = kvg_prepared_sequence(p, seq);
    shape.context = p->seq_lens[seq];
    shape.q_len = p->cu_q_lens[seq + 1] - p->cu_q_lens[seq];
    d->error[0] = '\0'; /* an error without this text is the host's: it may run out of memory here */
    if (kvg_generator_make(&shape, tensor, KVG_SET_EVALUATION, &generator, error))
        return -1;
    const int failed = d->ops->generate(d, &generator, shape.context, out);
    kvg_generator_free(&generator);
    return failed ? kvg_device_fail(d, error) : 0;
}

static int store(struct kvg_device *d, const struct kvg_prepared *p, const struct kvg_seen *seen,
                 const struct tensor *t, const uint16_t *source, int64_t first, int64_t tokens,
                 struct kvg_error *error)
{
    struct kvg_pages pages = *t->pages;
    pages.data = t->cache;
    if (d->ops->store(d, &p->problem, source, (const int64_t *)seen->slot_mapping + first, tokens, t->scale,
                      p->scale_stride, &pages))
        return kvg_device_fail(d, error);
    return 0;
}

/* Makes a cache. Each sequence is generated into `scratch`, which has room for one, and stored from there. */
static int make_cache(struct kvg_device *d, const struct kvg_prepared *p, const struct kvg_seen *seen,
                      const struct tensor *t, uint16_t *scratch, struct kvg_error *error)
{
    for (int64_t i = 0; i < p->problem.batch; i++)
        if (p->seq_lens[i] > 0 && (generate(d, p, t->tensor, i, scratch, error) ||
                                   store(d, p, seen, t, scratch, p->cu_kv_lens[i], p->seq_lens[i], error)))
            return -1;
    return 0;
}

/* Makes K or V of all sequences, NaN in the rows of the padding tokens, and the cache from them. */
static int make_source(struct kvg_device *d, const struct kvg_prepared *p, const struct kvg_seen *seen,
                       const struct tensor *t, struct kvg_error *error)
{
    const int64_t row = p->problem.kv_heads * p->problem.head_dim, rest = p->store_tokens - p->total_kv;
    uint16_t *source = t->source;
    for (int64_t i = 0; i < p->problem.batch; i++)
        if (p->seq_lens[i] > 0 && generate(d, p, t->tensor, i, source + p->cu_kv_lens[i] * row, error))
            return -1;
    uint16_t *nan = malloc((size_t)(rest * row) * sizeof *nan);
    if (!nan) {
        d->error[0] = '\0';
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for %lld padding tokens", (long long)rest);
    }
    for (int64_t i = 0; i < rest * row; i++)
        nan[i] = BF16_NAN;
    const int failed = d->ops->upload(d, source + p->total_kv * row, nan, rest * row * (int64_t)sizeof *nan);
    free(nan);
    if (failed)
        return kvg_device_fail(d, error);
    return store(d, p, seen, t, source, 0, p->store_tokens, error);
}

static int make(struct kvg_device *d, struct kvg_device_memory *m, const struct kvg_prepared *p,
                const struct kvg_seen *seen, struct kvg_error *error)
{
    const int64_t row = p->problem.kv_heads * p->problem.head_dim * (int64_t)sizeof(uint16_t);
    uint16_t *scratch = NULL;
    int failed = 0;
    if (!seen->k) {
        scratch = kvg_device_memory_alloc(m, "K or V of one sequence", p->problem.max_seq_len * row, error);
        if (!scratch)
            return -1;
    }
    for (int i = 0; i < 2 && !failed; i++) {
        const struct tensor t = tensor_of(p, seen, i);
        if (d->ops->fill(d, t.cache, kvg_poison_byte(p->problem.kv_dtype), cache_bytes(p)))
            failed = kvg_device_fail(d, error);
        else
            failed =
                scratch ? make_cache(d, p, seen, &t, scratch, error) : make_source(d, p, seen, &t, error);
    }
    if (!failed && d->ops->finish(d))
        failed = kvg_device_fail(d, error);
    kvg_device_memory_release(m, scratch);
    return failed;
}

int kvg_seen_fill(struct kvg_device *device, struct kvg_device_memory *m, const struct kvg_prepared *p,
                  const struct kvg_seen *seen, struct kvg_error *error)
{
    struct piece pieces[MOST_PIECES];
    const int n = list_pieces(p, pieces);
    for (int i = 0; i < n; i++)
        if (pieces[i].host &&
            device->ops->upload(device, address_of(seen, &pieces[i]), pieces[i].host, pieces[i].bytes))
            return kvg_device_fail(device, error);
    if (p->frame && make(device, m, p, seen, error))
        return -1;
    for (int i = 0; i < n; i++)
        if (kvg_device_memory_seal(m, address_of(seen, &pieces[i]), error))
            return -1;
    return 0;
}

/* ---------------------------------------------------------------- comparison with the host */

/* The error that names the first code of a page that differs from the host's. */
static int say_difference(const struct kvg_prepared *part, int64_t i, int which, int64_t page,
                          const uint8_t *want, const uint8_t *got, struct kvg_error *error)
{
    const struct kvg_pages *pages = which == 0 ? &part->k_pages : &part->v_pages;
    const int64_t e = kvg_dtype_bytes(part->problem.kv_dtype), size = part->problem.block_size,
                  dim = part->problem.head_dim;
    int64_t at = 0;
    while (memcmp(want + at * e, got + at * e, (size_t)e) == 0)
        at++;
    const int64_t slot = part->problem.layout == KVG_NHD ? at / pages->stride_slot : at / dim % size;
    unsigned codes[2] = {0, 0};
    for (int64_t b = 0; b < e; b++) {
        codes[0] |= (unsigned)want[at * e + b] << (8 * b);
        codes[1] |= (unsigned)got[at * e + b] << (8 * b);
    }
    return kvg_fail(error, KVG_EXIT_INCORRECT,
                    "%s cache made on the device: sequence %lld token %lld dim %lld holds code 0x%0*x, the "
                    "host's has 0x%0*x",
                    which == 0 ? "K" : "V", (long long)kvg_prepared_sequence(part, i),
                    (long long)(page * size + slot), (long long)(at % dim), (int)(2 * e), codes[1],
                    (int)(2 * e), codes[0]);
}

/* Packs the pages of sequence i of the part on the device, copies them to the host and compares them. */
static int compare_sequence(struct kvg_device *d, const struct kvg_prepared *frame,
                            const struct kvg_prepared *part, const struct kvg_seen *seen, int64_t i,
                            int which, void *packed, uint8_t *here, struct kvg_error *error)
{
    const struct kvg_pages *pages = which == 0 ? &part->k_pages : &part->v_pages;
    const int64_t page_bytes = pages->stride_block * kvg_dtype_bytes(part->problem.kv_dtype),
                  size = part->problem.block_size, count = (part->seq_lens[i] + size - 1) / size;
    const int32_t *index =
        (const int32_t *)seen->block_table + kvg_prepared_sequence(part, i) * frame->block_table_stride;
    if (d->ops->pack(d, packed, which == 0 ? seen->k_cache : seen->v_cache, page_bytes, index, count) ||
        d->ops->download(d, here, packed, count * page_bytes))
        return kvg_device_fail(d, error);
    const int32_t *table = part->block_table + i * part->block_table_stride;
    for (int64_t page = 0; page < count; page++) {
        const uint8_t *want = (const uint8_t *)pages->data + table[page] * page_bytes;
        if (memcmp(want, here + page * page_bytes, (size_t)page_bytes) != 0)
            return say_difference(part, i, which, page, want, here + page * page_bytes, error);
    }
    return 0;
}

int kvg_seen_compare(struct kvg_device *device, struct kvg_device_memory *m, const struct kvg_prepared *frame,
                     const struct kvg_prepared *part, const struct kvg_seen *seen, struct kvg_error *error)
{
    const int64_t page_bytes = part->k_pages.stride_block * kvg_dtype_bytes(part->problem.kv_dtype);
    const int64_t most = (part->block_table_stride > 0 ? part->block_table_stride : 1) * page_bytes;
    void *packed = kvg_device_memory_alloc(m, "pages of one sequence", most, error);
    if (!packed)
        return -1;
    int failed = 0;
    uint8_t *here = malloc((size_t)most);
    if (!here) {
        device->error[0] = '\0';
        failed = kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the pages of a sequence");
    }
    for (int64_t i = 0; i < part->problem.batch && !failed; i++)
        for (int which = 0; which < 2 && !failed; which++)
            failed = compare_sequence(device, frame, part, seen, i, which, packed, here, error);
    free(here);
    kvg_device_memory_release(m, packed);
    return failed;
}
