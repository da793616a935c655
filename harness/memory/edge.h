/* SPDX-License-Identifier: Apache-2.0
 *
 * edge.h: host buffers one end of which touches memory without access.
 *
 * guard.h detects writes outside a buffer. A read outside shows only if its value is used. Here the byte
 * after the end of a buffer (or before its start) lies in a page that cannot be read, so that such a read
 * ends the process with SIGSEGV. Before it ends, kvg_edges_watch writes one line to stderr: which buffer, and
 * on which side.
 */
#ifndef KVG_HARNESS_MEMORY_EDGE_H
#define KVG_HARNESS_MEMORY_EDGE_H

#include <stddef.h>
#include <stdint.h>

enum kvg_edge { KVG_EDGE_END = 0, KVG_EDGE_START };
enum { KVG_EDGES_MOST = 16 };

/* Buffers with an edge. All zeros at first. */
struct kvg_edges {
    struct kvg_edge_buffer {
        const char *name; /* borrowed */
        unsigned char *mapping, *data;
        size_t mapping_bytes;
        int64_t bytes;
    } list[KVG_EDGES_MOST];
    int count;
};

/* A buffer of `bytes` bytes (> 0) with the content `from`. KVG_EDGE_END: its last byte is followed by memory
 * without access; its start is then aligned as well as `bytes` allows. KVG_EDGE_START: its first byte, which
 * is aligned to a page, follows such memory. NULL when the system has no memory for it or the list is
 * full. */
void *kvg_edges_add(struct kvg_edges *edges, const char *name, enum kvg_edge which, const void *from,
                    int64_t bytes);
void kvg_edges_free(struct kvg_edges *edges);

/* Until kvg_edges_unwatch: if a thread of this process accesses the memory beside one of the buffers, a line
 * on stderr names it, and the process ends by SIGSEGV as without this call. One list at a time. */
void kvg_edges_watch(const struct kvg_edges *edges);
void kvg_edges_unwatch(void);

/* Fills text with "NAME (BYTES bytes) was read or written N bytes past its end" for an address beside one of
 * the buffers. Returns its length; 0 if the address belongs to none. Safe in a signal handler. */
size_t kvg_edges_describe(const struct kvg_edges *edges, const void *address, char *text, size_t size);

#endif
