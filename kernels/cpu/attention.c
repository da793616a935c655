/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.c: the driver of CPU attention: walks the items of the plan with OpenMP, finds the rows of a tile
 * through the block table, applies masks, and merges splits.
 *
 * No key that is invisible to the whole item is ever read: its row points to zeros instead (memory behind it
 * may hold NaN, and 0 * NaN would reach the result through the values), and its logits are overwritten in the
 * softmax. The next tile is prefetched through the block table while this one is worked on, because the
 * hardware's prefetcher stops at every page, or is switched off.
 */
#include "attention_plan.h"
#include "exp2.h"

#include <math.h>
#include <omp.h>
#include <string.h>

struct run {
    const struct kvg_attention_ops *ops;
    const struct kvg_attention_args *args;
    const struct kvg_problem *problem;
    struct kvg_attention_plan plan;
    char *base;          /* of the workspace, aligned */
    int64_t *first_item; /* [batch + 1] */
    int64_t *first_part; /* [batch + 1]: partials of sequence b; none where it has one split */
};

struct item {
    int64_t seq, split, query, queries, head, heads; /* query: first of the block, within the sequence */
    int64_t seq_len, q_len;
    int64_t begin, end; /* keys visible to some row, within the split; begin >= end: none */
    int single;         /* the sequence has one split: the item writes the output */
};

/* One thread's buffers for one item. */
struct scratch {
    char *q, *p, *zero, *scratch;
    float *acc, *factor, *s;
    struct kvg_row_state *state;
};

/* K or V of one tile, all heads of the item: addresses of the item's first head. NULL: not visible. */
struct tile_rows {
    const char *row[KVG_TILE];
    int whole; /* no NULL */
};

/* The same of one head, and what to prefetch, where they cannot be had from those of the first head. */
struct head_rows {
    const void *row[KVG_TILE];
    const char *ahead[KVG_TILE];
};

static int64_t splits_of(const struct run *run, int64_t seq_len)
{
    const int64_t split = run->plan.split_tokens;
    return split && seq_len > split ? (seq_len + split - 1) / split : 1;
}

static int64_t blocks_of(const struct run *run, int64_t q_len)
{
    return (q_len + run->plan.block_queries - 1) / run->plan.block_queries;
}

/* Visible keys of a query: [*first, *end). */
static void visible(const struct kvg_problem *p, int64_t seq_len, int64_t q_len, int64_t query,
                    int64_t *first, int64_t *end)
{
    *end = p->causal ? seq_len - q_len + query + 1 : seq_len;
    *first = p->window > 0 && *end > p->window ? *end - p->window : 0;
}

/* Numbers the items and partials of each sequence. */
static int number_items(struct run *run)
{
    const struct kvg_attention_args *a = run->args;
    const struct kvg_problem *p = run->problem;
    int64_t items = 0, parts = 0;

    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t n = a->seq_lens[b], q_len = (int64_t)a->cu_q_lens[b + 1] - a->cu_q_lens[b];
        int64_t splits;

        if (n < 0 || n > p->max_seq_len || q_len < 0 || q_len > p->max_q_len) {
            return KVG_EINVAL;
        }
        splits = splits_of(run, n);
        run->first_item[b] = items;
        run->first_part[b] = parts;
        items += splits * blocks_of(run, q_len) * run->plan.chunks;
        parts += splits > 1 ? splits : 0;
    }
    run->first_item[p->batch] = items;
    run->first_part[p->batch] = parts;
    return parts <= run->plan.max_partials ? KVG_OK : KVG_EINVAL;
}

/* Item `index`. Later queries come first: under a causal mask they see more keys, and long items should not
 * be the last to start. */
