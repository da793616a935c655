/* SPDX-License-Identifier: Apache-2.0
 *
 * words.h: suggestions for mistyped words.
 */
#ifndef KVG_HARNESS_WORDS_H
#define KVG_HARNESS_WORDS_H

#include <stddef.h>
#include <stdint.h>

/* Number of edits that turn a into b: insert, delete or replace a character, or swap two neighbours (optimal
 * string alignment). Letter case is ignored and '-' equals '_'. Only the first 127 characters of a word
 * count. */
int kvg_word_distance(const char *a, const char *b);

/* The candidate of smallest distance, the first one of equals. NULL when that distance is more than a third
 * of the longer word's length (more than 2 for a word shorter than 6 characters), or the whole length. */
const char *kvg_word_nearest(const char *word, const char *const *candidates, int64_t count);

/* Writes "; did you mean 'X'?" with the nearest candidate, or "" when there is none. */
void kvg_word_hint(const char *word, const char *const *candidates, int64_t count, char *text, size_t size);

#endif
