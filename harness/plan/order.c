/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_order.c: put cases that share tensors next to each other, so that what was generated for one serves
 * the next.
 */
#include "order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct position {
    uint64_t tensors, queries; /* hashes of what cases share: K and V; K, V and Q */
    int64_t tensors_first, queries_first, index;
};

static uint64_t hash_of_axes(const struct kvg_case *c, const enum kvg_axis *axes, int count)
{
    char text[KVG_CASE_STRING_MAX] = "";
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        kvg_case_get(c, axes[i], text + used, sizeof text - used);
        used += strlen(text + used);
        used += (size_t)snprintf(text + used, sizeof text - used, " ");
    }
    return kvg_fnv1a(text);
}

#define COMPARE(a, b, field)                                                                                 \
    if ((a)->field != (b)->field)                                                                            \
    return (a)->field < (b)->field ? -1 : 1

static int by_tensors(const void *x, const void *y)
{
    const struct position *a = x, *b = y;
    COMPARE(a, b, tensors);
    COMPARE(a, b, index);
    return 0;
}

static int by_queries(const void *x, const void *y)
{
    const struct position *a = x, *b = y;
    COMPARE(a, b, queries);
    COMPARE(a, b, index);
    return 0;
}

static int by_group(const void *x, const void *y)
{
    const struct position *a = x, *b = y;
    COMPARE(a, b, tensors_first);
    COMPARE(a, b, queries_first);
    COMPARE(a, b, index);
    return 0;
}

int kvg_plan_group(struct kvg_plan *plan)
{
    static const enum kvg_axis axes[] = {KVG_AXIS_INPUT,    KVG_AXIS_LAYER,   KVG_AXIS_SEED,
                                         KVG_AXIS_BATCH,    KVG_AXIS_CONTEXT, KVG_AXIS_HEADS,
                                         KVG_AXIS_HEAD_DIM, KVG_AXIS_LENGTHS, KVG_AXIS_Q_LEN};
    int n_axes = (int)(sizeof axes / sizeof axes[0]);
    int64_t count = plan->count;
    struct position *order = calloc((size_t)count, sizeof *order);
    struct kvg_case *sorted = malloc((size_t)count * sizeof *sorted);
    if (!order || !sorted) {
        free(order);
        free(sorted);
        return -1;
    }
    for (int64_t i = 0; i < count; i++) {
        order[i].tensors = hash_of_axes(&plan->cases[i], axes, n_axes - 1);
        order[i].queries = hash_of_axes(&plan->cases[i], axes, n_axes);
        order[i].index = i;
    }
    qsort(order, (size_t)count, sizeof *order, by_tensors);
    for (int64_t i = 0; i < count; i++)
        order[i].tensors_first =
            i && order[i].tensors == order[i - 1].tensors ? order[i - 1].tensors_first : order[i].index;
    qsort(order, (size_t)count, sizeof *order, by_queries);
    for (int64_t i = 0; i < count; i++)
        order[i].queries_first =
            i && order[i].queries == order[i - 1].queries ? order[i - 1].queries_first : order[i].index;
    qsort(order, (size_t)count, sizeof *order, by_group);
    for (int64_t i = 0; i < count; i++)
        sorted[i] = plan->cases[order[i].index];
    free(order);
    free(plan->cases);
    plan->cases = sorted;
    return 0;
}
