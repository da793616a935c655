/* SPDX-License-Identifier: Apache-2.0
 *
 * nan_keys.c: runs with a NaN in a visible key.
 *
 * One element of K, then one element of V, is NaN, in the row of one sequence and one KV head. Rows that see
 * the key must be NaN: all of the row and its lse for K, one dim for V. A kernel that reads the code as a
 * number, or leaves the key out, gives a number. The rows of other sequences and heads must be right as
 * before. Sequences that share the page of the key are judged like its own. Rows of the same sequence and head that do not see the key are not judged: 0 * NaN in a tile is NaN
 * too. Each run is made with the NaN of either sign, because e4m3 has two codes of NaN, and a decoder may
 * know only one.
 */
#include "nan_keys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "buffers.h"
#include "call.h"
#include "explain.h"
#include "kernels/fp8.h"
#include "outputs.h"
#include "reference/attention.h"
#include "verdict.h"

/* Greatest number of bytes of K and V together: the caches are copied. */
#define MOST_BYTES (INT64_C(1) << 26)

/* The element that becomes NaN. */
struct target {
    int is_v;
    int negative;                /* 1: the sign bit of the NaN is set */
    int64_t seq, head, key, dim; /* head: KV head */
};

struct nan_run {
    struct kvg_execution *x;
    const struct kvg_expectation *e;
    struct kvg_attention_args args; /* caches are copies */
    char *cache[2];                 /* host copies of the buffers of K and V; the same one if they share it */
    int64_t bytes[2];               /* of the buffers; bytes[1] is 0 if they share it */
    uint16_t *out;                  /* dense output of the right run */
    float *lse;
};

/* A sequence with queries and keys, `turn` places after the first one. -1 if there is none. */
static int64_t some_sequence(const struct kvg_prepared *p, int64_t turn)
{
    for (int64_t i = 0, n = p->problem.batch; i < n; i++) {
        const int64_t b = (i + turn) % n;
        if (p->seq_lens[b] > 0 && p->cu_q_lens[b + 1] > p->cu_q_lens[b])
            return b;
    }
    return -1;
}

/* The visible keys of query i of a sequence: [*first, *last]. */
static void visible(const struct kvg_prepared *p, int64_t seq, int64_t i, int64_t *first, int64_t *last)
{
    const struct kvg_ref_mask mask = kvg_prepared_mask(p);
    kvg_ref_visible(&mask, seq, p->seq_lens[seq], p->cu_q_lens[seq + 1] - p->cu_q_lens[seq], i, first, last);
}

/* A key in the middle of those that the last query of a sequence sees. -1 if no sequence has one. */
static int choose(const struct kvg_prepared *p, int is_v, struct target *t)
{
    int64_t first, last;
    *t = (struct target){.is_v = is_v, .head = is_v ? 0 : p->problem.kv_heads - 1};
    t->seq = some_sequence(p, is_v ? 0 : p->problem.batch / 2);
    if (t->seq < 0)
        return -1;
    visible(p, t->seq, p->cu_q_lens[t->seq + 1] - p->cu_q_lens[t->seq] - 1, &first, &last);
    first = first < 0 ? 0 : first;
    t->key = (first + last) / 2;
    t->dim = p->problem.head_dim / 3;
    return last >= first ? 0 : -1;
}

/* ---------------------------------------------------------------- inputs */

/* The element of the target in the host copy. */
static char *element(const struct nan_run *r, const struct target *t)
{
    const struct kvg_prepared *p = &r->x->prepared;
    const struct kvg_pages pages = kvg_prepared_pages(p, t->is_v, r->cache[t->is_v]);
    const int64_t size = p->problem.block_size,
                  page = p->block_table[t->seq * p->block_table_stride + t->key / size];
    return (char *)pages.data + kvg_dtype_bytes(p->problem.kv_dtype) *
                                    (page * pages.stride_block + t->key % size * pages.stride_slot +
                                     t->head * pages.stride_head + t->dim);
}

/* E4M3FNUZ has one NaN, 0x80, whose sign bit is set. */
static void put_nan(enum kvg_dtype dtype, int negative, void *at)
{
    const uint16_t wide = negative ? 0xffc0 : 0x7fc0;
    if (dtype == KVG_BF16)
        memcpy(at, &wide, sizeof wide);
    else
        *(uint8_t *)at = dtype == KVG_E4M3FNUZ ? 0x80 : negative ? 0xff : 0x7f;
}

static int send_cache(struct nan_run *r, int is_v)
{
    const int buffer = is_v && r->bytes[1] ? 1 : 0;
    const struct kvg_prepared *p = &r->x->prepared;
    const struct kvg_cache_view *view = is_v ? &p->views.v_cache : &p->views.k_cache;
    struct kvg_pages *pages = is_v ? &r->args.v_cache : &r->args.k_cache;
    return kvg_buffer_send(r->x, (char *)pages->data - view->first * kvg_dtype_bytes(p->problem.kv_dtype),
                           r->cache[buffer], r->bytes[buffer]);
}

