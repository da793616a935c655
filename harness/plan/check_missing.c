/* SPDX-License-Identifier: Apache-2.0
 *
 * check_missing.c: values that hide faults, as a table: `hides`. A new axis is one line and one function.
 */
#include "check_missing.h"

#include <stdio.h>
#include <string.h>

#include "ask_kernel.h"
#include "kernels/registry.h"

/* Something that hides faults unless a case has it. */
struct hidden {
    const char *words;
    enum kvg_axis axis; /* the axis to change, and the value, to ask whether the kernel takes it */
    const char *value;
    int (*has)(const struct kvg_case *c);
};

static int has_batch(const struct kvg_case *c)
{
    return c->batch > 1;
}
static int has_scales(const struct kvg_case *c)
{
    return c->kv_cache_dtype == KVG_CACHE_AUTO || c->calibration != KVG_CALIBRATION_NONE;
}
static int has_head_scales(const struct kvg_case *c)
{
    return c->kv_cache_dtype == KVG_CACHE_AUTO || c->scheme == KVG_PER_HEAD;
}
static int has_lengths(const struct kvg_case *c)
{
    return c->lengths != KVG_LENGTHS_UNIFORM;
}
static int has_hnd(const struct kvg_case *c)
{
    return c->layout == KVG_HND;
}
static int has_kv_heads(const struct kvg_case *c)
{
    return c->kv_heads > 1;
}
static int has_group(const struct kvg_case *c)
{
    return c->phase == KVG_PHASE_STORE || c->q_heads > c->kv_heads;
}
static int has_queries(const struct kvg_case *c)
{
    return c->phase != KVG_PHASE_DECODE;
}
static int has_part_page(const struct kvg_case *c)
{
    return c->lengths != KVG_LENGTHS_UNIFORM || c->context % c->block_size != 0;
}
static int has_small_pages(const struct kvg_case *c)
{
    return c->block_size % 8 != 0;
}
static int has_shared_pages(const struct kvg_case *c)
{
    return c->phase == KVG_PHASE_STORE || c->shared_pages > 0;
}
static int has_mixed(const struct kvg_case *c)
{
    return c->phase == KVG_PHASE_STORE || c->lengths == KVG_LENGTHS_LIST;
}
static int has_window(const struct kvg_case *c)
{
    return c->phase == KVG_PHASE_STORE || c->window > 0;
}
static int has_cap(const struct kvg_case *c)
{
    return c->phase == KVG_PHASE_STORE || c->soft_cap > 0;
}
static int has_softmax_scale(const struct kvg_case *c)
{
    return c->phase == KVG_PHASE_STORE || c->softmax_scale > 0;
}
static int has_sinks(const struct kvg_case *c)
{
    return c->phase == KVG_PHASE_STORE || c->sinks != KVG_SINKS_OFF;
}
static int has_views(const struct kvg_case *c)
{
    return c->views != KVG_VIEWS_DENSE;
}
static int has_full_mask(const struct kvg_case *c)
{
    return c->phase == KVG_PHASE_STORE || c->phase == KVG_PHASE_DECODE || c->mask == KVG_MASK_FULL;
}
static int has_chunks(const struct kvg_case *c)
{
    return c->phase == KVG_PHASE_STORE || c->mask == KVG_MASK_CHUNKED;
}
static int has_prefix(const struct kvg_case *c)
{
    /* in decode the prefix mask is the causal one */
    return c->phase == KVG_PHASE_STORE || (c->mask == KVG_MASK_PREFIX && c->phase != KVG_PHASE_DECODE);
}

static const struct hidden hides[] = {
    {"batch above 1", KVG_AXIS_BATCH, "2", has_batch},
    {"scales other than 1", KVG_AXIS_CALIBRATION, "random_tokens", has_scales},
    {"per-head scales", KVG_AXIS_SCHEME, "per_head", has_head_scales},
    {"ragged lengths", KVG_AXIS_LENGTHS, "ragged", has_lengths},
    {"partial pages", KVG_AXIS_CONTEXT, "201", has_part_page},
    {"several KV heads", KVG_AXIS_HEADS, "8/2", has_kv_heads},
    {"grouped heads", KVG_AXIS_HEADS, "8/2", has_group},
    {"append, prefill", KVG_AXIS_PHASE, "append", has_queries},
    {"HND", KVG_AXIS_LAYOUT, "HND", has_hnd},
    {"other strides", KVG_AXIS_VIEWS, "padded", has_views},
    {"windows", KVG_AXIS_WINDOW, "17", has_window},
    {"soft caps", KVG_AXIS_SOFT_CAP, "2", has_cap},
    {"softmax scales", KVG_AXIS_SOFTMAX_SCALE, "0.04", has_softmax_scale},
    {"full masks", KVG_AXIS_MASK, "full", has_full_mask},
    {"pages of any size", KVG_AXIS_BLOCK_SIZE, "5", has_small_pages},
    {"shared pages", KVG_AXIS_SHARED_PAGES, "1", has_shared_pages},
    {"mixed batches", KVG_AXIS_LENGTHS, "1x65+17x65", has_mixed},
    {"chunked masks", KVG_AXIS_MASK, "chunked:24", has_chunks},
    {"prefix masks", KVG_AXIS_MASK, "prefix", has_prefix},
    {"attention sinks", KVG_AXIS_SINKS, "normal", has_sinks},
};

/* 1 if the kernel would take the first case with the axis changed. */
static int would_take(struct kvg_asker *asker, const struct kvg_kernel *kernel, const struct kvg_case *first,
                      const struct hidden *h)
{
    struct kvg_problem problem;
    struct kvg_error error;
    struct kvg_case c = *first;
    char why[256];
    if (h->axis == KVG_AXIS_PHASE && c.phase != KVG_PHASE_DECODE)
        return 0;
    if (h->axis == KVG_AXIS_PHASE || c.phase != KVG_PHASE_APPEND)
        c.q_len = 0; /* follows from the phase */
    if (kvg_case_set(&c, h->axis, h->value, &error) || kvg_case_complete(&c, &error) ||
        kvg_case_without_meaning(&c, why, sizeof why) || !h->has(&c))
        return 0;
    kvg_case_problem(&c, &problem);
    return kvg_asker_ask(asker, kernel, &problem, why, sizeof why);
}

static int has_any(const struct hidden *h, const struct kvg_case *cases, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (h->has(&cases[i]))
            return 1;
    return 0;
}

int kvg_check_missing(const char *kernel, const struct kvg_case *cases, int64_t count, char *text,
                      size_t size, struct kvg_error *error)
{
    static const char rest[] = ", and 99 more";
    const struct kvg_kernel *k = kvg_registry_find(kernel);
    int unnamed = 0;
    text[0] = '\0';
    if (!k || count < 1)
        return 0;
    struct kvg_asker *asker = kvg_asker_new();
    if (!asker)
        return kvg_fail(error, KVG_EXIT_TROUBLE, "out of memory");
    for (size_t i = 0; i < sizeof hides / sizeof hides[0]; i++) {
        const size_t used = strlen(text);
        if (has_any(&hides[i], cases, count) || !would_take(asker, k, &cases[0], &hides[i]))
            continue;
        if (unnamed || used + strlen(hides[i].words) + 2 + sizeof rest > size)
            unnamed++;
        else
            snprintf(text + used, size - used, "%s%s", used ? ", " : "", hides[i].words);
    }
    const size_t used = strlen(text);
    if (unnamed)
        snprintf(text + used, size - used, ", and %d more", unnamed);
    kvg_asker_free(asker);
    return 0;
}