static void find_item(const struct run *run, int64_t index, struct item *it)
{
    const struct kvg_attention_args *a = run->args;
    const struct kvg_attention_plan *plan = &run->plan;
    int64_t low = 0, high = run->problem->batch, rest, blocks, block, first, unused;

    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (run->first_item[middle] <= index) {
            low = middle;
        } else {
            high = middle;
        }
    }
    it->seq = low;
    it->seq_len = a->seq_lens[low];
    it->q_len = (int64_t)a->cu_q_lens[low + 1] - a->cu_q_lens[low];
    it->single = splits_of(run, it->seq_len) == 1;
    rest = index - run->first_item[low];
    blocks = blocks_of(run, it->q_len);
    it->head = rest % plan->chunks * plan->chunk_heads;
    it->heads = run->problem->kv_heads - it->head;
    it->heads = it->heads < plan->chunk_heads ? it->heads : plan->chunk_heads;
    rest /= plan->chunks;
    block = blocks - 1 - rest % blocks;
    it->split = rest / blocks;
    it->query = block * plan->block_queries;
    it->queries = it->q_len - it->query;
    it->queries = it->queries < plan->block_queries ? it->queries : plan->block_queries;
    visible(run->problem, it->seq_len, it->q_len, it->query, &first, &unused);
    visible(run->problem, it->seq_len, it->q_len, it->query + it->queries - 1, &unused, &it->end);
    it->begin = first;
    if (!it->single) {
        const int64_t from = it->split * plan->split_tokens, to = from + plan->split_tokens;
        it->begin = it->begin > from ? it->begin : from;
        it->end = it->end < to ? it->end : to;
    }
}

static float scale_of(const float *scale, int64_t stride, int64_t head)
{
    return scale ? scale[head * stride] : 1.0f;
}

static void describe_softmax(const struct run *run, int64_t head, struct kvg_softmax *how)
{
    const struct kvg_attention_args *a = run->args;
    const int fp8 = run->problem->path == KVG_PATH_FP8;
    double scale = (double)a->softmax_scale * scale_of(a->scales.k, a->scales.stride, head);

    if (fp8) {
        scale *= scale_of(a->scales.q, a->scales.stride, head);
    }
    how->cap_log2 = (float)(run->problem->soft_cap * KVG_LOG2E);
    how->scale = (float)(run->problem->soft_cap > 0.0f ? scale / run->problem->soft_cap : scale * KVG_LOG2E);
    how->offset = fp8 ? 8.0f : 0.0f;
    how->p_factor = run->ops->p_factor ? run->ops->p_factor(run->problem->kv_dtype) : 1.0f;
    how->p_e4m3 = fp8;
}

/* Rows of the tile that starts at key `start`, of the item's first head; keys outside [begin, end) get NULL.
 */
static void find_rows(const struct run *run, const struct kvg_pages *pages, const struct item *it,
                      int64_t start, int64_t begin, int64_t end, struct tile_rows *out)
{
    const int32_t *table = run->args->block_table + it->seq * run->args->block_table_stride;
    const int64_t size = run->problem->block_size, bytes = kvg_dtype_bytes(run->problem->kv_dtype);
    int64_t j = 0, block, slot;

    for (; j < KVG_TILE && start + j < begin; j++) {
        out->row[j] = NULL;
    }
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
    for (; j < KVG_TILE; j++) {
        out->row[j] = NULL;
    }
    out->whole = start >= begin && start + KVG_TILE <= end;
}

/* The rows of one head of the item. */
static void add_offset(const struct tile_rows *now, int64_t offset, const char *zero, const void **row)
{
    if (now->whole) { /* nearly every tile; the compiler turns this into vector additions */
        for (int64_t j = 0; j < KVG_TILE; j++) {
            row[j] = now->row[j] + offset;
        }
        return;
    }
    for (int64_t j = 0; j < KVG_TILE; j++) {
        row[j] = now->row[j] ? now->row[j] + offset : zero;
    }
}

/* Where the heads of a token lie side by side in memory: the head's share of the next tile in the order of
 * addresses. */
static void share_ahead(const struct tile_rows *next, int64_t head, int64_t heads, int64_t row_bytes,
                        const char *zero, const char **ahead)
{
    int64_t token = head * KVG_TILE / heads, part = head * KVG_TILE % heads;

    for (int64_t j = 0; j < KVG_TILE; token++, part = 0) {
        const char *row = next->row[token] ? next->row[token] : zero; /* behind zero: unused, but harmless */
        for (; part < heads && j < KVG_TILE; part++) {
            ahead[j++] = row + part * row_bytes;
        }
    }
}

