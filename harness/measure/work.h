/* SPDX-License-Identifier: Apache-2.0
 *
 * work.h: the least work of a case, in bytes and operations.
 */
#ifndef KVG_HARNESS_WORK_H
#define KVG_HARNESS_WORK_H

#include <stdint.h>

#include "harness/prepare/prepared.h"
#include "results/row.h"

/* Keys [*first, *last] of sequence `seq` that some query sees; *last < *first where there is none. */
void kvg_visible_range(const struct kvg_prepared *p, int64_t seq, int64_t *first, int64_t *last);

/* Bytes of K and V that the case's queries see: what the gather roof reads and the least an attention call
 * must read. */
int64_t kvg_visible_kv_bytes(const struct kvg_prepared *p);
/* Multiplications and additions of QK and PV over the pairs that are visible, counted exactly. */
int64_t kvg_visible_flops(const struct kvg_prepared *p);

/* Fills bytes_moved and, for attention, flops. */
void kvg_work_count(const struct kvg_prepared *p, struct kvg_row *row);

#endif
