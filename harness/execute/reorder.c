/* SPDX-License-Identifier: Apache-2.0
 *
 * reorder.c: runs a kernel on the same work in another order.
 *
 * In turn the order of pages, heads and sequences is changed (harness/prepare/permute.h) and, on a CPU, the
 * number of threads. The output must be right again. If the kernel declares that its bits do not depend on
 * the order (kvg_arithmetic.same_bits_under), the output must have the same bits as the verified output.
 */
#include "reorder.h"

#include <stdlib.h>
#include <string.h>

#include "buffers.h"
#include "call.h"
#include "explain.h"
#include "harness/prepare/permute.h"
#include "same_bits.h"
#include "session_state.h"
#include "verdict.h"

/* A kind of rearrangement, and the fault that is suspected where it changes the output. */
struct kind {
    enum kvg_rearrangement which;
    enum kvg_fault_class suspected;
    const char *when;
};
enum { KINDS = 4 };
/* Greatest number of bytes of K and V together. Every rearrangement copies them, and smaller cases are enough
 * to show the same faults. */
#define MOST_BYTES (INT64_C(1) << 28)
static const struct kind kinds[KINDS] = {
    {KVG_MOVE_PAGES, KVG_FAULT_LAYOUT, "permuted: with its pages at other places"},
    {KVG_MOVE_HEADS, KVG_FAULT_HEAD_MAPPING, "permuted: with its heads under other numbers"},
    {KVG_MOVE_SEQUENCES, KVG_FAULT_SPLIT, "permuted: with its sequences in another order"},
    {KVG_MOVE_WORK, KVG_FAULT_SPLIT, "permuted: with another number of threads"},
};

struct permutation {
    struct kvg_execution *x;
    const struct kvg_attention_args *args; /* of the verified run */
    const struct kvg_expectation *e;
    struct kvg_arithmetic arithmetic;
    int64_t out_row, lse_row; /* bytes of a (row, head) pair */
    int64_t rows;             /* number of (row, head) pairs */
    uint16_t *out, *out_now;  /* the verified output, and the output of the other order, put back in order */
    float *lse, *lse_now;
    struct kvg_attention_args moved; /* args with their own buffers; k_cache.data is NULL until allocated */
};

static int make(struct permutation *m)
{
    const struct kvg_prepared *p = &m->x->prepared;
    m->rows = p->total_q * p->problem.q_heads;
    m->out_row = p->problem.head_dim * (int64_t)sizeof(uint16_t);
    m->lse_row = (int64_t)sizeof(float);
    m->out = malloc((size_t)(m->rows * m->out_row) + 1);
    m->out_now = malloc((size_t)(m->rows * m->out_row) + 1);
    m->lse = malloc((size_t)(m->rows * m->lse_row) + 1);
    m->lse_now = malloc((size_t)(m->rows * m->lse_row) + 1);
    if (!m->out || !m->out_now || !m->lse || !m->lse_now)
        return kvg_verdict(m->x, KVG_OUT_OF_MEMORY, "no memory for a permuted output");
    return 0;
}

static void release(struct permutation *m)
{
    free(m->out);
    free(m->out_now);
    free(m->lse);
    free(m->lse_now);
}

/* The outputs of the last call, in host memory. */
static int bring(struct permutation *m, const void **out, const void **lse)
{
    struct kvg_execution *x = m->x;
    *out = kvg_buffer_fetch(x, KVG_FETCHED_OUT, m->args->out, m->rows * m->out_row);
    *lse = *out ? kvg_buffer_fetch(x, KVG_FETCHED_LSE, m->args->lse, m->rows * m->lse_row) : NULL;
    return *lse ? 0 : -1;
}

static int keep_verified(struct permutation *m)
{
    const void *out, *lse;
    if (kvg_call_attention(m->x, m->args) || bring(m, &out, &lse))
        return -1;
    memcpy(m->out, out, (size_t)(m->rows * m->out_row));
    memcpy(m->lse, lse, (size_t)(m->rows * m->lse_row));
    return 0;
}

/* ---------------------------------------------------------------- rearranged inputs */

struct piece {
    const void **seen; /* the pointer in the arguments */
    const void *from;  /* host memory; NULL: the call does not take this buffer */
    const char *name;
    int64_t bytes;
};
enum { PIECES = 11 };

