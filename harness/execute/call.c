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

int kvg_call_attention_unchecked(struct kvg_execution *x, const struct kvg_attention_args *args)
{
    if (kvg_buffer_poison(x, args->out, kvg_out_bytes(&x->prepared)) ||
        (args->lse && kvg_buffer_poison(x, args->lse, kvg_lse_bytes(&x->prepared))) ||
        kvg_buffer_fill(x, x->site.workspace, x->site.clear_workspace ? 0 : 0xff, x->site.workspace_bytes))
        return -1;
    if (x->kernel->prepare && kvg_call_finish(x, "prepare", x->kernel->prepare(args)))
        return -1;
    return kvg_call_finish(x, "attention", x->kernel->attention(args));
}

int kvg_call_attention(struct kvg_execution *x, const struct kvg_attention_args *args)
{
    return kvg_call_attention_unchecked(x, args) || kvg_buffers_check(x) ? -1 : 0;
}
