/* SPDX-License-Identifier: Apache-2.0
 *
 * one_mutant.c: runs one mutant over all cases in a process of its own. It reports our verdict, through the
 * same code as a worker of `kvgauge run --verify-only`, and that of published rules on the same outputs.
 */
#include <regex.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/registry.h"
#include "mutants.h"
#include "harness/memory/guard.h"
#include "harness/prepare/prepared.h"
#include "harness/execute/options.h"
#include "harness/execute/execute.h"
#include "kernels/scales.h"

/* Repeated calls for a fault that is a race: enough that it is very likely to show. */
enum { RACE_REPEATS = 300 };

struct buffers {
    struct kvg_guard_list *guards;
    void *a, *b, *workspace;
};

static int make_buffers(struct buffers *b, int64_t first, int64_t second, int64_t workspace)
{
    struct kvg_error error;
    b->guards = kvg_guard_new();
    if (!b->guards)
        return -1;
    b->a = kvg_guard_alloc(b->guards, "first", first, &error);
    b->b = kvg_guard_alloc(b->guards, "second", second, &error);
    b->workspace = kvg_guard_alloc(b->guards, "workspace", workspace, &error);
    return b->a && b->b && b->workspace ? 0 : -1;
}

static unsigned break_rules_by_attention(const struct kvg_kernel *kernel, struct item *item)
{
    struct kvg_prepared *p = &item->p;
    const int64_t rows = p->total_q * p->problem.q_heads, dim = p->problem.head_dim,
                  heads = p->problem.q_heads;
    const int64_t space = kernel->workspace_bytes(&p->problem);
    const int quantised = p->problem.kv_dtype != KVG_BF16;
    struct buffers b;
    unsigned broken = 0;
    if (make_buffers(&b, rows * dim * 2, rows * 4, space) == 0) {
        memset(b.a, 0xff, (size_t)(rows * dim * 2));
        memset(b.b, 0xff, (size_t)(rows * 4));
        memset(b.workspace, 0xff, (size_t)space);
        const struct kvg_attention_args a = {
            .problem = &p->problem,
            .q = p->q8 ? (const void *)p->q8 : (const void *)p->q,
            .q_stride_token = heads * dim,
            .q_stride_head = dim,
            .k_cache = p->k_pages,
            .v_cache = p->v_pages,
            .num_blocks = p->num_blocks,
            .block_table = p->block_table,
            .block_table_stride = p->block_table_stride,
            .seq_lens = p->seq_lens,
            .cu_q_lens = p->cu_q_lens,
            .scales = kvg_scales_of(p->q8 ? p->q_scale : NULL, quantised ? p->k_scale : NULL,
                                    quantised ? p->v_scale : NULL, p->scale_stride),
            .softmax_scale = p->softmax_scale,
            .out = b.a,
            .out_stride_token = heads * dim,
            .out_stride_head = dim,
            .lse = b.b,
            .lse_stride_token = heads,
            .workspace = b.workspace,
            .workspace_bytes = space,
            .prefix_lens = p->prefix_lens,
            .sinks = p->sinks,
        };
        broken = kernel->attention(&a) ? (1u << RULES) - 1u : rules_broken(p, &item->r, b.a, b.b);
    }
    kvg_guard_free(b.guards);
    return broken;
}

