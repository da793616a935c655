/* SPDX-License-Identifier: Apache-2.0
 *
 * own.h: the fields of a prepared case that only harness/prepare uses.
 */
#ifndef KVG_HARNESS_PREPARE_OWN_H
#define KVG_HARNESS_PREPARE_OWN_H

#include <stdint.h>

#include "harness/case/case.h"
#include "harness/memory/guard.h"
#include "options.h"

struct kvg_prepared_own {
    struct kvg_case values; /* the case, but with the seed or layer of the last kvg_prepared_renew */
    struct kvg_prepare_options options;
    int32_t *row_table; /* [batch, problem.max_seq_len]: row of each token in k and v; NULL when uniform */
    int64_t sequence[KVG_PART_MOST]; /* in a part: number of each sequence in the whole case */
    struct kvg_guard_list *guards;   /* owns every buffer of the case; others may be added, unsealed */
};

#endif
