/* SPDX-License-Identifier: Apache-2.0
 *
 * frame.c: messages of a header and a text over a stream socket.
 */
#include "frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int send_all(int socket, const void *from, size_t size)
{
    for (const char *at = from; size > 0;) {
        const ssize_t n = send(socket, at, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

int kvg_frame_send(int socket, const struct kvg_frame *about, const char *text)
{
    struct kvg_frame frame = *about;
    frame.magic = KVG_FRAME_MAGIC;
    frame.length = strlen(text);
    return send_all(socket, &frame, sizeof frame) || send_all(socket, text, frame.length) ? -1 : 0;
}

static int read_all(int socket, void *to, size_t size)
{
    for (char *at = to; size > 0;) {
        const ssize_t n = read(socket, at, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

int kvg_frame_read(int socket, struct kvg_frame *frame, char **text)
{
    *text = NULL;
    if (read_all(socket, frame, sizeof *frame) || frame->magic != KVG_FRAME_MAGIC ||
        frame->length > KVG_FRAME_MOST)
        return -1;
    *text = malloc(frame->length + 1);
    if (!*text || read_all(socket, *text, frame->length)) {
        free(*text);
        *text = NULL;
        return -1;
    }
    (*text)[frame->length] = '\0';
    return 0;
}

int kvg_frame_find(const char *bytes, size_t used, struct kvg_frame *frame)
{
    const uint64_t magic = KVG_FRAME_MAGIC;
    if (memcmp(bytes, &magic, used < sizeof magic ? used : sizeof magic) != 0)
        return -1;
    if (used < sizeof *frame)
        return 0;
    memcpy(frame, bytes, sizeof *frame);
    if (frame->length > KVG_FRAME_MOST)
        return -1;
    return used - sizeof *frame >= frame->length;
}
