/* SPDX-License-Identifier: Apache-2.0
 *
 * outputs.c: compares an output of attention with its expectation.
 *
 * If the host verifies a part of a case, the rows of the part are copied out of the output and compared with
 * the reference. All rows are compared with the output of the plain kernel, a simple FP32 kernel on the
 * device (harness/verify/whole.h).
 */
#include "outputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffers.h"
#include "call.h"
#include "inputs.h"
#include "kernels/registry.h"
#include "options.h"
#include "session_state.h"
#include "verdict.h"

/* The plain kernel does not run for more operations than this. It is about a hundred times slower than the
 * matrix units, and the operations of a prefill grow with the square of the context. */
#define PLAIN_FLOPS 2e13
#define OUTPUT_POISON 0xff /* kvg_buffer_poison */

/* ---------------------------------------------------------------- the plain kernel */

static const struct kvg_kernel *find_plain(struct kvg_execution *x, struct kvg_problem *problem)
{
    const char *name = x->session->device.source.plain;
    const struct kvg_kernel *plain = name ? kvg_registry_find(name) : NULL;
    char why[160] = "";
    if (!plain || !plain->attention) {
        snprintf(x->outputs->plain_why, sizeof x->outputs->plain_why, "there is no kernel '%s'",
                 name ? name : "");
        return NULL;
    }
    problem->out_dtype = KVG_F32;
    if ((double)x->row->flops > PLAIN_FLOPS) {
        snprintf(x->outputs->plain_why, sizeof x->outputs->plain_why, "%s would take too long", name);
        return NULL;
    }
    if (!kvg_kernel_takes(plain, problem, why, sizeof why)) {
        snprintf(x->outputs->plain_why, sizeof x->outputs->plain_why, "%s: %s", name, why);
        return NULL;
    }
    return plain;
}

/* Calls the plain kernel. args->out and args->lse are device memory. */
static int call_plain(struct kvg_execution *x, const struct kvg_kernel *plain,
                      struct kvg_attention_args *args)
{
    if (plain->workspace_bytes) {
        args->workspace_bytes = plain->workspace_bytes(args->problem);
        args->workspace = kvg_buffer_alloc(x, "workspace of the plain kernel", args->workspace_bytes);
        if (!args->workspace)
            return -1;
    }
    if (plain->prepare && kvg_call_finish(x, "prepare of the plain kernel", plain->prepare(args)))
        return -1;
    return kvg_call_finish(x, "attention of the plain kernel", plain->attention(args));
}

static int bring(struct kvg_execution *x, float **to, void *from, int64_t bytes)
{
    *to = malloc((size_t)bytes + 1);
    if (!*to)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for the output of the plain kernel");
    return x->site.device->ops->download(x->site.device, *to, from, bytes)
               ? kvg_verdict_of_device(x, "copying the plain kernel's output to the host", NULL)
               : 0;
}

int kvg_outputs_make_plain(struct kvg_execution *x, const struct kvg_attention_args *args,
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
    mine.out = kvg_buffer_alloc(x, "out of the plain kernel", out_bytes);
    mine.lse = mine.out ? kvg_buffer_alloc(x, "lse of the plain kernel", lse_bytes) : NULL;
    int failed = !mine.lse || kvg_buffer_poison(x, mine.out, out_bytes) ||
                 kvg_buffer_poison(x, mine.lse, lse_bytes) || call_plain(x, plain, &mine) ||
                 bring(x, &x->outputs->plain.out, mine.out, out_bytes) ||
                 bring(x, &x->outputs->plain.lse, mine.lse, lse_bytes) || kvg_buffers_check(x);
    kvg_device_memory_release(x->site.memory, mine.out);
    kvg_device_memory_release(x->site.memory, mine.lse);
    kvg_device_memory_release(x->site.memory, mine.workspace);
    if (failed)
        return -1;
    x->outputs->plain_wrong = kvg_plain_check(e, &x->prepared, &x->outputs->plain, why, sizeof why) != 0;
    if (!x->outputs->plain_wrong)
        return 0;
    snprintf(x->outputs->plain_why, sizeof x->outputs->plain_why, "%s is itself wrong: %s", plain->name, why);
    kvg_plain_free(&x->outputs->plain);
    return 0;
}

void kvg_outputs_remark(struct kvg_execution *x)
{
    if (!x->outputs->plain_why[0])
        return;
    kvg_verdict_remark(x, "%lld of %lld sequences checked: %s", (long long)x->part.problem.batch,
                       (long long)x->prepared.problem.batch, x->outputs->plain_why);
    if (x->outputs->plain_wrong && x->row->status == KVG_PASSED)
        x->row->status = KVG_MISTRUSTED;
}

void kvg_outputs_free(struct kvg_outputs *outputs)
{
    kvg_plain_free(&outputs->plain);
    free(outputs->part_out);
    free(outputs->part_lse);
    free(outputs->dense_out);
    free(outputs->dense_lse);
    *outputs = (struct kvg_outputs){0};
}

/* ---------------------------------------------------------------- outputs */

