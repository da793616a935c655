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

void kvg_same_bits_note(struct kvg_row *row, enum kvg_rearrangement which, int declared, int same)
{
    const char *value = same ? (declared ? "held" : "same") : declared ? "broken" : "differ";
    char key[16], text[200];
    snprintf(key, sizeof key, "%s=", kvg_rearrangement_name(which));
    const char *old = strstr(row->same_bits, key);
    if (old && same) /* a run of this kind was noted before; if its bits differed, that stays */
        return;
    const int before = old ? (int)(old - row->same_bits) : (int)strlen(row->same_bits);
    const char *after = old ? old + strcspn(old, " ") : "";
    snprintf(text, sizeof text, "%.*s%s%s%s%s", before, row->same_bits, old || before == 0 ? "" : " ", key,
             value, after);
    kvg_row_set_string(&row->same_bits, text);
}
