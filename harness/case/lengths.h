/* SPDX-License-Identifier: Apache-2.0
 *
 * lengths.h: lists of lengths, "1x4096+3*512x8192": q_len x context of each sequence, with a factor where
 * neighbours are equal. A list is kept as its canonical text, which is as short as can be, in struct kvg_case.
 */
#ifndef KVG_HARNESS_CASE_LENGTHS_H
#define KVG_HARNESS_CASE_LENGTHS_H

#include <stdint.h>

#include "results/error.h"

/* Bytes of a list as text. */
#define KVG_LIST_MAX 1024

/* The number in "131072", "128k" or "1M". 0, or -1 when text is not a number or does not fit. */
int kvg_parse_size(const char *text, int64_t *out);

/* What follows from a list. */
struct kvg_list_sums {
    int64_t sequences, total_q, total_kv, max_q_len, max_context;
    int whole; /* 1: the q_len of every sequence is its context */
};

/* 1 if the text is meant as a list or as a file ("@FILE") rather than a word. */
int kvg_is_list(const char *text);
/* Reads a list, or a file of two columns, q_len and context, with one line for each sequence. Writes the canonical
 * text. 0, or -1 with an error that names the entry or the line. */
int kvg_list_parse(const char *text, char list[KVG_LIST_MAX], struct kvg_error *error);
/* From canonical text. An index past the end gives 0 and 0. */
void kvg_list_entry(const char *list, int64_t sequence, int64_t *q_len, int64_t *context);
void kvg_list_sum(const char *list, struct kvg_list_sums *sums);

#endif