static unsigned break_rules_by_store(const struct kvg_kernel *kernel, struct item *item)
{
    struct kvg_prepared *p = &item->p;
    const int64_t bytes = p->cache_elements * kvg_dtype_bytes(p->problem.kv_dtype);
    const int64_t dim = p->problem.head_dim, heads = p->problem.kv_heads;
    const int quantised = p->problem.kv_dtype != KVG_BF16;
    struct buffers b;
    unsigned broken = 0;
    if (make_buffers(&b, bytes, bytes, 4096) == 0) {
        kvg_poison_cache(p->problem.kv_dtype, b.a, p->cache_elements);
        kvg_poison_cache(p->problem.kv_dtype, b.b, p->cache_elements);
        struct kvg_store_args a = {
            .problem = &p->problem,
            .k = p->k,
            .v = p->v,
            .k_stride_token = heads * dim,
            .k_stride_head = dim,
            .v_stride_token = heads * dim,
            .v_stride_head = dim,
            .slot_mapping = p->slot_mapping,
            .tokens = p->store_tokens,
            .k_cache = p->k_pages,
            .v_cache = p->v_pages,
            .num_blocks = p->num_blocks,
            .scales = kvg_scales_of(NULL, quantised ? p->k_scale : NULL, quantised ? p->v_scale : NULL,
                                    p->scale_stride),
            .workspace = b.workspace,
            .workspace_bytes = 4096,
        };
        a.k_cache.data = b.a;
        a.v_cache.data = b.b;
        broken = kernel->store(&a) ? (1u << RULES) - 1u : rules_broken_by_store(p, b.a, b.b);
    }
    kvg_guard_free(b.guards);
    return broken;
}

/* Reports that a far run begins or ends. If the process ends in it without a verdict, its last message is that it
 * began. */
static void say_far(void *context, int run)
{
    const struct verdict v = {.far = run == KVG_RUN_FAR ? 1 : -1};
    if (write(*(const int *)context, &v, sizeof v) != (ssize_t)sizeof v)
        _exit(1);
}

/* 1 if the case is left out: option -e. */
static int left_out(const regex_t *shows, int fault, const struct kvg_case *c, int64_t i, int every)
{
    char text[KVG_CASE_STRING_MAX];
    kvg_case_format(c, text);
    const int meant = mutant_faults[fault].shows[0] && regexec(shows, text, 0, NULL, 0) == 0;
    return !mutant_is_right(fault) && !meant && i % every != fault % every;
}

void mutant_run(int fault, struct item *items, int64_t count, int every, int to)
{
    regex_t shows;
    struct kvg_run_options options;
    struct kvg_session *session = kvg_session_new();
    char name[sizeof items->c.kernel], why[256];
    snprintf(name, sizeof name, "mutant/%s", mutant_faults[fault].name);
    const struct kvg_kernel *kernel = kvg_registry_find(name);
    kvg_run_options_default(&options);
    options.verify_only = 1;
    if (strcmp(mutant_faults[fault].fault_class, "race or workspace") == 0)
        options.repeats = RACE_REPEATS;
    if (regcomp(&shows, mutant_faults[fault].shows, REG_EXTENDED | REG_NOSUB))
        return;
    for (int64_t i = 0; i < count && session && kernel; i++) {
        struct kvg_case c = items[i].c;
        struct kvg_row row;
        struct verdict v = {.index = (int32_t)i};
        if (!kernel->supports(&items[i].p.problem, why, sizeof why) || left_out(&shows, fault, &c, i, every))
            continue;
        memcpy(c.kernel, name, sizeof name);
        if (kvg_row_init(&row))
            break;
        kvg_session_announce(session, say_far, &to);
        kvg_execute_in(session, &c, &options, &row, NULL);
        v.status = (int32_t)row.status;
        v.suspected = mutant_class(row.suspected);
        snprintf(v.suspicion, sizeof v.suspicion, "%s", row.suspicion);
        v.checks = row.status == KVG_INCORRECT ? mutant_checks_in(row.reason) : 0;
        snprintf(v.reason, sizeof v.reason, "%s", row.reason);
        kvg_row_free(&row);
        v.broken = c.phase == KVG_PHASE_STORE ? break_rules_by_store(kernel, &items[i])
                                              : break_rules_by_attention(kernel, &items[i]);
        if (write(to, &v, sizeof v) != (ssize_t)sizeof v)
            break;
        if (kvg_session_tainted(session)) { /* kvgauge starts another worker here */
            kvg_session_free(session);
            session = kvg_session_new();
        }
    }
    regfree(&shows);
}
