/* SPDX-License-Identifier: Apache-2.0
 *
 * far.h: runs in pages that lie 2^32 elements into the cache.
 */
#ifndef KVG_HARNESS_EXECUTE_FAR_H
#define KVG_HARNESS_EXECUTE_FAR_H

#include "execution.h"
#include "harness/verify/verify.h"

/* Caches whose page numbers start so high that number times stride needs more than 32 bits. On the host only
 * the last cache_elements take memory and the rest is address space; on a device all of it takes memory. */
struct kvg_far_cache {
    void *mapping[2]; /* of K and V, or the device's buffers */
    size_t mapping_bytes;
    int64_t first_block; /* added to every block number */
    struct kvg_pages pages[2];
    void *filled[2]; /* first byte of block first_block */
    int64_t bytes;   /* of each cache from there on */
};
/* 0, or -1 where there is no room for such caches (nothing to free then). */
int kvg_far_cache_make(struct kvg_execution *x, struct kvg_far_cache *far);
void kvg_far_cache_free(struct kvg_execution *x, struct kvg_far_cache *far);

/* The same attention in far pages. For a kernel that followed changed pages: the message would mislead for
 * one that does not. -1 with the verdict. */
int kvg_attention_far(struct kvg_execution *x, const struct kvg_attention_args *args,
                      const struct kvg_expectation *e);

#endif
