/* SPDX-License-Identifier: Apache-2.0
 *
 * company.c: a sequence alone and among other sequences, and its query rows in two calls.
 *
 * All calls read the pages of the case. A sequence alone, and its chunks, use the rows of Q and of the
 * outputs where they lie in the case. A sequence among others has a Q, tables and outputs of its own, which
 * are dense.
 */
#include "company.h"
#include "kernels/registry.h"

#include <stdlib.h>
#include <string.h>

#include "buffers.h"
#include "call.h"
#include "explain.h"
#include "outputs.h"
#include "same_bits.h"
#include "session_state.h"
#include "verdict.h"

enum {
    SEQUENCES_MOST = 3, /* sequences of a case */
    CROWD = 3,          /* sequences of a batch that is made for one of them, which is the second */
    MORE_ROWS = 17 /* query rows that a neighbour has more. Decode kernels often take up to 16 rows, or plan
                           otherwise for more */
};

/* Some query rows of a sequence in a call. */
struct part {
    int64_t seq, from,
        rows;     /* query rows [from, from + rows); past the last row of the case: the first again */
    int64_t keys; /* keys of the sequence in this call, from its first one */
};

struct company {
    struct kvg_execution *x;
    const struct kvg_attention_args *args; /* of the whole case */
    const struct kvg_expectation *e;
    struct kvg_arithmetic arithmetic; /* of the whole case */
    /* Dense [total_q, q_heads, head_dim] and [total_q, q_heads]: the whole case, one sequence alone, and the
     * call that is compared with one of them. */
    uint16_t *whole_out, *alone_out, *out;
    float *whole_lse, *alone_lse, *lse;
    int32_t *lengths, *rows; /* seq_lens [1] and cu_q_lens [2] of a part, in the memory of the kernel */
};

static int64_t rows_of(const struct company *c, int64_t seq)
{
    const struct kvg_prepared *p = &c->x->prepared;
    return p->cu_q_lens[seq + 1] - p->cu_q_lens[seq];
}

static int make(struct company *c)
{
    const struct kvg_prepared *p = &c->x->prepared;
    c->whole_out = malloc((size_t)kvg_out_bytes(p) + 1);
    c->alone_out = malloc((size_t)kvg_out_bytes(p) + 1);
    c->out = malloc((size_t)kvg_out_bytes(p) + 1);
    c->alone_lse = malloc((size_t)kvg_lse_bytes(p) + 1);
    c->whole_lse = malloc((size_t)kvg_lse_bytes(p) + 1);
    c->lse = malloc((size_t)kvg_lse_bytes(p) + 1);
    if (!c->whole_out || !c->alone_out || !c->out || !c->whole_lse || !c->alone_lse || !c->lse)
        return kvg_verdict(c->x, KVG_OUT_OF_MEMORY, "no memory for a copy of an output");
    c->lengths = kvg_buffer_alloc(c->x, "seq_lens of one sequence", (int64_t)sizeof *c->lengths);
    c->rows =
        c->lengths ? kvg_buffer_alloc(c->x, "cu_q_lens of one sequence", 2 * (int64_t)sizeof *c->rows) : NULL;
    return c->rows ? 0 : -1;
}

static void release(struct company *c)
{
    free(c->whole_out);
    free(c->alone_out);
    free(c->out);
    free(c->whole_lse);
    free(c->alone_lse);
    free(c->lse);
}

static int bring(struct company *c, uint16_t *to_out, float *to_lse)
{
    const struct kvg_prepared *p = &c->x->prepared;
    const uint16_t *out;
    const float *lse;
    if (kvg_outputs_bring(c->x, c->args, &out, &lse))
        return -1;
    memcpy(to_out, out, (size_t)kvg_out_bytes(p));
    memcpy(to_lse, lse, (size_t)kvg_lse_bytes(p));
    return 0;
}

/* ---------------------------------------------------------------- a call */

