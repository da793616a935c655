/* SPDX-License-Identifier: Apache-2.0
 *
 * far.c: runs attention on pages that begin 2^32 elements after the start of the cache.
 *
 * For these pages, page number times stride needs more than 32 bits, as element and as byte offset, and more
 * than the significand of a float. The page numbers need more than 16 bits, however large a page is. On the
 * host the cache is sparse: the address space before the pages takes no memory.
 */
#include "far.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "buffers.h"
#include "call.h"
#include "explain.h"
#include "session_state.h"
#include "verdict.h"

#define FAR_ELEMENTS (INT64_C(1) << 32)
#define FAR_PAGES (INT64_C(1) << 16)

static int map_far_cache(struct kvg_far_cache *far, int t)
{
    void *mapping = mmap(NULL, far->mapping_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    far->mapping[t] = mapping == MAP_FAILED ? NULL : mapping;
    return far->mapping[t] ? 0 : -1;
}

/* Allocates one cache on the device, without kvg_device_memory_alloc: most of the buffer is never touched,
 * and its guards would be far from every write. -1 if the device has no room for both caches. */
static int allocate_far_cache(struct kvg_execution *x, struct kvg_far_cache *far, int t)
{
    int64_t available, total, left = (2 - t) * (int64_t)far->mapping_bytes;
    if (x->site.device->ops->memory(x->site.device, &available, &total) || available < left + (left >> 3))
        return -1;
    far->mapping[t] = x->site.device->ops->allocate(x->site.device, (int64_t)far->mapping_bytes);
    return far->mapping[t] ? 0 : -1;
}

int kvg_far_cache_make(struct kvg_execution *x, struct kvg_far_cache *far)
{
    const struct kvg_prepared *p = &x->prepared;
    const int64_t stride = p->k_pages.stride_block, bytes = kvg_dtype_bytes(p->problem.kv_dtype);
    memset(far, 0, sizeof *far);
    far->first_block = (FAR_ELEMENTS + stride - 1) / stride;
    if (far->first_block < FAR_PAGES)
        far->first_block = FAR_PAGES;
    far->bytes = p->cache_elements * bytes;
    far->mapping_bytes = (size_t)((far->first_block * stride + p->cache_elements) * bytes);
    if (p->frame || far->first_block + p->num_blocks > INT32_MAX || p->v_pages.stride_block != stride)
        return -1;
    for (int t = 0; t < 2; t++) {
        if (x->site.device ? allocate_far_cache(x, far, t) : map_far_cache(far, t)) {
            kvg_far_cache_free(x, far); /* not enough address space or memory */
            return -1;
        }
        far->pages[t] = t == 0 ? p->k_pages : p->v_pages;
        far->pages[t].data = far->mapping[t];
        far->filled[t] = (char *)far->mapping[t] + far->first_block * stride * bytes;
    }
    return 0;
}

void kvg_far_cache_free(struct kvg_execution *x, struct kvg_far_cache *far)
{
    for (int t = 0; t < 2; t++)
        if (far->mapping[t] && x->site.device)
            x->site.device->ops->release(x->site.device, far->mapping[t]);
        else if (far->mapping[t])
            munmap(far->mapping[t], far->mapping_bytes);
    memset(far, 0, sizeof *far);
}

/* The block table with first_block added to every page, in memory that the kernel reads. NULL with the
 * verdict. */
static int32_t *far_table(struct kvg_execution *x, int64_t first_block)
{
    const struct kvg_prepared *p = &x->prepared;
    const int64_t entries = p->problem.batch * p->block_table_stride;
    int32_t *table = malloc((size_t)entries * sizeof *table), *seen = NULL;
    if (!table) {
        kvg_verdict(x, KVG_OUT_OF_MEMORY, "no memory for a block table");
        return NULL;
    }
    for (int64_t i = 0; i < entries; i++)
        table[i] = (int32_t)(p->block_table[i] + first_block);
    seen = kvg_buffer_alloc(x, "block_table of far pages", entries * (int64_t)sizeof *table);
    if (seen && kvg_buffer_send(x, seen, table, entries * (int64_t)sizeof *table))
        seen = NULL;
    free(table);
    return seen;
}

static int run_on(struct kvg_execution *x, struct kvg_attention_args args, const struct kvg_expectation *e,
                  const struct kvg_far_cache *far)
{
    const struct kvg_prepared *p = &x->prepared;
    int32_t *table = far_table(x, far->first_block);
    if (!table || kvg_buffer_send(x, far->filled[0], p->k_cache, far->bytes) ||
        kvg_buffer_send(x, far->filled[1], p->v_cache, far->bytes))
        return -1;
    args.k_cache = far->pages[0];
    args.v_cache = far->pages[1];
    args.block_table = table;
    args.num_blocks += far->first_block;
    return kvg_call_attention(x, &args) ||
                   kvg_output_hold(x, &args, e, KVG_RUN_FAR,
                                   "in pages far into the cache (beyond 2^32 elements)", NULL)
               ? -1
               : 0;
}

int kvg_attention_far(struct kvg_execution *x, const struct kvg_attention_args *args,
                      const struct kvg_expectation *e)
{
    struct kvg_far_cache far;
    if (kvg_far_cache_make(x, &far))
        return 0;
    kvg_session_tell(x, KVG_RUN_FAR);
    int failed = run_on(x, *args, e, &far);
    kvg_session_tell(x, KVG_RUN_FIRST);
    kvg_far_cache_free(x, &far);
    return failed;
}
