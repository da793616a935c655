/* SPDX-License-Identifier: Apache-2.0
 *
 * order.c: three sorts. Cases with equal hashes of the axes that make K and V (and Q) get the index of the
 * first such case; then cases are sorted by these first indices.
 */
#include "order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct position {
    uint64_t tensors, queries;            /* hashes of the axes that make K and V; K, V and Q */
    int64_t tensors_first, queries_first; /* index of the first case with the same hash */
    int64_t index;                        /* of the case, before ordering */
};

/* The axes that make K and V, and at the end the one that Q needs besides. */
static const enum kvg_axis tensor_axes[] = {KVG_AXIS_INPUT,    KVG_AXIS_LAYER,   KVG_AXIS_SEED,
                                            KVG_AXIS_BATCH,    KVG_AXIS_CONTEXT, KVG_AXIS_HEADS,
                                            KVG_AXIS_HEAD_DIM, KVG_AXIS_LENGTHS, KVG_AXIS_Q_LEN};
enum { N_AXES = sizeof tensor_axes / sizeof tensor_axes[0] };

/* Of the first `count` tensor_axes. */
static uint64_t hash_of_axes(const struct kvg_case *c, int count)
{
    char text[KVG_CASE_STRING_MAX] = "";
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        kvg_case_get(c, tensor_axes[i], text + used, sizeof text - used);
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

static void find_groups(struct position *order, int64_t count)
{
    qsort(order, (size_t)count, sizeof *order, by_tensors);
    for (int64_t i = 0; i < count; i++)
        order[i].tensors_first =
            i && order[i].tensors == order[i - 1].tensors ? order[i - 1].tensors_first : order[i].index;
    qsort(order, (size_t)count, sizeof *order, by_queries);
    for (int64_t i = 0; i < count; i++)
        order[i].queries_first =
            i && order[i].queries == order[i - 1].queries ? order[i - 1].queries_first : order[i].index;
}

int kvg_plan_order_cases(struct kvg_case *cases, int64_t count)
{
    struct position *order = calloc((size_t)count, sizeof *order);
    struct kvg_case *before = malloc((size_t)count * sizeof *before);
    int failed = !order || !before;
    if (!failed) {
        memcpy(before, cases, (size_t)count * sizeof *before);
        for (int64_t i = 0; i < count; i++)
            order[i] = (struct position){.tensors = hash_of_axes(&cases[i], N_AXES - 1),
                                         .queries = hash_of_axes(&cases[i], N_AXES),
                                         .index = i};
        find_groups(order, count);
        qsort(order, (size_t)count, sizeof *order, by_group);
        for (int64_t i = 0; i < count; i++)
            cases[i] = before[order[i].index];
    }
    free(order);
    free(before);
    return failed ? -1 : 0;
}