/* The problem of a call that holds these parts. */
static struct kvg_problem problem_of(const struct company *c, const struct part *parts, int64_t count)
{
    struct kvg_problem problem = *c->args->problem;
    int whole = 1;
    if (count > 1) /* a sequence and a shorter copy of it */
        problem.features |= c->x->kernel->features & KVG_FEATURE_SHARED_PAGES;
    problem.batch = count;
    problem.total_q = problem.max_q_len = problem.total_kv = problem.max_seq_len = 0;
    for (int64_t i = 0; i < count; i++) {
        problem.total_q += parts[i].rows;
        problem.total_kv += parts[i].keys;
        problem.max_q_len = parts[i].rows > problem.max_q_len ? parts[i].rows : problem.max_q_len;
        problem.max_seq_len = parts[i].keys > problem.max_seq_len ? parts[i].keys : problem.max_seq_len;
        whole &= parts[i].rows == parts[i].keys;
    }
    if (problem.max_seq_len > 1) /* with one key, decode and prefill are the same */
        problem.phase = whole                    ? KVG_PHASE_PREFILL
                        : problem.max_q_len == 1 ? KVG_PHASE_DECODE
                                                 : KVG_PHASE_APPEND;
    return problem;
}

static int is_supported(const struct company *c, const struct kvg_problem *problem)
{
    char why[256];
    return kvg_kernel_takes(c->x->kernel, problem, why, sizeof why) != 0;
}

/* 1 if the kernel declares for this part of the problem what it declares for the sequence in the whole case.
 * Only then the bounds of the case hold for the output of the part. */
static int same_arithmetic(const struct company *c, const struct kvg_problem *problem,
                           const struct part *part)
{
    struct kvg_arithmetic here, there;
    memset(&here, 0, sizeof here);
    memset(&there, 0, sizeof there);
    c->x->kernel->arithmetic(problem, part->keys, &here);
    c->x->kernel->arithmetic(c->args->problem, c->x->prepared.seq_lens[part->seq], &there);
    here.same_bits_under = there.same_bits_under;
    return memcmp(&here, &there, sizeof here) == 0;
}

/* Calls the kernel. Sets problem and workspace of the arguments. */
static int call(struct company *c, const struct kvg_problem *problem, struct kvg_attention_args args)
{
    struct kvg_execution *x = c->x;
    void *workspace = x->site.workspace;
    const int64_t bytes = x->site.workspace_bytes, before = x->site.workspace_before;
    const int64_t need = x->kernel->workspace_bytes ? x->kernel->workspace_bytes(problem) : 0;
    if (need > bytes) {
        x->site.workspace = kvg_buffer_alloc(x, "workspace for other sequences", need);
        x->site.workspace_bytes = need;
        x->site.workspace_before = 0;
    }
    args.problem = problem;
    args.workspace = x->site.workspace;
    args.workspace_bytes = x->site.workspace_bytes;
    int failed = !x->site.workspace || kvg_buffer_fill(x, x->site.workspace, 0xff, x->site.workspace_bytes) ||
                 (x->kernel->prepare && kvg_call_finish(x, "prepare", x->kernel->prepare(&args))) ||
                 kvg_call_finish(x, "attention", x->kernel->attention(&args)) || kvg_buffers_check(x);
    x->site.workspace = workspace;
    x->site.workspace_bytes = bytes;
    x->site.workspace_before = before;
    return failed ? -1 : 0;
}

/* Calls the kernel with one part. Its rows lie where they lie in the whole case, and the other rows keep
 * their content. */
static int call_part(struct company *c, const struct part *part)
{
    struct kvg_execution *x = c->x;
    const struct kvg_prepared *p = &x->prepared;
    const struct kvg_problem problem = problem_of(c, part, 1);
    struct kvg_attention_args args = *c->args;
    const int64_t first = p->cu_q_lens[part->seq] + part->from, q_bytes = p->q8 ? 1 : 2;
    const int32_t length = (int32_t)part->keys, rows[2] = {0, (int32_t)part->rows};
    if (kvg_buffer_send(x, c->lengths, &length, sizeof length) ||
        kvg_buffer_send(x, c->rows, rows, sizeof rows))
        return -1;
    args.q = (const char *)args.q + first * args.q_stride_token * q_bytes;
    args.out = (uint16_t *)args.out + first * args.out_stride_token;
    args.lse += first * args.lse_stride_token;
    args.block_table += part->seq * args.block_table_stride;
    args.seq_lens = c->lengths;
    args.prefix_lens += args.prefix_lens ? part->seq : 0;
    args.cu_q_lens = c->rows;
    return call(c, &problem, args);
}

