/* SPDX-License-Identifier: Apache-2.0
 *
 * work.c: counts the keys that the queries of a case see, and from them bytes and operations.
 */
#include "work.h"

#include "reference/attention.h"
#include "harness/prepare/prepared.h"

void kvg_visible_range(const struct kvg_prepared *p, int64_t seq, int64_t *first, int64_t *last)
{
    int64_t q_len = p->cu_q_lens[seq + 1] - p->cu_q_lens[seq], n = p->seq_lens[seq];
    int64_t first_of_last, last_of_first;
    *first = 0;
    *last = -1;
    if (q_len < 1 || n < 1)
        return;
    const struct kvg_ref_mask mask = kvg_prepared_mask(p);
    kvg_ref_visible(&mask, seq, n, q_len, 0, first, &last_of_first);
    kvg_ref_visible(&mask, seq, n, q_len, q_len - 1, &first_of_last, last);
    if (*first < 0)
        *first = 0;
}

/* The end of the keys of a sequence that lie in shared pages and are seen. */
static int64_t shared_end(const struct kvg_prepared *p, int64_t seq)
{
    const int64_t shared = kvg_prepared_shared_pages(p, seq) * p->problem.block_size;
    int64_t first, last;
    kvg_visible_range(p, seq, &first, &last);
    return last + 1 < shared ? last + 1 : shared;
}

void kvg_unread_range(const struct kvg_prepared *p, int64_t seq, int64_t *first, int64_t *last)
{
    int64_t read = 0;
    kvg_visible_range(p, seq, first, last);
    if (p->c.shared_pages == 0 || p->problem.window > 0)
        return;
    for (int64_t b = 0; b < seq; b++) {
        const int64_t end = shared_end(p, b);
        read = end > read ? end : read;
    }
    const int64_t own = shared_end(p, seq);
    read = read < own ? read : own;
    *first = *first > read ? *first : read;
}

int64_t kvg_visible_kv_bytes(const struct kvg_prepared *p)
{
    int64_t keys = 0;
    for (int64_t seq = 0; seq < p->problem.batch; seq++) {
        int64_t first, last;
        kvg_unread_range(p, seq, &first, &last);
        keys += last - first + 1;
    }
    return 2 * keys * p->problem.kv_heads * p->problem.head_dim * kvg_dtype_bytes(p->problem.kv_dtype);
}

int64_t kvg_visible_flops(const struct kvg_prepared *p)
{
    const struct kvg_ref_mask mask = kvg_prepared_mask(p);
    int64_t pairs = 0;
    for (int64_t seq = 0; seq < p->problem.batch; seq++) {
        int64_t q_len = p->cu_q_lens[seq + 1] - p->cu_q_lens[seq];
        for (int64_t i = 0; i < q_len; i++) {
            int64_t first, last;
            kvg_ref_visible(&mask, seq, p->seq_lens[seq], q_len, i, &first, &last);
            pairs += last >= first ? last - first + 1 : 0;
        }
    }
    /* a multiplication and an addition, in QK and in PV */
    return 4 * pairs * p->problem.q_heads * p->problem.head_dim;
}

/* A store reads every stored token in the dtype of the source and writes it in the dtype of the cache. */
static int64_t store_bytes(const struct kvg_prepared *p)
{
    const int64_t element = kvg_dtype_bytes(p->problem.q_dtype) + kvg_dtype_bytes(p->problem.kv_dtype);
    int64_t tokens = 0;
    for (int64_t i = 0; i < p->store_tokens; i++)
        tokens += p->slot_mapping[i] >= 0;
    return 2 * tokens * p->problem.kv_heads * p->problem.head_dim * element;
}

void kvg_work_count(const struct kvg_prepared *p, struct kvg_row *row)
{
    if (p->c.phase == KVG_PHASE_STORE) {
        row->bytes_moved = store_bytes(p);
        return;
    }
    row->bytes_moved = kvg_visible_kv_bytes(p);
    row->flops = kvg_visible_flops(p);
}
