/* SPDX-License-Identifier: Apache-2.0
 *
 * execute_whole.c: outputs of attention against their expectation. Where the host verifies a part of the case
 * its rows are picked out of the output, and the rest is held to a plain FP32 kernel on the device
 * (verify_whole.h).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/registry.h"
#include "execute.h"

/* A plain kernel is slow: a hundred times slower than the matrix units, and a prefill grows with the square
 * of the context. Beyond this many operations it is not asked. */
#define PLAIN_FLOPS 2e13

/* ---------------------------------------------------------------- the plain kernel */

static const struct kvg_kernel *find_plain(struct kvg_execution *x, struct kvg_problem *problem)
{
    const char *name = x->session->source.plain;
    const struct kvg_kernel *plain = name ? kvg_registry_find(name) : NULL;
    char why[160] = "";
    if (!plain || !plain->attention) {
        snprintf(x->plain_why, sizeof x->plain_why, "there is no kernel '%s'", name ? name : "");
        return NULL;
    }
    problem->out_dtype = KVG_F32;
    if ((double)x->row->flops > PLAIN_FLOPS) {
        snprintf(x->plain_why, sizeof x->plain_why, "%s would take too long", name);
        return NULL;
    }
    if (!plain->supports(problem, why, sizeof why)) {
        snprintf(x->plain_why, sizeof x->plain_why, "%s: %s", name, why);
        return NULL;
    }
    return plain;
}

/* Calls it into `out` and `lse` on the device. */
static int call_plain(struct kvg_execution *x, const struct kvg_kernel *plain,
                      struct kvg_attention_args *args)
{
    if (plain->workspace_bytes) {
        args->workspace_bytes = plain->workspace_bytes(args->problem);
        args->workspace = kvg_place(x, "workspace of the plain kernel", args->workspace_bytes);
        if (!args->workspace)
            return -1;
    }
    if (plain->prepare && kvg_called(x, "prepare of the plain kernel", plain->prepare(args)))
        return -1;
    return kvg_called(x, "attention of the plain kernel", plain->attention(args));
}

static int bring(struct kvg_execution *x, float **to, void *from, int64_t bytes)
{
    *to = malloc((size_t)bytes + 1);
    if (!*to)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for the output of the plain kernel");
    return x->device->ops->download(x->device, *to, from, bytes)
               ? kvg_verdict_of_device(x, "bringing the plain kernel's output back", NULL)
               : 0;
}

int kvg_make_plain(struct kvg_execution *x, const struct kvg_attention_args *args,
                   const struct kvg_expectation *e)
{
    struct kvg_problem problem = *args->problem;
    struct kvg_attention_args mine = *args;
    const int64_t rows = x->prepared.total_q * problem.q_heads;
    const int64_t lse_bytes = rows * (int64_t)sizeof(float), out_bytes = lse_bytes * problem.head_dim;
    char why[200] = "";
    if (!x->prepared.frame)
        return 0;
    const struct kvg_kernel *plain = find_plain(x, &problem);
    if (!plain)
        return 0;
    mine.problem = &problem;
    mine.workspace = NULL;
    mine.workspace_bytes = 0;
    mine.out = kvg_place(x, "out of the plain kernel", out_bytes);
    mine.lse = mine.out ? kvg_place(x, "lse of the plain kernel", lse_bytes) : NULL;
    int failed = !mine.lse || kvg_poison(x, mine.out, out_bytes) || kvg_poison(x, mine.lse, lse_bytes) ||
                 call_plain(x, plain, &mine) || bring(x, &x->plain.out, mine.out, out_bytes) ||
                 bring(x, &x->plain.lse, mine.lse, lse_bytes) || kvg_check_memory(x);
    kvg_device_release(x->memory, mine.out);
    kvg_device_release(x->memory, mine.lse);
    kvg_device_release(x->memory, mine.workspace);
    if (failed)
        return -1;
    x->plain_wrong = kvg_plain_check(e, &x->prepared, &x->plain, why, sizeof why) != 0;
    if (!x->plain_wrong)
        return 0;
    snprintf(x->plain_why, sizeof x->plain_why, "%s is itself wrong: %s", plain->name, why);
    kvg_plain_free(&x->plain);
    return 0;
}

void kvg_remark_whole(struct kvg_execution *x)
{
    if (!x->plain_why[0])
        return;
    kvg_remark(x, "%lld of %lld sequences checked: %s", (long long)x->part.problem.batch,
               (long long)x->prepared.problem.batch, x->plain_why);
    if (x->plain_wrong && x->row->status == KVG_PASSED)
        x->row->status = KVG_MISTRUSTED;
}

