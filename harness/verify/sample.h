/* SPDX-License-Identifier: Apache-2.0
 *
 * sample.h: which (query, head) rows are compared with a reference.
 *
 * A row with n visible keys costs n * head_dim. Rows are taken in this order while they fit the limits:
 *
 *   1. the last query of every sequence, with as many query heads of every KV head as fit, at least one;
 *   2. the first query that sees a key;
 *   3. queries at boundaries: those whose last visible key is the last slot of a page or tile, the first slot
 *      of the next, or the slot beside; the same at the boundaries of splits; the queries just inside and
 *      just outside a full window; those at the boundaries of chunks and at the
 *      end of the prefix. Of each kind the first and the last boundary are taken;
 *   4. random queries (Philox keyed by the seed of the case, so that nightly seeds rotate the sample);
 *   5. in small cases all other queries.
 *
 * Where not all query heads of a KV head fit, they take turns from position to position and from sequence to
 * sequence. Rows that see no key need no reference, so they are not sampled: all of them are checked.
 */
#ifndef KVG_HARNESS_VERIFY_SAMPLE_H
#define KVG_HARNESS_VERIFY_SAMPLE_H

#include <stdint.h>
#include "harness/prepare/prepared.h"

struct kvg_sample {
    struct kvg_ref_row *rows; /* sorted by sequence, KV head, query, head */
    int64_t count;
};

/* Sizes whose multiples are boundaries, in keys; 0 = none. */
struct kvg_sample_marks {
    int64_t tile, split;
};

/* rows_limit caps the rows (0 = only the cost is limited), cost_limit the sum over rows of visible keys *
 * head_dim. One row per sequence and KV head is taken even beyond both limits. marks[batch]. 0, or -1 when
 * out of memory. */
int kvg_sample_rows(const struct kvg_prepared *p, const struct kvg_sample_marks *marks, int64_t rows_limit,
                    double cost_limit, struct kvg_sample *out);
void kvg_sample_free(struct kvg_sample *sample);

/* Keys that a query of a prepared case sees. */
int64_t kvg_sample_visible(const struct kvg_prepared *p, int64_t seq, int64_t q_index);
/* Index of a row in the outputs of a case, which are [total_q, q_heads] rows. */
int64_t kvg_sample_place(const struct kvg_prepared *p, const struct kvg_ref_row *at);
/* 1 when both rows belong to one group, which is a (sequence, query head). */
int kvg_same_group(const struct kvg_ref_row *a, const struct kvg_ref_row *b);

#endif
