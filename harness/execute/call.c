/* SPDX-License-Identifier: Apache-2.0
 *
 * call.c: calls an attention kernel once, with poisoned outputs and workspace.
 */
#include "call.h"

#include "buffers.h"

int64_t kvg_out_bytes(const struct kvg_prepared *p)
{
    return p->total_q * p->problem.q_heads * p->problem.head_dim * (int64_t)sizeof(uint16_t);
}

int64_t kvg_lse_bytes(const struct kvg_prepared *p)
{
    return p->total_q * p->problem.q_heads * (int64_t)sizeof(float);
}

int64_t kvg_out_buffer_bytes(const struct kvg_prepared *p)
{
    return p->views.out.elements * (int64_t)sizeof(uint16_t);
}

int64_t kvg_lse_buffer_bytes(const struct kvg_prepared *p)
{
    return p->views.lse.elements * (int64_t)sizeof(float);
}

void *kvg_out_buffer(const struct kvg_prepared *p, const struct kvg_attention_args *args)
{
    return (uint16_t *)args->out - p->views.out.first;
}

void *kvg_lse_buffer(const struct kvg_prepared *p, const struct kvg_attention_args *args)
{
    return args->lse ? args->lse - p->views.lse.first : NULL;
}

int kvg_poison_outputs(struct kvg_execution *x, const struct kvg_attention_args *args)
{
    const struct kvg_prepared *p = &x->prepared;
    return kvg_buffer_poison(x, kvg_out_buffer(p, args), kvg_out_buffer_bytes(p)) ||
                   (args->lse && kvg_buffer_poison(x, kvg_lse_buffer(p, args), kvg_lse_buffer_bytes(p)))
               ? -1
               : 0;
}

int kvg_hash_outputs(struct kvg_execution *x, const struct kvg_attention_args *args, uint64_t *out,
                     uint64_t *lse)
{
    const struct kvg_prepared *p = &x->prepared;
    return kvg_buffer_hash(x, kvg_out_buffer(p, args), kvg_out_buffer_bytes(p), out) ||
                   kvg_buffer_hash(x, kvg_lse_buffer(p, args), kvg_lse_buffer_bytes(p), lse)
               ? -1
               : 0;
}

int kvg_call_prepare(struct kvg_execution *x, const struct kvg_attention_args *args)
{
    return kvg_poison_outputs(x, args) ||
                   kvg_buffer_fill(x, x->site.workspace, x->site.clear_workspace ? 0 : 0xff,
                                   x->site.workspace_bytes)
               ? -1
               : 0;
}

int kvg_call_prepared(struct kvg_execution *x, const struct kvg_attention_args *args)
{
    if (x->kernel->prepare && kvg_call_finish(x, "prepare", x->kernel->prepare(args)))
        return -1;
    return kvg_call_finish(x, "attention", x->kernel->attention(args));
}

int kvg_call_attention_unchecked(struct kvg_execution *x, const struct kvg_attention_args *args)
{
    return kvg_call_prepare(x, args) || kvg_call_prepared(x, args) ? -1 : 0;
}

int kvg_call_attention(struct kvg_execution *x, const struct kvg_attention_args *args)
{
    return kvg_call_attention_unchecked(x, args) || kvg_buffers_check(x) ? -1 : 0;
}
