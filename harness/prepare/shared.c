/* SPDX-License-Identifier: Apache-2.0
 *
 * shared.c: the values of shared pages.
 *
 * Several sequences have a shared page, and the first of them in the whole case gives its values. A part of a case
 * may lack that sequence, whose K and V are then generated here.
 */
#include <stdlib.h>
#include <string.h>

#include "parts.h"
#include "prepared.h"

/* Pages [from, to) of every sequence that shares them have the values of sequence `holder` of the whole case. */
struct stretch {
    int64_t holder, from, to;
};

static int64_t row_of(const struct kvg_prepared *p)
{
    return p->c.kv_heads * p->c.head_dim;
}

/* The stretch that begins at page `from`. 0 if no sequence shares so many pages. */
static int find_stretch(const struct kvg_prepared *p, int64_t from, struct stretch *s)
{
    const int64_t sequences = p->part_of ? p->part_of : p->c.batch;
    for (int64_t w = 0; w < sequences; w++) {
        const int64_t shared = kvg_layout_shared_pages(&p->c, kvg_layout_whole_length(p, w));
        if (shared > from) {
            *s = (struct stretch){w, from, shared};
            return 1;
        }
    }
    return 0;
}

/* Place of a sequence of the whole case in p, or -1. */
static int64_t place_of(const struct kvg_prepared *p, int64_t whole)
{
    for (int64_t i = 0; i < p->c.batch; i++)
        if (kvg_prepared_sequence(p, i) == whole)
            return i;
    return -1;
}

/* Copies a stretch of one tensor. `values` are those of the holder, from its first token on. */
static void copy_stretch(const struct kvg_prepared *p, const struct stretch *s, const uint16_t *values,
                         uint16_t *to)
{
    const int64_t page = p->c.block_size * row_of(p);
    for (int64_t i = 0; i < p->c.batch; i++) {
        const int64_t shared = kvg_layout_shared_pages(&p->c, p->seq_lens[i]),
                      end = shared < s->to ? shared : s->to;
        uint16_t *own = to + p->cu_kv_lens[i] * row_of(p);
        if (own != values && end > s->from)
            memcpy(own + s->from * page, values + s->from * page,
                   (size_t)((end - s->from) * page) * sizeof *own);
    }
}

/* The holder is not in this part. */
static int copy_generated(const struct kvg_prepared *p, const struct stretch *s, enum kvg_tensor tensor,
                          uint16_t *to, struct kvg_error *error)
{
    struct kvg_input_shape shape = kvg_prepared_shape(p);
    shape.seq = s->holder;
    shape.context = kvg_layout_whole_length(p, s->holder);
    shape.q_len = 0;
    uint16_t *values = malloc((size_t)(shape.context * row_of(p)) * sizeof *values);
    if (!values)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory for the values of shared pages");
    const int failed =
        kvg_input_cache_fill(p->own->options.cache, &shape, tensor, (int)p->c.threads, values, error);
    if (!failed)
        copy_stretch(p, s, values, to);
    free(values);
    return failed;
}

int kvg_share_values(struct kvg_prepared *p, struct kvg_error *error)
{
    struct stretch s = {0};
    for (int64_t from = 0; p->c.shared_pages > 0 && find_stretch(p, from, &s); from = s.to) {
        const int64_t at = place_of(p, s.holder);
        if (at >= 0) {
            copy_stretch(p, &s, p->k + p->cu_kv_lens[at] * row_of(p), p->k);
            copy_stretch(p, &s, p->v + p->cu_kv_lens[at] * row_of(p), p->v);
        } else if (copy_generated(p, &s, KVG_TENSOR_K, p->k, error) ||
                   copy_generated(p, &s, KVG_TENSOR_V, p->v, error)) {
            return -1;
        }
    }
    return 0;
}
