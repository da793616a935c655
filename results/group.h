/* SPDX-License-Identifier: Apache-2.0
 *
 * group.h: rows sorted into groups by a text key. Shared by the table and the plots.
 *
 * A key is made of fields in the order they should sort; groups are runs of equal keys. Numbers are padded
 * and known words replaced by their rank, so that text order is the order a person expects.
 */
#ifndef KVG_RESULTS_GROUP_H
#define KVG_RESULTS_GROUP_H

#include "row.h"
#include "journal.h"

#define KVG_KEY_MAX 320

struct kvg_pick {
    char key[KVG_KEY_MAX];
    const struct kvg_row *row; /* borrowed from the results */
};
struct kvg_picks {
    struct kvg_pick *picks;
    int64_t count;
};

/* Takes the rows for which `key` returns 1 (having written a key), sorted by key and then by file order.
 * -1 on out of memory. */
int kvg_pick_rows(const struct kvg_results *results,
                  int (*key)(const struct kvg_row *row, char *text, size_t size), struct kvg_picks *out);
void kvg_picks_free(struct kvg_picks *picks);
/* End (exclusive) of the group that starts at `begin`, comparing the first `length` characters of the keys
 * (0: all of them). */
int64_t kvg_group_end(const struct kvg_picks *picks, int64_t begin, size_t length);

/* Length of a key up to and with its n-th '|'; the whole length if it has fewer. */
size_t kvg_key_prefix(const char *key, int bars);

/* Rank of a word in its natural order (decode before prefill, none before dataset); 9 if unknown. */
int kvg_rank_phase(const char *phase);
int kvg_rank_dtype(const char *dtype);
int kvg_rank_calibration(const char *calibration);
int kvg_rank_observer(const char *observer);

/* Calibration as a person writes it: the observer is named where it is not the default. */
void kvg_calibration_label(const struct kvg_row *row, char *text, size_t size);
/* 1 if the row's context is one (a row that never ran may have none). */
int kvg_has_context(const struct kvg_row *row);
/* 1 if the input is a captured one: real tensors. */
int kvg_is_captured(const struct kvg_row *row);

/* 1 if a device with memory of its own did the row (its name stands in the row). */
int kvg_on_device(const struct kvg_row *row);
/* 1 if arithmetic rather than memory is what limits the phase at this shape: prefill, and append with more
 * flops a byte (counted as if the cache were bf16, so that dtypes stay together) than the machine's roofs. */
int kvg_bound_by_arithmetic(const struct kvg_row *row);

/* Keeps the rows whose case string matches the POSIX extended regex; a leading '-' negates. 8 to 16
 * hexadecimal digits are taken as the start of a case id instead. */
int kvg_results_filter(struct kvg_results *results, const char *filter, struct kvg_error *error);

/* Geometric mean of the positive, finite values; NaN without any. 0 if one of them is 0. */
double kvg_geometric_mean(const double *values, int64_t n);

#endif
