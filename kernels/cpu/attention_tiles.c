/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_tiles.c: one tile of keys of CPU attention. The rows are found through the block table, masks are
 * applied, and the micro-kernels run: in three steps, or in one where all keys are visible.
 *
 * A key that no row of the item sees is not read. Its row points to zeros instead, and the softmax overwrites
 * its logits. The memory of the key may hold NaN, and 0 * NaN would reach the result through the values.
 */
#include "attention_call.h"
#include "exp2.h"

#include <math.h>
#include <string.h>

/* The rows of one head and what to prefetch, where an offset to the rows of the first head is not enough. */
struct head_rows {
    const void *row[KVG_TILE];
    const char *ahead[KVG_TILE];
};

void kvg_describe_softmax(const struct kvg_attention_call *call, int64_t head, struct kvg_softmax *how)
{
    const struct kvg_attention_args *a = call->args;
    const int fp8 = call->problem->path == KVG_PATH_FP8;
    double scale = (double)a->softmax_scale * kvg_scale_of(&a->scales.k, head);

    if (fp8)
        scale *= kvg_scale_of(&a->scales.q, head);
    how->cap_log2 = (float)(call->problem->soft_cap * KVG_LOG2E);
    how->scale =
        (float)(call->problem->soft_cap > 0.0f ? scale / call->problem->soft_cap : scale * KVG_LOG2E);
    how->offset = fp8 ? 8.0f : 0.0f;
    how->p_factor = call->ops->p_factor ? call->ops->p_factor(call->problem->kv_dtype) : 1.0f;
    how->p_e4m3 = fp8;
}

void kvg_find_rows(const struct kvg_attention_call *call, const struct kvg_pages *pages,
                   const struct kvg_item *it, int64_t start, int64_t begin, int64_t end,
                   struct kvg_tile_rows *out)
{
    const int32_t *table = call->args->block_table + it->seq * call->args->block_table_stride;
    const int64_t size = call->problem->block_size, bytes = kvg_dtype_bytes(call->problem->kv_dtype);
    int64_t j = 0, block, slot;

    for (; j < KVG_TILE && start + j < begin; j++)
        out->row[j] = NULL;
    block = (start + j) / size;
    slot = (start + j) % size;
    for (; j < KVG_TILE && start + j < end; block++, slot = 0) {
        const char *row =
            (const char *)pages->data +
            (table[block] * pages->stride_block + slot * pages->stride_slot + it->head * pages->stride_head) *
                bytes;
        for (int64_t i = slot; i < size && j < KVG_TILE && start + j < end; i++, j++) {
            out->row[j] = row;
            row += pages->stride_slot * bytes;
        }
    }
    for (; j < KVG_TILE; j++)
        out->row[j] = NULL;
    out->whole = start >= begin && start + KVG_TILE <= end;
}

/* The rows of one head of the item. */
static void add_offset(const struct kvg_tile_rows *now, int64_t offset, const char *zero, const void **row)
{
    if (now->whole) { /* nearly every tile; the compiler vectorises this loop */
        for (int64_t j = 0; j < KVG_TILE; j++)
            row[j] = now->row[j] + offset;
        return;
    }
    for (int64_t j = 0; j < KVG_TILE; j++)
        row[j] = now->row[j] ? now->row[j] + offset : zero;
}

/* Where the heads of a token lie side by side in memory: one head's share of the next tile, so that the heads
 * together prefetch it in the order of addresses. */
static void share_ahead(const struct kvg_tile_rows *next, int64_t head, int64_t heads, int64_t row_bytes,
                        const char *zero, const char **ahead)
{
    int64_t token = head * KVG_TILE / heads, part = head * KVG_TILE % heads;

    for (int64_t j = 0; j < KVG_TILE; token++, part = 0) {
        const char *row = next->row[token] ? next->row[token] : zero; /* past the zeros: never read */
        for (; part < heads && j < KVG_TILE; part++)
            ahead[j++] = row + part * row_bytes;
    }
}

/* The rows of one head, and what to prefetch: the same rows of the next tile for FP8, the head's share for
 * bf16 (5 % and 10 % faster than the other way round, measured). Where the micro-kernels add the head's
 * offset themselves, addresses are copied only for tiles with invisible keys. */
