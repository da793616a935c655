/* SPDX-License-Identifier: Apache-2.0
 *
 * edges.c: runs whose inputs touch memory without access.
 */
#include "edges.h"

#include <string.h>

#include "buffers.h"
#include "call.h"
#include "explain.h"
#include "harness/memory/edge.h"
#include "session_state.h"
#include "verdict.h"

static const char *const when[] = {[KVG_EDGE_END] = "with inputs that end at memory without access",
                                   [KVG_EDGE_START] = "with inputs that begin after memory without access"};

/* An input of a call. */
struct input {
    const void *
        *pointer; /* in the arguments; its pointee is at least `before` bytes behind the buffer's start */
    const char *name;
    int64_t bytes, before; /* of the buffer; offset of the pointer in it */
};

/* Moves inputs to an edge. K and V may share a buffer, which is then moved once. -1 if there is no memory. */
static int move(struct kvg_edges *edges, enum kvg_edge which, const struct input *inputs, int n)
{
    const char *old[KVG_EDGES_MOST];
    for (int i = 0; i < n; i++)
        old[i] = *inputs[i].pointer ? (const char *)*inputs[i].pointer - inputs[i].before : NULL;
    for (int i = 0; i < n; i++) {
        const char *moved = NULL;
        if (!old[i] || inputs[i].bytes < 1)
            continue;
        for (int j = 0; j < i && !moved; j++)
            if (old[j] == old[i])
                moved = (const char *)*inputs[j].pointer - inputs[j].before;
        if (!moved)
            moved = kvg_edges_add(edges, inputs[i].name, which, old[i], inputs[i].bytes);
        if (!moved)
            return -1;
        *inputs[i].pointer = moved + inputs[i].before;
    }
    return 0;
}

static int64_t scale_bytes(const struct kvg_prepared *p)
{
    return (p->scale_stride ? p->problem.kv_heads : 1) * (int64_t)sizeof(float);
}

/* ---------------------------------------------------------------- attention */

/* The longest sequence. */
static int64_t longest(const struct kvg_prepared *p)
{
    int64_t at = 0;
    for (int64_t i = 0; i < p->problem.batch; i++)
        if (p->seq_lens[i] > p->seq_lens[at])
            at = i;
    return at;
}

/* Exchanges two pages of a cache. */
static void exchange(const struct kvg_prepared *p, const struct kvg_pages *pages, int64_t a, int64_t b)
{
    const int64_t bytes = kvg_dtype_bytes(p->problem.kv_dtype), row = p->problem.head_dim * bytes;
    for (int64_t s = 0; s < p->problem.block_size; s++)
        for (int64_t h = 0; h < p->problem.kv_heads; h++) {
            const int64_t at = s * pages->stride_slot + h * pages->stride_head;
            char *x = (char *)pages->data + (a * pages->stride_block + at) * bytes,
                 *y = (char *)pages->data + (b * pages->stride_block + at) * bytes;
            for (int64_t i = 0; i < row; i++) {
                const char byte = x[i];
                x[i] = y[i];
                y[i] = byte;
            }
        }
}

/* Gives page number `wanted` to a full page of the longest sequence, so that the slots at the end (or start)
 * of the cache are keys that the kernel reads. */
static void put_page(const struct kvg_prepared *p, const struct kvg_attention_args *args, int64_t index,
                     int64_t wanted)
{
    int32_t *table = (int32_t *)(uintptr_t)args->block_table;
    const int64_t entries = p->problem.batch * args->block_table_stride, seq = longest(p);
    const int32_t page = table[seq * args->block_table_stride + index];
    if (page == wanted)
        return;
    for (int64_t i = 0; i < entries; i++)
        table[i] = table[i] == page ? (int32_t)wanted : table[i] == wanted ? page : table[i];
    exchange(p, &args->k_cache, page, wanted);
    exchange(p, &args->v_cache, page, wanted);
}

/* Takes the entries that no sequence can need out of the table. */
static void narrow_table(const struct kvg_prepared *p, struct kvg_attention_args *args, int32_t *narrow)
{
    const int64_t pages = (p->problem.max_seq_len + p->problem.block_size - 1) / p->problem.block_size;
    for (int64_t b = 0; b < p->problem.batch; b++)
        memcpy(narrow + b * pages, args->block_table + b * args->block_table_stride,
               (size_t)pages * sizeof *narrow);
    args->block_table = narrow;
    args->block_table_stride = pages;
}

