/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.h: what the files of the room share.
 */
#ifndef KVG_HARNESS_DIAGNOSE_PARTS_H
#define KVG_HARNESS_DIAGNOSE_PARTS_H

#include "failure.h"

/* Both return 1 and fill *d when that is the fault. */
/* Elements that the kernel did not write. */
int kvg_diagnose_missing(const struct kvg_failure *f, struct kvg_diagnosis *d);
/* Only rows that see no key are wrong. They must be zero with an lse of -infinity. */
int kvg_diagnose_empty(const struct kvg_failure *f, const struct kvg_check *checks, struct kvg_diagnosis *d);

/* Index of dim 0 of a head in a slot of paged K or V. */
static inline int64_t kvg_slot_place(const struct kvg_pages *pages, int64_t block_size, int64_t slot,
                                     int64_t head)
{
    return slot / block_size * pages->stride_block + slot % block_size * pages->stride_slot +
           head * pages->stride_head;
}

#endif
