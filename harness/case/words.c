/* SPDX-License-Identifier: Apache-2.0
 *
 * words.c: edit distance by dynamic programming, with three rows in memory.
 */
#include "words.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define LONGEST 127

static int folded(char c)
{
    return c == '_' ? '-' : tolower((unsigned char)c);
}

static int min_of(int a, int b)
{
    return a < b ? a : b;
}

static int capped_length(const char *word)
{
    return (int)strnlen(word, LONGEST);
}

int kvg_word_distance(const char *a, const char *b)
{
    int la = capped_length(a), lb = capped_length(b);
    int rows[3][LONGEST + 1];
    int *before = rows[0], *last = rows[1], *now = rows[2];
    for (int j = 0; j <= lb; j++)
        last[j] = j;
    for (int i = 1; i <= la; i++) {
        now[0] = i;
        for (int j = 1; j <= lb; j++) {
            int replace = last[j - 1] + (folded(a[i - 1]) != folded(b[j - 1]));
            now[j] = min_of(replace, min_of(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) &&
                folded(a[i - 2]) == folded(b[j - 1]))
                now[j] = min_of(now[j], before[j - 2] + 1);
        }
        int *recycled = before;
        before = last;
        last = now;
        now = recycled;
    }
    return last[lb];
}

const char *kvg_word_nearest(const char *word, const char *const *candidates, int64_t count)
{
    const char *best = NULL;
    int best_distance = 0;
    for (int64_t i = 0; i < count; i++) {
        int distance = kvg_word_distance(word, candidates[i]);
        int longer = capped_length(word), other = capped_length(candidates[i]);
        if (other > longer)
            longer = other;
        if (distance > (longer < 6 ? 2 : longer / 3) || distance >= longer)
            continue;
        if (!best || distance < best_distance) {
            best = candidates[i];
            best_distance = distance;
        }
    }
    return best;
}

void kvg_word_hint(const char *word, const char *const *candidates, int64_t count, char *text, size_t size)
{
    const char *near = kvg_word_nearest(word, candidates, count);
    if (near)
        snprintf(text, size, "; did you mean '%s'?", near);
    else if (size)
        text[0] = '\0';
}
