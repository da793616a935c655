/* SPDX-License-Identifier: Apache-2.0
 *
 * edge.c: buffers between pages without access, and the handler of SIGSEGV that names them.
 */
#include "edge.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GUARD ((size_t)65536) /* bytes without access on each side; a multiple of every page size in use */

void *kvg_edges_add(struct kvg_edges *edges, const char *name, enum kvg_edge which, const void *from,
                    int64_t bytes)
{
    if (edges->count == KVG_EDGES_MOST || bytes < 1)
        return NULL;
    struct kvg_edge_buffer *b = &edges->list[edges->count];
    const size_t inner = ((size_t)bytes + GUARD - 1) / GUARD * GUARD;
    *b = (struct kvg_edge_buffer){.name = name, .bytes = bytes, .mapping_bytes = inner + 2 * GUARD};
    b->mapping = mmap(NULL, b->mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (b->mapping == MAP_FAILED)
        return NULL;
    if (mprotect(b->mapping + GUARD, inner, PROT_READ | PROT_WRITE)) {
        munmap(b->mapping, b->mapping_bytes);
        return NULL;
    }
    b->data = b->mapping + GUARD + (which == KVG_EDGE_END ? inner - (size_t)bytes : 0);
    memcpy(b->data, from, (size_t)bytes);
    edges->count++;
    return b->data;
}

void kvg_edges_free(struct kvg_edges *edges)
{
    for (int i = 0; i < edges->count; i++)
        munmap(edges->list[i].mapping, edges->list[i].mapping_bytes);
    edges->count = 0;
}

/* ---------------------------------------------------------------- text without stdio, for a signal
 * handler */

static size_t put(char *text, size_t size, size_t used, const char *word)
{
    while (*word && used + 1 < size)
        text[used++] = *word++;
    text[used] = '\0';
    return used;
}

static size_t put_number(char *text, size_t size, size_t used, uint64_t number)
{
    char digits[24];
    int at = sizeof digits - 1;
    digits[at] = '\0';
    do
        digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    return put(text, size, used, digits + at);
}

size_t kvg_edges_describe(const struct kvg_edges *edges, const void *address, char *text, size_t size)
{
    const unsigned char *at = address;
    for (int i = 0; i < edges->count; i++) {
        const struct kvg_edge_buffer *b = &edges->list[i];
        if (at < b->mapping || at >= b->mapping + b->mapping_bytes)
            continue;
        const int before = at < b->data;
        const uint64_t distance =
            before ? (uint64_t)(b->data - at) : (uint64_t)(at - b->data) - (uint64_t)b->bytes;
        size_t used = put(text, size, 0, b->name);
        used = put(text, size, used, " (");
        used = put_number(text, size, used, (uint64_t)b->bytes);
        used = put(text, size, used, " bytes) was read or written ");
        used = put_number(text, size, used, distance);
        return put(text, size, used, before ? " bytes before its start" : " bytes past its end");
    }
    return 0;
}

/* ---------------------------------------------------------------- the handler */

/* A signal handler gets no context of its caller, so the list that is watched must be global. */
static const struct kvg_edges *watched;
static struct sigaction before;

static void tell(int signal, siginfo_t *info, void *context)
{
    char text[200];
    (void)context;
    size_t used = kvg_edges_describe(watched, info->si_addr, text, sizeof text - 1);
    if (used > 0) {
        text[used++] = '\n';
        /* if stderr is closed, the row says SIGSEGV alone */
        const ssize_t ignored = write(STDERR_FILENO, text, used);
        (void)ignored;
    }
    sigaction(signal, &before, NULL); /* the access is repeated on return, and ends the process */
}

void kvg_edges_watch(const struct kvg_edges *edges)
{
    struct sigaction action = {.sa_sigaction = tell, .sa_flags = SA_SIGINFO};
    watched = edges;
    sigaction(SIGSEGV, &action, &before);
}

void kvg_edges_unwatch(void)
{
    sigaction(SIGSEGV, &before, NULL);
    watched = NULL;
}
