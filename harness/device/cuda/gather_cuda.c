/* SPDX-License-Identifier: Apache-2.0
 *
 * gather_cuda.c: the gather roof of a case: the highest rate at which kernels that only read can read the K
 * and V of the keys that the case's queries see.
 *
 * The host follows the block table and lists runs (harness/device/gather_runs.h), one 64-bit word each. The
 * list replaces the block table: a kernel waits for one word before it reads a run, as an attention kernel
 * waits for an entry of the table. The bytes of the list (0.03 to 0.2 % in usual shapes) are not counted.
 * Either a block reads runs of up to 16 KB of K and of V, or a warp reads runs of up to 2 KB. Which of the
 * two and which grid size is fastest depends on the shape, so all combinations are tried, each with cold
 * caches.
 */
#include "gpu.h"

#include "harness/device/gather_runs.h"

#include <math.h>
#include <stdlib.h>

enum { FIRST_PASSES = 2, MORE_PASSES = 5 };

struct gather_pass {
    struct kvg_gpu_runs runs;
    int64_t blocks;
};

static cudaError_t launch(struct kvg_gpu *g, void *context)
{
    const struct gather_pass *p = context;
    return kvg_launch_gather(&p->runs, p->blocks, g->word + 4, g->stream);
}

/* Lowers *best to the shortest time of `passes` cold passes. 1 if it was lowered, 0 if not, -1 when the
 * device failed. */
static int try_passes(struct kvg_gpu *g, struct gather_pass *p, int passes, double *best)
{
    int better = 0;
    for (int i = 0; i < passes; i++) {
        const double t = kvg_gpu_time(g, 1, launch, p);
        if (isnan(t))
            return -1;
        if (t > 0 && t < *best) {
            *best = t;
            better = 1;
        }
    }
    return better;
}

static double shortest(struct kvg_gpu *g, const struct kvg_gpu_runs kinds[2])
{
    static const int grids[] = {2, 4, 8, 16,
                                0}; /* blocks per multiprocessor; 0: one block for each piece of work */
    struct gather_pass best_pass = {.runs = kinds[0]};
    double best = INFINITY;
    for (int kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < sizeof grids / sizeof grids[0]; i++) {
            struct gather_pass p = {.runs = kinds[kind], .blocks = (int64_t)grids[i] * g->multiprocessors};
            const int better = try_passes(g, &p, FIRST_PASSES, &best);
            if (better < 0)
                return NAN;
            if (better)
                best_pass = p;
        }
    return try_passes(g, &best_pass, MORE_PASSES, &best) < 0 ? NAN : best;
}

/* Uploads the runs of at most `longest` units. The caller releases list->data. */
static int make_runs(struct kvg_gpu *g, const struct kvg_gather_shape *shape, int64_t longest,
                     struct kvg_gpu_scratch *list, int64_t *count)
{
    *count = kvg_gather_runs(shape, longest, NULL);
    const int64_t bytes = *count * (int64_t)sizeof(uint64_t);
    uint64_t *runs = malloc((size_t)bytes);
    if (!runs)
        return kvg_gpu_refuse(g, "gather roof: out of host memory for %lld runs", (long long)*count);
    (void)kvg_gather_runs(shape, longest, runs);
    const int failed =
        kvg_gpu_reserve_scratch(g, list, bytes) || kvg_gpu_upload(&g->device, list->data, runs, bytes);
    free(runs);
    return failed ? -1 : 0;
}

/* Seconds of the best pass, or NaN. */
static double measure(struct kvg_gpu *g, const struct kvg_gather_shape *shape, const void *k, const void *v)
{
    static const int64_t longest[2] = {KVG_GPU_RUN_NARROW, KVG_GPU_RUN_WIDE};
    struct kvg_gpu_scratch lists[2] = {{NULL, 0}, {NULL, 0}};
    struct kvg_gpu_runs kinds[2];
    int failed = 0;
    for (int wide = 0; wide < 2 && !failed; wide++) {
        kinds[wide] = (struct kvg_gpu_runs){.k = k, .v = v, .unit = shape->unit, .wide = wide};
        failed = make_runs(g, shape, longest[wide], &lists[wide], &kinds[wide].count);
        kinds[wide].runs = lists[wide].data;
    }
    const double seconds = failed ? NAN : shortest(g, kinds);
    for (int wide = 0; wide < 2; wide++)
        kvg_gpu_release(&g->device, lists[wide].data);
    return seconds;
}

static int same_strides(const struct kvg_pages *a, const struct kvg_pages *b)
{
    return a->stride_block == b->stride_block && a->stride_slot == b->stride_slot &&
           a->stride_head == b->stride_head;
}

double kvg_gpu_gather_roof(struct kvg_device *d, const struct kvg_device_gather *gather)
{
    struct kvg_gpu *g = kvg_gpu_of(d);
    const struct kvg_attention_args *a = gather->args;
    const int64_t table_bytes = a->problem->batch * a->block_table_stride * (int64_t)sizeof(int32_t);
    struct kvg_gather_shape shape = {.problem = a->problem,
                                     .pages = &a->k_cache,
                                     .block_table_stride = a->block_table_stride,
                                     .seq_lens = gather->seq_lens,
                                     .first_key = gather->first_key,
                                     .unit = kvg_gather_unit(a->problem, &a->k_cache, &a->v_cache)};
    const int64_t bytes = kvg_gather_bytes(&shape);
    double roof = NAN;
    if (!bytes) {
        (void)kvg_gpu_refuse(g, "gather roof: no query sees a key");
        return NAN;
    }
    if (!same_strides(&a->k_cache, &a->v_cache)) {
        (void)kvg_gpu_refuse(g, "gather roof: K and V have different strides");
        return NAN;
    }
    int32_t *table = malloc((size_t)table_bytes);
    if (!table) {
        (void)kvg_gpu_refuse(g, "gather roof: out of host memory for the block table");
        return NAN;
    }
    shape.block_table = table;
    if (!kvg_gpu_download(d, table, a->block_table, table_bytes))
        roof = (double)bytes / measure(g, &shape, a->k_cache.data, a->v_cache.data);
    free(table);
    return roof;
}