/* ---------------------------------------------------------------- a batch of its own */

/* The sequence, between a shorter copy of itself and the longest one of the case. With `mixed`, the
 * neighbours have another number of query rows: one in prefill, else more than the sequence has. */
static void gather(const struct company *c, int64_t seq, int mixed, struct part parts[CROWD])
{
    const struct kvg_prepared *p = &c->x->prepared;
    const int64_t rows = rows_of(c, seq), keys = p->seq_lens[seq];
    const int prefill = rows == keys && rows > 1;
    int64_t longest = seq;
    for (int64_t i = 0; i < p->problem.batch; i++)
        longest = p->seq_lens[i] > p->seq_lens[longest] && rows_of(c, i) > 0 ? i : longest;
    parts[0] = (struct part){seq, 0, 0, keys / 2 + 1};
    parts[1] = (struct part){seq, 0, rows, keys};
    parts[2] = (struct part){longest, 0, 0, p->seq_lens[longest]};
    for (int i = 0; i < CROWD; i += 2) {
        const int64_t wanted = !mixed ? (prefill ? parts[i].keys : rows) : prefill ? 1 : rows + MORE_ROWS;
        parts[i].rows = wanted < parts[i].keys ? wanted : parts[i].keys;
    }
}

/* Host copies of the inputs of a batch. */
struct crowd {
    char *q;        /* [rows[CROWD], q_heads, head_dim] in the dtype of Q */
    int32_t *table; /* [CROWD, block_table_stride of the case] */
    int32_t lengths[CROWD], rows[CROWD + 1], prefixes[CROWD];
};

static void fill_crowd(const struct company *c, const struct part parts[CROWD], struct crowd *crowd)
{
    const struct kvg_prepared *p = &c->x->prepared;
    const int64_t width = p->block_table_stride,
                  bytes = p->problem.q_heads * p->problem.head_dim * (p->q8 ? 1 : 2);
    const char *q = p->q8 ? (const char *)p->q8 : (const char *)p->q;
    for (int i = 0; i < CROWD; i++) {
        const struct part *part = &parts[i];
        memcpy(crowd->table + i * width, p->block_table + part->seq * width, (size_t)width * sizeof(int32_t));
        crowd->lengths[i] = (int32_t)part->keys;
        crowd->prefixes[i] = p->prefix_lens ? p->prefix_lens[part->seq] : 0;
        for (int64_t r = 0; r < part->rows; r++)
            memcpy(crowd->q + (crowd->rows[i] + r) * bytes,
                   q + (p->cu_q_lens[part->seq] + r % rows_of(c, part->seq)) * bytes, (size_t)bytes);
        crowd->rows[i + 1] = crowd->rows[i] + (int32_t)part->rows;
    }
}

/* A copy in the memory of the kernel. NULL with the verdict. */
static void *give(struct kvg_execution *x, const char *name, const void *from, int64_t bytes)
{
    void *to = kvg_buffer_alloc(x, name, bytes);
    return to && kvg_buffer_send(x, to, from, bytes) == 0 ? to : NULL;
}

/* Calls the kernel with the crowd and copies the rows of its second sequence to their places in c->out and
 * c->lse. */