/* The rows of one head, and what to prefetch: the same rows of the next tile for FP8, the head's share for
 * bf16 (measured: 5 % and 10 % faster than the other way round). Where the micro-kernels add the head's
 * offset themselves, nothing is copied but in tiles with invisible keys. */
static void describe_keys(const struct run *run, const struct kvg_pages *pages, const struct tile_rows *now,
                          const struct tile_rows *next, int64_t head, int64_t heads, const char *zero,
                          struct head_rows *own, struct kvg_keys *keys)
{
    const int64_t bytes = kvg_dtype_bytes(run->problem->kv_dtype), offset = head * pages->stride_head * bytes;
    const int adds = run->ops->adds_offset;

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
    } else if (bytes > 1 && pages->stride_head == run->problem->head_dim) {
        share_ahead(next, head, heads, run->problem->head_dim * bytes, zero, own->ahead);
    } else {
        add_offset(next, offset, zero, (const void **)own->ahead);
    }
}

/* One tile of one head: logits, softmax of every row, values. */
static void attend_tile(const struct run *run, const struct item *it, const struct scratch *t, int64_t head,
                        int64_t start, const struct kvg_softmax *how, const struct kvg_keys *k,
                        const struct kvg_keys *v)
{
    const struct kvg_attention_ops *ops = run->ops;
    const int64_t group = run->plan.group, rows = it->queries * group;
    struct kvg_row_state *state = t->state + head * run->plan.block_rows;

    ops->logits(k, t->q + head * run->plan.q_head_bytes, rows, t->scratch, t->s);
    for (int64_t i = 0; i < it->queries; i++) {
        int64_t lo, hi;

        visible(run->problem, it->seq_len, it->q_len, it->query + i, &lo, &hi);
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
    ops->values(v, t->p, t->factor, rows, t->scratch, t->acc + head * run->plan.acc_head_bytes / 4,
                run->plan.acc_stride);
}

/* All heads of one tile. */
static void attend_heads(const struct run *run, const struct item *it, const struct scratch *t, int64_t start,
                         const struct kvg_softmax *how, const struct tile_rows *k_now,
                         const struct tile_rows *v_now, const struct tile_rows *k_next,
                         const struct tile_rows *v_next)
{
    const struct kvg_attention_args *a = run->args;
    const int64_t left = it->end - start;
    struct kvg_keys k = {.count = left < KVG_TILE ? kvg_round_up(left, KVG_KEYS_STEP) : KVG_TILE,
                         .dim = run->problem->head_dim,
                         .dtype = run->problem->kv_dtype};
    struct kvg_keys v = k;
    struct head_rows k_own, v_own;

    for (int64_t h = 0; h < it->heads; h++) {
        describe_keys(run, &a->k_cache, k_now, k_next, h, it->heads, t->zero, &k_own, &k);
        describe_keys(run, &a->v_cache, v_now, v_next, h, it->heads, t->zero, &v_own, &v);
        attend_tile(run, it, t, h, start, &how[h], &k, &v);
    }
}

/* ---------------------------------------------------------------- whole tiles */

/* Whether every row of the item may take whole tiles at all. K and V in caches of one shape, as ever. */
static int may_be_whole(const struct run *run, const struct item *it, const struct kvg_softmax *how)
{
    const struct kvg_pages *k = &run->args->k_cache, *v = &run->args->v_cache;

    if (!run->ops->whole || !run->ops->whole_fits(run->problem, it->queries * run->plan.group) ||
        k->stride_slot != v->stride_slot || k->stride_head != v->stride_head) {
        return 0;
    }
    for (int64_t h = 0; h < it->heads; h++) {
        if (!(how[h].scale > 0.0f && how[h].scale < INFINITY)) {
            return 0;
        }
    }
    return 1;
}

/* Whether all keys of a tile without NULL are visible to the first query and to the last. */
static int all_see(const struct run *run, const struct item *it, int64_t start)
{
    int64_t first, end, unused;

    visible(run->problem, it->seq_len, it->q_len, it->query, &unused, &end);
    visible(run->problem, it->seq_len, it->q_len, it->query + it->queries - 1, &first, &unused);
    return first <= start && start + KVG_TILE <= end;
}

/* The eight pieces of the next tile that one head prefetches. Heads that lie together share the tile in the
 * order of its addresses; else each takes its own rows, and this is called for the first alone. */
static void whole_ahead(const struct tile_rows *now, const struct tile_rows *next, int64_t head,
                        int64_t heads, int64_t part_bytes, const char **piece)
{
    int64_t eight = head * KVG_EIGHTS / heads, part = head * KVG_EIGHTS % heads;

    for (int64_t i = 0; i < KVG_EIGHTS; i++) {
        piece[i] = (next->row[8 * eight] ? next->row[8 * eight] : now->row[8 * eight]) + part * part_bytes;
        part = part + 1 < heads ? part + 1 : 0;
        eight += part == 0;
    }
}

/* All heads of one tile that every row sees in full. */
static void attend_whole(const struct run *run, const struct item *it, const struct scratch *t,
                         const struct kvg_softmax *how, const struct tile_rows *k, const struct tile_rows *v,
                         const struct tile_rows *k_next, const struct tile_rows *v_next)
{
    const struct kvg_pages *pages = &run->args->k_cache;
    const int64_t bytes = kvg_dtype_bytes(run->problem->kv_dtype), head_bytes = pages->stride_head * bytes,
                  row_bytes = run->problem->head_dim * bytes, stride = pages->stride_slot * bytes;
    const int together = !run->ops->own_rows_ahead && pages->stride_head == run->problem->head_dim &&
                         stride == it->heads * row_bytes;
    const int more = k_next->row[0] && k_next->row[8];
    struct kvg_whole w = {.stride = stride,
                          .ahead_stride = together ? row_bytes : stride,
                          .dim = run->problem->head_dim,
                          .rows = it->queries * run->plan.group,
                          .dtype = run->problem->kv_dtype,
                          .scratch = t->scratch,
                          .acc_stride = run->plan.acc_stride};

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
        w.packed_q = t->q + h * run->plan.q_head_bytes;
        w.how = &how[h];
        w.state = t->state + h * run->plan.block_rows;
        w.acc = t->acc + h * run->plan.acc_head_bytes / 4;
        run->ops->whole(&w);
    }
}

