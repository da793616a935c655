/* SPDX-License-Identifier: Apache-2.0
 *
 * work.h: the least work that a case needs, in bytes and operations.
 */
#ifndef KVG_HARNESS_WORK_H
#define KVG_HARNESS_WORK_H

#include <stdint.h>

#include "harness/prepare/prepared.h"
#include "results/row.h"

/* Keys [*first, *last] of sequence `seq` that at least one query sees. *last < *first if no key is seen. */
void kvg_visible_range(const struct kvg_prepared *p, int64_t seq, int64_t *first, int64_t *last);

/* The same without the keys in shared pages that an earlier sequence sees, which a call needs to read once only. With
 * a window, sequences see different parts of the shared pages, and each counts its own. */
void kvg_unread_range(const struct kvg_prepared *p, int64_t seq, int64_t *first, int64_t *last);

/* Bytes of K and V that the case's queries see, of shared pages once. The gather roof reads exactly these, and an attention call
 * must read at least these. */
int64_t kvg_visible_kv_bytes(const struct kvg_prepared *p);
/* Multiplications and additions of Q K^T and P V over the visible pairs of query and key. */
int64_t kvg_visible_flops(const struct kvg_prepared *p);

/* Fills the columns bytes_moved and, for attention, flops. */
void kvg_work_count(const struct kvg_prepared *p, struct kvg_row *row);

#endif