static int call_crowd(struct company *c, const struct kvg_problem *problem, const struct part parts[CROWD],
                      const struct crowd *crowd)
{
    struct kvg_execution *x = c->x;
    const struct kvg_prepared *p = &x->prepared;
    const int64_t heads = p->problem.q_heads, dim = p->problem.head_dim, count = problem->total_q * heads;
    const int64_t at = crowd->rows[1] * heads, to = p->cu_q_lens[parts[1].seq] * heads,
                  n = parts[1].rows * heads;
    const uint16_t *out;
    const float *lse;
    struct kvg_attention_args args = *c->args;
    if (!(args.q = give(x, "q of another batch", crowd->q, count * dim * (p->q8 ? 1 : 2))) ||
        !(args.block_table = give(x, "block_table of another batch", crowd->table,
                                  CROWD * p->block_table_stride * (int64_t)sizeof(int32_t))) ||
        !(args.seq_lens = give(x, "seq_lens of another batch", crowd->lengths, sizeof crowd->lengths)) ||
        !(args.cu_q_lens = give(x, "cu_q_lens of another batch", crowd->rows, sizeof crowd->rows)) ||
        (args.prefix_lens && !(args.prefix_lens = give(x, "prefix_lens of another batch", crowd->prefixes,
                                                       sizeof crowd->prefixes))) ||
        !(args.out = kvg_buffer_alloc(x, "out of another batch", count * dim * (int64_t)sizeof *out)) ||
        !(args.lse = kvg_buffer_alloc(x, "lse of another batch", count * (int64_t)sizeof *lse)))
        return -1;
    args.block_table_stride = p->block_table_stride;
    args.q_stride_token = args.out_stride_token = heads * dim;
    args.q_stride_head = args.out_stride_head = dim;
    args.lse_stride_token = heads;
    if (kvg_buffer_poison(x, args.out, count * dim * (int64_t)sizeof *out) ||
        kvg_buffer_poison(x, args.lse, count * (int64_t)sizeof *lse) || call(c, problem, args) ||
        !(out = kvg_buffer_fetch(x, KVG_FETCHED_OUT, args.out, count * dim * (int64_t)sizeof *out)) ||
        !(lse = kvg_buffer_fetch(x, KVG_FETCHED_LSE, args.lse, count * (int64_t)sizeof *lse)))
        return -1;
    memcpy(c->out + to * dim, out + at * dim, (size_t)(n * dim) * sizeof *out);
    memcpy(c->lse + to, lse + at, (size_t)n * sizeof *lse);
    return 0;
}

/* ---------------------------------------------------------------- verdict */

/* Takes the rows of the other sequences from the whole case. */
static void complete(struct company *c, int64_t begin, int64_t end)
{
    const struct kvg_prepared *p = &c->x->prepared;
    const int64_t dim = p->problem.head_dim, rest = p->total_q * p->problem.q_heads - end;
    memcpy(c->out, c->whole_out, (size_t)(begin * dim) * sizeof *c->out);
    memcpy(c->out + end * dim, c->whole_out + end * dim, (size_t)(rest * dim) * sizeof *c->out);
    memcpy(c->lse, c->whole_lse, (size_t)begin * sizeof *c->lse);
    memcpy(c->lse + end, c->whole_lse + end, (size_t)rest * sizeof *c->lse);
}

/* Compares the rows of a sequence in c->out with those of the whole case, or of the sequence alone. Other
 * bits fail a kernel that declares that they are the same. Otherwise the output must be right, if
 * `bounded`. */