static void describe_keys(const struct kvg_attention_call *call, const struct kvg_pages *pages,
                          const struct kvg_tile_rows *now, const struct kvg_tile_rows *next, int64_t head,
                          int64_t heads, const char *zero, struct head_rows *own, struct kvg_keys *keys)
{
    const int64_t bytes = kvg_dtype_bytes(call->problem->kv_dtype),
                  offset = head * pages->stride_head * bytes;
    const int adds = call->ops->adds_offset;

    keys->row = own->row;
    keys->ahead = own->ahead;
    keys->offset = keys->offset_ahead = 0;
    if (adds && now->whole) {
        keys->row = (const void *const *)now->row;
        keys->offset = offset;
    } else {
        add_offset(now, offset, zero, own->row);
    }
    if (adds && next->whole) {
        keys->ahead = next->row;
        keys->offset_ahead = offset;
    } else if (bytes > 1 && pages->stride_head == call->problem->head_dim) {
        share_ahead(next, head, heads, call->problem->head_dim * bytes, zero, own->ahead);
    } else {
        add_offset(next, offset, zero, (const void **)own->ahead);
    }
}

/* One tile of one head: logits, softmax of every row, values. */
static void attend_tile(const struct kvg_attention_call *call, const struct kvg_item *it,
                        const struct kvg_item_scratch *t, int64_t head, int64_t start,
                        const struct kvg_softmax *how, const struct kvg_keys *k, const struct kvg_keys *v)
{
    const struct kvg_attention_ops *ops = call->ops;
    const int64_t group = call->plan.group, rows = it->queries * group;
    struct kvg_row_state *state = t->state + head * call->plan.block_rows;

    ops->logits(k, t->q + head * call->plan.q_head_bytes, rows, t->scratch, t->s);
    for (int64_t i = 0; i < it->queries; i++) {
        int64_t lo, hi;

        kvg_visible(call, it, it->query + i, &lo, &hi);
        lo = (lo > it->begin ? lo : it->begin) - start;
        hi = (hi < it->end ? hi : it->end) - start;
        lo = lo > 0 ? lo : 0;
        hi = hi < KVG_TILE ? hi : KVG_TILE;
        for (int64_t r = i * group; r < (i + 1) * group; r++) {
            if (lo < hi) {
                t->factor[r] =
                    ops->softmax(how, t->s + r * KVG_TILE, lo, hi, &state[r], t->p + r * ops->p_row_bytes);
            } else { /* this query sees nothing of the tile */
                t->factor[r] = 1.0f;
                memset(t->p + r * ops->p_row_bytes, 0, (size_t)ops->p_row_bytes);
            }
        }
    }
    ops->values(v, t->p, t->factor, rows, t->scratch, t->acc + head * call->plan.acc_head_bytes / 4,
                call->plan.acc_stride);
}

void kvg_attend_heads(const struct kvg_attention_call *call, const struct kvg_item *it,
                      const struct kvg_item_scratch *t, int64_t start, const struct kvg_softmax *how,
                      const struct kvg_tile_rows *k_now, const struct kvg_tile_rows *v_now,
                      const struct kvg_tile_rows *k_next, const struct kvg_tile_rows *v_next)
{
    const struct kvg_attention_args *a = call->args;
    const int64_t left = it->end - start;
    struct kvg_keys k = {.count = left < KVG_TILE ? kvg_round_up(left, KVG_KEYS_STEP) : KVG_TILE,
                         .dim = call->problem->head_dim,
                         .dtype = call->problem->kv_dtype};
    struct kvg_keys v = k;
    struct head_rows k_own, v_own;

    for (int64_t h = 0; h < it->heads; h++) {
        describe_keys(call, &a->k_cache, k_now, k_next, h, it->heads, t->zero, &k_own, &k);
        describe_keys(call, &a->v_cache, v_now, v_next, h, it->heads, t->zero, &v_own, &v);
        attend_tile(call, it, t, h, start, &how[h], &k, &v);
    }
}

/* ---------------------------------------------------------------- whole tiles */

/* The strides of K and V must agree, because struct kvg_whole has one stride for both. Eight keys must lie in one
 * page, because it has one address for them. */