/* Copies of both caches, on the host and in the memory of the kernel. */
static int copy_caches(struct nan_run *r)
{
    struct kvg_execution *x = r->x;
    const struct kvg_prepared *p = &x->prepared;
    const struct kvg_views *v = &p->views;
    const int64_t bytes = kvg_dtype_bytes(p->problem.kv_dtype);
    const void *from[2] = {p->shown.k_cache, p->shown.v_cache};
    void *seen[2];
    r->bytes[0] = v->k_cache.elements * bytes;
    r->bytes[1] = v->shared ? 0 : v->v_cache.elements * bytes;
    for (int t = 0; t < 2; t++) {
        if (t == 1 && v->shared) {
            r->cache[1] = r->cache[0];
            seen[1] = seen[0];
            continue;
        }
        r->cache[t] = malloc((size_t)r->bytes[t] + 1);
        seen[t] = kvg_buffer_alloc(x, t ? "v_cache with a NaN" : "k_cache with a NaN", r->bytes[t]);
        if (!seen[t])
            return -1;
        if (!r->cache[t])
            return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a copy of the caches");
        memcpy(r->cache[t], from[t], (size_t)r->bytes[t]);
    }
    r->args.k_cache = kvg_prepared_pages(p, 0, seen[0]);
    r->args.v_cache = kvg_prepared_pages(p, 1, seen[1]);
    return send_cache(r, 0) || send_cache(r, 1) ? -1 : 0;
}

/* ---------------------------------------------------------------- outputs */

/* What the row must be: NaN in [0, dim), or in one dim. Returns the dim of the first number, or -1. */
static int64_t first_number(const struct target *t, const uint16_t *row, int64_t dims)
{
    for (int64_t d = t->is_v ? t->dim : 0; d < (t->is_v ? t->dim + 1 : dims); d++)
        if (!isnan(kvg_bf16_decode(row[d])))
            return d;
    return -1;
}

/* Why a row is not NaN. In a merge of splits, a maximum that ignores NaN can lose one in K. */
static void suspect_number(struct nan_run *r, const struct target *t, int only_lse, const uint16_t *out,
                           const float *lse)
{
    struct kvg_execution *x = r->x;
    const struct kvg_prepared *p = &x->prepared;
    struct kvg_arithmetic a;
    x->kernel->arithmetic(&p->problem, p->seq_lens[t->seq], &a);
    if (memcmp(out, r->out, (size_t)kvg_out_bytes(p)) == 0 &&
        memcmp(lse, r->lse, (size_t)kvg_lse_bytes(p)) == 0)
        kvg_verdict_suspect(x, KVG_FAULT_STALE_STATE,
                            "the output has the bits of the call before the NaN was put into the cache");
    else if (!t->is_v && a.split_tokens > 0 && a.split_tokens < p->seq_lens[t->seq])
        kvg_verdict_suspect(
            x, KVG_FAULT_UNKNOWN,
            "the NaN is lost: its code is read as a number, its key is left out, or the merge "
            "of splits ignores it");
    else if (only_lse)
        kvg_verdict_suspect(x, KVG_FAULT_UNKNOWN, "the output holds the NaN, the lse does not");
    else
        kvg_verdict_suspect(x, KVG_FAULT_ENCODING,
                            "the code of NaN is read as a number, or its key is left out");
}

static int say_number(struct nan_run *r, const struct target *t, int64_t query, int64_t head, int64_t dim,
                      float value)
{
    struct kvg_execution *x = r->x;
    return kvg_verdict(
        x, KVG_INCORRECT,
        "with a NaN in a visible key: key %lld of sequence %lld, KV head %lld, has a %s NaN in dim "
        "%lld of %s; query row %lld head %lld gives %g in %s%lld, and NaN is right",
        (long long)t->key, (long long)t->seq, (long long)t->head, t->negative ? "negative" : "positive",
        (long long)t->dim, t->is_v ? "V" : "K", (long long)query, (long long)head, (double)value,
        dim < 0 ? "its lse, not in dim " : "dim ", (long long)(dim < 0 ? 0 : dim));
}

/* 1 if the key lies in a page that this sequence has as well. */
static int has_key(const struct kvg_prepared *p, const struct target *t, int64_t seq)
{
    const int64_t page = t->key / p->problem.block_size;
    return t->key < p->seq_lens[seq] && p->block_table[seq * p->block_table_stride + page] ==
                                            p->block_table[t->seq * p->block_table_stride + page];
}

/* Checks the rows of the target's head in a sequence that has the key, and puts the right rows of the run before in their
 * places, so that the rest can be compared as always. */
