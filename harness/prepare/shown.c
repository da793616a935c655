/* SPDX-License-Identifier: Apache-2.0
 *
 * shown.c: the buffers that a kernel is given. If views are dense these are the dense tensors; else copies
 * whose gaps hold NaN.
 */
#include <string.h>

#include "parts.h"
#include "prepared.h"

static void *allocate(struct kvg_prepared *p, const char *name, int64_t elements, int64_t size,
                      struct kvg_error *error)
{
    return kvg_guard_alloc(p->own->guards, name, elements * size, error);
}

static int allocate_sources(struct kvg_prepared *p, struct kvg_error *error)
{
    struct kvg_shown *s = &p->shown;
    s->k = allocate(p, p->views.shared ? "k and v" : "k", p->views.k.elements, 2, error);
    s->v = p->views.shared || !s->k ? s->k : allocate(p, "v", p->views.v.elements, 2, error);
    return s->v ? 0 : -1;
}

static int allocate_attention(struct kvg_prepared *p, struct kvg_error *error)
{
    struct kvg_shown *s = &p->shown;
    const int64_t bytes = kvg_dtype_bytes(p->problem.kv_dtype);
    const int shared = p->views.shared;
    if (!(s->q = allocate(p, "q", p->views.q.elements, 2, error)) ||
        (p->q8 && !(s->q8 = allocate(p, "q8", p->views.q8.elements, 1, error))) ||
        !(s->k_cache = allocate(p, shared ? "k_cache and v_cache" : "k_cache", p->views.k_cache.elements,
                                bytes, error)))
        return -1;
    s->v_cache = shared ? s->k_cache : allocate(p, "v_cache", p->views.v_cache.elements, bytes, error);
    return s->v_cache ? 0 : -1;
}

int kvg_shown_allocate(struct kvg_prepared *p, struct kvg_error *error)
{
    if (p->views.dense) {
        p->shown = (struct kvg_shown){p->q, p->q8, p->k, p->v, p->k_cache, p->v_cache};
        return 0;
    }
    return p->problem.phase == KVG_PHASE_STORE ? allocate_sources(p, error) : allocate_attention(p, error);
}

static void fill_sources(struct kvg_prepared *p)
{
    const struct kvg_problem *problem = &p->problem;
    const struct kvg_shown *s = &p->shown;
    memset(s->k, kvg_poison_byte(KVG_BF16), (size_t)p->views.k.elements * 2);
    if (s->v != s->k)
        memset(s->v, kvg_poison_byte(KVG_BF16), (size_t)p->views.v.elements * 2);
    kvg_rows_place(&p->views.k, p->store_tokens, problem->kv_heads, problem->head_dim, 2, p->k, s->k);
    kvg_rows_place(&p->views.v, p->store_tokens, problem->kv_heads, problem->head_dim, 2, p->v, s->v);
}

/* A cache with zeros or NaN in every element that belongs to no tensor. */
static void fill_cache(struct kvg_prepared *p, void *cache, int64_t elements, int zero)
{
    if (zero)
        memset(cache, 0, (size_t)(elements * kvg_dtype_bytes(p->problem.kv_dtype)));
    else
        kvg_poison_cache(p->problem.kv_dtype, cache, elements);
}

static void fill_attention(struct kvg_prepared *p, int zero)
{
    const struct kvg_problem *problem = &p->problem;
    const struct kvg_shown *s = &p->shown;
    const struct kvg_views_sizes sizes = kvg_prepared_sizes(p);
    const int64_t bytes = kvg_dtype_bytes(problem->kv_dtype);
    memset(s->q, zero ? 0 : kvg_poison_byte(KVG_BF16), (size_t)p->views.q.elements * 2);
    kvg_rows_place(&p->views.q, p->total_q, problem->q_heads, problem->head_dim, 2, p->q, s->q);
    if (s->q8) {
        memset(s->q8, zero ? 0 : kvg_poison_byte(KVG_E4M3), (size_t)p->views.q8.elements);
        kvg_rows_place(&p->views.q8, p->total_q, problem->q_heads, problem->head_dim, 1, p->q8, s->q8);
    }
    fill_cache(p, s->k_cache, p->views.k_cache.elements, zero);
    if (s->v_cache != s->k_cache)
        fill_cache(p, s->v_cache, p->views.v_cache.elements, zero);
    kvg_cache_place(&p->views.k_cache, &sizes, bytes, p->k_cache, s->k_cache);
    kvg_cache_place(&p->views.v_cache, &sizes, bytes, p->v_cache, s->v_cache);
}

void kvg_shown_fill(struct kvg_prepared *p)
{
    const struct kvg_shown *s = &p->shown;
    if (p->views.dense)
        return;
    if (p->problem.phase == KVG_PHASE_STORE)
        fill_sources(p);
    else
        fill_attention(p, 0);
    const void *const filled[] = {s->q, s->q8, s->k, s->v, s->k_cache, s->v_cache};
    for (size_t i = 0; i < sizeof filled / sizeof filled[0]; i++)
        kvg_guard_seal(p->own->guards, filled[i]);
}

void kvg_shown_fill_gaps(struct kvg_prepared *p, int zero)
{
    if (!p->views.dense && p->problem.phase != KVG_PHASE_STORE)
        fill_attention(p, zero);
}