int kvg_may_be_whole(const struct kvg_attention_call *call, const struct kvg_item *it,
                     const struct kvg_softmax *how)
{
    const struct kvg_pages *k = &call->args->k_cache, *v = &call->args->v_cache;

    if (!call->ops->whole || !call->ops->whole_fits(call->problem, it->queries * call->plan.group) ||
        k->stride_slot != v->stride_slot || k->stride_head != v->stride_head || call->problem->block_size % 8)
        return 0;
    for (int64_t h = 0; h < it->heads; h++)
        if (!(how[h].scale > 0.0f && how[h].scale < INFINITY))
            return 0;
    return 1;
}

int kvg_all_see(const struct kvg_attention_call *call, const struct kvg_item *it, int64_t start)
{
    int64_t first, end, unused;

    kvg_visible(call, it, it->query, &unused, &end);
    kvg_visible(call, it, it->query + it->queries - 1, &first, &unused);
    return first <= start && start + KVG_TILE <= end;
}

/* The eight pieces of the next tile that one head prefetches. Where the heads lie side by side they share the
 * tile in the order of its addresses. Elsewhere each head prefetches its own rows, and this is called for the
 * first head only. */
static void whole_ahead(const struct kvg_tile_rows *now, const struct kvg_tile_rows *next, int64_t head,
                        int64_t heads, int64_t part_bytes, const char **piece)
{
    int64_t eight = head * KVG_EIGHTS / heads, part = head * KVG_EIGHTS % heads;

    for (int64_t i = 0; i < KVG_EIGHTS; i++) {
        piece[i] = (next->row[8 * eight] ? next->row[8 * eight] : now->row[8 * eight]) + part * part_bytes;
        part = part + 1 < heads ? part + 1 : 0;
        eight += part == 0;
    }
}

void kvg_attend_whole(const struct kvg_attention_call *call, const struct kvg_item *it,
                      const struct kvg_item_scratch *t, const struct kvg_softmax *how,
                      const struct kvg_tile_rows *k, const struct kvg_tile_rows *v,
                      const struct kvg_tile_rows *k_next, const struct kvg_tile_rows *v_next)
{
    const struct kvg_pages *pages = &call->args->k_cache;
    const int64_t bytes = kvg_dtype_bytes(call->problem->kv_dtype), head_bytes = pages->stride_head * bytes,
                  row_bytes = call->problem->head_dim * bytes, stride = pages->stride_slot * bytes;
    const int together = !call->ops->own_rows_ahead && pages->stride_head == call->problem->head_dim &&
                         stride == it->heads * row_bytes;
    const int more = k_next->row[0] && k_next->row[8];
    struct kvg_whole w = {.stride = stride,
                          .ahead_stride = together ? row_bytes : stride,
                          .dim = call->problem->head_dim,
                          .rows = it->queries * call->plan.group,
                          .dtype = call->problem->kv_dtype,
                          .scratch = t->scratch,
                          .acc_stride = call->plan.acc_stride};

    for (int64_t i = 0; i < KVG_EIGHTS; i++) {
        w.group[i] = k->row[8 * i];
        w.group[KVG_EIGHTS + i] = v->row[8 * i];
    }
    w.group[2 * KVG_EIGHTS] = k->row[0] + head_bytes;
    w.group[2 * KVG_EIGHTS + 1] = k->row[8] + head_bytes;
    w.group[2 * KVG_EIGHTS + 2] = w.ahead[2 * KVG_EIGHTS] = k->row[0];
    for (int64_t h = 0; h < it->heads; h++) {
        w.offset = h * head_bytes;
        w.ahead_offset = together ? 0 : w.offset;
        if (h + 1 == it->heads) { /* the next tile's first head */
            w.group[2 * KVG_EIGHTS] = (more ? k_next : k)->row[0] - w.offset;
            w.group[2 * KVG_EIGHTS + 1] = (more ? k_next : k)->row[8] - w.offset;
        }
        if (together || h == 0) {
            whole_ahead(k, k_next, h, together ? it->heads : 1, 8 * row_bytes, w.ahead);
            whole_ahead(v, v_next, h, together ? it->heads : 1, 8 * row_bytes, w.ahead + KVG_EIGHTS);
        }
        w.packed_q = t->q + h * call->plan.q_head_bytes;
        w.how = &how[h];
        w.state = t->state + h * call->plan.block_rows;
        w.acc = t->acc + h * call->plan.acc_head_bytes / 4;
        call->ops->whole(&w);
    }
}
