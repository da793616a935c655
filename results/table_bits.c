/* SPDX-License-Identifier: Apache-2.0
 *
 * table_bits.c: which kernels give a sequence the same bits in every batch, and with its query rows in
 * chunks.
 */
#include <string.h>
#include "table_parts.h"

/* Value of a kind in the column same_bits ("pages=held batch=differ ..."), 0 if the row has none: 1 the same
 * bits, 2 other bits. */
static int bits_of(const struct kvg_row *row, const char *kind)
{
    const size_t length = strlen(kind);
    for (const char *at = row->same_bits; at; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, kind, length) == 0 && at[length] == '=')
            return strncmp(at + length + 1, "differ", 6) == 0 || strncmp(at + length + 1, "broken", 6) == 0
                       ? 2
                       : 1;
    }
    return 0;
}

/* The largest value over the rows of a kernel; 0 as well if row i is not the first of its kernel. */
static int bits_of_kernel(const struct kvg_results *results, int64_t i, const char *kind)
{
    int worst = 0;
    for (int64_t j = 0; j < results->count; j++) {
        const struct kvg_row *row = &results->rows[j];
        if (strcmp(row->kernel, results->rows[i].kernel) != 0)
            continue;
        if (j < i)
            return 0;
        const int bits = bits_of(row, kind);
        worst = bits > worst ? bits : worst;
    }
    return worst;
}

/* Lists the kernels with this value. Returns their number. */
static int list_kernels(const struct kvg_results *results, const char *kind, int value, char *text,
                        size_t size)
{
    int count = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int64_t i = 0; i < results->count; i++) {
        if (bits_of_kernel(results, i, kind) != value)
            continue;
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", count++ ? ", " : "", results->rows[i].kernel);
        if (used >= size) {
            memcpy(text + size - 4, "...", 4);
            break;
        }
    }
    return count;
}

static void say(struct kvg_table *t, const char *kind, const char *same, const char *other)
{
    char text[400];
    if (list_kernels(t->results, kind, 1, text, sizeof text))
        kvg_table_say(t, "%s: %s.", same, text);
    if (list_kernels(t->results, kind, 2, text, sizeof text))
        kvg_table_say(t, "%s: %s.", other, text);
}

void kvg_table_bits(struct kvg_table *t)
{
    say(t, "batch", "The same bits for a sequence alone and among others (column same_bits)",
        "The bits of a sequence depend on the other sequences of the batch");
    say(t, "chunks", "The same bits for query rows in one call and in two",
        "The bits of a query row depend on the other query rows of its sequence in the call");
}