static int judge(struct company *c, enum kvg_rearrangement which, int64_t seq, int bounded, const char *when)
{
    const struct kvg_prepared *p = &c->x->prepared;
    const int64_t heads = p->problem.q_heads, dim = p->problem.head_dim, begin = p->cu_q_lens[seq] * heads,
                  end = p->cu_q_lens[seq + 1] * heads;
    const int declared = c->arithmetic.deterministic && (c->arithmetic.same_bits_under & (int)which);
    const uint16_t *out = which == KVG_MOVE_CHUNKS ? c->alone_out : c->whole_out;
    const float *lse = which == KVG_MOVE_CHUNKS ? c->alone_lse : c->whole_lse;
    const struct kvg_suspicion wrong = {
        KVG_FAULT_UNKNOWN, which == KVG_MOVE_CHUNKS
                               ? "right, but wrong when the query rows of a sequence come in two calls"
                               : "right, but wrong when other sequences are in the batch"};
    int64_t at = begin;
    while (at < end && memcmp(c->out + at * dim, out + at * dim, (size_t)dim * sizeof *c->out) == 0 &&
           memcmp(&c->lse[at], &lse[at], sizeof *c->lse) == 0)
        at++;
    kvg_same_bits_note(c->x->row, which, declared, at == end);
    if (at == end)
        return 0;
    const int in_out = memcmp(c->out + at * dim, out + at * dim, (size_t)dim * sizeof *c->out) != 0;
    complete(c, begin, end);
    if (!declared)
        return bounded ? kvg_host_output_hold(c->x, c->out, c->lse, c->e, when, &wrong) : 0;
    if (!kvg_host_output_is_right(c->out, c->lse, c->e))
        kvg_verdict_suspect(c->x, wrong.fault, "%s", wrong.why);
    else if (kvg_explain_unstable(c->x, c->args))
        kvg_verdict_suspect(c->x, KVG_FAULT_RACE, "a repeated call on the same inputs gives other bits");
    else
        kvg_verdict_suspect(c->x, KVG_FAULT_SPLIT,
                            which == KVG_MOVE_CHUNKS
                                ? "the bits of a query row depend on the number of query rows in the call"
                                : "the bits of a sequence depend on the other sequences of the batch");
    return kvg_verdict(c->x, KVG_INCORRECT,
                       "%s: other bits in %s, first in query row %lld head %lld, although the kernel "
                       "declares that its bits do not depend on that",
                       when, in_out ? "out" : "lse", (long long)(at / heads), (long long)(at % heads));
}

/* ---------------------------------------------------------------- the runs */

/* A sequence alone. Its output stays in c->alone_out and c->alone_lse. */
static int run_alone(struct company *c, const struct part *all, int want)
{
    const struct kvg_prepared *p = &c->x->prepared;
    const struct kvg_problem problem = problem_of(c, all, 1);
    if (kvg_poison_outputs(c->x, c->args) || call_part(c, all) || bring(c, c->alone_out, c->alone_lse))
        return -1;
    if (!want || p->problem.batch == 1)
        return 0;
    memcpy(c->out, c->alone_out, (size_t)kvg_out_bytes(p));
    memcpy(c->lse, c->alone_lse, (size_t)kvg_lse_bytes(p));
    return judge(c, KVG_MOVE_COMPANY, all->seq, same_arithmetic(c, &problem, all),
                 "permuted: with one sequence of the batch alone");
}

/* A sequence among others. If the kernel takes no batch with unequal numbers of query rows, all have the
 * same. */
static int run_crowd(struct company *c, int64_t seq)
{
    const struct kvg_prepared *p = &c->x->prepared;
    struct part parts[CROWD];
    struct crowd crowd = {.rows = {0}};
    gather(c, seq, 1, parts);
    struct kvg_problem problem = problem_of(c, parts, CROWD);
    if (!is_supported(c, &problem)) {
        gather(c, seq, 0, parts);
        problem = problem_of(c, parts, CROWD);
        if (!is_supported(c, &problem))
            return 0;
    }
    crowd.q = malloc((size_t)(problem.total_q * p->problem.q_heads * p->problem.head_dim) * sizeof *p->q + 1);
    crowd.table = malloc((size_t)(CROWD * p->block_table_stride) * sizeof *crowd.table);
    int failed = crowd.q && crowd.table
                     ? 0
                     : kvg_verdict(c->x, KVG_OUT_OF_MEMORY, "no memory for the inputs of another batch");
    if (!failed) {
        fill_crowd(c, parts, &crowd);
        failed = call_crowd(c, &problem, parts, &crowd) ||
                 judge(c, KVG_MOVE_COMPANY, seq, same_arithmetic(c, &problem, &parts[1]),
                       "permuted: with other sequences in the batch");
    }
    free(crowd.q);
    free(crowd.table);
    return failed ? -1 : 0;
}