/* Copies the rows of the part out of the whole output. */
static int pick_rows(struct kvg_execution *x, const uint16_t *out, const float *lse)
{
    const struct kvg_prepared *whole = &x->prepared, *part = &x->part;
    const int64_t heads = whole->problem.q_heads, d = whole->problem.head_dim, rows = part->total_q * heads;
    free(x->outputs->part_out);
    free(x->outputs->part_lse);
    x->outputs->part_out = malloc((size_t)(rows * d + 1) * sizeof *x->outputs->part_out);
    x->outputs->part_lse = malloc((size_t)(rows + 1) * sizeof *x->outputs->part_lse);
    if (!x->outputs->part_out || !x->outputs->part_lse)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for the rows of the verified sequences");
    for (int64_t i = 0; i < part->problem.batch; i++) {
        const int64_t from = whole->cu_q_lens[kvg_prepared_sequence(part, i)] * heads,
                      to = part->cu_q_lens[i] * heads,
                      count = (part->cu_q_lens[i + 1] - part->cu_q_lens[i]) * heads;
        memcpy(x->outputs->part_out + to * d, out + from * d, (size_t)(count * d) * sizeof *out);
        if (lse)
            memcpy(x->outputs->part_lse + to, lse + from, (size_t)count * sizeof *lse);
    }
    return 0;
}

/* Converts columns of a comparison of the part to the whole case: number of elements, index of the worst. */
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

int kvg_outputs_expect(struct kvg_execution *x, struct kvg_expectation **out)
{
    struct kvg_error error;
    if (kvg_expectation_make(kvg_inputs_verified(x), x->kernel, x->options->verify_rows, out, &error))
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

/* A call must not write between the rows of its outputs. */
static int check_gap(struct kvg_execution *x, const char *name, const struct kvg_rows_view *view, int64_t dim,
                     int64_t bytes, const void *buffer)
{
    const struct kvg_prepared *p = &x->prepared;
    const int64_t at =
        kvg_rows_gap_written(view, p->total_q, p->problem.q_heads, dim, bytes, OUTPUT_POISON, buffer);
    if (at == -2)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a copy of %s", name);
    if (at < 0)
        return 0;
    kvg_verdict_suspect(x, KVG_FAULT_MEMORY,
                        "a stride of %s is computed from the shape, or a row is too long", name);
    return kvg_verdict(x, KVG_INCORRECT,
                       "%s was written between its rows, at element %lld of its buffer (strides: token %lld, "
                       "head %lld; first element %lld)",
                       name, (long long)(at / bytes), (long long)view->stride_token,
                       (long long)view->stride_head, (long long)view->first);
}

int kvg_outputs_bring(struct kvg_execution *x, const struct kvg_attention_args *args, const uint16_t **out,
                      const float **lse)
{
    const struct kvg_prepared *p = &x->prepared;
    const struct kvg_views *v = &p->views;
    const int64_t heads = p->problem.q_heads, dim = p->problem.head_dim;
    struct kvg_outputs *o = x->outputs;
    const void *out_buffer =
        kvg_buffer_fetch(x, KVG_FETCHED_OUT, kvg_out_buffer(p, args), kvg_out_buffer_bytes(p));
    const void *lse_buffer =
        out_buffer && args->lse
            ? kvg_buffer_fetch(x, KVG_FETCHED_LSE, kvg_lse_buffer(p, args), kvg_lse_buffer_bytes(p))
            : NULL;
    if (!out_buffer || (args->lse && !lse_buffer))
        return -1;
    *out = out_buffer;
    *lse = lse_buffer;
    if (v->dense)
        return 0;
    if (check_gap(x, "out", &v->out, dim, sizeof **out, out_buffer) ||
        (lse_buffer && check_gap(x, "lse", &v->lse, 1, sizeof **lse, lse_buffer)))
        return -1;
    o->dense_out = o->dense_out ? o->dense_out : malloc((size_t)kvg_out_bytes(p) + 1);
    o->dense_lse = o->dense_lse ? o->dense_lse : malloc((size_t)kvg_lse_bytes(p) + 1);
    if (!o->dense_out || !o->dense_lse)
        return kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a dense output");
    kvg_rows_pick(&v->out, p->total_q, heads, dim, sizeof **out, out_buffer, o->dense_out);
    if (lse_buffer)
        kvg_rows_pick(&v->lse, p->total_q, heads, 1, sizeof **lse, lse_buffer, o->dense_lse);
    *out = o->dense_out;
    *lse = lse_buffer ? o->dense_lse : NULL;
    return 0;
}

int kvg_outputs_compare(struct kvg_execution *x, const struct kvg_attention_args *args,
                        const struct kvg_expectation *e, int whole, struct kvg_row *row)
{
    const struct kvg_prepared *p = &x->prepared;
    struct kvg_error error;
    const uint16_t *out;
    const float *lse;
    if (kvg_outputs_bring(x, args, &out, &lse))
        return -1;
    if (p->frame && pick_rows(x, out, lse))
        return -1;
    x->outputs->compared_out = p->frame ? x->outputs->part_out : out;
    x->outputs->compared_lse = p->frame && lse ? x->outputs->part_lse : lse;
    x->outputs->whole_failed = 0;
    if (kvg_compare_attention(e, x->outputs->compared_out, x->outputs->compared_lse, row, &error))
        return kvg_verdict_of_error(x, &error);
    if (!p->frame)
        return 0;
    tell_of_whole(x, row);
    if (!whole || !x->outputs->plain.out || row->status == KVG_INCORRECT)
        return 0;
    if (kvg_compare_whole(e, p, &x->outputs->plain, out, lse, row, &error))
        return kvg_verdict_of_error(x, &error);
    x->outputs->whole_failed = row->status == KVG_INCORRECT;
    return 0;
}
