/* SPDX-License-Identifier: Apache-2.0
 *
 * nearest.h: the known word nearest to a mistyped one.
 */
#ifndef KVG_HARNESS_NEAREST_H
#define KVG_HARNESS_NEAREST_H

#include <stddef.h>
#include <stdint.h>

/* Edits that turn a into b: insert, delete, replace, swap two neighbours (optimal string alignment), letter
 * case ignored, '-' and '_' alike. Words longer than 127 characters count by their first 127. */
int kvg_word_distance(const char *a, const char *b);

/* Candidate of smallest distance (the first of several), or NULL when nothing comes near: the distance may be
 * a third of the longer word's letters, and two for words of fewer than six. */
const char *kvg_word_nearest(const char *word, const char *const *candidates, int64_t count);

/* "; did you mean 'X'?" for the nearest candidate, or "" when there is none. */
void kvg_word_hint(const char *word, const char *const *candidates, int64_t count, char *text, size_t size);

#endif