void kvg_whole_free(struct kvg_execution *x)
{
    kvg_plain_free(&x->plain);
    free(x->part_out);
    free(x->part_lse);
    x->part_out = NULL;
    x->part_lse = NULL;
}

/* ---------------------------------------------------------------- outputs */

/* The part's rows out of the whole. */
static int pick_rows(struct kvg_execution *x, const uint16_t *out, const float *lse)
{
    const struct kvg_prepared *whole = &x->prepared, *part = &x->part;
    const int64_t heads = whole->problem.q_heads, d = whole->problem.head_dim, rows = part->total_q * heads;
    free(x->part_out);
    free(x->part_lse);
    x->part_out = malloc((size_t)(rows * d + 1) * sizeof *x->part_out);
    x->part_lse = malloc((size_t)(rows + 1) * sizeof *x->part_lse);
    if (!x->part_out || !x->part_lse)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for the rows of the verified sequences");
    for (int64_t i = 0; i < part->problem.batch; i++) {
        const int64_t from = whole->cu_q_lens[kvg_prepared_sequence(part, i)] * heads,
                      to = part->cu_q_lens[i] * heads,
                      count = (part->cu_q_lens[i + 1] - part->cu_q_lens[i]) * heads;
        memcpy(x->part_out + to * d, out + from * d, (size_t)(count * d) * sizeof *out);
        if (lse)
            memcpy(x->part_lse + to, lse + from, (size_t)count * sizeof *lse);
    }
    return 0;
}

/* What a comparison of the part says of the whole: elements there are, and where the worst one lies. */
static void tell_of_whole(const struct kvg_execution *x, struct kvg_row *row)
{
    const struct kvg_prepared *whole = &x->prepared, *part = &x->part;
    const int64_t per_query = whole->problem.q_heads * whole->problem.head_dim;
    row->n_total = whole->total_q * per_query;
    if (row->worst_index < 0)
        return;
    const int64_t query = row->worst_index / per_query;
    int64_t i = 0;
    while (query >= part->cu_q_lens[i + 1])
        i++;
    row->worst_index += (whole->cu_q_lens[kvg_prepared_sequence(part, i)] - part->cu_q_lens[i]) * per_query;
}

int kvg_expect_all(struct kvg_execution *x, struct kvg_expectation **out)
{
    struct kvg_error error;
    if (kvg_expectation_make(kvg_verified(x), x->kernel, x->options->verify_rows, out, &error))
        return kvg_verdict_of_error(x, &error);
    const enum kvg_activity before = kvg_stopwatch_turn(&x->watch, KVG_QUANTISATION);
    const int failed = kvg_expectation_add_unquantised(*out, &error);
    kvg_stopwatch_turn(&x->watch, before);
    if (!failed)
        return 0;
    kvg_expectation_free(*out);
    *out = NULL;
    return kvg_verdict_of_error(x, &error);
}

int kvg_compare_outputs(struct kvg_execution *x, const struct kvg_attention_args *args,
                        const struct kvg_expectation *e, int whole, struct kvg_row *row)
{
    const struct kvg_prepared *p = &x->prepared;
    const int64_t rows = p->total_q * p->problem.q_heads;
    struct kvg_error error;
    const uint16_t *out =
        kvg_fetch(x, KVG_FETCHED_OUT, args->out, rows * p->problem.head_dim * (int64_t)sizeof(uint16_t));
    const float *lse =
        out && args->lse ? kvg_fetch(x, KVG_FETCHED_LSE, args->lse, rows * (int64_t)sizeof(float)) : NULL;
    if (!out || (args->lse && !lse))
        return -1;
    if (p->frame && pick_rows(x, out, lse))
        return -1;
    x->compared_out = p->frame ? x->part_out : out;
    x->compared_lse = p->frame && lse ? x->part_lse : lse;
    x->whole_failed = 0;
    if (kvg_compare_attention(e, x->compared_out, x->compared_lse, row, &error))
        return kvg_verdict_of_error(x, &error);
    if (!p->frame)
        return 0;
    tell_of_whole(x, row);
    if (!whole || !x->plain.out || row->status == KVG_INCORRECT)
        return 0;
    if (kvg_compare_whole(e, p, &x->plain, out, lse, row, &error))
        return kvg_verdict_of_error(x, &error);
    x->whole_failed = row->status == KVG_INCORRECT;
    return 0;
}
