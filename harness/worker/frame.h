/* SPDX-License-Identifier: Apache-2.0
 *
 * frame.h: the messages between a run and its worker.
 *
 * A message is a header and `length` bytes of text. The header says which case of which question it belongs to, so
 * that an answer cannot be taken for that of another question, and bytes that a kernel writes on the socket by
 * accident are no message.
 */
#ifndef KVG_HARNESS_FRAME_H
#define KVG_HARNESS_FRAME_H

#include <stddef.h>
#include <stdint.h>

struct kvg_frame {
    uint64_t magic;    /* KVG_FRAME_MAGIC */
    uint64_t type;     /* a letter of child.c */
    uint64_t sequence; /* number of the question; its answers have the same */
    uint64_t subject;  /* kvg_fnv1a of the text of the question */
    uint64_t length;   /* bytes of text; at most KVG_FRAME_MOST */
};
#define KVG_FRAME_MAGIC UINT64_C(0x314d5246f5a76bd1) /* two bytes that no UTF-8 text holds in this order */
#define KVG_FRAME_MOST (UINT64_C(1) << 30)

/* Sends one message. 0, or -1. */
int kvg_frame_send(int socket, const struct kvg_frame *about, const char *text);
/* Waits for one message. The text ends with '\0' and is freed by the caller. 0, or -1: the other side has ended, or what
 * came is no message. */
int kvg_frame_read(int socket, struct kvg_frame *frame, char **text);
/* Looks for one message at the start of `used` received bytes. 1: *frame is its header, and all of it is there; 0: it is
 * not complete; -1: the bytes are no message. */
int kvg_frame_find(const char *bytes, size_t used, struct kvg_frame *frame);

#endif