/* Goes over to whole tiles, or back. */
static void turn_whole(const struct run *run, const struct item *it, const struct scratch *t, int on)
{
    const int64_t dim = run->problem->head_dim, rows = it->heads * run->plan.block_rows;

    if (on) {
        run->ops->whole_begin(it->queries * run->plan.group, dim, t->acc, rows, run->plan.acc_stride);
    } else {
        run->ops->whole_end(dim, t->acc, rows, run->plan.acc_stride);
    }
}

/* ---------------------------------------------------------------- items */

static void prepare_item(const struct run *run, const struct item *it, const struct scratch *t)
{
    const struct kvg_attention_args *a = run->args;
    const int64_t group = run->plan.group, rows = it->queries * group,
                  bytes = kvg_dtype_bytes(run->problem->q_dtype);
    const int64_t token = a->cu_q_lens[it->seq] + it->query;

    memset(t->acc, 0, (size_t)(it->heads * run->plan.acc_head_bytes));
    memset(t->zero, 0, (size_t)run->problem->head_dim * 4);
    for (int64_t h = 0; h < it->heads; h++) {
        const void *row[rows];

        for (int64_t r = 0; r < rows; r++) {
            const int64_t q_head = (it->head + h) * group + r % group;
            row[r] = (const char *)a->q +
                     ((token + r / group) * a->q_stride_token + q_head * a->q_stride_head) * bytes;
            t->state[h * run->plan.block_rows + r] = (struct kvg_row_state){-INFINITY, 0.0f};
        }
        run->ops->pack_q(row, rows, run->problem->head_dim, run->problem->q_dtype,
                         t->q + h * run->plan.q_head_bytes);
    }
}

