/* SPDX-License-Identifier: Apache-2.0
 *
 * group.h: rows sorted into groups by a text key. Shared by the table and the plots.
 *
 * A key is made of fields in the order in which they should sort, with '|' between its parts. Neighbours with
 * equal keys, or equal first parts of their keys, are a group. Numbers are padded with zeros and known words
 * start with their rank, so that the text order is the natural order.
 */
#ifndef KVG_RESULTS_GROUP_H
#define KVG_RESULTS_GROUP_H

#include "results.h"

#define KVG_KEY_MAX 320

struct kvg_pick {
    char key[KVG_KEY_MAX];
    const struct kvg_row *row; /* borrowed from the results */
};
struct kvg_picks {
    struct kvg_pick *picks;
    int64_t count;
    int64_t left_out; /* rows that kvg_pick_plain left out; 0 after kvg_pick_rows */
};

/* Takes the rows for which `key` writes a key and returns 1, sorted by key and then by file order. -1 on out
 * of memory. */
int kvg_pick_rows(const struct kvg_results *results,
                  int (*key)(const struct kvg_row *row, char *text, size_t size), struct kvg_picks *out);
/* The same for the rows of plain attention (kvg_is_plain); for all rows if none of them is plain. Tables and
 * figures that compare errors or memory call it, because suites also hold small shapes that only look for
 * faults of kernels. */
int kvg_pick_plain(const struct kvg_results *results,
                   int (*key)(const struct kvg_row *row, char *text, size_t size), struct kvg_picks *out);
void kvg_picks_free(struct kvg_picks *picks);
/* End (exclusive) of the group that starts at `begin`, comparing the first `length` characters of the keys
 * (0: all of them). */
int64_t kvg_group_end(const struct kvg_picks *picks, int64_t begin, size_t length);
/* Length of a key up to and including its n-th '|'; the whole length if it has fewer. */
size_t kvg_key_prefix(const char *key, int bars);

/* Rank of a word in its natural order (decode before prefill, none before dataset); 9 if unknown. */
int kvg_rank_phase(const char *phase);
int kvg_rank_dtype(const char *dtype);
int kvg_rank_calibration(const char *calibration);
int kvg_rank_observer(const char *observer);
/* 0 for the row of a kernel; for a prediction 1 (hopper), 2 (hopper_two_level), or 2 + tiles. */
long long kvg_rank_accumulate(const struct kvg_row *row);

/* Part of a key: everything that timed rows must share to be compared over contexts, dtypes and paths. Fits
 * into KVG_SHAPE_MAX characters. */
#define KVG_SHAPE_MAX 224
void kvg_shape_key(const struct kvg_row *row, char *text, size_t size);
/* The same shape in words, without phase and cache state: "batch 8, 32/8 heads, head_dim 128, pages of 16
 * NHD, 2 threads, ragged lengths". */
void kvg_shape_words(const struct kvg_row *row, char *text, size_t size);
/* The kind of lengths in a word: "ragged", or "list-1a2b3c4d" with a hash of the list. */
void kvg_lengths_word(const struct kvg_row *row, char *text, size_t size);
/* Where the row ran: the name of the GPU, or "2 threads". */
void kvg_place_words(const struct kvg_row *row, char *text, size_t size);

/* "" at the default of an axis, else the value. An older file lacks the column and has "" too. */
const char *kvg_value_unless(const char *value, const char *fallback);
/* The calibration, with the observer where that is not the default: "dataset, minmax". */
void kvg_calibration_label(const struct kvg_row *row, char *text, size_t size);
/* 1 if the row has a valid context; a row that never ran may have none. */
int kvg_has_context(const struct kvg_row *row);
/* 1 if the input is captured, that is, real tensors. */
int kvg_is_captured(const struct kvg_row *row);
/* 1 if the row is causal attention without a window, without a soft cap and with the usual softmax scale, and
 * if its context is at least KVG_PLAIN_CONTEXT keys or its input is captured. */
#define KVG_PLAIN_CONTEXT 256
int kvg_is_plain(const struct kvg_row *row);
/* 1 if the row ran on a device with memory of its own (a GPU). */
int kvg_on_device(const struct kvg_row *row);
/* 1 if arithmetic and not memory limits the phase at this shape: prefill always, and append with more flops
 * per byte than the roofs of the machine have. The bytes are counted as if the cache were bf16, so that all
 * dtypes of a shape are treated alike. */
int kvg_bound_by_arithmetic(const struct kvg_row *row);

/* Geometric mean of the positive, finite values; NaN without any. 0 if one of the values is 0. */
double kvg_geometric_mean(const double *values, int64_t n);

#endif
