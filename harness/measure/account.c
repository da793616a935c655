/* SPDX-License-Identifier: Apache-2.0
 *
 * account.c: the memory of a case by formula, from its lengths, page size, heads, scheme and cache dtype.
 * Nothing is measured here; the column peak_resident_bytes is measured elsewhere.
 */
#include "account.h"
#include "harness/prepare/prepared.h"

#include <math.h>

static const double KVG_GIB = 1073741824.0; /* 2^30 */

/* Bytes of K and V of `tokens` tokens, at `element` bytes per element. */
static int64_t payload(const struct kvg_problem *problem, int64_t tokens, int64_t element)
{
    return 2 * tokens * problem->kv_heads * problem->head_dim * element;
}

/* The first key held of a sequence of n keys, n >= 1. */
static int64_t first_held(const struct kvg_prepared *p, const struct kvg_ref_mask *mask, int64_t seq)
{
    int64_t first, last;
    if (p->problem.phase == KVG_PHASE_STORE)
        return 0;
    kvg_ref_visible(mask, seq, p->seq_lens[seq], 1, 0, &first, &last);
    return first;
}

/* Keys of shared page `page` that sequence b holds. */
static int64_t held_of_page(const struct kvg_prepared *p, const struct kvg_ref_mask *mask, int64_t b,
                            int64_t page)
{
    const int64_t block = p->problem.block_size;
    if (page >= kvg_prepared_shared_pages(p, b))
        return 0;
    const int64_t before = first_held(p, mask, b) - page * block;
    return before <= 0 ? block : before < block ? block - before : 0;
}

/* Takes out the pages that were counted for an earlier sequence already, and their keys. */
static void leave_out_again(const struct kvg_prepared *p, const struct kvg_ref_mask *mask, int64_t *pages,
                            int64_t *keys)
{
    for (int64_t page = 0; page < p->c.shared_pages; page++) {
        int64_t holders = 0, sum = 0, most = 0;
        for (int64_t b = 0; b < p->problem.batch; b++) {
            const int64_t held = held_of_page(p, mask, b, page);
            holders += held > 0;
            sum += held;
            most = held > most ? held : most;
        }
        *pages -= holders > 1 ? holders - 1 : 0;
        *keys -= sum - most;
    }
}

void kvg_account_fill_row(const struct kvg_prepared *p, int64_t workspace_bytes, struct kvg_row *row)
{
    const struct kvg_problem *problem = &p->problem;
    const int64_t element = kvg_dtype_bytes(problem->kv_dtype);
    const int64_t block = problem->block_size;
    const struct kvg_ref_mask mask = kvg_prepared_mask(p);
    int64_t tokens = 0, held_keys = 0, pages = 0, most_pages = 0;
    for (int64_t b = 0; b < problem->batch; b++) {
        const int64_t n = p->seq_lens[b], first = n > 0 ? first_held(p, &mask, b) : 0;
        const int64_t used = (n + block - 1) / block;
        tokens += n;
        held_keys += n - first;
        pages += used - first / block;
        most_pages = used > most_pages ? used : most_pages;
    }
    leave_out_again(p, &mask, &pages, &held_keys);
    const int64_t scales = problem->scheme == KVG_PER_HEAD ? problem->kv_heads : 1;
    const int64_t scaled_tensors = element != 1 ? 0 : problem->path == KVG_PATH_FP8 ? 3 : 2;

    row->kv_cache_bytes = payload(problem, held_keys, element);
    row->waste_bytes = payload(problem, pages * block - held_keys, element);
    row->scale_bytes = scaled_tensors * scales * (int64_t)sizeof(float);
    row->block_table_bytes = problem->batch * most_pages * (int64_t)sizeof(int32_t);
    row->workspace_bytes = workspace_bytes;
    row->bytes_per_token = row->tokens_per_gib = row->bytes_vs_bf16 = NAN;
    if (tokens == 0)
        return;
    const double held =
        (double)(row->kv_cache_bytes + row->waste_bytes + row->scale_bytes + row->block_table_bytes);
    const double bf16 = (double)(payload(problem, pages * block, 2) + row->block_table_bytes);
    row->bytes_per_token = held / (double)tokens;
    row->tokens_per_gib = KVG_GIB / row->bytes_per_token;
    row->bytes_vs_bf16 = held / bf16;
}