/* Output and lse of one row from its state and accumulator. */
static void write_row(const struct run *run, int64_t token, int64_t q_head, const struct kvg_row_state *state,
                      const float *acc)
{
    const struct kvg_attention_args *a = run->args;
    const float offset = run->problem->path == KVG_PATH_FP8 ? 8.0f : 0.0f;
    uint16_t *out = (uint16_t *)a->out + token * a->out_stride_token + q_head * a->out_stride_head;
    /* sum == 0 only without a visible key: the largest p is 1 (or 2^offset). A NaN is not 0 and shows. */
    const int none = state->sum == 0.0f;
    const float factor =
        none ? 0.0f : scale_of(a->scales.v, a->scales.stride, q_head / run->plan.group) / state->sum;

    for (int64_t d = 0; d < run->problem->head_dim; d++) {
        out[d] = kvg_bf16_encode(acc[d] * factor);
    }
    if (a->lse) {
        const double log2_sum = (double)state->max + log2((double)state->sum) - (double)offset;
        a->lse[token * a->lse_stride_token + q_head] = none ? -INFINITY : (float)(log2_sum * KVG_LN2);
    }
}

/* Partial result of a split: accumulators [max_q_len * q_heads, head_dim], then states. */
static float *partial(const struct run *run, int64_t seq, int64_t split)
{
    return (float *)(void *)(run->base + run->plan.partials_at) +
           (run->first_part[seq] + split) * run->plan.partial_floats;
}

static void finish_item(const struct run *run, const struct item *it, const struct scratch *t)
{
    const int64_t group = run->plan.group, dim = run->problem->head_dim, q_heads = run->problem->q_heads;
    const int64_t token = run->args->cu_q_lens[it->seq];

    for (int64_t h = 0; h < it->heads; h++) {
        for (int64_t r = 0; r < it->queries * group; r++) {
            const int64_t query = it->query + r / group, q_head = (it->head + h) * group + r % group;
            const struct kvg_row_state *state = &t->state[h * run->plan.block_rows + r];
            const float *acc = t->acc + h * run->plan.acc_head_bytes / 4 + r * run->plan.acc_stride;

            if (it->single) {
                write_row(run, token + query, q_head, state, acc);
            } else {
                float *part = partial(run, it->seq, it->split);
                const int64_t row = query * q_heads + q_head;
                memcpy(part + row * dim, acc, (size_t)dim * 4);
                memcpy(part + run->problem->max_q_len * q_heads * dim + row * 2, state, sizeof *state);
            }
        }
    }
}

static void run_item(const struct run *run, const struct item *it, const struct scratch *t)
{
    const struct kvg_attention_args *a = run->args;
    /* One thread walks the splits of a sequence in order, so it may prefetch past the end of its split. */
    const int64_t ahead_end = run->problem->threads == 1 && it->single == 0 ? it->seq_len : it->end;
    struct tile_rows k_now, v_now, k_next, v_next;
    struct kvg_softmax how[it->heads];
    int64_t start = it->begin / KVG_TILE * KVG_TILE;
    int may, whole = 0;

    prepare_item(run, it, t);
    for (int64_t h = 0; h < it->heads; h++) {
        describe_softmax(run, it->head + h, &how[h]);
    }
    if (it->begin < it->end) {
        find_rows(run, &a->k_cache, it, start, it->begin, it->end, &k_now);
        find_rows(run, &a->v_cache, it, start, it->begin, it->end, &v_now);
    }
    may = may_be_whole(run, it, how);
    for (; start < it->end && it->begin < it->end; start += KVG_TILE) {
        find_rows(run, &a->k_cache, it, start + KVG_TILE, it->begin, ahead_end, &k_next);
        find_rows(run, &a->v_cache, it, start + KVG_TILE, it->begin, ahead_end, &v_next);
        if (whole != (may && k_now.whole && all_see(run, it, start))) {
            whole = !whole;
            turn_whole(run, it, t, whole);
        }
        if (whole) {
            attend_whole(run, it, t, how, &k_now, &v_now, &k_next, &v_next);
        } else {
            attend_heads(run, it, t, start, how, &k_now, &v_now, &k_next, &v_next);
        }
        k_now = k_next;
        v_now = v_next;
    }
    if (whole) {
        turn_whole(run, it, t, 0);
    }
    finish_item(run, it, t);
}

