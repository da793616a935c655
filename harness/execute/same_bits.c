/* SPDX-License-Identifier: Apache-2.0
 *
 * same_bits.c: the column same_bits.
 */
#include "same_bits.h"

#include <stdio.h>
#include <string.h>

const char *kvg_rearrangement_name(enum kvg_rearrangement which)
{
    switch (which) {
    case KVG_MOVE_PAGES:
        return "pages";
    case KVG_MOVE_HEADS:
        return "heads";
    case KVG_MOVE_SEQUENCES:
        return "sequences";
    case KVG_MOVE_WORK:
        return "threads";
    case KVG_MOVE_COMPANY:
        return "batch";
    case KVG_MOVE_CHUNKS:
        return "chunks";
    }
    return "?";
}

void kvg_same_bits_note(struct kvg_execution *x, enum kvg_rearrangement which, int declared, int same)
{
    char word[40], text[200];
    const char *name = kvg_rearrangement_name(which);
    snprintf(word, sizeof word, "%s=", name);
    if (strstr(x->row->same_bits,
               word)) /* several runs of a kind: the first is told, unless a later differs */
        return;
    snprintf(text, sizeof text, "%.120s%s%s%s", x->row->same_bits, x->row->same_bits[0] ? " " : "", word,
             !same      ? "differ"
             : declared ? "held"
                        : "same");
    kvg_row_set_string(&x->row->same_bits, text);
}