static int check_rows(struct nan_run *r, const struct target *t, int64_t seq, uint16_t *out, float *lse)
{
    const struct kvg_prepared *p = &r->x->prepared;
    const int64_t heads = p->problem.q_heads, group = heads / p->problem.kv_heads, dims = p->problem.head_dim;
    for (int64_t i = p->cu_q_lens[seq]; i < p->cu_q_lens[seq + 1]; i++)
        for (int64_t h = t->head * group; h < (t->head + 1) * group; h++) {
            const int64_t row = i * heads + h;
            int64_t first, last;
            visible(p, seq, i - p->cu_q_lens[seq], &first, &last);
            const int sees = t->key >= first && t->key <= last;
            const int64_t dim = sees ? first_number(t, out + row * dims, dims) : -1;
            if (dim >= 0 || (sees && !t->is_v && !isnan(lse[row])))
                suspect_number(r, t, dim < 0, out, lse);
            if (dim >= 0)
                return say_number(r, t, i, h, dim, kvg_bf16_decode(out[row * dims + dim]));
            if (sees && !t->is_v && !isnan(lse[row]))
                return say_number(r, t, i, h, -1, lse[row]);
            memcpy(out + row * dims, r->out + row * dims, (size_t)dims * sizeof *out);
            lse[row] = r->lse[row];
        }
    return 0;
}

static int run(struct nan_run *r, const struct target *t)
{
    struct kvg_execution *x = r->x;
    const struct kvg_prepared *p = &x->prepared;
    const int64_t bytes = kvg_dtype_bytes(p->problem.kv_dtype);
    const uint16_t *out_now;
    const float *lse_now;
    char saved[4];
    char *at = element(r, t);
    memcpy(saved, at, (size_t)bytes);
    put_nan(p->problem.kv_dtype, t->negative, at);
    int failed = send_cache(r, t->is_v) || kvg_call_attention(x, &r->args) ||
                 kvg_outputs_bring(x, &r->args, &out_now, &lse_now);
    memcpy(at, saved, (size_t)bytes);
    if (failed)
        return -1;
    uint16_t *out = malloc((size_t)kvg_out_bytes(p) + 1);
    float *lse = malloc((size_t)kvg_lse_bytes(p) + 1);
    if (!out || !lse) {
        failed = kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a copy of an output");
    } else {
        memcpy(out, out_now, (size_t)kvg_out_bytes(p));
        memcpy(lse, lse_now, (size_t)kvg_lse_bytes(p));
        for (int64_t b = 0; b < p->problem.batch && !failed; b++)
            failed = has_key(p, t, b) && check_rows(r, t, b, out, lse);
        failed = failed ||
                 kvg_host_output_hold(x, out, lse, r->e,
                                      "with a NaN in a visible key of another sequence or head", NULL) ||
                 send_cache(r, t->is_v);
    }
    free(out);
    free(lse);
    return failed ? -1 : 0;
}

/* The output with which the rows of the target are replaced. */
static int keep_right(struct nan_run *r, const struct kvg_attention_args *args)
{
    struct kvg_execution *x = r->x;
    const struct kvg_prepared *p = &x->prepared;
    const uint16_t *out;
    const float *lse;
    r->out = malloc((size_t)kvg_out_bytes(p) + 1);
    r->lse = malloc((size_t)kvg_lse_bytes(p) + 1);
    if (!r->out || !r->lse)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a copy of an output");
    if (kvg_call_attention(x, args) || kvg_outputs_bring(x, args, &out, &lse))
        return -1;
    memcpy(r->out, out, (size_t)kvg_out_bytes(p));
    memcpy(r->lse, lse, (size_t)kvg_lse_bytes(p));
    return 0;
}

int kvg_attention_nan_keys(struct kvg_execution *x, const struct kvg_attention_args *args,
                           const struct kvg_expectation *e)
{
    const struct kvg_prepared *p = &x->prepared;
    struct nan_run r = {.x = x, .e = e, .args = *args};
    const int64_t bytes =
        (p->views.k_cache.elements + p->views.v_cache.elements) * kvg_dtype_bytes(p->problem.kv_dtype);
    if (p->frame || bytes > MOST_BYTES)
        return 0;
    int failed = keep_right(&r, args) || copy_caches(&r);
    for (int is_v = 0; is_v < 2 && !failed; is_v++) {
        struct target t;
        if (choose(p, is_v, &t))
            continue;
        failed = run(&r, &t);
        t.negative = 1;
        if (!failed && p->problem.kv_dtype != KVG_E4M3FNUZ)
            failed = run(&r, &t);
    }
    if (!p->views.shared)
        free(r.cache[1]);
    free(r.cache[0]);
    free(r.out);
    free(r.lse);
    return failed ? -1 : 0;
}
