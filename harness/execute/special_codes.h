/* SPDX-License-Identifier: Apache-2.0
 *
 * special_codes.h: a run of attention on a cache that holds codes at which kernels go wrong
 * (kvg_prepared_special_codes).
 */
#ifndef KVG_HARNESS_EXECUTE_SPECIAL_CODES_H
#define KVG_HARNESS_EXECUTE_SPECIAL_CODES_H

#include "execution.h"

/* 0, or -1 with the verdict. The prepared case keeps the codes: kvg_inputs_renew restores it. Expectations
 * that were made before no longer hold. Nothing is done for a bf16 cache and for a case made on a device. */
int kvg_attention_special_codes(struct kvg_execution *x, const struct kvg_attention_args *args);
/* 1 if the run is possible and cheap. */
int kvg_special_codes_wanted(const struct kvg_execution *x);

#endif
