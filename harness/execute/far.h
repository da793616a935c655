/* SPDX-License-Identifier: Apache-2.0
 *
 * far.h: runs on pages that begin 2^32 elements after the start of the cache.
 */
#ifndef KVG_HARNESS_EXECUTE_FAR_H
#define KVG_HARNESS_EXECUTE_FAR_H

#include "execution.h"
#include "harness/verify/verify.h"

/* Caches whose page numbers are so high that number times stride needs more than 32 bits. On the host only
 * the last cache_elements take memory, and the rest is address space. On a device all of it takes memory. */
struct kvg_far_cache {
    void *mapping[2]; /* K and V: mappings on the host, or buffers of the device; [mapping_bytes] each */
    size_t mapping_bytes;
    int64_t first_block; /* added to every block number */
    struct kvg_pages pages[2];
    void *filled[2]; /* first byte of block first_block */
    int64_t bytes;   /* of each cache, from that block on */
};
/* 0, or -1 if there is no room for such caches; then there is nothing to free. */
int kvg_far_cache_make(struct kvg_execution *x, struct kvg_far_cache *far);
void kvg_far_cache_free(struct kvg_execution *x, struct kvg_far_cache *far);

/* The same attention in far pages. Called only after a run with changed pages was right: for a kernel that
 * keeps its page table, the message would be misleading. -1 with the verdict. */
int kvg_attention_far(struct kvg_execution *x, const struct kvg_attention_args *args,
                      const struct kvg_expectation *e);

#endif
