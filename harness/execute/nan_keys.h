/* SPDX-License-Identifier: Apache-2.0
 *
 * nan_keys.h: runs with a NaN in a visible key, in K and then in V. kernel.h says what must become NaN.
 */
#ifndef KVG_HARNESS_EXECUTE_NAN_KEYS_H
#define KVG_HARNESS_EXECUTE_NAN_KEYS_H

#include "execution.h"
#include "harness/verify/expectation.h"

/* 0, or -1 with the verdict. Nothing is done for a case whose K and V were made on a device. */
int kvg_attention_nan_keys(struct kvg_execution *x, const struct kvg_attention_args *args,
                           const struct kvg_expectation *e);

#endif
