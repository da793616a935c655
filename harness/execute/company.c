/* SPDX-License-Identifier: Apache-2.0
 *
 * company.c: a sequence alone, and its query rows in two calls.
 */
#include "company.h"

#include <stdlib.h>
#include <string.h>

#include "buffers.h"
#include "call.h"
#include "explain.h"
#include "outputs.h"
#include "same_bits.h"
#include "session_state.h"
#include "verdict.h"

enum { SEQUENCES_MOST = 3 };

/* The rows of one sequence, or a chunk of them, as a call of their own. */
struct part {
    int64_t seq, from, rows; /* query rows [from, from + rows) of the sequence */
    int64_t keys;            /* of the sequence in this call */
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

static int bring(struct company *c, const struct kvg_attention_args *args, uint16_t *to_out, float *to_lse)
{
    const struct kvg_prepared *p = &c->x->prepared;
    const uint16_t *out;
    const float *lse;
    if (kvg_outputs_bring(c->x, args, &out, &lse))
        return -1;
    memcpy(to_out, out, (size_t)kvg_out_bytes(p));
    memcpy(to_lse, lse, (size_t)kvg_lse_bytes(p));
    return 0;
}

/* ---------------------------------------------------------------- one part */

static struct kvg_problem problem_of(const struct company *c, const struct part *part)
{
    struct kvg_problem problem = *c->args->problem;
    problem.batch = 1;
    problem.total_q = problem.max_q_len = part->rows;
    problem.max_seq_len = problem.total_kv = part->keys;
    problem.phase = part->rows == part->keys ? KVG_PHASE_PREFILL
                    : part->rows == 1        ? KVG_PHASE_DECODE
                                             : KVG_PHASE_APPEND;
    if (part->rows == 1 && part->keys == 1)
        problem.phase = c->args->problem->phase;
    return problem;
}

/* 1 if the kernel takes the part and declares the same arithmetic for it, else 0. */
static int applies(const struct company *c, const struct part *part)
{
    const struct kvg_problem problem = problem_of(c, part);
    struct kvg_arithmetic other;
    char why[256];
    if (!c->x->kernel->supports(&problem, why, sizeof why))
        return 0;
    memset(&other, 0, sizeof other);
    c->x->kernel->arithmetic(&problem, problem.max_seq_len, &other);
    other.same_bits_under = c->arithmetic.same_bits_under;
    return memcmp(&other, &c->arithmetic, sizeof other) == 0;
}

/* Calls the kernel with one part. Its rows lie where they lie in the whole case, and the other rows hold NaN. */
static int call_part(struct company *c, const struct part *part)
{
    struct kvg_execution *x = c->x;
    const struct kvg_prepared *p = &x->prepared;
    const struct kvg_problem problem = problem_of(c, part);
    struct kvg_attention_args args = *c->args;
    const int64_t first = p->cu_q_lens[part->seq] + part->from, q_bytes = p->q8 ? 1 : 2;
    const int32_t length = (int32_t)part->keys, rows[2] = {0, (int32_t)part->rows};
    void *workspace = x->site.workspace;
    const int64_t bytes = x->site.workspace_bytes, before = x->site.workspace_before;
    const int64_t need = x->kernel->workspace_bytes ? x->kernel->workspace_bytes(&problem) : 0;
    if (kvg_buffer_send(x, c->lengths, &length, sizeof length) ||
        kvg_buffer_send(x, c->rows, rows, sizeof rows))
        return -1;
    if (need > bytes) {
        x->site.workspace = kvg_buffer_alloc(x, "workspace for one sequence", need);
        x->site.workspace_bytes = need;
        x->site.workspace_before = 0;
    }
    args.problem = &problem;
    args.q = (const char *)args.q + first * args.q_stride_token * q_bytes;
    args.out = (uint16_t *)args.out + first * args.out_stride_token;
    args.lse += first * args.lse_stride_token;
    args.block_table += part->seq * args.block_table_stride;
    args.seq_lens = c->lengths;
    args.cu_q_lens = c->rows;
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

/* ---------------------------------------------------------------- verdict */

/* Compares the rows of a sequence in c->out with those of the whole case, or of the sequence alone. */
static int judge(struct company *c, enum kvg_rearrangement which, int64_t seq, const char *when)
{
    const struct kvg_prepared *p = &c->x->prepared;
    const int64_t heads = p->problem.q_heads, dim = p->problem.head_dim, begin = p->cu_q_lens[seq] * heads,
                  end = p->cu_q_lens[seq + 1] * heads;
    const int declared = c->arithmetic.deterministic && (c->arithmetic.same_bits_under & (int)which);
    const uint16_t *out = which == KVG_MOVE_CHUNKS ? c->alone_out : c->whole_out;
    const float *lse = which == KVG_MOVE_CHUNKS ? c->alone_lse : c->whole_lse;
    int64_t at = begin;
    while (at < end && memcmp(c->out + at * dim, out + at * dim, (size_t)dim * sizeof *c->out) == 0 &&
           memcmp(&c->lse[at], &lse[at], sizeof *c->lse) == 0)
        at++;
    kvg_same_bits_note(c->x, which, declared, at == end);
    if (at == end)
        return 0;
    if (!declared) {
        const struct kvg_suspicion known = {KVG_FAULT_SPLIT,
                                            "right in the whole call, wrong in a smaller one"};
        /* the other rows of the case are those of the whole call, which were right */
        memcpy(c->out, c->whole_out, (size_t)(begin * dim) * sizeof *c->out);
        memcpy(c->out + end * dim, c->whole_out + end * dim,
               (size_t)(p->total_q * heads - end) * (size_t)dim * sizeof *c->out);
        memcpy(c->lse, c->whole_lse, (size_t)begin * sizeof *c->lse);
        memcpy(c->lse + end, c->whole_lse + end, (size_t)(p->total_q * heads - end) * sizeof *c->lse);
        return kvg_host_output_hold(c->x, c->out, c->lse, c->e, when, &known);
    }
    kvg_verdict_suspect(c->x, KVG_FAULT_SPLIT, "the bits of a row depend on what else the call computes");
    return kvg_verdict(
        c->x, KVG_INCORRECT,
        "permuted: %s: other bits, first in query row %lld head %lld, although the kernel declares "
        "that its bits do not depend on that",
        when, (long long)(at / heads), (long long)(at % heads));
}

/* A sequence alone. */
static int run_alone(struct company *c, int64_t seq)
{
    const struct kvg_prepared *p = &c->x->prepared;
    const struct part part = {seq, 0, p->cu_q_lens[seq + 1] - p->cu_q_lens[seq], p->seq_lens[seq]};
    if (!applies(c, &part))
        return 0;
    return kvg_poison_outputs(c->x, c->args) || call_part(c, &part) || bring(c, c->args, c->out, c->lse) ||
                   (p->problem.batch > 1 &&
                    judge(c, KVG_MOVE_COMPANY, seq, "one sequence of the batch alone"))
               ? -1
               : 0;
}

/* The rows of a sequence cut after `cut` rows. */
static int run_chunks(struct company *c, int64_t seq, int64_t cut)
{
    const struct kvg_prepared *p = &c->x->prepared;
    const int64_t rows = p->cu_q_lens[seq + 1] - p->cu_q_lens[seq], keys = p->seq_lens[seq];
    const struct part parts[2] = {{seq, 0, cut, keys - rows + cut}, {seq, cut, rows - cut, keys}},
                      all = {seq, 0, rows, keys};
    if (cut < 1 || cut >= rows || parts[0].keys < 1 || !p->problem.causal || !applies(c, &parts[0]) ||
        !applies(c, &parts[1]) || !applies(c, &all))
        return 0;
    /* in one call, alone: so that only the cut differs */
    if (kvg_poison_outputs(c->x, c->args) || call_part(c, &all) ||
        bring(c, c->args, c->alone_out, c->alone_lse) || kvg_poison_outputs(c->x, c->args) ||
        call_part(c, &parts[0]) || call_part(c, &parts[1]) || bring(c, c->args, c->out, c->lse))
        return -1;
    return judge(c, KVG_MOVE_CHUNKS, seq, "the query rows of a sequence in two calls");
}

static int run_sequence(struct company *c, int64_t seq)
{
    const struct kvg_prepared *p = &c->x->prepared;
    const int64_t rows = p->cu_q_lens[seq + 1] - p->cu_q_lens[seq];
    return run_alone(c, seq) || run_chunks(c, seq, 1) || run_chunks(c, seq, rows / 2 + 1) ? -1 : 0;
}

int kvg_attention_company(struct kvg_execution *x, const struct kvg_attention_args *args,
                          const struct kvg_expectation *e)
{
    const struct kvg_prepared *p = &x->prepared;
    struct company c = {.x = x, .args = args, .e = e};
    int64_t done = 0;
    if (p->frame || !args->lse)
        return 0;
    memset(&c.arithmetic, 0, sizeof c.arithmetic);
    x->kernel->arithmetic(args->problem, args->problem->max_seq_len, &c.arithmetic);
    int failed = make(&c) || kvg_call_attention(x, args) || bring(&c, args, c.whole_out, c.whole_lse);
    for (int64_t i = 0; i < p->problem.batch && done < SEQUENCES_MOST && !failed; i++) {
        const int64_t seq = p->problem.batch - 1 - i; /* the last ones first: their place differs most */
        if (p->cu_q_lens[seq + 1] == p->cu_q_lens[seq] || p->seq_lens[seq] < 1)
            continue;
        failed = run_sequence(&c, seq);
        done++;
    }
    release(&c);
    return failed ? -1 : 0;
}