/* The rows of a sequence cut after `cut` rows. Both calls hold the sequence alone, and so does the call that
 * they are compared with: only the number of query rows differs. */
static int run_chunks(struct company *c, const struct part *all, int64_t cut)
{
    const struct part parts[2] = {{all->seq, 0, cut, all->keys - all->rows + cut},
                                  {all->seq, cut, all->rows - cut, all->keys}};
    int bounded = 1;
    if (cut < 1 || cut >= all->rows || parts[0].keys < 1)
        return 0;
    for (int i = 0; i < 2; i++) {
        const struct kvg_problem problem = problem_of(c, &parts[i], 1);
        if (!is_supported(c, &problem))
            return 0;
        bounded &= same_arithmetic(c, &problem, &parts[i]);
    }
    return kvg_poison_outputs(c->x, c->args) || call_part(c, &parts[0]) || call_part(c, &parts[1]) ||
                   bring(c, c->out, c->lse) ||
                   judge(c, KVG_MOVE_CHUNKS, all->seq, bounded,
                         "permuted: with the query rows of a sequence in two calls")
               ? -1
               : 0;
}

enum { BATCH, CHUNKS, KINDS };

static int run_sequence(struct company *c, int64_t seq, const int want[KINDS])
{
    const struct part all = {seq, 0, rows_of(c, seq), c->x->prepared.seq_lens[seq]};
    const struct kvg_problem alone = problem_of(c, &all, 1);
    if (is_supported(c, &alone)) {
        if (run_alone(c, &all, want[BATCH]))
            return -1;
        if (want[CHUNKS] && (run_chunks(c, &all, 1) || run_chunks(c, &all, all.rows / 2 + 1)))
            return -1;
    }
    return want[BATCH] ? run_crowd(c, seq) : 0;
}

/* The kinds that this case can show and that the kernel has not run often enough: twice for a batch of one
 * sequence, of several, and for chunks, with the context in one piece and in splits. */
static int wanted(struct company *c, int want[KINDS])
{
    const struct kvg_problem *problem = &c->x->prepared.problem;
    struct kvg_follower *f = kvg_session_follower(c->x);
    const int64_t split = c->arithmetic.split_tokens;
    const int splits = split > 0 && split < problem->max_seq_len;
    int *batch = f ? &f->company[splits][problem->batch > 1] : NULL,
        *chunks = f ? &f->company[splits][2] : NULL;
    want[BATCH] = !batch || *batch < KVG_FOLLOWED_ENOUGH;
    want[CHUNKS] = problem->mask == KVG_MASK_CAUSAL && problem->max_q_len > 1 &&
                   (!chunks || *chunks < KVG_FOLLOWED_ENOUGH);
    if (batch && want[BATCH])
        ++*batch;
    if (chunks && want[CHUNKS])
        ++*chunks;
    return want[BATCH] || want[CHUNKS];
}

int kvg_attention_company(struct kvg_execution *x, const struct kvg_attention_args *args,
                          const struct kvg_expectation *e)
{
    const struct kvg_prepared *p = &x->prepared;
    struct company c = {.x = x, .args = args, .e = e};
    int64_t done = 0;
    int want[KINDS];
    if (p->frame || !args->lse)
        return 0;
    memset(&c.arithmetic, 0, sizeof c.arithmetic);
    x->kernel->arithmetic(args->problem, args->problem->max_seq_len, &c.arithmetic);
    if (!wanted(&c, want))
        return 0;
    int failed = make(&c) || kvg_call_attention(x, args) || bring(&c, c.whole_out, c.whole_lse);
    for (int64_t i = 0; i < p->problem.batch && done < SEQUENCES_MOST && !failed; i++) {
        const int64_t seq = p->problem.batch - 1 - i; /* the last ones first: their place differs most */
        if (rows_of(&c, seq) == 0 || p->seq_lens[seq] < 1)
            continue;
        failed = run_sequence(&c, seq, want);
        done++;
    }
    release(&c);
    return failed ? -1 : 0;
}