static int run_attention(struct kvg_execution *x, struct kvg_attention_args args,
                         const struct kvg_expectation *e, enum kvg_edge which, int32_t *narrow)
{
    const struct kvg_prepared *p = &x->prepared;
    const struct kvg_views *v = &p->views;
    const int64_t batch = p->problem.batch, scales = scale_bytes(p),
                  bytes = kvg_dtype_bytes(p->problem.kv_dtype), last = p->num_blocks - 1;
    struct kvg_edges edges = {.count = 0};
    narrow_table(p, &args, narrow);
    const struct input inputs[] = {
        {&args.q, "q", p->q8 ? v->q8.elements : 2 * v->q.elements, p->q8 ? v->q8.first : 2 * v->q.first},
        {(const void **)&args.k_cache.data, "k_cache", v->k_cache.elements * bytes, v->k_cache.first * bytes},
        {(const void **)&args.v_cache.data, "v_cache", v->v_cache.elements * bytes, v->v_cache.first * bytes},
        {(const void **)&args.block_table, "block_table", batch * args.block_table_stride * 4, 0},
        {(const void **)&args.seq_lens, "seq_lens", batch * 4, 0},
        {(const void **)&args.cu_q_lens, "cu_q_lens", (batch + 1) * 4, 0},
        {(const void **)&args.scales.q.data, "q_scale", scales, 0},
        {(const void **)&args.scales.k.data, "k_scale", scales, 0},
        {(const void **)&args.scales.v.data, "v_scale", scales, 0},
        {(const void **)&args.prefix_lens, "prefix_lens", args.prefix_lens ? batch * 4 : 0, 0},
        {(const void **)&args.sinks, "sinks", args.sinks ? p->problem.q_heads * 4 : 0, 0},
    };
    int failed = 0;
    if (move(&edges, which, inputs, sizeof inputs / sizeof inputs[0]) == 0) {
        const int64_t full = p->seq_lens[longest(p)] / p->problem.block_size; /* pages */
        if (full > 0)
            put_page(p, &args, which == KVG_EDGE_END ? full - 1 : 0, which == KVG_EDGE_END ? last : 0);
        kvg_edges_watch(&edges);
        failed = kvg_call_attention(x, &args);
        kvg_edges_unwatch();
        failed = failed || kvg_output_hold(x, &args, e, KVG_RUN_EDGE, when[which], NULL) ? -1 : 0;
    }
    kvg_edges_free(&edges);
    return failed;
}

/* 1 if the runs shall be made: twice for each kernel, phase, path and dtype, and twice more where the last
 * sequence is a longest one. Only then does the end of the block table belong to a page that is needed. */
static int wanted(struct kvg_execution *x)
{
    const struct kvg_prepared *p = &x->prepared;
    struct kvg_follower *f = x->site.device ? NULL : kvg_session_follower(x);
    const int kind = p->seq_lens[p->problem.batch - 1] == p->problem.max_seq_len;
    return !x->site.device && (!f || f->edges[kind]++ < KVG_FOLLOWED_ENOUGH);
}

int kvg_attention_edges(struct kvg_execution *x, const struct kvg_attention_args *args,
                        const struct kvg_expectation *e)
{
    const struct kvg_prepared *p = &x->prepared;
    int failed = 0;
    if (!wanted(x))
        return 0;
    int32_t *narrow = kvg_buffer_alloc(x, "block_table, narrow",
                                       p->problem.batch * p->block_table_stride * (int64_t)sizeof *narrow);
    if (!narrow)
        return -1;
    kvg_session_tell(x, KVG_RUN_EDGE);
    for (int which = KVG_EDGE_END; which <= KVG_EDGE_START && !failed; which++)
        failed = run_attention(x, *args, e, (enum kvg_edge)which, narrow);
    kvg_session_tell(x, KVG_RUN_FIRST);
    return failed;
}

/* ---------------------------------------------------------------- store and quantize_q */

/* Moves the inputs to each edge in turn and calls `call`. The arguments are as before in the end. */
static int run_at_edges(struct kvg_execution *x, const struct input *inputs, int n,
                        int (*call)(void *context), void *context)
{
    const void *own[KVG_EDGES_MOST];
    int failed = 0;
    for (int i = 0; i < n; i++)
        own[i] = *inputs[i].pointer;
    kvg_session_tell(x, KVG_RUN_EDGE);
    for (int which = KVG_EDGE_END; which <= KVG_EDGE_START && !failed; which++) {
        struct kvg_edges edges = {.count = 0};
        if (move(&edges, (enum kvg_edge)which, inputs, n) == 0) {
            kvg_edges_watch(&edges);
            failed = call(context);
            kvg_edges_unwatch();
        }
        for (int i = 0; i < n; i++)
            *inputs[i].pointer = own[i];
        kvg_edges_free(&edges);
    }
    kvg_session_tell(x, KVG_RUN_FIRST);
    return failed;
}

int kvg_store_edges(struct kvg_execution *x, struct kvg_store_args *args, int (*call)(void *context),
                    void *context)
{
    const struct kvg_prepared *p = &x->prepared;
    const struct kvg_views *v = &p->views;
    const struct input inputs[] = {
        {&args->k, "k", 2 * v->k.elements, 2 * v->k.first},
        {&args->v, "v", 2 * v->v.elements, 2 * v->v.first},
        {(const void **)&args->slot_mapping, "slot_mapping", p->store_tokens * 8, 0},
        {(const void **)&args->scales.k.data, "k_scale", scale_bytes(p), 0},
        {(const void **)&args->scales.v.data, "v_scale", scale_bytes(p), 0},
    };
    return x->site.device ? 0 : run_at_edges(x, inputs, sizeof inputs / sizeof inputs[0], call, context);
}

int kvg_quantize_edges(struct kvg_execution *x, struct kvg_quantize_q_args *args, int (*call)(void *context),
                       void *context)
{
    const struct kvg_prepared *p = &x->prepared;
    const struct input inputs[] = {
        {&args->q, "q", 2 * p->views.q.elements, 2 * p->views.q.first},
        {(const void **)&args->scales.q.data, "q_scale", scale_bytes(p), 0},
        {(const void **)&args->scales.k.data, "k_scale", scale_bytes(p), 0},
        {(const void **)&args->scales.v.data, "v_scale", scale_bytes(p), 0},
    };
    return x->site.device ? 0 : run_at_edges(x, inputs, sizeof inputs / sizeof inputs[0], call, context);
}