static void list_pieces(struct permutation *m, const struct kvg_permuted *h, struct piece list[PIECES])
{
    const struct kvg_prepared *p = &m->x->prepared;
    const int64_t batch = p->problem.batch, scales = (p->scale_stride ? p->problem.kv_heads : 1) * 4;
    const int64_t cache = p->cache_elements * kvg_dtype_bytes(p->problem.kv_dtype);
    struct kvg_attention_args *a = &m->moved;
    const struct kvg_scales *given = &m->args->scales;
    const struct piece pieces[PIECES] = {
        {&a->q, h->q, "q, permuted", m->rows * p->problem.head_dim * (p->q8 ? 1 : 2)},
        {(const void **)&a->k_cache.data, h->k_cache, "k cache, permuted", cache},
        {(const void **)&a->v_cache.data, h->v_cache, "v cache, permuted", cache},
        {(const void **)&a->block_table, h->block_table, "block_table, permuted",
         batch * p->block_table_stride * 4},
        {(const void **)&a->seq_lens, h->seq_lens, "seq_lens, permuted", batch * 4},
        {(const void **)&a->cu_q_lens, h->cu_q_lens, "cu_q_lens, permuted", (batch + 1) * 4},
        {(const void **)&a->scales.q.data, given->q.data ? h->q_scale : NULL, "q_scale, permuted", scales},
        {(const void **)&a->scales.k.data, given->k.data ? h->k_scale : NULL, "k_scale, permuted", scales},
        {(const void **)&a->scales.v.data, given->v.data ? h->v_scale : NULL, "v_scale, permuted", scales},
        {(const void **)&a->prefix_lens, m->args->prefix_lens ? h->prefix_lens : NULL,
         "prefix_lens, permuted", batch * 4},
        {(const void **)&a->sinks, h->sinks, "sinks, permuted", p->problem.q_heads * 4},
    };
    memcpy(list, pieces, sizeof pieces);
}

/* Copies the rearranged inputs to the memory that the kernel reads. All kinds use the same buffers. */
static int send_moved(struct permutation *m, const struct kvg_permuted *host)
{
    struct piece list[PIECES];
    const int placed = m->moved.k_cache.data != NULL;
    if (!placed) {
        m->moved = *m->args;
        m->moved.k_cache.data = NULL;
    }
    list_pieces(m, host, list);
    for (int i = 0; i < PIECES; i++) {
        if (!list[i].from)
            continue;
        void *to =
            placed ? (void *)(uintptr_t)*list[i].seen : kvg_buffer_alloc(m->x, list[i].name, list[i].bytes);
        if (!to || kvg_buffer_send(m->x, to, list[i].from, list[i].bytes))
            return -1;
        *list[i].seen = to;
    }
    return 0;
}

/* ---------------------------------------------------------------- verdict */

static int same_bits(const struct permutation *m)
{
    return memcmp(m->out, m->out_now, (size_t)(m->rows * m->out_row)) == 0 &&
           memcmp(m->lse, m->lse_now, (size_t)(m->rows * m->lse_row)) == 0;
}

/* Number of the first (row, head) pair whose bits differ, out before lse. */
static int64_t first_difference(const struct permutation *m, const char **what)
{
    const int64_t dim = m->x->prepared.problem.head_dim;
    for (int64_t i = 0; i < m->rows; i++) {
        *what = "out";
        if (memcmp(m->out + i * dim, m->out_now + i * dim, (size_t)m->out_row))
            return i;
        *what = "lse";
        if (memcmp(&m->lse[i], &m->lse_now[i], (size_t)m->lse_row))
            return i;
    }
    return -1;
}

/* An output that is wrong, and not only of other bits. A wrong number of a page or head shows so; a sum in
 * another order does not. */
static struct kvg_suspicion wrong_by(const struct kind *k)
{
    const int known = k->suspected != KVG_FAULT_SPLIT;
    return (struct kvg_suspicion){known ? k->suspected : KVG_FAULT_UNKNOWN,
                                  "right, but wrong when the same work comes in another order"};
}

static int judge(struct permutation *m, const struct kind *k)
{
    const int declared = m->arithmetic.deterministic && (m->arithmetic.same_bits_under & (int)k->which);
    const char *what = "out";
    const int same = same_bits(m);
    kvg_same_bits_note(m->x->row, k->which, declared != 0, same);
    if (same)
        return 0;
    const struct kvg_suspicion wrong = wrong_by(k);
    if (!declared)
        return kvg_host_output_hold(m->x, m->out_now, m->lse_now, m->e, k->when, &wrong);
    const int64_t at = first_difference(m, &what), heads = m->x->prepared.problem.q_heads;
    if (!kvg_host_output_is_right(m->out_now, m->lse_now, m->e))
        kvg_verdict_suspect(m->x, wrong.fault, "%s", wrong.why);
    else if (kvg_explain_unstable(m->x, m->args))
        kvg_verdict_suspect(m->x, KVG_FAULT_RACE, "a repeated call on the same inputs gives other bits");
    else
        kvg_verdict_suspect(m->x, k->suspected, "the same work in another order gives other bits");
    return kvg_verdict(
        m->x, KVG_INCORRECT,
        "%s: other bits in %s, first in query row %lld head %lld, although the kernel declares that "
        "its bits do not depend on that",
        k->when, what, (long long)(at / heads), (long long)(at % heads));
}