/* One row of a sequence with several splits, in the order of the splits. Splits without a visible key have
 * max = -inf and sum = 0; with weight 0 they add nothing, and -inf - -inf is never formed. */
static void merge_row(const struct run *run, int64_t seq, int64_t query, int64_t q_head, float *acc)
{
    const int64_t splits = splits_of(run, run->args->seq_lens[seq]), dim = run->problem->head_dim;
    const int64_t row = query * run->problem->q_heads + q_head;
    const int64_t states_at = run->problem->max_q_len * run->problem->q_heads * dim + row * 2;
    struct kvg_row_state all = {-INFINITY, 0.0f}, one;

    for (int64_t s = 0; s < splits; s++) {
        memcpy(&one, partial(run, seq, s) + states_at, sizeof one);
        all.max = one.max > all.max ? one.max : all.max;
    }
    memset(acc, 0, (size_t)dim * 4);
    for (int64_t s = 0; s < splits; s++) {
        const float *part = partial(run, seq, s);
        float weight;

        memcpy(&one, part + states_at, sizeof one);
        if (one.sum == 0.0f) {
            continue;
        }
        weight = kvg_exp2(one.max - all.max);
        all.sum += one.sum * weight;
        for (int64_t d = 0; d < dim; d++) {
            acc[d] += part[row * dim + d] * weight;
        }
    }
    write_row(run, run->args->cu_q_lens[seq] + query, q_head, &all, acc);
}

static void merge_sequence(const struct run *run, int64_t seq, float *acc)
{
    const int64_t q_len = (int64_t)run->args->cu_q_lens[seq + 1] - run->args->cu_q_lens[seq];

    if (splits_of(run, run->args->seq_lens[seq]) == 1) {
        return;
    }
    for (int64_t i = 0; i < q_len; i++) {
#pragma omp for schedule(static) nowait
        for (int64_t h = 0; h < run->problem->q_heads; h++) {
            merge_row(run, seq, i, h, acc);
        }
    }
}

static void thread_scratch(const struct run *run, int thread, struct scratch *t)
{
    const struct kvg_attention_plan *plan = &run->plan;
    char *base = run->base + plan->threads_at + thread * plan->thread_bytes;

    t->q = base + plan->q_at;
    t->acc = (float *)(void *)(base + plan->acc_at);
    t->state = (struct kvg_row_state *)(base + plan->state_at);
    t->factor = (float *)(void *)(base + plan->factor_at);
    t->s = (float *)(void *)(base + plan->s_at);
    t->p = base + plan->p_at;
    t->zero = base + plan->zero_at;
    t->scratch = base + plan->scratch_at;
}

int kvg_attention_run(const struct kvg_attention_ops *ops, const struct kvg_attention_args *args)
{
    struct run run = {.ops = ops, .args = args, .problem = args->problem};
    int64_t items;
    int status;

    kvg_attention_plan(ops, args->problem, &run.plan);
    if (!args->workspace || args->workspace_bytes < run.plan.bytes) {
        return KVG_EINVAL;
    }
    run.base = (char *)kvg_round_up((int64_t)(intptr_t)args->workspace, KVG_ALIGN);
    run.first_item = (int64_t *)(run.base + run.plan.sequences_at);
    run.first_part = run.first_item + run.problem->batch + 1;
    status = number_items(&run);
    if (status != KVG_OK) {
        return status;
    }
    items = run.first_item[run.problem->batch];
#pragma omp parallel num_threads(run.problem->threads)
    {
        struct scratch t;

        thread_scratch(&run, omp_get_thread_num(), &t);
        if (ops->begin) {
            ops->begin();
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < items; i++) {
            struct item it;
            find_item(&run, i, &it);
            run_item(&run, &it, &t);
        }
        if (ops->end) {
            ops->end();
        }
        for (int64_t b = 0; b < run.problem->batch; b++) {
            merge_sequence(&run, b, t.acc);
        }
    }
    return KVG_OK;
}