/* ---------------------------------------------------------------- the runs */

static int run_moved(struct permutation *m, const struct kind *k)
{
    const void *out, *lse;
    struct kvg_permuted host;
    const int status = kvg_permuted_make(&m->x->prepared, k->which, &host);
    if (status)
        return status > 0 ? 0 : kvg_verdict(m->x, KVG_OUT_OF_MEMORY, "no memory for permuted inputs");
    int failed = send_moved(m, &host) || kvg_call_attention(m->x, &m->moved) || bring(m, &out, &lse) ? -1 : 0;
    if (!failed) {
        kvg_permuted_restore(&m->x->prepared, &host, out, m->out_row, m->out_now);
        kvg_permuted_restore(&m->x->prepared, &host, lse, m->lse_row, m->lse_now);
        failed = judge(m, k);
    }
    kvg_permuted_free(&host);
    return failed;
}

/* A run with another number of threads. Only if the kernel declares the same arithmetic for it: otherwise the
 * expectation does not apply. */
static int run_shared(struct permutation *m, const struct kind *k)
{
    struct kvg_execution *x = m->x;
    struct kvg_problem problem = *m->args->problem;
    struct kvg_attention_args args = *m->args;
    struct kvg_arithmetic other;
    const void *out, *lse;
    void *workspace = x->site.workspace;
    const int64_t bytes = x->site.workspace_bytes;
    if (x->site.device)
        return 0;
    problem.threads = problem.threads > 1 ? 1 : 2;
    memset(&other, 0, sizeof other);
    x->kernel->arithmetic(&problem, problem.max_seq_len, &other);
    if (memcmp(&other, &m->arithmetic, sizeof other))
        return 0;
    const int64_t need = x->kernel->workspace_bytes ? x->kernel->workspace_bytes(&problem) : 0;
    if (need > bytes) {
        x->site.workspace = kvg_buffer_alloc(x, "workspace for another number of threads", need);
        x->site.workspace_bytes = need;
    }
    args.problem = &problem;
    args.workspace = x->site.workspace;
    args.workspace_bytes = x->site.workspace_bytes;
    int failed = !x->site.workspace || kvg_call_attention(x, &args) || bring(m, &out, &lse) ? -1 : 0;
    x->site.workspace = workspace;
    x->site.workspace_bytes = bytes;
    if (failed)
        return -1;
    memcpy(m->out_now, out, (size_t)(m->rows * m->out_row));
    memcpy(m->lse_now, lse, (size_t)(m->rows * m->lse_row));
    return judge(m, k);
}

/* The kinds that this case can show, and that the kernel has not run often enough. Returns their number. */
static int wanted(struct kvg_execution *x, int want[KINDS])
{
    const struct kvg_prepared *p = &x->prepared;
    const struct kvg_follower *f = kvg_session_follower(x);
    const int64_t cache = 2 * p->cache_elements * kvg_dtype_bytes(p->problem.kv_dtype);
    const int has[KINDS] = {p->num_blocks > 1, p->problem.q_heads > 1, p->problem.batch > 1, !x->site.device};
    int any = 0;
    int64_t available = INT64_MAX, total;
    if (x->site.device && x->site.device->ops->memory(x->site.device, &available, &total))
        return 0;
    /* No run for a frame, whose K and V are only on the device, nor without room for another cache. Other
     * views are left to cases of their own: the permuted tensors here are dense. */
    if (p->frame || !p->views.dense || cache > MOST_BYTES || available < 2 * cache)
        return 0;
    for (int i = 0; i < KINDS; i++)
        any += want[i] = has[i] && (!f || f->reordered[i] < KVG_FOLLOWED_ENOUGH);
    return any;
}

int kvg_attention_reorder(struct kvg_execution *x, const struct kvg_attention_args *args,
                          const struct kvg_expectation *e)
{
    struct permutation m = {.x = x, .args = args, .e = e};
    int want[KINDS];
    if (!wanted(x, want))
        return 0;
    memset(&m.arithmetic, 0, sizeof m.arithmetic);
    x->kernel->arithmetic(args->problem, args->problem->max_seq_len, &m.arithmetic);
    struct kvg_follower *f = kvg_session_follower(x);
    int failed = make(&m) || keep_verified(&m) ? -1 : 0;
    for (int i = 0; i < KINDS && !failed; i++) {
        if (!want[i])
            continue;
        failed = kinds[i].which == KVG_MOVE_WORK ? run_shared(&m, &kinds[i]) : run_moved(&m, &kinds[i]);
        if (f)
            f->reordered[i]++;
    }
    release(&m);
    return failed;
}
